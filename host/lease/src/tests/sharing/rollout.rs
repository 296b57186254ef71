//! Rolling updates of replicas that share the shards: how often each shard changes hands.

use super::{CALM, Counts, Event, Input, Random, Replica, SECOND, Shards, Simulation, number, run_all};

/// When the replicas have shared the shards out, and the update begins.
const BEGIN: u64 = CALM + 60 * SECOND;
/// For the last balance: one shard after another.
const BALANCE: u64 = 100 * SECOND;

/// How often a shard was taken during the update, and after it.
const UPDATED: [&str; 5] = ["never", "once", "twice", "three times", "four times"];
const BALANCED: [&str; 4] = ["balanced", "moved for the balance", "moved twice for the balance", "moved three times"];

impl Simulation {
    /// Replicas without faults. Those that are stopped start again as the new ones; with a `surge` one more starts
    /// before the first is stopped, and the last one that is stopped does not start again.
    fn rollout(seed: u64, surge: bool) -> Self {
        let mut random = Random(seed);
        let old = random.between(2, 5);
        let mut this = Self::of_replicas(seed, random, old + u64::from(surge), false, false);
        let old = old as usize;
        for index in 0..old {
            let at = this.random.between(0, 3 * SECOND);
            this.schedule(at, index, Event::Start);
        }
        let mut at = BEGIN;
        if surge {
            this.schedule(at, old, Event::Start);
            this.last = Some(old - 1);
        }
        for index in 0..old {
            // Kubernetes stops the next Pod when a new one is ready.
            at += this.random.between(10 * SECOND, 25 * SECOND);
            this.schedule(at, 0, Event::Roll(index));
        }
        this.schedule(at + 15 * SECOND, 0, Event::Roll(old));
        this.end = at + BALANCE;
        this
    }

    pub(super) fn roll(&mut self, stops: usize) {
        if stops == 0 {
            let old = self.replicas.iter().filter(|replica| replica.held() > 0).count();
            assert!(old >= 2, "seed {}: {old} replicas hold shards", self.seed);
            self.takes = [0; Shards::COUNT];
        }
        let old = self.replicas.len() - usize::from(self.last.is_some());
        if stops == old {
            for takes in std::mem::take(&mut self.takes) {
                self.count(UPDATED[takes as usize]);
            }
            return;
        }
        self.step_all(stops, &Input::Stop);
    }

    /// Returns how many shards were taken how often during the update, and in the balance after it.
    fn takes(mut self) -> Counts {
        self.run_events();
        let held: Vec<_> = self.replicas.iter().map(Replica::held).filter(|held| *held > 0).collect();
        assert_eq!(held.iter().sum::<usize>(), Shards::COUNT, "seed {}: {held:?}", self.seed);
        assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1, "seed {}: {held:?}", self.seed);
        for takes in self.takes {
            self.count(BALANCED[takes as usize]);
        }
        self.counts.retain(|name, _| UPDATED.contains(name) || BALANCED.contains(name));
        self.counts
    }
}

/// docs/operating.md has the figures of 12 seeds. `PODIUM_ROLLOUT_SEEDS` is the number of seeds.
#[test]
fn a_rolling_update_moves_most_shards_once_and_none_often() {
    let seeds = number("PODIUM_ROLLOUT_SEEDS").unwrap_or(4);
    for (surge, once) in [(true, 75), (false, 50)] {
        let counts = run_all(seeds, |seed| Simulation::rollout(seed, surge).takes());
        let count = |name| counts.get(name).copied().unwrap_or_default();
        let shards = seeds * Shards::COUNT as u64;
        assert_eq!(count(UPDATED[0]) + count(UPDATED[4]), 0, "surge {surge}: {counts:?}");
        assert!(count(UPDATED[1]) * 100 >= shards * once, "surge {surge}: {counts:?}");
    }
}
