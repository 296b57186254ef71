//! StatefulSets: Pods with ordinals that start, stop and are replaced in order.

mod revision;

use serde_json::{Map, Value, json};

use self::revision::{LABEL, Revisions};
use crate::{Kind, Step, claim::Claimant, object, pod, replicaset::BURST, world::World};

/// The place of one ordinal.
struct Slot<'a> {
    ordinal: i64,
    pod: Option<&'a Value>,
    available: bool,
}

impl Slot<'_> {
    fn is_terminating(&self) -> bool {
        self.pod.is_some_and(object::is_terminating)
    }

    fn is_healthy(&self) -> bool {
        self.available && !self.is_terminating()
    }

    fn has_revision(&self, name: &str) -> bool {
        self.pod.is_some_and(|pod| object::text(pod, &["metadata", "labels", LABEL]) == name)
    }
}

/// The Pods of a StatefulSet at one time.
struct Pods<'a> {
    /// One for each ordinal that should exist, from the lowest.
    replicas: Vec<Slot<'a>>,
    /// Pods beyond, from the highest ordinal.
    condemned: Vec<Slot<'a>>,
}

pub(crate) fn sync(world: &World<'_>, set: &Value, step: &mut Step) {
    let fits = |pod: &Value| ordinal(set, pod).is_some();
    let pods = Claimant { kind: Kind::StatefulSet, owner: set, fits }.claim(world, Kind::Pod, step);
    let Some(revisions) = Revisions::new(world, set, step) else { return };
    let status = status(world, set, &pods, &revisions, step);
    if !object::is_terminating(set) {
        let pods = Pods::new(world, set, &pods, step);
        pods.advance(set, &revisions, step);
    }
    revisions.forget(set, &pods, step);
    step.status(Kind::StatefulSet, set, status.into());
}

fn replicas(set: &Value) -> i64 {
    object::number(set, &["spec", "replicas"]).unwrap_or(1)
}

/// Returns the ordinal in a Pod's name; `None` for the name of no Pod of the set.
fn ordinal(set: &Value, pod: &Value) -> Option<i64> {
    let text = object::name(pod).strip_prefix(object::name(set))?.strip_prefix('-')?;
    // Not 01.
    let ordinal = text.parse::<u32>().ok().filter(|ordinal| ordinal.to_string() == text)?;
    Some(ordinal.into())
}

fn start(set: &Value) -> i64 {
    object::number(set, &["spec", "ordinals", "start"]).unwrap_or_default()
}

fn is_rolling(set: &Value) -> bool {
    object::text(set, &["spec", "updateStrategy", "type"]) != "OnDelete"
}

fn partition(set: &Value) -> i64 {
    object::number(set, &["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or_default()
}

fn is_running_and_ready(pod: &Value) -> bool {
    pod::phase(pod) == "Running" && pod::is_ready(pod)
}

fn is_available(world: &World<'_>, set: &Value, pod: &Value, step: &mut Step) -> bool {
    is_running_and_ready(pod) && pod::is_available(world, set, pod, step)
}

/// Returns the new status.
fn status(
    world: &World<'_>,
    set: &Value,
    pods: &[&Value],
    revisions: &Revisions,
    step: &mut Step,
) -> Map<String, Value> {
    let mut status = object::map(set, &["status"]);
    let with = |name: &str| {
        let of_revision = |pod: &&&Value| object::text(pod, &["metadata", "labels", LABEL]) == name;
        object::count(pods.iter().filter(|pod| !object::is_terminating(pod)).filter(of_revision).count())
    };
    let ready = object::count(pods.iter().filter(|pod| is_running_and_ready(pod)).count());
    let available = object::count(pods.iter().filter(|pod| is_available(world, set, pod, step)).count());
    let created = object::count(pods.len());
    let updated = with(&revisions.update.name);
    let mut current = (revisions.current.name.as_str(), with(&revisions.current.name));
    let wanted = replicas(set);
    if is_rolling(set) && [updated, ready, created] == [wanted; 3] {
        current = (&revisions.update.name, updated);
    }
    for (field, count) in [("replicas", created), ("availableReplicas", available)] {
        status.insert(field.into(), count.into());
    }
    for (field, count) in [("readyReplicas", ready), ("currentReplicas", current.1), ("updatedReplicas", updated)] {
        object::set_count(&mut status, field, count);
    }
    object::set_count(
        &mut status,
        "observedGeneration",
        object::number(set, &["metadata", "generation"]).unwrap_or_default(),
    );
    status.insert("currentRevision".into(), current.0.into());
    status.insert("updateRevision".into(), revisions.update.name.clone().into());
    status.insert("collisionCount".into(), revisions.collisions.into());
    status
}

impl<'a> Pods<'a> {
    fn new(world: &World<'a>, set: &Value, pods: &[&'a Value], step: &mut Step) -> Self {
        let first = start(set);
        let last = first + replicas(set);
        let known = pods.iter().filter_map(|pod| Some((ordinal(set, pod)?, *pod)));
        let known: std::collections::BTreeMap<_, _> = known.collect();
        let mut slot = |ordinal: i64, pod: Option<&'a Value>| {
            let available = pod.is_some_and(|pod| is_available(world, set, pod, step));
            Slot { ordinal, pod, available }
        };
        // Without the bound a set of 2^31 replicas would need as many slots.
        let missing = first + object::count(known.len()) + BURST;
        let replicas = (first..last.min(missing)).map(|ordinal| slot(ordinal, known.get(&ordinal).copied())).collect();
        let beyond = known.iter().rev().filter(|(ordinal, _)| !(first..last).contains(*ordinal));
        let condemned = beyond.map(|(ordinal, pod)| slot(*ordinal, Some(*pod))).collect();
        Self { replicas, condemned }
    }

    /// Does the next step: missing Pods first, then Pods beyond, then Pods of another revision.
    fn advance(&self, set: &Value, revisions: &Revisions, step: &mut Step) {
        let ordered = object::text(set, &["spec", "podManagementPolicy"]) != "Parallel";
        let mut waits = false;
        for slot in &self.replicas {
            match slot.pod {
                None => step.create(Kind::Pod, new_pod(set, revisions, slot.ordinal)),
                Some(pod) if pod::is_finished(pod) => {
                    if !object::is_terminating(pod) {
                        step.delete(Kind::Pod, pod);
                    }
                    waits = true;
                }
                Some(_) if slot.is_healthy() => continue,
                Some(_) => {}
            }
            if ordered {
                return;
            }
        }
        if waits {
            return;
        }
        let unhealthy =
            |slots: &[Slot<'_>]| slots.iter().filter(|slot| !slot.is_healthy()).map(|slot| slot.ordinal).min();
        let lowest = unhealthy(&self.replicas).or_else(|| unhealthy(&self.condemned));
        for slot in &self.condemned {
            if let Some(pod) = slot.pod.filter(|pod| !object::is_terminating(pod))
                && (!ordered || slot.available || lowest == Some(slot.ordinal))
            {
                step.delete(Kind::Pod, pod);
            }
            if ordered {
                return;
            }
        }
        if is_rolling(set) {
            self.replace(set, revisions, step);
        }
    }

    /// Deletes the Pod with the highest ordinal that has another revision, if all above it are healthy.
    fn replace(&self, set: &Value, revisions: &Revisions, step: &mut Step) {
        let least = start(set) + partition(set);
        for slot in self.replicas.iter().rev().filter(|slot| slot.ordinal >= least) {
            let Some(pod) = slot.pod else { return };
            if !slot.has_revision(&revisions.update.name) && !object::is_terminating(pod) {
                return step.delete(Kind::Pod, pod);
            }
            if !slot.is_healthy() {
                return;
            }
        }
    }
}

/// Returns the Pod of an ordinal, of the current revision if the ordinal is below the partition.
fn new_pod(set: &Value, revisions: &Revisions, ordinal: i64) -> Value {
    let is_current = is_rolling(set) && ordinal < start(set) + partition(set);
    let revision = if is_current { &revisions.current } else { &revisions.update };
    let name = format!("{}-{ordinal}", object::name(set));
    let mut pod = pod::from_template(&revision.template, &name, Kind::StatefulSet, set);
    let mut labels = object::map(&pod, &["metadata", "labels"]);
    labels.insert("statefulset.kubernetes.io/pod-name".into(), name.clone().into());
    labels.insert("apps.kubernetes.io/pod-index".into(), ordinal.to_string().into());
    labels.insert(LABEL.into(), revision.name.clone().into());
    pod["metadata"]["labels"] = labels.into();
    pod["metadata"]["generateName"] = format!("{}-", object::name(set)).into();
    let Some(spec) = pod["spec"].as_object_mut() else { return pod };
    let claims = object::list(set, &["spec", "volumeClaimTemplates"]).iter().map(object::name);
    let mut volumes = spec.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    volumes.retain(|volume| !claims.clone().any(|claim| volume["name"] == claim));
    volumes.extend(
        claims.map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": format!("{claim}-{name}")}})),
    );
    if !volumes.is_empty() {
        spec.insert("volumes".into(), volumes.into());
    }
    spec.insert("hostname".into(), name.into());
    let service = object::text(set, &["spec", "serviceName"]);
    if !service.is_empty() {
        spec.insert("subdomain".into(), service.into());
    }
    pod
}
