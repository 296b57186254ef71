//! One Pod as kept: its shape and its own values.

use std::{borrow::Cow, sync::Arc};

use podium_wire::{CodecError, Pod, Section, SectionBytes, SectionSet};
use smallvec::SmallVec;

use super::{
    Identity, Prune, Shape,
    key::{self, Tokens},
    leaf::{put_varint, varint},
    part::{self, Part, place, sections},
    scan::{OUTER, PARTS, SPEC, STATUS},
    whole,
};

/// Values of a usual Pod, of three containers at most, are as long. A Pod by itself lives for one event or one run: an
/// allocation for its values alone would cost more than room that is not used.
const USUAL: usize = 208;

#[derive(Debug, Clone)]
pub struct Packed {
    pub(super) shape: Arc<Shape>,
    /// The lengths of the first two parts' values, then those of all three.
    own: SmallVec<[u8; USUAL]>,
}

impl AsRef<Self> for Packed {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The own values of each part.
pub(super) fn split(own: &[u8]) -> Option<[&[u8]; PARTS]> {
    let (outer, rest) = varint(own)?;
    let (spec, rest) = varint(rest)?;
    let (outer, rest) = rest.split_at_checked(usize::try_from(outer).ok()?)?;
    let (spec, status) = rest.split_at_checked(usize::try_from(spec).ok()?)?;
    Some([outer, spec, status])
}

impl Packed {
    pub(super) fn new(shape: Arc<Shape>, own: [&[u8]; PARTS]) -> Self {
        let [outer, spec, status] = own;
        let mut bytes = SmallVec::with_capacity(4 + outer.len() + spec.len() + status.len());
        put_varint(outer.len() as u64, &mut bytes);
        put_varint(spec.len() as u64, &mut bytes);
        own.into_iter().for_each(|own| bytes.extend_from_slice(own));
        Self { shape, own: bytes }
    }

    /// Keeps a Pod that is not in an API server's form, undivided: it shares nothing. `json` is what it was decoded
    /// from.
    ///
    /// # Errors
    /// When a section is too large, or this is not its JSON.
    pub fn unshared(mut pod: Pod, json: &[u8], prune: &Prune) -> Result<Self, CodecError> {
        prune.cut(&mut pod.annotations);
        let bytes = SectionBytes::encode(&pod)?;
        let parts = whole::key(json, prune).and_then(|key| part::unshared(&pod, &bytes, &key));
        let parts = parts.ok_or_else(|| CodecError::Malformed("not the JSON of a Pod".to_owned()))?;
        let shape = Shape { parts: parts.map(Arc::new) };
        Ok(Self::new(Arc::new(shape), [&[]; PARTS]))
    }

    pub(super) fn part(&self, part: usize) -> &Arc<Part> {
        &self.shape.parts[part]
    }

    /// From what the next two give.
    pub(crate) fn from_parts(shape: Arc<Shape>, own: &[u8]) -> Self {
        Self { shape, own: SmallVec::from_slice(own) }
    }

    pub(crate) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    pub(crate) fn own_bytes(&self) -> &[u8] {
        &self.own
    }

    /// Each part's own values.
    fn all_own(&self) -> [&[u8]; PARTS] {
        split(&self.own).unwrap_or_default()
    }

    /// A part's own values.
    pub(super) fn own(&self, part: usize) -> &[u8] {
        self.all_own()[part]
    }

    /// A section in the encoding of `podium_wire`.
    #[must_use]
    pub fn section(&self, identity: Identity<'_>, section: Section) -> Cow<'_, [u8]> {
        let Some((part, place)) = place(section) else { return Cow::Owned(self.full(identity)) };
        match self.part(part).fixed(place) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => Cow::Owned(self.part(part).section(place, self.own(part), identity)),
        }
    }

    /// The whole object as text. What the decoder passes over need not be UTF-8; what is handed out is.
    fn full(&self, identity: Identity<'_>) -> Vec<u8> {
        // What was kept is what was read.
        let json = String::from_utf8(self.json(identity).unwrap_or_default());
        json.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()).into_bytes()
    }

    /// The sections whose bytes differ, the revision in the full object aside; both are states of the incarnation
    /// `name`, `uid`.
    #[must_use]
    pub fn changed_from(&self, old: &Self, name: &str, uid: &str) -> SectionSet {
        // Sections hold no revision of their own Pod.
        let identity = Identity { name, uid, revision: 0 };
        let mut changed = SectionSet::EMPTY;
        let (all_own, all_others) = (self.all_own(), old.all_own());
        for part in [OUTER, SPEC, STATUS] {
            let (here, own) = (self.part(part), all_own[part]);
            let (there, others) = (old.part(part), all_others[part]);
            let differing = match Arc::ptr_eq(here, there) {
                true if own == others => continue,
                true => here.differing(own, others),
                false => None,
            };
            if differing.is_some() || !here.is_same_json(own, (there, others), identity) {
                changed = changed.with(Section::Full);
            }
            for (section, place) in sections(part) {
                let differs = match differing {
                    Some(places) => places & 1 << place != 0,
                    None => !here.is_same(place, own, (there, others), identity),
                };
                if differs {
                    changed = changed.with(section);
                }
            }
        }
        changed
    }

    /// True where it can be told without making it that a section is the same as another Pod's.
    pub(crate) fn has_in_common(&self, other: &Self, section: Section) -> bool {
        place(section).is_some_and(|(part, place)| {
            let here = self.part(part);
            Arc::ptr_eq(here, other.part(part)) && here.is_alike(place, self.own(part), other.own(part))
        })
    }

    /// Milliseconds of the epoch.
    #[must_use]
    pub fn created(&self, identity: Identity<'_>) -> i64 {
        self.part(OUTER).created(self.own(OUTER), identity)
    }

    #[must_use]
    pub fn generation(&self) -> i64 {
        self.part(OUTER).generation()
    }

    /// None until scheduled.
    #[must_use]
    pub fn node<'a>(&'a self, identity: Identity<'a>) -> Option<Cow<'a, str>> {
        self.part(SPEC).node(self.own(SPEC), identity)
    }

    /// Empty where the server has none yet.
    #[must_use]
    pub fn phase<'a>(&'a self, identity: Identity<'a>) -> &'a str {
        self.part(STATUS).phase(self.own(STATUS), identity)
    }

    /// The whole object as the API server wrote it, without what is cut away. None where what is kept is not
    /// what was read.
    #[must_use]
    pub fn json(&self, identity: Identity<'_>) -> Option<Vec<u8>> {
        const HEAD: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","#;
        let parts = self.shape.parts.each_ref();
        let mut values = Vec::with_capacity(PARTS);
        for (at, part) in parts.into_iter().enumerate() {
            values.push(part.values(self.own(at), identity)?);
        }
        let rest = key::render(parts.map(|part| Tokens::from(&part.key)), |part, leaf, out| {
            values[part].get(leaf)?.write(out);
            Some(())
        })?;
        let members = rest.strip_prefix(b"{")?;
        Some([HEAD, members].concat())
    }
}
