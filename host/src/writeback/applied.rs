//! Objects that plugins applied. Each is remembered only while no other write of the host can have changed it.
//!
//! A write is remembered if it was the only one on its object from its start to its end, and if no response to an
//! earlier one was lost: the API server may execute overlapping writes in either order, and may still execute one
//! whose response was lost.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use lru::LruCache;
use parking_lot::Mutex;
use podium_pods::model::ObjectRef;
use tokio::time::Instant;

use super::digest::Digest;

/// How long an object is assumed to be as applied without a read; another client may have deleted or changed it.
const TRUSTED: Duration = Duration::from_secs(600);
/// How long the API server may still execute a write whose response was lost. It ends a write after its own timeout,
/// of at most 60 s.
const LOST: Duration = Duration::from_secs(60);
/// The most remembered objects, of all plugins; some 200 bytes each.
const MAX_OBJECTS: NonZeroUsize = NonZeroUsize::new(16_384).unwrap(); // not 0: the compiler evaluates it

/// A field manager and an object.
pub(super) type Name = (String, ObjectRef);

/// The memory of all plugins.
pub(super) struct Applied {
    objects: Mutex<Objects>,
}

struct Objects {
    remembered: LruCache<Name, Remembered>,
    /// Writes under way, bounded by the concurrent deliveries.
    sending: BTreeMap<Name, Count>,
}

#[derive(Debug, Clone, Copy)]
enum Remembered {
    Applied {
        digest: Digest,
        at: Instant,
    },
    /// A write whose response was lost was sent at this time.
    Lost {
        at: Instant,
    },
}

/// The number of writes under way on one object.
struct Count {
    now: u32,
    /// Two of them overlapped.
    overlapped: bool,
}

/// The known state of an object before an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectState {
    /// The object equals the body.
    Applied,
    /// The object differs from the body, or a lost write may still change it.
    Different,
    /// A read has to determine the state.
    Unknown,
}

/// The end of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The object equals the body with this digest.
    Applied(Digest, Instant),
    /// The response was lost.
    Lost(Instant),
    Other,
}

/// A write under way. Dropped without [`Sending::end`], it ends as [`End::Other`].
#[must_use]
pub(super) struct Sending<'a> {
    of: &'a Applied,
    name: Name,
    end: End,
}

impl Default for Applied {
    fn default() -> Self {
        let objects = Objects { remembered: LruCache::sparse(MAX_OBJECTS), sending: BTreeMap::new() };
        Self { objects: Mutex::new(objects) }
    }
}

impl Applied {
    pub(super) fn known(&self, name: &Name, digest: Digest, now: Instant) -> ObjectState {
        match self.objects.lock().remembered.get(name) {
            Some(Remembered::Applied { at, .. }) if now.saturating_duration_since(*at) >= TRUSTED => {
                ObjectState::Unknown
            }
            Some(Remembered::Applied { digest: held, .. }) if *held == digest => ObjectState::Applied,
            Some(Remembered::Applied { .. }) => ObjectState::Different,
            Some(Remembered::Lost { at }) if now.saturating_duration_since(*at) < LOST => ObjectState::Different,
            Some(Remembered::Lost { .. }) | None => ObjectState::Unknown,
        }
    }

    /// Begins a write to the object and forgets its remembered state.
    pub(super) fn begin(&self, name: &Name) -> Sending<'_> {
        let mut objects = self.objects.lock();
        if matches!(objects.remembered.peek(name), Some(Remembered::Applied { .. })) {
            objects.remembered.pop(name);
        }
        let count = objects.sending.entry(name.clone()).or_insert(Count { now: 0, overlapped: false });
        count.now += 1;
        count.overlapped |= count.now > 1;
        Sending { of: self, name: name.clone(), end: End::Other }
    }
}

impl Sending<'_> {
    pub(super) fn end(mut self, end: End) {
        self.end = end;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        let mut objects = self.of.objects.lock();
        let Some(count) = objects.sending.get_mut(&self.name) else { return };
        let overlapped = count.overlapped;
        count.now -= 1;
        if count.now == 0 {
            objects.sending.remove(&self.name);
        }
        let remembered = match self.end {
            End::Applied(digest, at) if !overlapped => Remembered::Applied { digest, at },
            End::Lost(at) => Remembered::Lost { at },
            End::Applied(..) | End::Other => return,
        };
        let lost = |at: Instant| match objects.remembered.peek(&self.name) {
            Some(Remembered::Lost { at: lost }) => at.saturating_duration_since(*lost) < LOST,
            _ => false,
        };
        if let Remembered::Applied { at, .. } = remembered
            && lost(at)
        {
            return;
        }
        objects.remembered.put(self.name.clone(), remembered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn name() -> Name {
        let (kind, resource) = ("ConfigMap".into(), "configmaps".into());
        let (api_version, namespace, name) = ("v1".into(), Some("shop".into()), "summary".into());
        ("podium/shop/a".into(), ObjectRef { api_version, kind, resource, namespace, name })
    }

    fn digest(text: &str) -> Digest {
        Digest::of(&[text])
    }

    fn apply(applied: &Applied, text: &str, at: Instant) {
        applied.begin(&name()).end(End::Applied(digest(text), at));
    }

    #[test]
    fn an_applied_object_is_known_for_ten_minutes_and_not_while_another_write_is_under_way() {
        let (applied, start) = (Applied::default(), Instant::now());
        apply(&applied, "1", start);
        assert_eq!(applied.known(&name(), digest("1"), start + TRUSTED - MILLI), ObjectState::Applied);
        assert_eq!(applied.known(&name(), digest("2"), start + TRUSTED - MILLI), ObjectState::Different);
        assert_eq!(applied.known(&name(), digest("1"), start + TRUSTED), ObjectState::Unknown);
        let deletion = applied.begin(&name());
        assert_eq!(applied.known(&name(), digest("1"), start + MILLI), ObjectState::Unknown);
        deletion.end(End::Other);
        assert_eq!(applied.known(&name(), digest("1"), start + MILLI), ObjectState::Unknown);
    }

    #[test]
    fn overlapping_writes_are_not_remembered() {
        let start = Instant::now();
        for first_ends_first in [true, false] {
            for end in [End::Applied(digest("2"), start), End::Other] {
                let applied = Applied::default();
                let (first, second) = (applied.begin(&name()), applied.begin(&name()));
                let first = || first.end(End::Applied(digest("1"), start));
                if first_ends_first {
                    first();
                    second.end(end);
                } else {
                    second.end(end);
                    first();
                }
                for text in ["1", "2"] {
                    assert_eq!(applied.known(&name(), digest(text), start), ObjectState::Unknown);
                }
                apply(&applied, "3", start);
                assert_eq!(applied.known(&name(), digest("3"), start), ObjectState::Applied);
            }
        }
    }

    #[test]
    fn after_a_lost_answer_nothing_is_remembered_until_the_write_has_expired() {
        let (applied, start) = (Applied::default(), Instant::now());
        apply(&applied, "1", start);
        applied.begin(&name()).end(End::Lost(start));
        apply(&applied, "1", start + MILLI);
        assert_eq!(applied.known(&name(), digest("1"), start + 2 * MILLI), ObjectState::Different);
        assert_eq!(applied.known(&name(), digest("1"), start + LOST), ObjectState::Unknown);
        apply(&applied, "1", start + LOST);
        assert_eq!(applied.known(&name(), digest("1"), start + LOST), ObjectState::Applied);
    }
}
