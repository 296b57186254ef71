//! Cuts the JSON of a Pod into three parts (the object around spec and status, the spec, the status), and each part into
//! its key, which Pods of one workload share, and its own values.
//!
//! One pass, nothing is built but keys and values. It knows where the API server puts things and validates nothing: a
//! part is JSON because its key equals one that was proven to be, or because a real decoder says so afterwards.

use memchr::memmem::Finder;

use super::{
    leaf::{self, Kind, MARK, Own, Value},
    prune::Prune,
    skip::{self, Quotes},
};

/// The parts of a Pod, in this order everywhere.
pub(super) const PARTS: usize = 3;
pub(super) const OUTER: usize = 0;
pub(super) const SPEC: usize = 1;
pub(super) const STATUS: usize = 2;

/// One part as cut.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) key: Vec<u8>,
    pub(super) own: Own,
    /// The leaves so far: their kind and where their text is.
    pub(super) leaves: Vec<(Kind, usize, usize)>,
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
    quotes: Quotes,
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
    prune: &Prune,
    hash: impl Fn(&[u8]) -> u64,
    held: impl FnOnce(&str, &str, &str) -> Option<u64>,
) -> Option<Cut<'a>> {
    scratch.parts.iter_mut().for_each(Draft::clear);
    let mut scanner = Scanner {
        json,
        parts: &mut scratch.parts,
        quotes: &mut scratch.quotes,
        part: OUTER,
        wanted,
        prune,
        name: None,
        uid: b"",
        run: None,
        node: None,
    };
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

/// Goes through the JSON; `text.rs` has what is looked for in texts.
pub(super) struct Scanner<'a, 's> {
    pub(super) json: &'a [u8],
    pub(super) parts: &'s mut [Draft; PARTS],
    quotes: &'s mut Quotes,
    /// The one that is being cut.
    pub(super) part: usize,
    pub(super) wanted: Leaves,
    prune: &'s Prune,
    pub(super) name: Option<Finder<'a>>,
    pub(super) uid: &'a [u8],
    /// The number in the name by which the runs of a CronJob differ.
    pub(super) run: Option<Finder<'a>>,
    /// The node's name in the spec: its leaf and its text.
    pub(super) node: Option<(usize, &'a [u8])>,
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
                    let name = &self.json[from..end];
                    found.name = Some(name);
                    self.name = Some(Finder::new(name));
                    self.run = leaf::run(name).map(Finder::new);
                    self.leaf(Kind::Name, from, end);
                    end + 1
                }
                b"uid" => {
                    let (from, end) = self.string(value)?;
                    self.uid = &self.json[from..end];
                    found.uid = Some(self.uid);
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
                b"annotations" if self.prune.cuts_annotations() => self.annotations(value)?,
                _ => self.value(value)?,
            };
        }
    }

    /// Annotations without those that are cut away. Gives where they end.
    fn annotations(&mut self, from: usize) -> Option<usize> {
        if self.json.get(from) != Some(&b'{') {
            return self.value(from);
        }
        let mut at = from + 1;
        loop {
            let Member { start, key, value } = match self.member(at)? {
                Ok(member) => member,
                Err(end) => return Some(end),
            };
            let cut = str::from_utf8(key).is_ok_and(|key| self.prune.cuts_annotation(key));
            at = if cut { self.prune(start, value)? } else { self.value(value)? };
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
        match self.json.get(from)? {
            b'{' | b'[' => {}
            b'"' => {
                let (end, escaped) = skip::string_end(self.json, from + 1)?;
                if !escaped {
                    self.text(from + 1, end);
                }
                return Some(end + 1);
            }
            _ => return self.end(from),
        }
        let mut quotes = std::mem::take(self.quotes);
        let end = quotes.find(self.json, from);
        if end.is_some() {
            self.texts(&quotes);
        }
        *self.quotes = quotes;
        end
    }

    /// The texts of an object or array.
    fn texts(&mut self, quotes: &Quotes) {
        // Up to here all was looked at.
        let mut seen = 0;
        for [open, close] in quotes.at.as_chunks().0 {
            let (open, close) = (*open as usize, *close as usize);
            if open < seen {
                continue;
            }
            let text = &self.json[open + 1..close];
            if self.json.get(close + 1) == Some(&b':') {
                seen = self.after_key(text, close + 2);
            } else if !quotes.escapes || !text.contains(&b'\\') {
                self.text(open + 1, close);
            }
        }
    }

    /// Keys whose values are leaves by their place. Gives where to go on.
    #[inline]
    fn after_key(&mut self, key: &[u8], value: usize) -> usize {
        if self.wanted == Leaves::Identity {
            return value;
        }
        if self.part == STATUS && key == b"restartCount" {
            let digits = self.json[value..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let number = leaf::number(&self.json[value..value + digits]).and_then(|number| u32::try_from(number).ok());
            if let Some(count) = number.filter(|count| *count <= i32::MAX as u32) {
                self.leaf(Kind::Count, value, value + digits);
                self.parts[self.part].own.push(Value::Count(count));
            }
            return value + digits;
        }
        if self.part == SPEC && self.node.is_none() && key == b"nodeName" {
            let Some((from, end)) = self.string(value) else { return value };
            let node = &self.json[from..end];
            let plain = !node.is_empty() && node.iter().all(|byte| byte.is_ascii_graphic());
            if plain && self.parts[self.part].own.push_text(node) {
                self.node = Some((self.parts[self.part].leaves.len(), node));
                self.leaf(Kind::Text, from, end);
            }
            return end + 1;
        }
        value
    }

    /// Cuts a leaf out.
    pub(super) fn leaf(&mut self, kind: Kind, from: usize, end: usize) {
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
