//! Deployments: a ReplicaSet for each version of the template, and the steps from one to the next.

mod scale;
mod status;

use serde_json::{Map, Value, json};

use crate::{Kind, Step, claim::claim, object, pod, replicaset::Counts, world::World};

const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of a Deployment that its ReplicaSets do not get.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// One ReplicaSet of a Deployment.
struct Set<'a> {
    object: &'a Value,
    /// `spec.replicas` after the changes of this step.
    replicas: i64,
    counts: Counts,
    /// The changes of this step, as a merge patch.
    patch: Value,
}

impl Set<'_> {
    fn revision(&self) -> i64 {
        object::annotation(self.object, REVISION).parse().unwrap_or_default()
    }

    /// Returns the available Pods that stay after the ReplicaSet has reached its present size.
    fn available(&self) -> i64 {
        self.counts.available.min(self.replicas)
    }

    fn resize(&mut self, replicas: i64, size: &[(&str, String)]) {
        if replicas != self.replicas {
            self.replicas = replicas;
            self.patch["spec"]["replicas"] = replicas.into();
            for (key, value) in size {
                self.annotate(key, value);
            }
        }
    }

    /// Sets an annotation if it has another value.
    fn annotate(&mut self, key: &str, value: &str) {
        if object::annotation(self.object, key) != value {
            self.patch["metadata"]["annotations"][key] = value.into();
        }
    }
}

/// A Deployment with its ReplicaSets, from the oldest to the newest.
struct Rollout<'a> {
    deployment: &'a Value,
    replicas: i64,
    surge: i64,
    unavailable: i64,
    recreate: bool,
    sets: Vec<Set<'a>>,
    /// The index of the ReplicaSet with the present template.
    new: Option<usize>,
}

pub(crate) fn sync<'a>(world: &World<'a>, deployment: &'a Value, step: &mut Step) {
    let mut rollout = Rollout::new(world, deployment, step);
    let mut outcome = status::Outcome::default();
    if !object::is_terminating(deployment) {
        rollout.mark_new();
        if object::at(deployment, &["spec", "paused"]) == true || rollout.is_scaled() {
            rollout.scale();
        } else if rollout.may_start(world) {
            rollout.advance(world, step, &mut outcome);
        }
    }
    rollout.report(world, step, outcome);
    for set in rollout.sets.into_iter().filter(|set| !set.patch.is_null()) {
        step.push(Kind::ReplicaSet, set.object, crate::Action::Patch(set.patch));
    }
}

impl<'a> Rollout<'a> {
    fn new(world: &World<'a>, deployment: &'a Value, step: &mut Step) -> Self {
        let spec = object::at(deployment, &["spec"]);
        let replicas = object::number(spec, &["replicas"]).unwrap_or(1);
        let recreate = object::text(spec, &["strategy", "type"]) == "Recreate";
        let bound = |field: &str, up: bool| {
            let value = object::at(spec, &["strategy", "rollingUpdate", field]);
            object::scaled(value, replicas, up)
                .or_else(|| object::scaled(&"25%".into(), replicas, up))
                .unwrap_or_default()
        };
        let surge = if recreate { 0 } else { bound("maxSurge", true) };
        let mut unavailable = if recreate { 0 } else { bound("maxUnavailable", false) };
        if surge == 0 && unavailable == 0 && !recreate {
            unavailable = 1;
        }
        let mut sets = Vec::new();
        for set in claim(world, Kind::ReplicaSet, Kind::Deployment, deployment, step) {
            let counts = Counts::new(world, set, world.owned(Kind::Pod, object::uid(set)), step);
            let replicas = object::number(set, &["spec", "replicas"]).unwrap_or(1);
            sets.push(Set { object: set, replicas, counts, patch: Value::Null });
        }
        let template = without_hash(object::at(spec, &["template"]));
        let new = sets.iter().position(|set| template == without_hash(object::at(set.object, &["spec", "template"])));
        Self { deployment, replicas, surge, unavailable: unavailable.min(replicas), recreate, sets, new }
    }

    fn old(&mut self) -> impl Iterator<Item = &mut Set<'a>> {
        let new = self.new;
        self.sets.iter_mut().enumerate().filter(move |(index, _)| Some(*index) != new).map(|(_, set)| set)
    }

    fn new_set(&mut self) -> Option<&mut Set<'a>> {
        self.sets.get_mut(self.new?)
    }

    fn total(&self) -> i64 {
        self.sets.iter().map(|set| set.replicas).sum()
    }

    /// Returns the annotations from which a later step sees that the Deployment was scaled.
    fn size(&self) -> [(&'static str, String); 2] {
        [(DESIRED, self.replicas.to_string()), (MAX, (self.replicas + self.surge).to_string())]
    }

    /// Returns the number of the newest revision, which is one more than that of all old ReplicaSets.
    fn revision(&self) -> i64 {
        let old = self.sets.iter().enumerate().filter(|(index, _)| Some(*index) != self.new);
        old.map(|(_, set)| set.revision()).max().unwrap_or_default().saturating_add(1)
    }

    /// Returns the annotations that the Deployment shares with its ReplicaSets.
    fn shared(&self) -> Map<String, Value> {
        let mut annotations = object::map(self.deployment, &["metadata", "annotations"]);
        annotations.retain(|key, _| !OWN.contains(&key.as_str()));
        annotations
    }

    /// Makes the ReplicaSet of the present template the newest revision, also one to which the Deployment returned.
    fn mark_new(&mut self) {
        let revision = self.revision();
        let shared = self.shared();
        let wait = |object: &Value| object::number(object, &["spec", "minReadySeconds"]).unwrap_or_default();
        let wanted = wait(self.deployment);
        let Some(set) = self.new_set() else { return };
        for (key, value) in &shared {
            set.annotate(key, value.as_str().unwrap_or_default());
        }
        if set.revision() < revision {
            let before = object::annotation(set.object, REVISION);
            if !before.is_empty() {
                let history = object::annotation(set.object, HISTORY);
                let separator = if history.is_empty() { "" } else { "," };
                set.annotate(HISTORY, &format!("{history}{separator}{before}"));
            }
            set.annotate(REVISION, &revision.to_string());
        }
        if wait(set.object) != wanted {
            set.patch["spec"]["minReadySeconds"] = wanted.into();
        }
    }

    /// Stops all old Pods first if the strategy is `Recreate`. Returns true if none is left.
    fn may_start(&mut self, world: &World<'_>) -> bool {
        if !self.recreate {
            return true;
        }
        let size = self.size();
        let mut stopped = true;
        for set in self.old() {
            stopped &= set.replicas == 0;
            set.resize(0, &size);
            let pods = world.owned(Kind::Pod, object::uid(set.object));
            stopped &= pods.iter().all(|pod| pod::is_finished(pod));
        }
        stopped
    }

    /// Does the next step of a rollout.
    fn advance(&mut self, world: &World<'_>, step: &mut Step, outcome: &mut status::Outcome) {
        let size = self.size();
        let current = self.new_set().map(|set| set.replicas);
        let room = (self.replicas + self.surge - self.total()).max(0);
        let wanted = match current.unwrap_or_default() {
            _ if self.recreate => self.replicas,
            current if current >= self.replicas => self.replicas,
            current => current + room.min(self.replicas - current),
        };
        match self.new_set() {
            None => self.create(world, wanted, step, outcome),
            Some(set) if set.replicas != wanted => set.resize(wanted, &size),
            Some(_) => self.shrink_old(&size),
        }
    }

    /// Creates the ReplicaSet of the present template.
    fn create(&self, world: &World<'_>, replicas: i64, step: &mut Step, outcome: &mut status::Outcome) {
        let mut template = without_hash(object::at(self.deployment, &["spec", "template"]));
        let collisions = object::number(self.deployment, &["status", "collisionCount"]).unwrap_or_default();
        let hash = object::hash(&[&template.to_string(), &collisions.to_string()]);
        let hash = object::letters(hash, 10);
        let name = format!("{}-{hash}", object::name(self.deployment));
        if world.is_taken(Kind::ReplicaSet, object::namespace(self.deployment), &name) {
            outcome.collisions = Some(collisions.saturating_add(1));
            return;
        }
        let mut selector = object::at(self.deployment, &["spec", "selector"]).clone();
        let mut labels = object::map(&template, &["metadata", "labels"]);
        let mut selected = object::map(&selector, &["matchLabels"]);
        if selected.insert(HASH.into(), hash.clone().into()).is_some() {
            // The Deployment would not select its ReplicaSet.
            return;
        }
        labels.insert(HASH.into(), hash.into());
        // Both are objects, because the selector selects the template.
        template["metadata"]["labels"] = labels.clone().into();
        selector["matchLabels"] = selected.into();
        let mut set = object::dependent(Kind::ReplicaSet, &name, Kind::Deployment, self.deployment);
        let mut annotations = self.shared();
        annotations.insert(REVISION.into(), self.revision().to_string().into());
        annotations.extend(self.size().map(|(key, value)| (key.to_owned(), value.into())));
        set["metadata"]["labels"] = labels.into();
        set["metadata"]["annotations"] = annotations.into();
        set["spec"] = json!({"replicas": replicas, "selector": selector, "template": template});
        if let Some(wait) = object::number(self.deployment, &["spec", "minReadySeconds"]) {
            set["spec"]["minReadySeconds"] = wait.into();
        }
        step.create(Kind::ReplicaSet, set);
        outcome.created = Some(name);
    }

    /// Shrinks old ReplicaSets as far as enough Pods stay available; those without available Pods first.
    fn shrink_old(&mut self, size: &[(&str, String)]) {
        let least = self.replicas - self.unavailable;
        let missing = self.new_set().map(|set| set.replicas - set.available()).unwrap_or_default();
        let mut surplus = self.total() - least - missing;
        for set in self.old() {
            let unhealthy = (set.replicas - set.available()).min(surplus).max(0);
            surplus -= unhealthy;
            if unhealthy > 0 {
                set.resize(set.replicas - unhealthy, size);
            }
        }
        let available: i64 = self.sets.iter().map(Set::available).sum();
        let mut surplus = (available - least).min(surplus);
        for set in self.old() {
            let stopped = set.replicas.min(surplus).max(0);
            surplus -= stopped;
            if stopped > 0 {
                set.resize(set.replicas - stopped, size);
            }
        }
    }
}

/// Returns the template as the Deployment has it.
fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    template
}
