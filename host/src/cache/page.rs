//! Sixteen Pods in two allocations. A page is never changed; a newer state of a Pod makes another page.
//!
//! One allocation for each Pod would cost what an allocator rounds up to, more than the record itself after many events.

use std::sync::Arc;

use crate::{
    model::{CachedPod, Kept, Record, record},
    shape::Shape,
};

/// Records grow and shrink by a few bytes from event to event. An allocation of the same size as the one that is freed
/// next finds its place again; of any size it leaves a gap.
const STEP: usize = 256;
/// Pods in a page.
pub(super) const PODS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Page {
    /// None: nobody is here.
    shapes: [Option<Arc<Shape>>; PODS],
    /// Of the records, in the page's bytes.
    ends: [u32; PODS],
    /// The records, one after the other. Room is made in steps of [`STEP`].
    bytes: Vec<u8>,
}

impl Page {
    pub(super) fn get(&self, at: usize) -> Option<Kept<'_>> {
        let shape = self.shapes.get(at)?.as_ref()?;
        Kept::of(shape, self.bytes.get(self.start(at)..self.ends[at] as usize)?)
    }

    /// Of the first Pods of a page.
    pub(super) fn of(pods: &[Record]) -> Self {
        let mut page = Self::default();
        let length: usize = pods.iter().map(|pod| pod.bytes().len()).sum();
        page.bytes = Vec::with_capacity(length.next_multiple_of(STEP));
        let mut pods = pods.iter();
        for (shape, end) in page.shapes.iter_mut().zip(&mut page.ends) {
            if let Some(pod) = pods.next() {
                page.bytes.extend_from_slice(pod.bytes());
                *shape = Some(Arc::clone(pod.shape()));
            }
            *end = u32::try_from(page.bytes.len()).unwrap_or(u32::MAX);
        }
        page
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    /// The page with another state of one Pod, or without it. What `record` holds is written over.
    pub(super) fn with(&self, at: usize, pod: Option<&CachedPod>, record: &mut Vec<u8>) -> Self {
        record.clear();
        pod.inspect(|pod| record::put(pod, record));
        let (start, end) = (self.start(at), self.ends[at] as usize);
        let length = start + record.len() + self.bytes.len() - end;
        let mut bytes = Vec::with_capacity(length.next_multiple_of(STEP));
        bytes.extend_from_slice(&self.bytes[..start]);
        bytes.extend_from_slice(record);
        bytes.extend_from_slice(&self.bytes[end..]);
        let (mut shapes, mut ends) = (self.shapes.clone(), self.ends);
        shapes[at] = pod.map(|pod| Arc::clone(pod.packed().shape()));
        for of in &mut ends[at..] {
            // Sixteen objects that etcd takes are 24 MiB.
            *of = u32::try_from(*of as usize - end + start + record.len()).unwrap_or(u32::MAX);
        }
        Self { shapes, ends, bytes }
    }
}
