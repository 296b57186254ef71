//! The Events that one plugin has sent, and the next step for a new one.

#![expect(
    clippy::disallowed_methods,
    reason = "tenants choose the keys, so their hashes must not be known; the order is that of use"
)]

use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};

use lru::LruCache;
use podium_engine::throttle::{Bucket, Rate};
use podium_vocabulary::{Event, EventResult};
use tokio::time::Instant;

use super::event_type;
use crate::{digest::Digest, waiting::Waiting};

/// The bounds of client-go's spam filter: 25 at once, then one every 5 minutes, for each source and object.
/// An Event takes as many tokens as seconds pass until it is made up for.
const POD_RATE: Rate = Rate { per_second: 1, burst: 25 * POD_EVENT };
const POD_EVENT: u32 = 300;
/// The rate of all Events of a plugin: a burst after a restart, then two a second.
const PLUGIN_RATE: Rate = Rate { per_second: 2, burst: 500 };
/// The most notes for one reason within the window that stay separate Events, as in client-go.
const SIMILAR: usize = 10;
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// How often a series is updated on the API server. client-go ends a series after 6 minutes of silence.
pub(super) const SERIES: Duration = Duration::from_secs(360);
/// The size of client-go's caches, which are LRU too; at most some 2 MiB per plugin.
pub(super) const CAPACITY: NonZeroUsize = NonZeroUsize::new(4_096).unwrap(); // not 0: the compiler evaluates it

/// The Events of one plugin.
pub(super) struct Memories {
    pub(super) all: Bucket,
    pub(super) sent: LruCache<Digest, SentEvent>,
    buckets: LruCache<Digest, Bucket>,
    similar: LruCache<Digest, Similar>,
    pub(super) waiting: Waiting,
    dropped: u64,
    /// Events that were dropped in favour of other plugins' and are not reported yet.
    pub(super) made_room: usize,
}

/// An Event that the API server has.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentEvent {
    count: u64,
    reported: Instant,
}

#[derive(Debug)]
struct Similar {
    notes: BTreeSet<Digest>,
    since: Instant,
}

/// The next step for an Event.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// It was sent, or is queued.
    Nothing,
    /// Too many Events about one Pod.
    Drop,
    /// Too many Events of one plugin, or others wait already.
    Wait {
        digest: Digest,
        note: String,
    },
    /// It may have been sent before this process began.
    Create {
        digest: Digest,
        note: String,
    },
    Repeat {
        digest: Digest,
        count: u64,
    },
}

impl Memories {
    pub(super) fn new(now: Instant) -> Self {
        let all = Bucket::full(PLUGIN_RATE, now);
        let waiting = Waiting::default();
        let dropped = 0;
        let made_room = 0;
        let sent = LruCache::sparse(CAPACITY);
        let buckets = LruCache::sparse(CAPACITY);
        let similar = LruCache::sparse(CAPACITY);
        Self { all, sent, buckets, similar, waiting, dropped, made_room }
    }

    pub(super) fn step(&mut self, manager: &str, event: &Event, now: Instant) -> Step {
        let about = [manager, &*event.target.uid, event_type(event), &event.reason, &event.action];
        let mut note = event.note.clone();
        let mut digest = Digest::new(&[about.as_slice(), &[note.as_str()]].concat());
        if !self.sent.contains(&digest) && self.is_one_of_many(Digest::new(&about), digest, now) {
            note = combined(&note);
            // Without the note: all of them become one Event.
            digest = Digest::new(&about);
        }
        if self.waiting.has(&digest) {
            return Step::Nothing;
        }
        let mut step = Step::Create { digest, note };
        if let Some(sent) = self.sent.get_mut(&digest) {
            sent.count += 1;
            if now.saturating_duration_since(sent.reported) < SERIES {
                return Step::Nothing;
            }
            step = Step::Repeat { digest, count: sent.count };
        }
        let pod = Digest::new(&[manager, &*event.target.uid]);
        let bucket = self.buckets.get_or_insert_mut(pod, || Bucket::full(POD_RATE, now));
        let may_create = bucket.try_take(POD_EVENT, now);
        if may_create && self.waiting.lets_pass(&event.target.namespace, now) && self.all.try_take(1, now) {
            return step;
        }
        let Step::Create { digest, note } = step else { return Step::Nothing };
        if may_create { Step::Wait { digest, note } } else { Step::Drop }
    }

    /// Counts an Event that will not be sent.
    pub(super) fn drop_one(&mut self, manager: &str) -> EventResult {
        self.dropped += 1;
        if self.dropped.is_power_of_two() {
            tracing::warn!(manager, dropped = self.dropped, "Events dropped");
        }
        EventResult::Dropped
    }

    /// Drops the newest waiting Event in favour of another plugin's.
    pub(super) fn make_room(&mut self, manager: &str) {
        self.waiting.shed();
        self.made_room += 1;
        self.drop_one(manager);
    }

    fn is_one_of_many(&mut self, about: Digest, digest: Digest, now: Instant) -> bool {
        let similar = self.similar.get_or_insert_mut(about, || Similar { notes: BTreeSet::new(), since: now });
        if now.saturating_duration_since(similar.since) >= SIMILAR_WINDOW {
            *similar = Similar { notes: BTreeSet::new(), since: now };
        }
        if similar.notes.len() < SIMILAR {
            similar.notes.insert(digest);
        }
        !similar.notes.contains(&digest)
    }

    pub(super) fn record_sent(&mut self, digest: Digest, count: u64, now: Instant) {
        let sent = self.sent.get_or_insert_mut(digest, || SentEvent { count, reported: now });
        sent.count = sent.count.max(count);
        sent.reported = now;
    }
}

/// Returns the note of a combined Event, at most 1 KiB, which is the API server's bound.
fn combined(note: &str) -> String {
    let mut combined = format!("(combined from similar events): {note}");
    combined.truncate(combined.floor_char_boundary(1 << 10));
    combined
}

#[cfg(test)]
pub(super) mod tests;
