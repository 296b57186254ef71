//! Faults of a plugin's life, and of the finalizers that outlive it.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    let automaton = In { file: "host/life/src/automaton.rs", tests: "" };
    let steps = In { file: "host/life/src/automaton/steps.rs", tests: "" };
    let driver = In { file: "host/src/app/life.rs", tests: "app::life app::objects" };
    let cleanup = In { file: "host/src/app/cleanup.rs", tests: "app::cleanup" };
    vec![
        automaton.fault(
            "the result of an earlier attempt counts",
            "if «self.is_present(ticket)» {\n            self.on(",
            "true",
        ),
        steps.fault(
            "a version goes on beside a spec that permits less",
            "self.running().is_some_and(|version| «!spec.permits(&version.spec)»)",
            "false",
        ),
        steps.fault(
            "an object that was created again is the one before",
            "is_none_or(|(before, _)| «before.uid != object.uid»)",
            "false",
        ),
        steps.fault(
            "a version that the policy refuses runs on",
            "self.installed.as_ref().is_some_and(|version| «!stays(version)»)",
            "false",
        ),
        steps.fault("a version that cannot be kept goes on after a failure", "if «!self.may_stay()» {", "false"),
        driver.fault("an effect waits for the one before", "drop(tasks.spawn(task))", "task.await"),
        cleanup.fault("an object goes before a late write", "«unloaded.elapsed() >= LATE_WRITES»", "true"),
        cleanup.fault(
            "finalizers are judged on a stale cache",
            "if «stale(&self.dispatch.reader).is_some()» {",
            "false",
        ),
        cleanup.fault(
            "a Pod that was refused is written to at once",
            "progress.refused.entry(pod).or_insert_with(Wait::none).refused();",
            "drop(pod);",
        ),
    ]
}
