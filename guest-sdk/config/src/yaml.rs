//! YAML as a tree in which every value has its line. Bounded: a file may come from a tenant.

use std::{collections::BTreeSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::{Error, Spanned, UserMessageFormatter, budget::BudgetBreach};

use crate::Problem;

/// Nodes of one file with its aliases expanded: mappings, lists and values, about 100 bytes of memory each.
const MAX_NODES: usize = 100_000;
/// Bytes of all values of one file with its aliases expanded.
const MAX_SCALAR_BYTES: usize = 2 << 20;
/// Mappings and lists inside of each other. They are read recursively, at up to 40 KiB of stack a level in a debug
/// build; a thread of tokio or of a test has 2 MiB.
const MAX_DEPTH: usize = 32;

#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The line of its key; in a list and for a document, the line of the value itself.
    line: u64,
    content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    Scalar(Value),
    List(Vec<Node>),
    /// The keys and values of a mapping, in the order of the document.
    Map(Vec<(String, Node)>),
}

/// Aliases are expanded while a file is read, so the bounds apply to the expanded document and not only to the file.
/// Merge keys (`<<`) are refused, because tools that do not know them do not see the grants that they add.
///
/// The reader accepts repeated keys, and [`Node::repeated`] finds them: for the reader, keys with different tags, or
/// `1` and `"1"`, are different keys.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_total_scalar_bytes: MAX_SCALAR_BYTES,
        },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
    }
}

/// Reads the documents of a file.
///
/// # Errors
/// The first mistake. Reading cannot continue after it.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Node>, Problem> {
    serde_saphyr::from_multiple_with_options(yaml, options()).map_err(|error| {
        let line = error.location().map(|location| location.line());
        Problem { line, field: String::new(), message: unreadable(&error) }
    })
}

/// Returns the advice for a file that cannot be read. The reader's own messages advise the programmer who calls it.
fn unreadable(error: &Error) -> String {
    let bound = |bound: &str| format!("has more than {bound}, with its aliases expanded; split it into several files");
    match error {
        Error::AliasError { error, .. } | Error::WithSnippet { error, .. } => unreadable(error),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => format!("nests mappings and lists more than {MAX_DEPTH} deep"),
            BudgetBreach::Nodes { .. } => bound(&format!("{MAX_NODES} values")),
            BudgetBreach::ScalarBytes { .. } => bound(&format!("{} MiB of text", MAX_SCALAR_BYTES >> 20)),
            _ => "has too many documents, anchors or aliases; split it into several files".to_owned(),
        },
        Error::MergeKeyNotAllowed { .. } => {
            "has a merge key (`<<`); write the fields out, so that every grant can be seen where it is".to_owned()
        }
        Error::NullIntoString { .. } => "has a key that is null; remove it, or put it in quotes".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "has an alias inside of its own anchor; remove the alias".to_owned()
        }
        Error::NonFiniteFloat { .. } => "has a number that is infinite or no number; remove it".to_owned(),
        error => {
            // The error shows the place in several lines; its first one has the message.
            let message = error.render_with_formatter(&UserMessageFormatter);
            let message = message.lines().next().unwrap_or_default().trim_end_matches('.');
            format!(
                "is not valid YAML: {message}; correct the indentation, quotes or brackets on this line or above it"
            )
        }
    }
}

impl Node {
    /// Returns a value of a document that has no lines.
    pub(crate) fn unplaced(content: Content) -> Self {
        Self { line: 0, content }
    }

    /// Counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }

    /// Returns the mistake of the first key that a mapping in this value has twice. Nothing else may be read of such a
    /// value: the collecting pass would judge the first of the two, and the types would get the last.
    pub(crate) fn repeated(&self) -> Option<Problem> {
        self.repeated_below().map(|(path, line)| Problem {
            line: Some(line),
            field: path.strip_prefix('.').unwrap_or(&path).to_owned(),
            message: "is there twice; remove one of the two".to_owned(),
        })
    }

    /// The path is made only for a key that is repeated: it may be long, and there may be many values.
    fn repeated_below(&self) -> Option<(String, u64)> {
        let below = |step: String, (path, line): (String, u64)| (step + &path, line);
        match &self.content {
            Content::Scalar(_) => None,
            Content::List(items) => {
                let found = |(at, item): (usize, &Self)| Some(below(format!("[{at}]"), item.repeated_below()?));
                items.iter().enumerate().find_map(found)
            }
            Content::Map(entries) => {
                let mut keys = BTreeSet::new();
                entries.iter().find_map(|(key, value)| {
                    if !keys.insert(&**key) {
                        return Some((format!(".{key}"), value.line));
                    }
                    Some(below(format!(".{key}"), value.repeated_below()?))
                })
            }
        }
    }

    /// The value as JSON, nulls included.
    pub(crate) fn json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::json).collect(),
            Content::Map(entries) => entries.iter().map(|(key, value)| (key.clone(), value.json())).collect(),
        }
    }
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
        formatter.write_str("a mapping, a list, a text, a number of 64 bits, true, false or null")
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
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, Node>()? {
            // People look for the field, and its value may begin far below.
            map.push((key.value, Node { line: key.referenced.line(), ..value }));
        }
        Ok(Content::Map(map))
    }
}
