//! An encoded Pod: its shape and its values.

use std::{borrow::Cow, sync::Arc};

use podium_vocabulary::Prune;
use podium_wire::{CodecError, Pod, Section, SectionBytes, SectionSet};
use smallvec::SmallVec;

use super::{
    PodIdentity, Read, ReadError, Shape,
    forms::{put_varint, varint},
    fragment::{Fragment, PerFragment},
    skeleton::{self, Skeleton, place, sections},
    template::Template,
    tokens::{self, Tokens},
    unshared::{self, Head, OwnText},
    whole,
};

/// Enough for the values of a Pod with up to three containers. A [`Packed`] lives for one event or one run, so unused
/// space costs less than an allocation.
pub(super) const USUAL: usize = 208;

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

impl PartialEq for Packed {
    /// Returns true for the same encoding; equal Pods may have several.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shape, &other.shape) && self.own == other.own
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

    fn has_values_of_its_shape(&self, identity: PodIdentity<'_>) -> bool {
        // Those of an unshared fragment belong to its text, and no other Pod gets them.
        let is_value = |fragment| {
            let skeleton = self.skeleton(fragment);
            skeleton.is_unshared || skeleton.has_values(self.own(fragment), identity)
        };
        Fragment::ALL.into_iter().all(is_value)
    }

    /// Reads the JSON of a Pod without sharing anything with other Pods, for a Pod that is not stored for long.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn unshared<'a>(json: &[u8], prune: &Prune) -> Result<Read<'a>, ReadError> {
        Read::whole(podium_wire::json::decode(json)?, json, prune)
    }

    /// Encodes a decoded Pod without sharing anything with other Pods.
    pub(super) fn whole(pod: &Pod, json: &[u8], prune: &Prune) -> Result<Self, CodecError> {
        let text = whole::text(json, prune).ok_or_else(not_the_json_of_a_pod)?;
        let own = Fragment::ALL.map(|fragment| {
            let text = if fragment == Fragment::Object { &*text } else { b"" };
            unshared::stored(Head::new(fragment, pod), text, &[], &[])
        });
        let shape = |sections: &dyn Fn(Fragment) -> Box<[Template]>| {
            let whole = |fragment| Arc::new(Skeleton::whole(&pod.header.namespace, sections(fragment)));
            Arc::new(Shape { skeletons: PerFragment(Fragment::ALL.map(whole)) })
        };
        let own = joined(PerFragment(own.each_ref().map(|own| &**own)));
        let packed = Self::from_parts(shape(&|_| Box::default()), own);
        let header = &pod.header;
        // The revision is the only value that is not in the text, and its section is none of the encoded ones.
        let identity = PodIdentity { name: &header.name, uid: &header.uid, revision: 0 };
        let decoded = packed.decode(Fragment::Object, identity).ok_or_else(not_the_json_of_a_pod)?;
        let encoded = SectionBytes::encode(&decoded)?;
        if text.len() <= unshared::LONGEST {
            return Ok(packed);
        }
        // To decode so much for each read of a section would take longer than a run may.
        let kept = |fragment| sections(fragment).map(|(section, _)| Template::fixed(encoded.get(section))).collect();
        Ok(Self { shape: shape(&kept), ..packed })
    }

    pub(super) fn skeleton(&self, fragment: Fragment) -> &Arc<Skeleton> {
        &self.shape.skeletons[fragment]
    }

    /// The inverse of [`Self::own_bytes`].
    #[expect(clippy::expect_used, reason = "the bytes are those of another Packed")]
    pub(super) fn from_parts(shape: Arc<Shape>, own: SmallVec<[u8; USUAL]>) -> Self {
        let starts = split(&own).expect("own_bytes of a Packed");
        Self { shape, own, starts }
    }

    pub(super) fn own_bytes(&self) -> &[u8] {
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
            None if self.is_decoded_when_read(fragment) => {
                Cow::Owned(self.decoded(fragment, identity).get(section).to_vec())
            }
            None => Cow::Owned(self.skeleton(fragment).section(place, self.own(fragment), identity)),
        }
    }

    /// Returns the wanted sections as [`Self::section`] does, and no bytes for the others. A fragment that has to be
    /// decoded for them is decoded once.
    #[must_use]
    pub fn sections(&self, identity: PodIdentity<'_>, wanted: SectionSet) -> SectionBytes<Cow<'_, [u8]>> {
        let mut decoded: PerFragment<Option<SectionBytes>> = PerFragment::default();
        SectionBytes::from_fn(|section| {
            if !wanted.contains(section) {
                return Cow::Borrowed(&[][..]);
            }
            let fragment = place(section).map(|(fragment, _)| fragment);
            let Some(fragment) = fragment.filter(|fragment| self.is_decoded_when_read(*fragment)) else {
                return self.section(identity, section);
            };
            let decoded = decoded[self.decoded_with(fragment)].get_or_insert_with(|| self.decoded(fragment, identity));
            Cow::Owned(decoded.get(section).to_vec())
        })
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
        let all_own = self.all_own();
        let all_others = old.all_own();
        for fragment in Fragment::ALL {
            let here = self.skeleton(fragment);
            let own = all_own[fragment];
            let there = old.skeleton(fragment);
            let others = all_others[fragment];
            if Arc::ptr_eq(here, there) && own == others {
                continue;
            }
            if here.is_unshared || there.is_unshared {
                changed = changed.union(self.changed_unshared(old, fragment, identity));
                continue;
            }
            let differing = match Arc::ptr_eq(here, there) {
                true => Some(here.differing(own, others)),
                false => None,
            };
            let mut is_same = differing.is_none_or(|places| places & skeleton::ANY == 0);
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

    /// Returns the sections of a fragment whose bytes differ, if the fragment is unshared in one of the states.
    fn changed_unshared(&self, old: &Self, fragment: Fragment, identity: PodIdentity<'_>) -> SectionSet {
        let mut changed = SectionSet::EMPTY;
        if self.json(identity) != old.json(identity) {
            changed = changed.with(Section::Full);
        }
        let decoded = |packed: &Self| packed.is_decoded_when_read(fragment).then(|| packed.decoded(fragment, identity));
        let here = decoded(self);
        let there = decoded(old);
        for (section, _) in sections(fragment) {
            let bytes = |packed: &Self, decoded: &Option<SectionBytes>| match decoded {
                Some(decoded) => decoded.get(section).to_vec(),
                None => packed.section(identity, section).into_owned(),
            };
            if bytes(self, &here) != bytes(old, &there) {
                changed = changed.with(section);
            }
        }
        changed
    }

    /// Returns true if a section is known to be the same as another Pod's without encoding either.
    pub fn has_in_common(&self, other: &Self, section: Section) -> bool {
        place(section).is_some_and(|(fragment, place)| {
            let here = self.skeleton(fragment);
            Arc::ptr_eq(here, other.skeleton(fragment))
                && !here.is_unshared
                && here.is_alike(place, self.own(fragment), other.own(fragment))
        })
    }

    /// Returns the creation time in milliseconds since 1970, and `metadata.generation`, 0 if it is absent.
    #[must_use]
    pub fn created_and_generation(&self, identity: PodIdentity<'_>) -> (i64, i64) {
        match self.head(Fragment::Object) {
            Some(Head::Object { created, generation }) => (created, generation),
            _ => self.skeleton(Fragment::Object).created_and_generation(self.own(Fragment::Object), identity),
        }
    }

    /// Returns the node's name, or `None` until the Pod is scheduled.
    #[must_use]
    pub fn node<'a>(&'a self, identity: PodIdentity<'a>) -> Option<Cow<'a, str>> {
        match self.head(Fragment::Spec) {
            Some(Head::Spec { node }) => node.map(Cow::Borrowed),
            _ => self.skeleton(Fragment::Spec).node(self.own(Fragment::Spec), identity),
        }
    }

    /// Returns the phase; empty if the API server has not set one yet.
    #[must_use]
    pub fn phase<'a>(&'a self, identity: PodIdentity<'a>) -> &'a str {
        match self.head(Fragment::Status) {
            Some(Head::Status { phase }) => phase,
            _ => self.skeleton(Fragment::Status).phase(self.own(Fragment::Status), identity),
        }
    }

    /// Returns the whole object as the API server wrote it, without pruned fields.
    #[expect(clippy::expect_used, reason = "skeletons are parsed when they are built, and each value belongs to one")]
    pub(super) fn json(&self, identity: PodIdentity<'_>) -> Vec<u8> {
        self.rendered(identity).expect("a shape with its values")
    }

    /// Like [`Self::json`]. Returns `None` if the skeletons do not form an object, as those of another process may.
    pub(super) fn rendered(&self, identity: PodIdentity<'_>) -> Option<Vec<u8>> {
        const HEAD: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","#;
        let own_texts = PerFragment::from_fn(|fragment| self.own_text(fragment));
        let values = PerFragment::try_from_fn(|fragment| match &own_texts[fragment] {
            Some(own) => tokens::resolve(&own.placeholders, own.values(), identity),
            None => Some(self.skeleton(fragment).values(self.own(fragment), identity)),
        })?;
        let texts = PerFragment::from_fn(|fragment| match &own_texts[fragment] {
            Some(own) => Tokens::from(&*own.text),
            None => Tokens::from(&self.skeleton(fragment).text),
        });
        let rest = tokens::render(texts, |fragment, placeholder, out| {
            values[fragment].get(placeholder)?.write(out);
            Some(())
        })?;
        Some([HEAD, rest.strip_prefix(b"{")?].concat())
    }

    /// Returns the text of a fragment, if it is unshared.
    pub(super) fn own_text(&self, fragment: Fragment) -> Option<OwnText> {
        self.own_text_in(fragment, Vec::new())
    }

    /// Returns the text of a fragment in this buffer, if it is unshared.
    #[expect(clippy::expect_used, reason = "stored bytes never change and do not leave the process")]
    pub(super) fn own_text_in(&self, fragment: Fragment, buffer: Vec<u8>) -> Option<OwnText> {
        let skeleton = self.skeleton(fragment);
        let text = || OwnText::open(fragment, self.own(fragment), skeleton.dictionary(), buffer);
        skeleton.is_unshared.then(|| text().expect("bytes that `unshared::stored` wrote"))
    }

    /// Returns the fields of an unshared fragment that are read without decoding.
    fn head(&self, fragment: Fragment) -> Option<Head<'_>> {
        self.skeleton(fragment).is_unshared.then(|| unshared::head(fragment, self.own(fragment)))?
    }

    /// Returns true for an unshared fragment without its sections.
    fn is_decoded_when_read(&self, fragment: Fragment) -> bool {
        self.skeleton(fragment).is_unshared && self.skeleton(fragment).fixed(0).is_none()
    }

    /// Returns the fragment whose text has this one: an object that is the whole JSON contains the others.
    fn decoded_with(&self, fragment: Fragment) -> Fragment {
        if self.shape.is_whole() { Fragment::Object } else { fragment }
    }

    /// Returns the sections that the decoder makes of an unshared fragment.
    #[expect(clippy::expect_used, reason = "it was decoded and encoded when it was stored")]
    fn decoded(&self, fragment: Fragment, identity: PodIdentity<'_>) -> SectionBytes {
        let decoded =
            self.decode(self.decoded_with(fragment), identity).and_then(|pod| SectionBytes::encode(&pod).ok());
        decoded.expect("a fragment of a Pod")
    }

    fn decode(&self, fragment: Fragment, identity: PodIdentity<'_>) -> Option<Pod> {
        let own = self.own_text(fragment)?;
        skeleton::decoded(fragment, &own.text, &tokens::resolve(&own.placeholders, own.values(), identity)?)
    }
}

fn not_the_json_of_a_pod() -> CodecError {
    CodecError::Malformed("not the JSON of a Pod".to_owned())
}
