//! Objects that plugins applied and deleted. Each is remembered only while no other write of the plugin can have
//! changed it. The memory is lost when the host ends; a read before the next write replaces it.
//!
//! A write is remembered if all that were under way on its object from its start to its end had the same body, and if
//! no response to an earlier one was lost: the API server may execute overlapping writes in either order, and may still
//! execute one whose response was lost.
//!
//! The watch of a plugin's objects shows when another client has changed or deleted one that is remembered: the next
//! apply is sent then, and [`Applied::next_changed`] returns the object. So it does after overlapping writes of
//! different bodies.

use std::{collections::BTreeMap, num::NonZeroUsize, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_vocabulary::ObjectRef;
use tokio::{sync::Notify, time::Instant};

use super::{
    children::{ChangedChild, Origin, Seen, Shown},
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
    /// There are changed objects.
    changed: Notify,
}

struct Objects {
    /// The names are shared with [`Applied::names`], which copies those of a tenant while all writes wait.
    remembered: Shares<Arc<Name>, Remembered>,
    /// Writes under way, bounded by the concurrent deliveries.
    sending: BTreeMap<Arc<Name>, Count>,
    /// Objects that were remembered when another client changed them, until they are taken.
    changed: BTreeMap<Name, Origin>,
}

#[derive(Debug, Clone)]
enum Remembered {
    Applied {
        digest: Digest,
        created: Option<String>,
        shown: Shown,
        origin: Origin,
        at: Instant,
    },
    Removed {
        removal: Removal,
        at: Instant,
    },
    /// A write whose response was lost was sent at this time. With the state that a later one left, if there was one.
    Lost {
        at: Instant,
        shown: Option<(Shown, Origin)>,
    },
    /// A watch has shown that another client has changed or deleted the object.
    Changed,
}

/// A deletion that the API server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removal {
    /// The incarnation that the deletion was for; `None` for any.
    pub uid: Option<String>,
    /// Whether the object was gone. Otherwise the API server accepted the deletion, and finalizers may delay it.
    pub is_gone: bool,
}

/// The writes under way on one object.
struct Count {
    now: u32,
    /// The body of the first one; `None` for a deletion.
    body: Option<Digest>,
    /// Two of them overlapped that are not equal.
    overlapped: bool,
    /// One of those that overlapped may have been executed.
    executed: bool,
    /// The run of the latest apply.
    origin: Origin,
    /// The latest that a watch has shown of it since the first one began.
    seen: Option<Seen>,
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
    /// Another client has changed the object: the body is sent, also if a read shows the same values.
    Changed,
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
        shown: Shown,
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
    name: Arc<Name>,
    origin: Origin,
    end: WriteEnd,
}

impl Default for Applied {
    fn default() -> Self {
        let remembered = Shares::new(MAX_OBJECTS);
        let objects = Objects { remembered, sending: BTreeMap::new(), changed: BTreeMap::new() };
        Self { objects: Mutex::new(objects), changed: Notify::new() }
    }
}

impl Objects {
    /// Compares the state of an object that a watch shows with the remembered one.
    fn see(&mut self, name: &Name, seen: Seen) {
        if let Some(count) = self.sending.get_mut(name) {
            count.seen = Some(seen);
            return;
        }
        let Some(entries) = self.remembered.get_mut(name) else { return };
        let Some(remembered) = entries.peek_mut(name) else { return };
        let origin = match remembered {
            Remembered::Applied { shown, origin, .. } if seen.differs(shown) => {
                let origin = std::mem::take(origin);
                *remembered = Remembered::Changed;
                origin
            }
            Remembered::Lost { shown, .. } if shown.as_ref().is_some_and(|(shown, _)| seen.differs(shown)) => {
                shown.take().map(|(_, origin)| origin).unwrap_or_default()
            }
            Remembered::Applied { .. } | Remembered::Lost { .. } | Remembered::Removed { .. } | Remembered::Changed => {
                return;
            }
        };
        self.changed.insert(name.clone(), origin);
    }

    /// Records the end of the last of overlapping writes, or of a single one.
    fn ended(&mut self, name: &Arc<Name>, end: WriteEnd, origin: Origin) {
        let lost = match self.remembered.get_mut(name).and_then(|entries| entries.peek(name)) {
            Some(Remembered::Lost { at, .. }) => Some(*at),
            _ => None,
        };
        let is_lost = |now: Instant| lost.filter(|at| now.saturating_duration_since(*at) < LOST);
        let remembered = match end {
            WriteEnd::Applied { digest, created, shown, at } => match is_lost(at) {
                Some(at) => Remembered::Lost { at, shown: Some((shown, origin)) },
                None => Remembered::Applied { digest, created, shown, origin, at },
            },
            WriteEnd::Adopted(at) => {
                let digest = Digest::new(&[]);
                Remembered::Applied { digest, created: None, shown: Shown::LATEST, origin, at }
            }
            WriteEnd::Removed(_, at) if is_lost(at).is_some() => return,
            WriteEnd::Removed(removal, at) => Remembered::Removed { removal, at },
            WriteEnd::Lost(at) => Remembered::Lost { at, shown: None },
            WriteEnd::Other => return,
        };
        self.remembered.with_room(name).put(name.clone(), remembered);
    }
}

impl Applied {
    /// Records what the watch of a plugin's objects shows of one.
    pub(super) fn see(&self, name: &Name, seen: Seen) {
        let mut objects = self.objects.lock();
        objects.see(name, seen);
        self.notify(&objects);
    }

    /// Wakes [`Self::next_changed`] if it has something to return.
    fn notify(&self, objects: &Objects) {
        if !objects.changed.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Returns the objects of a kind that a plugin has applied, or is applying, as far as they are remembered.
    pub(super) fn names(&self, manager: &str, is_kind: impl Fn(&ObjectRef) -> bool) -> impl Iterator<Item = Name> {
        let names: Vec<Arc<Name>> = {
            let objects = self.objects.lock();
            let known = objects.remembered.of_tenant(tenant_of(manager)).map(|(name, _)| name);
            known.chain(objects.sending.keys()).cloned().collect()
        };
        let of_kind = names.into_iter().filter(move |name| name.0 == manager && is_kind(&name.1));
        of_kind.map(Arc::unwrap_or_clone)
    }

    /// Returns true if another client has changed the object since the plugin applied it.
    pub(super) fn is_changed(&self, name: &Name) -> bool {
        let mut objects = self.objects.lock();
        let entries = objects.remembered.get_mut(name);
        matches!(entries.and_then(|entries| entries.peek(name)), Some(Remembered::Changed))
    }

    /// Waits for objects that another client has changed since they were applied, and returns one of them.
    pub(super) async fn next_changed(&self) -> ChangedChild {
        loop {
            if let Some(((manager, object), origin)) = self.objects.lock().changed.pop_first() {
                return ChangedChild { manager, object, origin };
            }
            self.changed.notified().await;
        }
    }

    /// `origin` is the apply that is about to be made.
    pub(super) fn known(&self, name: &Name, digest: Digest, origin: &Origin, now: Instant) -> ObjectState {
        if let Some(entries) = self.objects.lock().remembered.get_mut(name)
            && let Some(Remembered::Applied { origin: held, .. }) = entries.get_mut(name)
        {
            held.clone_from(origin);
        }
        match self.remembered(name, now) {
            Some(Remembered::Applied { digest: held, .. }) if held == digest => ObjectState::Applied,
            Some(Remembered::Applied { created, .. }) => ObjectState::Different(created),
            Some(Remembered::Lost { .. }) => ObjectState::Lost,
            Some(Remembered::Changed) => ObjectState::Changed,
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
        let within = |at: &Instant, time| now.saturating_duration_since(*at) < time;
        let holds = match remembered {
            Remembered::Applied { at, .. } | Remembered::Removed { at, .. } => within(at, TRUSTED),
            Remembered::Lost { at, .. } => within(at, LOST),
            Remembered::Changed => true,
        };
        holds.then(|| remembered.clone())
    }

    /// Begins a write to the object and forgets its remembered state. `body` is `None` for a deletion.
    pub(super) fn begin(&self, name: &Name, body: Option<Digest>, origin: Origin) -> Sending<'_> {
        let name = Arc::new(name.clone());
        let mut objects = self.objects.lock();
        if let Some(remembered) = objects.remembered.get_mut(&name)
            && !matches!(remembered.peek(&name), Some(Remembered::Lost { .. } | Remembered::Changed))
        {
            remembered.pop(&name);
        }
        let new = || Count { now: 0, body, overlapped: false, executed: false, origin: Origin::default(), seen: None };
        let count = objects.sending.entry(name.clone()).or_insert_with(new);
        count.now += 1;
        count.overlapped |= count.now > 1 && (body.is_none() || body != count.body);
        if body.is_some() {
            count.origin.clone_from(&origin);
        }
        Sending { of: self, name, origin, end: WriteEnd::Other }
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
        let end = std::mem::replace(&mut self.end, WriteEnd::Other);
        count.now -= 1;
        count.executed |= !matches!(end, WriteEnd::Other);
        let overlapped = count.overlapped;
        let is_last = count.now == 0;
        let ended = if is_last { objects.sending.remove(&self.name) } else { None };
        let origin = std::mem::take(&mut self.origin);
        match end {
            WriteEnd::Applied { .. } | WriteEnd::Removed(..) if overlapped => {}
            end @ (WriteEnd::Applied { .. }
            | WriteEnd::Adopted(_)
            | WriteEnd::Removed(..)
            | WriteEnd::Lost(_)
            | WriteEnd::Other) => objects.ended(&self.name, end, origin),
        }
        if let Some(Count { overlapped, executed, origin, seen, .. }) = ended {
            // Whichever the API server executed last: one more run of the latest apply decides.
            if overlapped && executed && origin != Origin::default() {
                objects.changed.insert((*self.name).clone(), origin);
            }
            // It came before the answer, and may be of after it.
            if let Some(seen) = seen {
                objects.see(&self.name, seen);
            }
        }
        self.of.notify(&objects);
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

    fn begin<'a>(applied: &'a Applied, text: Option<&str>) -> Sending<'a> {
        applied.begin(&name(), text.map(digest), Origin::default())
    }

    fn known(applied: &Applied, text: &str, at: Instant) -> ObjectState {
        applied.known(&name(), digest(text), &Origin::default(), at)
    }

    fn body(text: &str, at: Instant) -> WriteEnd {
        WriteEnd::Applied { digest: digest(text), created: None, shown: Shown::default(), at }
    }

    fn apply(applied: &Applied, text: &str, at: Instant) {
        begin(applied, Some(text)).end(body(text, at));
    }

    #[test]
    fn an_applied_object_is_remembered_for_ten_minutes() {
        let applied = Applied::default();
        let start = Instant::now();
        apply(&applied, "1", start);
        assert_eq!(known(&applied, "1", start + TRUSTED - MILLI), ObjectState::Applied);
        assert_eq!(known(&applied, "2", start + TRUSTED - MILLI), ObjectState::Different(None));
        assert_eq!(known(&applied, "1", start + TRUSTED), ObjectState::Unknown);
        let deletion = begin(&applied, None);
        assert_eq!(known(&applied, "1", start + MILLI), ObjectState::Unknown);
        deletion.end(WriteEnd::Other);
        assert_eq!(known(&applied, "1", start + MILLI), ObjectState::Unknown);
    }

    #[test]
    fn names_are_compared_while_no_write_waits() {
        let applied = Applied::default();
        let of_kind = |object: &ObjectRef| {
            assert!(!applied.objects.is_locked());
            object.kind == "ConfigMap"
        };
        let names = || applied.names("podium/shop/a", of_kind).collect::<Vec<_>>();
        apply(&applied, "1", Instant::now());
        assert_eq!(names(), [name()], "remembered");
        let _sending = begin(&applied, Some("2"));
        assert_eq!(names(), [name()], "under way");
        assert_eq!(applied.names("podium/shop/b", |_| true).count(), 0);
    }

    #[test]
    fn a_deletion_is_remembered_for_ten_minutes_and_one_incarnation() {
        let applied = Applied::default();
        let start = Instant::now();
        let removal = |uid: Option<&str>| Removal { uid: uid.map(str::to_owned), is_gone: true };
        begin(&applied, None).end(WriteEnd::Removed(removal(Some("u1")), start));
        let deleted = |uid, at| applied.known_deletion(&name(), uid, at);
        assert_eq!(deleted(Some("u1"), start + TRUSTED - MILLI), DeletionState::Removed { is_gone: true });
        assert_eq!(deleted(Some("u1"), start + TRUSTED), DeletionState::Unknown);
        assert_eq!(
            [deleted(Some("u2"), start), deleted(None, start)],
            [DeletionState::Unknown, DeletionState::Unknown]
        );
        assert_eq!(known(&applied, "1", start), ObjectState::Unknown);
        apply(&applied, "1", start);
        assert_eq!(deleted(Some("u1"), start), DeletionState::Unknown);
        begin(&applied, None).end(WriteEnd::Lost(start));
        begin(&applied, None).end(WriteEnd::Removed(removal(None), start + MILLI));
        assert_eq!(deleted(None, start + LOST - MILLI), DeletionState::Lost);
        assert_eq!(deleted(None, start + LOST), DeletionState::Unknown);
    }

    #[test]
    fn overlapping_writes_are_not_remembered() {
        let start = Instant::now();
        for first_ends_first in [true, false] {
            for end in [|start: Instant| body("2", start), |_: Instant| WriteEnd::Other] {
                let applied = Applied::default();
                let first = begin(&applied, Some("1"));
                let second = begin(&applied, Some("2"));
                let first = || first.end(body("1", start));
                if first_ends_first {
                    first();
                    second.end(end(start));
                } else {
                    second.end(end(start));
                    first();
                }
                for text in ["1", "2"] {
                    assert_eq!(known(&applied, text, start), ObjectState::Unknown);
                }
                apply(&applied, "3", start);
                assert_eq!(known(&applied, "3", start), ObjectState::Applied);
            }
        }
    }

    #[tokio::test]
    async fn after_overlapping_writes_the_latest_apply_is_repeated() {
        let origin = |pod: &str| Origin { pod: Some(podium_vocabulary::PodKey::new("shop", pod, pod)), workload: None };
        let start = Instant::now();
        for (ends, expected) in
            [([true, true], Some("b")), ([true, false], Some("b")), ([false, true], Some("b")), ([false, false], None)]
        {
            let applied = Applied::default();
            let first = applied.begin(&name(), Some(digest("1")), origin("a"));
            let second = applied.begin(&name(), Some(digest("2")), origin("b"));
            let deletion = applied.begin(&name(), None, Origin::default());
            let end = |is_executed: bool, text| if is_executed { body(text, start) } else { WriteEnd::Other };
            first.end(end(ends[0], "1"));
            deletion.end(WriteEnd::Other);
            second.end(end(ends[1], "2"));
            let changed = futures::FutureExt::now_or_never(applied.next_changed());
            assert_eq!(changed.map(|changed| changed.origin), expected.map(origin), "{ends:?}");
        }
    }

    #[test]
    fn overlapping_writes_of_one_body_are_remembered() {
        let applied = Applied::default();
        let start = Instant::now();
        let first = begin(&applied, Some("1"));
        let second = begin(&applied, Some("1"));
        second.end(body("1", start));
        first.end(body("1", start));
        assert_eq!(known(&applied, "1", start), ObjectState::Applied);
        let first = begin(&applied, Some("1"));
        let deletion = begin(&applied, None);
        deletion.end(WriteEnd::Other);
        first.end(body("1", start));
        assert_eq!(known(&applied, "1", start), ObjectState::Unknown);
    }

    #[test]
    fn after_a_lost_answer_nothing_is_remembered_for_a_while() {
        let applied = Applied::default();
        let start = Instant::now();
        apply(&applied, "1", start);
        begin(&applied, None).end(WriteEnd::Lost(start));
        apply(&applied, "1", start + MILLI);
        assert_eq!(known(&applied, "1", start + 2 * MILLI), ObjectState::Lost);
        assert_eq!(known(&applied, "1", start + LOST), ObjectState::Unknown);
        apply(&applied, "1", start + LOST);
        assert_eq!(known(&applied, "1", start + LOST), ObjectState::Applied);
    }
}
