//! The names of Pods whose changes wait, for people.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podium_vocabulary::PodKey;

use super::{super::Lane, Field};

/// The most Pods of one plugin whose names are stored: some 64 KiB.
const MAX_NAMES: usize = 64;

/// A Pod that a plugin changed too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLoop {
    /// The plugin.
    pub lane: Lane,
    /// The Pod, also one on which runs apply or delete an object.
    pub pod: PodKey,
    /// The kind and the name of the field that changed most often.
    pub field: String,
    /// The sender of the field's other values: a plugin, `the plugin itself` or `another manager`.
    pub counterpart: String,
    /// How long the next change waits; zero if the plugin has not sent one since the wait was over.
    pub wait: Duration,
}

/// The Pods that plugins changed too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenLoops {
    /// At most 64 of each plugin.
    pub loops: Vec<OpenLoop>,
    /// Their number, with those that are not in `loops`.
    pub total: usize,
}

/// The names of the Pods of one plugin whose changes wait, by uid.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<Arc<str>, OpenPod>);

#[derive(Debug)]
struct OpenPod {
    pod: PodKey,
    field: String,
    counterpart: String,
}

impl Names {
    pub(super) fn insert(&mut self, pod: &PodKey, field: &Field, counterpart: &str) {
        if self.0.len() < MAX_NAMES {
            let field = field.to_string();
            let counterpart = counterpart.to_owned();
            self.0.insert(pod.uid.clone(), OpenPod { pod: pod.clone(), field, counterpart });
        }
    }

    pub(super) fn remove(&mut self, uid: &Arc<str>) {
        self.0.remove(uid);
    }

    /// Returns the Pods with the wait that `wait` returns for each.
    pub(super) fn list(&self, lane: Lane, wait: impl Fn(&Arc<str>) -> Option<Duration>) -> Vec<OpenLoop> {
        let open = |(uid, named): (&Arc<str>, &OpenPod)| {
            let (wait, OpenPod { pod, field, counterpart }) = (wait(uid)?, named);
            Some(OpenLoop { lane, pod: pod.clone(), field: field.clone(), counterpart: counterpart.clone(), wait })
        };
        self.0.iter().filter_map(open).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
