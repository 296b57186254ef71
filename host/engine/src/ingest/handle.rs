//! Requests of other tasks to the ingest loop. Each call waits until the loop has handled it.

use std::sync::Arc;

use futures::future::BoxFuture;
use podium_pods::pod::CachedPod;
use tokio::sync::{mpsc, oneshot};

use crate::{dispatch::Lane, ports::WriteThrough};

/// Capacity of the channel of requests. Each comes from a worker that waits for its answer.
const REQUESTS: usize = 64;

pub(super) enum Request {
    Written { pods: Vec<Arc<CachedPod>>, done: oneshot::Sender<()> },
    Plugins { fresh: Option<Lane>, done: oneshot::Sender<()> },
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
    /// are queued.
    pub async fn plugins_changed(&self, fresh: Option<Lane>) {
        self.request(|done| Request::Plugins { fresh, done }).await;
    }

    /// Returns true if requests wait for the loop.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.0.capacity() < self.0.max_capacity()
    }

    /// Sends a request. Returns when it was handled, or when the loop has ended.
    async fn request(&self, request: impl FnOnce(oneshot::Sender<()>) -> Request) {
        let (done, handled) = oneshot::channel();
        if self.0.send(request(done)).await.is_ok() {
            // An error means that the loop has handled the request, or has ended.
            let _ = handled.await;
        }
    }
}

impl WriteThrough for IngestHandle {
    fn write_through(&self, pods: Vec<Arc<CachedPod>>) -> BoxFuture<'_, ()> {
        Box::pin(self.request(|done| Request::Written { pods, done }))
    }
}
