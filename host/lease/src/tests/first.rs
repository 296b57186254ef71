//! How long shards are shared: by the reads of the first Lease.

use std::time::Duration;

use podium_vocabulary::Shards;

use crate::{Answer, Call, Effect, Fitness, Input, Mode, Part, Record, Sharing, State};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(8);

/// A replica that reads Leases of others.
struct Replica {
    sharing: Sharing,
    now: Duration,
    /// The requests under way.
    asked: Vec<(usize, u64, Call)>,
}

fn record(renewal: u64, shared: bool) -> Record {
    let (holder, wanted) = ("other".to_owned(), String::new());
    Record { holder, term: 4, renewal, duration: LEASE, mark: None, shared, wanted }
}

impl Replica {
    fn new() -> Self {
        let now = 1_000 * SECOND;
        let sharing = Sharing::new("me".to_owned(), LEASE, Mode::All, now);
        let mut this = Self { sharing, now, asked: Vec::new() };
        for part in Part::ALL {
            let effects = this.sharing.step_all(&Input::Beat(part), now);
            this.applied(effects);
        }
        for lease in 0..=Shards::COUNT {
            let effects = this.sharing.step(lease, Input::Fitness(Fitness::Fit), now);
            this.applied(effects);
        }
        this
    }

    fn applied(&mut self, effects: Vec<(usize, Effect)>) {
        for (lease, effect) in effects {
            if let Effect::Send { request, call, .. } = effect {
                self.asked.push((lease, request, call));
            }
        }
    }

    /// Answers all requests, reads of the first Lease with this record and others without a Lease, after a tenth of a
    /// second. Returns when the first Lease was asked for.
    fn reads(&mut self, first: &Record) -> Duration {
        while !self.asked.iter().any(|(lease, ..)| *lease == 0) {
            self.now = self.sharing.due().max(self.now + SECOND / 100);
            let effects = self.sharing.step_all(&Input::Tick, self.now);
            self.applied(effects);
        }
        let sent = self.now;
        self.now += SECOND / 10;
        for (lease, request, call) in std::mem::take(&mut self.asked) {
            let answer = match (lease, call) {
                (0, Call::Read) => Answer::Read(Some((first.renewal.to_string(), Ok(first.clone())))),
                (_, Call::Read) => Answer::Read(None),
                _ => Answer::Failed,
            };
            let effects = self.sharing.step(lease, Input::Answer { request, answer }, self.now);
            self.applied(effects);
        }
        sent
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
