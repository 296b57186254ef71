//! The one property of the encoding: reading a Pod's JSON returns the Pod, its sections and its changes, as the
//! decoder of `podium_wire` has them.

#![expect(clippy::panic, reason = "a difference is how a test fails")]

use std::collections::BTreeMap;

use podium_vocabulary::Revision;
use podium_wire::{Pod, Section, SectionBytes, SectionSet};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::{
    Packed, PodIdentity, PodJson, Pool, Read, ReadError, Scratch, Stored, Uid,
    placeholder::{Kind, PLACEHOLDER},
    whole,
};

const HEAD: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","#;
/// The number of states of a Pod, and of Pods, with which the next one is compared.
const KEPT: usize = 6;

/// A pool, and the Pods that were read with it. Each is compared with the decoder in every form that it can take.
#[derive(Debug)]
pub struct Checked {
    /// The pool.
    pub pool: Pool,
    pub(crate) scratch: Scratch,
    /// The latest states by namespace, name and uid.
    states: BTreeMap<[String; 3], Vec<Packed>>,
    /// The latest Pods: name, uid and encoding.
    latest: Vec<(String, String, Packed)>,
}

impl Checked {
    /// Returns a check of this pool.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self { pool, scratch: Scratch::default(), states: BTreeMap::new(), latest: Vec::new() }
    }

    /// Reads the JSON, as the next state of the last one with its names if `is_held`. Returns the Pod, or `None` if
    /// the decoder and the encoding refuse it.
    ///
    /// # Panics
    /// Panics if the encoding differs from the decoder.
    pub fn read(&mut self, json: &[u8], is_held: bool) -> Option<Packed> {
        let input = PodJson::new(json);
        let names = input.names.filter(|_| is_held);
        let names = names.map(|names| [names.namespace, names.name, names.uid].map(str::to_owned));
        let held = names.and_then(|names| self.states.get(&names)?.last().cloned());
        let read = self.pool.read(&input, held.as_ref(), &mut self.scratch);
        let (read, mut decoded) = match (read, podium_wire::json::decode(json)) {
            (Ok(read), Ok(decoded)) => (read, decoded),
            // Pruned fields are not checked: the rest is a Pod.
            (Ok(read), Err(error)) => {
                let is_json = serde_json::from_slice::<IgnoredAny>(json).is_ok();
                assert!(!is_json, "kept, and the decoder says: {error}");
                let decoded = podium_wire::json::decode(&read.packed.json(identity(&read))).unwrap();
                (read, decoded)
            }
            (Err(_), Err(_)) => return None,
            (Err(ReadError::Json(error)), Ok(_)) => panic!("the decoder reads what the encoding refuses: {error}"),
            (Err(_), Ok(decoded)) => {
                let is_storable = Revision::parse(&decoded.header.resource_version).is_ok();
                assert!(!is_storable || SectionBytes::encode(&decoded).is_err(), "refused");
                return None;
            }
        };
        decoded.annotations.retain(|key, _| !self.pool.prune.cuts_annotation(key));
        same_as_decoded(&read, &decoded);
        let object = read.packed.section(identity(&read), Section::Full).into_owned();
        self.same_object(json, &object, &read);
        let namespace = read.namespace.to_string();
        let name = read.name.to_string();
        let uid = read.uid.to_string();
        let packed = read.packed.clone();
        // Without the previous state, pruned fields are checked too.
        let is_valid = podium_wire::json::decode(json).is_ok();
        self.same_in_other_forms(if is_valid { json } else { &object }, &object, &read);
        let states = self.states.entry([namespace, name.clone(), uid.clone()]).or_default();
        states.push(packed.clone());
        states.drain(..states.len().saturating_sub(KEPT));
        for other in &*states {
            for (one, other) in [(&packed, other), (other, &packed)] {
                let differ = differing(one, other, &name, &uid);
                assert_eq!(changed(one, other, &name, &uid), differ, "the sections that changed");
            }
        }
        self.latest.push((name, uid, packed.clone()));
        self.latest.drain(..self.latest.len().saturating_sub(KEPT));
        self.have_in_common_what_is_the_same();
        Some(packed)
    }

    /// Compares the object that comes back with the one that was read: byte for byte, except its pruned fields.
    fn same_object(&self, json: &[u8], object: &[u8], read: &Read<'_>) {
        assert!(str::from_utf8(object).is_ok());
        let Ok(text) = str::from_utf8(json) else { return };
        // Both ways to write a character are valid, and a member's name is written again for this comparison.
        if read.packed.shape.is_whole() || [r"\u", r"\/"].iter().any(|escape| text.contains(escape)) {
            let without = |json: &[u8]| {
                let mut object: Value = serde_json::from_slice(json).ok()?;
                let members = object.as_object_mut()?;
                members.retain(|member, _| !["kind", "apiVersion"].contains(&&**member));
                let metadata = members.get_mut("metadata")?.as_object_mut()?;
                metadata.remove("managedFields");
                if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                    annotations.retain(|key, _| !self.pool.prune.cuts_annotation(key));
                }
                Some(object)
            };
            // A number that is too large for one decoder is none for the other.
            if let Some(expected) = without(json) {
                assert_eq!(without(object), Some(expected));
            }
        } else if let Some(expected) = whole::text(json, &self.pool.prune) {
            let revision = read.revision.to_string();
            let mark = [PLACEHOLDER, Kind::Revision as u8];
            let at = expected.windows(2).position(|bytes| bytes == mark).unwrap();
            let expected = [HEAD, &expected[1..at], revision.as_bytes(), &expected[at + 2..]].concat();
            assert_eq!(String::from_utf8_lossy(object), String::from_utf8_lossy(&expected));
        }
    }

    /// Reads the Pod again, as an item of a list, unshared, and from its stored form.
    fn same_in_other_forms(&mut self, json: &[u8], object: &[u8], read: &Read<'_>) {
        let identity = identity(read);
        let packed = &read.packed;
        let is_same = |other: &Packed, form: &str| {
            assert!(differing(other, packed, &read.name, &read.uid).is_empty(), "{form}");
            for (one, other) in [(other, packed), (packed, other)] {
                assert!(changed(one, other, &read.name, &read.uid).is_empty(), "{form} is a change");
            }
        };
        let again = |json: &[u8], held: Option<&Packed>, scratch: &mut Scratch| {
            self.pool.read(&PodJson::new(json), held, scratch).unwrap().packed
        };
        is_same(&again(json, Some(packed), &mut self.scratch), "the same again");
        is_same(&again(json, None, &mut Scratch::default()), "a first state");
        if let Some(members) = json.strip_prefix(HEAD) {
            is_same(&again(&[b"{", members].concat(), Some(packed), &mut self.scratch), "an item of a list");
        }
        is_same(&Packed::unshared(object, &self.pool.prune).unwrap().packed, "unshared");
        let mut bytes = Vec::new();
        let shared = packed.store(identity, &mut bytes);
        let stored = Stored::open(shared, &bytes);
        assert_eq!((stored.name.concat(), stored.uid), (read.name.to_string(), Uid::parse(&read.uid)));
        assert_eq!(
            (stored.namespace, stored.revision, stored.packed()),
            (&read.namespace, read.revision, packed.clone())
        );
        if let Some(renewed) = self.pool.renewed(&stored, &mut self.scratch) {
            is_same(&renewed, "renewed");
        }
    }

    fn have_in_common_what_is_the_same(&self) {
        let Some(((name, uid, packed), others)) = self.latest.split_last() else { return };
        let bytes = |(name, uid, packed): (&str, &str, &Packed), section| {
            packed.section(PodIdentity { name, uid, revision: 0 }, section).into_owned()
        };
        for (other_name, other_uid, other) in others {
            for section in Section::ALL.into_iter().filter(|section| packed.has_in_common(other, *section)) {
                assert_eq!(bytes((name, uid, packed), section), bytes((other_name, other_uid, other), section));
            }
        }
    }
}

fn identity<'a>(read: &'a Read<'_>) -> PodIdentity<'a> {
    PodIdentity { name: &read.name, uid: &read.uid, revision: read.revision.0 }
}

/// Compares a Pod that was read with the decoder's output.
pub(crate) fn same_as_decoded(read: &Read<'_>, decoded: &Pod) {
    let identity = identity(read);
    let expected = SectionBytes::encode(decoded).unwrap();
    let all = read.packed.sections(identity, SectionSet::ALL);
    for section in Section::ALL.into_iter().filter(|section| *section != Section::Full) {
        assert_eq!(&*read.packed.section(identity, section), expected.get(section), "{}", section.name());
        assert_eq!(all.get(section), expected.get(section), "{} of all", section.name());
    }
    let one = read.packed.sections(identity, SectionSet::EMPTY.with(Section::Spec));
    assert_eq!((one.get(Section::Spec), one.get(Section::Labels)), (expected.get(Section::Spec), &[][..]));
    let header = &decoded.header;
    assert_eq!((&*read.namespace, &*read.name, &*read.uid), (&*header.namespace, &*header.name, &*header.uid));
    assert_eq!(read.revision.to_string(), header.resource_version);
    assert_eq!(read.packed.created_and_generation(identity), (header.created.0, header.generation));
    assert_eq!(read.packed.node(identity).as_deref(), decoded.spec.node_name.as_deref());
    assert_eq!(read.packed.phase(identity), decoded.status.phase);
}

/// Returns the sections whose bytes differ between two states of one Pod.
fn differing(one: &Packed, other: &Packed, name: &str, uid: &str) -> SectionSet {
    let identity = PodIdentity { name, uid, revision: 0 };
    Section::ALL.into_iter().filter(|at| one.section(identity, *at) != other.section(identity, *at)).collect()
}

/// Returns the sections that the encoding reports as changed. For JSON that is not in the form of an API server, the
/// full object may count as changed when its text has the same meaning.
fn changed(one: &Packed, other: &Packed, name: &str, uid: &str) -> SectionSet {
    let changed = one.changed_from(other, name, uid);
    let is_exact = ![one, other].iter().any(|packed| packed.shape.skeletons.iter().any(|(_, part)| part.is_unshared));
    let differ = differing(one, other, name, uid);
    let may_differ = |section: &Section| is_exact || *section != Section::Full || differ.contains(Section::Full);
    Section::ALL.into_iter().filter(|section| changed.contains(*section)).filter(may_differ).collect()
}
