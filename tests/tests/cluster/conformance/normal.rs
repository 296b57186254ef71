//! Makes the responses of two servers comparable. Everything that a client can act on is compared:
//! - uids and revisions are named by the step that first contains them, so that equal ones stay equal; times become
//!   `<time>`, ages in tables `<age>`;
//! - an empty field and an absent one are equal;
//! - of managedFields, applied fields are compared completely, because later applies depend on them; of an update,
//!   only its author: the real server counts empty parents among the fields and leaves out what its admission adds;
//! - a repeated cause counts once, because the real server may validate in several passes; conflicts of apply have no
//!   order there;
//! - the text of an error about a malformed request comes from Go's parsers and is hidden unless a step compares it;
//!   code and reason are compared.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::conformance::exchange::Compared;

/// The replacement for the revision of a list or bookmark, which on the real server changes with writes to other
/// objects.
const OF_THE_WHOLE: &str = "<of the whole>";
/// Responses to requests that cannot be parsed, or whose media type is not served.
const MALFORMED: [u64; 3] = [400, 415, 500];

/// The names so far, of one server in one scenario.
#[derive(Debug, Default)]
pub(crate) struct Normaliser {
    uids: BTreeMap<String, String>,
    revisions: BTreeMap<String, String>,
    step: usize,
    named_in_step: usize,
}

impl Normaliser {
    /// Starts a new step. Names are numbered within a step, so that one name more or less does not shift the names of
    /// the next.
    pub(crate) fn next_step(&mut self) {
        self.step += 1;
        self.named_in_step = 0;
    }

    fn name(&mut self, what: &str) -> String {
        self.named_in_step += 1;
        format!("{what}-{}.{}", self.step, self.named_in_step)
    }

    /// Returns the normalised response. `hidden` names keys that are left out at any depth.
    pub(crate) fn normal(&mut self, mut answer: Value, hidden: &[&str], compared: Compared) -> Value {
        let of_many = answer.get("items").is_some() || answer.get("rows").is_some();
        let bookmark = answer.get("type").is_some_and(|kind| kind == "BOOKMARK");
        let pointer = if bookmark { "/object/metadata/resourceVersion" } else { "/metadata/resourceVersion" };
        if let Some(revision) = answer.pointer_mut(pointer).filter(|_| of_many || bookmark) {
            *revision = OF_THE_WHOLE.into();
        }
        if let Some(token) = answer.pointer_mut("/metadata/continue").filter(|token| **token != "") {
            *token = "<token>".into();
        }
        if compared == Compared::Meaning
            && answer["kind"] == "Status"
            && answer["code"].as_u64().is_some_and(|code| MALFORMED.contains(&code))
            && let Some(status) = answer.as_object_mut()
        {
            status.remove("message");
        }
        self.visit("", &mut answer, hidden);
        answer
    }

    fn visit(&mut self, key: &str, value: &mut Value, hidden: &[&str]) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| !hidden.contains(&key.as_str()));
                for (key, value) in map.iter_mut() {
                    self.visit(key, value, hidden);
                }
                map.retain(|_, value| !is_empty(value));
            }
            Value::Array(items) => {
                if key == "managedFields" {
                    items.iter_mut().for_each(without_detail);
                    items.sort_by_key(ToString::to_string);
                }
                for item in items.iter_mut() {
                    self.visit(key, item, hidden);
                }
                if key == "causes" {
                    if items.iter().all(|cause| cause["reason"] == "FieldManagerConflict") {
                        items.sort_by_key(ToString::to_string);
                    }
                    items.dedup();
                }
            }
            Value::String(text) => *text = self.text(key, text),
            _ => {}
        }
    }

    fn text(&mut self, key: &str, text: &str) -> String {
        if key == "resourceVersion" && !text.is_empty() && text != OF_THE_WHOLE {
            if let Some(name) = self.revisions.get(text) {
                return name.clone();
            }
            let name = self.name("revision");
            self.revisions.insert(text.to_owned(), name.clone());
            return name;
        }
        if key == "cells" && is_age(text) {
            return "<age>".to_owned();
        }
        // Times that the scenarios write themselves are in 2020 and are kept.
        if text.parse::<jiff::Timestamp>().is_ok() && !text.starts_with("2020-") {
            return "<time>".to_owned();
        }
        let text = self.without_uids(text);
        if key == "message" { self.without_revisions(text) } else { text }
    }

    /// Hides the two revisions, in brackets, in the message of a failed precondition.
    fn without_revisions(&self, text: String) -> String {
        let mut parts = text.split('(');
        let mut normal = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let known = part.split_once(')').and_then(|(number, rest)| Some((self.revisions.get(number)?, rest)));
            match known {
                Some((name, rest)) => normal += &format!("({name}){rest}"),
                None => normal += &format!("({part}"),
            }
        }
        normal
    }

    /// Uids also appear inside messages.
    fn without_uids(&mut self, text: &str) -> String {
        let mut rest = text;
        let mut normal = String::new();
        while let Some(letter) = rest.chars().next() {
            match rest.get(..36).filter(|candidate| is_uid(candidate)) {
                Some(uid) => {
                    if !self.uids.contains_key(uid) {
                        let name = self.name("uid");
                        self.uids.insert(uid.to_owned(), name);
                    }
                    normal += &self.uids[uid];
                    rest = &rest[36..];
                }
                None => {
                    normal.push(letter);
                    rest = &rest[letter.len_utf8()..];
                }
            }
        }
        normal
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_age(text: &str) -> bool {
    text.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u32>().is_ok())
}

fn without_detail(entry: &mut Value) {
    if entry["operation"] == "Update" {
        *entry = json!({ "operation": "Update", "manager": entry["manager"], "subresource": entry["subresource"] });
    } else if let Some(applied) = entry.as_object_mut() {
        // An apply that changes nothing has no time on the real server.
        applied.remove("time");
    }
}

fn is_uid(text: &str) -> bool {
    // The scenarios' own uids have this prefix and are not replaced.
    !text.starts_with("00000000-")
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[test]
fn equal_uids_and_revisions_stay_equal_and_others_stay_apart() {
    let mut normaliser = Normaliser::default();
    let object = |uid: &str, revision: &str| json!({ "metadata": { "uid": uid, "resourceVersion": revision } });
    let first = normaliser.normal(object("8f8de2a6-4e29-4f83-8b0d-3e1c1b1f0a01", "7"), &[], Compared::Meaning);
    let same = normaliser.normal(object("8f8de2a6-4e29-4f83-8b0d-3e1c1b1f0a01", "7"), &[], Compared::Meaning);
    normaliser.next_step();
    let other = normaliser.normal(object("8f8de2a6-4e29-4f83-8b0d-3e1c1b1f0a02", "8"), &[], Compared::Meaning);
    assert_eq!(first, same);
    assert_eq!(other, object("uid-1.2", "revision-1.1"));
    let message = |first: &str| json!({ "message": format!("a (b) is ({first}), not (9)") });
    assert_eq!(normaliser.normal(message("8"), &[], Compared::Meaning), message("revision-1.1"));
}
