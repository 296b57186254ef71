//! Objects that a plugin has applied, as a watch of them shows them: which one another client has changed, and for
//! which Pod the plugin applied it. Pure.
//!
//! The plugin's entry in `metadata.managedFields` decides: the API server changes it when another client takes, changes
//! or removes a field of the plugin's, and leaves it when one changes other fields, such as the status.

use podium_vocabulary::{ObjectGrant, ObjectRef, PodKey};
use serde::Deserialize;
use serde_json::Value;

use super::{applied::Name, digest::Digest};

/// The label of the objects that a plugin applies. Its value is [`plugin_id`].
pub(super) const PLUGIN_ID: &str = "podium.dev/plugin-id";
/// Digits of the label's value.
const ID_DIGITS: usize = 16;

/// Returns the value of the label `podium.dev/plugin-id` for a field manager: names of plugins are too long for one.
pub(super) fn plugin_id(manager: &str) -> String {
    let mut id = Digest::new(&[manager]).hex();
    id.truncate(ID_DIGITS);
    id
}

/// Returns the label selector of the objects that the plugin with this field manager applies.
#[must_use]
pub fn child_selector(manager: &str) -> String {
    format!("{PLUGIN_ID}={}", plugin_id(manager))
}

/// The run that applied an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The Pod of the run.
    pub pod: Option<PodKey>,
    /// The group of the Pods of the workload that owns the object, as `Relation::Workload` makes it.
    pub workload: Option<PodKey>,
}

/// An object that another client has changed or deleted since the plugin applied it.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangedChild {
    /// The field manager of the plugin.
    pub manager: String,
    /// The object.
    pub object: ObjectRef,
    /// The latest run that applied it.
    pub origin: Origin,
}

/// An object of a kind, as its metadata shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// `None` for a kind without one.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    pub(super) shown: Shown,
}

/// A state of an object, as the API server has shown it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// 0 if it is no number.
    revision: u64,
    /// The plugin's entry of `managedFields`; `None` without one.
    own: Option<Digest>,
}

/// A state of an object, as a watch shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Present(Shown),
    /// It was deleted, at this revision if it is known.
    Deleted(u64),
    /// A list does not have it.
    Absent,
}

impl Seen {
    /// Returns true if this is of after `shown`, and another client has changed the plugin's fields in between.
    pub(super) fn differs(self, shown: &Shown) -> bool {
        match self {
            Self::Present(seen) => seen.revision > shown.revision && seen.own != shown.own,
            // Some servers send the last state with its own revision.
            Self::Deleted(revision) => revision >= shown.revision,
            Self::Absent => true,
        }
    }
}

impl Shown {
    /// Reads the metadata of an object that the plugin with this field manager may have applied.
    pub(super) fn new(metadata: &Value, manager: &str) -> Self {
        let entries = metadata["managedFields"].as_array().into_iter().flatten();
        let mut own = entries.filter(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
        let own = own.next().map(|entry| Digest::new(&[&entry.to_string()]));
        let revision = metadata["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
        Self { revision: revision.unwrap_or_default(), own }
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Value,
}

impl Child {
    /// Reads an object of a list or a watch.
    ///
    /// # Errors
    /// Returns an error for JSON that is no object with a name.
    pub fn read(json: &str, manager: &str) -> Result<Self, String> {
        let Object { metadata } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let name = metadata["name"].as_str().ok_or("metadata.name is missing")?;
        let namespace = metadata["namespace"].as_str().map(str::to_owned);
        Ok(Self { namespace, name: name.to_owned(), shown: Shown::new(&metadata, manager) })
    }

    pub(super) fn name_of(&self, manager: &str, kind: &ObjectGrant) -> Name {
        let ObjectGrant { api_version, kind, resource } = kind.clone();
        let Self { namespace, name, .. } = self.clone();
        (manager.to_owned(), ObjectRef { api_version, kind, resource, namespace, name })
    }

    pub(super) fn present(&self) -> Seen {
        Seen::Present(self.shown)
    }

    /// Returns that an object with this last state was deleted.
    pub(super) fn deleted(&self) -> Seen {
        Seen::Deleted(self.shown.revision)
    }
}
