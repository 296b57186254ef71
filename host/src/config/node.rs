//! YAML as a tree in which every value knows its line, and a reader that names the field of every error.

use std::{cell::RefCell, collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::Spanned;

#[derive(Debug, Clone)]
pub(super) struct Node {
    line: u64,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("YAML")
    }
    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }
    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        Content::deserialize(deserializer)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }
    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Content::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Content::Map(map))
    }
}

impl Node {
    /// Counted from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }

    pub(super) fn json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::json).collect(),
            Content::Map(entries) => entries.iter().map(|(key, value)| (key.clone(), value.json())).collect(),
        }
    }
}

/// One thing that is wrong: where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub line: Option<u64>,
    pub field: String,
    pub message: String,
}

/// Collects what is wrong in a document, so that one look at the file mends all of it.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<Problem>>);

impl Problems {
    pub(super) fn into_inner(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

/// A value, or its absence, at a field of the document.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    path: String,
    /// None where the field is not set.
    node: Option<&'a Node>,
    /// Of the nearest thing that is there.
    line: u64,
    problems: &'a Problems,
}

/// The fields of a mapping; those that nobody asks for are unknown.
pub(super) struct Fields<'a> {
    field: Field<'a>,
    entries: &'a [(String, Node)],
    known: BTreeSet<&'static str>,
}

impl<'a> Field<'a> {
    pub(super) fn root(node: &'a Node, problems: &'a Problems) -> Self {
        Self { path: String::new(), node: Some(node), line: node.line, problems }
    }

    pub(super) fn is_set(&self) -> bool {
        self.node.is_some()
    }

    pub(super) fn problem(&self, message: impl Into<String>) {
        let field = if self.path.is_empty() { "the document".to_owned() } else { self.path.clone() };
        self.problems.0.borrow_mut().push(Problem { line: Some(self.line), field, message: message.into() });
    }

    /// For a problem of one value among several: `labels[0]`.
    fn child(&self, path: String, node: Option<&'a Node>) -> Self {
        // A null is as good as nothing, as in Kubernetes.
        let node = node.filter(|node| !node.is_null());
        Self { path, node, line: node.map_or(self.line, |node| node.line), problems: self.problems }
    }

    pub(super) fn fields(self) -> Fields<'a> {
        let entries = match self.node.map(|node| &node.content) {
            Some(Content::Map(entries)) => entries.as_slice(),
            Some(_) => {
                self.problem("must be a mapping of fields");
                &[]
            }
            None => &[],
        };
        Fields { field: self, entries, known: BTreeSet::new() }
    }

    pub(super) fn list(&self) -> Vec<Field<'a>> {
        match self.node.map(|node| &node.content) {
            Some(Content::List(items)) => {
                let item = |(index, item)| Field {
                    path: format!("{}[{index}]", self.path),
                    node: Some(item),
                    line: Node::line(item),
                    problems: self.problems,
                };
                items.iter().enumerate().map(item).collect()
            }
            Some(_) => {
                self.problem("must be a list, such as [a, b]");
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// The keys and values of a mapping of texts.
    pub(super) fn texts(&self) -> Vec<(String, Field<'a>)> {
        match self.node.map(|node| &node.content) {
            Some(Content::Map(entries)) => {
                let entry = |(key, value): &'a (String, Node)| {
                    (
                        key.clone(),
                        Field {
                            node: Some(value),
                            line: value.line,
                            path: format!("{}.{key}", self.path),
                            problems: self.problems,
                        },
                    )
                };
                entries.iter().map(entry).collect()
            }
            Some(_) => {
                self.problem("must be a mapping of texts");
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    pub(super) fn text(&self) -> Option<String> {
        match &self.node?.content {
            Content::Scalar(Value::String(text)) => Some(text.clone()),
            _ => {
                self.problem("must be a text; put it in quotes");
                None
            }
        }
    }

    pub(super) fn required_text(&self) -> Option<String> {
        if !self.is_set() {
            self.problem("is missing");
        }
        self.text().filter(|text| {
            let empty = text.is_empty();
            if empty {
                self.problem("must not be empty");
            }
            !empty
        })
    }

    pub(super) fn flag(&self) -> bool {
        match self.node.map(|node| &node.content) {
            Some(Content::Scalar(Value::Bool(flag))) => *flag,
            Some(_) => {
                self.problem("must be true or false");
                false
            }
            None => false,
        }
    }

    /// None where it is not set, or wrong.
    pub(super) fn number(&self, least: u64, most: u64) -> Option<u64> {
        let number = match &self.node?.content {
            Content::Scalar(value) => value.as_u64(),
            _ => None,
        };
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.problem(format!("must be a whole number from {least} to {most}"));
        }
        number
    }

    /// One of these words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let word = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if word.is_none() {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let quoted = podium_pods::model::syntax::quoted(&text);
            self.problem(format!("{quoted} is not known; use one of {}", words.join(", ")));
        }
        word
    }

    /// Any mapping, as JSON.
    pub(super) fn mapping(&self) -> Option<Value> {
        let value = self.node?.json();
        if !value.is_object() {
            self.problem("must be a mapping, such as { threshold: 5 }");
            return None;
        }
        Some(value)
    }
}

impl<'a> Fields<'a> {
    pub(super) fn get(&mut self, name: &'static str) -> Field<'a> {
        self.known.insert(name);
        let path = if self.field.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.field.path) };
        let node = self.entries.iter().find(|(key, _)| key == name).map(|(_, node)| node);
        self.field.child(path, node)
    }

    /// Names what nobody asked for.
    pub(super) fn finish(self) {
        for (key, node) in self.entries.iter().filter(|(key, _)| !self.known.contains(key.as_str())) {
            let path = if self.field.path.is_empty() { key.clone() } else { format!("{}.{key}", self.field.path) };
            let known: Vec<&str> = self.known.iter().copied().collect();
            let field = Field { path, node: None, line: node.line, problems: self.field.problems };
            field.problem(format!("is not a known field; known here: {}", known.join(", ")));
        }
    }
}
