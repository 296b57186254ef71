//! Components on disk, so that a restart pulls no image again, and runs components also while their registry is away or
//! their ConfigMap has others; and which version of a plugin ran.
//!
//! A component is found by its tenant, its repository and the digest of its manifest: a tenant who knows the digest of
//! another's image has not shown that it may pull it. Every byte is compared with its digest at each read; signatures
//! are stored beside it, and the caller verifies them with the keys of the present policy. A file that was changed is
//! removed; one that cannot be read now is not. A failing disk costs a pull, never a plugin.
//!
//! Everything here blocks.

mod record;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use parking_lot::Mutex;
use podium_registry::{Component, Digest, Error, Reference, signature::Claims};
use podium_vocabulary::{PluginId, Tenant, text};
use serde::{Deserialize, Serialize};

use podium_engine::private_file::{self, Entry};
pub(crate) use record::{Held, MOST_HELD_BYTES};

const DIRECTORY: &str = "components";
/// Suffix of the file with a plugin's tag.
const TAG: &str = "tag";
/// The most bytes of all files together.
const MAX_BYTES: u64 = 1 << 30;
/// The most bytes of one file: a component of the largest class, a manifest and signatures.
const MAX_FILE_BYTES: u64 = 34 << 20;
/// The most bytes of a file with a tag.
const MAX_TAG_BYTES: u64 = 4 << 10;
/// The most files with tags. Beyond them the oldest of the tenant with the most is removed.
const MAX_TAGS: usize = 10_000;
/// The most components of one tenant, which may have 100 plugins by default. Beyond them its least recently used one is
/// removed.
const MAX_COMPONENTS: usize = 128;
const VERSION: u32 = 1;

/// The directory of components of one host. No other host uses it at the same time.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    max_bytes: u64,
    max_tags: usize,
    /// Held while old files are removed and a new one is stored.
    storing: Mutex<()>,
    /// Held while the file of a plugin is changed.
    records: Mutex<()>,
}

/// A component from the disk, whose bytes have their digests.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) component: Component,
    /// Those that were valid when it was pulled. The caller verifies them again.
    pub(crate) claims: Claims,
}

/// Where a component is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) tenant: &'a Tenant,
    /// Its host and repository count.
    pub(crate) reference: &'a Reference,
    pub(crate) manifest: &'a Digest,
}

/// The first line of a file. The manifest and the component follow.
#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    manifest_bytes: usize,
    claims: Claims,
}

/// A tag of a plugin, and the digest that it named when the plugin was loaded last.
#[derive(Serialize, Deserialize)]
struct Tag {
    image: String,
    manifest: String,
}

/// Why a file is not used. The text follows the file's path.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Private(#[from] private_file::Unusable),
    #[error("is malformed")]
    Malformed,
    #[error("was changed: {0}")]
    Changed(#[from] Error),
}

/// A file of the directory, with the time of its last use.
struct Used {
    path: PathBuf,
    owner: String,
    is_tag: bool,
    used: SystemTime,
    bytes: u64,
}

impl Used {
    fn is_component(&self) -> bool {
        end_of(&self.path).is_none()
    }
}

impl Store {
    /// Opens the store of a state directory, and makes it if it is not there. Removes unfinished files.
    ///
    /// # Errors
    /// Those of the disk; and when the directory is a symbolic link, belongs to another user, or cannot be closed to
    /// others.
    pub fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join(DIRECTORY);
        private_file::directory(&directory)?;
        let store = Self {
            directory,
            max_bytes: MAX_BYTES,
            max_tags: MAX_TAGS,
            storing: <_>::default(),
            records: <_>::default(),
        };
        for file in store.files()? {
            if file.path.extension().is_some_and(|end| end == private_file::NEXT) {
                fs::remove_file(&file.path)?;
            }
        }
        Ok(store)
    }

    /// Returns a component whose bytes still have their digests. Removes a file that cannot be used, and logs why.
    pub(crate) fn load(&self, kept: Kept<'_>) -> Option<Stored> {
        self.loaded(&self.component(kept), MAX_FILE_BYTES, |bytes| stored(bytes, kept.manifest))
    }

    /// Stores a component. Only logs a failure.
    pub(crate) fn store(&self, kept: Kept<'_>, component: &Component, claims: &Claims) {
        let Component { bytes, manifest_bytes, .. } = component;
        let head = Head { version: VERSION, manifest_bytes: manifest_bytes.len(), claims: claims.clone() };
        let path = self.component(kept);
        // A tree of texts and numbers always becomes JSON.
        let Ok(mut head) = serde_json::to_vec(&head) else { return };
        head.push(b'\n');
        self.write(&path, &[&head, manifest_bytes, bytes]);
    }

    /// Returns the component of a tenant with a SHA-256 in hexadecimal digits, which was in a ConfigMap.
    pub(crate) fn load_bytes(&self, tenant: &Tenant, sha256: &str) -> Option<Bytes> {
        self.loaded(&self.bytes(tenant, sha256), MAX_FILE_BYTES, |bytes| {
            if Digest::sha256(&bytes).hex() == sha256 { Ok(bytes) } else { Err(Unusable::Malformed) }
        })
    }

    /// Stores a component of a ConfigMap, if it is not there. Only logs a failure.
    pub(crate) fn store_bytes(&self, tenant: &Tenant, sha256: &str, bytes: &[u8]) {
        let path = self.bytes(tenant, sha256);
        match private_file::open(&path) {
            Ok(file) => private_file::touch(&file),
            Err(_) => self.write(&path, &[bytes]),
        }
    }

    /// Returns the digest that a plugin's tag named when the plugin was loaded last, if the image is the same text.
    pub(crate) fn tagged(&self, plugin: &PluginId, image: &Reference) -> Option<Digest> {
        let read = |bytes: Bytes| serde_json::from_slice::<Tag>(&bytes).map_err(|_| Unusable::Malformed);
        let tag = self.loaded(&self.tag(plugin), MAX_TAG_BYTES, read)?;
        (tag.image == image.to_string()).then(|| tag.manifest.parse().ok()).flatten()
    }

    /// Records the digest that a plugin's tag names. Only logs a failure.
    pub(crate) fn tag_names(&self, plugin: &PluginId, image: &Reference, manifest: &Digest) {
        let tag = Tag { image: image.to_string(), manifest: manifest.to_string() };
        let Ok(tag) = serde_json::to_vec(&tag) else { return };
        self.write(&self.tag(plugin), &[&tag]);
    }

    fn component(&self, kept: Kept<'_>) -> PathBuf {
        let Kept { tenant, reference, manifest } = kept;
        let name = format!("{tenant}\n{}/{}\n{manifest}", reference.host(), reference.repository());
        self.directory.join(format!("{}-{}", owner(tenant), Digest::sha256(name.as_bytes()).hex()))
    }

    fn bytes(&self, tenant: &Tenant, sha256: &str) -> PathBuf {
        let name = Digest::sha256(format!("{tenant}\nConfigMap\n{sha256}").as_bytes());
        self.directory.join(format!("{}-{}", owner(tenant), name.hex()))
    }

    fn tag(&self, plugin: &PluginId) -> PathBuf {
        let name = Digest::sha256(plugin.to_string().as_bytes()).hex();
        self.directory.join(format!("{}-{name}.{TAG}", owner(&plugin.tenant())))
    }

    fn loaded<T>(&self, path: &Path, limit: u64, read: impl FnOnce(Bytes) -> Result<T, Unusable>) -> Option<T> {
        let unread = |error: &io::Error| {
            tracing::warn!(file = text::path(path), %error, "stored component cannot be read");
        };
        self.try_loaded(path, limit, read).inspect_err(unread).ok()?
    }

    /// Removes a file with bad content. One that the disk does not return may be good.
    fn try_loaded<T>(
        &self,
        path: &Path,
        limit: u64,
        read: impl FnOnce(Bytes) -> Result<T, Unusable>,
    ) -> io::Result<Option<T>> {
        let bytes = private_file::read(path, limit).map_err(Unusable::from);
        let unusable = match bytes.and_then(|bytes| bytes.map(|bytes| read(bytes.into())).transpose()) {
            Ok(read) => return Ok(read),
            Err(Unusable::Private(private_file::Unusable::Io(error))) if !path.is_symlink() => return Err(error),
            Err(unusable) => unusable,
        };
        tracing::warn!(file = text::path(path), "stored component {unusable}; removed");
        if let Err(error) = self.remove(path) {
            tracing::warn!(file = text::path(path), %error, "stored component cannot be removed");
        }
        Ok(None)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let _storing = self.storing.lock();
        private_file::remove(path)
    }

    fn write(&self, path: &Path, parts: &[&[u8]]) {
        if let Err(error) = self.try_write(path, parts) {
            let file = text::path(path);
            tracing::warn!(file, %error, "component cannot be stored; a restart fetches it again");
        }
    }

    fn try_write(&self, path: &Path, parts: &[&[u8]]) -> io::Result<()> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let _storing = self.storing.lock();
        self.make_room(path, length)?;
        private_file::replace(path, parts, false)
    }

    /// Removes components to make room for a new file: of the tenant that has the most bytes, the least recently used
    /// first. So no tenant removes the components of one that has less. Records and tags stay: no registry has them.
    fn make_room(&self, path: &Path, length: u64) -> io::Result<()> {
        let owner = owner_of(path);
        let mut files = self.files()?;
        // The new file replaces one of its name.
        files.retain(|file| file.path != path);
        files.sort_by_key(|file| file.used);
        let is_tag = end_of(path) == Some(TAG);
        let is_component = end_of(path).is_none();
        let tags = files.iter().filter(|file| file.is_tag);
        if is_tag && tags.clone().count() >= self.max_tags {
            let mut counts = BTreeMap::from([(owner.as_str(), 1)]);
            tags.for_each(|file| *counts.entry(&file.owner).or_default() += 1);
            let most =
                counts.into_iter().max_by_key(|(of, count)| (*count, *of == owner)).map(|(owner, _)| owner.to_owned());
            remove_first(&mut files, |file| file.is_tag && Some(&file.owner) == most.as_ref())?;
        }
        let own = |file: &Used| file.owner == owner && file.is_component();
        while is_component && files.iter().filter(|file| own(file)).count() >= MAX_COMPONENTS {
            remove_first(&mut files, own)?;
        }
        loop {
            let mut sums = BTreeMap::from([(owner.as_str(), length)]);
            for file in &files {
                *sums.entry(&file.owner).or_default() += file.bytes;
            }
            if sums.values().sum::<u64>() <= self.max_bytes {
                return Ok(());
            }
            // The new component counts too.
            let owners = files.iter().filter(|file| file.is_component()).map(|file| file.owner.as_str());
            let most = owners.chain(is_component.then_some(&*owner)).max_by_key(|owner| (sums.get(owner), *owner));
            let oldest = files.iter().position(|file| file.is_component() && Some(&*file.owner) == most);
            let Some(oldest) = oldest else {
                let reason = format!("{length} bytes are more than the share of its tenant");
                return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
            };
            let file = files.remove(oldest);
            fs::remove_file(&file.path)?;
            tracing::debug!(file = text::path(&file.path), "stored component removed to make room");
        }
    }

    fn files(&self) -> io::Result<Vec<Used>> {
        let used = |Entry { path, used, bytes }| {
            let is_tag = end_of(&path) == Some(TAG);
            Used { owner: owner_of(&path), is_tag, path, used, bytes }
        };
        Ok(private_file::entries(&self.directory)?.into_iter().map(used).collect())
    }
}

/// Removes the first of the files that is wanted.
fn remove_first(files: &mut Vec<Used>, wanted: impl Fn(&Used) -> bool) -> io::Result<()> {
    let Some(at) = files.iter().position(wanted) else { return Ok(()) };
    fs::remove_file(&files.remove(at).path)
}

/// The suffix of a file; `None` for a component.
fn end_of(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// The tenant in the name of a file.
fn owner(tenant: &Tenant) -> String {
    Digest::sha256(tenant.to_string().as_bytes()).hex()[..16].to_owned()
}

fn owner_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split_once('-').map_or_else(String::new, |(owner, _)| owner.to_owned())
}

fn stored(file: Bytes, manifest: &Digest) -> Result<Stored, Unusable> {
    let end = file.iter().position(|byte| *byte == b'\n').ok_or(Unusable::Malformed)?;
    let Head { version, manifest_bytes, claims } =
        serde_json::from_slice(&file[..end]).map_err(|_| Unusable::Malformed)?;
    let rest = file.slice(end + 1..);
    if version != VERSION || manifest_bytes > rest.len() {
        return Err(Unusable::Malformed);
    }
    let component = Component::stored(*manifest, rest.slice(..manifest_bytes), rest.slice(manifest_bytes..))?;
    Ok(Stored { component, claims })
}

#[cfg(test)]
mod tests;
