//! Objects that plugins applied and deleted. Each is remembered only while no other write of the plugin can have
//! changed it. The memory is lost when the host ends; a read before the next write replaces it.
//!
//! A write is remembered if it was the only one on its object from its start to its end, and if no response to an
//! earlier one was lost: the API server may execute overlapping writes in either order, and may still execute one
//! whose response was lost.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use parking_lot::Mutex;
use podium_vocabulary::ObjectRef;
use tokio::time::Instant;

use super::{
    digest::Digest,
    shares::{OfTenant, Shares, tenant_of},
};

/// How long an object is assumed to be as applied without a read; another client may have deleted or changed it.
const TRUSTED: Duration = Duration::from_secs(600);
/// How long the API server may still execute a write whose response was lost. It ends a write after its own timeout,
/// of at most 60 s.
const LOST: Duration = Duration::from_secs(60);
/// The most remembered objects, of all plugins; some 200 bytes each. An object that was forgotten for another costs a
/// read before its next apply, and a deletion is sent again.
const MAX_OBJECTS: NonZeroUsize = NonZeroUsize::new(16_384).unwrap(); // not 0: the compiler evaluates it

/// A field manager and an object.
pub(super) type Name = (String, ObjectRef);

impl OfTenant for Name {
    fn tenant(&self) -> &str {
        tenant_of(&self.0)
    }
}

/// The memory of all plugins.
pub(super) struct Applied {
    objects: Mutex<Objects>,
}

struct Objects {
    remembered: Shares<Name, Remembered>,
    /// Writes under way, bounded by the concurrent deliveries.
    sending: BTreeMap<Name, Count>,
}

#[derive(Debug, Clone)]
enum Remembered {
    Applied {
        digest: Digest,
        created: Option<String>,
        at: Instant,
    },
    Removed {
        removal: Removal,
        at: Instant,
    },
    /// A write whose response was lost was sent at this time.
    Lost {
        at: Instant,
    },
}

/// A deletion that the API server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removal {
    /// The incarnation that the deletion was for; `None` for any.
    pub uid: Option<String>,
    /// Whether the object was gone. Otherwise the API server accepted the deletion, and finalizers may delay it.
    pub is_gone: bool,
}

/// The number of writes under way on one object.
struct Count {
    now: u32,
    /// Two of them overlapped.
    overlapped: bool,
}

/// The known state of an object before an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ObjectState {
    /// The object equals the body.
    Applied,
    /// The object differs from the body. The uid is that of an object that the plugin created.
    Different(Option<String>),
    /// The response to a write was lost a moment ago, and nothing is sent before a read.
    Lost,
    /// A read may show that the object equals the body.
    Unknown,
}

/// The known state of an object before a deletion.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeletionState {
    /// The API server answered this deletion.
    Removed {
        is_gone: bool,
    },
    /// The response to a write was lost a moment ago, and nothing is sent before a read.
    Lost,
    Unknown,
}

/// How a write ended.
#[derive(Debug)]
pub(super) enum WriteEnd {
    /// The object equals the body with this digest; `created` is the uid if the plugin created it.
    Applied {
        digest: Digest,
        created: Option<String>,
        at: Instant,
    },
    /// Another client created the object after the read that found none. The annotation says that the plugin did, until
    /// the next apply.
    Adopted(Instant),
    /// The object is deleted.
    Removed(Removal, Instant),
    /// The response was lost.
    Lost(Instant),
    Other,
}

/// A write under way. Dropped without [`Sending::end`], it ends as [`WriteEnd::Other`].
#[must_use]
pub(super) struct Sending<'a> {
    of: &'a Applied,
    name: Name,
    end: WriteEnd,
}

impl Default for Applied {
    fn default() -> Self {
        let objects = Objects { remembered: Shares::new(MAX_OBJECTS), sending: BTreeMap::new() };
        Self { objects: Mutex::new(objects) }
    }
}

impl Applied {
    pub(super) fn known(&self, name: &Name, digest: Digest, now: Instant) -> ObjectState {
        match self.remembered(name, now) {
            Some(Remembered::Applied { digest: held, .. }) if held == digest => ObjectState::Applied,
            Some(Remembered::Applied { created, .. }) => ObjectState::Different(created),
            Some(Remembered::Lost { .. }) => ObjectState::Lost,
            Some(Remembered::Removed { .. }) | None => ObjectState::Unknown,
        }
    }

    pub(super) fn known_deletion(&self, name: &Name, uid: Option<&str>, now: Instant) -> DeletionState {
        match self.remembered(name, now) {
            Some(Remembered::Removed { removal: Removal { uid: held, is_gone }, .. }) if held.as_deref() == uid => {
                DeletionState::Removed { is_gone }
            }
            Some(Remembered::Lost { .. }) => DeletionState::Lost,
            _ => DeletionState::Unknown,
        }
    }

    /// Returns the remembered state if it still holds.
    fn remembered(&self, name: &Name, now: Instant) -> Option<Remembered> {
        let mut objects = self.objects.lock();
        let remembered = objects.remembered.get_mut(name)?.get(name)?;
        let (at, within) = match remembered {
            Remembered::Applied { at, .. } | Remembered::Removed { at, .. } => (*at, TRUSTED),
            Remembered::Lost { at } => (*at, LOST),
        };
        (now.saturating_duration_since(at) < within).then(|| remembered.clone())
    }

    /// Begins a write to the object and forgets its remembered state.
    pub(super) fn begin(&self, name: &Name) -> Sending<'_> {
        let mut objects = self.objects.lock();
        if let Some(remembered) = objects.remembered.get_mut(name)
            && !matches!(remembered.peek(name), Some(Remembered::Lost { .. }))
        {
            remembered.pop(name);
        }
        let count = objects.sending.entry(name.clone()).or_insert(Count { now: 0, overlapped: false });
        count.now += 1;
        count.overlapped |= count.now > 1;
        Sending { of: self, name: name.clone(), end: WriteEnd::Other }
    }
}

impl Sending<'_> {
    pub(super) fn end(mut self, end: WriteEnd) {
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
        let remembered = match std::mem::replace(&mut self.end, WriteEnd::Other) {
            WriteEnd::Applied { digest, created, at } if !overlapped => Remembered::Applied { digest, created, at },
            WriteEnd::Adopted(at) => Remembered::Applied { digest: Digest::new(&[]), created: None, at },
            WriteEnd::Removed(removal, at) if !overlapped => Remembered::Removed { removal, at },
            WriteEnd::Lost(at) => Remembered::Lost { at },
            WriteEnd::Applied { .. } | WriteEnd::Removed(..) | WriteEnd::Other => return,
        };
        let mut lost = |at: Instant| match objects.remembered.get_mut(&self.name).and_then(|of| of.peek(&self.name)) {
            Some(Remembered::Lost { at: lost }) => at.saturating_duration_since(*lost) < LOST,
            _ => false,
        };
        if let Remembered::Applied { at, .. } | Remembered::Removed { at, .. } = remembered
            && lost(at)
        {
            return;
        }
        objects.remembered.with_room(&self.name).put(self.name.clone(), remembered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn name() -> Name {
        let kind = "ConfigMap".into();
        let resource = "configmaps".into();
        let api_version = "v1".into();
        let namespace = Some("shop".into());
        let name = "summary".into();
        ("podium/shop/a".into(), ObjectRef { api_version, kind, resource, namespace, name })
    }

    fn digest(text: &str) -> Digest {
        Digest::new(&[text])
    }

    fn body(text: &str, at: Instant) -> WriteEnd {
        WriteEnd::Applied { digest: digest(text), created: None, at }
    }

    fn apply(applied: &Applied, text: &str, at: Instant) {
        applied.begin(&name()).end(body(text, at));
    }

    #[test]
    fn an_applied_object_is_remembered_for_ten_minutes() {
        let applied = Applied::default();
        let start = Instant::now();
        apply(&applied, "1", start);
        assert_eq!(applied.known(&name(), digest("1"), start + TRUSTED - MILLI), ObjectState::Applied);
        assert_eq!(applied.known(&name(), digest("2"), start + TRUSTED - MILLI), ObjectState::Different(None));
        assert_eq!(applied.known(&name(), digest("1"), start + TRUSTED), ObjectState::Unknown);
        let deletion = applied.begin(&name());
        assert_eq!(applied.known(&name(), digest("1"), start + MILLI), ObjectState::Unknown);
        deletion.end(WriteEnd::Other);
        assert_eq!(applied.known(&name(), digest("1"), start + MILLI), ObjectState::Unknown);
    }

    #[test]
    fn a_deletion_is_remembered_for_ten_minutes_and_one_incarnation() {
        let applied = Applied::default();
        let start = Instant::now();
        let removal = |uid: Option<&str>| Removal { uid: uid.map(str::to_owned), is_gone: true };
        applied.begin(&name()).end(WriteEnd::Removed(removal(Some("u1")), start));
        let known = |uid, at| applied.known_deletion(&name(), uid, at);
        assert_eq!(known(Some("u1"), start + TRUSTED - MILLI), DeletionState::Removed { is_gone: true });
        assert_eq!(known(Some("u1"), start + TRUSTED), DeletionState::Unknown);
        assert_eq!([known(Some("u2"), start), known(None, start)], [DeletionState::Unknown, DeletionState::Unknown]);
        assert_eq!(applied.known(&name(), digest("1"), start), ObjectState::Unknown);
        apply(&applied, "1", start);
        assert_eq!(known(Some("u1"), start), DeletionState::Unknown);
        applied.begin(&name()).end(WriteEnd::Lost(start));
        applied.begin(&name()).end(WriteEnd::Removed(removal(None), start + MILLI));
        assert_eq!(known(None, start + LOST - MILLI), DeletionState::Lost);
        assert_eq!(known(None, start + LOST), DeletionState::Unknown);
    }

    #[test]
    fn overlapping_writes_are_not_remembered() {
        let start = Instant::now();
        for first_ends_first in [true, false] {
            for end in [|start: Instant| body("2", start), |_: Instant| WriteEnd::Other] {
                let applied = Applied::default();
                let first = applied.begin(&name());
                let second = applied.begin(&name());
                let first = || first.end(body("1", start));
                if first_ends_first {
                    first();
                    second.end(end(start));
                } else {
                    second.end(end(start));
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
    fn after_a_lost_answer_nothing_is_remembered_for_a_while() {
        let applied = Applied::default();
        let start = Instant::now();
        apply(&applied, "1", start);
        applied.begin(&name()).end(WriteEnd::Lost(start));
        apply(&applied, "1", start + MILLI);
        assert_eq!(applied.known(&name(), digest("1"), start + 2 * MILLI), ObjectState::Lost);
        assert_eq!(applied.known(&name(), digest("1"), start + LOST), ObjectState::Unknown);
        apply(&applied, "1", start + LOST);
        assert_eq!(applied.known(&name(), digest("1"), start + LOST), ObjectState::Applied);
    }
}
