//! Pods as a sequence of entries that can leave the process and be read again, as in a checkpoint. Skeletons and shapes
//! are one entry each, so a dump is as large as the Pods are in the cache.
//!
//! Entries that are read are untrusted until they are verified: a skeleton is built by the decoder from a Pod that has
//! it, as for a Pod that the API server sends. How entries are written to a file is not decided here.

use std::{collections::BTreeMap, sync::Arc};

use podium_wire::Section;

use crate::{
    encoding::{FRAGMENTS, Packed, PodIdentity, Scratch, Shape, SkeletonPool},
    pod::{CachedPod, Record, RecordArena},
};
use podium_vocabulary::{PodKey, Revision};

/// One entry. Skeletons and shapes are numbered in their order, each from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A skeleton: the JSON of a fragment, with placeholders for the values of each Pod.
    Skeleton(Vec<u8>),
    /// The numbers of the skeletons of the three fragments.
    Shape([u32; FRAGMENTS]),
    /// A Pod with the skeletons of a shape.
    Pod {
        /// The number of its shape.
        shape: u32,
        /// Its name; the namespace is in the skeleton of the object.
        name: String,
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        revision: u64,
        /// Its values of the three fragments.
        own: Vec<u8>,
    },
    /// The JSON of a Pod with an unshared fragment.
    Unshared(Vec<u8>),
}

/// Encodes Pods as entries. All Pods of a dump must live until it is complete, as they do in a snapshot: skeletons are
/// identified by their addresses.
#[derive(Debug, Default)]
pub struct Encoder {
    skeletons: BTreeMap<usize, u32>,
    shapes: BTreeMap<usize, u32>,
}

impl Encoder {
    /// Returns the entries of a Pod: the skeletons and the shape that no earlier Pod had, and the Pod.
    pub fn entries(&mut self, pod: &CachedPod) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(1);
        let packed = pod.packed();
        let entry = match self.shape(packed.shape(), &mut entries) {
            None => Entry::Unshared(pod.section_bytes(Section::Full).into_owned()),
            Some(shape) => Entry::Pod {
                shape,
                name: pod.key.name.to_string(),
                uid: pod.key.uid.to_string(),
                revision: pod.revision.0,
                own: packed.own_bytes().to_vec(),
            },
        };
        entries.push(entry);
        entries
    }

    /// Returns the number of a shape, or `None` for the shape of an unshared Pod.
    fn shape(&mut self, shape: &Arc<Shape>, entries: &mut Vec<Entry>) -> Option<u32> {
        let address = Arc::as_ptr(shape).addr();
        if let Some(known) = self.shapes.get(&address) {
            return Some(*known);
        }
        let skeletons = shape.keys()?.map(|(address, skeleton)| match self.skeletons.get(&address) {
            Some(known) => *known,
            None => {
                entries.push(Entry::Skeleton(skeleton.to_vec()));
                next_number(&mut self.skeletons, address)
            }
        });
        entries.push(Entry::Shape(skeletons));
        Some(next_number(&mut self.shapes, address))
    }
}

fn next_number(numbers: &mut BTreeMap<usize, u32>, address: usize) -> u32 {
    // A process cannot have this many.
    let number = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    numbers.insert(address, number);
    number
}

/// Decodes Pods from entries.
#[derive(Debug)]
pub struct Decoder<'a> {
    pool: &'a SkeletonPool,
    skeletons: Vec<Vec<u8>>,
    /// The skeletons of each shape, and the shape itself once a Pod has verified it.
    shapes: Vec<([usize; FRAGMENTS], Option<Arc<Shape>>)>,
    pods: Vec<Record>,
    scratch: Scratch,
    arena: RecordArena,
}

impl<'a> Decoder<'a> {
    /// Returns a decoder that adds its skeletons to the pool.
    #[must_use]
    pub fn new(pool: &'a SkeletonPool) -> Self {
        let (scratch, arena) = (Scratch::default(), RecordArena::default());
        Self { pool, skeletons: Vec::new(), shapes: Vec::new(), pods: Vec::new(), scratch, arena }
    }

    /// Decodes the next entry. Returns `None` if it does not fit the entries before it, or is a Pod that does not come
    /// after the last one in the order of namespaces and names.
    #[must_use]
    pub fn take(&mut self, entry: Entry) -> Option<()> {
        match entry {
            Entry::Skeleton(skeleton) => self.skeletons.push(skeleton),
            Entry::Shape(skeletons) => {
                let skeletons = skeletons.map(|number| number as usize);
                skeletons
                    .iter()
                    .all(|number| *number < self.skeletons.len())
                    .then(|| self.shapes.push((skeletons, None)))?;
            }
            Entry::Pod { shape, name, uid, revision, own } => {
                let identity = PodIdentity { name: &name, uid: &uid, revision };
                let packed = self.packed(shape as usize, &own, identity)?;
                let key = PodKey::new(packed.shape().namespace(), &name, &uid);
                self.push(&CachedPod::from_parts(key, Revision(revision), packed))?;
            }
            Entry::Unshared(json) => {
                let (pod, _) = CachedPod::read(&json, self.pool, &mut self.scratch, |_, _| None).ok()?;
                self.push(&pod)?;
            }
        }
        Some(())
    }

    /// Returns the number of Pods.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Returns true if no Pod was decoded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Returns the Pods by namespace, then name; names are unique.
    #[must_use]
    pub fn into_pods(self) -> Vec<Record> {
        self.pods
    }

    fn packed(&mut self, shape: usize, own: &[u8], identity: PodIdentity<'_>) -> Option<Packed> {
        let (skeletons, shape) = self.shapes.get_mut(shape)?;
        if let Some(shape) = shape {
            return Packed::open(Arc::clone(shape), own, identity);
        }
        let skeletons = skeletons.map(|number| &*self.skeletons[number]);
        let packed = self.pool.restore(skeletons, own, identity)?;
        *shape = Some(Arc::clone(packed.shape()));
        Some(packed)
    }

    fn push(&mut self, pod: &CachedPod) -> Option<()> {
        let record = Record::new(pod, &mut self.arena);
        let in_order = match self.pods.last() {
            Some(last) => last.compare(&pod.key.namespace, &pod.key.name).is_lt(),
            None => true,
        };
        in_order.then(|| self.pods.push(record))
    }
}
