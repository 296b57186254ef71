//! Faults of the cache.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    let writer = In { file: "host/pods/src/cache/writer.rs", tests: "cache::" };
    let pool = In { file: "host/encoding/src/pool.rs", tests: "unshared::" };
    vec![
        pool.fault("a state of a moment is learned with each Pod", "while «self.bytes > Self::MAX_BYTES»", "true"),
        pool.fault("the latest shapes take any memory", "&& «self.shapes.len() > 1» {", "false"),
        pool.fault("a new Pod is expected to be like one that runs", "if «first_of.is_some()» {", "false"),
        writer.fault(
            "a Pod goes back in time",
            "Some(entry) if «pod.revision <= entry.pod.revision» => {}",
            "pod.revision == entry.pod.revision",
        ),
        writer.fault("a deleted Pod comes back by an older list", "None if «pod.revision <= passed» => {}", "false"),
        writer.fault("an older deletion removes a Pod", "last.revision < held.revision", "false"),
        writer.fault("a deletion removes the Pod's successor", "held.key.uid != last.key.uid", "false"),
        writer.fault("a list removes a Pod that is newer", "«pod.revision() <= newest_removed» && !held", "true"),
        writer.fault("a Pod that cannot be decoded is reported as deleted", "«!held.contains_pod(pod)»", "true"),
        writer.fault("a set-back history keeps its revision", "self.store.next.revision = if «rolled_back» {", "false"),
    ]
}
