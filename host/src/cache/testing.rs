//! Pods for tests of this room.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_wire::{Header, Owner, Pod, Spec, Status};
use proptest::{prelude::*, test_runner::TestCaseError};

use super::Snapshot;
use crate::model::{CachedPod, Change, PodView};

/// A Pod in namespace "shop" with one label, a node, an owner and a phase.
pub(crate) fn pod(name: &str, uid: &str, revision: u64, label: &str) -> Pod {
    Pod {
        header: Header {
            namespace: "shop".into(),
            name: name.into(),
            uid: uid.into(),
            resource_version: revision.to_string(),
            ..Header::default()
        },
        labels: [("app".to_owned(), label.to_owned())].into(),
        owners: vec![Owner { uid: format!("owner-of-{label}"), ..Owner::default() }],
        spec: Spec { node_name: Some(format!("node-of-{label}")), ..Spec::default() },
        status: Status { phase: format!("phase-of-{label}"), ..Status::default() },
        ..Pod::default()
    }
}

pub(crate) fn cached(pod: &Pod) -> Arc<CachedPod> {
    Arc::new(CachedPod::new(pod).unwrap())
}

/// "+uid@revision" for an addition, "-uid@revision" for a deletion, "uid@old>new" for a change.
pub(crate) fn told(changes: &[Change]) -> Vec<String> {
    let tell = |change: &Change| match (&change.old, &change.new) {
        (Some(old), Some(new)) => format!("{}@{}>{}", new.key.uid, old.revision, new.revision),
        (Some(old), None) => format!("-{}@{}", old.key.uid, old.revision),
        (None, Some(new)) => format!("+{}@{}", new.key.uid, new.revision),
        (None, None) => "nothing".to_owned(),
    };
    changes.iter().map(tell).collect()
}

/// By name.
pub(crate) type Pods = BTreeMap<Arc<str>, Arc<CachedPod>>;

/// Somebody who hears of changes alone, and fails where they contradict what he heard before: who is told of something
/// twice or too late, of a step that does not begin where the last one ended, or of one back in time.
#[derive(Default)]
pub(crate) struct Believer {
    pub(crate) present: Pods,
    /// By uid.
    gone: BTreeSet<Arc<str>>,
    /// What comes next begins an epoch.
    anew: bool,
}

impl Believer {
    /// History was set back: what is told next may be older, and bring back who is gone.
    pub(crate) fn rewind(&mut self) {
        self.gone.clear();
        self.anew = true;
    }

    pub(crate) fn hear(&mut self, changes: &[Change]) -> Result<(), TestCaseError> {
        for Change { old, new, .. } in changes {
            let name = &old.as_ref().or(new.as_ref()).unwrap().key.name;
            let believed = self.present.get(name);
            prop_assert_eq!(believed.map(|pod| &pod.key), old.as_ref().map(|pod| &pod.key));
            if let Some(old) = old {
                prop_assert!(believed.unwrap().changed_from(old).is_empty());
            }
            match new {
                Some(new) => {
                    prop_assert!(!self.gone.contains(&new.key.uid), "{} came back", new.key.uid);
                    let later = believed.is_none_or(|old| old.revision < new.revision);
                    prop_assert!(later || self.anew, "{name} went back");
                    self.present.insert(Arc::clone(name), Arc::clone(new));
                }
                None => {
                    let old = self.present.remove(name).unwrap();
                    self.gone.insert(Arc::clone(&old.key.uid));
                }
            }
        }
        Ok(())
    }

    /// Readers see what was told, and nothing else.
    pub(crate) fn agrees_with(&self, snapshot: &Snapshot) -> Result<(), TestCaseError> {
        same_sections(snapshot, &self.present)
    }
}

pub(crate) fn same_sections(snapshot: &Snapshot, expected: &Pods) -> Result<(), TestCaseError> {
    prop_assert_eq!(snapshot.len(), expected.len());
    for (pod, expected) in snapshot.iter().zip(expected.values()) {
        prop_assert_eq!(&pod.key, &expected.key);
        prop_assert!(pod.changed_from(expected).is_empty());
        let by_uid = snapshot.by_uid(&pod.key.uid);
        prop_assert_eq!(by_uid, Some(pod));
    }
    Ok(())
}
