//! [`Pod`]: a Pod with the sections that the plugin was granted. The module `stage` has the writes, `derived` and
//! `workload` what follows from several fields.

mod derived;
mod stage;
mod workload;

use std::{cell::OnceCell, fmt};

use podium_wire::{
    Annotations, Condition, ConditionStatus, Container, ContainerStatus, Labels, Lifecycle, Owner, Owners, Record,
    RecordError, Spec, Status, Timestamp,
};

use serde::de::DeserializeOwned;

use crate::{Error, PodKey, Result};

/// A Pod in the run's snapshot: its identity, and the sections that the configuration grants.
///
/// A section is decoded on first access. A section that was not granted is an error and never looks empty; therefore
/// every accessor except the identity returns a `Result`:
///
/// | section | accessors |
/// |---|---|
/// | `labels` | [`label`](Self::label), [`labels`](Self::labels) |
/// | `annotations` | [`annotation`](Self::annotation), [`annotations`](Self::annotations) |
/// | `owners` | [`controller`](Self::controller), [`owners`](Self::owners), with `labels` [`workload`](Self::workload) |
/// | `lifecycle` (always granted) | [`is_terminating`](Self::is_terminating), [`lifecycle`](Self::lifecycle) |
/// | `spec` | [`node`](Self::node), [`containers`](Self::containers), [`requests`](Self::requests), [`spec`](Self::spec) |
/// | `status` | [`phase`](Self::phase), [`is_finished`](Self::is_finished), [`finished_at`](Self::finished_at), [`is_ready`](Self::is_ready), [`condition`](Self::condition), [`has_condition`](Self::has_condition), [`container_statuses`](Self::container_statuses), [`status`](Self::status) |
/// | `full` | [`full_as`](Self::full_as), [`full`](Self::full) |
///
/// These accessors show the snapshot without staged writes. After [`crate::writes::commit`], read the Pod again with
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

    /// Returns the key of this incarnation.
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

    /// `metadata.uid`, which differs between two Pods of one name.
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
    /// Returns an error if the section was not granted. The same applies to all methods below, each for its section.
    pub fn labels(&self) -> Result<&Labels> {
        section(&self.labels, || self.record.labels())
    }

    /// Returns the value of one label.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn label(&self, key: &str) -> Result<Option<&str>> {
        Ok(self.labels()?.get(key).map(String::as_str))
    }

    /// `metadata.annotations`
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn annotations(&self) -> Result<&Annotations> {
        section(&self.annotations, || self.record.annotations())
    }

    /// Returns the value of one annotation.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn annotation(&self, key: &str) -> Result<Option<&str>> {
        Ok(self.annotations()?.get(key).map(String::as_str))
    }

    /// `metadata.ownerReferences`
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn owners(&self) -> Result<&[Owner]> {
        Ok(section(&self.owners, || self.record.owners())?)
    }

    /// Returns the owner that manages the Pod, such as its ReplicaSet; `None` for a Pod without a controller.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn controller(&self) -> Result<Option<&Owner>> {
        Ok(self.owners()?.iter().find(|owner| owner.controller))
    }

    /// Returns deletion and finalizers.
    ///
    /// # Errors
    /// Never because of grants, as this section is always granted.
    pub fn lifecycle(&self) -> Result<&Lifecycle> {
        section(&self.lifecycle, || self.record.lifecycle())
    }

    /// Returns true if the Pod is being deleted.
    ///
    /// # Errors
    /// See [`Pod::lifecycle`].
    pub fn is_terminating(&self) -> Result<bool> {
        Ok(self.lifecycle()?.deletion_timestamp.is_some())
    }

    /// Returns the fields of `spec` that Podium stores.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn spec(&self) -> Result<&Spec> {
        section(&self.spec, || self.record.spec())
    }

    /// Returns the node to which it is bound; `None` until it is scheduled.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn node(&self) -> Result<Option<&str>> {
        Ok(self.spec()?.node_name.as_deref())
    }

    /// `spec.containers`, without init and ephemeral containers, which are in [`Pod::spec`].
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn containers(&self) -> Result<&[Container]> {
        Ok(&self.spec()?.containers)
    }

    /// Returns the fields of `status` that Podium stores.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn status(&self) -> Result<&Status> {
        section(&self.status, || self.record.status())
    }

    /// Returns "Pending", "Running", "Succeeded", "Failed" or "Unknown"; empty if the server has set none yet.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn phase(&self) -> Result<&str> {
        Ok(&self.status()?.phase)
    }

    /// Returns true if it has succeeded or failed, and so will never run again.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn is_finished(&self) -> Result<bool> {
        Ok(matches!(self.phase()?, "Succeeded" | "Failed"))
    }

    /// Returns the condition of a type.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn condition(&self, condition_type: &str) -> Result<Option<&Condition>> {
        Ok(self.status()?.conditions.iter().find(|condition| condition.condition_type == condition_type))
    }

    /// Returns true if its condition `Ready` is true, so that a Service may send it requests.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn is_ready(&self) -> Result<bool> {
        Ok(self.condition("Ready")?.is_some_and(|ready| ready.status == ConditionStatus::True))
    }

    /// Returns true if the Pod has this condition already: the same type, status, reason and message.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn has_condition(&self, condition: &Condition) -> Result<bool> {
        Ok(self.condition(&condition.condition_type)?.is_some_and(|here| here.says_the_same(condition)))
    }

    /// `status.containerStatuses`, without init and ephemeral containers, which are in [`Pod::status`].
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn container_statuses(&self) -> Result<&[ContainerStatus]> {
        Ok(&self.status()?.container_statuses)
    }

    /// Returns the whole object as Kubernetes JSON, including fields that no other section contains and that this
    /// release does not know, but without managedFields.
    ///
    /// # Errors
    /// See [`Pod::labels`].
    pub fn full(&self) -> Result<&str> {
        self.record.full().map_err(Error::from_record)
    }

    /// Deserializes the whole object into a type of the plugin, which may ignore fields; [`crate::Value`] contains
    /// all.
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
    /// See [`Pod::labels`]. Returns a terminal error that names the field if the object is not a `T`.
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

/// Returns the section of a cell, decoded at the first call.
fn section<T>(cell: &OnceCell<T>, decode: impl FnOnce() -> Result<T, RecordError>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = decode().map_err(Error::from_record)?;
    Ok(cell.get_or_init(|| value))
}
