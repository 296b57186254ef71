//! Objects that a plugin has applied, as a watch of them shows them: which one another client has changed, and for
//! which Pod the plugin applied it. Pure.
//!
//! The plugin's entry in `metadata.managedFields` decides: the API server changes it when another client takes, changes
//! or removes a field of the plugin's, and leaves it when one changes other fields, such as the status.

use podium_vocabulary::{ObjectGrant, ObjectRef, PodKey, json};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{applied::Name, digest::Digest};

/// Digits of a label's name.
const ID_DIGITS: usize = 16;

/// Returns the key of the label of the objects that the plugin with this field manager applies. Each plugin has its own
/// one: a key of all with another value for each would be a conflict of plugins that apply different fields of an
/// object. Names of plugins are too long for it.
pub(super) fn label(manager: &str) -> String {
    let mut id = Digest::new(&[manager]).hex();
    id.truncate(ID_DIGITS);
    format!("plugin.podium.dev/{id}")
}

/// Returns the label selector of the objects that the plugin with this field manager applies.
#[must_use]
pub fn child_selector(manager: &str) -> String {
    label(manager)
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
    /// It was deleted at this revision, or before it: then a list of this revision does not have it.
    Deleted(u64),
}

impl Seen {
    /// Returns true if this is of after `shown`, and another client has changed the plugin's fields in between.
    pub(super) fn differs(self, shown: &Shown) -> bool {
        match self {
            Self::Present(seen) => seen.revision > shown.revision && seen.own != shown.own,
            // Some servers send the last state with its own revision.
            Self::Deleted(revision) => revision >= shown.revision,
        }
    }
}

impl Shown {
    /// No event is of after it: an object whose apply is repeated first.
    pub(super) const LATEST: Self = Self { revision: u64::MAX, own: None };

    /// Reads the metadata of an object that the plugin with this field manager has applied.
    pub(super) fn new(metadata: &Value, manager: &str) -> Self {
        let entries = metadata["managedFields"].as_array().into_iter().flatten();
        let mut own = entries.filter(|entry| entry["manager"] == manager && entry["operation"] == "Apply");
        let own = own.next().map(|entry| Digest::new(&[&entry.to_string()]));
        let revision = metadata["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
        Self { revision: revision.unwrap_or_default(), own }
    }
}

/// An object of which only the metadata is read.
#[derive(Deserialize)]
pub(super) struct Object<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    #[serde(borrow)]
    pub(super) annotations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) managed_fields: Vec<&'a RawValue>,
}

/// The part of an entry of `managedFields` that says whose it is.
#[derive(Deserialize)]
pub(super) struct Entry {
    #[serde(default)]
    pub(super) manager: String,
    #[serde(default)]
    operation: String,
}

impl Child {
    /// Reads an object of a list or a watch.
    ///
    /// # Errors
    /// Returns an error for JSON that is no object with a name.
    pub fn read(json: &str, manager: &str) -> Result<Self, String> {
        let Object { metadata } = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let Metadata { namespace, name, resource_version, managed_fields, .. } = metadata;
        if name.is_empty() {
            return Err("metadata.name is empty".to_owned());
        }
        let is_own = |entry: &&&RawValue| {
            let entry: Result<Entry, _> = serde_json::from_str(entry.get());
            entry.is_ok_and(|entry| entry.manager == manager && entry.operation == "Apply")
        };
        let own = managed_fields.iter().find(is_own);
        // In the form of an answer that was parsed.
        let own = own.and_then(|entry| json::value(entry.get().as_bytes()).ok());
        let own = own.map(|entry| Digest::new(&[&entry.to_string()]));
        let revision = resource_version.parse().unwrap_or_default();
        Ok(Self { namespace, name, shown: Shown { revision, own } })
    }

    /// Returns the value that ends a complete list of this revision.
    #[must_use]
    pub fn end_of_list(revision: &str) -> Self {
        let shown = Shown { revision: revision.parse().unwrap_or_default(), own: None };
        Self { namespace: None, name: String::new(), shown }
    }

    /// Returns the revision if this ends a list.
    pub(super) fn list_end(&self) -> Option<u64> {
        self.name.is_empty().then_some(self.shown.revision)
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
