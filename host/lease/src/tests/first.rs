//! How long shards are shared: by the reads of the first Lease. Also which shard is asked for beside an unusable one.

use std::time::Duration;

use podium_vocabulary::Shards;

use crate::{Answer, Call, Effect, Fitness, Input, Mode, Part, Record, Sharing, State, Unusable};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(8);

/// A replica that reads Leases of others.
struct Replica {
    sharing: Sharing,
    now: Duration,
    /// The requests under way.
    asked: Vec<(usize, u64, Call)>,
    /// The latest record that this replica wrote into the first Lease.
    wrote: Option<Record>,
    /// The Lease of a shard, as a read finds it.
    shard: fn(usize, Duration) -> Option<Result<Record, Unusable>>,
    /// It has asked for a shard.
    wants: bool,
}

fn record(renewal: u64, shared: bool) -> Record {
    let holder = "other".to_owned();
    Record { holder, term: 4, renewal, duration: LEASE, mark: None, shared, wanted: String::new() }
}

impl Replica {
    fn new() -> Self {
        Self::with_duration(LEASE)
    }

    fn with_duration(duration: Duration) -> Self {
        let now = 1_000 * SECOND;
        let sharing = Sharing::new("me".to_owned(), duration, Mode::All, now);
        let mut this = Self { sharing, now, asked: Vec::new(), wrote: None, shard: |_, _| None, wants: false };
        this.beats();
        for lease in 0..=Shards::COUNT {
            let effects = this.sharing.step(lease, Input::Fitness(Fitness::Fit), now);
            this.applied(effects);
        }
        this
    }

    fn beats(&mut self) {
        for part in Part::ALL {
            let effects = self.sharing.step_all(&Input::Beat(part), self.now);
            self.applied(effects);
        }
    }

    fn applied(&mut self, effects: Vec<(usize, Effect)>) {
        for (lease, effect) in effects {
            if let Effect::Send { request, call, .. } = effect {
                self.asked.push((lease, request, call));
            }
        }
    }

    /// Answers all requests after a tenth of a second: reads of the first Lease with this record, writes of it with
    /// success, and those of others with nothing. Returns when the first Lease was asked for.
    fn answers(&mut self, first: Option<&Record>) -> Duration {
        while !self.asked.iter().any(|(lease, ..)| *lease == 0) {
            self.now = self.sharing.due().max(self.now + SECOND / 100);
            let effects = self.sharing.step_all(&Input::Tick, self.now);
            self.applied(effects);
            self.beats();
        }
        let sent = self.now;
        self.now += SECOND / 10;
        for (lease, request, call) in std::mem::take(&mut self.asked) {
            let answer = match (lease, call) {
                (0, Call::Read) => Answer::Read(first.map(|record| (record.renewal.to_string(), Ok(record.clone())))),
                (0, Call::Create(record) | Call::Update { record, .. }) => {
                    let revision = record.renewal.to_string();
                    self.wrote = Some(record);
                    Answer::Written(revision)
                }
                (_, Call::Read) => {
                    let found = (self.shard)(lease, self.now);
                    Answer::Read(found.map(|found| (self.now.as_micros().to_string(), found)))
                }
                (_, Call::Create(record) | Call::Update { record, .. }) => {
                    self.wants |= record.wanted == "me";
                    Answer::Failed
                }
            };
            let effects = self.sharing.step(lease, Input::Answer { request, answer }, self.now);
            self.applied(effects);
        }
        sent
    }

    fn reads(&mut self, first: &Record) -> Duration {
        self.answers(Some(first))
    }
}

#[test]
fn shards_are_shared_for_seven_eighths_after_a_change_that_was_seen() {
    let mut replica = Replica::new();
    replica.reads(&record(1, true));
    assert_eq!(replica.sharing.open(), Duration::ZERO, "it may have been so for long");
    let before = replica.reads(&record(1, true));
    assert_eq!(replica.sharing.open(), Duration::ZERO, "it is as before");
    let changed = replica.reads(&record(2, true));
    assert_eq!(replica.sharing.open(), before + 7 * SECOND, "it has changed since then");
    replica.reads(&record(2, true));
    assert_eq!(replica.sharing.open(), before + 7 * SECOND, "it is as before");
    assert!(changed > before);
}

#[test]
fn a_first_lease_of_one_that_runs_all_plugins_shares_nothing() {
    let mut replica = Replica::new();
    for renewal in 1..10 {
        replica.reads(&record(renewal, false));
        assert_eq!(replica.sharing.open(), Duration::ZERO);
    }
    assert!(replica.sharing.leases().iter().all(|lease| lease.state() == State::Standby));
    assert_eq!(Sharing::new("me".to_owned(), LEASE, Mode::One, SECOND).open(), Duration::MAX);
}

#[test]
fn a_first_lease_that_this_replica_created_opens_nothing() {
    let mut replica = Replica::new();
    // One that runs all plugins by itself acts until its next renewal, for up to seven seconds.
    for renewal in 1..4 {
        replica.reads(&record(renewal, false));
    }
    let deleted = replica.now;
    replica.answers(None);
    while replica.wrote.is_none() {
        replica.answers(None);
    }
    let created = replica.wrote.clone().unwrap();
    assert_eq!((&*created.holder, created.term, created.shared), ("", 0, true));
    while replica.wrote.as_ref() == Some(&created) {
        assert_eq!(replica.sharing.open(), Duration::ZERO, "{:?} after the deletion", replica.now - deleted);
        replica.reads(&created);
    }
    assert!(replica.now - deleted >= LEASE);
    assert_eq!(replica.wrote.as_ref().map(|record| (&*record.holder, record.term)), Some(("me", 5)));
    assert!(replica.sharing.open() > replica.now, "it was taken");
}

#[test]
fn a_first_lease_of_another_holder_or_term_opens_nothing_by_itself() {
    let held = |holder: &str, term, renewal| {
        let holder = holder.to_owned();
        Record { holder, term, ..record(renewal, true) }
    };
    // As after a restore to the state before the replica acts that runs all plugins by itself.
    let one = Record { holder: "one".to_owned(), term: 5, ..record(9, false) };
    for (before, restored) in [(one, held("other", 4, 3)), (held("third", 4, 9), held("other", 5, 3))] {
        let mut replica = Replica::new();
        replica.reads(&before);
        replica.reads(&restored);
        assert_eq!(replica.sharing.open(), Duration::ZERO, "{before:?}");
        let known = replica.reads(&restored);
        replica.reads(&Record { renewal: 4, ..restored });
        assert_eq!(replica.sharing.open(), known + 7 * SECOND, "{before:?}");
    }
}

#[test]
fn shards_are_shared_no_longer_than_the_record_of_the_first_lease_lasts() {
    let mut replica = Replica::with_duration(60 * SECOND);
    let known = replica.reads(&record(1, true));
    replica.reads(&record(2, true));
    // A replica with 8 s that runs all plugins by itself takes this Lease after 8 s.
    assert_eq!(replica.sharing.open(), known + 7 * SECOND);
    let mut replica = Replica::new();
    let longer = |renewal| Record { duration: 60 * SECOND, ..record(renewal, true) };
    let known = replica.reads(&longer(1));
    replica.reads(&longer(2));
    assert_eq!(replica.sharing.open(), known + 7 * SECOND, "its own duration");
}

#[test]
fn sharing_ends_with_a_first_lease_of_one_that_runs_all_plugins() {
    let mut replica = Replica::new();
    replica.reads(&record(1, true));
    replica.reads(&record(2, true));
    assert!(replica.sharing.open() > replica.now);
    replica.reads(&record(3, false));
    assert_eq!(replica.sharing.open(), Duration::ZERO);
}

#[test]
fn a_lease_that_cannot_be_used_keeps_no_other_shard_from_being_shared() {
    let mut replica = Replica::new();
    replica.shard = |lease, now| {
        Some(if lease == 3 { Err(Unusable::Format("x".to_owned())) } else { Ok(record(now.as_micros() as u64, true)) })
    };
    let end = replica.now + 45 * SECOND;
    for renewal in 1.. {
        replica.reads(&record(renewal, true));
        if replica.wants || replica.now > end {
            break;
        }
    }
    assert!(replica.wants, "of 15 shards, which another replica holds");
}
