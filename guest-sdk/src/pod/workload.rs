//! [`Workload`]: which Deployment, StatefulSet, Job or other object a Pod is a replica of, through all its rollouts.

use podium_wire::{Labels, Owner};

use crate::{Pod, Result};

/// The labels that a controller puts on the Pods of its ReplicaSets, whose names end with the value, and the kind of
/// the controller.
const HASHES: [(&str, &str); 2] = [("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout")];

/// The workload of a Pod: the object that a user made and whose replica the Pod is. Together with the Pod's namespace,
/// kind and name identify it before, during and after a rollout; a ReplicaSet is of one rollout only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Workload {
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The name.
    pub name: String,
    /// The uid; `None` for a workload that is derived from its ReplicaSet's name, which says nothing about the uid.
    pub uid: Option<String>,
}

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
        let Some(controller) = self.controller()?.filter(|controller| controller.kind != "Node") else {
            return Ok(None);
        };
        if controller.kind == "ReplicaSet"
            && let Some(workload) = above(controller, self.labels()?)
        {
            return Ok(Some(workload));
        }
        let Owner { kind, name, uid, .. } = controller.clone();
        Ok(Some(Workload { kind, name, uid: Some(uid) }))
    }
}

/// Returns what made a ReplicaSet, or `None` for one that was made by hand: it has no such label, or another name.
fn above(replica_set: &Owner, labels: &Labels) -> Option<Workload> {
    HASHES.into_iter().find_map(|(label, kind)| {
        let hash = labels.get(label).filter(|hash| !hash.is_empty())?;
        let name = replica_set.name.strip_suffix(hash)?.strip_suffix('-')?;
        (!name.is_empty()).then(|| Workload { kind: kind.to_owned(), name: name.to_owned(), uid: None })
    })
}
