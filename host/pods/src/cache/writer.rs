//! The only writer. It ensures that the cache never goes back in time, whatever the order in which lists and events
//! arrive.
//!
//! The rules, in which "revision" is an object's own and "the cache's revision" is the newest that the watch reported:
//! - an entry is replaced only by a newer revision of the same uid; a newer revision of another uid is a deletion and
//!   an addition, and an older one is ignored;
//! - a Pod that is not in the cache, at the cache's revision or an older one, was deleted since and is not added;
//! - a deletion applies to the same uid at the entry's revision or a newer one;
//! - absence from a list removes Pods that are not newer than the list.
//!
//! The second rule needs a watch that reports all events in order; the watch lists again when its stream goes
//! backwards.

use std::sync::Arc;

use podium_vocabulary::{PodKey, Revision};

use super::{
    Snapshot,
    reader::Publisher,
    store::{Entry, Store},
};
use crate::pod::{CachedPod, Change, PodEvent, PodList, Staleness};

/// The only handle that changes the cache. Changes become visible to readers with `publish`.
pub struct Writer {
    store: Store,
    published: Publisher,
    /// The next list is of a history that was rolled back: cached revisions cannot be compared with it.
    rolled_back: bool,
}

/// Changes that are in the cache and that readers do not see yet, so that the caller can record deletions before any
/// reader misses a Pod. [`Update::publish`] ends it; until then the writer is borrowed and cannot change anything else.
///
/// Dropping an update publishes it too: otherwise readers would miss its changes until the next ones. Only while a
/// panic unwinds is nothing published, because the caller may not have recorded the deletions; readers then keep the
/// snapshot before, and the next update of the writer, if there is one, publishes both.
#[must_use = "the caller records the deletions and then publishes"]
pub struct Update<'a> {
    writer: &'a mut Writer,
    changes: Vec<Change>,
}

impl Update<'_> {
    /// Returns the changes, in the order in which they happened.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Makes the changes visible to readers, and returns them.
    pub fn publish(mut self) -> Vec<Change> {
        // Dropping `self` publishes.
        std::mem::take(&mut self.changes)
    }
}

impl Drop for Update<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.writer.publish();
        }
    }
}

impl Writer {
    pub(super) fn new(first: Snapshot, published: Publisher) -> Self {
        let mut writer = Self { store: Store::new(first), published, rolled_back: false };
        writer.set_stale(Staleness { reason: "nothing was listed yet".to_owned() });
        writer
    }

    /// Applies events of the watch in their order.
    pub fn apply(&mut self, events: Vec<PodEvent>) -> Update<'_> {
        let mut changes = Vec::new();
        for event in events {
            let revision = event.pod.revision;
            if event.deleted {
                self.delete(event.pod, event.before, &mut changes);
            } else {
                self.put(event.pod, event.before, self.store.next.revision, &mut changes);
            }
            self.store.next.revision = self.store.next.revision.max(revision);
        }
        Update { writer: self, changes }
    }

    /// Applies a complete list: afterwards the cache has the Pods of the list, and those that are newer than the list.
    /// The others are reported as deletions, as those of Pods that went during a gap of the watch (410).
    pub fn relist(&mut self, pods: PodList, revision: Revision) -> Update<'_> {
        let mut changes = Vec::new();
        let rolled_back = std::mem::take(&mut self.rolled_back);
        let newest_removed = if rolled_back { Revision(u64::MAX) } else { revision };
        // A list at the cache's revision or a newer one shows which Pods exist; Pods of an older list may have been
        // deleted since.
        let passed =
            if revision < self.store.next.revision && !rolled_back { self.store.next.revision } else { Revision(0) };
        if self.store.next.is_empty() && passed == Revision(0) {
            let changes = self.store.fill(pods.read);
            return self.listed(changes, revision, rolled_back);
        }
        let held = pods.held.sorted();
        let pods: Vec<_> = pods.read.into_iter().map(|record| record.pod()).collect();
        let name = |at: &u32| {
            let PodKey { namespace, name, .. } = &pods[*at as usize].key;
            (&**namespace, &**name)
        };
        // Indexes instead of names, because the names of a large list take megabytes.
        let mut present: Vec<u32> = (0..pods.len() as u32).collect();
        present.sort_unstable_by(|one, other| name(one).cmp(&name(other)));
        let next = &self.store.next;
        let gone = next.records().filter(|pod| {
            let here = |at: &u32| {
                let (namespace, name) = name(at);
                pod.compare(namespace, name).reverse()
            };
            pod.revision() <= newest_removed && !held.contains_pod(pod) && present.binary_search_by(here).is_err()
        });
        let gone: Vec<_> = gone.map(|pod| pod.pod()).collect();
        drop(present);
        for pod in gone {
            self.remove(pod, &mut changes);
        }
        for pod in pods {
            match rolled_back {
                true => self.overwrite(pod, &mut changes),
                false => self.put(pod, None, passed, &mut changes),
            }
        }
        self.listed(changes, revision, rolled_back)
    }

    fn listed(&mut self, changes: Vec<Change>, revision: Revision, rolled_back: bool) -> Update<'_> {
        self.store.next.revision = if rolled_back { revision } else { self.store.next.revision.max(revision) };
        Update { writer: self, changes }
    }

    /// Advances the cache's revision: no other event happened up to `revision`.
    pub fn bookmark(&mut self, revision: Revision) {
        if revision > self.store.next.revision {
            self.store.next.revision = revision;
            self.publish();
        }
    }

    /// Records that the history of the API server was rolled back, as when etcd is restored: the next list may
    /// replace newer revisions.
    pub fn roll_back(&mut self) {
        self.rolled_back = true;
    }

    /// Marks the cache as stale and publishes the reason to readers.
    pub fn set_stale(&mut self, staleness: Staleness) {
        self.store.next.staleness = Some(staleness);
        self.publish();
    }

    /// Marks the cache as up to date again.
    pub fn set_live(&mut self) {
        self.store.next.staleness = None;
        self.publish();
    }

    /// Applies a state of a Pod. A Pod that is not in the cache, at revision `passed` or an older one, was deleted.
    fn put(
        &mut self,
        pod: Arc<CachedPod>,
        before: Option<Arc<CachedPod>>,
        passed: Revision,
        changes: &mut Vec<Change>,
    ) {
        match self.store.entry(&pod.key, before) {
            None if pod.revision <= passed => {}
            Some(entry) if pod.revision <= entry.pod.revision => {}
            entry => self.replace(entry, pod, changes),
        }
    }

    fn overwrite(&mut self, pod: Arc<CachedPod>, changes: &mut Vec<Change>) {
        let entry = self.store.entry(&pod.key, None);
        self.replace(entry, pod, changes);
    }

    fn replace(&mut self, entry: Option<Entry>, pod: Arc<CachedPod>, changes: &mut Vec<Change>) {
        let change = match entry {
            Some(Entry { position, pod: old }) if old.key.uid == pod.key.uid => self.store.replace(position, old, pod),
            other => {
                if let Some(other) = other {
                    self.remove(other.pod, changes);
                }
                self.store.insert(&pod);
                Change::between(None, Some(pod))
            }
        };
        changes.extend(change);
    }

    fn delete(&mut self, last: Arc<CachedPod>, before: Option<Arc<CachedPod>>, changes: &mut Vec<Change>) {
        let Some(Entry { pod: held, .. }) = self.store.entry(&last.key, before) else { return };
        if held.key.uid != last.key.uid || last.revision < held.revision {
            return;
        }
        // The write that removes the last finalizer may change more, and has no event of its own. It is reported as a
        // change first, so that plugins that match the cached state and plugins that match the last state are both
        // woken.
        self.store.remove(&held);
        changes.extend(Change::between(Some(held), Some(Arc::clone(&last))));
        changes.extend(Change::between(Some(last), None));
    }

    fn remove(&mut self, held: Arc<CachedPod>, changes: &mut Vec<Change>) {
        self.store.remove(&held);
        changes.extend(Change::between(Some(held), None));
    }

    fn publish(&self) {
        self.published.publish(self.store.next.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use podium_vocabulary::{LabelOperator, LabelRequirement, LabelSelector, PodQuery};
    use podium_wire::{Section, SectionSet};

    use super::*;
    use crate::cache::{self};
    use crate::pod::{PodView, Record};
    use crate::testing::{cached, pod, summary};

    fn applied(uid: &str, revision: u64, label: &str) -> PodEvent {
        PodEvent::applied(cached(&pod("cart", uid, revision, label)))
    }

    fn deleted(uid: &str, revision: u64, label: &str) -> PodEvent {
        PodEvent::deleted(cached(&pod("cart", uid, revision, label)))
    }

    #[test]
    fn a_recreated_pod_is_a_deletion_and_then_an_addition() {
        let (mut writer, _) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        assert_eq!(summary(&writer.apply(vec![applied("b", 9, "x")]).publish()), ["-a@5", "+b@9"]);
        let list = [Record::from(cached(&pod("cart", "c", 12, "x")))].into_iter().collect();
        assert_eq!(summary(&writer.relist(list, Revision(20)).publish()), ["-b@9", "+c@12"]);
    }

    #[test]
    fn an_older_incarnation_never_affects_a_newer_one() {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![applied("b", 9, "x")]).publish();
        assert!(writer.apply(vec![applied("a", 5, "y"), deleted("a", 30, "y")]).publish().is_empty());
        assert_eq!(&*reader.snapshot().get("shop", "cart").unwrap().key.uid, "b");
    }

    #[test]
    fn a_change_of_only_the_revision_is_stored_and_not_reported() {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        assert!(writer.apply(vec![applied("a", 6, "x")]).publish().is_empty());
        let key = PodKey::new("shop", "cart", "a");
        let held = reader.snapshot().get("shop", "cart").unwrap();
        assert_eq!((&held.key, held.revision), (&key, Revision(6)));
    }

    #[test]
    fn a_change_names_the_sections_that_differ() {
        let (mut writer, _) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        let mut other = pod("cart", "a", 6, "x");
        other.status.phase = "Running".into();
        let changes = writer.apply(vec![PodEvent::applied(cached(&other))]).publish();
        assert_eq!(changes[0].sections, SectionSet::EMPTY.with(Section::Status).with(Section::Full));
    }

    #[test]
    fn a_deletion_at_an_older_revision_is_ignored() {
        let (mut writer, _) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        assert!(writer.apply(vec![deleted("a", 4, "x")]).publish().is_empty());
        assert_eq!(summary(&writer.apply(vec![deleted("a", 5, "x")]).publish()), ["-a@5"]);
    }

    #[test]
    fn a_change_that_comes_with_the_deletion_is_reported_first() {
        let (mut writer, _) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        assert_eq!(summary(&writer.apply(vec![deleted("a", 8, "y")]).publish()), ["a@5>8", "-a@8"]);
    }

    #[test]
    fn a_repeated_event_or_an_old_list_restores_no_deleted_pod() {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x"), deleted("a", 8, "x")]).publish();
        assert!(writer.apply(vec![applied("a", 5, "x")]).publish().is_empty());
        assert!(
            writer
                .relist([Record::from(cached(&pod("cart", "a", 5, "x")))].into_iter().collect(), Revision(6))
                .publish()
                .is_empty()
        );
        assert!(reader.snapshot().is_empty());
        assert_eq!(reader.snapshot().revision(), Revision(8));
    }

    #[test]
    fn absence_from_a_list_removes_only_pods_that_are_not_newer() {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        writer.apply(vec![applied("a", 12, "y")]).publish();
        assert!(writer.relist(PodList::default(), Revision(10)).publish().is_empty());
        assert_eq!(summary(&writer.relist(PodList::default(), Revision(12)).publish()), ["-a@12"]);
        assert!(reader.snapshot().is_empty());
    }

    #[test]
    fn a_first_list_equals_its_pods_applied_one_by_one() {
        let pods = (0..500_u64).map(|at| {
            let name = format!("cart-{}", at * 37 % 450);
            cached(&pod(&name, &format!("u{at}"), at + 1, ["x", "y", "z"][at as usize % 3]))
        });
        let pods: Vec<_> = pods.collect();
        let (mut listed, of_list) = cache::new(7);
        let relisted = listed.relist(pods.iter().cloned().map(Record::from).collect(), Revision(600)).publish();
        let (mut followed, of_events) = cache::new(7);
        followed.apply(pods.into_iter().map(PodEvent::applied).collect()).publish();
        let one = of_list.snapshot();
        let other = of_events.snapshot();
        assert_eq!((one.len(), relisted.len()), (450, 450));
        assert!(one.iter().eq(other.iter()));
        let equal = |value: &str| LabelRequirement {
            key: "app".into(),
            operator: LabelOperator::In,
            values: vec![value.to_owned()],
        };
        let mut queries = vec![PodQuery { namespace: Some("shop".into()), ..PodQuery::default() }];
        for value in ["x", "y", "z"] {
            let of = |what: &str| Some(format!("{what}-of-{value}").into());
            queries.extend([
                PodQuery { node: of("node"), ..PodQuery::default() },
                PodQuery { phase: of("phase"), ..PodQuery::default() },
                PodQuery { owner_uid: of("owner"), ..PodQuery::default() },
                PodQuery { labels: LabelSelector(vec![equal(value)]), ..PodQuery::default() },
            ]);
        }
        for query in &queries {
            assert_eq!(one.count(query), other.count(query));
            assert_eq!(one.find(query, 1_000, None).pods, other.find(query, 1_000, None).pods, "{query:?}");
            assert!(one.count(query) > 100, "{query:?}");
        }
        for pod in other.iter() {
            assert_eq!(one.get("shop", &pod.key.name), Some(pod.clone()));
            assert_eq!(one.by_uid(&pod.key.uid), Some(pod));
        }
    }

    #[test]
    fn a_pod_listed_by_uid_stays_and_its_predecessor_is_removed() {
        let (mut writer, _) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        let held = |uid: &str| {
            let mut list = PodList::default();
            list.held.insert(uid);
            list
        };
        assert!(writer.relist(held("a"), Revision(7)).publish().is_empty());
        assert_eq!(summary(&writer.relist(held("b"), Revision(9)).publish()), ["-a@5"]);
        let uuid = |last: char| format!("6f1c5c3e-1d2b-4c8e-9a44-3f0e8b1a7d5{last}");
        writer.apply(vec![applied(&uuid('1'), 15, "x")]).publish();
        assert!(writer.relist(held(&uuid('1')), Revision(17)).publish().is_empty());
        assert_eq!(summary(&writer.relist(held(&uuid('2')), Revision(19)).publish()), [format!("-{}@15", uuid('1'))]);
    }

    #[test]
    fn a_rolled_back_history_replaces_newer_revisions_once() {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![applied("a", 50, "x")]).publish();
        let older = || PodList::from_iter([Record::from(cached(&pod("cart", "a", 20, "y")))]);
        assert!(writer.relist(older(), Revision(30)).publish().is_empty());
        writer.roll_back();
        assert_eq!(summary(&writer.relist(older(), Revision(30)).publish()), ["a@50>20"]);
        assert_eq!(reader.snapshot().revision(), Revision(30));
        assert!(writer.relist(PodList::default(), Revision(10)).publish().is_empty(), "the guards are back");
    }

    #[test]
    fn a_snapshot_does_not_change() {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        let before = reader.snapshot();
        writer.apply(vec![applied("a", 6, "y")]).publish();
        assert_eq!(before.get("shop", "cart").unwrap().revision, Revision(5));
        assert_eq!(reader.snapshot().get("shop", "cart").unwrap().revision, Revision(6));
    }

    #[test]
    fn a_cache_is_stale_until_the_watch_is_live() {
        let (mut writer, reader) = cache::new(7);
        assert!(reader.staleness().is_some());
        writer.set_live();
        assert_eq!(reader.staleness(), None);
        writer.set_stale(Staleness { reason: "cut".into() });
        assert_eq!(reader.staleness().unwrap().reason, "cut");
    }

    #[test]
    fn readers_see_an_update_only_once_it_is_published_or_dropped() {
        let (mut writer, reader) = cache::new(7);
        let update = writer.apply(vec![applied("a", 5, "x")]);
        assert_eq!(summary(update.changes()), ["+a@5"]);
        assert!(reader.snapshot().is_empty());
        assert_eq!(summary(&update.publish()), ["+a@5"]);
        assert_eq!(reader.snapshot().len(), 1);
        drop(writer.apply(vec![deleted("a", 6, "x")]));
        assert!(reader.snapshot().is_empty());
    }

    #[test]
    fn an_update_dropped_by_a_panic_is_published_with_the_next_one() {
        let (mut writer, reader) = cache::new(7);
        writer.apply(vec![applied("a", 5, "x")]).publish();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _update = writer.apply(vec![deleted("a", 6, "x")]);
            panic!("before the deletion is recorded");
        }));
        assert!(panicked.is_err());
        assert_eq!(reader.snapshot().len(), 1);
        writer.bookmark(Revision(7));
        assert!(reader.snapshot().is_empty());
    }

    #[tokio::test]
    async fn waiting_ends_at_the_revision_or_with_the_writer() {
        let (mut writer, mut reader) = cache::new(7);
        let mut waiter = reader.clone();
        let waiting = tokio::spawn(async move { waiter.wait_for(|snapshot| snapshot.revision() >= Revision(6)).await });
        for revision in 5..8 {
            writer.apply(vec![applied("a", revision, "x")]).publish();
            tokio::task::yield_now().await;
        }
        assert!(waiting.await.unwrap().unwrap().revision() >= Revision(6));
        drop(writer);
        assert!(reader.wait_for(|snapshot| snapshot.revision() >= Revision(100)).await.is_none());
    }
}
