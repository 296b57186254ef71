//! Faults of the watches.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    let list = In { file: "host/api/src/watch/list.rs", tests: "watch::" };
    let stream = In { file: "host/api/src/watch/stream.rs", tests: "watch::" };
    let rollback = In { file: "host/api/src/watch/rollback.rs", tests: "watch::" };
    let objects = In { file: "host/src/objects/watch.rs", tests: "objects::watch" };
    vec![
        list.fault(
            "a list from a server that is behind is applied",
            "(self.seen > Revision(0) && «!is_any_accepted»)",
            "false",
        ),
        list.fault(
            "a set-back history is not announced",
            "if «revision < self.seen || self.rollback.is_proven()» {",
            "false",
        ),
        list.fault("the watch does not begin at its list", "self.position = Some(revision);", "{}"),
        stream.fault(
            "a watch that goes back is followed",
            "if «revision < self.seen» {\n            let reason",
            "false",
        ),
        stream.fault("a revision before the observed one is no proof", "self.rollback.prove();", "{}"),
        rollback.fault("silent watches are not counted", "self.quiet = self.quiet.saturating_add(1);", "{}"),
        objects.fault(
            "a kind that is not served for a moment is gone",
            "now - *self.absent.get_or_insert(now) >= ABSENT",
            "true",
        ),
        objects.fault(
            "a time without a kind begins with an earlier one",
            "«self.absent = None;»\n            }\n            match broken",
            "{}",
        ),
        objects.fault("a watch is resumed at its beginning", "*revision = metadata.resource_version;", "{}"),
        objects.fault("an object of an earlier history is applied", "«kind != \"DELETED\"» &&", "false"),
    ]
}
