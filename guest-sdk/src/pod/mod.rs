//! [`Pod`]: a Pod as a plugin was granted it. Reading stands here, staging writes in `stage`.

mod stage;

use std::{cell::OnceCell, fmt};

use podium_wire::{
    Annotations, Condition, ConditionStatus, Container, ContainerStatus, Labels, Lifecycle, Owner, Owners, Record,
    RecordError, Spec, Status, Timestamp,
};

use serde::de::DeserializeOwned;

use crate::{Error, PodKey, Result};

/// A Pod in the run's snapshot: its identity, and the sections that the configuration grants.
///
/// A section is decoded when it is first asked for. One that was not granted is an error and never looks empty, hence
/// every accessor below the identity returns a `Result`:
///
/// | section | accessors |
/// |---|---|
/// | `labels` | [`label`](Self::label), [`labels`](Self::labels) |
/// | `annotations` | [`annotation`](Self::annotation), [`annotations`](Self::annotations) |
/// | `owners` | [`controller`](Self::controller), [`owners`](Self::owners) |
/// | `lifecycle` (always granted) | [`is_terminating`](Self::is_terminating), [`lifecycle`](Self::lifecycle) |
/// | `spec` | [`node`](Self::node), [`containers`](Self::containers), [`spec`](Self::spec) |
/// | `status` | [`phase`](Self::phase), [`is_finished`](Self::is_finished), [`is_ready`](Self::is_ready), [`condition`](Self::condition), [`has_condition`](Self::has_condition), [`container_statuses`](Self::container_statuses), [`status`](Self::status) |
/// | `full` | [`full_as`](Self::full_as), [`full`](Self::full) |
///
/// These accessors show the snapshot and no staged writes. After [`crate::writes::commit`], read the Pod again with
/// [`crate::pods::get`].
pub struct Pod {
    record: Record,
    key: PodKey,
    labels: OnceCell<Labels>,
    annotations: OnceCell<Annotations>,
    owners: OnceCell<Owners>,
    lifecycle: OnceCell<Lifecycle>,
    spec: OnceCell<Spec>,
    status: OnceCell<Status>,
}

impl Pod {
    pub(crate) fn open(record: Vec<u8>) -> Result<Self> {
        let record = Record::open(record).map_err(Error::from_record)?;
        let header = record.header();
        let key = PodKey::new(&header.namespace, &header.name, &header.uid);
        Ok(Self {
            record,
            key,
            labels: OnceCell::new(),
            annotations: OnceCell::new(),
            owners: OnceCell::new(),
            lifecycle: OnceCell::new(),
            spec: OnceCell::new(),
            status: OnceCell::new(),
        })
    }

    /// This incarnation.
    #[must_use]
    pub fn key(&self) -> &PodKey {
        &self.key
    }

    /// `metadata.namespace`
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.key.namespace
    }

    /// `metadata.name`
    #[must_use]
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// `metadata.uid`: differs between two Pods of one name.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.key.uid
    }

    /// `metadata.creationTimestamp`
    #[must_use]
    pub fn created(&self) -> Timestamp {
        self.record.header().created
    }

    /// `metadata.labels`
    ///
    /// # Errors
    /// Where the section was not granted; so for all below, each by its section.
    pub fn labels(&self) -> Result<&Labels> {
        section(&self.labels, || self.record.labels())
    }

    /// The value of one label.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn label(&self, key: &str) -> Result<Option<&str>> {
        Ok(self.labels()?.get(key).map(String::as_str))
    }

    /// `metadata.annotations`
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn annotations(&self) -> Result<&Annotations> {
        section(&self.annotations, || self.record.annotations())
    }

    /// The value of one annotation.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn annotation(&self, key: &str) -> Result<Option<&str>> {
        Ok(self.annotations()?.get(key).map(String::as_str))
    }

    /// `metadata.ownerReferences`
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn owners(&self) -> Result<&[Owner]> {
        Ok(section(&self.owners, || self.record.owners())?)
    }

    /// The owner that manages the Pod, such as its ReplicaSet; none for a Pod made by hand.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn controller(&self) -> Result<Option<&Owner>> {
        Ok(self.owners()?.iter().find(|owner| owner.controller))
    }

    /// Deletion and finalizers.
    ///
    /// # Errors
    /// Never by grants, as this section is always granted.
    pub fn lifecycle(&self) -> Result<&Lifecycle> {
        section(&self.lifecycle, || self.record.lifecycle())
    }

    /// Whether it is being deleted.
    ///
    /// # Errors
    /// As [`Pod::lifecycle`].
    pub fn is_terminating(&self) -> Result<bool> {
        Ok(self.lifecycle()?.deletion_timestamp.is_some())
    }

    /// Of `spec`, what Podium keeps.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn spec(&self) -> Result<&Spec> {
        section(&self.spec, || self.record.spec())
    }

    /// The node that it is bound to; none until it is scheduled.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn node(&self) -> Result<Option<&str>> {
        Ok(self.spec()?.node_name.as_deref())
    }

    /// `spec.containers`: without init and ephemeral containers, which are in [`Pod::spec`].
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn containers(&self) -> Result<&[Container]> {
        Ok(&self.spec()?.containers)
    }

    /// Of `status`, what Podium keeps.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn status(&self) -> Result<&Status> {
        section(&self.status, || self.record.status())
    }

    /// "Pending", "Running", "Succeeded", "Failed" or "Unknown"; empty where the server has none yet.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn phase(&self) -> Result<&str> {
        Ok(&self.status()?.phase)
    }

    /// Whether it has succeeded or failed, and so will never run again.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn is_finished(&self) -> Result<bool> {
        Ok(matches!(self.phase()?, "Succeeded" | "Failed"))
    }

    /// One condition by its type.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn condition(&self, condition_type: &str) -> Result<Option<&Condition>> {
        Ok(self.status()?.conditions.iter().find(|condition| condition.condition_type == condition_type))
    }

    /// Whether its condition `Ready` is true: a Service may send it requests.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn is_ready(&self) -> Result<bool> {
        Ok(self.condition("Ready")?.is_some_and(|ready| ready.status == ConditionStatus::True))
    }

    /// Whether the Pod says this already: the same type, status, reason and message.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn has_condition(&self, condition: &Condition) -> Result<bool> {
        Ok(self.condition(&condition.condition_type)?.is_some_and(|here| here.says_the_same(condition)))
    }

    /// `status.containerStatuses`: without init and ephemeral containers, which are in [`Pod::status`].
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn container_statuses(&self) -> Result<&[ContainerStatus]> {
        Ok(&self.status()?.container_statuses)
    }

    /// The whole object as Kubernetes JSON, with what no other section holds and what this release does not know, but
    /// without managedFields.
    ///
    /// # Errors
    /// As [`Pod::labels`].
    pub fn full(&self) -> Result<&str> {
        self.record.full().map_err(Error::from_record)
    }

    /// What a type of the plugin's own holds of the whole object; the rest is passed over. With [`crate::Value`] all.
    ///
    /// ```
    /// # use podium_sdk::{Pod, Result};
    /// #[derive(Default, serde::Deserialize)]
    /// #[serde(default, rename_all = "camelCase")]
    /// struct Spec {
    ///     dns_policy: String,
    /// }
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Whole {
    ///     spec: Spec,
    /// }
    ///
    /// fn uses_the_nodes_dns(pod: &Pod) -> Result<bool> {
    ///     Ok(pod.full_as::<Whole>()?.spec.dns_policy == "Default")
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Pod::labels`]; terminal where the object is not a `T`, and the message names the field.
    pub fn full_as<T: DeserializeOwned>(&self) -> Result<T> {
        let mut json = serde_json::Deserializer::from_str(self.full()?);
        serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string().as_str() {
            "." => Error::terminal(format_args!("{}: {}", self.key, error.inner())),
            path => Error::terminal(format_args!("{}: {path}: {}", self.key, error.inner())),
        })
    }
}

impl fmt::Debug for Pod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pod({}, uid {})", self.key, self.key.uid)
    }
}

/// The section in its cell, decoded at the first call.
fn section<T>(cell: &OnceCell<T>, decode: impl FnOnce() -> Result<T, RecordError>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = decode().map_err(Error::from_record)?;
    Ok(cell.get_or_init(|| value))
}
