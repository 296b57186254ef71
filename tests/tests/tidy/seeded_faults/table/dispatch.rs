//! Faults of dispatch: runs, deletions, expectations, and the breaker.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    [runs(), deletions(), expectations(), breaker()].concat()
}

fn runs() -> Vec<Fault> {
    let module = In { file: "host/engine/src/dispatch/mod.rs", tests: "dispatch::" };
    let delivery = In { file: "host/engine/src/dispatch/delivery.rs", tests: "dispatch::" };
    let state = In { file: "host/engine/src/dispatch/state.rs", tests: "dispatch::" };
    let unsettled = In { file: "host/engine/src/dispatch/unsettled.rs", tests: "dispatch::" };
    let trial = In { file: "host/engine/src/dispatch/trial.rs", tests: "dispatch::" };
    let registry = In { file: "host/engine/src/dispatch/registry.rs", tests: "dispatch::" };
    vec![
        registry.fault(
            "a run of a replaced version outlives the plugin",
            "Some(before) if spec.permits(&before.spec) => «Arc::clone(&before.revocation)»,",
            "Arc::default()",
        ),
        module.fault("a revoked plugin runs", "if let Some(pause) = «plugin.revocation.pause()» {", "None"),
        module.fault("a run starts while its account is held", "if let Some(wait) = «self.held(plugin)» {", "None"),
        module.fault("a run is not noted in the journal", "«entries.enter(of).await;»", ""),
        module.fault(
            "a panic of the host beside a run ends its key",
            "JobResult::without_run(«Next::Failed»)\n    }\n",
            "Next::Settled",
        ),
        delivery.fault(
            "a deletion stops other plugins",
            "let stops = result == Ok(Outcome::Stop) && «!deleted» &&",
            "true",
        ),
        delivery.fault(
            "a deletion is tried for ever",
            "let gave_up = «retried && gone_for.is_some_and(|gone| gone >= GIVE_UP)»;",
            "false",
        ),
        delivery.fault(
            "a plugin requeues its key without a pause",
            "Next::After(delay) => Next::After(«delay.max(LEAST_REQUEUE)»),",
            "delay",
        ),
        delivery.fault("an own write ends the back-off", "«self.keep_backoff(job, &key, &writes);»", ""),
        delivery.fault("a write that was refused settles its key", "Ok(_) if «!unsettled.is_empty()» => {", "false"),
        delivery.fault(
            "writes of a revoked plugin are sent",
            "let delivered = «plugin.revocation.unless_revoked(work).await»;",
            "Some(work.await)",
        ),
        state.fault(
            "a state that was changed meanwhile is overwritten",
            "«self.expect(key, expected)?;»\n        if key.len()",
            "",
        ),
        state.fault("removed state counts for ever", "self.bytes -= bytes;", ""),
        unsettled.fault(
            "reports outlive their key",
            "Done::Forgotten | Done::Orphaned => «drop(inner.take(lane, uid))»,",
            "",
        ),
        trial.fault("a version is replaced by one that fails too", "_ if «before.panicked_lately()» =>", "false"),
    ]
}

fn deletions() -> Vec<Fault> {
    let tombstones = In { file: "host/engine/src/dispatch/tombstones.rs", tests: "dispatch::" };
    let table = In { file: "host/engine/src/dispatch/tombstones/table.rs", tests: "dispatch::" };
    let of_groups = In { tests: "ingest::tests::group", ..tombstones };
    let table_of_groups = In { tests: "ingest::tests::group", ..table };
    let ingest = In { file: "host/engine/src/ingest/mod.rs", ..of_groups };
    let journal = In { file: "host/engine/src/journal/mod.rs", ..of_groups };
    let compaction = In { file: "host/engine/src/journal/file.rs", ..of_groups };
    vec![
        tombstones.fault(
            "a deletion is not delivered to a plugin whose selector the Pod left",
            "«join(&mut lanes, queue.lanes_with(near(key), &slot(key), &key.uid));»",
            "",
        ),
        tombstones.fault(
            "a deletion is delivered twice",
            "«!wake.deleted || inner.is_unseen(wake.lane, &wake.key.uid)»",
            "true",
        ),
        tombstones.fault(
            "a run before the deletion settles it",
            "if «!on_deletion» {\n            return (queue",
            "false",
        ),
        of_groups.fault(
            "a run drops the tombstone of a Pod that is not gone yet",
            "if «left.is_none_or(|Left { uid, at, .. }| has_left(&uid, at))» {",
            "true",
        ),
        of_groups.fault(
            "the end of a group that is back forgets it",
            "Some(_) if next == Next::Settled && «is_group(&job.item)» => Next::Ended,",
            "false",
        ),
        of_groups.fault(
            "the end of a group settles a later one",
            "if «is_group(&job.item) && number.is_some_and(|number| !inner.is_running(job.lane, number))» {",
            "false",
        ),
        ingest.fault(
            "groups end before the first list",
            "if «matches!(self.replay, Replay::AwaitingFirstList(_))» {\n            sweep",
            "false",
        ),
        table_of_groups.fault(
            "a bound on deletions drops the run for a group",
            "self.unsure.extend(«is_group(&key.uid)».then_some(lane));",
            "false",
        ),
        tombstones.fault("ends that were given up are younger again", "None, «job.queued.min(now)»);", "now"),
        ingest.fault(
            "groups of the journal that have Pods count as ended",
            "is_listed(group) && «!sweep.has_group(group)»",
            "true",
        ),
        compaction.fault(
            "a compacted journal keeps each end of a group",
            "&& (!«is_group(uid)» || groups.insert((*plugin, uid.to_string())))",
            "false",
        ),
        journal.fault(
            "the end of a group during a suspension is lost",
            "«self.groups.entry(plugin).or_default().insert(key.uid.clone(), key);»",
            "",
        ),
        table.fault("a Pod that is back stays deleted", "Some(tombstone) => «tombstone.back = true»,", ""),
        table.fault("deletions that fail have no bound", "(«unsettled.len() > bounds.unsettled»)", "false"),
        table.fault("last states have no bound", "while «numbers.len() > most» && excess", "false"),
    ]
}

fn expectations() -> Vec<Fault> {
    let gate = In { file: "host/engine/src/dispatch/gate.rs", tests: "dispatch::" };
    let delivery = In { file: "host/engine/src/dispatch/delivery.rs", tests: "dispatch::" };
    let seen = In { file: "host/engine/src/dispatch/seen.rs", tests: "dispatch::" };
    let ingest = In { file: "host/engine/src/ingest/mod.rs", tests: "ingest::" };
    let journal = In { file: "host/engine/src/journal/mod.rs", tests: "journal::" };
    vec![
        delivery.fault(
            "a key does not wait for its own event",
            "«self.see(job, plugin, &sent.expected, list, &writes).await;»",
            "",
        ),
        delivery.fault("a tenant waits for events in its places", "«self.queue.sent(job);»", ""),
        seen.fault("a write that changed nothing never settles", "«self.listed != list» &&", "true"),
        delivery.fault(
            "expectations of Pods without runs stay",
            "«self.expectations.gates.gate(plugin.lane, key, &*snapshot, Instant::now());»",
            "",
        ),
        gate.fault(
            "a lost history withholds writes for ever",
            "let left = «entry.until».checked_duration_since(now)",
            "(now + PATIENCE)",
        ),
        seen.fault("a later event ends no wait", "first.key().0 «<=» revision", "=="),
        ingest.fault(
            "a delivery does not learn of its event",
            "«self.expectations.seen.up_to(self.reader.snapshot().revision());»",
            "",
        ),
        ingest.fault(
            "a plugin that is loaded late gets no deletions of the journal",
            "if let Some(after) = «sweep.deletions.take()» {",
            "None",
        ),
        ingest.fault(
            "a second list while the journal is read is ignored",
            "|meanwhile| «meanwhile.held = held.clone()»",
            "()",
        ),
        ingest.fault(
            "a new version runs from where the one before was",
            "let mut before = «self.sweeps.iter().position(|sweep| sweep.lane == lane)»",
            "None",
        ),
        journal.fault(
            "a plugin gets the deletions of the one before of its number",
            "self.pending_deletions.remove(&number);",
            "{}",
        ),
        delivery.fault("a write that a list hides is forgotten", "«run.withheld(Instant::now());»", ""),
        ingest.fault(
            "a list hides that a write was undone",
            "«self.expectations.seen.listed(self.reader.snapshot().revision());»",
            "",
        ),
        gate.fault("a write is sent again while its event is late", "|pod| «pod.revision < entry.revision»", "false"),
        gate.fault("a run does not see its plugin's own write", "«pod.revision >= self.revision»", "true"),
        gate.fault("a run does not see its plugin's own deletion", "«(!self.deletion || is_going(&pod))»", "true"),
        gate.fault("time opens the gate", "if now < entry.ask { Gate::Wait } else { «Gate::ReadLive» }", "Gate::Open"),
        gate.fault(
            "a read that failed opens the gate",
            "«entry.read_failed(now);»\n            return;",
            "(entry.unknown, entry.gone, entry.revision) = (false, false, Revision(0));",
        ),
        gate.fault(
            "expectations of Pods that are gone stay",
            "«expected.by_uid.remove(uid)».unwrap_or_default()",
            "None",
        ),
        gate.fault(
            "a history that was set back closes the gate for ever",
            "if «entry.unknown || entry.gone || pod.revision < entry.revision» {",
            "entry.unknown || entry.gone",
        ),
    ]
}

fn breaker() -> Vec<Fault> {
    let breaker = In { file: "host/engine/src/dispatch/breaker.rs", tests: "dispatch::" };
    let values = In { file: "host/engine/src/dispatch/values.rs", tests: "dispatch::" };
    vec![
        breaker.fault("a loop is never slowed", "self.wait = if «is_soon || others >= CHANGES» {", "false"),
        breaker.fault(
            "a loop is slowed without bound",
            "(2 * self.wait).clamp(FIRST_WAIT, LONGEST_WAIT)",
            "(2 * self.wait).max(FIRST_WAIT)",
        ),
        breaker.fault(
            "a Pod that was quiet stays slow",
            "Some(self.wait / 2).filter(|half| «*half >= FIRST_WAIT»)",
            "true",
        ),
        values.fault(
            "a loop holds back the removal of a finalizer",
            "if «value.is_removal» || !held.would_change(field, value.value) {",
            "false",
        ),
        values.fault("writes to one Pod wait for another's", "target.take_if(|(of, _)| «of != pod»);", "false"),
        breaker.fault(
            "a counterpart is the plugin itself",
            "«id.lane != lane» && changes.fields.iter().any(sent)",
            "true",
        ),
        breaker.fault(
            "changes of Pods that are gone stay",
            "gone.iter().for_each(|id| «pods.remove(id)»);",
            "drop(id)",
        ),
        breaker.fault("Pods of a plugin have no bound", "let is_full = «count.pods > MAX_PODS»;", "false"),
    ]
}
