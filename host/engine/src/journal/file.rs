//! The one door to the disk: the directory, its lock, the file's tail, compaction.
//!
//! Everything here blocks. A write that fails leaves the file's end where it was, so that the next one overwrites what
//! it left.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufReader, BufWriter, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Batch, Journal, Number, Recovery, State,
    entry::{Entries, Entry, FORMAT},
    live::Uid,
    plugin_entry,
    replay::{Replayed, replay},
};
use crate::frames::{HEADER_BYTES, HeaderState, ReadError};

const JOURNAL: &str = "journal";
const LOCK: &str = "lock";
/// Written beside the journal, and then put in its place.
const NEXT: &str = "journal.next";
/// Entries that a file may have besides twice those that count: 8,192 are about 1 MiB.
const SLACK: u64 = 8_192;
/// How long the entries of a plugin are kept while the plugin is not loaded: a wrong configuration is corrected, or a
/// plugin that was taken out for a test comes back. A plugin that is missing for a week is assumed to be gone.
const KEEP_ABSENT_MILLIS: u64 = 7 * 24 * 3_600 * 1_000;

/// Why the host cannot have a journal there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has the lock of this file.
    #[error("{} is used by another podium-host: give each host a directory of its own, or end the other one first", .0.display())]
    Locked(PathBuf),
    /// The file or the directory cannot be read or written.
    #[error("{} cannot be used: {error}; give a directory that the host can write to", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system answered.
        error: io::Error,
    },
}

/// A journal that was opened, and what it takes to use it.
#[derive(Debug)]
pub struct Opened {
    /// The entries in memory, shared by all.
    pub journal: Arc<Journal>,
    /// The file, for the one task that writes.
    pub store: Store,
    /// The names in the file as it was found, to be compared with the first list.
    pub recovery: Recovery,
}

/// The file, its end, and what could not be written yet.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    file: File,
    /// Locked until it is closed, also by a killed process.
    _lock: File,
    end: u64,
    entries: u64,
    stuck: Batch,
    /// Compaction is not tried below this number of entries, because it failed there.
    compact_above: u64,
}

/// Opens the journal of a directory, which is made where it is missing.
///
/// # Errors
/// When another host has it, or it cannot be read or written. Damage is none: it is cut off, and the log says where.
pub fn open(directory: &Path, now_millis: u64) -> Result<Opened, Error> {
    let path = directory.join(JOURNAL);
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Io { path, error }
    };
    fs::create_dir_all(directory).map_err(unusable(directory))?;
    let lock = lock(directory)?;
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = open().map_err(unusable(&path))?;
    if let Some(suffix) = foreign(&file).map_err(unusable(&path))? {
        let aside = directory.join(format!("{JOURNAL}.{suffix}"));
        fs::rename(&path, &aside).map_err(unusable(&path))?;
        tracing::warn!(
            file = %path.display(), aside = %aside.display(),
            "the journal is not one of this version; it is set aside, and deletions that it knew of are not delivered"
        );
        file = open().map_err(unusable(&path))?;
    }
    let read = |path: &Path| -> io::Result<(Replayed, Recovery, u64)> {
        let mut reader = File::open(path)?;
        let length = reader.metadata()?.len();
        reader.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
        let replayed = replay(&reader)?;
        reader.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
        let recovery = Recovery { file: reader, end: replayed.end };
        Ok((replayed, recovery, length))
    };
    let (Replayed { mut state, end, entries, damage }, recovery, length) = read(&path).map_err(unusable(&path))?;
    if let Some(damage) = damage {
        tracing::warn!(
            file = %path.display(), offset = end, bytes = length - end.min(length), damage,
            "the journal is damaged and cut there; runs noted behind it are forgotten"
        );
        // What is left behind the end would be overwritten too, but never be read as more than it is.
        file.set_len(end).map_err(unusable(&path))?;
    }
    expire(&mut state, now_millis);
    state.bytes = end;
    let mut store = Store {
        directory: directory.to_owned(),
        file,
        _lock: lock,
        end,
        entries,
        stuck: Batch::default(),
        compact_above: 0,
    };
    if length < HEADER_BYTES as u64 {
        // With the first batch, so that a full disk does not keep the host from starting.
        (store.end, store.stuck.bytes) = (0, FORMAT.header().to_vec());
    }
    let journal = Journal::new(state);
    store.compact_when_due(&journal);
    Ok(Opened { journal, store, recovery })
}

fn lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join(LOCK);
    let unusable = |error| Error::Io { path: path.clone(), error };
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

/// The suffix under which a file is set aside that is no journal of this version. One that ends within the header was
/// begun and not written.
fn foreign(file: &File) -> io::Result<Option<String>> {
    Ok(match FORMAT.read_header(&mut &*file)? {
        HeaderState::Ours | HeaderState::Short => None,
        HeaderState::OtherVersion(version) => Some(format!("version-{version}")),
        HeaderState::Foreign => Some("unreadable".to_owned()),
    })
}

/// Forgets plugins that the host has done without for too long.
fn expire(state: &mut State, now_millis: u64) {
    for number in state.numbers() {
        let Some(known) = state.known(number) else { continue };
        if known.absent_since.is_some_and(|since| now_millis.saturating_sub(since) >= KEEP_ABSENT_MILLIS) {
            let (plugin, pods) = (known.id.clone(), state.live.count_of(number));
            tracing::warn!(%plugin, pods, "was not loaded for a week: the journal forgets which pods it ran on");
            state.set_plugin(Some(number), None);
        }
    }
}

impl Store {
    /// Writes what waits, in one piece. What could not be written stays for the next time.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn write(&mut self, journal: &Journal) -> io::Result<()> {
        let Batch { bytes, entries, upto } = journal.take_unwritten();
        self.stuck.bytes.extend_from_slice(&bytes);
        self.stuck.entries += entries;
        self.stuck.upto = self.stuck.upto.max(upto);
        if self.stuck.bytes.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.file.write_all_at(&self.stuck.bytes, self.end) {
            journal.state.lock().stuck = self.stuck.bytes.len();
            return Err(error);
        }
        let Batch { bytes, entries, upto } = std::mem::take(&mut self.stuck);
        self.end += bytes.len() as u64;
        self.entries += entries as u64;
        journal.wrote(upto, self.end);
        self.compact_when_due(journal);
        Ok(())
    }

    /// A second handle on the file, to sync it while this one writes on.
    ///
    /// # Errors
    /// When the process has no more handles.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Writes what counts to a new file, syncs that, and puts it in the place of the old one: after a sync that failed,
    /// the kernel may have dropped what it did not write, and another sync of the same file would succeed and say
    /// nothing of it.
    ///
    /// # Errors
    /// Those of the disk, also where the old file cannot be read any more. It stays then.
    pub fn rewrite(&mut self, journal: &Journal) -> io::Result<()> {
        self.compact(journal)?;
        journal.wrote(0, self.end);
        Ok(())
    }

    /// For tests: as if the file had grown too long.
    #[cfg(test)]
    pub(super) fn compact_now(&mut self, journal: &Journal) {
        self.compact(journal).unwrap();
    }

    /// For tests: replaces the file, and returns the former one.
    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    fn compact_when_due(&mut self, journal: &Journal) {
        let live = journal.state.lock().live.len() as u64;
        if self.entries <= self.compact_above.max(2 * live + SLACK) {
            return;
        }
        match self.compact(journal) {
            Ok(()) => {
                journal.state.lock().bytes = self.end;
                tracing::debug!(entries = self.entries, bytes = self.end, "the journal was rewritten");
            }
            Err(error) => {
                self.compact_above = self.entries + SLACK;
                tracing::warn!(file = %self.directory.join(NEXT).display(), %error, "the journal cannot be rewritten");
            }
        }
    }

    /// Copies the entries that count to a new file, which replaces the old one. Entries that are noted meanwhile are
    /// appended to the new file.
    fn compact(&mut self, journal: &Journal) -> io::Result<()> {
        if self.end == 0 {
            // Not even the header is written.
            return Ok(());
        }
        let next = self.directory.join(NEXT);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&next)?;
        let (mut bytes, mut kept) = (Vec::new(), 0);
        let mut writer = BufWriter::new(&file);
        writer.write_all(&FORMAT.header())?;
        {
            let state = journal.state.lock();
            if let Some(uid) = &state.cluster {
                kept += u64::from(Entry::Cluster { uid: Cow::Borrowed(uid) }.append_to(&mut bytes).is_ok());
            }
            for number in state.numbers() {
                kept += u64::from(plugin_entry(number, state.known(number)).append_to(&mut bytes).is_ok());
            }
        }
        let mut old = File::open(self.directory.join(JOURNAL))?;
        old.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
        let mut entries = Entries::new(BufReader::new(old));
        while entries.offset() < self.end {
            let ends_early =
                || io::Error::new(io::ErrorKind::UnexpectedEof, "the journal has lost entries that were written");
            let entry = entries.next().map_err(unreadable)?.ok_or_else(ends_early)?;
            if let Entry::Runs { plugin, uid, .. } = &entry
                && journal.state.lock().live.contains(Number(*plugin), Uid::of(uid))
            {
                kept += u64::from(entry.append_to(&mut bytes).is_ok());
            }
            writer.write_all(&bytes)?;
            bytes.clear();
        }
        writer.write_all(&bytes)?;
        writer.flush()?;
        drop(writer);
        file.sync_all()?;
        let end = file.metadata()?.len();
        fs::rename(&next, self.directory.join(JOURNAL))?;
        (self.file, self.end, self.entries) = (file, end, kept);
        // Without this a crash of the machine may bring the old file back.
        File::open(&self.directory)?.sync_all()
    }
}

fn unreadable(stop: ReadError) -> io::Error {
    match stop {
        ReadError::Io(error) => error,
        ReadError::Damaged(damage) => io::Error::other(damage),
    }
}
