//! The record of a plugin object, for a host that is started again: the version that ran last, and the spec that was
//! refused after it was tried. The object has neither, and its status could be written by others.

use std::path::PathBuf;

use podium_registry::Digest;
use podium_vocabulary::PluginId;
use serde::{Deserialize, Serialize};

use super::{Store, Unusable, owner};

/// Suffix of the file of a plugin.
const RECORD: &str = "plugin";
/// Two specs of the most bytes, as text in JSON.
const MAX_BYTES: u64 = 2 << 20;
const VERSION: u32 = 1;

/// The record of a plugin object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    version: u32,
    /// An object that is created later under the same name has another one.
    pub(crate) uid: String,
    /// `None` while no version runs.
    pub(crate) ran: Option<Ran>,
    pub(crate) refused: Option<Refused>,
}

/// A version that ran, and whose trial has not failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ran {
    pub(crate) generation: i64,
    /// As JSON.
    pub(crate) spec: String,
    /// The digest of the image's manifest, if the component is from a registry.
    pub(crate) manifest: Option<String>,
}

/// A spec whose version failed when it was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// As JSON.
    pub(crate) spec: String,
    pub(crate) tried: Tried,
    /// The failed run.
    pub(crate) failure: String,
}

/// When a version failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tried {
    /// Before it replaced the version that ran.
    Before,
    /// In its trial.
    After,
}

impl Record {
    pub(crate) fn new(uid: &str) -> Self {
        Self { version: VERSION, uid: uid.to_owned(), ran: None, refused: None }
    }
}

impl Store {
    /// Returns the record of a plugin.
    pub(crate) fn record(&self, plugin: &PluginId) -> Option<Record> {
        let read = |bytes: bytes::Bytes| serde_json::from_slice::<Record>(&bytes).map_err(|_| Unusable::Malformed);
        self.loaded(&self.record_path(plugin), MAX_BYTES, read).filter(|record| record.version == VERSION)
    }

    /// Replaces the record of a plugin, or removes it. Only logs a failure.
    pub(crate) fn keep_record(&self, plugin: &PluginId, record: Option<&Record>) {
        let path = self.record_path(plugin);
        match record.and_then(|record| serde_json::to_vec(record).ok()) {
            Some(json) => self.write(&path, &[&json]),
            None => self.remove(&path),
        }
    }

    fn record_path(&self, plugin: &PluginId) -> PathBuf {
        let name = Digest::of(plugin.to_string().as_bytes()).hex();
        self.directory.join(format!("{}-{name}.{RECORD}", owner(&plugin.tenant())))
    }
}
