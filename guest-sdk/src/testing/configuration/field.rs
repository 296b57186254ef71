//! A configuration read field by field, every mistake with the field's path. The texts are the host's own, which a test
//! of both compares.

use std::{cell::RefCell, collections::BTreeSet};

use podium_wire::syntax;
use serde_json::{Map, Value};

/// The mistakes found so far: the field's path and the message.
pub(super) type Problems = RefCell<Vec<(String, String)>>;

/// A value, or its absence, at a field of the document.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    path: String,
    /// `None` if the field is not set.
    value: Option<&'a Value>,
    problems: &'a Problems,
}

/// The fields of a mapping; fields that are never asked for are unknown.
pub(super) struct Fields<'a> {
    field: Field<'a>,
    entries: Option<&'a Map<String, Value>>,
    known: BTreeSet<&'static str>,
}

impl<'a> Field<'a> {
    pub(super) fn root(value: &'a Value, problems: &'a Problems) -> Self {
        Self { path: String::new(), value: Some(value), problems }
    }

    pub(super) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    pub(super) fn problem(&self, message: impl Into<String>) {
        let field = if self.path.is_empty() { "the document".to_owned() } else { self.path.clone() };
        self.problems.borrow_mut().push((field, message.into()));
    }

    fn below(&self, path: String, value: Option<&'a Value>) -> Self {
        Self { path, value, problems: self.problems }
    }

    pub(super) fn fields(self) -> Fields<'a> {
        let entries = match self.value {
            Some(Value::Object(entries)) => Some(entries),
            Some(_) => {
                self.problem("must be a mapping of fields");
                None
            }
            None => None,
        };
        Fields { field: self, entries, known: BTreeSet::new() }
    }

    pub(super) fn list(&self) -> Vec<Self> {
        match self.value {
            Some(Value::Array(items)) => {
                let item = |(index, item)| self.below(format!("{}[{index}]", self.path), Some(item));
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
    pub(super) fn texts(&self) -> Vec<(String, Self)> {
        match self.value {
            Some(Value::Object(entries)) => {
                let entry =
                    |(key, value)| (String::clone(key), self.below(format!("{}.{key}", self.path), Some(value)));
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
        match self.value? {
            Value::String(text) => Some(text.clone()),
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
        let text = self.text()?;
        if text.is_empty() {
            self.problem("must not be empty");
            return None;
        }
        Some(text)
    }

    /// A text that passes a rule of [`syntax`].
    pub(super) fn checked(&self, text: Option<String>, rule: fn(&str) -> Result<(), &'static str>) -> Option<String> {
        let text = text?;
        match rule(&text) {
            Ok(()) => Some(text),
            Err(rule) => {
                self.problem(format!("{} {rule}", syntax::quoted(&text)));
                None
            }
        }
    }

    pub(super) fn flag(&self) -> bool {
        match self.value {
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.problem("must be true or false");
                false
            }
            None => false,
        }
    }

    /// `None` if it is not set or invalid.
    pub(super) fn number(&self, least: u64, most: u64) -> Option<u64> {
        let number = self.value?.as_u64().filter(|number| (least..=most).contains(number));
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
            self.problem(format!("{} is not known; use one of {}", syntax::quoted(&text), words.join(", ")));
        }
        word
    }

    /// Any mapping.
    pub(super) fn mapping(&self) -> Option<&'a Value> {
        let value = self.value?;
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
        // A null is as good as nothing, as in Kubernetes.
        let value = self.entries.and_then(|entries| entries.get(name)).filter(|value| !value.is_null());
        self.field.below(path, value)
    }

    /// Reports the fields that were never asked for.
    pub(super) fn finish(self) {
        let known: Vec<&str> = self.known.iter().copied().collect();
        for key in self.entries.into_iter().flat_map(Map::keys).filter(|key| !self.known.contains(key.as_str())) {
            let path = if self.field.path.is_empty() { key.clone() } else { format!("{}.{key}", self.field.path) };
            let message = format!("is not a known field; known here: {}", known.join(", "));
            self.field.below(path, None).problem(message);
        }
    }
}
