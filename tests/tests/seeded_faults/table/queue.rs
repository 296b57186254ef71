//! Faults of the queue: keys, turns, tokens, memory and order.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    [slots(), turns(), tokens(), order()].concat()
}

fn slots() -> Vec<Fault> {
    let slots = In { file: "host/engine/src/queue/slots.rs", tests: "queue::" };
    vec![
        slots.fault(
            "a key added during its run is lost",
            "*dirty = Some(Dirty { latest: number, changed, ..earlier });",
            "",
        ),
        slots.fault(
            "a key added during its run waits for a second",
            "(item.due, item.queued) = («now», queued);",
            "now + std::time::Duration::from_secs(1)",
        ),
        slots.fault("a success keeps the failures", "Next::After(_) => «item.failures = 0»,", ""),
        slots.fault(
            "a failure with a time counts as none",
            "Next::FailedFor(_) | Next::Conflict => «item.failures = item.failures.saturating_add(1)»,",
            "if !matches!(next, Next::FailedFor(_)) { item.failures += 1 }",
        ),
        slots.fault(
            "a key runs again after a final result",
            "item.dirty.take().filter(|_| «next != Next::Final»)",
            "true",
        ),
        slots.fault("an event does not end a delay", "(waiting.due, waiting.queued) = («now», now);", "waiting.due"),
        slots.fault(
            "a conflict waits as long as a failure",
            "«self.backoff.most.min(CONFLICT_WAIT)»",
            "self.backoff.most",
        ),
        slots.fault(
            "a key of a reloaded plugin runs beside its run of before",
            "«slot.at = SlotStage::Orphaned;»",
            "slot.items.clear();",
        ),
        slots.fault("delayed keys outlive their plugin", "self.delayed.retain(|_, (of, _)| «*of != lane»);", "true"),
        slots.fault("a closed queue hands out keys", "self.closed = true;", ""),
        slots.fault(
            "items behind one that is tried again wait for it",
            "let from = usize::from(«running»);",
            "!running",
        ),
    ]
}

fn turns() -> Vec<Fault> {
    let turns = In { file: "host/engine/src/queue/turns.rs", tests: "queue::" };
    let tenant = In { file: "host/engine/src/queue/turns/tenant.rs", tests: "queue::" };
    vec![
        turns.fault("a tenant is not charged what its run cost", "tenant.account.correct(charged, «used»);", "charged"),
        turns.fault("a plugin is not charged what its run cost", "state.account.correct(charged, «used»);", "charged"),
        turns.fault("a tenant may take every worker", "«tenant.runs < self.occupancy.runs_of_tenant()»", "true"),
        turns.fault("deliveries of a tenant have no bound", "«tenant.jobs < self.occupancy.jobs_of_tenant()»", "true"),
        turns.fault("no worker is kept", "let only_light = «idle <= self.occupancy.kept()»;", "false"),
        turns.fault("credit has no bound", "«self.present.cap_credit(&mut tenant.account);»", ""),
        turns.fault("memory is not freed", "«self.memory = self.memory.saturating_sub(claim.bytes);»", ""),
        turns.fault(
            "a run that does not fit is passed for ever",
            "«self.started - from < u64::from(passed)» && now.saturating_duration_since(since) < waited",
            "true",
        ),
        turns.fault(
            "a run that does not fit keeps no memory free",
            "// All free memory is kept for it.\n            Some(_) => «0»,",
            "free",
        ),
        tenant.fault(
            "a plugin takes the last place of its tenant",
            "if «self.has_last_place» { without_job()",
            "false",
        ),
    ]
}

fn tokens() -> Vec<Fault> {
    let tokens = In { file: "host/engine/src/throttle/bucket.rs", tests: "throttle::" };
    let budget = In { file: "host/engine/src/queue/turns/budget.rs", tests: "queue::" };
    let admission = In { file: "host/engine/src/queue/admission.rs", tests: "queue::" };
    vec![
        tokens.fault(
            "a bucket fills beyond its burst",
            "self.level = «self.level.saturating_add(gained).min(billionths(self.rate.burst))»;",
            "self.level.saturating_add(gained)",
        ),
        tokens.fault(
            "a bucket is never in debt",
            "self.level = «self.level.saturating_sub(billionths(tokens))»;",
            "self.level.saturating_sub(billionths(tokens)).max(0)",
        ),
        tokens.fault(
            "a lower burst keeps the tokens above it",
            "«self.level = self.level.min(billionths(rate.burst));»",
            "",
        ),
        budget.fault(
            "the plugins of a tenant in debt start",
            "if tokens.writes && !admitted && «tenant.tokens.is_closed(now)» {",
            "false",
        ),
        budget.fault(
            "a plugin in debt starts",
            "let own = «if tokens.writes { tokens.buckets.wait(WRITES, now) } else { Duration::ZERO }»;",
            "Duration::ZERO",
        ),
        budget.fault("a refused request does not close its plugin", "lane.tokens.short[kind] = true;", ""),
        budget.fault(
            "requests without tokens are not counted",
            "«tenant.tokens.refused[kind] += u64::from(refused);»",
            "",
        ),
        budget.fault(
            "a plugin that waits for its tenant's tokens is forgotten",
            "«self.set_timer(number, now);»\n        self.refresh",
            "",
        ),
        admission.fault(
            "an unknown tenant is light",
            "«self.held.is_some_and(|held| held <= LIGHT)»",
            "self.held.is_none_or(|held| held <= LIGHT)",
        ),
        admission.fault("a costly tenant is light", "«self.cost(now) <= nanos(CREDIT)»", "true"),
    ]
}

fn order() -> Vec<Fault> {
    let waits = In { file: "host/engine/src/queue/waits.rs", tests: "queue::" };
    let steps = In { file: "host/engine/src/queue/steps.rs", tests: "queue::" };
    let ordered = In { file: "host/engine/src/queue/slots/ordered.rs", tests: "queue::" };
    let order = In { file: "host/engine/src/queue/order.rs", tests: "queue::" };
    vec![
        waits.fault(
            "a wait for a leading plugin never ends",
            "WaitKind::Leading(until) if «until <= now» => {}",
            "false",
        ),
        waits.fault(
            "a successor waits for a plugin that is removed",
            "edges.retain(|edge| «!ends(edge)»);\n        })\n    }\n\n    /// Changes",
            "true",
        ),
        waits.fault("a stop skips later changes too", "if «waiter.latest <= seen» {", "true"),
        waits.fault(
            "a successor starts after any run of its predecessor",
            "edges.retain(|edge| «edge.on != lane || edge.later»);",
            "edge.on != lane",
        ),
        steps.fault("successors wait for a plugin that is delayed", "if «!self.turns.is_delayed(lane)» {", "true"),
        steps.fault("a chain runs once for each write", "if «cause == Cause::Written» {", "false"),
        ordered.fault(
            "waits for a delayed plugin are never passed",
            "«self.free(freed, &object, now);»\n            passed = true;",
            "",
        ),
        order.fault("a phase does not bind", "«first.phase < second.phase» || in_phase()", "false"),
        order.fault(
            "a name does not bind through others",
            "let in_phase = || first.phase == second.phase && «second.earlier.contains(&before)»;",
            "false",
        ),
    ]
}
