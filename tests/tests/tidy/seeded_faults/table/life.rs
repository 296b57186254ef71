//! Faults of the life of a plugin, of the failures in its status, and of the finalizers that outlive it.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    [of_the_automaton(), around_it()].concat()
}

fn of_the_automaton() -> Vec<Fault> {
    let automaton = In { file: "host/life/src/automaton.rs", tests: "" };
    let steps = In { file: "host/life/src/automaton/steps.rs", tests: "" };
    vec![
        automaton.fault(
            "an answer to an earlier attempt changes the plugin",
            "is_some_and(|plugin| «plugin.ticket == *ticket»)",
            "true",
        ),
        automaton.fault(
            "permissions end behind other effects",
            "effects.sort_by_key(|effect| !matches!(effect, Effect::Restrict(_) | Effect::Remove(_)));",
            "",
        ),
        automaton.fault(
            "a plugin is forgotten while its version is removed",
            "«plugin.removals == 0» && !plugin.saves",
            "true",
        ),
        automaton.fault(
            "a compilation that ended keeps its slot",
            "Event::Compiled(ticket, result) => {\n                «self.common.end(Work::Compile, ticket.attempt);»",
            "",
        ),
        steps.fault(
            "an object of a name that another one had keeps its version",
            "is_none_or(|(before, _)| «before.uid != object.uid»)",
            "false",
        ),
        steps.fault(
            "an object replaces the plugin of a file",
            "Source::Object(object) if «self.file.is_some()» =>",
            "false",
        ),
        steps.fault(
            "a narrower spec leaves the permissions until it runs",
            "common.effects.push(Effect::Restrict(spec.clone()));",
            "",
        ),
        steps.fault(
            "a version is installed by a host that does not own the plugin",
            "if «!common.owns(&self.id)» {\n            self.state = State::Standby",
            "false",
        ),
        steps.fault(
            "a restored version runs although the spec permits less",
            "_ if «!spec.permits(&before)» =>",
            "false",
        ),
        steps.fault(
            "a version that the policy forbids is restored",
            "Some(error) => «Err(error)»,\n            None => Ok(before),",
            "Ok(before)",
        ),
        steps.fault(
            "a record of another object is used",
            "recorded.filter(|recorded| «*recorded.record.uid == *uid»)",
            "true",
        ),
        steps.fault("a version that the policy forbids goes on", "is_some_and(|version| «!stays(version)»)", "false"),
        steps.fault("a failed trial keeps the new version", "self.install(before, false, common);", "drop(before);"),
        steps.fault("a failed load stops the version that runs", "if «!self.may_stay()» {", "true"),
        steps.fault(
            "a version goes on beside a spec that permits less",
            "self.running().is_some_and(|version| «!spec.permits(&version.spec)»)",
            "false",
        ),
    ]
}

fn around_it() -> Vec<Fault> {
    let slots = In { file: "host/life/src/slots.rs", tests: "" };
    let driver = In { file: "host/src/app/life.rs", tests: "app::life app::objects" };
    let cleanup = In { file: "host/src/app/cleanup.rs", tests: "app::cleanup" };
    let health = In { file: "host/engine/src/status/health.rs", tests: "health" };
    vec![
        driver.fault("an effect waits for the one before", "drop(tasks.spawn(task))", "task.await"),
        cleanup.fault("an object goes before a late write", "let is_late = «at >= unloaded + LATE_WRITES»;", "true"),
        cleanup.fault(
            "finalizers are judged on a stale cache",
            "if is_early || «stale(&self.dispatch.reader).is_some()» {",
            "false",
        ),
        cleanup.fault(
            "a Pod that was refused is written to at once",
            "progress.refused.entry(pod).or_insert_with(Wait::none).refused();",
            "drop(pod);",
        ),
        slots.fault("a tenant takes all slots", "«of_tenant(&taker(plugin)) < self.bounds.tenant»", "true"),
        slots.fault(
            "a tenant is first in turn again",
            "free.min_by_key(|(_, plugin)| «self.turns.get(&taker(plugin))»)",
            "None",
        ),
        health.fault("a failure is never forgotten", "self.entries.retain(|(_, last)| now < *last + FORGET);", ""),
        health.fault("each failure is an entry", "of.reason == reason && «of.message == message»", "false"),
        health.fault("failures have no bound", "inner.entries.len() < «MOST»", "usize::MAX"),
        health.fault(
            "failures of a host before are taken over twice",
            "if «!std::mem::take(&mut inner.may_restore)» {",
            "false",
        ),
    ]
}
