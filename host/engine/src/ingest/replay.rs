//! Deletions before this process started. After the first list the journal's file is read again on a blocking thread,
//! and then the deletions are queued in slices. No other key is queued meanwhile, because the deletion of a Pod must
//! come before a new Pod of its name. The cache continues to be updated.

use std::sync::Arc;

use podium_pods::{
    cache::Snapshot,
    pod::{CachedPod, PodEvent, PodView, SortedUids},
};
use podium_vocabulary::PodKey;
use tokio::sync::oneshot;

use crate::{
    dispatch::{Lane, Plan},
    journal::{Found, Journal, Recovery},
    ports::Blocking,
};

/// A journal whose entries of an earlier process have to be compared with the first list.
pub struct Reopened {
    /// The open journal.
    pub journal: Arc<Journal>,
    /// The names in the file as it was found.
    pub recovery: Recovery,
    /// The only listed namespace; `None` for all.
    pub namespace: Option<String>,
}

/// The progress of the comparison.
pub(super) enum Replay {
    /// There is no journal, or its deletions are queued.
    Done,
    AwaitingFirstList(Reopened),
    Reading(Reading),
    /// Its deletions are being queued, by the sweeps of the plugins. The keys are of Pods that the API server has and
    /// the cache lacks.
    Queueing(Vec<PodKey>, DeferredObservations),
}

/// The journal is being read.
pub(super) struct Reading {
    /// Pods that the journal knows, that the API server has and that the cache lacks.
    undecoded: oneshot::Receiver<Vec<PodKey>>,
    pub(super) meanwhile: DeferredObservations,
}

/// Observations while the journal is being read and its deletions are being queued.
pub(super) struct DeferredObservations {
    /// Pods of the latest list that the cache keeps or that cannot be decoded.
    pub(super) held: Arc<SortedUids>,
    /// Keys of deleted Pods.
    pub(super) plans: Vec<Plan<Lane>>,
    /// Events of deletions of Pods in `held`.
    pub(super) deletions: Vec<Arc<CachedPod>>,
}

impl Reading {
    /// Starts reading. `snapshot` and `held` are the first list.
    pub(super) fn start(
        Reopened { journal, recovery, namespace }: Reopened,
        snapshot: Arc<Snapshot>,
        held: Arc<SortedUids>,
        blocking: &dyn Blocking,
    ) -> Self {
        let (done, undecoded) = oneshot::channel();
        let meanwhile = DeferredObservations { held: held.clone(), plans: Vec::new(), deletions: Vec::new() };
        blocking.run(Box::new(move || {
            let found = |uid: &str| match () {
                () if snapshot.by_uid(uid).is_some() => Found::Cached,
                () if held.contains(uid) => Found::Undecoded,
                () => Found::Absent,
            };
            let undecoded = recovery.record_deletions(&journal, namespace.as_deref(), found);
            let deletions = journal.figures().pending_deletions;
            if deletions > 0 {
                tracing::info!(deletions, "delivering deletions of Pods that were deleted while the host was down");
            }
            // An error means that the loop has ended.
            let _ = done.send(undecoded);
        }));
        Self { undecoded, meanwhile }
    }
}

impl DeferredObservations {
    pub(super) fn observe(&mut self, events: &[PodEvent]) {
        let deleted = events.iter().filter(|event| event.deleted && self.held.contains(&event.pod.key.uid));
        self.deletions.extend(deleted.map(|event| event.pod.clone()));
    }
}

impl Replay {
    pub(super) fn journal(&self) -> Option<Arc<Journal>> {
        let Self::AwaitingFirstList(Reopened { journal, .. }) = self else { return None };
        Some(journal.clone())
    }

    /// Returns where observations are kept, if no key is queued now.
    pub(super) fn meanwhile(&mut self) -> Option<&mut DeferredObservations> {
        match self {
            Self::Done | Self::AwaitingFirstList(_) => None,
            Self::Reading(Reading { meanwhile, .. }) | Self::Queueing(_, meanwhile) => Some(meanwhile),
        }
    }

    /// Returns after the journal was read, and waits forever if it is not being read. Returns false if the thread that
    /// reads it panicked. Cancel safe.
    pub(super) async fn read(&mut self) -> bool {
        let Self::Reading(reading) = self else { return std::future::pending().await };
        let undecoded = (&mut reading.undecoded).await;
        let (Ok(undecoded), Self::Reading(Reading { meanwhile, .. })) =
            (undecoded, std::mem::replace(self, Self::Done))
        else {
            return false;
        };
        *self = Self::Queueing(undecoded, meanwhile);
        true
    }
}
