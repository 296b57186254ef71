//! Faults of the Lease: when a replica acts, takes, hands over, and which Leases it refuses.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    [of_the_holder(), of_the_standby(), of_the_form(), of_shards()].concat()
}

fn of_the_holder() -> Vec<Fault> {
    let ownership = In { file: "host/lease/src/ownership.rs", tests: "" };
    let fence = In { file: "host/api/src/fence.rs", tests: "fence::" };
    vec![
        ownership.fault(
            "a holder ignores its deadline",
            "self.term.as_ref().is_some_and(|term| «term.until <= now»)",
            "false",
        ),
        ownership.fault("the deadline is counted from the answer", "let until = «sent» + self.window();", "self.now"),
        ownership.fault("a holder acts for the whole duration", "self.duration - self.duration / 8", "self.duration"),
        ownership.fault(
            "the Lease is released before deliveries end",
            "«leaving.is_closed && (leaving.is_drained || leaving.close <= self.now)»",
            "true",
        ),
        ownership.fault("a part stands still and the holder renews", "Some(part) => «Some(Why::Stuck(part))»", "None"),
        ownership.fault(
            "a renewal is repeated without a read",
            "matches!(answer, Answer::Conflict | Answer::Failed)",
            "false",
        ),
        ownership.fault(
            "an answer to another request counts",
            "self.flight.take_if(|flight| «flight.request == request»)",
            "true",
        ),
        ownership.fault(
            "a holder goes on with an earlier term of its own",
            "record.holder == self.holder && «record.term == term.number»",
            "true",
        ),
        ownership.fault(
            "a replica that has closed its writes gets a new deadline",
            "Some(term) if «term.leaving.is_none()» =>",
            "true",
        ),
        ownership.fault("a better fitness is not noticed", "term.fitness = term.fitness.min(self.fitness);", ""),
        fence.fault("a write may last beyond the deadline", "«left.min(SERVER_TIMEOUT)»", "SERVER_TIMEOUT"),
    ]
}

fn of_the_standby() -> Vec<Fault> {
    let ownership = In { file: "host/lease/src/ownership.rs", tests: "" };
    vec![
        ownership.fault(
            "a Lease with a resource version that was seen counts as unchanged",
            "«is_as_before» && self.seen.as_ref()",
            "true",
        ),
        ownership.fault(
            "the time of a standby begins when it first reads",
            ".map_or(«self.now», |seen| seen.since);",
            "self.seen.as_ref().map_or(self.now, |seen| seen.since)",
        ),
        ownership.fault(
            "a restored release counts",
            "(View::Record(before), View::Record(record)) => «before.term == record.term»",
            "true",
        ),
        ownership.fault("a Lease that was never held is free", "is_next && «record.term > 0»", "true"),
        ownership.fault(
            "every term of this process is free",
            "record.holder == self.holder && «record.renewal == self.wrote»",
            "true",
        ),
        ownership.fault(
            "a replica with a part that stands still takes the Lease",
            "!self.reads_first && «self.stuck().is_none()»",
            "true",
        ),
        ownership.fault("a clock that steps forward counts", "seen.since += beyond;", ""),
        ownership.fault(
            "a standby waits for its own duration only",
            "self.longest = self.longest.max(record.duration);",
            "",
        ),
        ownership.fault(
            "a missing Lease is asked for in a tight loop",
            "None if «is_time» && self.is_missing()",
            "true",
        ),
        ownership.fault("an unfit replica takes the Lease", "«self.fitness != Fitness::Unfit» &&", "true"),
        ownership.fault("a Lease that cannot be read is taken", "&& «matches!(seen.view, View::Record(_))»", "true"),
    ]
}

fn of_the_form() -> Vec<Fault> {
    let form = In { file: "host/lease/src/form.rs", tests: "form::" };
    vec![
        form.fault("a Lease of another format is read", "if «![FORMAT, SHARED].contains(&format)» {", "false"),
        form.fault("a Lease of another installation is read", "if «of != installation» {", "false"),
        In { file: "host/lease/src/mark.rs", tests: "form::" }.fault(
            "a mark leaves unsettled deletions out",
            "«(self.unsettled.len() <= Self::MOST)».then_some(text)",
            "true",
        ),
    ]
}

fn of_shards() -> Vec<Fault> {
    let sharing = In { file: "host/lease/src/sharing.rs", tests: "" };
    let ownership = In { file: "host/lease/src/ownership.rs", tests: "sharing::" };
    vec![
        sharing.fault("any Lease keeps shards shared", "record.shared && «record.renews(before)»", "true"),
        sharing.fault("shards are shared without a Lease that says so", "Mode::All => «self.open»,", "Duration::MAX"),
        sharing.fault(
            "shards are shared for longer than the Lease lasts",
            "known + «window.min(record.duration - record.duration / 8)»",
            "self.duration * 2",
        ),
        sharing.fault(
            "a shard is handed over without a difference",
            "wanted != self.holder && «mine > theirs + 1»",
            "true",
        ),
        sharing.fault("a shard is asked for without a difference", "«*most > mine + 1»", "*most > mine"),
        sharing.fault("a shard is asked for at once", "«|| now < self.calm» {", ""),
        sharing.fault("a shard is never handed over", "self.leases[index].hand_over();", ""),
        ownership.fault(
            "a shared Lease that was released is free for a replica that runs all plugins",
            "record.term > 0 && «(self.shared || !record.shared)»",
            "true",
        ),
        ownership.fault(
            "a question takes the Lease",
            "«Record { wanted: self.holder.clone(), ..seen.clone() }»",
            "Record { wanted: self.holder.clone(), holder: self.holder.clone(), ..seen.clone() }",
        ),
        ownership.fault("a crash of one replica interrupts the others", "false if «self.hurries» =>", "false"),
    ]
}
