//! The controllers of Deployments, ReplicaSets, StatefulSets and Jobs as one pure function over objects in the API's
//! JSON. It has neither a clock nor randomness: the same objects and time lead to the same changes.
//!
//! [`step`] compares the objects and returns the changes that controllers would write next. The caller stores all of
//! them, and calls it again until nothing is left to change, or until an object changes or [`Step::due`] is reached.
//!
//! Not covered: PersistentVolumeClaims of a StatefulSet, indexed Jobs, pod failure policies and success policies, whose
//! Jobs are left as they are.

#![warn(missing_docs)]

mod claim;
mod conditions;
mod deployment;
mod job;
mod object;
mod pod;
mod replicaset;
mod statefulset;
mod time;
mod world;

use serde_json::{Map, Value};

use crate::world::World;

/// The kinds that controllers read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the kinds of Kubernetes")]
pub enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    ControllerRevision,
    Job,
    Pod,
}

impl Kind {
    /// All kinds, in the order in which [`step`] visits them.
    pub const ALL: [Self; 6] =
        [Self::Deployment, Self::ReplicaSet, Self::StatefulSet, Self::ControllerRevision, Self::Job, Self::Pod];

    /// Returns the `apiVersion` and the `kind` of an object.
    #[must_use]
    pub fn type_meta(self) -> (&'static str, &'static str) {
        match self {
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::ReplicaSet => ("apps/v1", "ReplicaSet"),
            Self::StatefulSet => ("apps/v1", "StatefulSet"),
            Self::ControllerRevision => ("apps/v1", "ControllerRevision"),
            Self::Job => ("batch/v1", "Job"),
            Self::Pod => ("v1", "Pod"),
        }
    }
}

/// One write to one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The object's kind.
    pub kind: Kind,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The write.
    pub action: Action,
}

/// The content of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates this object.
    Create(Value),
    /// Changes metadata and spec by a JSON merge patch.
    Patch(Value),
    /// Replaces the status and sets these annotations, in one write of the subresource `status`.
    Status(Value, Map<String, Value>),
    /// Deletes the object if it still has this uid; its dependents are deleted in the background.
    Delete(String),
}

/// The result of [`step`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The writes, in order. At most one of each [`Action`] concerns the same object.
    pub changes: Vec<Change>,
    /// The time at which [`step`] may find something to change in unchanged objects, in seconds since the epoch.
    pub due: Option<i64>,
}

impl Step {
    fn push(&mut self, kind: Kind, object: &Value, action: Action) {
        let text = |field: &str| object::text(object, &["metadata", field]).to_owned();
        self.changes.push(Change { kind, namespace: text("namespace"), name: text("name"), action });
    }

    fn delete(&mut self, kind: Kind, object: &Value) {
        self.push(kind, object, Action::Delete(object::uid(object).to_owned()));
    }

    fn create(&mut self, kind: Kind, object: Value) {
        let text = |field: &str| object::text(&object, &["metadata", field]).to_owned();
        let [namespace, name] = [text("namespace"), text("name")];
        self.changes.push(Change { kind, namespace, name, action: Action::Create(object) });
    }

    fn patches(&self, kind: Kind, object: &Value) -> bool {
        let names = (object::namespace(object), object::name(object));
        let same = |change: &&Change| change.kind == kind && (&*change.namespace, &*change.name) == names;
        self.changes.iter().filter(same).any(|change| matches!(change.action, Action::Patch(_)))
    }

    /// Pushes the status if the object has another one.
    fn status(&mut self, kind: Kind, object: &Value, status: Value) {
        if object.get("status").unwrap_or(&Value::Null) != &status {
            self.push(kind, object, Action::Status(status, Map::new()));
        }
    }

    fn wake_at(&mut self, seconds: i64) {
        self.due = Some(self.due.map_or(seconds, |due| due.min(seconds)));
    }
}

/// Returns the next writes of the controllers for these objects at `now`, in seconds since the epoch.
///
/// `objects` must contain all objects of the kinds in [`Kind`] in each of their namespaces, as the API server returns
/// them; others are ignored. Objects without a uid, and those whose selector does not select their template, are left
/// out.
#[must_use]
pub fn step<'a>(objects: impl IntoIterator<Item = &'a Value>, now: i64) -> Step {
    let world = World::new(objects, now);
    let mut step = Step::default();
    for kind in Kind::ALL {
        for owner in world.all(kind).iter().filter(|owner| object::selects_template(owner)) {
            match kind {
                Kind::Deployment => deployment::sync(&world, owner, &mut step),
                Kind::ReplicaSet => replicaset::sync(&world, owner, &mut step),
                Kind::StatefulSet => statefulset::sync(&world, owner, &mut step),
                Kind::Job => job::sync(&world, owner, &mut step),
                Kind::ControllerRevision | Kind::Pod => {}
            }
        }
    }
    job::release(&world, &mut step);
    step
}
