//! Splits the JSON of a Pod into its three fragments, and each fragment into the text of its skeleton and its values.
//! A fragment that matches a known skeleton (`matcher.rs`) is not scanned.
//!
//! One pass over the bytes, which only builds texts and values. The scanner knows where the API server puts members
//! and does not validate: a fragment is known to be JSON because its skeleton is known, or because the decoder
//! accepts it afterwards.

use std::sync::Arc;

use memchr::{memchr, memmem::Finder};
use podium_vocabulary::Prune;
use smallvec::SmallVec;

use super::{
    candidates::{Candidate, Candidates},
    forms,
    fragment::{Fragment, PerFragment},
    matcher::Matcher,
    placeholder::{self, Kind, PLACEHOLDER, Value, ValueWriter},
    pool::Recent,
    skeleton::{Skeleton, TRANSITIONS},
    skip::{self, Quotes},
};

/// A fragment that was scanned, or that matched a known skeleton; in the latter case the text is empty.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) text: Vec<u8>,
    pub(super) own: ValueWriter,
    /// The placeholders: their kinds, and the ranges of their texts in the JSON.
    pub(super) placeholders: Vec<(Kind, usize, usize)>,
    /// The JSON up to this offset is in the skeleton's text.
    copied: usize,
}

impl Draft {
    fn clear(&mut self) {
        self.text.clear();
        self.own.clear();
        self.placeholders.clear();
        self.copied = 0;
    }

    pub(super) fn placeholders(&self) -> usize {
        self.placeholders.len()
    }
}

/// Buffers that are reused from Pod to Pod.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) drafts: PerFragment<Draft>,
    quotes: Quotes,
    /// Texts of unshared fragments.
    pub(super) texts: PerFragment<Vec<u8>>,
    /// The shapes of the latest Pods.
    pub(super) recent: Recent,
}

/// The result of a scan, beside the fragments' drafts.
#[derive(Debug)]
pub(super) struct Scanned<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) revision: u64,
    /// The skeletons that matched.
    pub(super) known: PerFragment<Option<Arc<Skeleton>>>,
}

/// The first members of a Pod's metadata, as an API server writes them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    /// The resourceVersion, a decimal number.
    pub(super) revision: &'a [u8],
    /// The offset of the member `metadata`.
    metadata: usize,
}

/// The placeholders that a scan looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    All,
    /// Only name, uid and revision.
    Identity,
}

/// Reads the head of a Pod. Returns `None`, like the functions below, if the JSON is not in the form that an API
/// server writes.
pub(super) fn head(json: &[u8]) -> Option<Head<'_>> {
    const OF_EVENTS: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","#;
    const METADATA: &[u8] = br#""metadata":{"#;
    let (metadata, mut at) = if json.starts_with(OF_EVENTS) && json[OF_EVENTS.len()..].starts_with(METADATA) {
        (OF_EVENTS.len(), OF_EVENTS.len() + METADATA.len())
    } else {
        let mut at = 1;
        loop {
            let Member { start, key, value } = next(json, at)?.member()?;
            match key {
                b"kind" | b"apiVersion" => at = end(json, value)?,
                b"metadata" if json.get(value) == Some(&b'{') => break (start, value + 1),
                _ => return None,
            }
        }
    };
    let mut found = IdentityFields::default();
    loop {
        if let IdentityFields {
            namespace: Some(namespace),
            name: Some(name),
            uid: Some(uid),
            revision: Some(revision),
        } = found
        {
            return Some(Head { namespace: text(namespace)?, name: text(name)?, uid: text(uid)?, revision, metadata });
        }
        let Member { key, value, .. } = next(json, at)?.member()?;
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

/// Scans a Pod. If there is a `head`, the fragments are matched against the candidates first.
pub(super) fn cut<'a>(
    json: &'a [u8],
    head: Option<Head<'a>>,
    candidates: &Candidates,
    scratch: &mut Scratch,
    extent: Extent,
    prune: &Prune,
) -> Option<Scanned<'a>> {
    if json.first() != Some(&b'{') {
        return None;
    }
    scratch.drafts.0.iter_mut().for_each(Draft::clear);
    let mut scanner = Scanner {
        json,
        drafts: &mut scratch.drafts,
        quotes: &mut scratch.quotes,
        fragment: Fragment::Object,
        extent,
        prune,
        seen: 0,
        head,
        candidates,
        known: Default::default(),
        name: b"",
        finder: None,
        next_name: (usize::MAX, usize::MAX),
        value_end: 0,
        uid: b"",
        run: None,
        node: None,
    };
    scanner.match_object().or_else(|| scanner.scan_object())
}

/// Returns the contents of a string that needs no unescaping: not empty, and without control characters.
fn text(bytes: &[u8]) -> Option<&str> {
    let plain = !bytes.is_empty() && bytes.iter().fold(u8::MAX, |least, byte| least.min(*byte)) >= b' ';
    if plain { str::from_utf8(bytes).ok() } else { None }
}

#[derive(Debug, Default, Clone, Copy)]
struct IdentityFields<'a> {
    namespace: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    uid: Option<&'a [u8]>,
    revision: Option<&'a [u8]>,
}

/// The next part of an object.
enum Next<'a> {
    Member(Member<'a>),
    /// The object ends before this offset.
    End(usize),
}

impl<'a> Next<'a> {
    fn member(self) -> Option<Member<'a>> {
        match self {
            Self::Member(member) => Some(member),
            Self::End(_) => None,
        }
    }
}

struct Member<'a> {
    /// The offset of its name's opening quote.
    start: usize,
    key: &'a [u8],
    value: usize,
}

/// Returns the next member of an object, or its end.
#[inline]
fn next(json: &[u8], mut at: usize) -> Option<Next<'_>> {
    if json.get(at) == Some(&b',') {
        at += 1;
    }
    match json.get(at)? {
        b'}' => Some(Next::End(at + 1)),
        b'"' => {
            let (end, escaped) = skip::string_end(json, at + 1)?;
            let is_key = json.get(end + 1) == Some(&b':') && !escaped;
            is_key.then(|| Next::Member(Member { start: at, key: &json[at + 1..end], value: end + 2 }))
        }
        _ => None,
    }
}

/// Returns the range of the contents of a string value without escapes.
fn string(json: &[u8], value: usize) -> Option<(usize, usize)> {
    if json.get(value) != Some(&b'"') {
        return None;
    }
    let (end, escaped) = skip::string_end(json, value + 1)?;
    (!escaped).then_some((value + 1, end))
}

/// Returns the offset after a value.
fn end(json: &[u8], value: usize) -> Option<usize> {
    match json.get(value)? {
        b'{' | b'[' => skip::container_end(json, value),
        b'"' => Some(skip::string_end(json, value + 1)?.0 + 1),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']');
            let length = json[value..].iter().position(ends)?;
            // An empty fragment would be mistaken for an absent one.
            (length > 0).then_some(value + length)
        }
    }
}

/// The state of a scan; `strings.rs` looks for values in strings.
pub(super) struct Scanner<'a, 's> {
    pub(super) json: &'a [u8],
    pub(super) drafts: &'s mut PerFragment<Draft>,
    quotes: &'s mut Quotes,
    /// The fragment that is being scanned.
    pub(super) fragment: Fragment,
    pub(super) extent: Extent,
    prune: &'s Prune,
    /// One bit for each fragment that was found.
    seen: u8,
    head: Option<Head<'a>>,
    candidates: &'s Candidates,
    known: PerFragment<Option<Arc<Skeleton>>>,
    pub(super) name: &'a [u8],
    /// Finds the name; built when it is first needed.
    pub(super) finder: Option<Finder<'a>>,
    /// An offset, and the first occurrence of the name from there on.
    pub(super) next_name: (usize, usize),
    /// The end of the value that is being scanned.
    pub(super) value_end: usize,
    pub(super) uid: &'a [u8],
    /// Finds the number in the name that differs between runs of a CronJob.
    pub(super) run: Option<Finder<'a>>,
    /// The node's name in the spec: the number of its placeholder, the length of its own part, and the name.
    pub(super) node: Option<(usize, usize, &'a [u8])>,
}

impl<'a> Scanner<'a, '_> {
    /// Matches the whole object against the candidates.
    fn match_object(&mut self) -> Option<Scanned<'a>> {
        let head = self.head?;
        let Head { namespace, name, uid, revision, .. } = head;
        let revision = forms::number(revision)?;
        let mut likely: SmallVec<[_; 1 + TRANSITIONS]> = self.candidates.in_fragment(Fragment::Object).collect();
        likely.retain(|outer| *outer.skeleton.namespace == *namespace);
        for outer in likely {
            self.identify(name.as_bytes(), uid.as_bytes());
            if self.matches_candidate(&outer, &head).is_some() {
                self.known[Fragment::Object] = Some(outer.skeleton);
                let known = std::mem::take(&mut self.known);
                return Some(Scanned { namespace, name, uid, revision, known });
            }
            self.begin();
        }
        None
    }

    /// Matches the whole object against one candidate.
    fn matches_candidate(&mut self, outer: &Candidate<'_>, head: &Head<'a>) -> Option<()> {
        let mut draft = std::mem::take(&mut self.drafts[Fragment::Object]);
        let matcher = Matcher::new(self.json, head.metadata, head);
        let nested = |fragment, at| self.nested_fragment(fragment, at);
        let end = matcher.skeleton(outer.members()?, outer.placeholders(), &mut draft, nested);
        let accepted = end.filter(|end| *end == self.json.len()).and_then(|_| outer.accept(&mut draft));
        self.drafts[Fragment::Object] = draft;
        accepted
    }

    /// Resets the scan.
    fn begin(&mut self) {
        self.seen = 0;
        self.fragment = Fragment::Object;
        self.node = None;
        self.known = Default::default();
        self.drafts.0.iter_mut().for_each(Draft::clear);
    }

    /// Scans the whole object.
    fn scan_object(&mut self) -> Option<Scanned<'a>> {
        self.refuse_placeholders(0, self.json.len())?;
        let mut found = IdentityFields::default();
        let mut at = 1;
        loop {
            let Member { start, key, value } = match next(self.json, at)? {
                Next::Member(member) => member,
                Next::End(end) => {
                    at = end;
                    break;
                }
            };
            at = match key {
                // Events have these members and items of a list do not, so no skeleton contains them.
                b"kind" | b"apiVersion" => self.prune(start, value)?,
                b"metadata" => self.metadata(value, &mut found)?,
                b"spec" => self.nested(Fragment::Spec, value)?,
                b"status" => self.nested(Fragment::Status, value)?,
                _ => self.value(value)?,
            };
        }
        self.flush(at);
        if at != self.json.len() {
            return None;
        }
        Some(Scanned {
            namespace: found.namespace.and_then(text)?,
            name: found.name.and_then(text)?,
            uid: found.uid.and_then(text)?,
            revision: forms::number(found.revision?)?,
            known: std::mem::take(&mut self.known),
        })
    }

    fn identify(&mut self, name: &'a [u8], uid: &'a [u8]) {
        self.name = name;
        self.finder = None;
        self.run = forms::run(name).map(Finder::new);
        self.uid = uid;
    }

    fn metadata(&mut self, from: usize, found: &mut IdentityFields<'a>) -> Option<usize> {
        if self.json.get(from) != Some(&b'{') {
            return None;
        }
        let mut at = from + 1;
        loop {
            let Member { start, key, value } = match next(self.json, at)? {
                Next::Member(member) => member,
                Next::End(end) => return Some(end),
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
                b"generation" => {
                    at = self.generation(value).map_or_else(|| end(self.json, value), Some)?;
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
                Some(Kind::Revision) => _ = forms::number(text)?,
                _ => {}
            }
            if let Some(kind) = kind {
                self.placeholder(kind, from, end);
            }
            at = end + 1;
        }
    }

    /// Scans annotations without the pruned ones. Returns the offset after them.
    fn annotations(&mut self, from: usize) -> Option<usize> {
        if self.json.get(from) != Some(&b'{') {
            return self.value(from);
        }
        let mut at = from + 1;
        loop {
            let Member { start, key, value } = match next(self.json, at)? {
                Next::Member(member) => member,
                Next::End(end) => return Some(end),
            };
            let cut = str::from_utf8(key).is_ok_and(|key| self.prune.cuts_annotation(key));
            at = if cut { self.prune(start, value)? } else { self.value(value)? };
        }
    }

    /// Omits a member, with one of the commas beside it. Returns the offset of the next member.
    fn prune(&mut self, start: usize, value: usize) -> Option<usize> {
        let end = end(self.json, value)?;
        self.flush(start);
        let draft = &mut self.drafts[self.fragment];
        if self.json.get(end) == Some(&b',') {
            draft.copied = end + 1;
            return Some(end + 1);
        }
        if draft.text.last() == Some(&b',') {
            draft.text.pop();
        }
        draft.copied = end;
        Some(end)
    }

    /// Scans a member that is a separate fragment.
    fn nested(&mut self, fragment: Fragment, value: usize) -> Option<usize> {
        self.flush(value);
        self.drafts[Fragment::Object].text.extend([PLACEHOLDER, Kind::Fragment as u8, fragment as u8]);
        let end = self.nested_fragment(fragment, value)?;
        self.drafts[Fragment::Object].copied = end;
        Some(end)
    }

    /// Matches a spec or status against the candidates, or scans it. Returns the offset after it.
    fn nested_fragment(&mut self, fragment: Fragment, value: usize) -> Option<usize> {
        // A second member of this name would replace the first.
        if self.seen & 1 << fragment as u8 != 0 {
            return None;
        }
        self.seen |= 1 << fragment as u8;
        if let Some(head) = &self.head {
            let candidates = self.candidates;
            let likely = candidates.in_fragment(fragment).chain(candidates.others(fragment));
            for likely in likely.filter(|likely| !likely.is_empty()) {
                let draft = &mut self.drafts[fragment];
                let matcher = Matcher::new(self.json, value, head);
                let end = matcher.skeleton(likely.tokens(), likely.placeholders(), draft, |_, _| None);
                if let Some(end) = end
                    && likely.accept(draft).is_some()
                {
                    self.known[fragment] = Some(likely.skeleton);
                    return Some(end);
                }
                draft.clear();
            }
        }
        self.fragment = fragment;
        self.drafts[fragment].copied = value;
        let end = self.value(value)?;
        self.refuse_placeholders(value, end)?;
        self.flush(end);
        self.fragment = Fragment::Object;
        Some(end)
    }

    /// Returns `None` if the JSON contains the placeholder byte, which valid JSON never does.
    fn refuse_placeholders(&self, from: usize, end: usize) -> Option<()> {
        memchr(PLACEHOLDER, self.json.get(from..end)?).is_none().then_some(())
    }

    /// Scans any value. Returns the offset after it.
    fn value(&mut self, from: usize) -> Option<usize> {
        self.next_name = (usize::MAX, usize::MAX);
        self.value_end = 0;
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

    /// Scans the strings of an object or array.
    fn texts(&mut self, quotes: &Quotes) {
        // Everything before this offset was scanned.
        let mut seen = 0;
        for [open, close] in quotes.at.as_chunks().0 {
            let open = *open as usize;
            let close = *close as usize;
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

    /// Scans members whose values are placeholders because of their name. Returns the offset at which to continue.
    #[inline]
    fn after_key(&mut self, key: &[u8], value: usize) -> usize {
        if self.extent == Extent::Identity {
            return value;
        }
        if self.fragment == Fragment::Status && key == b"restartCount" {
            let Some((count, digits)) = placeholder::count(&self.json[value..]) else { return value };
            self.placeholder(Kind::Count, value, value + digits);
            self.drafts[self.fragment].own.push(Value::Count(count));
            return value + digits;
        }
        if self.fragment == Fragment::Status && key == b"observedGeneration" {
            return self.generation(value).unwrap_or(value);
        }
        if self.fragment == Fragment::Spec && self.node.is_none() && key == b"nodeName" {
            let Some((from, end)) = string(self.json, value) else { return value };
            let node = &self.json[from..end];
            let own = forms::own_of_node(node);
            if forms::is_text(&node[..own]) && self.drafts[self.fragment].own.push_text(&node[..own]) {
                self.node = Some((self.drafts[self.fragment].placeholders.len(), own, node));
                self.placeholder(Kind::Text, from, from + own);
            }
            return end + 1;
        }
        value
    }

    /// Replaces a generation by a placeholder: it grows with each change of the spec. Returns the offset after it, or
    /// `None` if it is no count.
    fn generation(&mut self, value: usize) -> Option<usize> {
        let (count, digits) = placeholder::count(self.json.get(value..)?).filter(|_| self.extent == Extent::All)?;
        self.value_leaf(Kind::Generation, value, value + digits, Value::Count(count));
        Some(value + digits)
    }

    /// Replaces a range of the JSON by a placeholder.
    pub(super) fn placeholder(&mut self, kind: Kind, from: usize, end: usize) {
        self.flush(from);
        let draft = &mut self.drafts[self.fragment];
        draft.text.extend([PLACEHOLDER, kind as u8]);
        draft.copied = end;
        draft.placeholders.push((kind, from, end));
    }

    /// Appends the JSON before this offset to the skeleton's text.
    #[inline]
    fn flush(&mut self, to: usize) {
        let draft = &mut self.drafts[self.fragment];
        if let Some(literal) = self.json.get(draft.copied..to) {
            draft.text.extend_from_slice(literal);
        }
        draft.copied = to;
    }
}
