//! JSON of Pods, one per line. Each is read with the previous ones as the cached and known Pods: the stored sections
//! are byte-identical to the plain decoder's output, and the full object is restored.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is a finding")]

use std::{collections::BTreeMap, sync::Arc};

use podium_encoding::{Pool, Scratch, testing::Checked};
use podium_pods::pod::{CachedPod, PodError};
use podium_wire::{Section, SectionBytes, SectionSet};
use serde::de::IgnoredAny;
use serde_json::Value;

/// A Pod decoded by another decoder.
pub(super) struct Plain {
    pub(super) pod: CachedPod,
    sections: SectionBytes,
    /// `None` if it contains a value that serde_json cannot represent, such as a number that is too large.
    object: Option<Value>,
}

/// # Errors
/// Returns an error if it is not a Pod that can be stored.
pub(super) fn plain(json: &[u8]) -> Result<Plain, PodError> {
    let decoded = podium_wire::json::decode(json)?;
    let (pod, sections) = (CachedPod::new(&decoded)?, SectionBytes::encode(&decoded)?);
    Ok(Plain { pod, sections, object: serde_json::from_slice(json).ok().map(without_what_is_left_out) })
}

/// Decoders of the host may skip pruned fields without validating them, so bytes that are not JSON may be a Pod to one
/// decoder and invalid to another.
pub(super) fn is_json(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

fn without_what_is_left_out(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.remove("kind");
        members.remove("apiVersion");
        if let Some(metadata) = members.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
    }
    object
}

/// Panics if a Pod that was read differs from that of the plain decoder.
pub(super) fn assert_same(read: &CachedPod, plain: &Plain) {
    let expected = &plain.pod;
    for section in decoded() {
        let bytes = plain.sections.get(section);
        assert_eq!(*read.section_bytes(section), *bytes, "{}", section.name());
        assert_eq!(*expected.section_bytes(section), *bytes, "{} of the unshared Pod", section.name());
    }
    assert_eq!(read.header(), expected.header());
    assert_eq!(read.node(), expected.node());
    assert_eq!(read.owner_uids(), expected.owner_uids());
    for changed in [read.changed_from(expected), expected.changed_from(read)] {
        assert_eq!(of_decoded(changed), SectionSet::EMPTY, "the same sections, and a change");
    }
    if let Some(object) = &plain.object {
        let back: Value = serde_json::from_slice(&whole(read)).unwrap();
        assert_eq!(without_what_is_left_out(back), *object, "the object that comes back");
    }
}

/// Returns the restored object.
fn whole(pod: &CachedPod) -> Vec<u8> {
    pod.section_bytes(Section::Full).into_owned()
}

/// Returns all sections except the full object, which is compared as text.
fn decoded() -> impl Iterator<Item = Section> {
    Section::ALL.into_iter().filter(|section| *section != Section::Full)
}

pub(super) fn of_decoded(sections: SectionSet) -> SectionSet {
    decoded().filter(|section| sections.contains(*section)).collect()
}

/// Returns the sections whose bytes differ.
fn differing(new: &CachedPod, old: &CachedPod) -> SectionSet {
    decoded().filter(|section| new.section_bytes(*section) != old.section_bytes(*section)).collect()
}

pub fn run(input: &[u8]) {
    let (pool, mut scratch) = (Pool::new(7), Scratch::default());
    let mut held: BTreeMap<(String, String), Arc<CachedPod>> = BTreeMap::new();
    let mut checked = Checked::new(Pool::new(7));
    for json in input.split(|byte| *byte == b'\n') {
        checked.read(json, true);
        let mut read = |held: &BTreeMap<(String, String), Arc<CachedPod>>| {
            let of = |namespace: &str, name: &str| held.get(&(namespace.to_owned(), name.to_owned())).cloned();
            CachedPod::read(json, &pool, &mut scratch, of)
        };
        let (pod, before) = match (read(&held), plain(json)) {
            (Ok((pod, before)), Ok(plain)) => {
                assert_same(&pod, &plain);
                (pod, before)
            }
            (Ok((pod, before)), Err(error)) => {
                assert!(!is_json(json), "kept, and the decoder says: {error}");
                assert_same(&pod, &plain(&whole(&pod)).unwrap());
                (pod, before)
            }
            (Err(error), Ok(_)) => panic!("the decoder reads a Pod that the encoder refuses: {error}"),
            (Err(_), Err(_)) => continue,
        };
        let name = (pod.key.namespace.to_string(), pod.key.name.to_string());
        let kept = held.get(&name).filter(|kept| kept.key.uid == pod.key.uid);
        assert_eq!(before.as_ref().map(Arc::as_ptr), kept.map(Arc::as_ptr), "not the held state of this incarnation");
        if let Some(before) = before {
            assert_eq!(of_decoded(pod.changed_from(&before)), differing(&pod, &before), "the sections that changed");
        }
        let pod = Arc::new(pod);
        held.insert(name, Arc::clone(&pod));
        let (again, before) = read(&held).unwrap();
        assert!(before.is_some_and(|before| Arc::ptr_eq(&before, &pod)), "it is held");
        let [reported, is] = [again.changed_from(&pod), differing(&again, &pod)].map(|sections| sections.is_empty());
        assert!(reported && is, "read twice, and a change: {again:?} {pod:?}");
        let [again, once] = [&again, &*pod].map(|pod| String::from_utf8_lossy(&whole(pod)).into_owned());
        assert_eq!(again, once, "read twice");
    }
}
