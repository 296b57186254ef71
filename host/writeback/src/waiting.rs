//! The waiting Events of one plugin. Pure.
//!
//! Each namespace has a queue, oldest first, and the queues take turns: the reason why an Event waits, such as a
//! missing right or a slow webhook, usually concerns only its namespace and must not delay others.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use podium_engine::{ports::Sender, throttle::Backoff};
use podium_vocabulary::Event;
use tokio::time::Instant;

use super::digest::Digest;

/// The most waiting Events of one plugin; some 1.5 KiB each.
pub(super) const CAPACITY: usize = 1_000;
/// The API server keeps an Event for an hour by default, so an Event that has waited that long is dropped.
const LONGEST: Duration = Duration::from_secs(3_600);
/// The pause of a namespace after a failed Event. Each further failure doubles it.
const PAUSE: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_secs(300) };

/// An Event with its final note and name.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub sender: Sender,
    pub event: Event,
    pub note: String,
    pub digest: Digest,
    /// The wall-clock time of emission, for people.
    pub at_millis: u64,
    /// The same time on the monotonic clock.
    pub since: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Queues by namespace; none is empty.
    queues: BTreeMap<Arc<str>, NamespaceQueue>,
    /// The digests of all entries.
    digests: BTreeSet<Digest>,
    /// The namespace of the latest turn.
    last: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct NamespaceQueue {
    entries: VecDeque<Entry>,
    failures: u32,
    /// The end of the pause after a failure.
    retry_at: Option<Instant>,
}

impl NamespaceQueue {
    fn is_open(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| now >= at)
    }
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.digests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.digests.contains(digest)
    }

    /// Returns true if an Event of the namespace may be sent before the waiting ones, because each of them is in
    /// another namespace that pauses after a failure.
    pub(super) fn lets_pass(&self, namespace: &str, now: Instant) -> bool {
        !self.queues.contains_key(namespace) && !self.queues.values().any(|queue| queue.is_open(now))
    }

    /// Adds an Event. Returns false if the queue is full.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        if self.len() >= CAPACITY {
            return false;
        }
        if self.digests.insert(entry.digest) {
            self.queues.entry(entry.event.target.namespace.clone()).or_default().entries.push_back(entry);
        }
        true
    }

    /// Removes and returns the Events that meet the condition.
    pub(super) fn take(&mut self, condition: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let mut taken = Vec::new();
        for queue in self.queues.values_mut() {
            if queue.entries.iter().any(&condition) {
                let (out, rest): (Vec<_>, Vec<_>) = queue.entries.drain(..).partition(&condition);
                queue.entries = rest.into();
                taken.extend(out);
            }
        }
        for entry in &taken {
            self.digests.remove(&entry.digest);
        }
        self.queues.retain(|_, queue| !queue.entries.is_empty());
        taken
    }

    /// Removes and returns the Events that have waited too long.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Entry> {
        self.take(|entry| now.saturating_duration_since(entry.since) >= LONGEST)
    }

    /// Returns the oldest Event of the next namespace that is not pausing. It stays queued until [`Self::done`].
    pub(super) fn next(&mut self, now: Instant) -> Option<Entry> {
        let after = self.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut all = self.queues.range::<str, _>((after, Bound::Unbounded)).chain(&self.queues);
        let (namespace, queue) = all.find(|(_, queue)| queue.is_open(now))?;
        self.last = Some(namespace.clone());
        queue.entries.front().cloned()
    }

    fn remove(&mut self, entry: &Entry) -> Option<Entry> {
        let namespace = &*entry.event.target.namespace;
        let queue = self.queues.get_mut(namespace)?;
        let at = queue.entries.iter().position(|held| held.digest == entry.digest)?;
        let removed = queue.entries.remove(at);
        if queue.entries.is_empty() {
            self.queues.remove(namespace);
        }
        self.digests.remove(&entry.digest);
        removed
    }

    /// Drops the newest Event of the namespace that has the most.
    pub(super) fn shed(&mut self) {
        let most = self.queues.values().max_by_key(|queue| queue.entries.len());
        if let Some(entry) = most.and_then(|queue| queue.entries.back()).cloned() {
            self.remove(&entry);
        }
    }

    /// Removes an Event that was sent or never will be, and ends the pause of its namespace. Returns false if it was
    /// not queued any more.
    pub(super) fn done(&mut self, entry: &Entry) -> bool {
        if let Some(queue) = self.queues.get_mut(&entry.event.target.namespace) {
            queue.failures = 0;
            queue.retry_at = None;
        }
        self.remove(entry).is_some()
    }

    /// Moves an Event that will be retried to the end of its namespace's queue, because its obstacle may not affect
    /// the others, and pauses the namespace.
    pub(super) fn failed(&mut self, entry: &Entry, now: Instant) {
        let Some(queue) = self.queues.get_mut(&entry.event.target.namespace) else { return };
        queue.failures = queue.failures.saturating_add(1);
        queue.retry_at = Some(now + PAUSE.doubled(queue.failures));
        if let Some(at) = queue.entries.iter().position(|held| held.digest == entry.digest)
            && let Some(entry) = queue.entries.remove(at)
        {
            queue.entries.push_back(entry);
        }
    }
}
