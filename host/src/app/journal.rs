//! The journal's task: writes what runs note, in batches, and syncs it once a second. The disk's calls block and are
//! made on threads of their own; but in a simulation, where nothing may depend on how long they take, in this task.

use std::{io, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::journal::{Journal, Store};

/// What a crash of the machine, not of the process, may cost at most.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// After a failure.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    journal: Arc<Journal>,
    /// None while a thread has it.
    store: Option<Store>,
    simulated: bool,
    /// What was last told of a failing sync.
    sync_failed: bool,
}

impl Keeper {
    pub(super) fn new(journal: Arc<Journal>, store: Store, simulated: bool) -> Self {
        Self { journal, store: Some(store), simulated, sync_failed: false }
    }

    /// Runs until `stop`, and then writes and syncs what is left.
    pub(super) async fn run(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut dirty: Option<Instant> = None;
        let mut retry: Option<Instant> = None;
        let mut sync: Option<BoxFuture<'static, io::Result<()>>> = None;
        loop {
            let sync_due = dirty.filter(|_| sync.is_none());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                synced = async { sync.as_mut().unwrap_or(&mut never()).await } => {
                    sync = None;
                    self.synced(synced);
                }
                // Before writes, which under load are due all the time.
                () = at(sync_due) => {
                    dirty = None;
                    sync = Some(self.sync());
                }
                () = self.due(retry) => {
                    retry = (!self.write().await?).then(|| Instant::now() + RETRY);
                    dirty = dirty.or(Some(Instant::now() + SYNC_EVERY));
                }
            }
        }
        self.write().await?;
        let synced = self.sync().await;
        self.synced(synced);
        Ok(())
    }

    /// Returns when it is time to write.
    async fn due(&self, retry: Option<Instant>) {
        match retry {
            Some(_) => at(retry).await,
            None => self.journal.due().await,
        }
    }

    /// False when the disk takes nothing.
    async fn write(&mut self) -> anyhow::Result<bool> {
        let Some(mut store) = self.store.take() else { anyhow::bail!("the journal was lost by a panic") };
        let journal = self.journal.clone();
        let write = move || {
            let written = store.write(&journal);
            (store, written)
        };
        let (store, written) = if self.simulated { write() } else { tokio::task::spawn_blocking(write).await? };
        self.store = Some(store);
        if let Err(error) = &written {
            self.journal.failed(&error.to_string());
        }
        Ok(written.is_ok())
    }

    /// Beside further writes: a sync may take long.
    fn sync(&self) -> BoxFuture<'static, io::Result<()>> {
        let handle = self.store.as_ref().map(Store::handle);
        let sync = move || handle.map_or(Ok(()), |handle| handle?.sync_data());
        if self.simulated {
            return Box::pin(std::future::ready(sync()));
        }
        Box::pin(async { tokio::task::spawn_blocking(sync).await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }

    fn synced(&mut self, synced: io::Result<()>) {
        if let Err(error) = &synced
            && !self.sync_failed
        {
            tracing::error!(%error, "the journal cannot be synced: a crash of the machine may lose what it holds");
        }
        self.sync_failed = synced.is_err();
    }
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn never() -> BoxFuture<'static, io::Result<()>> {
    Box::pin(std::future::pending())
}
