//! The records of plugin objects on disk, and which objects may hold finalizers of Pods.

use std::{collections::BTreeMap, path::PathBuf};

use podium_life::Record;
use podium_registry::Digest;
use podium_vocabulary::PluginId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Store, Unusable, end_of, owner};

/// Suffix of the file of a plugin.
const RECORD: &str = "plugin";
/// Two specs of the most bytes, as text in JSON, and the finalizers of some objects.
const MAX_BYTES: u64 = 3 << 20;

/// The file of a plugin.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// Empty in a file of an earlier host.
    #[serde(default)]
    plugin: String,
    /// The objects of the name, by uid, that may hold finalizers of Pods, with the part of the spec that is about them.
    #[serde(default)]
    held: BTreeMap<String, Value>,
    #[serde(flatten)]
    record: Option<Record>,
}

impl Store {
    /// Returns the record of a plugin.
    pub(crate) fn record(&self, plugin: &PluginId) -> Option<Record> {
        self.kept(&self.record_path(plugin)).record.filter(Record::is_readable)
    }

    /// Returns the objects of all plugins that may hold finalizers of Pods, with their uids and the part of the spec
    /// that is about them.
    pub(crate) fn held(&self) -> Vec<(PluginId, String, Value)> {
        let files = self.files().inspect_err(|error| tracing::warn!(%error, "records of plugins not read"));
        let files = files.unwrap_or_default().into_iter().filter(|file| end_of(&file.path) == Some(RECORD));
        let held = files.flat_map(|file| {
            let Kept { plugin, held, .. } = self.kept(&file.path);
            let id = match plugin.split_once('/') {
                Some((namespace, name)) => PluginId { namespace: Some(namespace.into()), name: name.into() },
                None => PluginId { namespace: None, name: plugin.into() },
            };
            held.into_iter().map(move |(uid, spec)| (id.clone(), uid, spec))
        });
        held.collect()
    }

    /// Replaces the record of a plugin and the objects that may hold finalizers of Pods, from the record that is there.
    /// Removes the file if there is neither. Only logs a failure.
    pub(crate) fn keep_record(
        &self,
        plugin: &PluginId,
        change: impl FnOnce(Option<Record>) -> (Option<Record>, BTreeMap<String, Value>),
    ) {
        let _records = self.records.lock();
        let path = self.record_path(plugin);
        let (record, held) = change(self.kept(&path).record);
        let is_empty = record.is_none() && held.is_empty();
        let kept = Kept { plugin: plugin.to_string(), held, record };
        match serde_json::to_vec(&kept).ok().filter(|_| !is_empty) {
            Some(json) => self.write(&path, &[&json]),
            None => self.remove(&path),
        }
    }

    fn kept(&self, path: &std::path::Path) -> Kept {
        let read = |bytes: bytes::Bytes| serde_json::from_slice(&bytes).map_err(|_| Unusable::Malformed);
        self.loaded(path, MAX_BYTES, read).unwrap_or_default()
    }

    fn record_path(&self, plugin: &PluginId) -> PathBuf {
        let name = Digest::of(plugin.to_string().as_bytes()).hex();
        self.directory.join(format!("{}-{name}.{RECORD}", owner(&plugin.tenant())))
    }
}
