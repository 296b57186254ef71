//! The last states of Pods that were deleted while another replica ran the plugins. When this one goes on after it, its
//! plugins get those deletions that the other one may not have delivered.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_pods::pod::{CachedPod, Change};
use podium_vocabulary::Revision;
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
    is_standby: bool,
    kept: Kept,
    dropped: u64,
    taken: Option<Instant>,
    /// The plugins that have got them.
    delivered: BTreeSet<Lane>,
    /// How often the API server's history was rolled back.
    epoch: u64,
}

/// The last states, by namespace.
#[derive(Debug, Default)]
struct Kept {
    namespaces: BTreeMap<Arc<str>, OfNamespace>,
    bytes: usize,
}

/// Those of one namespace, the oldest first.
#[derive(Debug, Default)]
struct OfNamespace {
    pods: VecDeque<Gone>,
    bytes: usize,
}

#[derive(Debug)]
struct Gone {
    /// At which the cache did not have the Pod any more.
    revision: Revision,
    pod: Arc<CachedPod>,
    bytes: usize,
    /// Made of the uid.
    hash: u64,
}

impl Kept {
    fn pods(&self) -> impl Iterator<Item = &Gone> {
        self.namespaces.values().flat_map(|of| &of.pods)
    }

    /// Adds a last state, and returns how many were dropped: the oldest of the namespace that has the most bytes.
    fn add(&mut self, revision: Revision, pod: Arc<CachedPod>, hash: u64) -> u64 {
        let of = self.namespaces.entry(pod.key.namespace.clone()).or_default();
        let bytes = pod.size_beside(of.pods.back().map(|last| &*last.pod));
        of.pods.push_back(Gone { revision, pod, bytes, hash });
        of.bytes += bytes;
        self.bytes += bytes;
        let mut dropped = 0;
        while self.bytes > MOST {
            let most = self.namespaces.values_mut().max_by_key(|of| of.bytes);
            let Some((oldest, of)) = most.and_then(|of| Some((of.pods.pop_front()?, of))) else { break };
            of.bytes -= oldest.bytes;
            self.bytes -= oldest.bytes;
            dropped += 1;
        }
        dropped
    }

    fn retain(&mut self, keeps: impl Fn(&Gone) -> bool) {
        self.namespaces.retain(|_, of| {
            of.pods.retain(&keeps);
            of.bytes = of.pods.iter().map(|gone| gone.bytes).sum();
            !of.pods.is_empty()
        });
        self.bytes = self.namespaces.values().map(|of| of.bytes).sum();
    }
}

impl Inner {
    fn is_taking(&self) -> bool {
        self.taken.is_some_and(|taken| taken.elapsed() <= DELIVERED_FOR)
    }

    /// Forgets the deletions when no plugin gets them any more.
    fn expire(&mut self) {
        if !self.is_standby && !self.is_taking() {
            self.kept = Kept::default();
        }
    }
}

impl GonePods {
    /// Returns none. `hash` turns uids into the numbers of [`Self::has_all`].
    #[must_use]
    pub fn new(hash: fn(&str) -> u64) -> Self {
        Self { inner: Mutex::default(), hash }
    }

    /// Begins to keep deletions, if it has not begun, and with them those of `unsettled` runs, of before `revision`.
    pub fn begin_standby(&self, revision: Revision, unsettled: impl FnOnce() -> Vec<Arc<CachedPod>>) {
        let mut inner = self.inner.lock();
        if inner.is_standby {
            return;
        }
        inner.expire();
        inner.is_standby = true;
        inner.dropped = 0;
        inner.delivered.clear();
        let uids: HashSet<_> = inner.kept.pods().map(|gone| gone.pod.key.uid.clone()).collect();
        for pod in unsettled().into_iter().filter(|pod| !uids.contains(&pod.key.uid)) {
            let hash = (self.hash)(&pod.key.uid);
            inner.dropped += inner.kept.add(revision, pod, hash);
        }
    }

    /// Plugins that are loaded now get the deletions. Returns how many are kept, and how many were dropped because they
    /// are too many.
    pub fn end_standby(&self) -> (usize, u64) {
        let mut inner = self.inner.lock();
        inner.is_standby = false;
        inner.taken = Some(Instant::now());
        (inner.kept.pods().count(), inner.dropped)
    }

    /// Returns true while plugins that are loaded get deletions of before the end of the standby.
    #[must_use]
    pub fn is_delivering(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.expire();
        !inner.is_standby && !inner.kept.namespaces.is_empty()
    }

    /// Returns true if the last states are kept of all Pods whose uids have these numbers. The ingest loop waits only
    /// while the numbers are copied.
    #[must_use]
    pub fn has_all(&self, hashes: &[u64]) -> bool {
        if hashes.is_empty() {
            return true;
        }
        let kept: Vec<_> = self.inner.lock().kept.pods().map(|gone| gone.hash).collect();
        let kept: HashSet<_> = kept.into_iter().collect();
        hashes.iter().all(|hash| kept.contains(hash))
    }

    /// Forgets the deletions up to a revision that the holder has delivered, except those that have not settled. Says
    /// nothing of revisions of another epoch.
    pub fn settled(&self, epoch: u64, revision: Revision, is_unsettled: impl Fn(&str) -> bool) {
        let mut inner = self.inner.lock();
        if inner.epoch == epoch {
            inner.kept.retain(|gone| gone.revision > revision || is_unsettled(&gone.pod.key.uid));
        }
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
        inner.expire();
        if !inner.is_standby && !inner.is_taking() {
            return;
        }
        for pod in changes.iter().filter(|change| change.new.is_none()).filter_map(|change| change.old.clone()) {
            let hash = (self.hash)(&pod.key.uid);
            inner.dropped += inner.kept.add(revision, pod, hash);
        }
    }

    /// Returns the deletions as changes for a plugin that is loaded, once.
    pub(super) fn deliver(&self, lane: Lane) -> Vec<Change> {
        let mut inner = self.inner.lock();
        inner.expire();
        if inner.is_standby || inner.kept.namespaces.is_empty() || !inner.delivered.insert(lane) {
            return Vec::new();
        }
        inner.kept.pods().filter_map(|gone| Change::between(Some(gone.pod.clone()), None)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(name: &str) -> Change {
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = "shop".into();
        pod.header.name = name.into();
        pod.header.uid = name.into();
        pod.header.resource_version = "1".into();
        Change::between(Some(Arc::new(CachedPod::new(&pod).unwrap())), None).unwrap()
    }

    fn delivered(gone: &GonePods, lane: u32) -> Vec<String> {
        gone.deliver(Lane(lane)).iter().map(|change| change.key().unwrap().name.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_gets_once_the_deletions_that_the_holder_has_not_delivered() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        gone.record(&[deletion("before")], Revision(1));
        gone.begin_standby(Revision(1), Vec::new);
        for (revision, name) in [(2, "a"), (3, "b"), (4, "c")] {
            gone.record(&[deletion(name)], Revision(revision));
        }
        assert!(gone.has_all(&[1]) && !gone.has_all(&[1, 2]), "numbers are lengths here");
        // Of another history.
        gone.settled(1, Revision(9), |_| false);
        gone.settled(0, Revision(3), |uid| uid == "a");
        assert_eq!(delivered(&gone, 1), [""; 0], "the other replica runs the plugins");
        assert!(!gone.is_delivering());
        assert_eq!(gone.end_standby(), (2, 0));
        assert_eq!((delivered(&gone, 1), delivered(&gone, 1)), (vec!["a".to_owned(), "c".to_owned()], Vec::new()));
        // Before the plugins are known to the loop.
        gone.record(&[deletion("d")], Revision(5));
        assert_eq!(delivered(&gone, 2), ["a", "c", "d"]);
        assert!(gone.is_delivering(), "no mark covers them");
        tokio::time::sleep(DELIVERED_FOR + Duration::from_secs(1)).await;
        assert!(!gone.is_delivering());
        assert_eq!(gone.inner.lock().kept.bytes, 0, "without another deletion");
        gone.record(&[deletion("e")], Revision(6));
        assert_eq!(delivered(&gone, 3), [""; 0], "it did not run on them");
        gone.begin_standby(Revision(7), Vec::new);
        gone.end_standby();
        assert_eq!(delivered(&gone, 1), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn deletions_that_have_not_settled_in_a_term_are_kept_for_the_next_one() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        gone.begin_standby(Revision(1), Vec::new);
        gone.record(&[deletion("a")], Revision(2));
        gone.end_standby();
        let unsettled = || ["a", "b"].map(|name| deletion(name).old.unwrap()).to_vec();
        gone.begin_standby(Revision(3), unsettled);
        gone.begin_standby(Revision(9), || unreachable!("once"));
        // The last mark of the term.
        gone.settled(0, Revision(3), |uid| uid == "b");
        assert_eq!(gone.end_standby(), (1, 0));
        assert_eq!(delivered(&gone, 1), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_deletions_of_the_largest_namespace_are_dropped_and_counted() {
        let gone = GonePods::new(|uid| uid.len() as u64);
        gone.begin_standby(Revision(1), Vec::new);
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
        let (kept, dropped) = gone.end_standby();
        assert!((8..=32).contains(&kept), "{kept}");
        assert_eq!(kept as u64 + dropped, 65);
        assert_eq!((&*delivered(&gone, 1)[0], &*delivered(&gone, 2)[kept - 1]), ("small", "63"));
    }
}
