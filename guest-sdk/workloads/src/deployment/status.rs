//! The status of a Deployment and the end of its rollout: conditions, the revision's annotation, old ReplicaSets.

use serde_json::{Map, Value};

use super::{REVISION, Rollout, Set};
use crate::{
    Action, Kind, Step,
    conditions::{self, Condition},
    object, time,
    world::World,
};

/// The default of `progressDeadlineSeconds`.
const DEADLINE: i64 = 600;
const HEARTBEAT: &str = "lastUpdateTime";

/// The effects of a rollout's step that its status shows.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The ReplicaSet that was created.
    pub(super) created: Option<String>,
    /// The new number of collisions.
    pub(super) collisions: Option<i64>,
}

/// Returns the counts that show progress: all Pods, those of the present template, ready ones, available ones.
fn counts(status: &Value) -> [i64; 4] {
    ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
        .map(|field| object::number(status, &[field]).unwrap_or_default())
}

fn is_progress(before: &Value, after: &Value) -> bool {
    let ([all, updated, ready, available], [all_now, updated_now, ready_now, available_now]) =
        (counts(before), counts(after));
    updated_now > updated || all_now - updated_now < all - updated || ready_now > ready || available_now > available
}

impl Rollout<'_> {
    /// Writes the status and deletes ReplicaSets beyond the history.
    pub(super) fn report(&mut self, world: &World<'_>, step: &mut Step, outcome: Outcome) {
        let before = object::at(self.deployment, &["status"]);
        let mut status = object::map(self.deployment, &["status"]);
        let sum = |count: fn(&Set<'_>) -> i64| self.sets.iter().map(count).sum::<i64>();
        let replicas = sum(|set| set.counts.replicas);
        let available = sum(|set| set.counts.available);
        let counts = [
            ("replicas", replicas),
            ("readyReplicas", sum(|set| set.counts.ready)),
            ("availableReplicas", available),
            ("unavailableReplicas", (self.total() - available).max(0)),
            ("observedGeneration", object::number(self.deployment, &["metadata", "generation"]).unwrap_or_default()),
        ];
        for (field, count) in counts {
            object::set_count(&mut status, field, count);
        }
        status.insert("terminatingReplicas".into(), sum(|set| set.counts.terminating).into());
        let updated = self.new_set().map(|set| set.counts.replicas).unwrap_or_default();
        object::set_count(&mut status, "updatedReplicas", updated);
        if let Some(collisions) = outcome.collisions {
            status.insert("collisionCount".into(), collisions.into());
        }
        let enough = available >= self.replicas - self.unavailable;
        set_once(&mut status, world, &available_condition(enough));
        if !object::is_terminating(self.deployment) {
            self.set_progress(world, &mut status, before, outcome.created.as_deref(), step);
        }
        let mut annotations = Map::new();
        let revision = self.revision();
        let exists = self.new.is_some() || outcome.created.is_some();
        let shown = self.new_set().map_or(revision, |set| set.revision().max(revision)).to_string();
        if exists && object::annotation(self.deployment, REVISION) != shown {
            annotations.insert(REVISION.into(), shown.into());
        }
        let status = Value::from(status);
        if status != *before || !annotations.is_empty() {
            step.push(Kind::Deployment, self.deployment, Action::Status(status.clone(), annotations));
        }
        if self.is_complete(&status) {
            self.forget(step);
        }
    }

    fn is_complete(&self, status: &Value) -> bool {
        let [all, updated, _, available] = counts(status);
        [all, updated, available] == [self.replicas; 3]
    }

    /// Sets the condition Progressing.
    fn set_progress(
        &self,
        world: &World<'_>,
        status: &mut Map<String, Value>,
        before: &Value,
        created: Option<&str>,
        step: &mut Step,
    ) {
        let deadline = object::number(self.deployment, &["spec", "progressDeadlineSeconds"]).unwrap_or(DEADLINE);
        if deadline == i64::from(i32::MAX) {
            return;
        }
        let current = conditions::find(status, "Progressing").cloned().unwrap_or_default();
        let reason = object::text(&current, &["reason"]).to_owned();
        if let Some(condition) = self.pause_condition(&reason) {
            return conditions::set(status, &condition, HEARTBEAT, &world.now_text());
        }
        let progressing = |reason, message| Condition { kind: "Progressing", status: "True", reason, message };
        let name = self.new.and_then(|new| self.sets.get(new)).map(|set| object::name(set.object)).unwrap_or_default();
        if let Some(name) = created {
            let message = format!("Created new replica set \"{name}\"");
            set_once(status, world, &progressing("NewReplicaSetCreated", &message));
            return;
        }
        let shown = Value::from(status.clone());
        let [all, updated, ..] = counts(&shown);
        if object::at(self.deployment, &["spec", "paused"]) == true
            || (all == updated && reason == "NewReplicaSetAvailable")
        {
            return;
        }
        if !name.is_empty() && self.is_complete(&shown) {
            let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
            set_once(status, world, &progressing("NewReplicaSetAvailable", &message));
        } else if is_progress(before, &shown) {
            let message = format!("ReplicaSet \"{name}\" is progressing.");
            conditions::set(status, &progressing("ReplicaSetUpdated", &message), HEARTBEAT, &world.now_text());
        } else if current.is_null() && !name.is_empty() {
            let message = format!("Found new replica set \"{name}\"");
            set_once(status, world, &progressing("FoundNewReplicaSet", &message));
        } else if let Some(since) = time::parse(object::text(&current, &[HEARTBEAT]))
            && !matches!(&*reason, "NewReplicaSetAvailable" | "ProgressDeadlineExceeded")
        {
            let due = since.saturating_add(deadline).saturating_add(1);
            if due > world.now {
                return step.wake_at(due);
            }
            let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
            let reason = "ProgressDeadlineExceeded";
            set_once(status, world, &Condition { status: "False", ..progressing(reason, &message) });
        }
    }

    /// Returns the condition for a Deployment that was paused or resumed since the last step.
    fn pause_condition(&self, reason: &str) -> Option<Condition<'static>> {
        let paused = object::at(self.deployment, &["spec", "paused"]) == true;
        let (reason, message) = match reason {
            "DeploymentPaused" if !paused => ("DeploymentResumed", "Deployment is resumed"),
            "DeploymentPaused" | "ProgressDeadlineExceeded" => return None,
            _ if paused => ("DeploymentPaused", "Deployment is paused"),
            _ => return None,
        };
        Some(Condition { kind: "Progressing", status: "Unknown", reason, message })
    }

    /// Deletes the oldest revisions beyond `revisionHistoryLimit`.
    fn forget(&mut self, step: &mut Step) {
        let limit = object::number(self.deployment, &["spec", "revisionHistoryLimit"]).unwrap_or(10);
        let mut old: Vec<&mut Set<'_>> = self.old().filter(|set| !object::is_terminating(set.object)).collect();
        old.sort_by_key(|set| set.revision());
        let surplus = object::count(old.len()) - limit;
        for set in old.into_iter().take(usize::try_from(surplus).unwrap_or_default()) {
            let observed = object::at(set.object, &["status", "observedGeneration"]);
            let settled = observed == object::at(set.object, &["metadata", "generation"]);
            if set.replicas == 0 && set.counts.replicas == 0 && settled {
                step.delete(Kind::ReplicaSet, set.object);
            }
        }
    }
}

fn available_condition(enough: bool) -> Condition<'static> {
    if enough {
        let message = "Deployment has minimum availability.";
        Condition { kind: "Available", status: "True", reason: "MinimumReplicasAvailable", message }
    } else {
        let message = "Deployment does not have minimum availability.";
        Condition { kind: "Available", status: "False", reason: "MinimumReplicasUnavailable", message }
    }
}

/// Sets a condition unless it has this status and reason.
fn set_once(status: &mut Map<String, Value>, world: &World<'_>, condition: &Condition<'_>) {
    let current = conditions::find(status, condition.kind).cloned().unwrap_or_default();
    if current["status"] != condition.status || current["reason"] != condition.reason {
        conditions::set(status, condition, HEARTBEAT, &world.now_text());
    }
}
