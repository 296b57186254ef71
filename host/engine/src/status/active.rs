//! Runs under way, and the latest panic of a plugin.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use podium_vocabulary::PodKey;
use tokio::time::Instant;

use crate::ports::{Failure, FailureKind};

/// A run under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRun {
    /// The Pod that the run is about.
    pub pod: PodKey,
    /// When the run started.
    pub since: Instant,
}

/// A run that trapped or exceeded a limit, or during which the host panicked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Panic {
    /// See [`FailureKind::name`].
    pub kind: &'static str,
    /// The failure's message. It may contain text of the plugin, which is not escaped.
    pub message: String,
    /// When the run ended.
    pub at: Instant,
}

/// The runs under way, by number. There are at most as many as workers.
#[derive(Debug, Default)]
pub(super) struct Active(Mutex<BTreeMap<u64, ActiveRun>>);

impl Active {
    pub(super) fn add(&self, run: u64, pod: &PodKey) {
        self.0.lock().insert(run, ActiveRun { pod: pod.clone(), since: Instant::now() });
    }

    pub(super) fn remove(&self, run: u64) {
        self.0.lock().remove(&run);
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(super) fn all(&self) -> Vec<ActiveRun> {
        self.0.lock().values().cloned().collect()
    }
}

#[derive(Debug, Default)]
pub(super) struct Latest(Mutex<Option<Panic>>);

impl Latest {
    pub(super) fn record(&self, failure: &Failure) {
        if failure.kind.is_panic() || failure.kind == FailureKind::Host {
            let kind = failure.kind.name();
            let message = failure.message.clone();
            let at = Instant::now();
            *self.0.lock() = Some(Panic { kind, message, at });
        }
    }

    pub(super) fn get(&self) -> Option<Panic> {
        self.0.lock().clone()
    }
}
