//! [`Watches`]: a task for each of the watches that are wanted at a time.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// The tasks of watches, which end with this, and others beside them.
pub(super) struct Watches<K> {
    tasks: JoinSet<()>,
    running: BTreeMap<K, AbortHandle>,
}

impl<K: Ord + Clone> Watches<K> {
    pub(super) fn new() -> Self {
        Self { tasks: JoinSet::new(), running: BTreeMap::new() }
    }

    /// Ends the watches that are not wanted, and begins those that do not run.
    pub(super) fn keep<F>(&mut self, wanted: &BTreeSet<K>, mut begin: impl FnMut(&K) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.running.retain(|watch, task| {
            let stays = wanted.contains(watch);
            if !stays {
                task.abort();
            }
            stays
        });
        for watch in wanted {
            self.running.entry(watch.clone()).or_insert_with_key(|watch| self.tasks.spawn(begin(watch)));
        }
    }

    /// Ends a watch that runs, and runs another one in its place.
    pub(super) fn replace(&mut self, watch: &K, by: impl Future<Output = ()> + Send + 'static) {
        if let Some(running) = self.running.get_mut(watch) {
            running.abort();
            *running = self.tasks.spawn(by);
        }
    }

    /// Begins a task beside the watches.
    pub(super) fn begin(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Waits until a task panics.
    pub(super) async fn panicked(&mut self) -> JoinError {
        loop {
            match self.tasks.join_next().await {
                Some(Err(error)) if error.is_panic() => return error,
                Some(Ok(()) | Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use super::*;

    #[tokio::test]
    async fn a_watch_runs_as_long_as_it_is_wanted_and_a_panic_is_noticed() {
        let runs = Arc::new(());
        let mut watches = Watches::new();
        let mut begun = Vec::new();
        for wanted in [vec![1, 2], vec![2, 3], vec![2]] {
            watches.keep(&wanted.into_iter().collect(), |watch| {
                begun.push(*watch);
                let running = runs.clone();
                async move {
                    let _running = running;
                    pending().await
                }
            });
        }
        assert_eq!(begun, [1, 2, 3], "the second one runs on");
        watches.begin(async {});
        watches.begin(async { panic!("a bug") });
        assert!(watches.panicked().await.is_panic());
        while Arc::strong_count(&runs) > 2 {
            tokio::task::yield_now().await;
        }
        drop(watches);
        while Arc::strong_count(&runs) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
