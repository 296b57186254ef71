//! The journal's task: writes recorded entries in batches and syncs the file once a second. Disk calls block and run
//! on blocking threads; in a simulation, where nothing may depend on their duration, they run in this task.

use std::{fs::File, io, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use podium_engine::journal::{Journal, Store};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval of syncs: the most that a crash of the machine, as opposed to the process, may lose.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failed write or sync.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct JournalTask {
    journal: Arc<Journal>,
    /// `None` while a blocking thread uses it.
    store: Option<Store>,
    simulated: bool,
    /// A sync failed: entries written since the previous sync may be lost and have to be written again.
    rewrite: bool,
    /// Syncs a file's data.
    sync_data: fn(&File) -> io::Result<()>,
}

impl JournalTask {
    pub(super) fn new(journal: Arc<Journal>, store: Store, simulated: bool) -> Self {
        Self { journal, store: Some(store), simulated, rewrite: false, sync_data: File::sync_data }
    }

    /// Runs until `stop`, and then writes and syncs the remaining entries.
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
                    if self.rewrite {
                        retry = retry.or(Some(Instant::now()));
                    }
                }
                // Polled before writes, which under load are always due.
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
        if self.rewrite {
            self.write().await?;
        }
        Ok(())
    }

    /// Returns when the next write is due.
    async fn due(&self, retry: Option<Instant>) {
        match retry {
            Some(_) => at(retry).await,
            None => self.journal.due().await,
        }
    }

    /// Writes the pending entries. Returns false if the disk accepts nothing.
    async fn write(&mut self) -> anyhow::Result<bool> {
        let Some(mut store) = self.store.take() else { anyhow::bail!("the journal was lost in a panic") };
        let journal = self.journal.clone();
        let rewrite = self.rewrite;
        let write = move || {
            let rewritten = if rewrite { store.rewrite(&journal) } else { Ok(()) };
            let written = rewritten.and_then(|()| store.write(&journal));
            (store, written)
        };
        let (store, written) = if self.simulated { write() } else { tokio::task::spawn_blocking(write).await? };
        self.store = Some(store);
        match &written {
            Ok(()) => self.rewrite = false,
            Err(error) => self.journal.failed(&error.to_string()),
        }
        Ok(written.is_ok())
    }

    /// Syncs the file. Writes continue meanwhile, because a sync may take long.
    fn sync(&self) -> BoxFuture<'static, io::Result<()>> {
        let handle = self.store.as_ref().map(Store::handle);
        let sync_data = self.sync_data;
        let sync = move || handle.map_or(Ok(()), |handle| sync_data(&handle?));
        if self.simulated {
            return Box::pin(std::future::ready(sync()));
        }
        Box::pin(async { tokio::task::spawn_blocking(sync).await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }

    fn synced(&mut self, synced: io::Result<()>) {
        if let Err(error) = synced {
            self.journal.failed(&format!("fsync failed: {error}; journal writes restored to a new file"));
            self.rewrite = true;
        }
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

#[cfg(test)]
mod tests {
    use std::{cell::Cell, os::unix::fs::MetadataExt, path::Path};

    use podium_engine::journal::{self, Found, Opened, PluginEntries};
    use podium_vocabulary::{PluginId, PodKey};

    use super::*;

    thread_local! {
        /// How many of the next syncs fail.
        static FAILING: Cell<u32> = const { Cell::new(0) };
    }

    fn sync_data(file: &File) -> io::Result<()> {
        match FAILING.get() {
            0 => file.sync_data(),
            more => {
                FAILING.set(more - 1);
                Err(io::Error::other("no such luck"))
            }
        }
    }

    fn key(name: &str) -> PodKey {
        PodKey::new("shop", name, &format!("{name}-uid"))
    }

    fn entries(journal: &Arc<Journal>) -> PluginEntries {
        journal.plugin_entries(&PluginId { namespace: Some("shop".into()), name: "tidy".into() })
    }

    fn inode(directory: &Path) -> u64 {
        std::fs::metadata(directory.join("journal")).unwrap().ino()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_sync_rewrites_the_journal_to_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let Opened { journal, store, .. } = journal::open(directory.path(), 0).unwrap();
        let stop = CancellationToken::new();
        let task = JournalTask { sync_data, ..JournalTask::new(journal.clone(), store, true) };
        let task = tokio::spawn(task.run(stop.clone()));
        let entries = entries(&journal);
        entries.enter(&key("a")).await;
        entries.enter(&key("b")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = inode(directory.path());
        FAILING.set(1);
        entries.enter(&key("c")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_ne!(inode(directory.path()), before, "the file that could not be synced is still in use");
        assert!(!journal.figures().failing, "{:?}", journal.figures());
        entries.enter(&key("d")).await;
        stop.cancel();
        task.await.unwrap().unwrap();
        let Opened { journal, recovery, .. } = journal::open(directory.path(), 0).unwrap();
        let _ = recovery.record_deletions(&journal, None, |_| Found::Absent);
        assert_eq!(self::entries(&journal).pending_deletions(), ["a", "b", "c", "d"].map(key));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_last_sync_rewrites_the_journal_to_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let Opened { journal, store, .. } = journal::open(directory.path(), 0).unwrap();
        let stop = CancellationToken::new();
        let task = JournalTask { sync_data, ..JournalTask::new(journal.clone(), store, true) };
        let task = tokio::spawn(task.run(stop.clone()));
        entries(&journal).enter(&key("a")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = inode(directory.path());
        FAILING.set(1);
        stop.cancel();
        task.await.unwrap().unwrap();
        assert_ne!(inode(directory.path()), before, "what the last sync lost is not written again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_journal_is_failing_until_it_can_be_synced_or_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let Opened { journal, store, .. } = journal::open(directory.path(), 0).unwrap();
        let stop = CancellationToken::new();
        let task = JournalTask { sync_data, ..JournalTask::new(journal.clone(), store, true) };
        let task = tokio::spawn(task.run(stop.clone()));
        let in_the_way = directory.path().join("journal.next");
        std::fs::create_dir(&in_the_way).unwrap();
        FAILING.set(1);
        entries(&journal).enter(&key("a")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(journal.figures().failing);
        std::fs::remove_dir(&in_the_way).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!journal.figures().failing);
        stop.cancel();
        task.await.unwrap().unwrap();
    }
}
