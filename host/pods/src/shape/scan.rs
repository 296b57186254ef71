//! Cuts the JSON of a Pod into three parts (the object around spec and status, the spec, the status), and each part
//! into its key, which Pods of one workload share, and its own values. A part that fits one that is known (`fit.rs`) is
//! taken for that and not cut.
//!
//! One pass, nothing is built but keys and values. It knows where the API server puts things and validates nothing: a
//! part is JSON because its key equals one that was proven to be, or because a real decoder says so afterwards.

use std::sync::Arc;

use memchr::memmem::Finder;
use smallvec::SmallVec;

use super::{
    Shape,
    fit::Fit,
    leaf::{self, Kind, MARK, Own, Value},
    part::{Part, SUCCESSORS},
    skip::{self, Quotes},
};
use crate::{model::Prune, sync::Weak};

/// The parts of a Pod, in this order everywhere.
pub(crate) const PARTS: usize = 3;
pub(super) const OUTER: usize = 0;
pub(super) const SPEC: usize = 1;
pub(super) const STATUS: usize = 2;

/// One part as cut, or as it fitted one that is known: its key is then that one's, and empty here.
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
    /// Of the last Pod that was read.
    pub(super) recent: Weak<Shape>,
}

/// What was found beside the drafts.
#[derive(Debug)]
pub(super) struct Cut<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) revision: u64,
    /// The parts that fitted.
    pub(super) known: [Option<Arc<Part>>; PARTS],
}

/// Parts that a Pod may have, the likeliest first: those of a shape, and what followed these at other Pods.
#[derive(Debug, Default)]
pub(super) struct Likely {
    shape: Option<Arc<Shape>>,
    next: [[Option<Arc<Part>>; SUCCESSORS]; PARTS],
    /// The shape is one of another namespace, which generalises for itself.
    is_foreign: bool,
}

impl Likely {
    /// Of a Pod in `namespace`.
    pub(super) fn like(shape: Arc<Shape>, namespace: &str) -> Self {
        if shape.parts[OUTER].is_whole {
            return Self::default();
        }
        Self {
            next: shape.parts.each_ref().map(|part| part.successors()),
            is_foreign: **shape.namespace() != *namespace,
            shape: Some(shape),
        }
    }

    fn of(&self, part: usize) -> impl Iterator<Item = &Arc<Part>> {
        let parts = self.shape.iter().map(move |shape| &shape.parts[part]).chain(self.next[part].iter().flatten());
        parts.filter(|part| !(self.is_foreign && part.is_generalised))
    }
}

/// What an API server writes first of a Pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    /// Decimal.
    pub(super) revision: &'a [u8],
    /// Where the member `metadata` begins.
    metadata: usize,
}

/// Which leaves are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    All,
    /// Name, uid and revision alone.
    Identity,
}

/// None where the JSON is not in the form in which an API server writes a Pod; so below.
pub(super) fn head(json: &[u8]) -> Option<Head<'_>> {
    const OF_EVENTS: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","#;
    const METADATA: &[u8] = br#""metadata":{"#;
    let (metadata, mut at) = if json.starts_with(OF_EVENTS) && json[OF_EVENTS.len()..].starts_with(METADATA) {
        (OF_EVENTS.len(), OF_EVENTS.len() + METADATA.len())
    } else {
        let mut at = 1;
        loop {
            let Member { start, key, value } = member(json, at)?.ok()?;
            match key {
                b"kind" | b"apiVersion" => at = end(json, value)?,
                b"metadata" if json.get(value) == Some(&b'{') => break (start, value + 1),
                _ => return None,
            }
        }
    };
    let mut found = Found::default();
    loop {
        if let Found { namespace: Some(namespace), name: Some(name), uid: Some(uid), revision: Some(revision) } = found
        {
            return Some(Head { namespace: text(namespace)?, name: text(name)?, uid: text(uid)?, revision, metadata });
        }
        let Member { key, value, .. } = member(json, at)?.ok()?;
        let into = match key {
            b"name" => &mut found.name,
            b"uid" => &mut found.uid,
            b"namespace" => &mut found.namespace,
            b"resourceVersion" => &mut found.revision,
            _ => {
                at = end(json, value)?;
                continue;
            }
        };
        let (from, end) = string(json, value)?;
        *into = Some(&json[from..end]);
        at = end + 1;
    }
}

/// `likely`: what the parts are tried for first, where `head` was found.
pub(super) fn cut<'a>(
    json: &'a [u8],
    head: Option<Head<'a>>,
    likely: Likely,
    scratch: &mut Scratch,
    wanted: Leaves,
    prune: &Prune,
) -> Option<Cut<'a>> {
    if json.first() != Some(&b'{') {
        return None;
    }
    scratch.parts.iter_mut().for_each(Draft::clear);
    let mut scanner = Scanner {
        json,
        parts: &mut scratch.parts,
        quotes: &mut scratch.quotes,
        part: OUTER,
        wanted,
        prune,
        seen: 0,
        head,
        likely,
        known: Default::default(),
        name: b"",
        finder: None,
        next_name: (usize::MAX, usize::MAX),
        value_end: 0,
        uid: b"",
        run: None,
        node: None,
    };
    scanner.fitted().or_else(|| scanner.walked())
}

/// The text of a leaf that stands for itself; none where it is no JSON, or empty, as the API server has none of these.
fn text(bytes: &[u8]) -> Option<&str> {
    let plain = !bytes.is_empty() && bytes.iter().fold(u8::MAX, |least, byte| least.min(*byte)) >= b' ';
    if plain { str::from_utf8(bytes).ok() } else { None }
}

#[derive(Debug, Default, Clone, Copy)]
struct Found<'a> {
    namespace: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    uid: Option<&'a [u8]>,
    revision: Option<&'a [u8]>,
}

struct Member<'a> {
    /// Of its key's quote.
    start: usize,
    key: &'a [u8],
    value: usize,
}

/// The next member of an object, or where the object ends.
#[inline]
fn member(json: &[u8], mut at: usize) -> Option<Result<Member<'_>, usize>> {
    if json.get(at) == Some(&b',') {
        at += 1;
    }
    match json.get(at)? {
        b'}' => Some(Err(at + 1)),
        b'"' => {
            let (end, escaped) = skip::string_end(json, at + 1)?;
            let is_key = json.get(end + 1) == Some(&b':') && !escaped;
            is_key.then(|| Ok(Member { start: at, key: &json[at + 1..end], value: end + 2 }))
        }
        _ => None,
    }
}

/// A string value without escapes: where its content begins and ends.
fn string(json: &[u8], value: usize) -> Option<(usize, usize)> {
    if json.get(value) != Some(&b'"') {
        return None;
    }
    let (end, escaped) = skip::string_end(json, value + 1)?;
    (!escaped).then_some((value + 1, end))
}

/// Where a value ends.
fn end(json: &[u8], value: usize) -> Option<usize> {
    match json.get(value)? {
        b'{' | b'[' => skip::container_end(json, value),
        b'"' => Some(skip::string_end(json, value + 1)?.0 + 1),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']');
            let length = json[value..].iter().position(ends)?;
            // A part of nothing would be taken for one that is not there.
            (length > 0).then_some(value + length)
        }
    }
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
    /// A bit for each part that was met.
    seen: u8,
    head: Option<Head<'a>>,
    likely: Likely,
    known: [Option<Arc<Part>>; PARTS],
    pub(super) name: &'a [u8],
    /// Of the name, once something was looked through for it.
    pub(super) finder: Option<Finder<'a>>,
    /// The first place of the name that is not before the first of these.
    pub(super) next_name: (usize, usize),
    /// The end of the value that is being cut.
    pub(super) value_end: usize,
    pub(super) uid: &'a [u8],
    /// The number in the name by which the runs of a CronJob differ.
    pub(super) run: Option<Finder<'a>>,
    /// The node's name in the spec: its leaf, and how much of its text that is.
    pub(super) node: Option<(usize, usize, &'a [u8])>,
}

impl<'a> Scanner<'a, '_> {
    /// The outer part fits the likely one.
    fn fitted(&mut self) -> Option<Cut<'a>> {
        let head = self.head?;
        let Head { namespace, name, uid, revision, .. } = head;
        let revision = leaf::number(revision)?;
        let mut likely: SmallVec<[_; 1 + SUCCESSORS]> = self.likely.of(OUTER).map(Arc::clone).collect();
        likely.retain(|outer| *outer.namespace == *namespace);
        for outer in likely {
            self.identify(name.as_bytes(), uid.as_bytes());
            if self.fits(&outer, &head).is_some() {
                self.known[OUTER] = Some(outer);
                let known = std::mem::take(&mut self.known);
                return Some(Cut { namespace, name, uid, revision, known });
            }
            self.begin();
        }
        None
    }

    /// The outer part is this one.
    fn fits(&mut self, outer: &Part, head: &Head<'a>) -> Option<()> {
        let key = outer.key.whole()?.strip_prefix(b"{")?;
        let mut draft = std::mem::take(&mut self.parts[OUTER]);
        let fit = Fit::new(self.json, head.metadata, head);
        let end = fit.part(key.into(), &outer.leaves, &mut draft, |part, at| self.inner(part, at));
        self.parts[OUTER] = draft;
        (end == Some(self.json.len())).then_some(())
    }

    /// Nothing was found yet.
    fn begin(&mut self) {
        (self.seen, self.part, self.node, self.known) = (0, OUTER, None, Default::default());
        self.parts.iter_mut().for_each(Draft::clear);
    }

    /// The outer part is cut.
    fn walked(&mut self) -> Option<Cut<'a>> {
        let mut found = Found::default();
        let mut at = 1;
        loop {
            let Member { start, key, value } = match member(self.json, at)? {
                Ok(member) => member,
                Err(end) => {
                    at = end;
                    break;
                }
            };
            at = match key {
                // Every Pod has them, and items of a list do not: left out of all.
                b"kind" | b"apiVersion" => self.prune(start, value)?,
                b"metadata" => self.metadata(value, &mut found)?,
                b"spec" => self.nested(SPEC, value)?,
                b"status" => self.nested(STATUS, value)?,
                _ => self.value(value)?,
            };
        }
        self.flush(at);
        if at != self.json.len() {
            return None;
        }
        Some(Cut {
            namespace: found.namespace.and_then(text)?,
            name: found.name.and_then(text)?,
            uid: found.uid.and_then(text)?,
            revision: leaf::number(found.revision?)?,
            known: std::mem::take(&mut self.known),
        })
    }

    fn identify(&mut self, name: &'a [u8], uid: &'a [u8]) {
        (self.name, self.finder) = (name, None);
        self.run = leaf::run(name).map(Finder::new);
        self.uid = uid;
    }

    fn metadata(&mut self, from: usize, found: &mut Found<'a>) -> Option<usize> {
        if self.json.get(from) != Some(&b'{') {
            return None;
        }
        let mut at = from + 1;
        loop {
            let Member { start, key, value } = match member(self.json, at)? {
                Ok(member) => member,
                Err(end) => return Some(end),
            };
            let (into, kind) = match key {
                b"name" => (&mut found.name, Some(Kind::Name)),
                b"uid" => (&mut found.uid, Some(Kind::Uid)),
                b"namespace" => (&mut found.namespace, None),
                b"resourceVersion" => (&mut found.revision, Some(Kind::Revision)),
                b"managedFields" => {
                    at = self.prune(start, value)?;
                    continue;
                }
                b"annotations" if self.prune.cuts_annotations() => {
                    at = self.annotations(value)?;
                    continue;
                }
                _ => {
                    at = self.value(value)?;
                    continue;
                }
            };
            let (from, end) = string(self.json, value)?;
            let text = &self.json[from..end];
            *into = Some(text);
            match kind {
                Some(Kind::Name) => self.identify(text, self.uid),
                Some(Kind::Uid) => self.uid = text,
                Some(Kind::Revision) => _ = leaf::number(text)?,
                _ => {}
            }
            if let Some(kind) = kind {
                self.leaf(kind, from, end);
            }
            at = end + 1;
        }
    }

    /// Annotations without those that are cut away. Gives where they end.
    fn annotations(&mut self, from: usize) -> Option<usize> {
        if self.json.get(from) != Some(&b'{') {
            return self.value(from);
        }
        let mut at = from + 1;
        loop {
            let Member { start, key, value } = match member(self.json, at)? {
                Ok(member) => member,
                Err(end) => return Some(end),
            };
            let cut = str::from_utf8(key).is_ok_and(|key| self.prune.cuts_annotation(key));
            at = if cut { self.prune(start, value)? } else { self.value(value)? };
        }
    }

    /// Leaves a member out, with one of the commas beside it. Gives where the next begins.
    fn prune(&mut self, start: usize, value: usize) -> Option<usize> {
        let end = end(self.json, value)?;
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

    /// A member of the outer object that is a part of its own.
    fn nested(&mut self, part: usize, value: usize) -> Option<usize> {
        self.flush(value);
        self.parts[OUTER].key.extend([MARK, Kind::Part as u8, part as u8]);
        let end = self.inner(part, value)?;
        self.parts[OUTER].copied = end;
        Some(end)
    }

    /// A part within the outer one: as the likely one, or cut. Gives where it ends.
    fn inner(&mut self, part: usize, value: usize) -> Option<usize> {
        // A second one of the same name would write over the first.
        if self.seen & 1 << part != 0 {
            return None;
        }
        self.seen |= 1 << part;
        if let Some(head) = &self.head {
            for likely in self.likely.of(part).filter(|likely| !likely.key.is_empty()) {
                let fit = Fit::new(self.json, value, head);
                if let Some(end) = fit.part(likely.tokens(), &likely.leaves, &mut self.parts[part], |_, _| None) {
                    self.known[part] = Some(Arc::clone(likely));
                    return Some(end);
                }
                self.parts[part].clear();
            }
        }
        self.part = part;
        self.parts[part].copied = value;
        let end = self.value(value)?;
        self.flush(end);
        self.part = OUTER;
        Some(end)
    }

    /// Any value, with the leaves in it. Gives where it ends.
    fn value(&mut self, from: usize) -> Option<usize> {
        (self.next_name, self.value_end) = ((usize::MAX, usize::MAX), 0);
        match self.json.get(from)? {
            b'{' | b'[' => {}
            b'"' => {
                let (end, escaped) = skip::string_end(self.json, from + 1)?;
                if !escaped {
                    self.text(from + 1, end);
                }
                return Some(end + 1);
            }
            _ => return end(self.json, from),
        }
        let mut quotes = std::mem::take(self.quotes);
        let end = quotes.find(self.json, from);
        if let Some(end) = end {
            self.value_end = end;
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
            let Some((count, digits)) = leaf::count(&self.json[value..]) else { return value };
            self.leaf(Kind::Count, value, value + digits);
            self.parts[self.part].own.push(Value::Count(count));
            return value + digits;
        }
        if self.part == SPEC && self.node.is_none() && key == b"nodeName" {
            let Some((from, end)) = string(self.json, value) else { return value };
            let node = &self.json[from..end];
            let own = leaf::own_of_node(node);
            if leaf::is_text(&node[..own]) && self.parts[self.part].own.push_text(&node[..own]) {
                self.node = Some((self.parts[self.part].leaves.len(), own, node));
                self.leaf(Kind::Text, from, from + own);
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
