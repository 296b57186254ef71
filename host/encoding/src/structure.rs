//! The structure of a key: the key without the contents of the strings that the decoder passes on unread.
//!
//! Keys of one structure have these strings at the same positions, counted from the front. A position may be
//! generalised: its string, or some words of it, become values of each Pod ([`Kind::String`], [`Kind::Word`]), and
//! keys that differ only there become one. `learned.rs` decides which positions are generalised.

use std::{
    hash::{BuildHasher, Hasher},
    ops::Range,
};

use foldhash::quality::FixedState;
use memchr::{memchr, memchr3};
use smallvec::SmallVec;

use super::{
    forms,
    fragment::Fragment,
    json_string,
    placeholder::{self, Kind, PLACEHOLDER, Value, ValueWriter},
    sorted_map::SortedMap,
    tokens::real_kinds,
    words::{self, Piece, WordSet},
};

/// The strings of a key that may be generalised.
#[derive(Debug)]
pub(super) struct Structure {
    /// Equal for keys of one structure.
    pub(super) hash: u64,
    /// The strings by their position in the key.
    pub(super) strings: Vec<Contents>,
}

/// The contents of one string, without the quotes.
#[derive(Debug, Clone)]
pub(super) struct Contents {
    pub(super) range: Range<usize>,
    /// A hash of the member names and list indexes that lead to it.
    pub(super) path: u64,
    /// Whether knowledge about this path applies to all workloads of the namespace.
    pub(super) is_of_namespace: bool,
    /// The placeholders in it.
    placeholders: Range<usize>,
}

/// The positions that are generalised, in order. Most structures have one or two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Positions(SortedMap<usize, Own>);

/// The part of the string at a generalised position that is stored for each Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// The whole string.
    Whole,
    /// These words; `versions` counts the sets of words so far.
    Words { words: WordSet, versions: u8 },
}

impl Positions {
    pub(super) fn get(&self, position: usize) -> Option<Own> {
        self.0.get(position)
    }

    pub(super) fn set(&mut self, position: usize, own: Own) {
        self.0.insert(position, own);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, Own)> {
        self.0.iter()
    }

    /// Returns the bytes that are allocated.
    pub(super) fn size(&self) -> usize {
        self.0.size()
    }
}

/// Returns true if the string at this path of the whole object may be stored as a value.
fn may_be_own(path: &[&str]) -> bool {
    let is_shared = match path {
        // The cache reads these fields by themselves.
        ["metadata", "generateName"] | ["spec", "nodeName"] | ["status", "phase"] => true,
        // One of a few words, by the API's conventions.
        ["status", .., "reason" | "type"] => true,
        _ => false,
    };
    !is_shared && podium_wire::json::is_opaque(path)
}

/// A string of a key.
struct Text {
    /// The position of its closing quote.
    end: usize,
    is_escaped: bool,
    placeholders: usize,
}

/// Parses the string whose first byte is at `from`. Returns `None` if it has no end, or a fragment inside.
fn text_from(key: &[u8], from: usize) -> Option<Text> {
    let mut text = Text { end: from, is_escaped: false, placeholders: 0 };
    loop {
        text.end += memchr3(b'"', b'\\', PLACEHOLDER, key.get(text.end..)?)?;
        match key[text.end] {
            b'"' => return Some(text),
            // Otherwise the placeholder's bytes would be parsed differently here than in the tokens.
            b'\\' if key.get(text.end + 1) == Some(&PLACEHOLDER) => return None,
            b'\\' => {
                text.is_escaped = true;
                text.end += 2;
            }
            _ => {
                let (kind, length) = mark(&key[text.end..])?;
                if kind == Kind::Fragment {
                    return None;
                }
                text.end += length;
                text.placeholders += 1;
            }
        }
    }
}

/// The maximum nesting depth.
const DEEPEST: usize = 128;

impl Structure {
    /// Parses a key. Returns `None` if the bytes are not a key.
    pub(super) fn new(fragment: Fragment, key: &[u8], hashers: &FixedState) -> Option<Self> {
        let mut strings = Vec::new();
        let mut hasher = hashers.build_hasher();
        // The member names of the present path, and for each open object or array the number of names that lead to
        // it; for an array also the index of the present element.
        let mut path: Vec<&str> = match fragment {
            Fragment::Object => Vec::new(),
            Fragment::Spec => vec!["spec"],
            Fragment::Status => vec!["status"],
        };
        let mut open: Vec<(usize, Option<usize>)> = Vec::new();
        // A name with escapes may be any name.
        const ESCAPED: &str = "\\";
        let mut at = 0;
        let mut placeholder = 0;
        let mut hashed = 0;
        let kinds = real_kinds(key)?;
        while let Some(byte) = key.get(at) {
            match *byte {
                // Each string costs time proportional to its depth. No API has objects this deep.
                b'{' | b'[' if open.len() == DEEPEST => return None,
                byte @ (b'{' | b'[') => {
                    open.push((path.len(), (byte == b'[').then_some(0)));
                    at += 1;
                }
                b'}' | b']' => {
                    path.truncate(open.pop()?.0);
                    at += 1;
                }
                b',' => {
                    let (names, element) = open.last_mut()?;
                    path.truncate(*names);
                    *element = element.map(|element| element + 1);
                    at += 1;
                }
                PLACEHOLDER => {
                    let (kind, length) = mark(&key[at..])?;
                    if kind != Kind::Fragment {
                        // The position of an equal string depends on the strings before it.
                        hasher.write(&key[hashed..at]);
                        hasher.write(&[PLACEHOLDER, *kinds.get(placeholder)? as u8]);
                        hashed = at + length;
                        placeholder += 1;
                    }
                    at += length;
                }
                b'"' => {
                    let from = at + 1;
                    let first = placeholder;
                    let Text { end, is_escaped, placeholders } = text_from(key, from)?;
                    placeholder += placeholders;
                    at = end + 1;
                    if key.get(at) == Some(&b':') {
                        if placeholder > first {
                            return None;
                        }
                        path.truncate(open.last()?.0);
                        path.push(if is_escaped { ESCAPED } else { str::from_utf8(&key[from..end]).ok()? });
                    } else if end > from && !path.contains(&ESCAPED) && may_be_own(&path) {
                        hasher.write(&key[hashed..from]);
                        hashed = end;
                        let elements: SmallVec<[_; 8]> = open.iter().map(|(_, element)| *element).collect();
                        // Annotations and statuses have the same meaning in a whole namespace; containers belong to
                        // their workload.
                        let is_of_namespace = matches!(path[..], ["metadata", "annotations", ..] | ["status", ..]);
                        strings.push(Contents {
                            range: from..end,
                            path: hashers.hash_one((&path, elements)),
                            is_of_namespace,
                            placeholders: first..placeholder,
                        });
                    } else if placeholder > first {
                        hash_text(&key[hashed..at], &kinds[first..placeholder], &mut hasher)?;
                        hashed = at;
                    }
                }
                // A number, a literal name, or the colon after a member name.
                b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.' | b':' => at += 1,
                // With spaces, a member name would be mistaken for a value.
                _ => return None,
            }
        }
        hasher.write(&key[hashed..]);
        hasher.write_usize(strings.len());
        open.is_empty().then(|| Self { hash: hasher.finish(), strings })
    }

    /// Returns true if every [`Kind::String`] of the key is the whole contents of a string that may be generalised,
    /// and every [`Kind::Word`] is in such a string.
    pub(super) fn is_sound(&self, key: &[u8]) -> Option<bool> {
        let kinds = real_kinds(key)?;
        let count = |kinds: &[Kind], kind| kinds.iter().filter(|other| **other == kind).count();
        let words: usize =
            self.strings.iter().map(|string| count(&kinds[string.placeholders.clone()], Kind::Word)).sum();
        let strings = self.strings.iter().filter(|string| is_generalised(&key[string.range.clone()])).count();
        Some((strings, words) == (count(&kinds, Kind::String), count(&kinds, Kind::Word)))
    }

    /// Returns the ranges of the key that become values, in order.
    fn chosen(&self, key: &[u8], positions: &Positions) -> Vec<ValueRange> {
        let mut chosen = Vec::new();
        for (at, string) in self.strings.iter().enumerate() {
            let Some(own) = positions.get(at) else { continue };
            let pieces = match own {
                Own::Words { words, .. } => words::split(&key[string.range.clone()]).map(|pieces| (words, pieces)),
                Own::Whole => None,
            };
            let Some((words, pieces)) = pieces else {
                chosen.push(ValueRange { range: string.range.clone(), kind: Kind::String });
                continue;
            };
            let from = string.range.start;
            let all = pieces.into_iter().filter_map(|piece| match piece {
                Piece::Word(range) => Some(from + range.start..from + range.end),
                _ => None,
            });
            let own = all.enumerate().filter(|(number, _)| words & 1 << number != 0);
            chosen.extend(own.map(|(_, range)| ValueRange { range, kind: Kind::Word }));
        }
        chosen
    }

    /// Returns the key with these positions generalised, and the values of its placeholders. `placeholders` are those
    /// of the present key, with the ranges of their texts in `json`.
    pub(super) fn generalised(
        &self,
        key: &[u8],
        positions: &Positions,
        json: &[u8],
        placeholders: &[(Kind, usize, usize)],
    ) -> Option<Generalised> {
        let kinds = real_kinds(key)?;
        let mut out = Vec::with_capacity(key.len());
        let mut own = ValueWriter::default();
        // The new number of each placeholder.
        let mut numbers: Vec<Option<usize>> = Vec::with_capacity(placeholders.len());
        let mut now = Vec::with_capacity(placeholders.len());
        let mut chosen = self.chosen(key, positions).into_iter().peekable();
        let mut at = 0;
        let mut contents = Vec::new();
        while at < key.len() {
            if let Some(ValueRange { range, kind }) = chosen.next_if(|chosen| chosen.range.start == at) {
                contents.clear();
                while at < range.end {
                    if key[at] == PLACEHOLDER {
                        let (_, from, end) = *placeholders.get(numbers.len())?;
                        contents.extend_from_slice(json.get(from..end)?);
                        at += mark(&key[at..])?.1;
                        numbers.push(None);
                    } else {
                        contents.push(key[at]);
                        at += 1;
                    }
                }
                own.push_string(json_string::contents(&contents)?);
                out.extend([PLACEHOLDER, kind as u8]);
                now.push((kind, 0, 0));
                continue;
            }
            if key[at] != PLACEHOLDER {
                let end = memchr(PLACEHOLDER, &key[at..]).map_or(key.len(), |length| at + length);
                let next = chosen.peek().map(|chosen| chosen.range.start).filter(|start| *start > at);
                let end = next.map_or(end, |start| end.min(start));
                out.extend_from_slice(&key[at..end]);
                at = end;
                continue;
            }
            let (kind, length) = mark(&key[at..])?;
            if kind == Kind::Fragment {
                out.extend_from_slice(&key[at..at + length]);
                at += length;
                continue;
            }
            let (_, from, end) = *placeholders.get(numbers.len())?;
            let like = (kind == Kind::Same).then(|| usize::from(key[at + 2]));
            let number = now.len();
            match like.map(|like| numbers.get(like).copied().flatten()) {
                Some(Some(like)) if let Ok(like) = u8::try_from(like) => {
                    out.extend([PLACEHOLDER, Kind::Same as u8, like]);
                    now.push((Kind::Same, from, end));
                }
                // The first of the remaining ones.
                _ => {
                    let kind = *kinds.get(numbers.len())?;
                    out.extend([PLACEHOLDER, kind as u8]);
                    put(kind, json.get(from..end)?, &mut own)?;
                    now.push((kind, from, end));
                    if let Some(number_of_like) = like.and_then(|like| numbers.get_mut(like)) {
                        *number_of_like = Some(number);
                    }
                }
            }
            numbers.push(Some(number));
            at += length;
        }
        Some(Generalised { text: out, own: own.bytes, placeholders: now.len() })
    }
}

/// A range of a key that becomes a placeholder: a [`Kind::String`] or a [`Kind::Word`].
struct ValueRange {
    range: Range<usize>,
    kind: Kind,
}

/// A key in which some strings or words are values.
#[derive(Debug)]
pub(super) struct Generalised {
    pub(super) text: Vec<u8>,
    pub(super) own: Vec<u8>,
    pub(super) placeholders: usize,
}

/// Returns true if these contents of a string in a key are a value.
pub(super) fn is_generalised(contents: &[u8]) -> bool {
    *contents == [PLACEHOLDER, Kind::String as u8]
}

/// Returns true if these contents of a string in a key are a value, or contain one as a word.
pub(super) fn has_values(contents: &[u8]) -> bool {
    let is_own = |at: usize| mark(&contents[at..]).is_some_and(|(kind, _)| matches!(kind, Kind::String | Kind::Word));
    memchr::memchr_iter(PLACEHOLDER, contents).any(is_own)
}

/// Returns the kind and the length of a placeholder.
pub(super) fn mark(key: &[u8]) -> Option<(Kind, usize)> {
    let kind = Kind::from_byte(*key.get(1)?)?;
    let length = if kind.has_place() { 3 } else { 2 };
    (key.len() >= length).then_some((kind, length))
}

/// Hashes a piece of a key with placeholders of these kinds in its texts.
fn hash_text(piece: &[u8], kinds: &[Kind], hasher: &mut impl Hasher) -> Option<()> {
    let mut at = 0;
    let mut kinds = kinds.iter();
    let mut hashed = 0;
    while at < piece.len() {
        if piece[at] != PLACEHOLDER {
            at += 1;
            continue;
        }
        let (kind, length) = mark(&piece[at..])?;
        if kind != Kind::Fragment {
            hasher.write(&piece[hashed..at]);
            hasher.write(&[PLACEHOLDER, *kinds.next()? as u8]);
            hashed = at + length;
        }
        at += length;
    }
    hasher.write(&piece[hashed..]);
    Some(())
}

/// Adds the value of a placeholder, if its kind has one.
fn put(kind: Kind, text: &[u8], own: &mut ValueWriter) -> Option<()> {
    match kind {
        Kind::Time => own.push(Value::Time(placeholder::time(text.first_chunk()?)?)),
        Kind::Uuid => own.push(Value::Uuid(&forms::uuid(text.first_chunk()?)?)),
        Kind::Digest => own.push(Value::Digest(&forms::digest(text.first_chunk()?)?)),
        Kind::Ipv4 => own.push(Value::Ipv4(forms::ipv4(text)?.0)),
        Kind::Count | Kind::Generation => own.push(Value::Count(placeholder::count(text)?.0)),
        Kind::Suffix => own.push_suffix(text),
        Kind::Text => own.push_text(text).then_some(())?,
        Kind::String | Kind::Word => own.push_string(str::from_utf8(text).ok()?),
        Kind::Name | Kind::Uid | Kind::Revision | Kind::Ordinal | Kind::Run => {}
        Kind::Same | Kind::Fragment => return None,
    }
    Some(())
}
