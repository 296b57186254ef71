//! The tasks that the loader starts itself: retries with back-off, trials, and records.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::FutureExt;
use podium_engine::backoff::Backoff;
use podium_vocabulary::{PluginId, PluginSpec};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{Loader, attempt::From, pending::Waiting};

/// The waits between attempts, without jitter. With the longest wait, a component that takes all of its 60 s to compile
/// uses at most a fifth of a processor.
pub(super) const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };

impl Loader {
    pub(super) fn try_later(&self, spec: PluginSpec, attempts: u32, number: u64, at_least: Duration) {
        let due = Instant::now() + BACKOFF.doubled(attempts).max(at_least);
        let waiting = Waiting { attempts, due, number, spec };
        self.pending.lock().waiting.insert(waiting.spec.id.clone(), waiting);
        self.work.notify_one();
    }

    /// Retries waiting loads when they are due, brings versions back whose trials failed, and writes records; never
    /// returns. Each is a task of its own, so a slow one delays no other.
    ///
    /// # Errors
    /// Returns an error if one of the tasks panicked.
    pub(in crate::app) async fn run(self: Arc<Self>) -> anyhow::Result<()> {
        let mut tasks: JoinSet<Option<PluginId>> = JoinSet::new();
        // The plugins whose records are being written.
        let mut saving = BTreeSet::new();
        loop {
            let next = self.pending.lock().waiting.values().map(|waiting| waiting.due).min();
            let due = async {
                match next {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = tasks.join_next() => {
                    if let Some(id) = ended? {
                        saving.remove(&id);
                    }
                }
                () = self.work.notified() => {}
                () = due => {}
            }
            let trials = std::mem::take(&mut *self.begun.lock());
            for trial in trials {
                tasks.spawn(self.clone().follow(trial).map(|()| None));
            }
            let due = self.pending.lock().take_due(Instant::now());
            for waiting in due {
                tasks.spawn(self.clone().retry_one(waiting).map(|()| None));
            }
            let unsaved: Vec<_> = self.unsaved.lock().extract_if(.., |id| !saving.contains(id)).collect();
            for id in unsaved {
                saving.insert(id.clone());
                tasks.spawn(self.clone().write_record(id.clone()).map(|()| Some(id)));
            }
        }
    }

    async fn retry_one(self: Arc<Self>, waiting: Waiting) {
        let Waiting { spec, attempts, number, .. } = waiting;
        let attempt = self.attempt(spec.clone(), number, From::Source).await;
        if !self.is_current(&spec.id, number) {
            return;
        }
        match attempt {
            Ok(prepared) => self.install_if(prepared, |pending| pending.is_current(&spec.id, number)).await,
            Err(failure) => {
                let attempts = attempts.saturating_add(1);
                let (plugin, file, error) = (&spec.id, spec.source.to_string(), failure.to_string());
                if failure.is_passing() {
                    let seconds = BACKOFF.doubled(attempts).max(failure.retry_after()).as_secs();
                    tracing::warn!(%plugin, %file, attempts, seconds, error, "plugin not loaded, to be retried");
                } else {
                    tracing::error!(%plugin, %file, attempts, error, "plugin not loaded");
                }
                self.failed(spec, attempts, number, &failure).await;
            }
        }
    }
}
