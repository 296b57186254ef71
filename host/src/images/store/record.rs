//! The records of plugin objects on disk, and which objects may hold finalizers of Pods.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use podium_life::Record;
use podium_registry::Digest;
use podium_vocabulary::{PluginId, text};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Store, Unusable, end_of, owner};

/// Suffix of the file of a plugin.
const RECORD: &str = "plugin";
/// The most bytes of the finalizers of a tenant's objects, as JSON.
pub(crate) const MOST_HELD_BYTES: usize = 4 << 20;
/// Two specs of the most bytes, as text in JSON, and the finalizers of the objects of the name: one may come after the
/// tenant's others reach their bound.
const MAX_BYTES: u64 = (3 << 20) + MOST_HELD_BYTES as u64;

/// The file of a plugin.
#[derive(Default, Serialize, Deserialize)]
struct OfPlugin {
    plugin: String,
    /// The objects of the name that may hold finalizers of Pods.
    #[serde(default)]
    held: Held,
    #[serde(flatten)]
    record: Option<Record>,
}

/// Objects by uid, with the part of the spec that is about finalizers of Pods.
pub(crate) type Held = BTreeMap<String, Value>;
type HeldOfPlugins = Vec<(PluginId, Held)>;

impl Store {
    /// Returns the record of a plugin.
    ///
    /// # Errors
    /// Those of the disk. Then there may be a record.
    pub(crate) fn record(&self, plugin: &PluginId) -> io::Result<Option<Record>> {
        Ok(self.kept(&self.record_path(plugin))?.record.filter(Record::is_readable))
    }

    /// Returns the objects of all plugins that may hold finalizers of Pods, and the errors of files that cannot be
    /// read, which may have others.
    ///
    /// # Errors
    /// Those of the directory.
    pub(crate) fn held(&self) -> io::Result<(HeldOfPlugins, Vec<String>)> {
        let mut read = Vec::new();
        let mut unread = Vec::new();
        for file in self.files()?.into_iter().filter(|file| end_of(&file.path) == Some(RECORD)) {
            let OfPlugin { plugin, held, .. } = match self.kept(&file.path) {
                Ok(kept) => kept,
                Err(error) => {
                    unread.push(format!("{}: {error}", text::path(&file.path)));
                    continue;
                }
            };
            let id = match plugin.split_once('/') {
                Some((namespace, name)) => PluginId { namespace: Some(namespace.into()), name: name.into() },
                None => PluginId { namespace: None, name: plugin.into() },
            };
            read.push((id, held));
        }
        Ok((read, unread))
    }

    /// Replaces the record of a plugin and the objects that may hold finalizers of Pods. Removes the file if there is
    /// neither.
    ///
    /// # Errors
    /// Those of the disk. Then the file is the one before.
    pub(crate) fn keep_record(
        &self,
        plugin: &PluginId,
        record: Option<&Record>,
        held: impl FnOnce() -> Held,
    ) -> io::Result<()> {
        let _records = self.records.lock();
        self.keep(plugin, record.cloned(), held())
    }

    /// Replaces the objects that may hold finalizers of Pods, and removes the record of one that is gone.
    ///
    /// # Errors
    /// Those of the disk. Then the file is the one before.
    pub(crate) fn keep_held(&self, plugin: &PluginId, gone: &str, held: impl FnOnce() -> Held) -> io::Result<()> {
        let _records = self.records.lock();
        let record = self.record(plugin)?.filter(|record| record.uid != gone);
        self.keep(plugin, record, held())
    }

    fn keep(&self, plugin: &PluginId, record: Option<Record>, held: Held) -> io::Result<()> {
        let path = self.record_path(plugin);
        if record.is_none() && held.is_empty() {
            return self.remove(&path);
        }
        let kept = OfPlugin { plugin: plugin.to_string(), held, record };
        self.try_write(&path, &[&serde_json::to_vec(&kept)?])
    }

    fn kept(&self, path: &Path) -> io::Result<OfPlugin> {
        let read = |bytes: bytes::Bytes| serde_json::from_slice(&bytes).map_err(|_| Unusable::Malformed);
        Ok(self.try_loaded(path, MAX_BYTES, read)?.unwrap_or_default())
    }

    fn record_path(&self, plugin: &PluginId) -> PathBuf {
        let name = Digest::sha256(plugin.to_string().as_bytes()).hex();
        self.directory.join(format!("{}-{name}.{RECORD}", owner(&plugin.tenant())))
    }
}
