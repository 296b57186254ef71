//! [`PolicyFile`]: the policy's files, which are read again while the host runs. Mistakes leave the policy before in
//! force; the last good one is also in the state directory, for a start that finds mistakes.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    mem,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use podium_registry::{Proxies, Registry, SystemResolver};
use podium_runtime::Cache;
use podium_vocabulary::text;
use tokio::{task::spawn_blocking, time::sleep};

use super::{disk, life::Driver};
use crate::{
    config::{ConfigError, Policy, ReadFile, file::FileError, read_file},
    images::Images,
};

/// The interval at which the files are read again. The kubelet updates the files of a ConfigMap within about a minute.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// How often the files are read at most until two readings in a row are the same.
const MOST_READINGS: usize = 4;
/// The file in the state directory.
const LAST_GOOD: &str = "policy.last";

/// The consequence of mistakes, for the log.
pub(super) const IN_FORCE: &str = "the policy before stays in force, and still permits all that this one would forbid";

/// The texts by file: of the policy, and of the certificates that it names.
type Texts = BTreeMap<PathBuf, String>;

/// A policy, and the registries that it lists.
type Listed = (Policy, Vec<Registry>);

/// A policy that can be in force, and the registries that it lists.
pub(super) type Read = (Policy, Option<Images>);

/// The files of the policy.
pub struct PolicyFile {
    file: PathBuf,
    proxies: Proxies,
    /// `None` without a state directory.
    disk: Option<Arc<Cache>>,
    /// The texts of the policy in force.
    texts: Mutex<Texts>,
    refused: AtomicBool,
    /// The state directory does not have the policy in force, and it is not being stored.
    unstored: AtomicBool,
    /// Held while the texts are stored. True while they cannot be.
    storing: Mutex<bool>,
}

impl PolicyFile {
    pub(super) fn new(file: PathBuf, proxies: Proxies) -> Self {
        let (texts, storing) = <_>::default();
        let refused = AtomicBool::new(false);
        let unstored = AtomicBool::new(true);
        Self { file, proxies, disk: None, texts, storing, refused, unstored }
    }

    /// Stores good policies in a state directory.
    pub(super) fn stored_in(self, disk: Option<Arc<Cache>>) -> Self {
        Self { disk, ..self }
    }

    /// Returns true while the files have mistakes, and a policy before them is in force.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// Reads the files. Returns `None` if they have the policy in force. Blocks.
    ///
    /// # Errors
    /// Returns every mistake.
    pub(super) fn read(&self) -> Result<Option<Read>, Vec<ConfigError>> {
        self.read_from(&mut read_file)
    }

    fn read_from(&self, files: ReadFile<'_>) -> Result<Option<Read>, Vec<ConfigError>> {
        let is_in_force = |texts: &Texts| *texts == *self.texts.lock();
        let (mut texts, mut read) = self.texts_of(files);
        let mut before = None;
        // The files of a ConfigMap are replaced at once, which may be between two of these.
        for _ in 1..MOST_READINGS {
            if is_in_force(&texts) || before.as_ref() == Some(&texts) {
                break;
            }
            before = Some(texts);
            (texts, read) = self.texts_of(files);
        }
        let is_in_force = is_in_force(&texts);
        let read = read.and_then(|read| if is_in_force { Ok(None) } else { self.with_registries(read).map(Some) });
        self.refused.store(read.is_err(), Relaxed);
        let read = read?;
        if read.is_some() {
            *self.texts.lock() = texts;
            self.unstored.store(true, Relaxed);
        }
        Ok(read)
    }

    /// Returns the last good policy of these files from the state directory. Blocks.
    ///
    /// # Errors
    /// Returns why there is none.
    pub(super) fn last_good(&self) -> Result<Read, String> {
        let disk = self.disk.as_ref().ok_or("there is no --state-dir")?;
        let stored = disk.kept(LAST_GOOD)?.ok_or("no good one was stored before")?;
        let texts: Texts = serde_json::from_slice(&stored).map_err(|error| error.to_string())?;
        let missing = || FileError::Io(ErrorKind::NotFound.into());
        let read = self.read_by(&mut |path| Ok(texts.get(path).ok_or_else(missing)?.clone().into_bytes()));
        let read = read.and_then(|read| self.with_registries(read)).map_err(|mistakes| {
            let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
            format!("the stored one is refused too: {}", mistakes.join("; "))
        })?;
        *self.texts.lock() = texts;
        Ok(read)
    }

    /// Reads the files once. Also returns their texts.
    fn texts_of(&self, files: ReadFile<'_>) -> (Texts, Result<Listed, Vec<ConfigError>>) {
        let mut texts = Texts::new();
        let read = self.read_by(&mut |path| {
            let bytes = files(path)?;
            texts.insert(path.to_owned(), String::from_utf8_lossy(&bytes).into_owned());
            Ok(bytes)
        });
        (texts, read)
    }

    fn read_by(&self, read: ReadFile<'_>) -> Result<Listed, Vec<ConfigError>> {
        let policy = Policy::read_by(&self.file, read)?;
        let registries = policy.registries_by(read)?;
        Ok((policy, registries))
    }

    fn with_registries(&self, (policy, registries): Listed) -> Result<Read, Vec<ConfigError>> {
        let allowed = disk::registries(&policy, registries, &self.proxies)?;
        let images = allowed.map(|allowed| Images::new(allowed, SystemResolver).through(self.proxies.clone()));
        Ok((policy, images))
    }

    /// Reads the files again and again, and puts a policy that has changed in force; never returns.
    ///
    /// # Errors
    /// Returns an error if the reading panicked.
    pub(super) async fn follow(self: Arc<Self>, driver: Arc<Driver>) -> anyhow::Result<()> {
        let mut logged = Vec::new();
        loop {
            self.store();
            sleep(READ_AGAIN).await;
            let this = self.clone();
            match spawn_blocking(move || this.read()).await? {
                Ok(None) => {
                    if !mem::take(&mut logged).is_empty() {
                        tracing::info!(file = text::path(&self.file), "policy accepted; it is the one in force");
                    }
                }
                Ok(Some((policy, images))) => {
                    driver.set_policy(policy, images);
                    tracing::info!(file = text::path(&self.file), "policy replaced");
                    logged.clear();
                }
                Err(mistakes) if mistakes != logged => {
                    for ConfigError { file, line, field, message } in &mistakes {
                        let file = text::path(file);
                        let field = text::name(field);
                        let error = text::line(message);
                        tracing::error!(file, line, field, error, "policy refused; {IN_FORCE}");
                    }
                    logged = mistakes;
                }
                Err(_) => {}
            }
        }
    }

    /// Stores the texts of the policy in force unless they are stored, or a call before is under way, however long the
    /// disk takes.
    fn store(self: &Arc<Self>) {
        let Some(disk) = self.disk.clone().filter(|_| self.unstored.load(Relaxed)) else { return };
        let this = self.clone();
        spawn_blocking(move || {
            let Some(mut failed_before) = this.storing.try_lock() else { return };
            // Before the texts are copied: others may be in force before these are stored.
            this.unstored.store(false, Relaxed);
            let texts = serde_json::to_vec(&*this.texts.lock()).map_err(io::Error::from);
            let stored = texts.and_then(|texts| disk.keep(LAST_GOOD, &texts));
            let failed_before = mem::replace(&mut *failed_before, stored.is_err());
            if let Err(error) = stored {
                // An older policy may permit what this one forbids.
                let left = disk.forget(LAST_GOOD).err().map(|error| error.to_string());
                this.unstored.store(true, Relaxed);
                if !failed_before {
                    tracing::warn!(
                        %error,
                        left,
                        "policy not stored; until it is, a start that finds a mistake in it has none before it"
                    );
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
