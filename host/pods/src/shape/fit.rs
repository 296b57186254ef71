//! Whether JSON is a part that is known, but for the values in it.
//!
//! Nearly every Pod is like its own last state, or like the Pod before it in a list. To find that out takes a
//! comparison of bytes; to cut the JSON, as `scan.rs` does where nothing fits, takes many times as long. What fits is
//! written by the same rules: the part's key with these values in it is this JSON, byte for byte.

use memchr::memchr;

use super::{
    key::{Leaf, Token, Tokens},
    leaf::{self, Kind, Value},
    scan::{Draft, Head, SPEC},
    skip, string,
};

/// What stands in the outer part between metadata and a spec, and before the managedFields that it leaves out.
const BEFORE_SPEC: &[u8] = b"},\"spec\":";
const MANAGED_FIELDS: &[u8] = b",\"managedFields\":";

/// JSON from a place on, that may be a part.
pub(super) struct Fit<'a, 's> {
    pub(super) json: &'a [u8],
    at: usize,
    head: &'s Head<'a>,
    /// The last time of the part.
    time: Option<&'a [u8; 20]>,
}

impl<'a, 's> Fit<'a, 's> {
    pub(super) fn new(json: &'a [u8], at: usize, head: &'s Head<'a>) -> Self {
        Self { json, at, head, time: None }
    }

    /// Goes behind a part with this key and these leaves, and puts its values into the draft. Gives where it ends;
    /// none, and anything may be in the draft, where the JSON is another one. `nested` goes behind what stands in the
    /// outer part in the place of another.
    pub(super) fn part(
        mut self,
        mut key: Tokens<'_>,
        leaves: &[Leaf],
        draft: &mut Draft,
        mut nested: impl FnMut(usize, usize) -> Option<usize>,
    ) -> Option<usize> {
        let mut leaves = leaves.iter();
        self.over(&mut key);
        while let Some(token) = key.next()? {
            match token {
                Token::Literal(literal) if self.literal(literal) => {}
                Token::Literal(literal) => self.literal_with_managed_fields(literal, &key)?,
                Token::Leaf(kind, place) => {
                    self.leaf(kind, place, draft)?;
                    key.behind(leaves.next()?);
                    self.over(&mut key);
                }
                Token::Part(inner) => self.at = nested(inner, self.at)?,
            }
        }
        Some(self.at)
    }

    #[inline]
    fn over(&mut self, key: &mut Tokens<'_>) {
        self.at = self.json.len() - key.over(self.rest()).len();
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

    /// The end of metadata, where managedFields come last. Nothing but the outer part has a spec behind it, so that no
    /// member of another object can be taken for them.
    fn literal_with_managed_fields(&mut self, literal: &[u8], behind: &Tokens<'_>) -> Option<()> {
        let before = literal.strip_suffix(BEFORE_SPEC)?;
        if !matches!(behind.clone().next()??, Token::Part(SPEC)) {
            return None;
        }
        let is_there = self.literal(before) && self.literal(MANAGED_FIELDS) && self.rest().first() == Some(&b'[');
        if !is_there {
            return None;
        }
        // The first bracket that closes is their own if a spec comes behind it, as what goes up to the last byte fits:
        // no text of JSON ends before `spec`, and another array would have to be closed before the object is.
        let from = self.at;
        self.at += memchr(b']', self.rest())? + 1;
        if self.literal(BEFORE_SPEC) {
            return Some(());
        }
        self.at = skip::container_end(self.json, from)?;
        self.literal(BEFORE_SPEC).then_some(())
    }

    fn leaf(&mut self, kind: Kind, place: u8, draft: &mut Draft) -> Option<()> {
        let rest = self.rest();
        let own = &mut draft.own;
        let length = match kind {
            Kind::Name => fixed(rest, self.head.name.as_bytes())?,
            Kind::Uid => fixed(rest, self.head.uid.as_bytes())?,
            Kind::Revision => fixed(rest, self.head.revision)?,
            Kind::Ordinal => fixed(rest, leaf::ordinal(self.head.name.as_bytes())?)?,
            Kind::Run => fixed(rest, leaf::run(self.head.name.as_bytes())?)?,
            Kind::Same => {
                let (_, from, end) = *draft.leaves.get(usize::from(place))?;
                fixed(rest, &self.json[from..end])?
            }
            Kind::Time => {
                let text = rest.first_chunk()?;
                if self.time == Some(text) {
                    own.push_same_time();
                } else {
                    own.push(Value::Time(leaf::time(text)?));
                    self.time = Some(text);
                }
                20
            }
            Kind::Uuid => {
                own.push(Value::Uuid(&leaf::uuid(rest.first_chunk()?)?));
                36
            }
            Kind::Digest => {
                own.push(Value::Digest(&leaf::digest(rest.first_chunk()?)?));
                64
            }
            Kind::Ipv4 => {
                let (address, length) = leaf::ipv4(rest)?;
                own.push(Value::Ipv4(address));
                length
            }
            Kind::Suffix => {
                let suffix = rest.first_chunk::<5>().filter(|text| leaf::is_suffix(&text[..]))?;
                own.push_suffix(suffix);
                5
            }
            Kind::Text => {
                let text = &rest[..memchr(b'"', rest)?];
                let text = &text[..leaf::own_of_node(text)];
                if !leaf::is_text(text) || !own.push_text(text) {
                    return None;
                }
                text.len()
            }
            Kind::Count => {
                let (count, length) = leaf::count(rest)?;
                own.push(Value::Count(count));
                length
            }
            Kind::String => {
                let (end, _) = skip::string_end(self.json, self.at)?;
                let contents = string::contents(&self.json[self.at..end])?;
                own.push(Value::Json(contents));
                contents.len()
            }
            Kind::Part => return None,
        };
        draft.leaves.push((kind, self.at, self.at + length));
        self.at += length;
        Some(())
    }
}

/// The length of a text that must be here.
fn fixed(rest: &[u8], text: &[u8]) -> Option<usize> {
    rest.starts_with(text).then_some(text.len())
}
