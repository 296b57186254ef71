//! The names of fields whose values wait, for people.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podium_vocabulary::PodKey;

use super::{super::Lane, Field, Id};

/// The most fields of one plugin whose names are stored: some 64 KiB.
const MAX_NAMES: usize = 64;

/// A field of a Pod to which a plugin sent too many values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLoop {
    /// The plugin.
    pub lane: Lane,
    /// The Pod that has the field, or on which runs apply or delete the object.
    pub pod: PodKey,
    /// The kind of the field and its name.
    pub field: String,
    /// The sender of the other values: a plugin, `the plugin itself` or `another manager`.
    pub counterpart: String,
    /// How long the next value waits; zero if the plugin has not sent one since the wait was over.
    pub wait: Duration,
}

/// The fields of all plugins to which too many values were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLoops {
    /// At most 64 of each plugin.
    pub loops: Vec<OpenLoop>,
    /// Their number, with those that are not in `loops`.
    pub total: usize,
}

/// The names of the fields of one plugin whose values wait.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<(Arc<str>, u64), OpenField>);

#[derive(Debug)]
struct OpenField {
    pod: PodKey,
    field: String,
    counterpart: String,
}

impl Names {
    pub(super) fn insert(&mut self, id: &Id, pod: &PodKey, field: &Field, counterpart: &str) {
        if self.0.len() < MAX_NAMES {
            let (field, counterpart) = (field.to_string(), counterpart.to_owned());
            self.0.insert((id.uid.clone(), id.field), OpenField { pod: pod.clone(), field, counterpart });
        }
    }

    pub(super) fn remove(&mut self, id: &Id) {
        self.0.remove(&(id.uid.clone(), id.field));
    }

    /// Returns the fields with the wait that `wait` returns for each.
    pub(super) fn list(&self, lane: Lane, wait: impl Fn(&Arc<str>, u64) -> Option<Duration>) -> Vec<OpenLoop> {
        let open = |((uid, field), named): (&(Arc<str>, u64), &OpenField)| {
            let (wait, OpenField { pod, field, counterpart }) = (wait(uid, *field)?, named);
            Some(OpenLoop { lane, pod: pod.clone(), field: field.clone(), counterpart: counterpart.clone(), wait })
        };
        self.0.iter().filter_map(open).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
