//! The stored objects by resource, one revision counter for all of them, and the history for watches. It checks
//! nothing: the callers apply the rules.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use crate::meta::{self, Object};

/// The number of changes per resource after which the oldest are dropped, and watches from before them are answered
/// with 410. The real API server keeps five minutes; this is several minutes of a busy demonstration.
const HISTORY: usize = 20_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub(crate) fn from_object(object: &Value) -> Self {
        Self::new(meta::namespace(object), meta::name(object))
    }
}

/// One change of one object. A creation has no `before`, a deletion no `after`; `object` is the object in the event
/// of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Object>,
    /// The new state; for a deletion the last state with the revision of the deletion.
    pub(crate) object: Object,
    pub(crate) deleted: bool,
}

/// The requested revision is older than the history.
#[derive(Debug)]
pub(crate) struct Compacted {
    /// The oldest available revision.
    pub(crate) oldest: u64,
}

#[derive(Clone, Debug, Default)]
struct Table {
    objects: BTreeMap<Key, Object>,
    history: VecDeque<Change>,
    /// The revision after which `history` is complete.
    floor: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Store {
    revision: u64,
    compacted: u64,
    /// The number of rollbacks: revisions of different epochs do not compare.
    epoch: u64,
    tables: BTreeMap<String, Table>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { revision: 1, compacted: 0, epoch: 0, tables: BTreeMap::new() }
    }

    /// Returns the newest revision of all resources.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn get(&self, resource: &str, key: &Key) -> Option<&Object> {
        self.tables.get(resource)?.objects.get(key)
    }

    /// Returns the objects of all namespaces, or of one, in the order of namespace and name.
    pub(crate) fn iter<'a>(
        &'a self,
        resource: &str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a Key, &'a Object)> + use<'a> {
        let start = Key::new(namespace.unwrap_or_default(), "");
        self.tables
            .get(resource)
            .into_iter()
            .flat_map(move |table| table.objects.range(start.clone()..))
            .take_while(move |(key, _)| namespace.is_none_or(|n| key.namespace == n))
    }

    /// Stores an object with a new revision, which is set in the object.
    pub(crate) fn put(&mut self, resource: &str, mut object: Value) -> Object {
        self.revision += 1;
        meta::set(&mut object, &["metadata", "resourceVersion"], self.revision.to_string());
        let key = Key::from_object(&object);
        let object = Arc::new(object);
        let table = self.table(resource);
        let before = table.objects.insert(key.clone(), object.clone());
        self.record(resource, Change { revision: self.revision, key, before, object: object.clone(), deleted: false });
        object
    }

    /// Deletes an object with a new revision. Returns the last state with that revision.
    pub(crate) fn delete(&mut self, resource: &str, key: &Key) -> Option<Object> {
        let before = self.tables.get_mut(resource)?.objects.remove(key)?;
        self.revision += 1;
        let mut last = Value::clone(&before);
        meta::set(&mut last, &["metadata", "resourceVersion"], self.revision.to_string());
        let object = Arc::new(last);
        let change = Change {
            revision: self.revision,
            key: key.clone(),
            before: Some(before),
            object: object.clone(),
            deleted: true,
        };
        self.record(resource, change);
        Some(object)
    }

    /// Returns the changes after `revision`, oldest first.
    pub(crate) fn since(&self, resource: &str, revision: u64) -> Result<Vec<Change>, Compacted> {
        let floor = self.tables.get(resource).map_or(self.compacted, |t| t.floor);
        if revision < floor {
            return Err(Compacted { oldest: floor });
        }
        let Some(table) = self.tables.get(resource) else { return Ok(Vec::new()) };
        let start = table.history.partition_point(|change| change.revision <= revision);
        Ok(table.history.range(start..).cloned().collect())
    }

    /// Returns the objects at `revision`.
    pub(crate) fn at(&self, resource: &str, revision: u64) -> Result<BTreeMap<Key, Object>, Compacted> {
        let later = self.since(resource, revision)?;
        let mut objects = self.tables.get(resource).map(|t| t.objects.clone()).unwrap_or_default();
        for change in later.into_iter().rev() {
            match change.before {
                Some(before) => objects.insert(change.key, before),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// Drops the whole history: watches and pages from earlier revisions are answered with 410.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        for table in self.tables.values_mut() {
            table.history.clear();
            table.floor = self.revision;
        }
    }

    /// Replaces the state by the saved one, and drops the history.
    pub(crate) fn restore(&mut self, saved: &Self) {
        *self = Self { epoch: self.epoch + 1, ..saved.clone() };
        self.compact();
    }

    fn table(&mut self, resource: &str) -> &mut Table {
        let floor = self.compacted;
        self.tables.entry(resource.to_owned()).or_insert_with(|| Table { floor, ..Table::default() })
    }

    fn record(&mut self, resource: &str, change: Change) {
        let table = self.table(resource);
        table.history.push_back(change);
        if table.history.len() > HISTORY
            && let Some(oldest) = table.history.pop_front()
        {
            table.floor = oldest.revision;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name}})
    }

    #[test]
    fn the_past_is_read_back_from_the_history() {
        let mut store = Store::new();
        store.put("pods", pod("a"));
        let then = store.revision();
        store.put("pods", pod("b"));
        store.delete("pods", &Key::new("shop", "a"));
        let past = store.at("pods", then).unwrap();
        assert_eq!(past.keys().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(store.iter("pods", Some("shop")).map(|(k, _)| k.name.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn compacted_revisions_are_refused_and_later_ones_are_not() {
        let mut store = Store::new();
        store.put("pods", pod("a"));
        store.compact();
        let floor = store.revision();
        store.put("pods", pod("b"));
        assert!(store.since("pods", floor - 1).is_err());
        assert_eq!(store.since("pods", floor).unwrap().len(), 1);
        assert!(store.since("leases.coordination.k8s.io", floor - 1).is_err());
    }

    #[test]
    fn a_deletion_has_a_revision_of_its_own() {
        let mut store = Store::new();
        let before = store.put("pods", pod("a"));
        let deleted = store.delete("pods", &Key::new("shop", "a")).unwrap();
        assert_ne!(meta::revision(&before), meta::revision(&deleted));
        assert_eq!(meta::revision(&deleted), store.revision().to_string());
    }
}
