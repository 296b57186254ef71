//! The text of a skeleton as a sequence of tokens: literal JSON and placeholders.
//!
//! A placeholder is the byte [`PLACEHOLDER`], which JSON never contains, and the byte of its kind; [`Kind::Same`] and
//! [`Kind::Fragment`] are followed by a number of one byte.

use std::{num::NonZeroU8, slice};

use memchr::{memchr, memchr2, memmem};
use smallvec::SmallVec;

use super::{
    chunks::{ChunkedBytes, Cursor},
    forms,
    fragment::{Fragment, PerFragment},
    json_string,
    placeholder::{self, Kind, PLACEHOLDER, Value, ValueReader},
    skeleton::{MAX_PLACEHOLDERS, PodIdentity},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Placeholder {
    pub(super) kind: Kind,
    /// For [`Kind::Same`], the number of the placeholder with the same value.
    pub(super) place: u8,
    /// One bit for each section of the fragment that contains the value.
    pub(super) sections: u8,
    /// The least number of literal bytes that follow.
    behind: u16,
    /// The string around it, if it is the first placeholder in it.
    pub(super) text: Option<InText>,
}

/// The literal bytes around the placeholders of one string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InText {
    /// The number of bytes before the first placeholder.
    pub(super) before: u16,
    /// The number of bytes before, between and after the placeholders.
    pub(super) all: u16,
    /// The number of placeholders in the string, which have consecutive numbers.
    pub(super) placeholders: NonZeroU8,
}

/// Returns the length of the string whose first placeholder this is.
pub(super) fn text_length(placeholders: &[Placeholder], values: &[Value<'_>], placeholder: usize) -> Option<u64> {
    let InText { all, placeholders, .. } = placeholders.get(placeholder)?.text?;
    let values = values.get(placeholder..)?.iter().take(usize::from(placeholders.get()));
    Some(u64::from(all) + values.map(|value| value.len() as u64).sum::<u64>())
}

/// Returns the number of bytes before the first placeholder.
pub(super) fn before_placeholders(key: &[u8]) -> u32 {
    u32::try_from(memchr(PLACEHOLDER, key).unwrap_or(key.len())).unwrap_or(u32::MAX)
}

/// Returns the placeholders of a skeleton, in order. Returns None if the bytes are not a skeleton, or if a string with
/// placeholders is too long or has too many.
pub(super) fn placeholders(key: &[u8]) -> Option<Box<[Placeholder]>> {
    let mut placeholders: Vec<Placeholder> = Vec::new();
    let mut tokens = Tokens::from(key);
    let mut strings = Strings::default();
    // True if the last token was a placeholder.
    let mut follows = false;
    while let Some(token) = tokens.next().ok()? {
        match token {
            Token::Literal(bytes) => {
                if let Some(placeholder) = placeholders.last_mut().filter(|_| follows) {
                    placeholder.behind = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
                }
                follows = false;
                strings.literal(bytes, &mut placeholders)?;
            }
            Token::Placeholder(kind, place) => {
                if kind == Kind::Same && usize::from(place) >= placeholders.len() {
                    return None;
                }
                let text = strings.placeholder(&mut placeholders).ok()?;
                placeholders.push(Placeholder { kind, place, sections: 0, behind: 0, text });
                follows = true;
            }
            Token::Fragment(_) => follows = false,
        }
    }
    (placeholders.len() < MAX_PLACEHOLDERS).then(|| placeholders.into_boxed_slice())
}

/// Follows the literals of a skeleton, and counts the bytes of the text that each string means.
#[derive(Default)]
struct Strings {
    /// The present string, if any.
    open: Option<OpenString>,
}

#[derive(Default)]
struct OpenString {
    /// The number of bytes of its literals, without escapes.
    length: usize,
    /// The number of its first placeholder.
    first: Option<usize>,
    /// True if it has an escape without a text, which is allowed where the decoder ignores the string.
    is_malformed: bool,
}

impl Strings {
    fn literal(&mut self, mut bytes: &[u8], placeholders: &mut [Placeholder]) -> Option<()> {
        loop {
            let Some(string) = &mut self.open else {
                let Some(quote) = memchr(b'"', bytes) else { return Some(()) };
                bytes = &bytes[quote + 1..];
                self.open = Some(OpenString::default());
                continue;
            };
            let Some(at) = memchr2(b'\\', b'"', bytes) else {
                string.length += bytes.len();
                return Some(());
            };
            string.length += at;
            bytes = &bytes[at..];
            if bytes[0] == b'"' {
                string.close(placeholders)?;
                self.open = None;
                bytes = &bytes[1..];
            } else if let Some((character, length)) = json_string::escape(bytes) {
                string.length += character.len_utf8();
                bytes = &bytes[length..];
            } else {
                string.is_malformed = true;
                bytes = bytes.get(2..).unwrap_or_default();
            }
        }
    }

    /// Records that a placeholder follows; its number is the number of placeholders before it. Returns its position
    /// in its string.
    fn placeholder(&mut self, placeholders: &mut [Placeholder]) -> Result<Option<InText>, MalformedSkeleton> {
        let Some(string) = &mut self.open else { return Ok(None) };
        if let Some(first) = string.first {
            let around = placeholders.get_mut(first).and_then(|first| first.text.as_mut()).ok_or(MalformedSkeleton)?;
            around.placeholders = around.placeholders.checked_add(1).ok_or(MalformedSkeleton)?;
            return Ok(None);
        }
        string.first = Some(placeholders.len());
        let before = u16::try_from(string.length).map_err(|_| MalformedSkeleton)?;
        Ok(Some(InText { before, all: before, placeholders: NonZeroU8::MIN }))
    }
}

impl OpenString {
    fn close(&self, placeholders: &mut [Placeholder]) -> Option<()> {
        if let Some(first) = self.first {
            let around = placeholders.get_mut(first)?.text.as_mut()?;
            around.all = u16::try_from(self.length).ok().filter(|_| !self.is_malformed)?;
        }
        Some(())
    }
}

/// The bytes are not a skeleton, or a string of it is too long or has too many placeholders.
pub(super) struct MalformedSkeleton;

pub(super) enum Token<'a> {
    /// Literal bytes; another literal may follow.
    Literal(&'a [u8]),
    Placeholder(Kind, u8),
    Fragment(Fragment),
}

/// The rest of a skeleton's text.
#[derive(Clone)]
pub(super) struct Tokens<'a> {
    /// No chunk ends within a placeholder.
    text: Cursor<'a>,
    /// The number of following bytes that are known to be literal.
    plain: usize,
}

impl<'a> From<&'a [u8]> for Tokens<'a> {
    fn from(key: &'a [u8]) -> Self {
        Self { text: key.into(), plain: 0 }
    }
}

impl<'a> From<&'a ChunkedBytes> for Tokens<'a> {
    fn from(key: &'a ChunkedBytes) -> Self {
        Self { text: key.reader(), plain: 0 }
    }
}

impl<'a> Tokens<'a> {
    /// Records that the last token was this placeholder, so that no placeholder is searched for in the literal after
    /// it.
    pub(super) fn after_placeholder(&mut self, placeholder: &Placeholder) {
        self.plain = placeholder.behind as usize;
    }

    /// Returns the tokens; the first `plain` bytes are known to be literal.
    pub(super) fn plain(self, plain: u32) -> Self {
        Self { plain: plain as usize, ..self }
    }

    /// Skips the bytes that are known to be literal while `text` begins with them. Returns the rest of `text`.
    #[inline]
    pub(super) fn skip_literal<'t>(&mut self, mut text: &'t [u8]) -> &'t [u8] {
        while self.plain > 0
            && let Some(chunk) = self.text.next()
        {
            let (literal, rest) = chunk.split_at(chunk.len().min(self.plain));
            let Some(left) = text.strip_prefix(literal) else {
                self.text.chunk = chunk;
                break;
            };
            self.plain -= literal.len();
            self.text.chunk = rest;
            text = left;
        }
        text
    }

    fn len(&self) -> usize {
        self.text.clone().map(<[u8]>::len).sum()
    }

    /// Returns the next token, or `None` at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Token<'a>>, MalformedSkeleton> {
        let Some(chunk) = self.text.next() else { return Ok(None) };
        self.token(chunk).map(Some).ok_or(MalformedSkeleton)
    }

    /// Returns the first token of the next chunk, or `None` if it is malformed.
    #[inline]
    fn token(&mut self, chunk: &'a [u8]) -> Option<Token<'a>> {
        let first = *chunk.first()?;
        if self.plain > 0 || first != PLACEHOLDER {
            let end = match self.plain {
                0 => memchr(PLACEHOLDER, chunk).unwrap_or(chunk.len()),
                plain => plain.min(chunk.len()),
            };
            self.plain = self.plain.saturating_sub(end);
            let (literal, rest) = chunk.split_at(end);
            self.text.chunk = rest;
            return Some(Token::Literal(literal));
        }
        let kind = Kind::from_byte(*chunk.get(1)?)?;
        let place = if kind.has_place() { *chunk.get(2)? } else { 0 };
        self.text.chunk = &chunk[if kind.has_place() { 3 } else { 2 }..];
        Some(if kind == Kind::Fragment {
            Token::Fragment(Fragment::from_byte(place)?)
        } else {
            Token::Placeholder(kind, place)
        })
    }
}

/// Returns the kinds of a skeleton's placeholders, in order; [`Kind::Same`] is resolved to the kind that it refers to.
pub(super) fn real_kinds(key: &[u8]) -> Option<Vec<Kind>> {
    let mut kinds = Vec::new();
    let mut tokens = Tokens::from(key);
    while let Some(token) = tokens.next().ok()? {
        if let Token::Placeholder(kind, place) = token {
            kinds.push(if kind == Kind::Same { *kinds.get(usize::from(place))? } else { kind });
        }
    }
    Some(kinds)
}

/// Returns true if the literals of a skeleton, without escapes, contain the beginning of a sentinel, or `None` if the
/// bytes are not a skeleton.
pub(super) fn has_sentinel(key: &[u8]) -> Option<bool> {
    let mut text = Vec::with_capacity(key.len());
    let mut tokens = Tokens::from(key);
    while let Some(token) = tokens.next().ok()? {
        let Token::Literal(mut bytes) = token else {
            text.push(PLACEHOLDER);
            continue;
        };
        while let Some(at) = memchr(b'\\', bytes) {
            text.extend_from_slice(&bytes[..at]);
            let (character, length) = json_string::escape(&bytes[at..]).unwrap_or(('\\', 1));
            text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            bytes = &bytes[at + length..];
        }
        text.extend_from_slice(bytes);
    }
    Some(memmem::find(&text, placeholder::SENTINEL.as_bytes()).is_some())
}

/// Sized for the values of most skeletons.
pub(super) type Resolved<'a> = SmallVec<[Value<'a>; 40]>;

/// Returns the values of all placeholders. Returns None if `own` are not values of these placeholders.
pub(super) fn resolve<'a>(
    placeholders: &[Placeholder],
    own: &'a [u8],
    identity: PodIdentity<'a>,
) -> Option<Resolved<'a>> {
    let mut values = ValueReader::new(own);
    let mut resolved = Resolved::new();
    for placeholder in placeholders {
        resolved.push(match placeholder.kind {
            Kind::Name => Value::Text(identity.name),
            Kind::Uid => Value::Text(identity.uid),
            Kind::Revision => Value::Revision(identity.revision),
            Kind::Ordinal => Value::Text(named(forms::ordinal(identity.name.as_bytes()))?),
            Kind::Run => Value::Text(named(forms::run(identity.name.as_bytes()))?),
            Kind::Same => *resolved.get(usize::from(placeholder.place))?,
            kind => values.next(kind)?,
        });
    }
    values.is_empty().then_some(resolved)
}

/// Returns the digits of a Pod's name as text.
fn named(digits: Option<&[u8]>) -> Option<&str> {
    str::from_utf8(digits?).ok()
}

/// Returns the JSON of the object with its spec and status, or `None` if a skeleton or its values are malformed.
pub(super) fn render(
    texts: PerFragment<Tokens<'_>>,
    mut write: impl FnMut(Fragment, usize, &mut Vec<u8>) -> Option<()>,
) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(texts.iter().map(|(_, text)| text.len()).sum::<usize>() * 2);
    let mut counts = PerFragment::<usize>::default();
    let mut stack = vec![(Fragment::Object, texts[Fragment::Object].clone())];
    while let Some((fragment, tokens)) = stack.last_mut() {
        let fragment = *fragment;
        match tokens.next().ok()? {
            None => {
                stack.pop();
            }
            Some(Token::Literal(bytes)) => out.extend_from_slice(bytes),
            Some(Token::Placeholder(..)) => {
                write(fragment, counts[fragment], &mut out)?;
                counts[fragment] += 1;
            }
            Some(Token::Fragment(inner)) if fragment == Fragment::Object && inner != Fragment::Object => {
                stack.push((inner, texts[inner].clone()));
            }
            Some(Token::Fragment(_)) => return None,
        }
    }
    Some(out)
}

/// The JSON of one fragment, rendered in pieces. Two states of a Pod mostly differ near the front.
pub(super) struct Json<'a> {
    tokens: Tokens<'a>,
    values: slice::Iter<'a, Value<'a>>,
    /// The rest of a literal. If it is empty, the rest of the piece is in `buffer`, from `at` on.
    literal: &'a [u8],
    buffer: Vec<u8>,
    at: usize,
}

impl<'a> Json<'a> {
    pub(super) fn new(tokens: Tokens<'a>, values: &'a [Value<'a>]) -> Self {
        Self { tokens, values: values.iter(), literal: &[], buffer: Vec::new(), at: 0 }
    }

    /// Returns true if both are the same bytes, or `None` if a skeleton or its values are malformed.
    pub(super) fn equals(mut self, mut other: Self) -> Option<bool> {
        loop {
            let here = self.next_bytes()?;
            let there = other.next_bytes()?;
            let length = here.len().min(there.len());
            if length == 0 || here[..length] != there[..length] {
                return Some(here.is_empty() && there.is_empty());
            }
            self.pass(length);
            other.pass(length);
        }
    }

    /// Returns the rest of the present piece, or the next one; empty at the end.
    fn next_bytes(&mut self) -> Option<&[u8]> {
        while self.literal.is_empty() && self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
            match self.tokens.next().ok()? {
                None => break,
                Some(Token::Literal(literal)) => self.literal = literal,
                Some(Token::Placeholder(..)) => self.values.next()?.write(&mut self.buffer),
                Some(Token::Fragment(fragment)) => {
                    self.buffer.extend([PLACEHOLDER, Kind::Fragment as u8, fragment as u8]);
                }
            }
        }
        Some(if self.literal.is_empty() { &self.buffer[self.at..] } else { self.literal })
    }

    fn pass(&mut self, length: usize) {
        match self.literal.split_at_checked(length) {
            Some((_, rest)) if !self.literal.is_empty() => self.literal = rest,
            _ => self.at += length,
        }
    }
}

/// Appends the sentinel of a placeholder: a value that can be located in the encoded sections.
pub(super) fn write_sentinel(kind: Kind, at: usize, out: &mut Vec<u8>) {
    match kind {
        Kind::Time => out.extend_from_slice(&forms::time_text(placeholder::sentinel_time(at))),
        Kind::Count | Kind::Generation | Kind::Revision => Value::Count(placeholder::sentinel_count(at)).write(out),
        _ => out.extend_from_slice(placeholder::sentinel_text(at).as_bytes()),
    }
}

/// Returns the kind of a placeholder; of [`Kind::Same`], the kind of the placeholder that it refers to.
pub(super) fn resolved_kind(placeholders: &[Placeholder], at: usize) -> Kind {
    let placeholder = placeholders[at];
    if placeholder.kind == Kind::Same { placeholders[usize::from(placeholder.place)].kind } else { placeholder.kind }
}
