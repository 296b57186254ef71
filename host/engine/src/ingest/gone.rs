//! The last states of Pods that were deleted while another replica ran the plugins. When this one goes on after it, its
//! plugins get those deletions that the other one may not have delivered.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_pods::pod::{CachedPod, Change};
use podium_vocabulary::Revision;
use tokio::time::{Duration, Instant};

use crate::dispatch::Lane;

/// The most Pods. One takes about 460 bytes where it shares its form with others, and else twice its JSON.
const MOST: usize = 10_000;
/// Since the end of the standby, the time in which deletions are kept for plugins that are loaded meanwhile. One that
/// is loaded later did not run on these Pods.
const DELIVERED_FOR: Duration = Duration::from_secs(60);

/// The deletions of a standby.
#[derive(Debug, Default)]
pub struct GonePods(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_standby: bool,
    /// Each with the revision at which the cache did not have it any more.
    pods: VecDeque<(Revision, Arc<CachedPod>)>,
    dropped: u64,
    taken: Option<Instant>,
    /// The plugins that have got them.
    delivered: BTreeSet<Lane>,
    /// How often the API server's history was rolled back.
    epoch: u64,
}

impl Inner {
    fn is_taking(&self) -> bool {
        self.taken.is_some_and(|taken| taken.elapsed() <= DELIVERED_FOR)
    }
}

impl GonePods {
    /// Begins to keep deletions, without those of before; or ends it, so that plugins that are loaded now get them.
    /// Returns how many are kept, and how many were dropped because they are too many.
    pub fn set_standby(&self, is_standby: bool) -> (usize, u64) {
        let mut inner = self.0.lock();
        if is_standby != inner.is_standby {
            inner.is_standby = is_standby;
            inner.taken = (!is_standby).then(Instant::now);
            inner.delivered.clear();
            if is_standby {
                inner.pods.clear();
                inner.dropped = 0;
            }
        }
        (inner.pods.len(), inner.dropped)
    }

    /// Forgets the deletions up to a revision that the holder has delivered, except those that have not settled. Says
    /// nothing of revisions of another epoch.
    pub fn settled(&self, epoch: u64, revision: Revision, is_unsettled: impl Fn(&str) -> bool) {
        let mut inner = self.0.lock();
        if inner.epoch == epoch {
            inner.pods.retain(|(at, pod)| *at > revision || is_unsettled(&pod.key.uid));
        }
    }

    /// Returns how often the API server's history was rolled back.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.lock().epoch
    }

    pub(super) fn rolled_back(&self) {
        self.0.lock().epoch += 1;
    }

    /// Records the deletions among changes that were published at this revision.
    pub(super) fn record(&self, changes: &[Change], revision: Revision) {
        let mut inner = self.0.lock();
        if !inner.is_standby && !inner.is_taking() {
            return;
        }
        let gone = changes.iter().filter(|change| change.new.is_none()).filter_map(|change| change.old.clone());
        inner.pods.extend(gone.map(|pod| (revision, pod)));
        let excess = inner.pods.len().saturating_sub(MOST);
        inner.pods.drain(..excess);
        inner.dropped += excess as u64;
    }

    /// Returns the deletions as changes for a plugin that is loaded, once.
    pub(super) fn deliver(&self, lane: Lane) -> Vec<Change> {
        let mut inner = self.0.lock();
        if !inner.is_taking() && !inner.is_standby {
            inner.pods.clear();
        }
        if inner.is_standby || inner.pods.is_empty() || !inner.delivered.insert(lane) {
            return Vec::new();
        }
        inner.pods.iter().filter_map(|(_, pod)| Change::between(Some(pod.clone()), None)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(name: &str) -> Change {
        let mut pod = podium_wire::Pod::default();
        (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), name.into(), name.into());
        pod.header.resource_version = "1".into();
        Change::between(Some(Arc::new(CachedPod::new(&pod).unwrap())), None).unwrap()
    }

    fn delivered(gone: &GonePods, lane: u32) -> Vec<String> {
        gone.deliver(Lane(lane)).iter().map(|change| change.key().unwrap().name.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_gets_once_the_deletions_that_the_holder_has_not_delivered() {
        let gone = GonePods::default();
        gone.record(&[deletion("before")], Revision(1));
        gone.set_standby(true);
        for (revision, name) in [(2, "a"), (3, "b"), (4, "c")] {
            gone.record(&[deletion(name)], Revision(revision));
        }
        // Of another history.
        gone.settled(1, Revision(9), |_| false);
        gone.settled(0, Revision(3), |uid| uid == "a");
        assert_eq!(delivered(&gone, 1), [""; 0], "the other replica runs the plugins");
        assert_eq!(gone.set_standby(false), (2, 0));
        assert_eq!((delivered(&gone, 1), delivered(&gone, 1)), (vec!["a".to_owned(), "c".to_owned()], Vec::new()));
        // Before the plugins are known to the loop.
        gone.record(&[deletion("d")], Revision(5));
        assert_eq!(delivered(&gone, 2), ["a", "c", "d"]);
        tokio::time::sleep(DELIVERED_FOR + Duration::from_secs(1)).await;
        gone.record(&[deletion("e")], Revision(6));
        assert_eq!(delivered(&gone, 3), [""; 0], "it did not run on them");
        gone.set_standby(true);
        gone.set_standby(false);
        assert_eq!(delivered(&gone, 1), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_deletions_are_dropped_and_counted() {
        let gone = GonePods::default();
        gone.set_standby(true);
        let many: Vec<_> = (0..MOST + 2).map(|number| deletion(&number.to_string())).collect();
        gone.record(&many, Revision(2));
        assert_eq!(gone.set_standby(false), (MOST, 2));
        assert_eq!(delivered(&gone, 1)[0], "2");
    }
}
