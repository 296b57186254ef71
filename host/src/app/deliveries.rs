//! The tasks that send what runs staged. They are joined at shutdown, and end with the host.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use podium_engine::ports::Tasks;
use tokio::task::JoinSet;

/// Owns the tasks: they are aborted when this is dropped.
#[derive(Default)]
#[must_use]
pub(super) struct Deliveries(Arc<Running>);

#[derive(Default)]
struct Running(Mutex<JoinSet<()>>);

impl Deliveries {
    /// Returns what starts tasks.
    pub(super) fn tasks(&self) -> Arc<dyn Tasks> {
        self.0.clone()
    }

    /// Returns when all tasks that were started have ended; aborts them if it is dropped before.
    pub(super) async fn join(&self) {
        let mut tasks = std::mem::take(&mut *self.0.0.lock());
        while tasks.join_next().await.is_some() {}
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.0.0.lock().abort_all();
    }
}

impl Tasks for Running {
    fn start(&self, task: BoxFuture<'static, ()>) {
        let mut tasks = self.0.lock();
        // A task that has ended takes memory until it is joined.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_are_joined_and_end_with_their_owner() {
        let deliveries = Deliveries::default();
        let sleep = || tokio::time::sleep(Duration::from_secs(1));
        deliveries.tasks().start(Box::pin(sleep()));
        let start = tokio::time::Instant::now();
        deliveries.join().await;
        assert_eq!(start.elapsed().as_secs(), 1);
        let (sends, ended) = oneshot::channel::<()>();
        let tasks = deliveries.tasks();
        tasks.start(Box::pin(async move {
            sleep().await;
            drop(sends);
        }));
        drop(deliveries);
        assert!(ended.await.is_err() && start.elapsed().as_secs() == 1, "it continued without its owner");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_have_ended_are_not_kept() {
        let deliveries = Deliveries::default();
        for _ in 0..100 {
            deliveries.tasks().start(Box::pin(async {}));
            tokio::task::yield_now().await;
        }
        assert!(deliveries.0.0.lock().len() <= 2);
    }
}
