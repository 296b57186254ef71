//! Shapes that leave the process and return, as the texts of their skeletons, which are verified again with the first
//! Pod that has them.

use std::{hash::BuildHasher, sync::Arc};

use podium_wire::{Section, SectionBytes};

use super::{
    Packed, PodIdentity, Shape, SkeletonPool,
    chunks::ChunkedBytes,
    fragment::{FRAGMENTS, Fragment, PerFragment},
    packed::own_of,
    skeleton,
};

impl Shape {
    /// Returns the texts of the skeletons, each with an address that identifies it while this shape lives, or `None`
    /// if a fragment is unshared.
    pub fn keys(&self) -> Option<[(usize, &ChunkedBytes); FRAGMENTS]> {
        if self.skeletons.0.iter().any(|skeleton| skeleton.is_unshared) {
            return None;
        }
        Some(self.skeletons.0.each_ref().map(|skeleton| (Arc::as_ptr(skeleton).addr(), &skeleton.text)))
    }
}

/// Returns true if the decoder produces these sections from this Pod. Each fragment was verified separately, but not
/// its position.
fn is_as_decoded(packed: &Packed, identity: PodIdentity<'_>) -> Option<bool> {
    let decoded = podium_wire::json::decode(&packed.rendered(identity)?).ok()?;
    let (header, namespace) = (&decoded.header, packed.shape().namespace());
    let is_named = (&*header.namespace, &*header.name, &*header.uid) == (namespace, identity.name, identity.uid);
    let expected = SectionBytes::encode(&decoded).ok()?;
    let is_same = |section| section == Section::Full || *packed.section(identity, section) == *expected.get(section);
    Some(is_named && Section::ALL.into_iter().all(is_same))
}

impl SkeletonPool {
    /// Returns the Pod that has skeletons of these texts and these values, or `None` if they do not form a Pod.
    pub fn restore(&self, keys: [&[u8]; FRAGMENTS], own_bytes: &[u8], identity: PodIdentity<'_>) -> Option<Packed> {
        let own = own_of(own_bytes)?;
        let skeletons = PerFragment::try_from_fn(|fragment| {
            let text = keys[fragment as usize];
            let hash = self.hasher.hash_one(text);
            let known = self.table.lock().known(fragment, hash, text);
            known.or_else(|| {
                let built = skeleton::build(fragment, text, own[fragment], identity)?;
                Some(self.table.lock().add(fragment, hash, built, text))
            })
        })?;
        let namespace = self.hasher.hash_one(&*skeletons[Fragment::Object].namespace);
        skeletons.iter().for_each(|(_, skeleton)| skeleton.learned_in(namespace));
        let shape = self.table.lock().shape(skeletons);
        let packed = Packed::open(shape, own_bytes, identity)?;
        is_as_decoded(&packed, identity)?.then_some(packed)
    }
}
