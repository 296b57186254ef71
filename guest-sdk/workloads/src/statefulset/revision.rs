//! The revisions of a StatefulSet: one ControllerRevision for each version of its template.

use serde_json::{Value, json};

use crate::{Action, Kind, Step, claim::Claimant, object, world::World};

/// The label of Pods with the name of their revision.
pub(super) const LABEL: &str = "controller-revision-hash";

#[derive(Clone)]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) template: Value,
}

impl Revision {
    fn of_object(revision: &Value) -> Self {
        let mut template = object::at(revision, &["data", "spec", "template"]).clone();
        if let Some(template) = template.as_object_mut() {
            template.remove("$patch");
        }
        Self { name: object::name(revision).to_owned(), template }
    }
}

/// The revisions of the Pods before and after the present update.
pub(super) struct Revisions<'a> {
    pub(super) current: Revision,
    pub(super) update: Revision,
    pub(super) collisions: i64,
    /// From the oldest to the newest.
    all: Vec<&'a Value>,
}

fn number(revision: &Value) -> i64 {
    object::number(revision, &["revision"]).unwrap_or_default()
}

impl<'a> Revisions<'a> {
    /// Finds the revision of the present template, or creates it. Returns `None` if its name is taken; the next step
    /// tries another one.
    pub(super) fn new(world: &World<'a>, set: &Value, step: &mut Step) -> Option<Self> {
        let mut all = world.owned(Kind::ControllerRevision, object::uid(set)).to_vec();
        // Those of a set of this name that was deleted without its dependents.
        let adopting = Claimant { kind: Kind::StatefulSet, owner: set, fits: |_: &Value| true };
        all.extend(adopting.adopt(world, Kind::ControllerRevision, step));
        all.sort_by_key(|revision| (number(revision), object::age(revision)));
        let template = object::at(set, &["spec", "template"]);
        let mut data = json!({"spec": {"template": template}});
        data["spec"]["template"]["$patch"] = "replace".into();
        let collisions = object::number(set, &["status", "collisionCount"]).unwrap_or_default();
        let next = all.last().map_or(1, |last| number(last).saturating_add(1));
        let update = match all.iter().rposition(|revision| revision["data"] == data) {
            Some(index) => {
                let found = all.get(index)?;
                if index + 1 < all.len() {
                    step.push(Kind::ControllerRevision, found, Action::Patch(json!({"revision": next})));
                }
                Revision::of_object(found)
            }
            None => {
                let hash = object::letters(object::hash(&[&data.to_string(), &collisions.to_string()]), 10);
                let name = format!("{}-{hash}", object::name(set));
                if world.is_taken(Kind::ControllerRevision, object::namespace(set), &name) {
                    let mut status = object::map(set, &["status"]);
                    status.insert("collisionCount".into(), collisions.saturating_add(1).into());
                    step.status(Kind::StatefulSet, set, status.into());
                    return None;
                }
                let mut revision = object::dependent(Kind::ControllerRevision, &name, Kind::StatefulSet, set);
                let mut labels = object::map(template, &["metadata", "labels"]);
                labels.insert("controller.kubernetes.io/hash".into(), hash.into());
                revision["metadata"]["labels"] = labels.into();
                let annotations = object::map(set, &["metadata", "annotations"]);
                if !annotations.is_empty() {
                    revision["metadata"]["annotations"] = annotations.into();
                }
                revision["data"] = data;
                revision["revision"] = next.into();
                step.create(Kind::ControllerRevision, revision);
                Revision { name, template: template.clone() }
            }
        };
        let current = object::text(set, &["status", "currentRevision"]);
        let current = all.iter().find(|revision| object::name(revision) == current);
        let current = current.map_or_else(|| update.clone(), |revision| Revision::of_object(revision));
        Some(Self { current, update, collisions, all })
    }

    /// Deletes the oldest revisions beyond `revisionHistoryLimit` that no Pod has.
    pub(super) fn forget(&self, set: &Value, pods: &[&Value], step: &mut Step) {
        let limit = object::number(set, &["spec", "revisionHistoryLimit"]).unwrap_or(10);
        let used = |name: &str| pods.iter().any(|pod| object::text(pod, &["metadata", "labels", LABEL]) == name);
        let kept = |name: &str| name == self.current.name || name == self.update.name || used(name);
        let unused: Vec<&Value> = self.all.iter().copied().filter(|revision| !kept(object::name(revision))).collect();
        let surplus = usize::try_from(object::count(unused.len()) - limit).unwrap_or_default();
        for revision in unused.into_iter().take(surplus) {
            step.delete(Kind::ControllerRevision, revision);
        }
    }
}
