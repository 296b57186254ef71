//! State that all parts of the cluster share: the locked state, the clock, the fault switches and the log.

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{clock::Clock, faults::Switches, kinds::Kinds, requests::RequestLog, state::State};

#[derive(Debug)]
pub(crate) struct Core {
    /// Held briefly and never across an await.
    pub(crate) state: Mutex<State>,
    /// The newest revision; watches wait for it to change.
    pub(crate) revision: watch::Sender<u64>,
    pub(crate) clock: Clock,
    pub(crate) faults: Switches,
    pub(crate) log: RequestLog,
    pub(crate) stopping: CancellationToken,
    pub(crate) offer: Offer,
}

/// The parts of the API that clients can use; the cluster itself can use all of them.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// Resources by their names in error messages; empty for all.
    pub(crate) only: Vec<String>,
    pub(crate) streaming_lists: bool,
}

impl Core {
    pub(crate) fn new(seed: u64, clock: Clock, offer: Offer) -> Self {
        Self {
            state: Mutex::new(State::new(seed)),
            revision: watch::Sender::new(0),
            clock,
            faults: Switches::default(),
            log: RequestLog::default(),
            stopping: CancellationToken::new(),
            offer,
        }
    }

    /// Returns the kinds that are served to clients.
    pub(crate) fn offered(&self) -> Kinds {
        let mut kinds = self.state.lock().kinds.clone();
        if !self.offer.only.is_empty() {
            kinds.retain(|kind| self.offer.only.contains(&kind.qualified()));
        }
        kinds
    }

    /// Changes the state and wakes tasks that wait for changes.
    pub(crate) fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        let revision = state.store.revision();
        drop(state);
        self.revision.send_if_modified(|shown| std::mem::replace(shown, revision) != revision);
        result
    }
}
