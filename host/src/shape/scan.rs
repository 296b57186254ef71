//! Cuts the JSON of a Pod into three parts (the object around spec and status, the spec, the status), and each part into
//! its key, which Pods of one workload share, and its own values.
//!
//! One pass, nothing is built but keys and values. It knows where the API server puts things and validates nothing: a
//! part is JSON because its key equals one that was proven to be, or because a real decoder says so afterwards.

use super::{
    leaf::{self, Kind, MARK, Own, Value},
    skip,
};

/// The parts of a Pod, in this order everywhere.
pub(super) const PARTS: usize = 3;
pub(super) const OUTER: usize = 0;
pub(super) const SPEC: usize = 1;
pub(super) const STATUS: usize = 2;

/// How far back a leaf finds its like.
const MAX_PLACE: usize = u8::MAX as usize;
/// A text that ends in the Pod's name is cut there, unless the name is so short that chance does it.
const LEAST_NAME: usize = 5;
const GENERATED: &[u8] = b"kube-api-access-";

/// One part as cut.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) key: Vec<u8>,
    pub(super) own: Own,
    /// The leaves so far: their kind and where their text is.
    leaves: Vec<(Kind, usize, usize)>,
    /// The JSON before this is in the key.
    copied: usize,
}

impl Draft {
    fn clear(&mut self) {
        self.key.clear();
        self.own.clear();
        self.leaves.clear();
        self.copied = 0;
    }

    pub(super) fn leaves(&self) -> usize {
        self.leaves.len()
    }
}

/// Buffers that are used again from Pod to Pod.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) parts: [Draft; PARTS],
}

/// What was found beside the drafts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) revision: u64,
    /// Of the spec's bytes; 0 where there is no spec.
    pub(super) spec_hash: u64,
    /// The spec is the one that is held, and was not cut.
    pub(super) spec_is_held: bool,
}

/// Which leaves are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    All,
    /// Name, uid and revision alone.
    Identity,
}

/// None where the JSON is not in the form in which an API server writes a Pod; it may be a Pod all the same.
///
/// `held` is asked, once namespace, name and uid are known, for the hash of the spec that is held of this incarnation.
pub(super) fn cut<'a>(
    json: &'a [u8],
    scratch: &mut Scratch,
    wanted: Leaves,
    hash: impl Fn(&[u8]) -> u64,
    held: impl FnOnce(&str, &str, &str) -> Option<u64>,
) -> Option<Cut<'a>> {
    scratch.parts.iter_mut().for_each(Draft::clear);
    let mut scanner = Scanner { json, parts: &mut scratch.parts, part: OUTER, wanted, name: b"", node: None };
    let mut found = Found::default();
    let mut held = Some(held);
    let (mut spec_hash, mut spec_is_held) = (0, false);
    if json.first() != Some(&b'{') {
        return None;
    }
    let mut at = 1;
    loop {
        let Member { start, key, value } = match scanner.member(at)? {
            Ok(member) => member,
            Err(end) => {
                at = end;
                break;
            }
        };
        at = match key {
            // Every Pod has them, and items of a list do not: left out of all.
            b"kind" | b"apiVersion" => scanner.prune(start, value)?,
            b"metadata" => scanner.metadata(value, &mut found)?,
            b"spec" => {
                let identity = (found.namespace.and_then(text), found.name.and_then(text), found.uid.and_then(text));
                let ask = if json.get(value) == Some(&b'{') { held.take() } else { None };
                let known = match (identity, ask) {
                    ((Some(namespace), Some(name), Some(uid)), Some(held)) => held(namespace, name, uid),
                    _ => None,
                };
                let end = scanner.end(value)?;
                spec_hash = hash(json.get(value..end)?);
                spec_is_held = known == Some(spec_hash);
                scanner.nested(SPEC, value, spec_is_held.then_some(end))?
            }
            b"status" => scanner.nested(STATUS, value, None)?,
            _ => scanner.value(value)?,
        };
    }
    scanner.flush(at);
    if at != json.len() {
        return None;
    }
    Some(Cut {
        namespace: found.namespace.and_then(text)?,
        name: found.name.and_then(text)?,
        uid: found.uid.and_then(text)?,
        revision: found.revision?,
        spec_hash,
        spec_is_held,
    })
}

/// The text of a leaf that stands for itself; none where it is no JSON, or empty, as the API server has none of these.
fn text(bytes: &[u8]) -> Option<&str> {
    let plain = !bytes.is_empty() && bytes.iter().all(|byte| *byte >= b' ');
    if plain { str::from_utf8(bytes).ok() } else { None }
}

#[derive(Debug, Default)]
struct Found<'a> {
    namespace: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    uid: Option<&'a [u8]>,
    revision: Option<u64>,
}

struct Member<'a> {
    /// Of its key's quote.
    start: usize,
    key: &'a [u8],
    value: usize,
}

struct Scanner<'a, 's> {
    json: &'a [u8],
    parts: &'s mut [Draft; PARTS],
    /// The one that is being cut.
    part: usize,
    wanted: Leaves,
    name: &'a [u8],
    /// The node's name in the spec: its leaf and its text.
    node: Option<(usize, &'a [u8])>,
}

impl<'a> Scanner<'a, '_> {
    /// The next member of an object, or where the object ends.
    #[inline]
    fn member(&self, mut at: usize) -> Option<Result<Member<'a>, usize>> {
        if self.json.get(at) == Some(&b',') {
            at += 1;
        }
        match self.json.get(at)? {
            b'}' => Some(Err(at + 1)),
            b'"' => {
                let (end, escaped) = skip::string_end(self.json, at + 1)?;
                let is_key = self.json.get(end + 1) == Some(&b':') && !escaped;
                is_key.then(|| Ok(Member { start: at, key: &self.json[at + 1..end], value: end + 2 }))
            }
            _ => None,
        }
    }

    fn metadata(&mut self, from: usize, found: &mut Found<'a>) -> Option<usize> {
        if self.json.get(from) != Some(&b'{') {
            return None;
        }
        let mut at = from + 1;
        loop {
            let Member { start, key, value } = match self.member(at)? {
                Ok(member) => member,
                Err(end) => return Some(end),
            };
            at = match key {
                b"name" => {
                    let (from, end) = self.string(value)?;
                    found.name = Some(&self.json[from..end]);
                    self.name = &self.json[from..end];
                    self.leaf(Kind::Name, from, end);
                    end + 1
                }
                b"uid" => {
                    let (from, end) = self.string(value)?;
                    found.uid = Some(&self.json[from..end]);
                    self.leaf(Kind::Uid, from, end);
                    end + 1
                }
                b"namespace" => {
                    let (from, end) = self.string(value)?;
                    found.namespace = Some(&self.json[from..end]);
                    end + 1
                }
                b"resourceVersion" => {
                    let (from, end) = self.string(value)?;
                    found.revision = Some(leaf::number(&self.json[from..end])?);
                    self.leaf(Kind::Revision, from, end);
                    end + 1
                }
                b"managedFields" => self.prune(start, value)?,
                _ => self.value(value)?,
            };
        }
    }

    /// A string value without escapes: where its content begins and ends.
    fn string(&self, value: usize) -> Option<(usize, usize)> {
        if self.json.get(value) != Some(&b'"') {
            return None;
        }
        let (end, escaped) = skip::string_end(self.json, value + 1)?;
        (!escaped).then_some((value + 1, end))
    }

    /// Where a value ends.
    fn end(&self, value: usize) -> Option<usize> {
        match self.json.get(value)? {
            b'{' | b'[' => skip::container_end(self.json, value),
            b'"' => Some(skip::string_end(self.json, value + 1)?.0 + 1),
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']');
                Some(value + self.json[value..].iter().position(ends)?)
            }
        }
    }

    /// Leaves a member out, with one of the commas beside it. Gives where the next begins.
    fn prune(&mut self, start: usize, value: usize) -> Option<usize> {
        let end = self.end(value)?;
        self.flush(start);
        let draft = &mut self.parts[self.part];
        if self.json.get(end) == Some(&b',') {
            draft.copied = end + 1;
            return Some(end + 1);
        }
        if draft.key.last() == Some(&b',') {
            draft.key.pop();
        }
        draft.copied = end;
        Some(end)
    }

    /// A member of the outer object that is a part of its own; one whose end is given is passed over.
    fn nested(&mut self, part: usize, value: usize, end: Option<usize>) -> Option<usize> {
        // A second one of the same name would write over the first.
        if !self.parts[part].key.is_empty() {
            return None;
        }
        self.flush(value);
        self.parts[OUTER].key.extend([MARK, Kind::Part as u8, part as u8]);
        let end = match end {
            Some(end) => end,
            None => {
                self.part = part;
                self.parts[part].copied = value;
                let end = self.value(value)?;
                self.flush(end);
                self.part = OUTER;
                end
            }
        };
        self.parts[OUTER].copied = end;
        Some(end)
    }

    /// Any value, with the leaves in it. Gives where it ends.
    fn value(&mut self, from: usize) -> Option<usize> {
        let json = self.json;
        if !matches!(json.get(from)?, b'{' | b'[' | b'"') {
            return self.end(from);
        }
        let mut depth = 0_usize;
        let mut at = from;
        loop {
            match json.get(at)? {
                b'"' => {
                    let (end, escaped) = skip::string_end(json, at + 1)?;
                    if json.get(end + 1) == Some(&b':') {
                        at = self.after_key(&json[at + 1..end], depth, end + 2)?;
                        continue;
                    }
                    if !escaped {
                        self.text(at + 1, end);
                    }
                    at = end + 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                }
                b'}' | b']' => {
                    depth -= 1;
                    at += 1;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => at += 1,
            }
        }
    }

    /// Keys whose values are leaves by their place. Gives where to go on.
    #[inline]
    fn after_key(&mut self, key: &[u8], depth: usize, value: usize) -> Option<usize> {
        if self.wanted == Leaves::Identity {
            return Some(value);
        }
        if self.part == STATUS && key == b"restartCount" {
            let digits = self.json[value..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = leaf::number(&self.json[value..value + digits]).and_then(|number| u32::try_from(number).ok());
            if let Some(count) = number.filter(|count| *count <= i32::MAX as u32) {
                self.leaf(Kind::Count, value, value + digits);
                self.parts[self.part].own.push(Value::Count(count));
            }
            return Some(value + digits);
        }
        if self.part == SPEC && depth == 1 && key == b"nodeName" {
            let Some((from, end)) = self.string(value) else { return Some(value) };
            let node = &self.json[from..end];
            let plain = !node.is_empty() && node.iter().all(|byte| byte.is_ascii_graphic());
            if plain && self.parts[self.part].own.push_text(node) {
                self.node = Some((self.parts[self.part].leaves.len(), node));
                self.leaf(Kind::Text, from, end);
            }
            return Some(end + 1);
        }
        Some(value)
    }

    /// A string without escapes that is a value.
    #[inline]
    fn text(&mut self, from: usize, end: usize) {
        if self.wanted == Leaves::Identity {
            return;
        }
        let text = &self.json[from..end];
        let kind = match text.len() {
            20 if text[19] == b'Z' => {
                let Some(time) = text.first_chunk().and_then(leaf::time) else { return };
                self.parts[self.part].own.push(Value::Time(time));
                return self.leaf(Kind::Time, from, end);
            }
            36 if text[8] == b'-' => Kind::Uuid,
            7..=15 if text[0].is_ascii_digit() && text[text.len() - 1].is_ascii_digit() => Kind::Ipv4,
            21 if text.starts_with(GENERATED) => Kind::Suffix,
            66.. if text[text.len() - 66..].starts_with(b"//") => Kind::Digest,
            _ => Kind::Name,
        };
        match kind {
            Kind::Uuid => {
                let Some(uuid) = text.first_chunk().and_then(leaf::uuid) else { return };
                self.value_leaf(Kind::Uuid, from, end, Value::Uuid(&uuid));
            }
            Kind::Ipv4 if let Some(address) = leaf::ipv4(text) => {
                self.value_leaf(Kind::Ipv4, from, end, Value::Ipv4(address));
            }
            Kind::Digest => {
                let Some(digest) = text.last_chunk().and_then(leaf::digest) else { return };
                self.value_leaf(Kind::Digest, end - 64, end, Value::Digest(&digest));
            }
            Kind::Suffix => {
                let suffix = &text[GENERATED.len()..];
                if suffix.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
                    let from = from + GENERATED.len();
                    if !self.same(Kind::Suffix, from, end) {
                        self.parts[self.part].own.push_suffix(suffix);
                        self.leaf(Kind::Suffix, from, end);
                    }
                }
            }
            _ if !self.name.is_empty() && text.ends_with(self.name) => {
                if text.len() == self.name.len() || self.name.len() >= LEAST_NAME {
                    self.leaf(Kind::Name, end - self.name.len(), end);
                }
            }
            _ => {
                if let Some((place, node)) = self.node.filter(|(place, node)| text == *node && *place <= MAX_PLACE) {
                    let _ = node;
                    self.leaf(Kind::Same, from, end);
                    self.parts[self.part].key.push(place as u8);
                }
            }
        }
    }

    fn value_leaf(&mut self, kind: Kind, from: usize, end: usize, value: Value<'_>) {
        if !self.same(kind, from, end) {
            self.parts[self.part].own.push(value);
            self.leaf(kind, from, end);
        }
    }

    /// Refers to an earlier leaf of the same text, if there is one.
    fn same(&mut self, kind: Kind, from: usize, end: usize) -> bool {
        let text = &self.json[from..end];
        let leaves = self.parts[self.part].leaves.iter().take(MAX_PLACE + 1);
        let mut like = leaves.enumerate().filter(|(_, (other, ..))| *other == kind);
        let Some((place, _)) = like.find(|(_, (_, from, end))| &self.json[*from..*end] == text) else { return false };
        self.leaf(Kind::Same, from, end);
        self.parts[self.part].key.push(place as u8);
        true
    }

    /// Cuts a leaf out.
    fn leaf(&mut self, kind: Kind, from: usize, end: usize) {
        self.flush(from);
        let draft = &mut self.parts[self.part];
        draft.key.extend([MARK, kind as u8]);
        draft.copied = end;
        draft.leaves.push((kind, from, end));
    }

    /// Brings the key up to here.
    #[inline]
    fn flush(&mut self, to: usize) {
        let draft = &mut self.parts[self.part];
        if let Some(literal) = self.json.get(draft.copied..to) {
            draft.key.extend_from_slice(literal);
        }
        draft.copied = to;
    }
}
