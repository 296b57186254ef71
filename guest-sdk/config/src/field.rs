//! A place in a document: its path, its line and its value, if there is one. Mistakes are collected with it.

use std::cell::RefCell;

use serde_json::Value;

use crate::yaml::{Content, Node};

/// The most problems that are reported for one document. Without a bound, a hostile file would cause one for each of
/// its values.
const MOST_PROBLEMS: usize = 100;

/// A mistake: where it is, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Counted from 1; `None` if it is about the file.
    pub line: Option<u64>,
    /// Such as `spec.limits.memoryMiB`; empty if it is about the file.
    pub field: String,
    /// The mistake, and how to correct it.
    pub message: String,
}

/// The mistakes of a document, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Problems(RefCell<Found>);

#[derive(Debug, Default)]
struct Found {
    problems: Vec<Problem>,
    more: usize,
}

impl Problems {
    /// Returns the mistakes in the order of the document.
    pub(crate) fn into_inner(self) -> Vec<Problem> {
        let Found { mut problems, more } = self.0.into_inner();
        problems.sort_by_key(|problem| problem.line);
        if more > 0 {
            let message = format!("has {more} more mistakes, which are not listed");
            problems.push(Problem { line: problems[0].line, field: "the document".to_owned(), message });
        }
        problems
    }
}

/// A value, or its absence, at a place in the document.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    path: String,
    /// `None` if the field is not set.
    node: Option<&'a Node>,
    /// The line of the field's key, or that of the nearest field around.
    line: u64,
    problems: &'a Problems,
}

impl<'a> Field<'a> {
    pub(crate) fn root(node: &'a Node, problems: &'a Problems) -> Self {
        Self { path: String::new(), node: Some(node), line: node.line(), problems }
    }

    pub(crate) fn problem(&self, message: impl Into<String>) {
        let mut found = self.problems.0.borrow_mut();
        if found.problems.len() == MOST_PROBLEMS {
            found.more += 1;
            return;
        }
        let field = if self.path.is_empty() { "the document".to_owned() } else { self.path.clone() };
        found.problems.push(Problem { line: Some(self.line), field, message: message.into() });
    }

    pub(crate) fn is_set(&self) -> bool {
        self.node.is_some()
    }

    pub(crate) fn is_mapping(&self) -> bool {
        matches!(self.content(), Some(Content::Map(_)))
    }

    pub(crate) fn content(&self) -> Option<&'a Content> {
        self.node.map(Node::content)
    }

    /// The field `name` of a mapping; not set if the mapping lacks it or has null there, as in Kubernetes.
    pub(crate) fn get(&self, name: &str) -> Self {
        let entry = self.entries().iter().find(|(key, _)| key == name);
        let node = entry.map(|(_, node)| node);
        let line = node.map_or(self.line, Node::line);
        Self { path: self.below(name), node: node.filter(|node| !node.is_null()), line, problems: self.problems }
    }

    /// The value behind a key of this mapping, even if it is null.
    pub(crate) fn entry(&self, key: &str, node: &'a Node) -> Self {
        Self { path: self.below(key), node: Some(node), line: node.line(), problems: self.problems }
    }

    fn below(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The entries of a mapping in the order of the document; nothing if it is another value.
    pub(crate) fn entries(&self) -> &'a [(String, Node)] {
        match self.content() {
            Some(Content::Map(entries)) => entries,
            _ => &[],
        }
    }

    /// The items of a list; nothing if it is another value.
    pub(crate) fn items(&self) -> Vec<Self> {
        let Some(Content::List(items)) = self.content() else { return Vec::new() };
        let item = |(index, node): (usize, &'a Node)| Self {
            path: format!("{}[{index}]", self.path),
            node: Some(node),
            line: node.line(),
            problems: self.problems,
        };
        items.iter().enumerate().map(item).collect()
    }

    fn scalar(&self) -> Option<&'a Value> {
        match self.content() {
            Some(Content::Scalar(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        self.scalar().and_then(Value::as_str)
    }

    pub(crate) fn number(&self) -> Option<u64> {
        self.scalar().and_then(Value::as_u64)
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        self.scalar().and_then(Value::as_bool)
    }

    /// The value as JSON, nulls included.
    pub(crate) fn json(&self) -> Option<Value> {
        self.node.map(Node::json)
    }
}
