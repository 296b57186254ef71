//! Retries loads that failed for a reason that may pass, with back-off.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use podium_engine::backoff::Backoff;
use podium_pods::model::PluginSpec;
use tokio::time::{Instant, sleep_until};

use super::{Loader, attempt::From, pending::Waiting};

/// The waits between attempts, without jitter. With the longest wait, a component that takes all of its 60 s to compile
/// uses at most a fifth of a processor.
pub(super) const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };

impl Loader {
    pub(super) fn try_later(&self, spec: PluginSpec, attempts: u32, number: u64, at_least: Duration) {
        let due = Instant::now() + BACKOFF.doubled(attempts).max(at_least);
        let waiting = Waiting { attempts, due, number, spec };
        self.pending.lock().waiting.insert(waiting.spec.id.clone(), waiting);
        self.pending_changed.notify_one();
    }

    /// Retries waiting loads when they are due, and waits for the ends of trials; never returns. A slow attempt delays
    /// no other.
    pub(in crate::app) async fn retry(self: Arc<Self>) -> anyhow::Result<()> {
        let (mut attempts, mut trials) = (FuturesUnordered::new(), FuturesUnordered::new());
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
                Some(()) = attempts.next() => {}
                Some(()) = trials.next() => {}
                () = self.pending_changed.notified() => {
                    let begun = std::mem::take(&mut *self.begun.lock());
                    trials.extend(begun.into_iter().map(|trial| self.follow(trial)));
                }
                () = due => {
                    let due = self.pending.lock().take_due(Instant::now());
                    attempts.extend(due.into_iter().map(|waiting| self.retry_one(waiting)));
                }
            }
        }
    }

    async fn retry_one(&self, waiting: Waiting) {
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
