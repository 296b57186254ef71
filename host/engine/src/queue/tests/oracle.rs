//! A naive scheduler that looks at every key: the promises of the queue written down a second time.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

pub(super) const BUDGET: u64 = 256 << 20;
pub(super) const WORKERS: usize = 8;
/// The lane of which an item rests between two jobs, and for how long.
pub(super) const RESTING: u8 = 4;
pub(super) const REST: Duration = Duration::from_millis(900);

/// Lane, name and incarnation. Lanes 0 to 2 are one tenant, lanes 3 to 5 another one.
pub(super) type Key = (u8, u8, u8);
pub(super) type TestJob = Job<u8, u8, u8>;

pub(super) struct Running {
    pub(super) job: TestJob,
    /// The operation that took it.
    began: usize,
    /// The last operation that added it since.
    dirty: Option<usize>,
    pub(super) orphaned: bool,
    pub(super) ran: bool,
}

#[derive(Default)]
pub(super) struct Oracle {
    /// The earliest start of each key that has to be run, and the last operation that added it.
    pub(super) waiting: BTreeMap<Key, (Option<Instant>, usize)>,
    /// The first operation that added a key since its latest start; 0 if it waited for a time before.
    since: BTreeMap<Key, usize>,
    failures: BTreeMap<Key, u32>,
    pub(super) running: Vec<Running>,
    /// The lanes of which a job that began after this operation has to be done before the key is run.
    pub(super) first: BTreeMap<Key, BTreeMap<u8, usize>>,
    /// When a key of [`RESTING`] may run again.
    rested: BTreeMap<Key, Instant>,
    /// Keys that a stop may have removed.
    pub(super) unsure: BTreeSet<Key>,
    pub(super) operation: usize,
}

pub(super) fn key(job: &TestJob) -> Key {
    (job.lane, job.slot, job.item)
}

impl Oracle {
    pub(super) fn add(&mut self, order: &Order<u8>, keys: &[Key], is_step: bool) {
        for key in keys {
            let is_dirty = |of: &Running| of.dirty.is_some() && !of.orphaned && self::key(&of.job) == *key;
            let is_new = !self.waiting.contains_key(key) && !self.unsure.contains(key);
            let is_new = is_new && !self.running.iter().any(is_dirty);
            if is_step && is_new {
                // None waits for a key that rests.
                let before = keys.iter().map(|(lane, ..)| *lane).filter(|lane| *lane != RESTING);
                let before = before.filter(|lane| order.binds(*lane, key.0));
                self.first.insert(*key, before.map(|lane| (lane, self.operation)).collect());
            }
            let is_delayed = self.waiting.get(key).is_some_and(|(due, _)| due.is_some());
            self.since.entry(*key).or_insert(if is_delayed { 0 } else { self.operation });
            match self.running.iter_mut().find(|running| !running.orphaned && self::key(&running.job) == *key) {
                Some(running) => running.dirty = Some(self.operation),
                None => drop(self.waiting.insert(*key, (None, self.operation))),
            }
            self.unsure.remove(key);
        }
    }

    /// No key waits any more for a job of this one that begins after operations since `began`.
    fn end(&mut self, (lane, name, item): Key, began: usize) {
        let same = self.first.iter_mut().filter(|((_, of, its), _)| (*of, *its) == (name, item));
        same.for_each(|(_, first)| first.retain(|of, since| *of != lane || *since >= began));
    }

    pub(super) fn forget(&mut self, key: Key) {
        self.waiting.remove(&key);
        self.since.remove(&key);
        self.failures.remove(&key);
        self.first.remove(&key);
        self.unsure.remove(&key);
        self.end(key, usize::MAX);
    }

    /// The key was removed, and with it its rest.
    pub(super) fn remove(&mut self, key: Key) {
        self.forget(key);
        self.rested.remove(&key);
    }

    fn count(&self, tenant: Option<u8>, runs_only: bool) -> impl Iterator<Item = &Running> {
        let is_of = move |running: &&Running| tenant.is_none_or(|tenant| running.job.lane / 3 == tenant);
        self.running.iter().filter(is_of).filter(move |running| !(runs_only && running.ran))
    }

    /// Checks that this job may start now, and starts it.
    pub(super) fn take(&mut self, job: TestJob, scarce: bool, now: Instant) {
        let key = key(&job);
        let tenant = job.lane / 3;
        let overlaps = |running: &&Running| (running.job.lane, running.job.slot) == (job.lane, job.slot);
        assert!(self.running.iter().find(overlaps).is_none(), "two at once: {key:?}");
        let waits = self.waiting.remove(&key);
        self.since.remove(&key);
        assert!(waits.is_some_and(|(due, _)| due.is_none_or(|due| due <= now)), "{key:?} is not due: {waits:?}");
        if !self.unsure.remove(&key) {
            assert_eq!(job.attempt, self.failures.get(&key).copied().unwrap_or(0) + 1, "{key:?}");
        }
        let rested = self.rested.insert(key, now + if key.0 == RESTING { REST } else { Duration::ZERO });
        assert!(rested.is_none_or(|rested| rested <= now), "{key:?} does not rest");
        let first = self.first.remove(&key).unwrap_or_default();
        assert!(scarce || first.is_empty(), "{key:?} runs before {first:?}");
        self.running.push(Running { job, began: self.operation, dirty: None, orphaned: false, ran: false });
        let occupancy = Occupancy::new(WORKERS);
        assert!(self.count(Some(tenant), true).count() <= occupancy.runs_of_tenant(), "runs of a tenant");
        assert!(self.count(Some(tenant), false).count() <= occupancy.jobs_of_tenant(), "jobs of a tenant");
        let bytes = |tenant| self.count(tenant, true).filter_map(|of| of.job.claim).map(|of| of.bytes).sum::<u64>();
        assert!(bytes(None) <= BUDGET && bytes(Some(tenant)) <= BUDGET / 2, "memory");
    }

    /// Checks that no key is left that nothing holds up: it is the only one of its name that is due or running.
    pub(super) fn rests(&self, now: Instant) {
        let occupancy = Occupancy::new(WORKERS);
        let has_rested = |key: &Key| self.rested.get(key).is_none_or(|rested| *rested <= now);
        let is_due = |(due, _): &(Option<Instant>, usize)| due.is_none_or(|due| due <= now);
        // After a failure the time is the earliest of the jitter's.
        let jitter = |key| match self.failures.get(key) {
            None | Some(0) => Duration::ZERO,
            Some(failures) => Backoff::default().doubled(*failures) / 2,
        };
        let is_surely_due = |key, due: &Option<Instant>| due.is_none_or(|due| due + jitter(key) <= now);
        let certain = self.waiting.iter().filter(|(key, _)| !self.unsure.contains(key));
        let certain = certain.filter(|(key, (due, _))| is_surely_due(key, due) && has_rested(key));
        for ((lane, name, item), _) in certain {
            let others = self.waiting.iter().filter(|(key, due)| key.1 == *name && is_due(due)).count() - 1;
            let runs = self.running.iter().filter(|running| running.job.slot == *name).count();
            let has_place = self.count(Some(lane / 3), true).count() < occupancy.runs_of_tenant()
                && self.count(Some(lane / 3), false).count() < occupancy.jobs_of_tenant();
            assert!(others + runs > 0 || !has_place, "{:?} is left", (lane, name, item));
        }
    }

    pub(super) fn done(&mut self, at: usize, next: Next, now: Instant) {
        let Running { job, began, dirty, orphaned, .. } = self.running.swap_remove(at);
        let key = key(&job);
        if orphaned {
            return;
        }
        // A stop may have removed the next run, and with it all that is known of the key.
        if matches!(next, Next::Postponed(_)) || next == Next::Ended && self.unsure.contains(&key) {
            self.rested.remove(&key);
        }
        self.end(key, if next == Next::Final { usize::MAX } else { began });
        let failures = self.failures.entry(key).or_default();
        let due = match next {
            Next::Settled | Next::Final | Next::Ended => None,
            Next::After(delay) | Next::Again(delay) | Next::Postponed(delay) | Next::FailedFor(delay) => {
                Some(now + delay)
            }
            Next::Failed | Next::Conflict => Some(now + Backoff::default().doubled(*failures + 1) / 2),
        };
        *failures = match next {
            Next::Postponed(_) => *failures,
            next => {
                if next.is_failure() {
                    *failures + 1
                } else {
                    0
                }
            }
        };
        match (dirty.filter(|_| next != Next::Final), due) {
            (Some(added), _) => drop(self.waiting.insert(key, (None, added))),
            (None, Some(due)) => drop(self.waiting.insert(key, (Some(due), usize::MAX))),
            (None, None) if next == Next::Ended => self.remove(key),
            (None, None) => self.forget(key),
        }
    }

    /// Notes the keys that a stop of a running job may remove.
    pub(super) fn stop(&mut self, order: &Order<u8>, at: usize) {
        let key = key(&self.running[at].job);
        let began = self.running[at].began;
        let is_after = |other: &Key| (other.1, other.2) == (key.1, key.2) && order.binds(key.0, other.0);
        let waiting = self.waiting.iter().map(|(other, (_, added))| (*other, *added));
        let dirty = self.running.iter().filter_map(|of| Some((self::key(&of.job), of.dirty?)));
        for (other, added) in waiting.chain(dirty).filter(|(other, _)| is_after(other)).collect::<Vec<_>>() {
            if added >= began {
                // It stays for the later causes: since the first of them, or since the last if it waited before.
                let is_known = self.since.get(&other).is_some_and(|since| *since >= began);
                self.end(other, if is_known { began } else { added });
                if !is_known {
                    self.since.insert(other, added);
                }
                continue;
            }
            self.first.remove(&other);
            self.end(other, usize::MAX);
            self.unsure.insert(other);
        }
    }
}
