//! [`Workload`]: which Deployment, StatefulSet, Job or other object a Pod is a replica of, through all its rollouts.
//! For the host and for guests, so that both find the same Pods.

use crate::{Labels, Owner};

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

impl Workload {
    /// Returns the Pod's controller, except for a Pod without one and for one that its Node controls (a mirror Pod).
    #[must_use]
    pub fn controller(owners: &[Owner]) -> Option<&Owner> {
        owners.iter().find(|owner| owner.controller).filter(|controller| controller.kind != "Node")
    }

    /// Returns true if the workload also depends on the Pod's labels: the controller is a ReplicaSet.
    #[must_use]
    pub fn needs_labels(controller: &Owner) -> bool {
        controller.kind == "ReplicaSet"
    }

    /// Returns the workload of a Pod with this controller and these labels: the Deployment or Rollout above the
    /// controller, if this is a ReplicaSet that one of these made, otherwise the controller.
    #[must_use]
    pub fn above(controller: &Owner, labels: &Labels) -> Self {
        let derived = Self::needs_labels(controller).then(|| derived(&controller.name, labels)).flatten();
        derived.unwrap_or_else(|| Self {
            kind: controller.kind.clone(),
            name: controller.name.clone(),
            uid: Some(controller.uid.clone()),
        })
    }

    /// Returns the text by which Pods of a workload are found in a namespace: `Deployment/web`.
    #[must_use]
    pub fn owner_text(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// Returns true if the owner that a query names is one of these, of a Pod with these labels: by its uid, or, for a
    /// text with a slash, by [`Self::owner_text`] of the Pod's workload.
    #[must_use]
    pub fn is_owner(owner: &str, owners: &[Owner], labels: &Labels) -> bool {
        if Self::is_text(owner) {
            let controller = Self::controller(owners);
            return controller.is_some_and(|controller| Self::above(controller, labels).owner_text() == owner);
        }
        owners.iter().any(|of| of.uid == owner)
    }

    /// Returns true if the owner that a query names is a workload and not a uid.
    #[must_use]
    pub fn is_text(owner: &str) -> bool {
        owner.contains('/')
    }

    /// Returns true if a change of labels may be one of the workload's.
    #[must_use]
    pub fn may_differ(before: &Labels, after: &Labels) -> bool {
        HASHES.iter().any(|(label, _)| before.get(*label) != after.get(*label))
    }
}

/// Returns what made a ReplicaSet, or `None` for one that was made by hand: it has no such label, or another name.
fn derived(replica_set: &str, labels: &Labels) -> Option<Workload> {
    HASHES.into_iter().find_map(|(label, kind)| {
        let hash = labels.get(label).filter(|hash| !hash.is_empty())?;
        let name = replica_set.strip_suffix(hash)?.strip_suffix('-')?;
        (!name.is_empty()).then(|| Workload { kind: kind.to_owned(), name: name.to_owned(), uid: None })
    })
}
