//! The controllers of Deployments, ReplicaSets, StatefulSets and Jobs, for each namespace in which one of their objects
//! has changed or is due. `podium-workloads` decides; this module stores the writes.

use std::collections::{BTreeMap, BTreeSet};

use podium_workloads::{Action, Change, Kind};
use serde_json::Value;

use super::author;
use crate::{
    core::Core,
    delete::{self, Options},
    failure::Failure,
    meta::{self, Object},
    patch::merge,
    state::State,
    store::Key,
    write,
};

/// The field manager of the controllers' writes.
const MANAGER: &str = "kube-controller-manager";

#[derive(Debug, Default)]
pub(super) struct Controllers {
    seen: u64,
    /// The epoch of `seen`.
    epoch: u64,
    /// Namespaces and the times at which they are due, in seconds since the epoch.
    due: BTreeMap<String, i64>,
}

impl Controllers {
    /// Returns the time of the next step without a change, in milliseconds since the epoch.
    pub(super) fn due(&self) -> Option<i64> {
        self.due.values().min().map(|seconds| seconds.saturating_mul(1000))
    }

    /// Does one step in each namespace that needs one. Its own writes lead to another round.
    pub(super) fn round(&mut self, state: &mut State, core: &Core) {
        let now = core.clock.now_millis().div_euclid(1000);
        let mut namespaces = self.changed(state);
        namespaces.extend(self.due.iter().filter(|(_, due)| **due <= now).map(|(namespace, _)| namespace.clone()));
        for namespace in namespaces {
            let objects: Vec<Object> = Kind::ALL
                .into_iter()
                .flat_map(|kind| state.store.iter(resource(kind), Some(&namespace)).map(|(_, object)| object.clone()))
                .collect();
            let step = podium_workloads::step(objects.iter().map(AsRef::as_ref), now);
            for change in step.changes {
                let name = change.name.clone();
                if let Err(failure) = apply(state, core, change) {
                    tracing::debug!(namespace, name, ?failure, "a controller's write was refused");
                }
            }
            match step.due {
                Some(due) => self.due.insert(namespace, due),
                None => self.due.remove(&namespace),
            };
        }
    }

    /// Returns the namespaces in which a workload, or a Pod beside workloads, has changed since the last call.
    fn changed(&mut self, state: &State) -> BTreeSet<String> {
        if std::mem::replace(&mut self.epoch, state.store.epoch()) != self.epoch {
            self.seen = 0;
        }
        let has_workloads = |namespace: &str| {
            let mut workloads = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pod);
            workloads.any(|kind| state.store.iter(resource(kind), Some(namespace)).next().is_some())
        };
        let mut changed = BTreeSet::new();
        for kind in Kind::ALL {
            let resource = resource(kind);
            let touched: Vec<(Key, Object)> = match state.store.since(resource, self.seen) {
                Ok(changes) => changes.into_iter().map(|change| (change.key, change.object)).collect(),
                // The history is compacted: everything is checked again.
                Err(_) => state.store.iter(resource, None).map(|(key, object)| (key.clone(), object.clone())).collect(),
            };
            // The Pods of a deleted Job have a finalizer that is still to be removed.
            let concerned = touched.into_iter().filter(|(key, object)| {
                kind != Kind::Pod || !meta::finalizers(object).is_empty() || has_workloads(&key.namespace)
            });
            changed.extend(concerned.map(|(key, _)| key.namespace));
        }
        self.seen = state.store.revision();
        changed
    }
}

fn resource(kind: Kind) -> &'static str {
    match kind {
        Kind::Deployment => "deployments.apps",
        Kind::ReplicaSet => "replicasets.apps",
        Kind::StatefulSet => "statefulsets.apps",
        Kind::ControllerRevision => "controllerrevisions.apps",
        Kind::Job => "jobs.batch",
        Kind::Pod => "pods",
    }
}

fn apply(state: &mut State, core: &Core, change: Change) -> Result<(), Failure> {
    let (api_version, kind) = change.kind.type_meta();
    let Some(kind) = state.kinds.of_object(api_version, kind) else { return Ok(()) };
    let key = Key::new(&change.namespace, &change.name);
    let edit = |state: &mut State, subresource: &str, edit: &dyn Fn(&mut Value)| {
        write::update(state, &author(core, &kind, MANAGER, subresource), &key, |old| {
            let mut new = old.clone();
            edit(&mut new);
            Ok(new)
        })
        .map(drop)
    };
    match &change.action {
        Action::Create(object) => {
            let write = author(core, &kind, MANAGER, "");
            write::create(state, &core.clock, &write, Some(&change.namespace), object.clone()).map(drop)
        }
        Action::Patch(patch) => edit(state, "", &|object| merge::merge(object, patch)),
        Action::Status(status, annotations) => edit(state, "status", &|object| {
            meta::set(object, &["status"], status.clone());
            for (key, value) in annotations {
                meta::set(object, &["metadata", "annotations", key], value.clone());
            }
        }),
        Action::Delete(uid) => {
            let options = Options { uid: Some(uid.clone()), ..Options::default() };
            delete::delete(state, &core.clock, &kind, &key, &options).map(drop)
        }
    }
}
