//! Faults of the queue: keys, turns, tokens, memory and order.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    [slots(), rests(), turns(), tokens(), order()].concat()
}

fn slots() -> Vec<Fault> {
    let slots = In { file: "host/engine/src/queue/slots.rs", tests: "queue::" };
    let wakes = In { file: "host/engine/src/queue/mod.rs", tests: "queue::" };
    vec![
        wakes.fault(
            "a worker sleeps beyond an earlier time",
            "let is_useful = «is_earlier» || slots.has_ready()",
            "false",
        ),
        wakes.fault("a worker is woken for nothing", "if «is_useful» {", "true"),
        slots.fault("a key added during its run is lost", "dirty => «*dirty = Some(steps)»,", "drop(dirty.take())"),
        slots.fault(
            "a key added during its run waits for a second",
            "item.steps = Steps { why: steps.why.and(why.without(Why::REQUEUE)), «..due» };",
            "..Steps::one((now + Duration::from_secs(1), 0), false, why)",
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
        slots.fault(
            "an event does not end a delay",
            "«waiting.steps = Steps { why: unanswered.and(steps.why), ..steps };»",
            "_ = unanswered;",
        ),
        slots.fault(
            "a conflict waits as long as a failure",
            "«self.backoff.most.min(CONFLICT_WAIT)»",
            "self.backoff.most",
        ),
        slots.fault(
            "a key of a reloaded plugin runs beside its run of before",
            "SlotStage::Running => «slot.at = SlotStage::Orphaned»,",
            "slot.items.clear()",
        ),
        slots.fault(
            "delayed keys outlive their plugin",
            "SlotStage::Parked(_, Some(due)) => «drop(delayed.remove(&due))»,",
            "{}",
        ),
        In { file: "host/engine/src/queue/mod.rs", tests: "queue::" }.fault(
            "a closed queue hands out keys",
            "«self.slots.lock().closed = true;»",
            "",
        ),
        In { file: "host/engine/src/queue/parking.rs", tests: "queue::" }.fault(
            "a requeue is a step of before",
            "found.is_due(now) && «found.steps.first <= item.steps.first»;",
            "found.steps.first.1 <= item.steps.first.1",
        ),
        slots.fault("examinations cost nothing", "self.turns.charge_cost(lane, JOB, now);", ""),
        slots.fault(
            "a key that waited goes to the end of its lane",
            "waiting.remove(&since);\n                }\n                «Some(since)»",
            "None",
        ),
        slots.fault(
            "items behind one that is tried again wait for it",
            "let from = usize::from(«running»);",
            "!running",
        ),
        slots.fault(
            "a successor starts after any run of its predecessor",
            "item.steps = Steps { why: steps.why.and(why.without(Why::REQUEUE)), «..due» };",
            "first: (now, u64::MAX), ..due",
        ),
        slots.fault(
            "a successor waits for a plugin that is removed",
            "parked.into_iter().for_each(|slots| «self.free_all(slots, now)»);",
            "drop(slots)",
        ),
    ]
}

fn rests() -> Vec<Fault> {
    let slots = In { file: "host/engine/src/queue/slots.rs", tests: "queue::" };
    vec![
        slots.fault("a change ends a rest", "let steps = «steps.not_before(waiting.rest)»;", "steps"),
        slots.fault("an item rests from a run that did not start", "Next::Postponed(_) => «item.rest = None»,", "{}"),
        slots.fault("a change during a run ends its rest", "let due = «steps.not_before(item.rest)»;", "steps"),
        slots.fault("an item that rests is run without a reason", "«!self.is_resting && »self.due() <= now", ""),
    ]
}

fn turns() -> Vec<Fault> {
    let turns = In { file: "host/engine/src/queue/turns.rs", tests: "queue::" };
    let tenant = In { file: "host/engine/src/queue/turns/tenant.rs", tests: "queue::" };
    vec![
        turns.fault("a tenant is not charged what its run cost", "tenant.account.correct(charged, «used»);", "charged"),
        turns.fault("a plugin is not charged what its run cost", "state.account.correct(charged, «used»);", "charged"),
        turns.fault(
            "a lane is forgotten before its job is done",
            "let has_jobs = «state.jobs > 0»;",
            "state.placed > 0",
        ),
        turns.fault("a tenant may take every worker", "«tenant.runs >= runs»", "false"),
        turns.fault("deliveries of a tenant have no bound", "«tenant.jobs >= jobs»", "false"),
        turns.fault("no worker is kept", "let only_light = «idle <= self.occupancy.kept()»;", "false"),
        turns.fault("credit has no bound", "«self.present.cap_credit(&mut tenant.account);»", ""),
        turns.fault("memory is not freed", "«self.memory = self.memory.saturating_sub(claim.bytes);»", ""),
        tenant.fault(
            "a run that does not fit is passed for a second by any number",
            "«started - self.from >= u64::from(passed)» ||",
            "false",
        ),
        tenant.fault(
            "a run that does not fit is passed by 32 however long that takes",
            "|| «now.saturating_duration_since(self.since) >= waited»",
            "now < self.since",
        ),
        turns.fault(
            "a run that does not fit the memory of all is passed for ever",
            "«self.wait_beyond(number, left, free, now);»",
            "",
        ),
        turns.fault(
            "a run that does not fit its tenant's half is passed for ever",
            "«self.wait_beyond(number, self.budget.of_tenant(), left, now);»",
            "",
        ),
        turns.fault(
            "a run that does not fit keeps no memory free",
            "// All free memory is kept for it.\n                Some(_) => «0»,",
            "free",
        ),
        tenant.fault(
            "a plugin takes the last place of its tenant",
            "if «self.has_last_place» { self.first(most, 1)",
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
            "if tokens.writes && «tenant.tokens.is_closed(lane, now)» {",
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
    let parking = In { file: "host/engine/src/queue/parking.rs", tests: "queue::" };
    let order = In { file: "host/engine/src/queue/order.rs", tests: "queue::" };
    vec![
        parking.fault(
            "a wait for a leading plugin lasts too long",
            "const LEADING: Duration = «Duration::from_millis(100)»;",
            "Duration::from_secs(100)",
        ),
        parking.fault("a stop skips later changes too", "let is_later = «steps.latest.1 > job.number»;", "false"),
        parking.fault(
            "changes without end keep a successor waiting",
            "found.is_due(now) && «found.steps.first <= item.steps.first»;",
            "true",
        ),
        parking.fault(
            "a successor does not wait for a predecessor of its own step",
            "found.steps.first «<=» item.steps.first",
            "<",
        ),
        parking.fault(
            "successors wait for a plugin that is delayed",
            "(state.runs(&item.item) || «!self.turns.is_delayed(lane)»)",
            "true",
        ),
        parking.fault(
            "waits for a delayed plugin are never passed",
            "found.iter().for_each(|slot| «self.free(lane, slot, now)»);",
            "_ = (slot, now)",
        ),
        parking.fault(
            "the end of a run frees none that waits",
            "let Some(lanes) = «slots.remove(slot)» else",
            "None::<Lanes<L>>.filter(|_| slots.contains_key(slot))",
        ),
        order.fault(
            "a phase does not bind",
            "(0..group.len()).filter(|of| «group[*of].phase < group[at].phase»);",
            "*of > group.len()",
        ),
        order.fault("a name does not bind through others", "let mut with_own = «all.clone()»;", "none.clone()"),
    ]
}
