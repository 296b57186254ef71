//! The text of a Pod that is not split into fragments: its whole JSON without pruned fields.
//!
//! Used for JSON that no API server writes, for example with spaces between members, so it is not optimised. Member
//! names of the object and of its metadata are written again; everything else is returned byte for byte.

use std::fmt;

use podium_vocabulary::Prune;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    forms,
    placeholder::{Kind, PLACEHOLDER},
};

/// Returns the text, or `None` if the JSON or its metadata is not an object.
pub(super) fn text(json: &[u8], prune: &Prune) -> Option<Vec<u8>> {
    // The decoder accepts any bytes in strings that it ignores; readers of this rely on UTF-8.
    let json = String::from_utf8_lossy(json);
    let mut out = vec![b'{'];
    for (key, value) in members(&json)? {
        match &*key {
            "kind" | "apiVersion" => {}
            "metadata" => {
                begin(&key, &mut out)?;
                metadata(value.get(), prune, &mut out)?;
            }
            _ => member(&key, value, &mut out)?,
        }
    }
    out.push(b'}');
    Some(out)
}

fn metadata(json: &str, prune: &Prune, out: &mut Vec<u8>) -> Option<()> {
    out.push(b'{');
    for (key, value) in members(json)? {
        let text = value.get().strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        match &*key {
            "managedFields" => {}
            // A placeholder, so that comparisons ignore the revision as they do for other Pods.
            "resourceVersion" if text.is_some_and(|text| forms::number(text.as_bytes()).is_some()) => {
                begin(&key, out)?;
                out.extend([b'"', PLACEHOLDER, Kind::Revision as u8, b'"']);
            }
            "annotations" if prune.cuts_annotations() && value.get().starts_with('{') => {
                begin(&key, out)?;
                out.push(b'{');
                for (key, value) in members(value.get())?.into_iter().filter(|(key, _)| !prune.cuts_annotation(key)) {
                    member(&key, value, out)?;
                }
                out.push(b'}');
            }
            _ => member(&key, value, out)?,
        }
    }
    out.push(b'}');
    Some(())
}

fn member(key: &str, value: &RawValue, out: &mut Vec<u8>) -> Option<()> {
    begin(key, out)?;
    out.extend_from_slice(value.get().as_bytes());
    Some(())
}

/// Appends the name of a member.
fn begin(key: &str, out: &mut Vec<u8>) -> Option<()> {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, key).ok()?;
    out.push(b':');
    Some(())
}

fn members(json: &str) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str(json).ok().map(|Members(members)| members)
}

/// Members in their order, including those with equal names.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor).map(Members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}
