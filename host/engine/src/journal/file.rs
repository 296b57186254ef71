//! The journal's file: its directory, lock, tail and compaction. The only module that accesses the journal on disk.
//!
//! All calls block. A failed write does not advance the file's end, so the next write overwrites its bytes.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "writes and reads the journal's file, whose path comes from the application"
)]

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, BufReader, BufWriter, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use podium_vocabulary::is_group;

use super::{
    Batch, Journal, Number, Recovery,
    entry::{Entries, Entry},
    filler,
    pair_set::PackedUid,
    plugin_entry,
    replay::{Replayed, replay},
};
use crate::{
    frames::{HEADER, HEADER_BYTES, HeaderState, ReadError, read_header},
    private_file,
};

const JOURNAL: &str = "journal";
const LOCK: &str = "lock";
/// The file that is written during compaction and then renamed to the journal.
const NEXT: &str = "journal.next";
/// The number of entries that a file may have beside twice the needed ones: 8,192 are about 1 MiB.
const SLACK: u64 = 8_192;

/// Why the journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has the lock of this file.
    #[error(
        "{} is used by another podium-host: use a separate directory for each host, or stop the other host first",
        .0.display()
    )]
    Locked(PathBuf),
    /// The file or the directory cannot be read or written.
    #[error("{} cannot be used: {error}; use a directory that the host can write to", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// An opened journal: its state in memory, its file, and its previous entries.
#[derive(Debug)]
pub struct Opened {
    /// The entries in memory, shared by all users.
    pub journal: Arc<Journal>,
    /// The file, for the only task that writes it.
    pub store: Store,
    /// The names in the file, to be compared with the first list.
    pub recovery: Recovery,
}

/// The file, its end, and the entries that could not be written yet.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    file: File,
    /// Locked until it is closed. The kernel also closes it if the process is killed.
    _lock: File,
    end: u64,
    entries: u64,
    stuck: Batch,
    /// The number of entries below which compaction is not tried again, because it failed there.
    compact_above: u64,
    /// Damaged places of the file.
    damaged: u64,
}

/// Opens the journal of a directory, and creates the directory if it is missing. Only the host's user can read and
/// write the directory that was created, and the files.
///
/// # Errors
/// Returns an error if another host uses the journal, or if it cannot be read or written, or is a link. Damage is not
/// an error: a damaged entry is lost, a damaged end is truncated, and the log says so.
pub fn open(directory: &Path, now_millis: u64) -> Result<Opened, Error> {
    let path = directory.join(JOURNAL);
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Io { path, error }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable(directory))?;
    let lock = lock(directory)?;
    let mut file = private(&path).map_err(unusable(&path))?;
    if let Some(suffix) = foreign(&file).map_err(unusable(&path))? {
        let aside = directory.join(format!("{JOURNAL}.{suffix}"));
        fs::rename(&path, &aside).map_err(unusable(&path))?;
        tracing::warn!(
            file = %path.display(), aside = %aside.display(),
            "the journal is not one of this version; it is set aside, and deletions that it knew of are not delivered"
        );
        file = private(&path).map_err(unusable(&path))?;
    }
    let read = |path: &Path| -> io::Result<(Replayed, Recovery, u64)> {
        let mut reader = private_file::open(path)?;
        let length = reader.metadata()?.len();
        reader.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
        let replayed = replay(&reader)?;
        reader.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
        let recovery = Recovery { file: reader, end: replayed.end };
        Ok((replayed, recovery, length))
    };
    let (replayed, recovery, length) = read(&path).map_err(unusable(&path))?;
    let Replayed { mut state, end, entries, damage, torn } = replayed;
    if let Some(error) = damage.first {
        tracing::warn!(
            file = %path.display(), places = damage.places, error,
            "the journal is damaged; entries there are lost, and deletions of their Pods may not be delivered"
        );
    }
    if let Some(damage) = torn {
        tracing::warn!(
            file = %path.display(), offset = end, bytes = length - end.min(length), damage,
            "the end of the journal is damaged and cut off; runs noted there are forgotten"
        );
        // Bytes after the end would be overwritten too, but could be read as entries until then.
        file.set_len(end).map_err(unusable(&path))?;
    }
    state.enforce_all(now_millis);
    state.bytes = end;
    state.damaged = damage.places;
    let mut store = Store {
        directory: directory.to_owned(),
        file,
        _lock: lock,
        end,
        entries,
        stuck: Batch::default(),
        compact_above: 0,
        damaged: damage.places,
    };
    if length < HEADER_BYTES as u64 {
        // The header is written with the first batch, so that the host also starts on a full disk.
        store.end = 0;
        store.stuck.bytes = HEADER.to_vec();
    }
    let journal = Journal::new(state);
    if damage.places > 0 || is_blank(&store.file).map_err(unusable(&path))? {
        store.try_to_compact(&journal);
    } else {
        store.compact_when_due(&journal);
    }
    Ok(Opened { journal, store, recovery })
}

fn lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join(LOCK);
    let unusable = |error| Error::Io { path: path.clone(), error };
    let lock = private(&path).map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Locked(directory.to_owned())),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

/// Opens or creates a file that only the host's user can read and write. Fails on anything else than a regular file, on
/// links too, and on a file whose mode this user may not change.
fn private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // On a pipe the host would wait.
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Returns the suffix under which a file is renamed that is not a journal of this version. A file that ends within
/// the header was never completed.
fn foreign(file: &File) -> io::Result<Option<String>> {
    Ok(match read_header(&mut &*file)? {
        HeaderState::Ours | HeaderState::Short => None,
        HeaderState::OtherVersion(version) => Some(format!("version-{version}")),
        // Its sector is lost, and entries may follow.
        HeaderState::Foreign if is_blank(file)? => None,
        HeaderState::Foreign => Some("unreadable".to_owned()),
    })
}

/// Returns true if the header consists of zeros.
fn is_blank(file: &File) -> io::Result<bool> {
    let mut header = [1; HEADER_BYTES];
    file.read_at(&mut header, 0)?;
    Ok(header == [0; HEADER_BYTES])
}

impl Store {
    /// Writes all pending entries at once. Entries that could not be written stay pending.
    ///
    /// # Errors
    /// Returns the errors of the disk.
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
        journal.record_written(upto, self.end);
        self.compact_when_due(journal);
        Ok(())
    }

    /// Returns a second handle on the file, to sync it while entries are written.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptors left.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Writes the needed entries to a new file, syncs it, and replaces the old one with it. After a failed sync the
    /// kernel may have dropped the unwritten pages, and another sync of the same file would succeed without writing
    /// them.
    ///
    /// # Errors
    /// Returns the errors of the disk, even if the old file can no longer be read. The old file stays then.
    pub fn rewrite(&mut self, journal: &Journal) -> io::Result<()> {
        self.compact(journal)?;
        journal.record_written(0, self.end);
        Ok(())
    }

    /// For tests: compacts as if the file had grown too long.
    #[cfg(test)]
    pub(crate) fn compact_now(&mut self, journal: &Journal) {
        self.compact(journal).unwrap();
    }

    /// For tests: replaces the file, and returns the previous one.
    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.file, file)
    }

    fn compact_when_due(&mut self, journal: &Journal) {
        let pairs = journal.state.lock().pairs.len() as u64;
        if self.entries <= self.compact_above.max(2 * pairs + SLACK) {
            return;
        }
        self.try_to_compact(journal);
    }

    fn try_to_compact(&mut self, journal: &Journal) {
        match self.compact(journal) {
            Ok(()) => {
                journal.state.lock().bytes = self.end;
                tracing::debug!(entries = self.entries, bytes = self.end, "journal compacted");
            }
            Err(error) => {
                self.compact_above = self.entries + SLACK;
                tracing::warn!(file = %self.directory.join(NEXT).display(), %error, "journal compaction failed");
            }
        }
    }

    /// Copies the needed entries to a new file, which replaces the old one. Entries that are recorded meanwhile are
    /// appended to the new file.
    fn compact(&mut self, journal: &Journal) -> io::Result<()> {
        if self.end == 0 {
            // The header is not written yet.
            return Ok(());
        }
        let next = self.directory.join(NEXT);
        // A new file, which is private and no link.
        let _ = fs::remove_file(&next);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&next)?;
        let mut bytes = Vec::new();
        let mut kept = 0;
        let mut writer = BufWriter::new(&file);
        writer.write_all(&HEADER)?;
        {
            let state = journal.state.lock();
            let cluster = state.cluster.as_ref().map(|uid| Entry::Cluster { uid: Cow::Borrowed(uid) });
            let plugins = state.all_numbers().into_iter().map(|number| plugin_entry(number, state.known(number)));
            let whole: Vec<_> = cluster.into_iter().chain(plugins).collect();
            for entry in whole.iter().chain([&filler()]).chain(&whole) {
                kept += u64::from(entry.append_to(&mut bytes).is_ok());
            }
        }
        // A group is entered again after each of its ends.
        let mut groups = BTreeSet::new();
        let mut old = private_file::open(&self.directory.join(JOURNAL))?;
        old.seek(SeekFrom::Start(HEADER_BYTES as u64))?;
        let mut entries = Entries::new(BufReader::new(old));
        while entries.offset() < self.end {
            let ends_early =
                || io::Error::new(io::ErrorKind::UnexpectedEof, "the journal has lost entries that were written");
            let entry = entries.next().map_err(unreadable)?.ok_or_else(ends_early)?;
            if let Entry::Runs { plugin, uid, .. } = &entry
                && journal.state.lock().pairs.contains(Number(*plugin), PackedUid::pack(uid))
                && (!is_group(uid) || groups.insert((*plugin, uid.to_string())))
            {
                kept += u64::from(entry.append_to(&mut bytes).is_ok());
            }
            writer.write_all(&bytes)?;
            bytes.clear();
        }
        if entries.damage().places > self.damaged {
            return Err(io::Error::other("the journal was damaged since it was opened"));
        }
        writer.write_all(&bytes)?;
        writer.flush()?;
        drop(writer);
        file.sync_all()?;
        let end = file.metadata()?.len();
        fs::rename(&next, self.directory.join(JOURNAL))?;
        self.file = file;
        self.end = end;
        self.entries = kept;
        self.damaged = 0;
        // Without this sync a crash of the machine may restore the old file.
        File::open(&self.directory)?.sync_all()
    }
}

fn unreadable(stop: ReadError) -> io::Error {
    match stop {
        ReadError::Io(error) => error,
        ReadError::Damaged(damage) => io::Error::other(damage),
    }
}
