//! Which dependents a controller manages: those that it owns and that its selector selects. It releases others, and
//! adopts dependents that it selects and that have no controller.

use serde_json::{Value, json};

use crate::{Action, Kind, Step, object, world::World};

/// A controller, and which dependents it manages.
pub(crate) struct Claimant<'a, F> {
    pub(crate) kind: Kind,
    pub(crate) owner: &'a Value,
    /// Returns true for a dependent that fits beside the selector.
    pub(crate) fits: F,
}

impl<F: Fn(&Value) -> bool> Claimant<'_, F> {
    fn selects(&self, dependent: &Value) -> bool {
        let selector = object::at(self.owner, &["spec", "selector"]);
        object::selects(selector, object::at(dependent, &["metadata", "labels"])) && (self.fits)(dependent)
    }

    /// Returns the managed dependents from the oldest to the newest, with those that are adopted in this step.
    pub(crate) fn claim<'a>(&self, world: &World<'a>, kind: Kind, step: &mut Step) -> Vec<&'a Value> {
        let mut managed = Vec::new();
        for dependent in world.owned(kind, object::uid(self.owner)) {
            if self.selects(dependent) {
                managed.push(*dependent);
            } else if !object::is_terminating(self.owner) && !object::is_terminating(dependent) {
                let kept = object::list(dependent, &["metadata", "ownerReferences"]).iter();
                let kept: Vec<&Value> = kept.filter(|reference| reference["uid"] != object::uid(self.owner)).collect();
                step.push(kind, dependent, Action::Patch(json!({"metadata": {"ownerReferences": kept}})));
            }
        }
        managed.extend(self.adopt(world, kind, step));
        managed.sort_by_key(|dependent| object::age(dependent));
        managed
    }

    /// Adopts the dependents without a controller, and returns them.
    pub(crate) fn adopt<'a>(&self, world: &World<'a>, kind: Kind, step: &mut Step) -> Vec<&'a Value> {
        let mut adopted = Vec::new();
        if object::is_terminating(self.owner) {
            return adopted;
        }
        for orphan in world.orphans(kind, object::namespace(self.owner)) {
            let finished = matches!(object::text(orphan, &["status", "phase"]), "Succeeded" | "Failed");
            let free = !finished && !object::is_terminating(orphan) && self.selects(orphan);
            // Another controller of this step may have adopted it.
            if free && !step.patches(kind, orphan) {
                let mut references = object::list(orphan, &["metadata", "ownerReferences"]).to_vec();
                references.push(object::reference(self.kind, self.owner));
                step.push(kind, orphan, Action::Patch(json!({"metadata": {"ownerReferences": references}})));
                adopted.push(*orphan);
            }
        }
        adopted
    }
}

/// Returns the dependents that a controller manages by its selector only.
pub(crate) fn claim<'a>(
    world: &World<'a>,
    kind: Kind,
    owner_kind: Kind,
    owner: &Value,
    step: &mut Step,
) -> Vec<&'a Value> {
    Claimant { kind: owner_kind, owner, fits: |_: &Value| true }.claim(world, kind, step)
}
