//! [`Seen`]: the revision up to which the changes of Pods are in the cache and their keys in the queue. A delivery ends
//! when the events of its own writes are there, so that nothing else has to distinguish them from changes by others.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_vocabulary::Revision;
use tokio::sync::{oneshot, watch};

use crate::ports::{Expectation, Shown};

/// How long the events of writes are waited for. The watch of a healthy API server has them within milliseconds.
pub(super) const SEE_WRITES: Duration = Duration::from_secs(2);

/// The uid of a Pod an event of which was lost, and the cache's revision at the proof.
pub type Lost = (Arc<str>, Revision);

/// How far the cache and the queue are, and the deliveries that wait for more.
#[derive(Debug, Default)]
pub struct Seen {
    state: Mutex<State>,
    lost: watch::Sender<Lost>,
}

#[derive(Debug, Default)]
struct State {
    revision: Revision,
    /// That of the latest list. Of the changes up to it only the last state of each Pod was seen.
    listed: Revision,
    /// In the order of their revisions. A `watch` channel would wake all, in a random order.
    waiting: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
    numbers: u64,
}

impl Seen {
    /// Records that the changes up to this revision were published and queued. It is lower than before if the history
    /// of the API server was set back.
    pub fn up_to(&self, revision: Revision) {
        let mut state = self.state.lock();
        state.revision = revision;
        while let Some(first) = state.waiting.first_entry().filter(|first| first.key().0 <= revision) {
            // It may have ceased to wait.
            let _ = first.remove().send(());
        }
    }

    /// Records the revision of a list, before [`Seen::up_to`].
    pub fn listed(&self, revision: Revision) {
        self.state.lock().listed = revision;
    }

    /// Returns true if the changes up to this revision are there.
    pub(crate) fn has(&self, revision: Revision) -> bool {
        self.state.lock().revision >= revision
    }

    /// Returns the latest proof that the watch has lost an event of a write: it has later events, and the cache an
    /// earlier state of the Pod. Only a list later than the proof brings the state.
    #[must_use]
    pub fn lost(&self) -> watch::Receiver<Lost> {
        self.lost.subscribe()
    }

    /// Records such a proof.
    pub(super) fn lose(&self, uid: &str, cached: Revision) {
        self.lost.send_replace((uid.into(), cached));
    }

    /// Returns the revision of the latest list, for the wait for writes that are sent from now on.
    #[must_use]
    pub fn latest_list(&self) -> Revision {
        self.state.lock().listed
    }

    /// Waits for the changes up to this revision, at most for [`SEE_WRITES`]. Returns whether all of them were seen: a
    /// list since `list` shows only the last of those before it. If not, others may have undone a write, and no change
    /// reports it: the state is that from before the write.
    ///
    /// A write that changed nothing is answered with the revision of an earlier change, which is no change to wait for.
    pub(super) async fn wait(&self, revision: Revision, list: Revision) -> bool {
        let (sender, receiver) = oneshot::channel();
        let waiting = {
            let mut state = self.state.lock();
            if state.revision >= revision {
                return !state.hides(revision, list);
            }
            state.numbers += 1;
            let key = (revision, state.numbers);
            state.waiting.insert(key, sender);
            Waiting(self, key)
        };
        let is_there = tokio::time::timeout(SEE_WRITES, receiver).await.is_ok();
        drop(waiting);
        is_there && !self.state.lock().hides(revision, list)
    }
}

impl State {
    /// Returns true if a list that came since `list` has the changes up to this revision.
    fn hides(&self, revision: Revision, list: Revision) -> bool {
        self.listed != list && self.listed >= revision
    }
}

/// The entry of one that waits, which goes with this.
struct Waiting<'a>(&'a Seen, (Revision, u64));

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting.remove(&self.1);
    }
}

/// Returns the revision after which the events of these writes are there. `None` if none is waited for, because only
/// deletions and writes with an unknown result are among them.
pub(super) fn newest(written: &[Expectation]) -> Option<Revision> {
    let revision = |expected: &Expectation| match expected.shown {
        Shown::Revision(revision) => Some(revision),
        Shown::Deletion | Shown::Gone | Shown::Unknown => None,
    };
    written.iter().filter_map(revision).max()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_its_revision_or_after_its_time() {
        let seen = Seen::default();
        seen.up_to(Revision(5));
        assert!(seen.has(Revision(5)) && !seen.has(Revision(6)));
        let began = Instant::now();
        assert!(seen.wait(Revision(5), Revision(0)).await);
        let mut waiting = std::pin::pin!(seen.wait(Revision(7), Revision(0)));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        seen.up_to(Revision(6));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        seen.up_to(Revision(8));
        assert!(waiting.await);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(!seen.wait(Revision(9), Revision(0)).await);
        assert_eq!((began.elapsed(), seen.state.lock().waiting.len()), (SEE_WRITES, 0));
        let mut dropped = Box::pin(seen.wait(Revision(9), Revision(0)));
        assert!(futures::poll!(dropped.as_mut()).is_pending());
        drop(dropped);
        assert_eq!(seen.state.lock().waiting.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_shows_only_the_last_of_the_changes_before_it() {
        let seen = Seen::default();
        let before = seen.latest_list();
        let mut waiting = std::pin::pin!(seen.wait(Revision(7), before));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        seen.listed(Revision(8));
        seen.up_to(Revision(8));
        assert!(!waiting.await && !seen.wait(Revision(8), before).await);
        assert!(seen.wait(Revision(8), seen.latest_list()).await, "a write after the list changed nothing");
        seen.up_to(Revision(9));
        assert!(seen.wait(Revision(9), before).await);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_history_was_set_back_its_revisions_are_waited_for() {
        let seen = Seen::default();
        seen.up_to(Revision(900));
        seen.up_to(Revision(5));
        assert!(futures::poll!(std::pin::pin!(seen.wait(Revision(7), Revision(0)))).is_pending());
    }
}
