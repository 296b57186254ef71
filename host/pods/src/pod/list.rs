//! A complete list of Pods. A list is in memory beside the whole cache until it is applied; for Pods that the cache
//! has, it therefore contains only uids.

use std::collections::BTreeSet;

use podium_encoding::Uid;

use super::{Record, RecordRef};

/// The Pods of one list.
#[derive(Debug, Clone, Default)]
pub struct PodList {
    /// The Pods whose JSON was read.
    pub read: Vec<Record>,
    /// Uids of Pods that the cache has at this revision, or of which an older cached state is to stay.
    pub held: Uids,
}

/// A set of uids, with 16 bytes for each UUID.
#[derive(Debug, Clone, Default)]
pub struct Uids {
    uuids: Vec<[u8; 16]>,
    others: BTreeSet<Box<str>>,
}

/// [`Uids`] that are sorted for lookups.
#[derive(Debug)]
pub struct SortedUids(Uids);

impl FromIterator<Record> for PodList {
    fn from_iter<T: IntoIterator<Item = Record>>(records: T) -> Self {
        Self { read: records.into_iter().collect(), held: Uids::default() }
    }
}

impl PodList {
    /// Appends the Pods of another part of the list.
    pub fn append(&mut self, mut other: Self) {
        self.read.append(&mut other.read);
        self.held.uuids.append(&mut other.held.uuids);
        self.held.others.append(&mut other.held.others);
    }

    /// Returns the number of Pods in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read.len() + self.held.len()
    }

    /// Returns true if the list has no Pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Uids {
    /// Adds a uid.
    pub fn insert(&mut self, uid: &str) {
        match Uid::parse(uid) {
            Uid::Uuid(uuid) => self.uuids.push(uuid),
            Uid::Text(uid) => _ = self.others.insert(uid.into()),
        }
    }

    /// Removes a uid, in time linear in their number.
    pub fn remove(&mut self, uid: &str) {
        match Uid::parse(uid) {
            Uid::Uuid(uuid) => self.uuids.retain(|other| *other != uuid),
            Uid::Text(uid) => _ = self.others.remove(uid),
        }
    }

    /// Returns the number of uids, those added twice counted twice.
    #[must_use]
    pub fn len(&self) -> usize {
        self.uuids.len() + self.others.len()
    }

    /// Returns true if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sorts the uids, so that they can be looked up.
    #[must_use]
    pub fn sorted(mut self) -> SortedUids {
        self.uuids.sort_unstable();
        SortedUids(self)
    }
}

impl SortedUids {
    /// Returns true if the uid is one of them.
    #[must_use]
    pub fn contains(&self, uid: &str) -> bool {
        self.contains_uid(Uid::parse(uid))
    }

    /// Returns true if the uid of this Pod is among these.
    pub(crate) fn contains_pod(&self, pod: &RecordRef<'_>) -> bool {
        self.contains_uid(pod.uid())
    }

    fn contains_uid(&self, uid: Uid<'_>) -> bool {
        match uid {
            Uid::Uuid(uuid) => self.0.uuids.binary_search(&uuid).is_ok(),
            Uid::Text(uid) => self.0.others.contains(uid),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pod::CachedPod;

    #[test]
    fn uids_contain_exactly_the_inserted_ones() {
        let uuid = |at: u32| format!("{:08x}-1d2b-4c8e-9a44-3f0e8b1a7d51", at.wrapping_mul(0x9e37_79b9));
        let uids: Vec<_> = (0..20).map(|at| if at % 5 == 0 { format!("u-{at}") } else { uuid(at) }).collect();
        let mut some = Uids::default();
        uids.iter().step_by(2).for_each(|uid| some.insert(uid));
        assert_eq!(some.len(), 10);
        let some = some.sorted();
        for (at, uid) in uids.iter().enumerate() {
            let mut pod = podium_wire::Pod::default();
            pod.header.name = "cart".to_owned();
            pod.header.namespace = "shop".to_owned();
            pod.header.uid = uid.clone();
            pod.header.resource_version = "1".to_owned();
            let record = Record::from(Arc::new(CachedPod::new(&pod).unwrap()));
            assert_eq!(some.contains_pod(&record.open()), at % 2 == 0, "{uid}");
            assert_eq!(some.contains(uid), at % 2 == 0, "{uid}");
        }
    }
}
