//! Membership indexes: a value, such as a node's name, to the names of the Pods that have it.
//!
//! They hold names, not Pods, so an event that moves no Pod between values leaves them alone. All are persistent:
//! a clone shares everything, and a change copies one path.

use std::{borrow::Cow, sync::Arc};

use imbl::{OrdMap, OrdSet};

use crate::model::{CachedPod, Cursor};
use podium_wire::{Labels, Section};

/// Names in the order of namespace, then name.
pub(super) type Names = OrdSet<Cursor>;

#[derive(Debug, Clone, Default)]
pub(super) struct Index(OrdMap<Arc<str>, Names>);

impl Index {
    pub(super) fn get(&self, value: &str) -> Option<&Names> {
        self.0.get(value)
    }

    fn insert(&mut self, value: &str, name: &Cursor) {
        match self.0.get_mut(value) {
            Some(names) => {
                names.insert(name.clone());
            }
            None => {
                self.0.insert(value.into(), Names::unit(name.clone()));
            }
        }
    }

    fn remove(&mut self, value: &str, name: &Cursor) {
        if let Some(names) = self.0.get_mut(value) {
            names.remove(name);
            if names.is_empty() {
                self.0.remove(value);
            }
        }
    }
}

/// All indexes of a snapshot. Every label is indexed by key and value: a selector may name any, and a Pod has few.
#[derive(Debug, Clone, Default)]
pub(super) struct Indexes {
    pub(super) uids: OrdMap<Arc<str>, Cursor>,
    pub(super) nodes: Index,
    pub(super) owners: Index,
    labels: OrdMap<Arc<str>, Index>,
}

impl Indexes {
    /// The Pods that have the label `key` with `value`.
    pub(super) fn label(&self, key: &str, value: &str) -> Option<&Names> {
        self.labels.get(key).and_then(|values| values.get(value))
    }

    /// Moves one Pod from its old state to its new one; both are of one uid where both are there.
    pub(super) fn replace(&mut self, name: &Cursor, old: Option<&CachedPod>, new: Option<&CachedPod>) {
        match (old, new) {
            (Some(old), None) => {
                self.uids.remove(&old.key.uid);
            }
            (None, Some(new)) => {
                self.uids.insert(Arc::clone(&new.key.uid), name.clone());
            }
            _ => {}
        }
        let (from, to) = (old.and_then(CachedPod::node), new.and_then(CachedPod::node));
        if from != to {
            from.into_iter().for_each(|node| self.nodes.remove(node, name));
            to.into_iter().for_each(|node| self.nodes.insert(node, name));
        }
        if owner_bytes(old) != owner_bytes(new) {
            owner_uids(old).iter().for_each(|uid| self.owners.remove(uid, name));
            owner_uids(new).iter().for_each(|uid| self.owners.insert(uid, name));
        }
        if label_bytes(old) != label_bytes(new) {
            self.replace_labels(name, &labels(old), &labels(new));
        }
    }

    fn replace_labels(&mut self, name: &Cursor, from: &Labels, to: &Labels) {
        for (key, value) in from.iter().filter(|(key, value)| to.get(*key) != Some(value)) {
            if let Some(values) = self.labels.get_mut(key.as_str()) {
                values.remove(value, name);
                if values.0.is_empty() {
                    self.labels.remove(key.as_str());
                }
            }
        }
        for (key, value) in to.iter().filter(|(key, value)| from.get(*key) != Some(value)) {
            match self.labels.get_mut(key.as_str()) {
                Some(values) => values.insert(value, name),
                None => {
                    let mut values = Index::default();
                    values.insert(value, name);
                    self.labels.insert(key.as_str().into(), values);
                }
            }
        }
    }
}

/// Empty where there is no Pod. The sections of a [`CachedPod`] were encoded by itself and decode.
pub(super) fn labels(pod: Option<&CachedPod>) -> Labels {
    pod.and_then(|pod| pod.labels().ok()).unwrap_or_default()
}

fn label_bytes(pod: Option<&CachedPod>) -> Option<Cow<'_, [u8]>> {
    pod.map(|pod| pod.section_bytes(Section::Labels))
}

fn owner_bytes(pod: Option<&CachedPod>) -> Option<Cow<'_, [u8]>> {
    pod.map(|pod| pod.section_bytes(Section::Owners))
}

fn owner_uids(pod: Option<&CachedPod>) -> Vec<String> {
    pod.map(CachedPod::owner_uids).unwrap_or_default()
}
