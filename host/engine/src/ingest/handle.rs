//! Requests of other tasks to the ingest loop. Each call waits until the loop has handled it.

use tokio::sync::{mpsc, oneshot};

use crate::{dispatch::Lane, queue::Why};

/// Capacity of the channel of requests. Each comes from a task that waits for its answer.
const REQUESTS: usize = 64;

/// The registry has changed, and the plugin `fresh` is queued with all its Pods, for this reason, before the answer
/// `done`.
pub(super) struct Request {
    pub(super) fresh: Option<(Lane, Why)>,
    pub(super) done: oneshot::Sender<()>,
}

/// Sends requests to the ingest loop.
#[derive(Clone)]
pub struct IngestHandle(mpsc::Sender<Request>);

pub(super) fn channel() -> (IngestHandle, mpsc::Receiver<Request>) {
    let (sender, requests) = mpsc::channel(REQUESTS);
    (IngestHandle(sender), requests)
}

impl IngestHandle {
    /// Reports that the registry has changed, and queues every Pod that the plugin `fresh` watches. Returns when all
    /// are queued, or when the loop has ended.
    pub async fn plugins_changed(&self, fresh: Option<Lane>) {
        self.request(fresh.map(|lane| (lane, Why::LOAD))).await;
    }

    /// Queues every Pod that the plugin watches, because an object of its inputs has changed. Returns when all are
    /// queued, or when the loop has ended.
    pub async fn inputs_changed(&self, lane: Lane) {
        self.request(Some((lane, Why::INPUT))).await;
    }

    async fn request(&self, fresh: Option<(Lane, Why)>) {
        let (done, handled) = oneshot::channel();
        if self.0.send(Request { fresh, done }).await.is_ok() {
            // An error means that the loop has handled the request, or has ended.
            let _ = handled.await;
        }
    }

    /// Returns true if requests wait for the loop.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.capacity() < self.0.max_capacity()
    }
}
