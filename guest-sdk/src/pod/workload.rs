//! The workload of a Pod, and the other Pods of it.

use podium_wire::{Labels, Workload};

use crate::{Pod, Result, pods};

impl Pod {
    /// Returns the workload that the Pod is a replica of: its controller, or the Deployment or Rollout above that. The
    /// latter is derived, without a request: a Deployment names a ReplicaSet after itself and the hash that it puts on
    /// the ReplicaSet's Pods as the label `pod-template-hash`. So the object need not exist any more; an owner of an
    /// applied object is therefore [`crate::ObjectOwner::Workload`], which the host looks up.
    ///
    /// `None` for a Pod without a controller, and for one that its Node controls (a mirror Pod). A Job stays the Job,
    /// also under a CronJob, and a custom resource above another kind than a ReplicaSet is not known.
    ///
    /// # Errors
    /// Returns an error if the section `owners` was not granted, and for a Pod of a ReplicaSet also without `labels`.
    pub fn workload(&self) -> Result<Option<Workload>> {
        let Some(controller) = Workload::controller(self.owners()?) else { return Ok(None) };
        let none = Labels::new();
        let labels = if Workload::needs_labels(controller) { self.labels()? } else { &none };
        Ok(Some(Workload::above(controller, labels)))
    }

    /// Returns the query of all Pods of the Pod's workload, itself and those that are being deleted included: through a
    /// rollout, the Pods of the old and of the new ReplicaSet. `None` for a Pod without a workload.
    ///
    /// ```
    /// # use podium_sdk::{Pod, Result};
    /// # fn example(pod: &Pod) -> Result<()> {
    /// for member in pod.siblings()?.into_iter().flatten() {
    ///     let member = member?;
    ///     println!("{} is ready: {}", member.name(), member.is_ready()?);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Self::workload`]. The search needs `owners` and `labels`.
    pub fn siblings(&self) -> Result<Option<pods::Query>> {
        let workload = self.workload()?;
        Ok(workload.map(|workload| pods::find().in_namespace(self.namespace()).of_workload(&workload)))
    }
}
