//! Compiled code on disk, so that a restart compiles nothing.
//!
//! A file is trusted only if its MAC is right, because its content runs as native code in the host. The key lies beside
//! the directory, and only the host's user can read it. Files of another key, version, processor, class or component
//! are removed and made again. A failing disk costs compilations, never a plugin.
//!
//! Everything here blocks; [`Cache::call`] bounds for how long.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "writes and reads the cache of compiled code, whose path comes from the application, on a thread for each \
        call, which is left behind if the disk hangs"
)]

mod kept;

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use podium_engine::private_file::{self, Entry};
use podium_vocabulary::{Tenant, text};
use ring::hmac;

use super::{Artifact, Key, MAX_CODE_BYTES, Sha256};

const DIRECTORY: &str = "compiled";
const KEY_FILE: &str = "compile.key";
/// The most bytes of all files together.
const MAX_BYTES: u64 = 1 << 30;
/// A start removes files that were not used for this long.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const KEY_BYTES: usize = 32;
/// How often a lock is tried, every [`LOCK_EVERY`]: for 2 s.
const LOCK_TRIES: u32 = 40;
const LOCK_EVERY: Duration = Duration::from_millis(50);
/// After so long a compilation goes on without the disk.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A file is this header, the code, and the MAC of both.
const MAGIC: &[u8; 8] = b"podium\0c";
const VERSION: u32 = 2;
const MAC_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + 4 + 32 + 32 + 8 + TAG_BYTES;
const TAG_BYTES: usize = 8;
const MAX_FILE_BYTES: u64 = (HEADER_BYTES + MAX_CODE_BYTES + MAC_BYTES) as u64;

/// Why a file of the cache is not used. The text follows the file's path.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Private(#[from] private_file::Unusable),
    #[error("is {0} bytes long, which is too long or too short")]
    Length(u64),
    #[error("was not written by this host, or was changed")]
    NotAuthentic,
    /// Expected after an upgrade.
    #[error("is of another version of the host, another processor or another class")]
    OtherEngine,
}

/// The owner of a file: the tenant that first loaded the component, or the platform.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    tag: [u8; TAG_BYTES],
    /// The most bytes of its files.
    max_bytes: u64,
}

impl Owner {
    /// No tenant's files take the place of these. The tag is not that of files without a header.
    pub(super) const PLATFORM: Self = Self { tag: [0xff; TAG_BYTES], max_bytes: u64::MAX };

    pub(super) fn new(tenant: &Tenant, max_bytes: u64) -> Self {
        let Sha256(digest) = Sha256::hash(tenant.to_string().as_bytes());
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&digest[..TAG_BYTES]);
        Self { tag, max_bytes }
    }
}

/// The directory of compiled code of one host, or of the commands of one user. Of several processes at the same time
/// each reads files as a whole, and one stores at a time.
#[derive(Debug)]
pub struct Cache {
    directory: PathBuf,
    key: hmac::Key,
    max_bytes: u64,
    /// The owner of all files, if they have one.
    owner: Option<Owner>,
    give_up: Duration,
    /// Held while old files are removed and a new one is stored.
    storing: Mutex<()>,
    /// The last call that was given up, until it ends.
    hangs: Mutex<Weak<()>>,
}

impl Cache {
    /// Opens the cache of a state directory, and makes it and its key if they are not there. Removes unfinished files,
    /// and files that were not used for 30 days before `now_millis`. `random` fills a new key.
    ///
    /// # Errors
    /// Those of the disk; and when the directory or the key is a symbolic link, belongs to another user, or cannot be
    /// closed to others.
    pub fn open(state: &Path, random: impl FnOnce(&mut [u8]) -> io::Result<()>, now_millis: u64) -> io::Result<Self> {
        let directory = state.join(DIRECTORY);
        private_file::directory(&directory)?;
        let _lock = lock(&directory);
        let key = key(&state.join(KEY_FILE), random)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let storing = Mutex::default();
        let hangs = Mutex::default();
        let cache = Self { directory, key, max_bytes: MAX_BYTES, owner: None, give_up: GIVE_UP, storing, hangs };
        cache.remove_old(UNIX_EPOCH + Duration::from_millis(now_millis))?;
        Ok(cache)
    }

    /// Stores all files as those of one owner, whoever loads the component: of more than `max_bytes` the least recently
    /// used are removed first.
    #[must_use]
    pub fn with_one_owner(self, max_bytes: u64) -> Self {
        Self { owner: Some(Owner { max_bytes, ..Owner::PLATFORM }), ..self }
    }

    /// Sets another bound for all files together.
    #[cfg(test)]
    fn with_max_bytes(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// Calls the cache. Returns `None` if the disk does not answer within 10 s, and without a call until that one has
    /// ended: a compilation waits for a disk that hangs once, and each call left behind keeps a thread.
    pub(super) fn call<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        if self.hangs.lock().strong_count() > 0 {
            return None;
        }
        let this = Arc::clone(self);
        let under_way = Arc::new(());
        let hanging = Arc::downgrade(&under_way);
        let (sender, result) = mpsc::channel();
        let calling = move || {
            let _under_way = under_way;
            // The caller may have given up.
            let _ = sender.send(call(&this));
        };
        thread::Builder::new().name("podium-cache".to_owned()).spawn(calling).ok()?;
        let result = result.recv_timeout(self.give_up);
        if matches!(result, Err(RecvTimeoutError::Timeout)) {
            let directory = text::path(&self.directory);
            tracing::warn!(directory, "state directory does not respond; compiled code is neither read nor stored");
            *self.hangs.lock() = hanging;
        }
        result.ok()
    }

    /// Returns the authenticated code of a component for an engine and a class. Removes a file that cannot be used, and
    /// logs the reason.
    pub(super) fn load(&self, key: Key, engine: &Sha256) -> Option<Artifact> {
        let path = self.path(key);
        let unusable = match self.read(&path, key, engine) {
            Ok(artifact) => return artifact,
            Err(unusable) => unusable,
        };
        let file = text::path(&path);
        if matches!(unusable, Unusable::OtherEngine) {
            tracing::info!(file, "cached code {unusable}; compiling again");
        } else {
            tracing::warn!(file, "cached code {unusable}; removed, compiling again");
        }
        self.remove(key);
        None
    }

    /// Removes the file of a component.
    pub(super) fn remove(&self, key: Key) {
        let path = self.path(key);
        if let Err(error) = private_file::remove(&path) {
            tracing::warn!(file = text::path(&path), %error, "cached code cannot be removed");
        }
    }

    /// Stores the code of a component. Only logs a failure.
    pub(super) fn store(&self, key: Key, engine: &Sha256, owner: Owner, artifact: &Artifact) {
        let path = self.path(key);
        if let Err(error) = self.write(&path, key, engine, owner, artifact.code()) {
            tracing::warn!(file = text::path(&path), %error, "compiled code cannot be cached; a restart compiles it \
                again");
        }
    }

    fn path(&self, key: Key) -> PathBuf {
        self.directory.join(key.to_string())
    }

    /// Returns `None` when there is no file. The returned bytes are the bytes that were authenticated: the file is not
    /// read again.
    fn read(&self, path: &Path, key: Key, engine: &Sha256) -> Result<Option<Artifact>, Unusable> {
        let Some(bytes) = private_file::read(path, MAX_FILE_BYTES)? else { return Ok(None) };
        let code = self.authenticate(&bytes, key, engine)?;
        Ok(Some(Artifact::authentic(bytes, code)))
    }

    /// Returns where the code is in these bytes of a file.
    fn authenticate(&self, bytes: &[u8], key: Key, engine: &Sha256) -> Result<Range<usize>, Unusable> {
        let length = || Unusable::Length(bytes.len() as u64);
        let end = bytes.len().checked_sub(MAC_BYTES).filter(|end| *end >= HEADER_BYTES).ok_or_else(length)?;
        let (content, mac) = bytes.split_at(end);
        // Takes constant time.
        hmac::verify(&self.key, content, mac).map_err(|_| Unusable::NotAuthentic)?;
        let code = HEADER_BYTES..end;
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&content[HEADER_BYTES - TAG_BYTES..HEADER_BYTES]);
        if content[..HEADER_BYTES] == header(key, engine, tag, code.len()) {
            return Ok(code);
        }
        // This host wrote it: under another name, or for the engine before an upgrade.
        let is_renamed = content[MAGIC.len() + 4..][..32] != key.digest.0;
        Err(if is_renamed { Unusable::NotAuthentic } else { Unusable::OtherEngine })
    }

    fn write(&self, path: &Path, key: Key, engine: &Sha256, owner: Owner, code: &[u8]) -> io::Result<()> {
        let owner = self.owner.unwrap_or(owner);
        let header = header(key, engine, owner.tag, code.len());
        let mut mac = hmac::Context::with_key(&self.key);
        mac.update(&header);
        mac.update(code);
        let mac = mac.sign();
        let parts = [&header, code, mac.as_ref()];
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let _storing = self.storing.lock();
        let _lock = lock(&self.directory);
        self.make_room(length, owner)?;
        private_file::replace(path, &parts, false)
    }

    /// Removes files to make room for a new one: of its owner's while they are more than the owner may have, then
    /// of the owner that has the most, and of these the least recently used first. So no tenant removes the files of
    /// one that has less.
    fn make_room(&self, length: u64, owner: Owner) -> io::Result<()> {
        let mut files = self.files()?;
        files.sort_by_key(|file| Reverse(file.used));
        loop {
            let mut sums = BTreeMap::from([(owner.tag, length)]);
            for file in &files {
                let sum = sums.entry(file.owner).or_default();
                *sum = sum.saturating_add(file.bytes);
            }
            let all = sums.values().fold(0_u64, |all, sum| all.saturating_add(*sum));
            let tenants = sums.iter().filter(|(tag, _)| **tag != Owner::PLATFORM.tag);
            let most = tenants.max_by_key(|(_, sum)| **sum).map(|(tag, _)| *tag);
            let from = match most {
                _ if sums.get(&owner.tag).is_some_and(|sum| *sum > owner.max_bytes) => owner.tag,
                Some(most) if all > self.max_bytes => most,
                _ => return Ok(()),
            };
            let Some(oldest) = files.iter().rposition(|file| file.owner == from) else {
                let reason = format!("{length} bytes are more than the share of its tenant");
                return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
            };
            let file = files.remove(oldest);
            private_file::remove(&file.path)?;
            tracing::debug!(file = text::path(&file.path), "cached code removed to make room");
        }
    }

    fn remove_old(&self, now: SystemTime) -> io::Result<()> {
        for file in self.files()? {
            let is_old = now.duration_since(file.used).is_ok_and(|age| age > MAX_AGE);
            if is_old || file.path.extension().is_some_and(|end| end == private_file::NEXT) {
                private_file::remove(&file.path)?;
            }
        }
        Ok(())
    }

    fn files(&self) -> io::Result<Vec<CacheFile>> {
        let owned = |Entry { path, used, bytes }| CacheFile { owner: owner_of(&path), path, used, bytes };
        Ok(private_file::entries(&self.directory)?.into_iter().map(owned).collect())
    }
}

/// Waits until no other process stores in the directory, for at most 2 s: the other one may be stopped. Without a lock,
/// as where the file system has none, processes may spoil each other's files, as the MAC of these shows.
fn lock(directory: &Path) -> Option<File> {
    let file = private_file::open(directory).ok()?;
    for _ in 0..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_EVERY),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// A file of the cache, with the time of its last use.
struct CacheFile {
    path: PathBuf,
    owner: [u8; TAG_BYTES],
    used: SystemTime,
    bytes: u64,
}

/// Returns the tag in the header of a file, which need not be authentic: it decides only which file is removed first.
/// Files without a header have one owner together.
fn owner_of(path: &Path) -> [u8; TAG_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut tag = [0; TAG_BYTES];
    if private_file::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok() {
        tag.copy_from_slice(&header[HEADER_BYTES - TAG_BYTES..]);
    }
    tag
}

fn header(key: Key, engine: &Sha256, owner: [u8; TAG_BYTES], code_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let length = (code_bytes as u64).to_le_bytes();
    let parts = [&MAGIC[..], &VERSION.to_le_bytes(), &key.digest.0, &engine.0, &length, &owner];
    let mut at = 0;
    for part in parts {
        header[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    header
}

/// Reads the key, or makes one. Replaces a key that others could have read, because they could authenticate code with
/// it.
fn key(path: &Path, random: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<[u8; KEY_BYTES]> {
    match read_key(path) {
        Ok(Some(key)) => return Ok(key),
        Ok(None) => {}
        Err(unusable) => {
            tracing::warn!(
                file = text::path(path),
                "the key of cached code {unusable}; replaced, all code is compiled again"
            );
            fs::remove_file(path)?;
        }
    }
    let mut key = [0; KEY_BYTES];
    random(&mut key)?;
    private_file::create(path)?.write_all(&key)?;
    Ok(key)
}

fn read_key(path: &Path) -> Result<Option<[u8; KEY_BYTES]>, Unusable> {
    let Some(bytes) = private_file::read(path, KEY_BYTES as u64)? else { return Ok(None) };
    let length = bytes.len() as u64;
    bytes.try_into().map(Some).map_err(|_| Unusable::Length(length))
}

#[cfg(test)]
mod tests;
