//! ReplicaSets: as many Pods as `spec.replicas`.

use serde_json::Value;

use crate::{Kind, Step, claim::claim, object, pod, world::World};

/// The most Pods that one step creates or deletes for one owner, as in the real controllers.
pub(crate) const BURST: i64 = 500;

/// The Pods of a ReplicaSet in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) replicas: i64,
    pub(crate) ready: i64,
    pub(crate) available: i64,
    pub(crate) terminating: i64,
    labelled: i64,
}

impl Counts {
    pub(crate) fn new(world: &World<'_>, set: &Value, pods: &[&Value], step: &mut Step) -> Self {
        let template = object::map(set, &["spec", "template", "metadata", "labels"]);
        let mut counts = Self::default();
        for pod in pods {
            counts.terminating += i64::from(object::is_terminating(pod) && !pod::is_finished(pod));
            if pod::is_active(pod) {
                let labels = object::at(pod, &["metadata", "labels"]);
                counts.replicas += 1;
                counts.labelled += i64::from(template.iter().all(|(key, value)| labels.get(key) == Some(value)));
                counts.ready += i64::from(pod::is_ready(pod));
                counts.available += i64::from(pod::is_available(world, set, pod, step));
            }
        }
        counts
    }
}

pub(crate) fn sync(world: &World<'_>, set: &Value, step: &mut Step) {
    let pods = claim(world, Kind::Pod, Kind::ReplicaSet, set, step);
    let counts = Counts::new(world, set, &pods, step);
    if !object::is_terminating(set) {
        let wanted = object::number(set, &["spec", "replicas"]).unwrap_or(1);
        let mut active: Vec<&Value> = pods.into_iter().filter(|pod| pod::is_active(pod)).collect();
        for pod in pod::generate(world, Kind::ReplicaSet, set, (wanted - counts.replicas).min(BURST)) {
            step.create(Kind::Pod, pod);
        }
        let surplus = usize::try_from((counts.replicas - wanted).min(BURST)).unwrap_or_default();
        if surplus > 0 {
            pod::sort_for_deletion(&mut active);
        }
        for pod in active.into_iter().take(surplus) {
            step.delete(Kind::Pod, pod);
        }
    }
    let mut status = object::map(set, &["status"]);
    status.insert("replicas".into(), counts.replicas.into());
    status.insert("terminatingReplicas".into(), counts.terminating.into());
    object::set_count(&mut status, "fullyLabeledReplicas", counts.labelled);
    object::set_count(&mut status, "readyReplicas", counts.ready);
    object::set_count(&mut status, "availableReplicas", counts.available);
    let generation = object::number(set, &["metadata", "generation"]).unwrap_or_default();
    object::set_count(&mut status, "observedGeneration", generation);
    step.status(Kind::ReplicaSet, set, status.into());
}
