//! The cache's Pods as a sequence of entries that can leave the process and be read again, as in a checkpoint. How
//! entries are written to a file is not decided here.

pub use podium_encoding::{Dump, Entry};
use podium_encoding::{Pool, Restored};

use crate::pod::{CachedPod, Record, RecordArena};

/// Decodes Pods from entries.
#[derive(Debug)]
pub struct Decoder<'a> {
    pool: &'a Pool,
    restored: Restored,
    pods: Vec<Record>,
    arena: RecordArena,
}

impl<'a> Decoder<'a> {
    /// Returns a decoder that adds what the Pods share to the pool.
    #[must_use]
    pub fn new(pool: &'a Pool) -> Self {
        Self { pool, restored: Restored::default(), pods: Vec::new(), arena: RecordArena::default() }
    }

    /// Decodes the next entry. Returns `None` if it does not fit the entries before it, or is a Pod that does not come
    /// after the last one in the order of namespaces and names.
    #[must_use]
    pub fn take(&mut self, entry: Entry) -> Option<()> {
        let Some(read) = self.pool.restore(&mut self.restored, entry)? else { return Some(()) };
        let pod = CachedPod::from(read);
        let record = Record::new(&pod, &mut self.arena);
        let in_order = self.pods.last().is_none_or(|last| last.compare(&pod.key.namespace, &pod.key.name).is_lt());
        in_order.then(|| self.pods.push(record))
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
}

#[cfg(test)]
mod tests {
    use podium_encoding::{
        Scratch,
        testing::{pod_json, written},
    };

    use super::*;

    #[test]
    fn unshared_pods_leave_the_process_and_return() {
        let (pool, mut scratch) = (Pool::new(7), Scratch::default());
        // Each has another structure.
        let json = |own: u64| {
            let mut object = pod_json(1, own, "Running");
            (0..own).for_each(|at| object["metadata"]["annotations"][format!("note-{at}")] = "a note".into());
            written(&object)
        };
        let read = |own| CachedPod::read(json(own).as_bytes(), &pool, &mut scratch, |_, _| None).unwrap().0;
        let mut pods: Vec<_> = (0..20).map(read).collect();
        pods.sort_by(|one, other| one.key.name.cmp(&other.key.name));
        let mut dump = Dump::default();
        let entries: Vec<_> = pods.iter().flat_map(|pod| pod.entries(&mut dump)).collect();
        assert_eq!(entries.iter().filter(|entry| matches!(entry, Entry::Whole(_))).count(), 19);
        let pool = Pool::new(7);
        let mut decoder = Decoder::new(&pool);
        entries.into_iter().for_each(|entry| decoder.take(entry).unwrap());
        let back = decoder.into_pods();
        assert!(back.iter().map(Record::pod).map(|pod| (*pod).clone()).eq(pods));
        assert!(pool.shared_texts() < 6, "{} texts", pool.shared_texts());
    }
}
