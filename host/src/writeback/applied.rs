//! What is known of objects that plugins applied: remembered only while nothing else can have changed it.
//!
//! A write is remembered when it is the only one under way on its object from its start to its end, and when no answer
//! to an earlier one was lost: the API server may have taken overlapping writes in either order, and may still take one
//! whose answer was lost.

use std::collections::HashMap;

use parking_lot::Mutex;
use podium_pods::model::ObjectRef;

use super::{digest::Digest, memory::Memory};

/// How long an object is taken to be as applied without a read: somebody may have deleted or changed it.
const TRUSTED_MILLIS: u64 = 600_000;
/// How long the API server may still take a write whose answer was lost. It ends one after its own timeout, of 60 s at
/// most.
const LOST_MILLIS: u64 = 60_000;
/// Objects remembered, of all plugins; some 200 bytes each.
const MAX_OBJECTS: usize = 16_384;

/// Manager and object.
pub(super) type Name = (String, ObjectRef);

/// The memory of all plugins.
pub(super) struct Applied {
    objects: Mutex<Objects>,
}

struct Objects {
    remembered: Memory<Name, Remembered>,
    /// Bounded by the deliveries under way.
    sending: HashMap<Name, Count>,
}

#[derive(Debug, Clone, Copy)]
enum Remembered {
    Applied {
        digest: Digest,
        at_millis: u64,
    },
    /// A write that may still be done was sent at this time.
    Lost {
        at_millis: u64,
    },
}

/// Writes under way on one object.
struct Count {
    now: u32,
    /// There were two at one time.
    overlapped: bool,
}

/// What is known of an object before an apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It is as the body says.
    Same,
    /// It differs from the body, or a write that may still be done makes it differ.
    Other,
    /// A read tells.
    Nothing,
}

/// How a write ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// The object is as the body of this digest says.
    Applied(Digest, u64),
    /// The answer was lost.
    Lost(u64),
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
        let objects = Objects { remembered: Memory::new(MAX_OBJECTS), sending: HashMap::new() };
        Self { objects: Mutex::new(objects) }
    }
}

impl Applied {
    pub(super) fn known(&self, name: &Name, digest: Digest, now_millis: u64) -> Known {
        match self.objects.lock().remembered.get(name) {
            Some(Remembered::Applied { at_millis, .. }) if now_millis.saturating_sub(*at_millis) >= TRUSTED_MILLIS => {
                Known::Nothing
            }
            Some(Remembered::Applied { digest: held, .. }) if *held == digest => Known::Same,
            Some(Remembered::Applied { .. }) => Known::Other,
            Some(Remembered::Lost { at_millis }) if now_millis.saturating_sub(*at_millis) < LOST_MILLIS => Known::Other,
            Some(Remembered::Lost { .. }) | None => Known::Nothing,
        }
    }

    /// A write to the object begins: what was remembered of it is forgotten.
    pub(super) fn begin(&self, name: &Name) -> Sending<'_> {
        let mut objects = self.objects.lock();
        if matches!(objects.remembered.get(name), Some(Remembered::Applied { .. })) {
            objects.remembered.remove(name);
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
            End::Applied(digest, at_millis) if !overlapped => Remembered::Applied { digest, at_millis },
            End::Lost(at_millis) => Remembered::Lost { at_millis },
            End::Applied(..) | End::Other => return,
        };
        let lost = |at_millis: u64| match objects.remembered.get(&self.name) {
            Some(Remembered::Lost { at_millis: lost }) => at_millis.saturating_sub(*lost) < LOST_MILLIS,
            _ => false,
        };
        if let Remembered::Applied { at_millis, .. } = remembered
            && lost(at_millis)
        {
            return;
        }
        *objects.remembered.entry(&self.name, || remembered) = remembered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        let (api_version, kind, name) = ("v1".into(), "ConfigMap".into(), "summary".into());
        ("podium/shop/a".into(), ObjectRef { api_version, kind, namespace: Some("shop".into()), name })
    }

    fn digest(text: &str) -> Digest {
        Digest::of(&[text])
    }

    fn apply(applied: &Applied, text: &str, now_millis: u64) {
        applied.begin(&name()).end(End::Applied(digest(text), now_millis));
    }

    #[test]
    fn what_was_applied_is_known_for_ten_minutes_and_not_while_another_write_is_under_way() {
        let applied = Applied::default();
        apply(&applied, "1", 0);
        assert_eq!(applied.known(&name(), digest("1"), TRUSTED_MILLIS - 1), Known::Same);
        assert_eq!(applied.known(&name(), digest("2"), TRUSTED_MILLIS - 1), Known::Other);
        assert_eq!(applied.known(&name(), digest("1"), TRUSTED_MILLIS), Known::Nothing);
        let deletion = applied.begin(&name());
        assert_eq!(applied.known(&name(), digest("1"), 1), Known::Nothing);
        deletion.end(End::Other);
        assert_eq!(applied.known(&name(), digest("1"), 1), Known::Nothing);
    }

    #[test]
    fn of_writes_that_overlap_none_is_remembered_in_whatever_order_they_end() {
        for first_ends_first in [true, false] {
            for end in [End::Applied(digest("2"), 0), End::Other] {
                let applied = Applied::default();
                let (first, second) = (applied.begin(&name()), applied.begin(&name()));
                let first = || first.end(End::Applied(digest("1"), 0));
                if first_ends_first {
                    first();
                    second.end(end);
                } else {
                    second.end(end);
                    first();
                }
                for text in ["1", "2"] {
                    assert_eq!(applied.known(&name(), digest(text), 0), Known::Nothing);
                }
                apply(&applied, "3", 0);
                assert_eq!(applied.known(&name(), digest("3"), 0), Known::Same);
            }
        }
    }

    #[test]
    fn after_a_lost_answer_nothing_is_remembered_until_the_write_can_no_longer_be_done() {
        let applied = Applied::default();
        apply(&applied, "1", 0);
        applied.begin(&name()).end(End::Lost(1_000));
        apply(&applied, "1", 2_000);
        assert_eq!(applied.known(&name(), digest("1"), 3_000), Known::Other);
        assert_eq!(applied.known(&name(), digest("1"), 1_000 + LOST_MILLIS), Known::Nothing);
        apply(&applied, "1", 1_000 + LOST_MILLIS);
        assert_eq!(applied.known(&name(), digest("1"), 1_000 + LOST_MILLIS), Known::Same);
    }
}
