//! What Pods of one workload share of one part: its JSON and its encoded sections, with places for what is each Pod's own.
//!
//! How a value's way into the sections is known: the part is rendered with sentinels in the place of its values, decoded
//! and encoded as any Pod is, and the sentinels are found in the bytes. That is sound as far as the decoder passes such
//! values on unseen; that it did is checked on the Pod at hand, whose sections must come out as they would directly.

use std::{fmt, sync::Arc};

use podium_wire::{Pod, Section, SectionBytes};
use smallvec::SmallVec;

use super::{
    leaf::{self, Kind, MARK, Value, Values},
    scan::{OUTER, PARTS, SPEC, STATUS},
};

/// Whose a Pod is: what its key and its revision hold need not be kept again.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub revision: u64,
}

/// Sentinels are numbered through all parts.
const MAX_LEAVES: usize = 10_000;
const SENTINEL_DAY: &[u8] = b"2096-10-02T";

/// Where a section is: its part, and its place among the part's. None for the one that is in all of them.
pub(super) fn place(section: Section) -> Option<(usize, usize)> {
    match section {
        Section::Labels => Some((OUTER, 0)),
        Section::Annotations => Some((OUTER, 1)),
        Section::Owners => Some((OUTER, 2)),
        Section::Lifecycle => Some((OUTER, 3)),
        Section::Spec => Some((SPEC, 0)),
        Section::Status => Some((STATUS, 0)),
        Section::Full => None,
    }
}

/// The sections of a part, and their places.
pub(super) fn sections(part: usize) -> impl Iterator<Item = (Section, usize)> {
    let of_part = move |section| place(section).filter(|(of, _)| *of == part).map(|(_, place)| (section, place));
    Section::ALL.into_iter().filter_map(of_part)
}

/// A value that is fixed, or a leaf.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slot<T> {
    Fixed(T),
    Leaf(usize),
}

pub(super) struct Part {
    /// Empty for a part that is not there, and for spec and status of a Pod that is kept undivided: its outer part has all.
    pub(super) key: Box<[u8]>,
    leaves: Box<[Leaf]>,
    templates: Box<[Template]>,
    /// Of the outer part, as are the next two.
    pub(super) namespace: Arc<str>,
    /// What the names of its Pods may begin with.
    pub(super) name_prefix: Box<str>,
    /// Milliseconds of the epoch.
    created: Slot<i64>,
    pub(super) generation: i64,
    /// Of the spec.
    node: Slot<Option<Box<str>>>,
    /// Of the status.
    phase: Slot<Box<str>>,
}

impl fmt::Debug for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = String::from_utf8_lossy(&self.key);
        formatter.debug_struct("Part").field("key", &key).field("leaves", &self.leaves.len()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy)]
struct Leaf {
    kind: Kind,
    /// For [`Kind::Same`].
    place: u8,
    /// A bit for the place of each section of the part that its value is in.
    sections: u8,
    /// Of the text that it is in, if it is the first leaf there.
    text: Option<Around>,
}

/// What is around the leaves of one text.
#[derive(Debug, Clone, Copy)]
struct Around {
    /// How many bytes come before the first leaf.
    before: u32,
    /// How many come before, between and behind the leaves.
    all: u32,
    /// How many leaves there are but the first; they follow it.
    others: u16,
}

/// One encoded section: bytes, and what goes between them.
#[derive(Debug)]
struct Template {
    bytes: Box<[u8]>,
    /// By their place.
    holes: Box<[Hole]>,
}

#[derive(Debug)]
struct Hole {
    /// Before this byte of the template.
    at: u32,
    leaf: u16,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The text.
    Text,
    /// The length of the text of which the leaf is the first, u64 little endian.
    Length,
    /// Milliseconds of the epoch, i64 little endian.
    Millis,
    /// i32 little endian.
    Count,
}

/// The leaves of a key, in order. None where it is no key.
fn leaves(key: &[u8]) -> Option<Box<[Leaf]>> {
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut pieces = Pieces(key);
    let mut literal: &[u8] = b"";
    // The first leaf of the text that has not ended.
    let mut open: Option<usize> = None;
    while let Some(piece) = pieces.next()? {
        match piece {
            Piece::Literal(bytes) => {
                literal = bytes;
                // A text with a leaf has no escapes, so that the next quote ends it.
                let end = bytes.iter().position(|byte| *byte == b'"');
                if let Some(around) = open.and_then(|first| leaves[first].text.as_mut()) {
                    around.all = around.all.checked_add(u32::try_from(end.unwrap_or(bytes.len())).ok()?)?;
                }
                open = open.filter(|_| end.is_none());
            }
            Piece::Leaf(kind, place) => {
                if kind == Kind::Same && usize::from(place) >= leaves.len() {
                    return None;
                }
                let mut text = None;
                if let Some(around) = open.and_then(|first| leaves[first].text.as_mut()) {
                    around.others = around.others.checked_add(1)?;
                } else if kind != Kind::Count {
                    let quote = literal.iter().rposition(|byte| *byte == b'"').map_or(0, |at| at + 1);
                    let before = u32::try_from(literal.len() - quote).ok()?;
                    text = Some(Around { before, all: before, others: 0 });
                    open = Some(leaves.len());
                }
                leaves.push(Leaf { kind, place, sections: 0, text });
                literal = b"";
            }
            Piece::Part(_) => literal = b"",
        }
    }
    (leaves.len() < MAX_LEAVES).then(|| leaves.into_boxed_slice())
}

enum Piece<'a> {
    Literal(&'a [u8]),
    Leaf(Kind, u8),
    Part(usize),
}

struct Pieces<'a>(&'a [u8]);

impl<'a> Pieces<'a> {
    /// The outer None: not a key. The inner: its end.
    fn next(&mut self) -> Option<Option<Piece<'a>>> {
        let Some(first) = self.0.first() else { return Some(None) };
        if *first != MARK {
            let end = self.0.iter().position(|byte| *byte == MARK).unwrap_or(self.0.len());
            let (literal, rest) = self.0.split_at(end);
            self.0 = rest;
            return Some(Some(Piece::Literal(literal)));
        }
        let kind = Kind::from_byte(*self.0.get(1)?)?;
        let place = if kind.has_place() { *self.0.get(2)? } else { 0 };
        self.0 = &self.0[if kind.has_place() { 3 } else { 2 }..];
        Some(Some(if kind == Kind::Part { Piece::Part(usize::from(place)) } else { Piece::Leaf(kind, place) }))
    }
}

/// As many as most parts have leaves.
type Resolved<'a> = SmallVec<[Value<'a>; 40]>;

/// The values of all leaves.
fn resolve<'a>(leaves: &[Leaf], own: &'a [u8], identity: Identity<'a>) -> Option<Resolved<'a>> {
    let mut values = Values::new(own);
    let mut resolved = Resolved::new();
    for leaf in leaves {
        resolved.push(match leaf.kind {
            Kind::Name => Value::Text(identity.name),
            Kind::Uid => Value::Text(identity.uid),
            Kind::Revision => Value::Revision(identity.revision),
            Kind::Ordinal => Value::Text(named(leaf::ordinal(identity.name.as_bytes()))?),
            Kind::Run => Value::Text(named(leaf::run(identity.name.as_bytes()))?),
            Kind::Same => *resolved.get(usize::from(leaf.place))?,
            kind => values.next(kind)?,
        });
    }
    values.is_empty().then_some(resolved)
}

/// Digits of a name.
fn named(digits: Option<&[u8]>) -> Option<&str> {
    str::from_utf8(digits?).ok()
}

/// The JSON of the outer part with the others in it. None where a key or its values do not fit.
pub(super) fn render(
    keys: [&[u8]; PARTS],
    mut write: impl FnMut(usize, usize, &mut Vec<u8>) -> Option<()>,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(keys.iter().map(|key| key.len()).sum::<usize>() * 2);
    let mut counts = [0; PARTS];
    let mut stack = vec![(OUTER, Pieces(keys[OUTER]))];
    while let Some((part, pieces)) = stack.last_mut() {
        let part = *part;
        match pieces.next()? {
            None => {
                stack.pop();
            }
            Some(Piece::Literal(bytes)) => out.extend_from_slice(bytes),
            Some(Piece::Leaf(..)) => {
                write(part, counts[part], &mut out)?;
                counts[part] += 1;
            }
            Some(Piece::Part(inner)) if part == OUTER && (SPEC..PARTS).contains(&inner) => {
                stack.push((inner, Pieces(keys[inner])));
            }
            Some(Piece::Part(_)) => return None,
        }
    }
    Some(out)
}

/// Writes a leaf's sentinel.
fn write_sentinel(kind: Kind, at: usize, out: &mut Vec<u8>) {
    match kind {
        Kind::Time => out.extend_from_slice(&leaf::time_text(leaf::sentinel_time(at))),
        Kind::Count | Kind::Revision => Value::Count(leaf::sentinel_count(at)).write(out),
        _ => out.extend_from_slice(leaf::sentinel_text(at).as_bytes()),
    }
}

/// What a leaf that refers to another is a like of.
fn real(leaves: &[Leaf], at: usize) -> Kind {
    let leaf = leaves[at];
    if leaf.kind == Kind::Same { leaves[usize::from(leaf.place)].kind } else { leaf.kind }
}

/// The outer part of a Pod of which only another part matters.
fn bystander() -> Vec<u8> {
    let part = |part: usize| [MARK, Kind::Part as u8, part as u8];
    let head = br#"{"metadata":{"namespace":"n","name":"n","uid":"u","resourceVersion":"1"},"spec":"#;
    [&head[..], &part(SPEC), br#","status":"#, &part(STATUS), b"}"].concat()
}

/// Builds a part of a Pod from its key, and its own values by which it is proven. None where it is not.
///
/// The rest of the Pod is left out: the decoder passes nothing from one part to another.
pub(super) fn build(part: usize, key: &[u8], own: &[u8], identity: Identity<'_>) -> Option<Part> {
    let mut leaves = leaves(key)?;
    let values = resolve(&leaves, own, identity)?;
    let outer = bystander();
    let mut keys = [&*outer, b"{}", b"{}"];
    // What is not there is decoded as what is empty.
    keys[part] = if key.is_empty() { b"{}" } else { key };
    let decode = |write: &dyn Fn(usize, &mut Vec<u8>) -> Option<()>| {
        let json = render(keys, |of, at, out| if of == part { write(at, out) } else { None })?;
        podium_wire::json::decode(&json).ok()
    };
    let actual = decode(&|at, out| {
        values.get(at)?.write(out);
        Some(())
    })?;
    let traced = decode(&|at, out| {
        write_sentinel(real(&leaves, at), part * MAX_LEAVES + at, out);
        Some(())
    })?;
    let (traced_bytes, actual_bytes) = (SectionBytes::encode(&traced).ok()?, SectionBytes::encode(&actual).ok()?);
    let mut templates = Vec::new();
    for (section, _) in sections(part) {
        let template = Template::trace(traced_bytes.get(section), part, &leaves)?;
        if template.fill(&leaves, &values) != actual_bytes.get(section) {
            return None;
        }
        for hole in &template.holes {
            mark(&mut leaves, usize::from(hole.leaf), 1 << templates.len());
        }
        templates.push(template);
    }
    let created = usize::try_from(traced.header.created.0 / 1_000 - leaf::sentinel_time(0)).ok();
    let created = created.filter(|at| leaves.get(*at).is_some_and(|leaf| leaf.kind == Kind::Time));
    // The leaf that is the whole of a text, if one is.
    let leaf = |text: &str| {
        number_of(text.as_bytes()).and_then(|at| at.checked_sub(part * MAX_LEAVES)).filter(|at| *at < leaves.len())
    };
    let node = match &traced.spec.node_name {
        Some(name) => leaf(name).map_or_else(|| Slot::Fixed(Some(name.as_str().into())), Slot::Leaf),
        None => Slot::Fixed(None),
    };
    let phase = &*traced.status.phase;
    let phase = leaf(phase).map_or_else(|| Slot::Fixed(phase.into()), Slot::Leaf);
    let built = Part {
        key: key.into(),
        templates: templates.into(),
        namespace: if part == OUTER { actual.header.namespace.as_str().into() } else { Arc::default() },
        name_prefix: if part == OUTER { generate_name(key).into() } else { Box::default() },
        created: created.map_or(Slot::Fixed(actual.header.created.0), Slot::Leaf),
        generation: traced.header.generation,
        node,
        phase,
        leaves,
    };
    let proven = built.created(own, identity) == actual.header.created.0
        && built.generation == actual.header.generation
        && built.node(own, identity) == actual.spec.node_name.as_deref()
        && built.phase(own, identity) == actual.status.phase;
    proven.then_some(built)
}

/// A section holds the value of a leaf, which may be that of an earlier one.
fn mark(leaves: &mut [Leaf], at: usize, section: u8) {
    leaves[at].sections |= section;
    if leaves[at].kind == Kind::Same {
        mark(leaves, usize::from(leaves[at].place), section);
    }
}

/// The text of `generateName` in a key. Any text would do, but from this one most names follow.
fn generate_name(key: &[u8]) -> &str {
    const MEMBER: &[u8] = br#""generateName":""#;
    let from = key.windows(MEMBER.len()).position(|window| window == MEMBER).map(|at| &key[at + MEMBER.len()..]);
    let text = from.and_then(|from| from.split(|byte| matches!(*byte, b'"' | b'\\' | MARK)).next());
    text.and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
}

/// Parts that nobody shares, of a Pod that is kept undivided. None where this is no key.
pub(super) fn unshared(pod: &Pod, bytes: &SectionBytes, key: &[u8]) -> Option<[Part; PARTS]> {
    let namespace: Arc<str> = pod.header.namespace.as_str().into();
    let mut leaves = [leaves(key)?, Box::default(), Box::default()];
    Some([OUTER, SPEC, STATUS].map(|part| {
        Part {
            key: if part == OUTER { key.into() } else { Box::default() },
            leaves: std::mem::take(&mut leaves[part]),
            templates: sections(part)
                .map(|(section, _)| Template { bytes: bytes.get(section).into(), holes: Box::default() })
                .collect(),
            namespace: Arc::clone(&namespace),
            name_prefix: Box::default(),
            created: Slot::Fixed(pod.header.created.0),
            generation: pod.header.generation,
            node: Slot::Fixed(pod.spec.node_name.as_deref().map(Box::from)),
            phase: Slot::Fixed(pod.status.phase.as_str().into()),
        }
    }))
}

impl Part {
    /// How many leaves a Pod of this part has.
    pub(super) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// The bytes of a section, where they are the same for every Pod of this part.
    pub(super) fn fixed(&self, place: usize) -> Option<&[u8]> {
        let template = &self.templates[place];
        template.holes.is_empty().then_some(&template.bytes)
    }

    /// The bytes of a section.
    pub(super) fn section(&self, place: usize, own: &[u8], identity: Identity<'_>) -> Vec<u8> {
        // What was kept was read by these very leaves.
        let values = resolve(&self.leaves, own, identity).unwrap_or_default();
        self.templates[place].fill(&self.leaves, &values)
    }

    /// The places of sections that differ between two Pods of this part. None where these are not its values.
    pub(super) fn differing(&self, one: &[u8], other: &[u8]) -> Option<u8> {
        let (mut one, mut other) = (Values::new(one), Values::new(other));
        let mut places = 0;
        for leaf in self.leaves.iter().filter(|leaf| leaf.kind.is_kept()) {
            if one.next(leaf.kind)? != other.next(leaf.kind)? {
                places |= leaf.sections;
            }
        }
        Some(places)
    }

    /// True when a section of a Pod of this part has the same bytes as that of a Pod of another.
    pub(super) fn is_same(&self, place: usize, own: &[u8], other: (&Self, &[u8]), identity: Identity<'_>) -> bool {
        let (here, there) = (&self.templates[place], &other.0.templates[place]);
        if here.holes.is_empty() && there.holes.is_empty() {
            return here.bytes == there.bytes;
        }
        let values = resolve(&self.leaves, own, identity).unwrap_or_default();
        let others = resolve(&other.0.leaves, other.1, identity).unwrap_or_default();
        here.len(&self.leaves, &values) == there.len(&other.0.leaves, &others)
            && here.fill(&self.leaves, &values) == there.fill(&other.0.leaves, &others)
    }

    pub(super) fn values<'a>(&self, own: &'a [u8], identity: Identity<'a>) -> Option<Resolved<'a>> {
        resolve(&self.leaves, own, identity)
    }

    pub(super) fn created(&self, own: &[u8], identity: Identity<'_>) -> i64 {
        match self.created {
            Slot::Fixed(millis) => millis,
            Slot::Leaf(at) => self.time(own, identity, at).unwrap_or_default(),
        }
    }

    fn time(&self, own: &[u8], identity: Identity<'_>, at: usize) -> Option<i64> {
        match resolve(&self.leaves, own, identity)?.get(at)? {
            Value::Time(seconds) => Some(seconds * 1_000),
            _ => None,
        }
    }

    pub(super) fn node<'a>(&'a self, own: &'a [u8], identity: Identity<'a>) -> Option<&'a str> {
        match &self.node {
            Slot::Fixed(node) => node.as_deref(),
            Slot::Leaf(at) => self.text(own, identity, *at),
        }
    }

    pub(super) fn phase<'a>(&'a self, own: &'a [u8], identity: Identity<'a>) -> &'a str {
        match &self.phase {
            Slot::Fixed(phase) => phase,
            Slot::Leaf(at) => self.text(own, identity, *at).unwrap_or_default(),
        }
    }

    fn text<'a>(&'a self, own: &'a [u8], identity: Identity<'a>, at: usize) -> Option<&'a str> {
        match resolve(&self.leaves, own, identity)?.get(at)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The number in the text of a sentinel.
fn number_of(text: &[u8]) -> Option<usize> {
    let zero = leaf::sentinel_text(0);
    let (head, digits) = text.split_at_checked(zero.len() - 5)?;
    (head == &zero.as_bytes()[..head.len()]).then_some(())?;
    let digits: &[u8; 5] = digits.first_chunk()?;
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0')))
}

impl Template {
    /// Finds the sentinels of a part in one of its sections.
    fn trace(section: &[u8], part: usize, leaves: &[Leaf]) -> Option<Self> {
        let sentinel = leaf::sentinel_text(0).len();
        let here = |number: usize| number.checked_sub(part * MAX_LEAVES).filter(|at| *at < leaves.len());
        let mut bytes = Vec::with_capacity(section.len());
        let mut holes: Vec<Hole> = Vec::new();
        let mut hole = |at: usize, leaf: usize, what| {
            holes.push(Hole { at: u32::try_from(at).ok()?, leaf: u16::try_from(leaf).ok()?, what });
            Some(())
        };
        let mut at = 0;
        // The leaves that must come next, as the text has not ended: the next one and the last.
        let mut due: Option<(usize, usize)> = None;
        while let Some(byte) = section.get(at) {
            let rest = &section[at..];
            let text = match *byte {
                b'~' => rest.get(..sentinel).and_then(number_of).and_then(here).map(|leaf| (leaf, sentinel)),
                b'2' if rest.starts_with(SENTINEL_DAY) => rest
                    .first_chunk()
                    .and_then(leaf::time)
                    .and_then(|time| usize::try_from(time - leaf::sentinel_time(0)).ok())
                    .and_then(here)
                    .map(|leaf| (leaf, 20)),
                _ => None,
            };
            if let Some((leaf, length)) = text {
                match leaves[leaf].text {
                    // A text with its length before it.
                    Some(Around { before, all, others }) if due.is_none() => {
                        let start = bytes.len().checked_sub(before as usize + 8)?;
                        let written = u64::from_le_bytes(*bytes[start..].first_chunk()?);
                        if written != (all as usize + length + usize::from(others) * sentinel) as u64 {
                            return None;
                        }
                        bytes.drain(start..start + 8);
                        hole(start, leaf, What::Length)?;
                        due = (others > 0).then(|| (leaf + 1, leaf + usize::from(others)));
                    }
                    None if due.is_some_and(|(next, _)| next == leaf) => {
                        due = due.map(|(next, last)| (next + 1, last)).filter(|(next, last)| next <= last);
                    }
                    // A part of a text: how long it will be nothing here tells.
                    _ => return None,
                }
                hole(bytes.len(), leaf, What::Text)?;
                at += length;
                continue;
            }
            let millis = rest.first_chunk().map(|bytes| i64::from_le_bytes(*bytes));
            let seconds = millis.filter(|millis| millis % 1_000 == 0).map(|millis| millis / 1_000);
            let timed =
                seconds.and_then(|seconds| usize::try_from(seconds - leaf::sentinel_time(0)).ok()).and_then(here);
            if let Some(leaf) = timed.filter(|leaf| real(leaves, *leaf) == Kind::Time) {
                hole(bytes.len(), leaf, What::Millis)?;
                at += 8;
                continue;
            }
            let count = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            let counted =
                count.and_then(|count| count.checked_sub(leaf::sentinel_count(0))).and_then(|at| here(at as usize));
            if let Some(leaf) = counted.filter(|leaf| leaves[*leaf].kind == Kind::Count) {
                hole(bytes.len(), leaf, What::Count)?;
                at += 4;
                continue;
            }
            bytes.push(*byte);
            at += 1;
        }
        due.is_none().then(|| Self { bytes: bytes.into(), holes: holes.into() })
    }

    /// How long [`Self::fill`] is.
    fn len(&self, leaves: &[Leaf], values: &[Value<'_>]) -> usize {
        let hole = |hole: &Hole| match (hole.what, values.get(usize::from(hole.leaf))) {
            (What::Text, Some(value)) => value.len(),
            (What::Length, Some(_)) => leaves[usize::from(hole.leaf)].text.map_or(0, |_| 8),
            (What::Millis, Some(Value::Time(_))) => 8,
            (What::Count, Some(Value::Count(_))) => 4,
            _ => 0,
        };
        self.bytes.len() + self.holes.iter().map(hole).sum::<usize>()
    }

    fn fill(&self, leaves: &[Leaf], values: &[Value<'_>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len(leaves, values));
        let mut from = 0;
        for hole in &self.holes {
            let at = hole.at as usize;
            out.extend_from_slice(&self.bytes[from..at]);
            from = at;
            let leaf = usize::from(hole.leaf);
            // There is a value for each leaf, unless what was kept is not what was read.
            let Some(value) = values.get(leaf) else { continue };
            match (hole.what, value) {
                (What::Text, value) => value.write(&mut out),
                (What::Length, _) => {
                    let Some(Around { all, others, .. }) = leaves[leaf].text else { continue };
                    let values = values[leaf..].iter().take(1 + usize::from(others));
                    let length = u64::from(all) + values.map(|value| value.len() as u64).sum::<u64>();
                    out.extend_from_slice(&length.to_le_bytes());
                }
                (What::Millis, Value::Time(seconds)) => out.extend_from_slice(&(seconds * 1_000).to_le_bytes()),
                (What::Count, Value::Count(count)) => out.extend_from_slice(&count.to_le_bytes()),
                _ => {}
            }
        }
        out.extend_from_slice(&self.bytes[from..]);
        out
    }
}
