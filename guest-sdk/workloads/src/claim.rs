//! Which dependents a controller manages: those that it owns and that its selector selects. It releases others, and
//! adopts dependents that it selects and that have no controller.

use serde_json::{Value, json};

use crate::{Action, Kind, Step, object, world::World};

/// Returns the managed dependents from the oldest to the newest. One that is adopted in this step is not among them.
pub(crate) fn claim<'a>(
    world: &World<'a>,
    kind: Kind,
    owner_kind: Kind,
    owner: &Value,
    step: &mut Step,
) -> Vec<&'a Value> {
    let selector = object::at(owner, &["spec", "selector"]);
    let selected = |dependent: &Value| object::selects(selector, object::at(dependent, &["metadata", "labels"]));
    let acts = !object::is_terminating(owner);
    let mut managed = Vec::new();
    for dependent in world.owned(kind, object::uid(owner)) {
        if selected(dependent) {
            managed.push(*dependent);
        } else if acts && !object::is_terminating(dependent) {
            let kept = object::list(dependent, &["metadata", "ownerReferences"]).iter();
            let kept: Vec<&Value> = kept.filter(|reference| reference["uid"] != object::uid(owner)).collect();
            step.push(kind, dependent, Action::Patch(json!({"metadata": {"ownerReferences": kept}})));
        }
    }
    if acts {
        for orphan in world.orphans(kind, object::namespace(owner)) {
            let finished = matches!(object::text(orphan, &["status", "phase"]), "Succeeded" | "Failed");
            let free = !finished && !object::is_terminating(orphan) && selected(orphan);
            // Another controller of this step may have adopted it.
            if free && !step.patches(kind, orphan) {
                let mut references = object::list(orphan, &["metadata", "ownerReferences"]).to_vec();
                references.push(object::reference(owner_kind, owner));
                step.push(kind, orphan, Action::Patch(json!({"metadata": {"ownerReferences": references}})));
            }
        }
    }
    managed.sort_by_key(|dependent| object::age(dependent));
    managed
}
