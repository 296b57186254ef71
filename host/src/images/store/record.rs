//! The records of plugin objects on disk.

use std::{io, path::PathBuf};

use podium_life::Record;
use podium_registry::Digest;
use podium_vocabulary::PluginId;

use super::{Store, Unusable, owner};

/// Suffix of the file of a plugin.
const RECORD: &str = "plugin";
/// Two specs of the most bytes, as text in JSON.
const MAX_BYTES: u64 = 2 << 20;
impl Store {
    /// Returns the record of a plugin.
    ///
    /// # Errors
    /// Those of the disk. Then there may be a record.
    pub(crate) fn record(&self, plugin: &PluginId) -> io::Result<Option<Record>> {
        let read = |bytes: bytes::Bytes| serde_json::from_slice::<Record>(&bytes).map_err(|_| Unusable::Malformed);
        Ok(self.try_loaded(&self.record_path(plugin), MAX_BYTES, read)?.filter(Record::is_readable))
    }

    /// Replaces the record of a plugin, or removes it.
    ///
    /// # Errors
    /// Those of the disk. Then the record on disk is the one before.
    pub(crate) fn keep_record(&self, plugin: &PluginId, record: Option<&Record>) -> io::Result<()> {
        let path = self.record_path(plugin);
        match record {
            Some(record) => self.try_write(&path, &[&serde_json::to_vec(record)?]),
            None => self.remove(&path),
        }
    }

    fn record_path(&self, plugin: &PluginId) -> PathBuf {
        let name = Digest::of(plugin.to_string().as_bytes()).hex();
        self.directory.join(format!("{}-{name}.{RECORD}", owner(&plugin.tenant())))
    }
}
