//! Events of one plugin that could not be sent yet, oldest first. Pure.

use std::{
    collections::{HashSet, VecDeque},
    time::Duration,
};

use podium_engine::ports::Sender;
use podium_pods::model::Event;
use tokio::time::Instant;

use super::digest::Digest;

/// Events that wait for one plugin; some 1.5 KiB each.
pub(super) const CAPACITY: usize = 1_000;
/// The API server keeps an Event for an hour by default: one that has waited as long is no longer of use.
const LONGEST: Duration = Duration::from_secs(3_600);
/// How soon Events are tried again after a failure. Doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// An Event with the note and the name that it is sent with.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub sender: Sender,
    pub event: Event,
    pub note: String,
    pub digest: Digest,
    /// The time of day at which it was emitted: for people.
    pub at_millis: u64,
    /// The same on the clock that nobody sets.
    pub since: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    entries: VecDeque<Entry>,
    /// Of `entries`.
    digests: HashSet<Digest>,
    failures: u32,
    retry_at: Option<Instant>,
}

/// What is to be done about the oldest Event.
#[derive(Debug)]
pub(super) enum Due {
    Nothing,
    Send(Entry),
    /// It has waited too long.
    Expired(Entry),
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn has(&self, digest: &Digest) -> bool {
        self.digests.contains(digest)
    }

    /// False where there is no room.
    pub(super) fn push(&mut self, entry: Entry) -> bool {
        if self.entries.len() >= CAPACITY {
            return false;
        }
        if self.digests.insert(entry.digest) {
            self.entries.push_back(entry);
        }
        true
    }

    /// The oldest Event, unless a pause after a failure is under way. It waits until [`Self::done`].
    pub(super) fn due(&mut self, now: Instant) -> Due {
        match self.entries.front().cloned() {
            Some(entry) if now.saturating_duration_since(entry.since) >= LONGEST => {
                self.remove(&entry.digest);
                Due::Expired(entry)
            }
            Some(entry) if self.retry_at.is_none_or(|at| now >= at) => Due::Send(entry),
            Some(_) | None => Due::Nothing,
        }
    }

    fn remove(&mut self, digest: &Digest) -> Option<Entry> {
        self.digests.remove(digest);
        let at = self.entries.iter().position(|entry| entry.digest == *digest)?;
        self.entries.remove(at)
    }

    /// The Event was sent, or never will be.
    pub(super) fn done(&mut self, digest: &Digest) {
        self.remove(digest);
        self.failures = 0;
        self.retry_at = None;
    }

    /// The Event is to be tried again: behind the others, because what keeps it, such as a missing right in its
    /// namespace, need not keep them.
    pub(super) fn failed(&mut self, digest: &Digest, now: Instant) {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + pause);
        if let Some(entry) = self.remove(digest) {
            self.push(entry);
        }
    }
}
