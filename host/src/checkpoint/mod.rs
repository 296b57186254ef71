//! The cache on the disk, for a warm start: Pods, and the revision from which a watch tells what has changed since.
//!
//! A file is one state of the cache, whole or of no use, and the revisions up to which it stayed so. It is written
//! beside the old one and put in its place, and one that is damaged, of another version or of something else is passed
//! over, because a list is always there to be had. It holds what Pods share once, as memory does, so it is as large as
//! they are there. What is read is built and proven as what the API server sends is. Whether the API server still goes
//! on from there is the watch's to find out.
//!
//! Everything here blocks.

mod entry;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, ErrorKind, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use podium_wire::Section;

use crate::{
    frames::{Begins, Frames, Stop},
    model::{CachedPod, Checkpoint, PodKey, Record, Revision, Room},
    shape::{Identity, PARTS, Packed, Prune, Shape, Shapes},
};

pub use entry::Scope;
use entry::{Bytes, Entry, FORMAT, MAX_TEXT, PIECE};

const FILE: &str = "checkpoint";
/// Written beside it, and then put in its place.
const NEXT: &str = "checkpoint.next";
/// Of the file, read at once.
const BUFFER: usize = 256 << 10;
/// What a checkpoint leaves free on the disk for the journal: twice what the journal keeps in memory while the disk
/// takes nothing.
const RESERVE: u64 = 16 << 20;
/// Free space is asked for again each time so much was written.
const LOOK_EVERY: u64 = 4 << 20;

/// Returns the bytes that are free for this process on the disk of a directory.
type Free = fn(&Path) -> io::Result<u64>;

/// Writes the checkpoints of one host.
#[derive(Debug)]
pub struct Saver {
    directory: PathBuf,
    scope: Scope,
    last: Option<Saved>,
    free: Free,
}

/// What stands in the file.
#[derive(Debug)]
struct Saved {
    file: File,
    pods: u64,
    edits: u64,
    revision: Revision,
}

impl Saver {
    /// The directory is the host's own, and there.
    #[must_use]
    pub fn new(directory: PathBuf, scope: Scope) -> Self {
        Self { directory, scope, last: None, free }
    }

    /// As if the disk had so much space.
    #[cfg(test)]
    fn with_free(self, free: Free) -> Self {
        Self { free, ..self }
    }

    /// Saves these Pods at this revision of the cache. `cluster` is the uid of the namespace kube-system. `edits`
    /// counts up with every change of them: where none was since the last time the new revision is all that is written.
    ///
    /// It is not synced: what a crash of the machine leaves of it is passed over.
    ///
    /// # Errors
    /// Those of the disk, also where it has not enough free space for the checkpoint and the journal beside it. The
    /// checkpoint before this one stays then, and nothing of this one.
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
                Saved { revision, ..last }
            }
            _ => self.write(pods, revision, edits, cluster).inspect_err(|_| {
                // It would take the journal's space until the next attempt.
                let _ = fs::remove_file(self.directory.join(NEXT));
            })?,
        };
        self.last = Some(saved);
        Ok(())
    }

    /// A new file, which takes the place of the old one when it is whole.
    fn write(
        &self,
        pods: impl Iterator<Item = Arc<CachedPod>>,
        revision: Revision,
        edits: u64,
        cluster: Option<&str>,
    ) -> io::Result<Saved> {
        // The old one stays beside the new one until that is whole.
        let likely = fs::metadata(self.directory.join(FILE)).map_or(0, |last| last.len());
        let space = Space { directory: &self.directory, free: self.free };
        space.is_enough_for(likely.saturating_mul(2))?;
        let next = self.directory.join(NEXT);
        // Pods have values of environment variables: for the host's own user alone.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        let mut saving = Saving {
            file: BufWriter::with_capacity(BUFFER, file),
            frame: Vec::new(),
            keys: BTreeMap::new(),
            shapes: BTreeMap::new(),
            space,
            since_look: 0,
        };
        saving.file.write_all(&FORMAT.header())?;
        saving.write(&Entry::Of { scope: self.scope.clone(), cluster: cluster.map(str::to_owned) })?;
        let mut count = 0;
        for pod in pods {
            saving.pod(&pod)?;
            count += 1;
        }
        saving.write(&Entry::End { pods: count, revision: revision.0 })?;
        let file = saving.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        fs::rename(&next, self.directory.join(FILE))?;
        Ok(Saved { file, pods: count, edits, revision })
    }
}

/// Returns the free bytes of a directory's disk.
fn free(directory: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// How much a checkpoint may take of the disk.
struct Space<'a> {
    directory: &'a Path,
    free: Free,
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
    /// By what tells them apart as long as some Pod has them: so all Pods of a checkpoint must be there until it is
    /// written, as they are in a snapshot.
    keys: BTreeMap<usize, u32>,
    shapes: BTreeMap<usize, u32>,
    space: Space<'a>,
    /// Bytes written since free space was asked for.
    since_look: u64,
}

impl Saving<'_> {
    fn pod(&mut self, pod: &CachedPod) -> io::Result<()> {
        let packed = pod.packed();
        let Some(shape) = self.shape(packed.shape())? else {
            let last = self.pieces(&pod.section_bytes(Section::Full))?;
            return self.write(&Entry::Alone(last));
        };
        let own = self.pieces(packed.own_bytes())?;
        self.write(&Entry::Pod {
            shape,
            name: pod.key.name.to_string(),
            uid: pod.key.uid.to_string(),
            revision: pod.revision.0,
            own,
        })
    }

    /// The shape's number. None where it is no other Pod's.
    fn shape(&mut self, shape: &Arc<Shape>) -> io::Result<Option<u32>> {
        let address = Arc::as_ptr(shape).addr();
        if let Some(known) = self.shapes.get(&address) {
            return Ok(Some(*known));
        }
        let Some(keys) = shape.keys() else { return Ok(None) };
        let mut parts = [0; PARTS];
        for (number, (address, key)) in parts.iter_mut().zip(keys) {
            *number = match self.keys.get(&address) {
                Some(known) => *known,
                None => {
                    let last = self.pieces(&key.to_vec())?;
                    self.write(&Entry::Key(last))?;
                    next_number(&mut self.keys, address)
                }
            };
        }
        self.write(&Entry::Shape(parts))?;
        Ok(Some(next_number(&mut self.shapes, address)))
    }

    /// Writes a long text in pieces. Returns the last one, for the entry that it belongs to.
    fn pieces(&mut self, mut text: &[u8]) -> io::Result<Bytes> {
        while text.len() > PIECE {
            let (piece, rest) = text.split_at(PIECE);
            self.write(&Entry::Piece(Bytes(piece.to_vec())))?;
            text = rest;
        }
        Ok(Bytes(text.to_vec()))
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
    match FORMAT.append(&payload, bytes) {
        true => Ok(()),
        false => Err(io::Error::other("a name is longer than any that an API server takes")),
    }
}

fn next_number(numbers: &mut BTreeMap<usize, u32>, address: usize) -> u32 {
    // A checkpoint of so many parts would not fit a disk.
    let number = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    numbers.insert(address, number);
    number
}

/// Reads the checkpoint of the host's directory. None where there is none, or none that is of use here; the log says
/// why.
#[must_use]
pub fn load(directory: &Path, scope: &Scope, shapes: &Shapes) -> Option<Checkpoint> {
    let path = directory.join(FILE);
    let unused = |reason: &str| {
        tracing::warn!(file = %path.display(), reason, "the checkpoint is not used; all pods are listed");
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            unused(&error.to_string());
            return None;
        }
    };
    match read(BufReader::with_capacity(BUFFER, file), scope, shapes) {
        Ok(checkpoint) => Some(checkpoint),
        Err(reason) => {
            unused(&reason.to_string());
            None
        }
    }
}

/// Removes it, and one that was begun, for a host that is to keep none.
///
/// # Errors
/// Those of the disk, but where there is none.
pub fn remove(directory: &Path) -> io::Result<()> {
    for file in [FILE, NEXT] {
        match fs::remove_file(directory.join(file)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

fn read(mut file: impl Read, scope: &Scope, shapes: &Shapes) -> Result<Checkpoint, Stop> {
    match FORMAT.begins(&mut file)? {
        Begins::Ours => {}
        Begins::OtherVersion(version) => return Err(damaged(format!("it is of version {version}"))),
        Begins::Short | Begins::Foreign => return Err(damaged("it is none")),
    }
    let mut frames = Frames::new(file, &FORMAT);
    let mut loading = Loading::new(shapes);
    let cluster = match next(&mut frames)? {
        Entry::Of { scope: of, cluster } if of == *scope => cluster.map(Arc::from),
        Entry::Of { .. } => return Err(damaged("it is of another namespace, or pruned otherwise")),
        _ => return Err(damaged("it does not begin with what it is of")),
    };
    loop {
        match next(&mut frames)? {
            Entry::End { pods, revision } if pods == loading.pods.len() as u64 && loading.pieces.is_empty() => {
                let revision = last_end(&mut frames, pods).unwrap_or(revision);
                return Ok(Checkpoint { pods: loading.pods, revision: Revision(revision), cluster });
            }
            entry => loading.take(entry).ok_or_else(|| damaged("an entry does not fit those before it"))?,
        }
    }
}

/// Behind a whole checkpoint its Pods may have been found unchanged at later revisions. What is damaged there is not
/// needed.
fn last_end(frames: &mut Frames<impl Read>, pods: u64) -> Option<u64> {
    let mut last = None;
    while let Ok(Entry::End { pods: again, revision }) = next(frames) {
        last = (again == pods).then_some(revision).or(last);
    }
    last
}

fn next(frames: &mut Frames<impl Read>) -> Result<Entry, Stop> {
    let payload = frames.next()?.ok_or_else(|| damaged("it ends too soon"))?;
    podium_wire::decode(payload).map_err(|error| damaged(error.to_string()))
}

fn damaged(reason: impl Into<String>) -> Stop {
    Stop::Damaged(reason.into())
}

/// What was read of a file.
struct Loading<'a> {
    known: &'a Shapes,
    keys: Vec<Vec<u8>>,
    /// With the shape itself once a Pod has proven it.
    shapes: Vec<([usize; PARTS], Option<Arc<Shape>>)>,
    pods: Vec<Record>,
    room: Room,
    /// The beginning of the next entry's text.
    pieces: Vec<u8>,
}

impl<'a> Loading<'a> {
    fn new(known: &'a Shapes) -> Self {
        let (room, pieces) = (Room::default(), Vec::new());
        Self { known, keys: Vec::new(), shapes: Vec::new(), pods: Vec::new(), room, pieces }
    }

    /// A text whose last piece this is.
    fn whole(&mut self, last: Vec<u8>) -> Vec<u8> {
        if self.pieces.is_empty() {
            return last;
        }
        let mut text = std::mem::take(&mut self.pieces);
        text.extend_from_slice(&last);
        text
    }

    /// None where the entry does not fit.
    fn take(&mut self, entry: Entry) -> Option<()> {
        match entry {
            Entry::Piece(Bytes(piece)) => {
                let fits = self.pieces.len() + piece.len() <= MAX_TEXT && !piece.is_empty();
                fits.then(|| self.pieces.extend_from_slice(&piece))?;
            }
            Entry::Key(Bytes(last)) => {
                let key = self.whole(last);
                self.keys.push(key);
            }
            Entry::Shape(keys) => {
                self.pieces.is_empty().then_some(())?;
                let keys = keys.map(|key| key as usize);
                keys.iter().all(|key| *key < self.keys.len()).then(|| self.shapes.push((keys, None)))?;
            }
            Entry::Pod { shape, name, uid, revision, own: Bytes(last) } => {
                let own = self.whole(last);
                let identity = Identity { name: &name, uid: &uid, revision };
                let shape = self.shape(shape as usize, &own, identity)?;
                let key = PodKey::new(shape.namespace(), &name, &uid);
                self.push(&CachedPod::from_parts(key, Revision(revision), Packed::from_parts(shape, &own)))?;
            }
            Entry::Alone(Bytes(last)) => {
                let json = self.whole(last);
                self.push(&CachedPod::alone(&json, &Prune::NOTHING).ok()?)?;
            }
            Entry::Of { .. } | Entry::End { .. } => return None,
        }
        Some(())
    }

    fn shape(&mut self, number: usize, own: &[u8], identity: Identity<'_>) -> Option<Arc<Shape>> {
        let (keys, shape) = self.shapes.get_mut(number)?;
        match shape {
            Some(shape) => shape.fits(own, identity).then(|| Arc::clone(shape)),
            None => {
                let keys = keys.map(|key| &*self.keys[key]);
                Some(Arc::clone(shape.insert(self.known.restore(keys, own, identity)?)))
            }
        }
    }

    fn push(&mut self, pod: &CachedPod) -> Option<()> {
        let record = Record::new(pod, &mut self.room);
        let in_order = match self.pods.last() {
            Some(last) => last.kept()?.compare(&pod.key.namespace, &pod.key.name).is_lt(),
            None => true,
        };
        in_order.then(|| self.pods.push(record))
    }
}
