//! The cache on disk, for a warm start: Pods, and the revision at which a watch resumes.
//!
//! A file is one complete state of the cache, and the revisions up to which it stayed unchanged. A new file is
//! written beside the old one and then replaces it. A file that is damaged or of another version is ignored, because
//! a list is always possible. Shared text is stored once, as in memory, so the file is as large as the cache. Pods of
//! the file are built and verified like Pods from the API server. The watch determines whether the API server still
//! has the history since the checkpoint.
//!
//! All calls block.

mod entry;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, ErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

pub use entry::Coverage;
use entry::{Bytes, Entry, FORMAT, MAX_TEXT, PIECE};
use podium_encoding::Pool;
use podium_engine::frames::{Frames, HeaderState, ReadError};
use podium_pods::{
    dump::{self, Dump},
    pod::{CachedPod, Checkpoint},
};
use podium_vocabulary::Revision;

use podium_engine::private_file;

const FILE: &str = "checkpoint";
/// The file that is being written; it is renamed to [`FILE`].
const NEXT: &str = "checkpoint.next";
/// Bytes of the file that are read at once.
const BUFFER: usize = 256 << 10;
/// Bytes of disk space that a checkpoint leaves free for the journal: twice what the journal buffers in memory while
/// the disk accepts nothing.
const RESERVE: u64 = 16 << 20;
/// Bytes written between two checks of the free space.
const LOOK_EVERY: u64 = 4 << 20;

/// Returns the bytes that are available to this process on a directory's disk.
type FreeSpace = fn(&Path) -> io::Result<u64>;

/// Writes the checkpoints of one host.
#[derive(Debug)]
pub struct Saver {
    directory: PathBuf,
    coverage: Coverage,
    last: Option<SavedFile>,
    free: FreeSpace,
}

/// The contents of the file.
#[derive(Debug)]
struct SavedFile {
    file: File,
    pods: u64,
    edits: u64,
    revision: Revision,
}

impl Saver {
    /// Returns a saver for an existing directory that only this host uses.
    #[must_use]
    pub fn new(directory: PathBuf, coverage: Coverage) -> Self {
        Self { directory, coverage, last: None, free }
    }

    /// Returns the saver with another source for the free space.
    #[cfg(test)]
    fn with_free(self, free: FreeSpace) -> Self {
        Self { free, ..self }
    }

    /// Saves these Pods at this revision of the cache. `cluster` is the uid of the namespace kube-system. `edits`
    /// grows with every change of the Pods: if it is the same as at the last call, only the new revision is written.
    ///
    /// The file is not synced. A file that is incomplete after a crash of the machine is ignored.
    ///
    /// # Errors
    /// Returns the errors of the disk, even if it has too little free space for the checkpoint and the journal. The
    /// previous checkpoint stays then.
    pub fn save(
        &mut self,
        pods: impl Iterator<Item = Arc<CachedPod>>,
        revision: Revision,
        edits: u64,
        cluster: Option<&str>,
    ) -> io::Result<()> {
        let saved = match self.last.take() {
            Some(last) if last.edits == edits && last.revision == revision => last,
            Some(mut last) if last.edits == edits => {
                let mut end = Vec::new();
                frame(&Entry::End { pods: last.pods, revision: revision.0 }, &mut end)?;
                last.file.write_all(&end)?;
                SavedFile { revision, ..last }
            }
            _ => self.write(pods, revision, edits, cluster).inspect_err(|_| {
                // Otherwise it would occupy the journal's space until the next attempt.
                let _ = fs::remove_file(self.directory.join(NEXT));
            })?,
        };
        self.last = Some(saved);
        Ok(())
    }

    /// Writes a new file, which replaces the old one when it is complete.
    fn write(
        &self,
        pods: impl Iterator<Item = Arc<CachedPod>>,
        revision: Revision,
        edits: u64,
        cluster: Option<&str>,
    ) -> io::Result<SavedFile> {
        // The old file stays until the new one is complete.
        let likely = fs::metadata(self.directory.join(FILE)).map_or(0, |last| last.len());
        let space = Space { directory: &self.directory, free: self.free };
        space.is_enough_for(likely.saturating_mul(2))?;
        let next = self.directory.join(NEXT);
        // Pods contain values of environment variables, so only the host's user may read the file. A new file has the
        // mode, and is no link.
        let _ = fs::remove_file(&next);
        let file = private_file::create(&next)?;
        let mut saving = Saving {
            file: BufWriter::with_capacity(BUFFER, file),
            frame: Vec::new(),
            dump: Dump::default(),
            space,
            since_look: 0,
        };
        saving.file.write_all(&FORMAT.header())?;
        saving.write(&Entry::Of { coverage: self.coverage.clone(), cluster: cluster.map(str::to_owned) })?;
        let mut count = 0;
        for pod in pods {
            saving.pod(&pod)?;
            count += 1;
        }
        saving.write(&Entry::End { pods: count, revision: revision.0 })?;
        let file = saving.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&next, self.directory.join(FILE))?;
        Ok(SavedFile { file, pods: count, edits, revision })
    }
}

/// Returns the free bytes of a directory's disk.
fn free(directory: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The disk space that a checkpoint may use.
struct Space<'a> {
    directory: &'a Path,
    free: FreeSpace,
}

impl Space<'_> {
    fn is_enough_for(&self, wanted: u64) -> io::Result<()> {
        let (free, needed) = ((self.free)(self.directory)?, wanted.max(RESERVE));
        match free < needed {
            true => Err(io::Error::new(
                ErrorKind::StorageFull,
                format!("{free} bytes are free, and a checkpoint needs {needed} to leave room for the journal"),
            )),
            false => Ok(()),
        }
    }
}

/// A file that is being written.
struct Saving<'a> {
    file: BufWriter<File>,
    frame: Vec<u8>,
    dump: Dump,
    space: Space<'a>,
    /// Bytes written since the free space was last checked.
    since_look: u64,
}

impl Saving<'_> {
    fn pod(&mut self, pod: &CachedPod) -> io::Result<()> {
        for entry in pod.entries(&mut self.dump) {
            let entry = match entry {
                dump::Entry::Text(key) => Entry::Text(self.pieces(key)?),
                dump::Entry::Group(texts) => Entry::Group(texts),
                dump::Entry::Pod { group, name, uid, revision, own } => {
                    Entry::Pod { group, name, uid, revision, own: self.pieces(own)? }
                }
                dump::Entry::Whole(json) => Entry::Whole(self.pieces(json)?),
            };
            self.write(&entry)?;
        }
        Ok(())
    }

    /// Writes a long text in pieces. Returns the last piece, which the entry itself contains.
    fn pieces(&mut self, text: Vec<u8>) -> io::Result<Bytes> {
        let mut rest = &*text;
        while rest.len() > PIECE {
            let (piece, behind) = rest.split_at(PIECE);
            self.write(&Entry::Piece(Bytes(piece.to_vec())))?;
            rest = behind;
        }
        Ok(Bytes(if rest.len() == text.len() { text } else { rest.to_vec() }))
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        self.frame.clear();
        frame(entry, &mut self.frame)?;
        self.since_look += self.frame.len() as u64;
        if self.since_look >= LOOK_EVERY {
            self.since_look = 0;
            self.space.is_enough_for(0)?;
        }
        self.file.write_all(&self.frame)
    }
}

fn frame(entry: &Entry, bytes: &mut Vec<u8>) -> io::Result<()> {
    let payload = podium_wire::encode(entry).map_err(io::Error::other)?;
    FORMAT.append(&payload, bytes).map_err(io::Error::other)
}

/// Reads the checkpoint of the host's directory. Returns `None` and logs the reason if there is none, or none that
/// can be used.
#[must_use]
pub fn load(directory: &Path, coverage: &Coverage, pool: &Pool) -> Option<Checkpoint> {
    let path = directory.join(FILE);
    let unused = |reason: &str| {
        tracing::warn!(file = %path.display(), reason, "checkpoint not used; listing all pods");
    };
    let file = match private_file::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            unused(&error.to_string());
            return None;
        }
    };
    match read(BufReader::with_capacity(BUFFER, file), coverage, pool) {
        Ok(checkpoint) => Some(checkpoint),
        Err(reason) => {
            unused(&reason.to_string());
            None
        }
    }
}

/// Removes the checkpoint and an unfinished one, for a host that keeps none.
///
/// # Errors
/// Returns the errors of the disk; a missing file is not an error.
pub fn remove(directory: &Path) -> io::Result<()> {
    for file in [FILE, NEXT] {
        match fs::remove_file(directory.join(file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

fn read(mut file: impl Read, coverage: &Coverage, pool: &Pool) -> Result<Checkpoint, ReadError> {
    match FORMAT.read_header(&mut file)? {
        HeaderState::Ours => {}
        HeaderState::OtherVersion(version) => return Err(damaged(format!("it is of version {version}"))),
        HeaderState::Short | HeaderState::Foreign => return Err(damaged("it is none")),
    }
    let mut frames = Frames::new(file, &FORMAT);
    let mut loading = Loading::new(pool);
    let cluster = match next(&mut frames)? {
        Entry::Of { coverage: of, cluster } if of == *coverage => cluster.map(Arc::from),
        Entry::Of { .. } => return Err(damaged("it is of another namespace, or pruned otherwise")),
        _ => return Err(damaged("it does not begin with what it is of")),
    };
    loop {
        match next(&mut frames)? {
            Entry::End { pods, revision } if pods == loading.decoder.len() as u64 && loading.pieces.is_empty() => {
                let revision = last_end(&mut frames, pods).unwrap_or(revision);
                let pods = loading.decoder.into_pods();
                return Ok(Checkpoint { pods, revision: Revision(revision), cluster });
            }
            entry => loading.take(entry).ok_or_else(|| damaged("an entry does not fit those before it"))?,
        }
    }
}

/// Returns the last revision at which the Pods of a complete checkpoint were unchanged. Damage in this part of the file
/// is ignored.
fn last_end(frames: &mut Frames<impl Read>, pods: u64) -> Option<u64> {
    let mut last = None;
    while let Ok(Entry::End { pods: again, revision }) = next(frames) {
        last = (again == pods).then_some(revision).or(last);
    }
    last
}

fn next(frames: &mut Frames<impl Read>) -> Result<Entry, ReadError> {
    let payload = frames.read()?.ok_or_else(|| damaged("it ends too soon"))?;
    podium_wire::decode(payload).map_err(|error| damaged(error.to_string()))
}

fn damaged(reason: impl Into<String>) -> ReadError {
    ReadError::Damaged(reason.into())
}

/// The contents of a file so far.
struct Loading<'a> {
    decoder: dump::Decoder<'a>,
    /// The pieces of the next entry's text.
    pieces: Vec<u8>,
}

impl<'a> Loading<'a> {
    fn new(pool: &'a Pool) -> Self {
        Self { decoder: dump::Decoder::new(pool), pieces: Vec::new() }
    }

    /// Returns the text of which this is the last piece.
    fn whole(&mut self, last: Vec<u8>) -> Vec<u8> {
        if self.pieces.is_empty() {
            return last;
        }
        let mut text = std::mem::take(&mut self.pieces);
        text.extend_from_slice(&last);
        text
    }

    /// Adds an entry. Returns `None` if it is not valid here.
    fn take(&mut self, entry: Entry) -> Option<()> {
        let entry = match entry {
            Entry::Piece(Bytes(piece)) => {
                let fits = self.pieces.len() + piece.len() <= MAX_TEXT && !piece.is_empty();
                return fits.then(|| self.pieces.extend_from_slice(&piece));
            }
            Entry::Text(Bytes(last)) => dump::Entry::Text(self.whole(last)),
            Entry::Group(texts) if self.pieces.is_empty() => dump::Entry::Group(texts),
            Entry::Pod { group, name, uid, revision, own: Bytes(last) } => {
                dump::Entry::Pod { group, name, uid, revision, own: self.whole(last) }
            }
            Entry::Whole(Bytes(last)) => dump::Entry::Whole(self.whole(last)),
            Entry::Group(_) | Entry::Of { .. } | Entry::End { .. } => return None,
        };
        self.decoder.take(entry)
    }
}
