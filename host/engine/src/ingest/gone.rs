//! The last states of Pods that were deleted while another replica ran the plugins. When this one goes on after it, its
//! plugins get those deletions that the other one may not have delivered. Another replica may run the plugins of some
//! shards of tenants only: a last state is kept while a plugin of one of the shards that it concerns may need it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound::{Excluded, Included, Unbounded},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_pods::pod::{CachedPod, Change};
use podium_vocabulary::{Revision, Shards, Tenant};
use tokio::time::{Duration, Instant};

use crate::dispatch::Lane;

/// The most bytes of last states.
const MOST: usize = 32 << 20;
/// Since the end of the standby, the time in which deletions are kept for plugins that are loaded meanwhile. One that
/// is loaded later does not get them.
const DELIVERED_FOR: Duration = Duration::from_secs(60);

/// The deletions of a standby.
#[derive(Debug)]
pub struct GonePods {
    inner: Mutex<Inner>,
    /// Turns uids into numbers.
    hash: fn(&str) -> u64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The shards whose plugins another replica runs.
    standby: Shards,
    kept: Kept,
    /// The number of the latest last state.
    latest: u64,
    /// How many were dropped since the host started.
    dropped: u64,
    /// How many of them before the standby began.
    dropped_before: u64,
    /// By shard, the end of the standby.
    taken: [Option<Instant>; Shards::COUNT],
    /// The plugins that have got them, or get them now, with their shards.
    delivered: BTreeMap<Lane, Shards>,
    /// Shared with each [`Delivery`].
    deliveries: Arc<()>,
    /// How often the API server's history was rolled back.
    epoch: u64,
}

/// The namespace of a last state, and its number: each has a higher one than those before it.
type Place = (Arc<str>, u64);

/// The last states by namespace, the oldest of a namespace first.
#[derive(Debug, Default)]
struct Kept {
    pods: BTreeMap<Place, Gone>,
    bytes: usize,
    by_namespace: BTreeMap<Arc<str>, usize>,
}

/// The deletions that a plugin gets, in slices. They are kept while this exists.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    /// `None` for a plugin of the cluster.
    namespace: Option<Arc<str>>,
    shard: Shards,
    /// The last one of the slice before.
    after: Option<Place>,
    /// The number of the latest one when the plugin was loaded. It has seen later ones itself.
    latest: u64,
    _kept: Arc<()>,
}

#[derive(Debug)]
struct Gone {
    /// At which the cache did not have the Pod any more.
    revision: Revision,
    pod: Arc<CachedPod>,
    bytes: usize,
    /// Made of the uid.
    hash: u64,
    /// The shards for which it may not have been delivered.
    open: Shards,
}

/// Returns the shards of the plugins that may see the Pods of a namespace.
fn concerned(namespace: &str) -> Shards {
    Shards::of_namespace(namespace).with(Shards::of_tenant(&Tenant::Cluster))
}

impl Kept {
    /// Adds a last state, and returns how many were dropped: the oldest of the namespace that has the most bytes.
    fn add(&mut self, number: u64, gone: Gone) -> u64 {
        let pod = &gone.pod;
        let namespace = pod.key.namespace.clone();
        let before = self.range(Some(&namespace), None).next_back();
        let bytes = pod.size_beside(before.map(|(_, last)| &*last.pod));
        *self.by_namespace.entry(namespace.clone()).or_default() += bytes;
        self.bytes += bytes;
        self.pods.insert((namespace, number), Gone { bytes, ..gone });
        let mut dropped = 0;
        while self.bytes > MOST && self.drop_oldest().is_some() {
            dropped += 1;
        }
        dropped
    }

    fn drop_oldest(&mut self) -> Option<()> {
        let (most, _) = self.by_namespace.iter().max_by_key(|(_, bytes)| **bytes)?;
        let oldest = self.range(Some(most), None).next()?.0.clone();
        let Gone { bytes, .. } = self.pods.remove(&oldest)?;
        self.subtract(&oldest.0, bytes);
        Some(())
    }

    fn subtract(&mut self, namespace: &Arc<str>, bytes: usize) {
        self.bytes -= bytes;
        let Some(left) = self.by_namespace.get_mut(namespace) else { return };
        *left -= bytes;
        if *left == 0 {
            self.by_namespace.remove(namespace);
        }
    }

    /// Returns those of a namespace, or all, behind a place.
    fn range(
        &self,
        namespace: Option<&Arc<str>>,
        after: Option<&Place>,
    ) -> impl DoubleEndedIterator<Item = (&Place, &Gone)> + use<'_> {
        let first = namespace.map_or(Unbounded, |namespace| Included((namespace.clone(), 0)));
        let last = namespace.map_or(Unbounded, |namespace| Included((namespace.clone(), u64::MAX)));
        self.pods.range((after.map_or(first, |after| Excluded(after.clone())), last))
    }

    /// Settles some for these shards. Removes those that are settled for all that they concern, and returns them.
    fn settle(&mut self, shards: Shards, is_settled: impl Fn(&Gone) -> bool) -> Vec<(Place, Gone)> {
        let settle = |_: &Place, gone: &mut Gone| {
            if is_settled(gone) {
                gone.open = gone.open.without(shards);
            }
            gone.open.is_empty()
        };
        let taken: Vec<_> = self.pods.extract_if(.., settle).collect();
        taken.iter().for_each(|((namespace, _), gone)| self.subtract(namespace, gone.bytes));
        taken
    }
}

impl Inner {
    /// Returns the shards whose plugins get deletions when they are loaded.
    fn taking(&self) -> Shards {
        let is_taking = |number: &usize| self.taken[*number].is_some_and(|taken| taken.elapsed() <= DELIVERED_FOR);
        (0..Shards::COUNT).filter(is_taking).map(Shards::one).fold(Shards::NONE, Shards::with)
    }

    fn add(&mut self, revision: Revision, pod: Arc<CachedPod>, hash: u64, open: Shards) {
        self.latest += 1;
        self.dropped += self.kept.add(self.latest, Gone { revision, pod, bytes: 0, hash, open });
    }
}

impl GonePods {
    /// Returns none. `hash` turns uids into the numbers of [`Self::has_all`].
    #[must_use]
    pub fn new(hash: fn(&str) -> u64) -> Self {
        Self { inner: Mutex::default(), hash }
    }

    /// Begins to keep deletions for some shards, if it has not begun, and with them those of `unsettled` runs, of
    /// before `revision`.
    pub fn begin_standby<F>(&self, shards: Shards, revision: Revision, unsettled: F)
    where
        F: FnOnce() -> Vec<Arc<CachedPod>>,
    {
        self.expire();
        let mut inner = self.inner.lock();
        let shards = shards.without(inner.standby);
        if shards.is_empty() {
            return;
        }
        if inner.standby.is_empty() {
            inner.dropped_before = inner.dropped;
        }
        inner.standby = inner.standby.with(shards);
        inner.delivered.retain(|_, of| !of.intersects(shards));
        let places = inner.kept.pods.iter().map(|(place, gone)| (gone.pod.key.uid.clone(), place.clone()));
        let places: HashMap<_, _> = places.collect();
        for pod in unsettled() {
            let open = concerned(&pod.key.namespace).and(shards);
            let known = places.get(&pod.key.uid).and_then(|place| inner.kept.pods.get_mut(place));
            match known {
                Some(known) => known.open = known.open.with(open),
                None if open.is_empty() => {}
                None => {
                    let hash = (self.hash)(&pod.key.uid);
                    inner.add(revision, pod, hash, open);
                }
            }
        }
    }

    /// Plugins of these shards that are loaded now get the deletions. Returns how many are kept, and how many were
    /// dropped because they are too many.
    pub fn end_standby(&self, shards: Shards) -> (usize, u64) {
        let mut inner = self.inner.lock();
        inner.standby = inner.standby.without(shards);
        for number in (0..Shards::COUNT).filter(|number| shards.intersects(Shards::one(*number))) {
            inner.taken[number] = Some(Instant::now());
        }
        let kept = inner.kept.pods.values().filter(|gone| gone.open.intersects(shards)).count();
        (kept, inner.dropped - inner.dropped_before)
    }

    /// Returns how many last states were dropped since the host started because they were too many.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.inner.lock().dropped
    }

    /// Returns the shards of which plugins that are loaded get deletions of before the end of the standby.
    #[must_use]
    pub fn delivering(&self) -> Shards {
        self.expire();
        let inner = self.inner.lock();
        let open = inner.kept.pods.values().map(|gone| gone.open).fold(Shards::NONE, Shards::with);
        open.without(inner.standby)
    }

    /// Forgets the deletions when no plugin gets them any more. The ingest loop does not wait while they are dropped.
    fn expire(&self) {
        let _expired = {
            let mut inner = self.inner.lock();
            let is_over = !inner.kept.pods.is_empty() && Arc::strong_count(&inner.deliveries) == 1;
            let over = Shards::ALL.without(inner.standby).without(inner.taking());
            is_over.then(|| inner.kept.settle(over, |_| true))
        };
    }

    /// Returns true if the last states are kept of all Pods whose uids have these numbers. The ingest loop waits only
    /// while the numbers are copied.
    #[must_use]
    pub fn has_all(&self, hashes: &[u64]) -> bool {
        if hashes.is_empty() {
            return true;
        }
        let kept: Vec<_> = self.inner.lock().kept.pods.values().map(|gone| gone.hash).collect();
        let kept: HashSet<_> = kept.into_iter().collect();
        hashes.iter().all(|hash| kept.contains(hash))
    }

    /// Forgets for some shards the deletions up to a revision that the holder has delivered, except those that have not
    /// settled. Says nothing of revisions of another epoch. The ingest loop does not wait while they are dropped.
    pub fn settled(&self, shards: Shards, epoch: u64, revision: Revision, is_unsettled: impl Fn(&str) -> bool) {
        let _settled = {
            let mut inner = self.inner.lock();
            let is_settled = |gone: &Gone| gone.revision <= revision && !is_unsettled(&gone.pod.key.uid);
            (inner.epoch == epoch).then(|| inner.kept.settle(shards, is_settled))
        };
    }

    /// Returns how often the API server's history was rolled back.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.inner.lock().epoch
    }

    pub(super) fn rolled_back(&self) {
        self.inner.lock().epoch += 1;
    }

    /// Records the deletions among changes that were published at this revision.
    pub(super) fn record(&self, changes: &[Change], revision: Revision) {
        let mut inner = self.inner.lock();
        let kept = inner.standby.with(inner.taking());
        if kept.is_empty() {
            return;
        }
        for pod in changes.iter().filter(|change| change.new.is_none()).filter_map(|change| change.old.clone()) {
            let open = concerned(&pod.key.namespace).and(kept);
            if !open.is_empty() {
                let hash = (self.hash)(&pod.key.uid);
                inner.add(revision, pod, hash, open);
            }
        }
    }

    /// Begins to deliver the deletions of a namespace, or all, to a plugin that is loaded, once.
    pub(super) fn begin_delivery(&self, lane: Lane, namespace: Option<Arc<str>>) -> Option<Delivery> {
        let mut inner = self.inner.lock();
        let shard = namespace.clone().map_or(Tenant::Cluster, Tenant::Namespace);
        let shard = Shards::of_tenant(&shard);
        let may = inner.taking().intersects(shard) && !inner.standby.intersects(shard);
        if !may || inner.delivered.insert(lane, shard).is_some() {
            return None;
        }
        Some(Delivery { namespace, shard, after: None, latest: inner.latest, _kept: inner.deliveries.clone() })
    }

    /// Returns the next deletions as changes, at most this number, and the delivery if more may follow.
    pub(super) fn next_slice(&self, delivery: &Delivery, most: usize) -> (Vec<Change>, Option<Delivery>) {
        let inner = self.inner.lock();
        if inner.standby.intersects(delivery.shard) {
            return (Vec::new(), None);
        }
        let slice: Vec<_> = inner.kept.range(delivery.namespace.as_ref(), delivery.after.as_ref()).take(most).collect();
        let is_due = |number: u64, gone: &Gone| number <= delivery.latest && gone.open.intersects(delivery.shard);
        let due = slice.iter().filter(|((_, number), gone)| is_due(*number, gone));
        let changes = due.filter_map(|(_, gone)| Change::between(Some(gone.pod.clone()), None)).collect();
        let last = slice.get(most.saturating_sub(1)).map(|(place, _)| Place::clone(place));
        (changes, last.map(|last| Delivery { after: Some(last), ..delivery.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(name: &str) -> Change {
        deletion_in("shop", name)
    }

    fn deletion_in(namespace: &str, name: &str) -> Change {
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = namespace.into();
        pod.header.name = name.into();
        pod.header.uid = name.into();
        pod.header.resource_version = "1".into();
        Change::between(Some(Arc::new(CachedPod::new(&pod).unwrap())), None).unwrap()
    }

    fn delivered(gone: &GonePods, lane: u32) -> Vec<String> {
        let mut delivery = gone.begin_delivery(Lane(lane), None);
        slices(gone, &mut delivery, usize::MAX).concat()
    }

    /// Returns the names of a delivery's Pods by slice, of at most this number of slices.
    fn slices(gone: &GonePods, delivery: &mut Option<Delivery>, most: usize) -> Vec<Vec<String>> {
        let next = |_| {
            let (changes, rest) = gone.next_slice(&delivery.take()?, 2);
            *delivery = rest;
            Some(changes.iter().map(|change| change.key().unwrap().name.to_string()).collect())
        };
        (0..most).map_while(next).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_gets_the_deletions_of_its_namespace_in_slices() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        gone.begin_standby(Shards::ALL, Revision(1), Vec::new);
        let names = ["a", "b", "c", "d", "e"];
        for (namespace, name) in names.iter().flat_map(|name| ["bank", "shop", "zoo"].map(|of| (of, *name))) {
            gone.record(&[deletion_in(namespace, &format!("{namespace}-{name}"))], Revision(2));
        }
        gone.end_standby(Shards::ALL);
        let mut shop = gone.begin_delivery(Lane(1), Some("shop".into()));
        assert_eq!(slices(&gone, &mut shop, 1), [["shop-a", "shop-b"]]);
        // The plugin sees this one itself; and the delivery may take longer than plugins have for their load.
        gone.record(&[deletion_in("shop", "shop-f")], Revision(3));
        tokio::time::sleep(DELIVERED_FOR + Duration::from_secs(1)).await;
        assert!(!gone.delivering().is_empty() && gone.begin_delivery(Lane(2), None).is_none());
        assert_eq!(slices(&gone, &mut shop, 9), [vec!["shop-c", "shop-d"], vec!["shop-e"], vec![]]);
        assert!(gone.delivering().is_empty());
        gone.begin_standby(Shards::ALL, Revision(4), || vec![deletion("a").old.unwrap(), deletion("b").old.unwrap()]);
        gone.end_standby(Shards::ALL);
        let mut shop = gone.begin_delivery(Lane(1), Some("shop".into()));
        gone.begin_standby(Shards::ALL, Revision(4), Vec::new);
        assert_eq!(slices(&gone, &mut shop, 9), [[""; 0]], "the other replica runs the plugins");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_gets_once_the_deletions_that_the_holder_has_not_delivered() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        gone.record(&[deletion("before")], Revision(1));
        gone.begin_standby(Shards::ALL, Revision(1), Vec::new);
        for (revision, name) in [(2, "a"), (3, "b"), (4, "c")] {
            gone.record(&[deletion(name)], Revision(revision));
        }
        assert!(gone.has_all(&[1]) && !gone.has_all(&[1, 2]), "numbers are lengths here");
        // Of another history.
        gone.settled(Shards::ALL, 1, Revision(9), |_| false);
        gone.settled(Shards::ALL, 0, Revision(3), |uid| uid == "a");
        assert_eq!(delivered(&gone, 1), [""; 0], "the other replica runs the plugins");
        assert!(gone.delivering().is_empty());
        assert_eq!(gone.end_standby(Shards::ALL), (2, 0));
        assert_eq!((delivered(&gone, 1), delivered(&gone, 1)), (vec!["a".to_owned(), "c".to_owned()], Vec::new()));
        // Before the plugins are known to the loop.
        gone.record(&[deletion("d")], Revision(5));
        assert_eq!(delivered(&gone, 2), ["a", "c", "d"]);
        assert!(!gone.delivering().is_empty(), "no mark covers them");
        tokio::time::sleep(DELIVERED_FOR + Duration::from_secs(1)).await;
        assert!(gone.delivering().is_empty());
        assert_eq!(gone.inner.lock().kept.bytes, 0, "without another deletion");
        gone.record(&[deletion("e")], Revision(6));
        assert_eq!(delivered(&gone, 3), [""; 0], "it did not run on them");
        gone.begin_standby(Shards::ALL, Revision(7), Vec::new);
        gone.end_standby(Shards::ALL);
        assert_eq!(delivered(&gone, 1), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_that_have_not_settled_in_a_term_are_kept_for_the_next_one() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        gone.begin_standby(Shards::ALL, Revision(1), Vec::new);
        gone.record(&[deletion("a")], Revision(2));
        gone.end_standby(Shards::ALL);
        let unsettled = || ["a", "b"].map(|name| deletion(name).old.unwrap()).to_vec();
        gone.begin_standby(Shards::ALL, Revision(3), unsettled);
        gone.begin_standby(Shards::ALL, Revision(9), || unreachable!("once"));
        // The last mark of the term.
        gone.settled(Shards::ALL, 0, Revision(3), |uid| uid == "b");
        assert_eq!(gone.end_standby(Shards::ALL), (1, 0));
        assert_eq!(delivered(&gone, 1), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_are_kept_and_settled_for_each_shard() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        let shard = Shards::of_namespace;
        let cluster = Shards::of_tenant(&Tenant::Cluster);
        gone.begin_standby(shard("shop").with(cluster), Revision(1), Vec::new);
        gone.record(&[deletion_in("shop", "a"), deletion_in("bank", "b")], Revision(2));
        gone.begin_standby(shard("bank"), Revision(3), || vec![deletion_in("bank", "b").old.unwrap()]);
        // Plugins of the cluster have settled on both.
        gone.settled(cluster, 0, Revision(2), |_| false);
        assert_eq!(gone.end_standby(cluster), (0, 0));
        assert_eq!(delivered(&gone, 1), [""; 0]);
        assert_eq!(gone.end_standby(shard("shop")), (1, 0));
        let of = |namespace: &str, lane| gone.begin_delivery(Lane(lane), Some(namespace.into()));
        assert!(of("bank", 2).is_none(), "another replica runs its plugins");
        assert_eq!(gone.delivering(), shard("shop"));
        assert_eq!(slices(&gone, &mut of("shop", 3), 9).concat(), ["a"]);
        gone.settled(shard("shop"), 0, Revision(2), |_| false);
        assert_eq!(gone.end_standby(shard("bank")), (1, 0));
        assert_eq!(slices(&gone, &mut of("bank", 4), 9).concat(), ["b"], "copied from its unsettled run");
        gone.begin_standby(shard("bank"), Revision(4), Vec::new);
        assert!(of("shop", 3).is_none(), "its delivery is over, whatever happens to others");
        gone.settled(shard("bank"), 0, Revision(4), |_| false);
        let inner = gone.inner.lock();
        assert_eq!((inner.kept.bytes, inner.kept.pods.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_deletions_of_the_largest_namespace_are_dropped_and_counted() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        gone.begin_standby(Shards::ALL, Revision(1), Vec::new);
        let large = |name: &str, namespace: &str| {
            let mut pod = podium_wire::Pod::default();
            pod.header.namespace = namespace.into();
            pod.header.name = name.into();
            pod.header.uid = name.into();
            pod.header.resource_version = "1".into();
            pod.annotations.insert("a".into(), "b".repeat(1 << 20));
            Change::between(Some(Arc::new(CachedPod::new(&pod).unwrap())), None).unwrap()
        };
        gone.record(&[large("small", "a")], Revision(2));
        let many: Vec<_> = (0..64).map(|number| large(&number.to_string(), "shop")).collect();
        gone.record(&many, Revision(2));
        assert!(gone.inner.lock().kept.bytes <= MOST);
        let (kept, dropped) = gone.end_standby(Shards::ALL);
        assert!((8..=32).contains(&kept), "{kept}");
        assert_eq!((kept as u64 + dropped, gone.dropped()), (65, dropped));
        assert_eq!((&*delivered(&gone, 1)[0], &*delivered(&gone, 2)[kept - 1]), ("small", "63"));
        gone.begin_standby(Shards::ALL, Revision(3), Vec::new);
        assert_eq!((gone.end_standby(Shards::ALL).1, gone.dropped()), (0, dropped), "of each standby, and of all");
    }
}
