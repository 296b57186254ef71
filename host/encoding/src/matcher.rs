//! Matches JSON against a known skeleton, and extracts the values.
//!
//! Nearly every Pod has the skeletons of its previous state, or of the Pod before it in a list. Comparing bytes is many
//! times faster than scanning, which `scan.rs` does if nothing matches. A match means that the skeleton filled with the
//! extracted values is the JSON, byte for byte.

use memchr::memchr;

use super::{
    forms,
    fragment::Fragment,
    json_string,
    placeholder::{self, Kind, Value},
    scan::{Draft, Head},
    skip,
    tokens::{Placeholder, Token, Tokens},
    words,
};

/// The text between metadata and the spec, and the member name of the managedFields, which no skeleton contains.
const BEFORE_SPEC: &[u8] = b"},\"spec\":";
const MANAGED_FIELDS: &[u8] = b",\"managedFields\":";

/// The rest of the JSON that is matched.
pub(super) struct Matcher<'a, 's> {
    pub(super) json: &'a [u8],
    at: usize,
    head: &'s Head<'a>,
    /// The last matched time.
    time: Option<&'a [u8; 20]>,
}

impl<'a, 's> Matcher<'a, 's> {
    pub(super) fn new(json: &'a [u8], at: usize, head: &'s Head<'a>) -> Self {
        Self { json, at, head, time: None }
    }

    /// Matches a skeleton with this text and these placeholders, and appends the values to `draft`. Returns the end
    /// offset, or None on a mismatch, which leaves `draft` unspecified. `nested` matches an embedded fragment at an
    /// offset and returns the offset after it.
    pub(super) fn skeleton(
        mut self,
        mut key: Tokens<'_>,
        placeholders: &[Placeholder],
        draft: &mut Draft,
        mut nested: impl FnMut(Fragment, usize) -> Option<usize>,
    ) -> Option<usize> {
        let mut placeholders = placeholders.iter();
        self.skip_literal(&mut key);
        while let Some(token) = key.next().ok()? {
            match token {
                Token::Literal(literal) if self.literal(literal) => {}
                Token::Literal(literal) => self.literal_with_managed_fields(literal, &key)?,
                Token::Placeholder(kind, place) => {
                    self.placeholder(kind, place, draft)?;
                    key.after_placeholder(placeholders.next()?);
                    self.skip_literal(&mut key);
                }
                Token::Fragment(inner) => self.at = nested(inner, self.at)?,
            }
        }
        Some(self.at)
    }

    #[inline]
    fn skip_literal(&mut self, key: &mut Tokens<'_>) {
        self.at = self.json.len() - key.skip_literal(self.rest()).len();
    }

    fn rest(&self) -> &'a [u8] {
        self.json.get(self.at..).unwrap_or_default()
    }

    fn literal(&mut self, literal: &[u8]) -> bool {
        let fits = self.rest().starts_with(literal);
        if fits {
            self.at += literal.len();
        }
        fits
    }

    /// Matches the end of metadata with managedFields as its last member. Only the skeleton of the whole object
    /// continues with a spec, so no member of another object can be mistaken for it.
    fn literal_with_managed_fields(&mut self, literal: &[u8], behind: &Tokens<'_>) -> Option<()> {
        let before = literal.strip_suffix(BEFORE_SPEC)?;
        if !matches!(behind.clone().next().ok()??, Token::Fragment(Fragment::Spec)) {
            return None;
        }
        let is_there = self.literal(before) && self.literal(MANAGED_FIELDS) && self.rest().first() == Some(&b'[');
        if !is_there {
            return None;
        }
        // The first closing bracket is the end if a spec follows and the rest of the object matches: no string of JSON
        // can end before `spec`, and an enclosing array would have to be closed before the object.
        let from = self.at;
        self.at += memchr(b']', self.rest())? + 1;
        if self.literal(BEFORE_SPEC) {
            return Some(());
        }
        self.at = skip::container_end(self.json, from)?;
        self.literal(BEFORE_SPEC).then_some(())
    }

    fn placeholder(&mut self, kind: Kind, place: u8, draft: &mut Draft) -> Option<()> {
        let rest = self.rest();
        let own = &mut draft.own;
        let length = match kind {
            Kind::Name => fixed(rest, self.head.name.as_bytes())?,
            Kind::Uid => fixed(rest, self.head.uid.as_bytes())?,
            Kind::Revision => fixed(rest, self.head.revision)?,
            Kind::Ordinal => fixed(rest, forms::ordinal(self.head.name.as_bytes())?)?,
            Kind::Run => fixed(rest, forms::run(self.head.name.as_bytes())?)?,
            Kind::Same => {
                let (_, from, end) = *draft.placeholders.get(usize::from(place))?;
                fixed(rest, &self.json[from..end])?
            }
            Kind::Time => {
                let text = rest.first_chunk()?;
                if self.time == Some(text) {
                    own.push_same_time();
                } else {
                    own.push(Value::Time(placeholder::time(text)?));
                    self.time = Some(text);
                }
                20
            }
            Kind::Uuid => {
                own.push(Value::Uuid(&forms::uuid(rest.first_chunk()?)?));
                36
            }
            Kind::Digest => {
                own.push(Value::Digest(&forms::digest(rest.first_chunk()?)?));
                64
            }
            Kind::Ipv4 => {
                let (address, length) = forms::ipv4(rest)?;
                own.push(Value::Ipv4(address));
                length
            }
            Kind::Suffix => {
                let suffix = rest.first_chunk::<5>().filter(|text| forms::is_suffix(&text[..]))?;
                own.push_suffix(suffix);
                5
            }
            Kind::Text => {
                let text = &rest[..memchr(b'"', rest)?];
                let text = &text[..forms::own_of_node(text)];
                if !forms::is_text(text) || !own.push_text(text) {
                    return None;
                }
                text.len()
            }
            Kind::Count | Kind::Generation => {
                let (count, length) = placeholder::count(rest)?;
                own.push(Value::Count(count));
                length
            }
            Kind::String => {
                let (end, _) = skip::string_end(self.json, self.at)?;
                let contents = json_string::contents(&self.json[self.at..end])?;
                own.push_string(contents);
                contents.len()
            }
            Kind::Word => {
                let word = str::from_utf8(&rest[..words::word(rest)]).ok().filter(|word| !word.is_empty())?;
                own.push_string(word);
                word.len()
            }
            Kind::Fragment => return None,
        };
        draft.placeholders.push((kind, self.at, self.at + length));
        self.at += length;
        Some(())
    }
}

/// Returns the length of `text` if `rest` begins with it.
fn fixed(rest: &[u8], text: &[u8]) -> Option<usize> {
    rest.starts_with(text).then_some(text.len())
}
