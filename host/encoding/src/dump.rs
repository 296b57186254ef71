//! Pods as a sequence of entries that can leave the process and be read again. Text that Pods share is an entry of its
//! own, so a dump is as large as the Pods are in the cache.
//!
//! Entries that are read are untrusted until they are verified: a skeleton is built by the decoder from a Pod that has
//! it, as for a Pod that the API server sends, and verified again with the first Pod of the dump that has it.

use std::{borrow::Cow, collections::BTreeMap, hash::BuildHasher, sync::Arc};

use podium_vocabulary::Revision;
use podium_wire::{Section, SectionBytes};

use super::{
    FRAGMENTS, Packed, PodIdentity, Pool, Read, Scratch, Shared,
    fragment::{Fragment, PerFragment},
    packed::own_of,
    pool::Shape,
    read::PodJson,
    skeleton,
};

/// One entry. Texts, and groups of them, are numbered in their order, each from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A text that Pods share: the JSON of a part of them, with placeholders for the values of each.
    Text(Vec<u8>),
    /// The numbers of the texts of a Pod's three parts.
    Group([u32; FRAGMENTS]),
    /// A Pod with the texts of a group.
    Pod {
        /// The number of its group.
        group: u32,
        /// Its name; the namespace is in a text.
        name: String,
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        revision: u64,
        /// Its values.
        own: Vec<u8>,
    },
    /// The JSON of a Pod that does not share all of its parts.
    Whole(Vec<u8>),
}

/// The texts and groups of a dump so far. All Pods of a dump must live until it is complete, as they do in a snapshot:
/// texts are identified by their addresses.
#[derive(Debug, Default)]
pub struct Dump {
    skeletons: BTreeMap<usize, u32>,
    shapes: BTreeMap<usize, u32>,
}

impl Dump {
    /// Returns the entries of a Pod: what no earlier Pod had of what it shares, and the Pod.
    pub fn entries(&mut self, packed: &Packed, identity: PodIdentity<'_>) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(1);
        let entry = match self.group(&packed.shape, &mut entries) {
            None => Entry::Whole(packed.section(identity, Section::Full).into_owned()),
            Some(group) => Entry::Pod {
                group,
                name: identity.name.to_owned(),
                uid: identity.uid.to_owned(),
                revision: identity.revision,
                own: packed.own_bytes().to_vec(),
            },
        };
        entries.push(entry);
        entries
    }

    /// Returns the number of a shape, or `None` if one of its skeletons is unshared.
    fn group(&mut self, shape: &Arc<Shape>, entries: &mut Vec<Entry>) -> Option<u32> {
        let address = Arc::as_ptr(shape).addr();
        if let Some(known) = self.shapes.get(&address) {
            return Some(*known);
        }
        if shape.skeletons.0.iter().any(|skeleton| skeleton.is_unshared) {
            return None;
        }
        let texts = shape.skeletons.0.each_ref().map(|skeleton| {
            let address = Arc::as_ptr(skeleton).addr();
            match self.skeletons.get(&address) {
                Some(known) => *known,
                None => {
                    entries.push(Entry::Text(skeleton.text.to_vec()));
                    next_number(&mut self.skeletons, address)
                }
            }
        });
        entries.push(Entry::Group(texts));
        Some(next_number(&mut self.shapes, address))
    }
}

fn next_number(numbers: &mut BTreeMap<usize, u32>, address: usize) -> u32 {
    // A process cannot have this many.
    let number = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    numbers.insert(address, number);
    number
}

/// The texts and groups of a dump that is read.
#[derive(Debug, Default)]
pub struct Restored {
    texts: Vec<Vec<u8>>,
    /// The texts of each group, and what its Pods share once one of them has verified it.
    groups: Vec<([usize; FRAGMENTS], Option<Shared>)>,
    scratch: Scratch,
}

impl Pool {
    /// Reads the next entry of a dump. Returns `None` if it does not fit the entries before it, and a Pod if the entry
    /// is one.
    pub fn restore(&self, restored: &mut Restored, entry: Entry) -> Option<Option<Read<'static>>> {
        match entry {
            Entry::Text(text) => restored.texts.push(text),
            Entry::Group(texts) => {
                let texts = texts.map(|number| number as usize);
                texts
                    .iter()
                    .all(|number| *number < restored.texts.len())
                    .then(|| restored.groups.push((texts, None)))?;
            }
            Entry::Pod { group, name, uid, revision, own } => {
                let identity = PodIdentity { name: &name, uid: &uid, revision };
                let (texts, shared) = restored.groups.get_mut(group as usize)?;
                let packed = match shared {
                    Some(shared) => Packed::open(Arc::clone(shared), &own, identity)?,
                    None => self.verified(texts.map(|number| &*restored.texts[number]), &own, identity)?,
                };
                let shared = Arc::clone(shared.insert(Arc::clone(&packed.shape)));
                let namespace = Arc::clone(shared.namespace());
                let revision = Revision(revision);
                return Some(Some(Read { namespace, name: name.into(), uid: uid.into(), revision, packed }));
            }
            Entry::Whole(json) => {
                let Read { namespace, name, uid, revision, packed } =
                    self.read(&PodJson::new(&json), None, &mut restored.scratch).ok()?;
                let [name, uid] = [name, uid].map(|text| Cow::Owned(text.into_owned()));
                return Some(Some(Read { namespace, name, uid, revision, packed }));
            }
        }
        Some(None)
    }

    /// Returns the Pod that has skeletons of these texts and these values, or `None` if they do not form a Pod.
    pub(super) fn verified(
        &self,
        texts: [&[u8]; FRAGMENTS],
        own_bytes: &[u8],
        identity: PodIdentity<'_>,
    ) -> Option<Packed> {
        let own = own_of(own_bytes)?;
        let skeletons = PerFragment::try_from_fn(|fragment| {
            let text = texts[fragment as usize];
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

/// Returns true if the decoder produces these sections from this Pod. Each fragment was verified separately, but not
/// its position.
fn is_as_decoded(packed: &Packed, identity: PodIdentity<'_>) -> Option<bool> {
    let decoded = podium_wire::json::decode(&packed.rendered(identity)?).ok()?;
    let header = &decoded.header;
    let namespace = packed.shape.namespace();
    let is_named = (&*header.namespace, &*header.name, &*header.uid) == (namespace, identity.name, identity.uid);
    let expected = SectionBytes::encode(&decoded).ok()?;
    let is_same = |section| section == Section::Full || *packed.section(identity, section) == *expected.get(section);
    Some(is_named && Section::ALL.into_iter().all(is_same))
}
