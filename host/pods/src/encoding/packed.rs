//! An encoded Pod: its shape and its values.

use std::{borrow::Cow, sync::Arc};

use podium_wire::{CodecError, Pod, Section, SectionBytes, SectionSet};
use smallvec::SmallVec;

use super::{
    PodIdentity, Prune, Shape,
    forms::{put_varint, varint},
    fragment::{Fragment, PerFragment},
    skeleton::{self, Skeleton, place, sections},
    tokens::{self, Tokens},
    unshared,
};

/// Enough for the values of a Pod with up to three containers. A [`Packed`] lives for one event or one run, so unused
/// space costs less than an allocation.
const USUAL: usize = 208;

/// An encoded Pod: a reference to its shape, and its values. Its identity is stored beside it.
///
/// The values are those of the shape's placeholders: this is checked where a `Packed` is made of new values or of bytes
/// of another process. Reads rely on it and cannot fail.
#[derive(Debug, Clone)]
pub struct Packed {
    pub(super) shape: Arc<Shape>,
    /// The lengths of the first two fragments' values, then the values of all three.
    own: SmallVec<[u8; USUAL]>,
    starts: Offsets,
}

/// The offsets at which the values of each fragment begin.
type Offsets = PerFragment<u32>;

impl AsRef<Self> for Packed {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// Returns where the values of each fragment begin, or `None` if the bytes are malformed.
fn split(own: &[u8]) -> Option<Offsets> {
    let (object, rest) = varint(own)?;
    let (spec, rest) = varint(rest)?;
    let start = own.len() - rest.len();
    let start_of_spec = start.checked_add(usize::try_from(object).ok()?)?;
    let start_of_status = start_of_spec.checked_add(usize::try_from(spec).ok()?)?;
    if start_of_status > own.len() {
        return None;
    }
    let starts = [start, start_of_spec, start_of_status].map(u32::try_from);
    let [Ok(object), Ok(spec), Ok(status)] = starts else { return None };
    Some(PerFragment([object, spec, status]))
}

/// Returns the values of each fragment, or `None` if the bytes are malformed.
pub(super) fn own_of(own: &[u8]) -> Option<PerFragment<&[u8]>> {
    let PerFragment([object, spec, status]) = split(own)?;
    let (object, spec, status) = (object as usize, spec as usize, status as usize);
    Some(PerFragment([&own[object..spec], &own[spec..status], &own[status..]]))
}

/// Returns the stored form of the values of the fragments.
pub(super) fn joined(own: PerFragment<&[u8]>) -> SmallVec<[u8; USUAL]> {
    let PerFragment([outer, spec, status]) = own;
    let mut bytes = SmallVec::with_capacity(4 + outer.len() + spec.len() + status.len());
    put_varint(outer.len() as u64, &mut bytes);
    put_varint(spec.len() as u64, &mut bytes);
    own.0.into_iter().for_each(|own| bytes.extend_from_slice(own));
    bytes
}

impl Packed {
    /// Returns `None` if these are not values of the shape.
    pub(super) fn new(shape: Arc<Shape>, own: PerFragment<&[u8]>, identity: PodIdentity<'_>) -> Option<Self> {
        let own = joined(own);
        let packed = Self { starts: split(&own)?, shape, own };
        packed.has_values_of_its_shape(identity).then_some(packed)
    }

    /// Opens values that come from another process. Returns `None` if they are not valid values of the shape.
    pub(crate) fn open(shape: Arc<Shape>, own: &[u8], identity: PodIdentity<'_>) -> Option<Self> {
        let packed = Self { starts: split(own)?, shape, own: SmallVec::from_slice(own) };
        let is_valid = |fragment| {
            let values = packed.skeleton(fragment).resolve(packed.own(fragment), identity);
            values.is_some_and(|values| values.iter().all(|value| value.is_valid()))
        };
        Fragment::ALL.into_iter().all(is_valid).then_some(packed)
    }

    fn has_values_of_its_shape(&self, identity: PodIdentity<'_>) -> bool {
        Fragment::ALL.into_iter().all(|fragment| self.skeleton(fragment).has_values(self.own(fragment), identity))
    }

    /// Encodes a Pod without sharing anything with other Pods. `json` is the JSON that it was decoded from.
    ///
    /// # Errors
    /// Returns an error if a section is too large, or if `json` is not an object.
    pub fn unshared(mut pod: Pod, json: &[u8], prune: &Prune) -> Result<Self, CodecError> {
        prune.cut(&mut pod.annotations);
        let bytes = SectionBytes::encode(&pod)?;
        let skeletons = unshared::key(json, prune).and_then(|key| skeleton::unshared(&pod, &bytes, &key));
        let skeletons = skeletons.ok_or_else(|| CodecError::Malformed("not the JSON of a Pod".to_owned()))?;
        let shape = Shape { skeletons: PerFragment(skeletons.map(Arc::new)) };
        // It has no placeholder except those of the revision, which are not stored.
        let packed = Self::from_record(Arc::new(shape), &joined(PerFragment::default()));
        Ok(packed)
    }

    pub(super) fn skeleton(&self, fragment: Fragment) -> &Arc<Skeleton> {
        &self.shape.skeletons[fragment]
    }

    /// The inverse of [`Self::shape`] and [`Self::own_bytes`].
    #[expect(clippy::expect_used, reason = "the bytes are those of another Packed")]
    pub(crate) fn from_record(shape: Arc<Shape>, own: &[u8]) -> Self {
        let starts = split(own).expect("own_bytes of a Packed");
        Self { shape, own: SmallVec::from_slice(own), starts }
    }

    pub(crate) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    pub(crate) fn own_bytes(&self) -> &[u8] {
        &self.own
    }

    /// Returns the values of each fragment.
    fn all_own(&self) -> PerFragment<&[u8]> {
        PerFragment::from_fn(|fragment| self.own(fragment))
    }

    /// Returns the values of one fragment.
    pub(super) fn own(&self, fragment: Fragment) -> &[u8] {
        let start = self.starts[fragment] as usize;
        let end = match fragment {
            Fragment::Object => self.starts[Fragment::Spec] as usize,
            Fragment::Spec => self.starts[Fragment::Status] as usize,
            Fragment::Status => self.own.len(),
        };
        &self.own[start..end]
    }

    /// Returns a section in the encoding of `podium_wire`, or the JSON for the full object.
    #[must_use]
    pub fn section(&self, identity: PodIdentity<'_>, section: Section) -> Cow<'_, [u8]> {
        let Some((fragment, place)) = place(section) else { return Cow::Owned(self.full(identity)) };
        match self.skeleton(fragment).fixed(place) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => Cow::Owned(self.skeleton(fragment).section(place, self.own(fragment), identity)),
        }
    }

    /// Returns the whole object. The decoder does not validate the UTF-8 of strings that it ignores, so this replaces
    /// malformed sequences.
    fn full(&self, identity: PodIdentity<'_>) -> Vec<u8> {
        let json = String::from_utf8(self.json(identity));
        json.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()).into_bytes()
    }

    /// Returns the sections whose bytes differ from another state of the incarnation `name`, `uid`. The revision is
    /// not compared.
    #[must_use]
    pub fn changed_from(&self, old: &Self, name: &str, uid: &str) -> SectionSet {
        // No section contains the Pod's own revision.
        let identity = PodIdentity { name, uid, revision: 0 };
        let mut changed = SectionSet::EMPTY;
        let (all_own, all_others) = (self.all_own(), old.all_own());
        for fragment in Fragment::ALL {
            let (here, own) = (self.skeleton(fragment), all_own[fragment]);
            let (there, others) = (old.skeleton(fragment), all_others[fragment]);
            let differing = match Arc::ptr_eq(here, there) {
                true if own == others => continue,
                true => Some(here.differing(own, others)),
                false => None,
            };
            let mut is_same = differing.is_none();
            for (section, place) in sections(fragment) {
                let differs = match differing {
                    Some(places) => places & 1 << place != 0,
                    None => !here.is_same(place, own, (there, others), identity),
                };
                if differs {
                    changed = changed.with(section);
                    is_same = false;
                }
            }
            // Different sections come from different JSON, which is not rendered then.
            if !is_same || !here.is_same_json(own, (there, others), identity) {
                changed = changed.with(Section::Full);
            }
        }
        changed
    }

    /// Returns true if a section is known to be the same as another Pod's without encoding either.
    pub(crate) fn has_in_common(&self, other: &Self, section: Section) -> bool {
        place(section).is_some_and(|(fragment, place)| {
            let here = self.skeleton(fragment);
            Arc::ptr_eq(here, other.skeleton(fragment)) && here.is_alike(place, self.own(fragment), other.own(fragment))
        })
    }

    /// Returns the creation time in milliseconds since 1970.
    #[must_use]
    pub fn created(&self, identity: PodIdentity<'_>) -> i64 {
        self.skeleton(Fragment::Object).created(self.own(Fragment::Object), identity)
    }

    /// Returns `metadata.generation`, 0 if it is absent.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.skeleton(Fragment::Object).generation()
    }

    /// Returns the node's name, or `None` until the Pod is scheduled.
    #[must_use]
    pub fn node<'a>(&'a self, identity: PodIdentity<'a>) -> Option<Cow<'a, str>> {
        self.skeleton(Fragment::Spec).node(self.own(Fragment::Spec), identity)
    }

    /// Returns the phase; empty if the API server has not set one yet.
    #[must_use]
    pub fn phase<'a>(&'a self, identity: PodIdentity<'a>) -> &'a str {
        self.skeleton(Fragment::Status).phase(self.own(Fragment::Status), identity)
    }

    /// Returns the whole object as the API server wrote it, without pruned fields.
    #[must_use]
    #[expect(clippy::expect_used, reason = "skeletons are parsed when they are built, and each value belongs to one")]
    pub fn json(&self, identity: PodIdentity<'_>) -> Vec<u8> {
        self.rendered(identity).expect("a shape with its values")
    }

    /// Like [`Self::json`]. Returns `None` if the skeletons do not form an object, as those of another process may.
    pub(super) fn rendered(&self, identity: PodIdentity<'_>) -> Option<Vec<u8>> {
        const HEAD: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","#;
        let values = PerFragment::from_fn(|fragment| self.skeleton(fragment).values(self.own(fragment), identity));
        let texts = PerFragment::from_fn(|fragment| Tokens::from(&self.skeleton(fragment).text));
        let rest = tokens::render(texts, |fragment, placeholder, out| {
            values[fragment].get(placeholder)?.write(out);
            Some(())
        })?;
        Some([HEAD, rest.strip_prefix(b"{")?].concat())
    }
}
