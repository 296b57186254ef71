//! Pods for tests of this room.

use std::sync::Arc;

use podium_wire::{Header, Owner, Pod, Spec, Status};

use crate::model::{CachedPod, Change};

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
