//! Changed files, from the events of the file system: the many events of one save become one list of changed crates.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::Context;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use super::crates::Crate;

/// The silence after which a save is complete. Editors write, rename and touch a file.
const QUIET: Duration = Duration::from_millis(150);
/// Capacity of the channel of changed files. When it is full, during a long build, the events wait in the kernel.
const PATHS: usize = 256;

/// Watches the files of some crates.
pub(super) struct Changes {
    /// Stops watching when dropped.
    _watcher: RecommendedWatcher,
    paths: mpsc::Receiver<PathBuf>,
}

impl Changes {
    pub(super) fn new(crates: &[Crate]) -> anyhow::Result<Self> {
        let (sender, paths) = mpsc::channel(PATHS);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An event about a read would make each build cause the next one.
            let Ok(event) = event else { return };
            if !event.kind.is_access() {
                // This is the watcher's own thread. The receiver is gone when `dev` ends.
                event.paths.into_iter().for_each(|path| drop(sender.blocking_send(path)));
            }
        })
        .context("cannot watch files")?;
        for one in crates {
            // The folder itself for its manifest and configuration, and `src` with all below, but not `target`.
            let source = one.directory.join("src");
            watcher
                .watch(&one.directory, RecursiveMode::NonRecursive)
                .and_then(|()| {
                    if one.script().is_some() { Ok(()) } else { watcher.watch(&source, RecursiveMode::Recursive) }
                })
                .with_context(|| format!("cannot watch {}", one.directory.display()))?;
        }
        Ok(Self { _watcher: watcher, paths })
    }

    /// Returns the indexes in `crates` of the changed crates, after a period of silence; `None` if the watcher
    /// failed.
    pub(super) async fn next(&mut self, crates: &[Crate]) -> Option<BTreeSet<usize>> {
        let mut changed = BTreeSet::new();
        while changed.is_empty() {
            note(&mut changed, crates, &self.paths.recv().await?);
        }
        while let Ok(path) = tokio::time::timeout(QUIET, self.paths.recv()).await {
            note(&mut changed, crates, &path?);
        }
        Some(changed)
    }
}

fn note(changed: &mut BTreeSet<usize>, crates: &[Crate], path: &std::path::Path) {
    changed.extend(crates.iter().enumerate().filter(|(_, one)| one.concerns(path)).map(|(index, _)| index));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_save_of_many_files_is_one_change_of_the_crate_concerned() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let crates: Vec<_> = ["a", "b"].iter().map(|name| Crate { directory: folder.join(name) }).collect();
        for one in &crates {
            std::fs::create_dir_all(one.directory.join("src")).unwrap();
        }
        let mut changes = Changes::new(&crates).unwrap();
        for file in ["lib.rs", "more.rs"] {
            std::fs::write(crates[1].directory.join("src").join(file), "").unwrap();
        }
        assert_eq!(changes.next(&crates).await, Some(BTreeSet::from([1])));
        std::fs::write(crates[0].directory.join("Cargo.lock"), "").unwrap();
        std::fs::write(crates[0].directory.join("Cargo.toml"), "").unwrap();
        assert_eq!(changes.next(&crates).await, Some(BTreeSet::from([0])));
    }
    #[tokio::test]
    async fn a_change_behind_more_events_than_the_channel_holds_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let crates: Vec<_> = ["a", "b"].iter().map(|name| Crate { directory: folder.join(name) }).collect();
        for one in &crates {
            std::fs::create_dir_all(one.directory.join("src")).unwrap();
        }
        let mut changes = Changes::new(&crates).unwrap();
        for number in 0..2 * PATHS {
            std::fs::write(crates[1].directory.join("src").join(format!("{number}.rs")), "").unwrap();
        }
        std::fs::write(crates[0].directory.join("Cargo.toml"), "").unwrap();
        let mut all = BTreeSet::new();
        while all.len() < 2 {
            all.extend(changes.next(&crates).await.unwrap());
        }
        assert_eq!(all, BTreeSet::from([0, 1]));
    }
}
