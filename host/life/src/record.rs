//! The record of a plugin object, for a host that is started again: the version that ran last, and the spec that was
//! refused after it was tried. The object has neither, and its status could be written by others.

use std::sync::Arc;

use podium_vocabulary::PluginSpec;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// The record of a plugin object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// An object that is created later under the same name has another one.
    pub uid: String,
    /// `None` while no version runs.
    pub ran: Option<Ran>,
    /// `None` if the latest spec was not refused after it was tried.
    pub refused: Option<Refused>,
}

/// A version that ran, and whose trial has not failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// The generation of the object.
    pub generation: i64,
    /// The spec of the object, as JSON.
    #[serde(with = "shared")]
    pub spec: Arc<str>,
    /// The digest of the image's manifest, if the component is from a registry.
    pub manifest: Option<String>,
}

/// A spec whose version failed when it was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The spec of the object, as JSON.
    #[serde(with = "shared")]
    pub spec: Arc<str>,
    /// When the version failed.
    pub tried: Tried,
    /// The failed run.
    pub failure: String,
}

/// When a version failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tried {
    /// Before it replaced the version that ran.
    Before,
    /// In its trial.
    After,
}

/// A text that other places may have too.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Into::into)
    }
}

/// A record that was read, and the plugin of the version that ran, or why its spec cannot be read.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// As it was on disk.
    pub record: Record,
    /// The one of [`Record::ran`].
    pub spec: Result<Arc<PluginSpec>, String>,
}

impl Record {
    /// Returns an empty record of an object.
    #[must_use]
    pub fn new(uid: &str) -> Self {
        Self { version: VERSION, uid: uid.to_owned(), ran: None, refused: None }
    }

    /// Returns true if the record has the present format.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.version == VERSION
    }
}
