//! Marks the Pods of a workload that are crowded on one node, so that the loss of that node would take most of them.
//!
//! It only marks Pods: people or another plugin decide what to do about a crowd (evict, add a topology spread
//! constraint). A workload is a Deployment, StatefulSet, Job or another controller of Pods; the plugin runs once for
//! all Pods of it (`watch.related`).

mod crowd;

use std::time::Duration;

use podium_sdk::{Event, Outcome, Pod, Request, Result, Timestamp, pods, reconciler};
use serde::Deserialize;

use crowd::Crowds;

/// The annotation: the name of the node that the Pod shares with too many others of its workload.
pub const CROWDED: &str = "podium.dev/crowded";

/// The most writes of one run; the default of `spec.limits.writes`. A larger crowd takes several runs.
const WRITES: usize = 20;

/// How soon the rest of a large crowd is marked.
const NEXT_BATCH: Duration = Duration::from_secs(1);

/// The plugin's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The largest share of a workload's Pods that one node may hold, in percent.
    pub max_percent: u32,
    /// Workloads with fewer Pods are not judged.
    pub min_pods: usize,
    /// The age in seconds of the youngest Pod from which a workload is judged. During a rollout its Pods are unevenly
    /// spread for some time.
    pub settle_seconds: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_percent: 50, min_pods: 3, settle_seconds: 30 }
    }
}

reconciler!(reconcile);

/// # Errors
/// Returns an error if a section is not granted, or if the configuration is not a [`Config`].
pub fn reconcile(request: &Request) -> Result<Outcome> {
    let config: Config = request.config()?;
    let Some(pod) = request.pod() else { return Ok(Outcome::settled()) };
    let Some(workload) = pod.workload()? else { return Ok(Outcome::settled()) };
    let settle = Duration::from_secs(config.settle_seconds);
    let wait = (pod.created() + settle).since(request.now());
    if counts(pod)? && !wait.is_zero() {
        // The workload's youngest Pod is at least this young, so the workload is not judged yet and need not be read.
        return Ok(Outcome::requeue_after(wait));
    }
    let members = pods::find().in_namespace(pod.namespace()).of_workload(&workload);
    judge(members, &config, &workload.name, request.now())
}

/// Reads the Pods of a workload and marks the crowded ones.
fn judge(all: pods::Query, config: &Config, workload: &str, now: Timestamp) -> Result<Outcome> {
    let mut members = Vec::new();
    for member in all {
        let member = member?;
        if counts(&member)? {
            members.push(member);
        }
    }
    let youngest = members.iter().map(Pod::created).max();
    let settles = youngest.map(|created| (created + Duration::from_secs(config.settle_seconds)).since(now));
    if let Some(wait) = settles.filter(|wait| !wait.is_zero()) {
        return Ok(Outcome::requeue_after(wait));
    }
    let nodes = members.iter().map(Pod::node).collect::<Result<Vec<_>>>()?;
    let crowds = Crowds::new(nodes.into_iter().flatten(), config.max_percent, config.min_pods);
    mark(&members, &crowds, workload)
}

/// Returns true if the loss of the Pod's node would be a loss. Finished and terminating Pods do not count.
fn counts(pod: &Pod) -> Result<bool> {
    Ok(!pod.is_terminating()? && !pod.is_finished()?)
}

/// Sets and removes annotations that differ, and emits one Event for each crowd.
fn mark(members: &[Pod], crowds: &Crowds<'_>, workload: &str) -> Result<Outcome> {
    let mut announced = Vec::new();
    for member in members {
        let said = member.annotation(CROWDED)?;
        announced.extend(said.filter(|node| member.node() == Ok(Some(node))));
    }
    let mut writes = 0;
    for member in members {
        let node = member.node()?.filter(|node| crowds.on(node).is_some());
        if member.annotation(CROWDED)? == node {
            continue;
        }
        // An Event counts as a write.
        let announces = node.is_some_and(|node| !announced.contains(&node));
        let needed = 1 + usize::from(announces);
        if writes + needed > WRITES {
            return Ok(Outcome::requeue_after(NEXT_BATCH));
        }
        writes += needed;
        let Some(node) = node else {
            member.remove_annotation(CROWDED)?;
            continue;
        };
        member.set_annotation(CROWDED, node)?;
        if let Some(crowd) = crowds.on(node).filter(|_| announces) {
            announced.push(node);
            let note = format!("{crowd} of {} Pods of {workload} are on node {node}", crowds.pods());
            member.emit(Event::warning("Crowded", note).action("JudgeSpread"))?;
        }
    }
    Ok(Outcome::settled())
}
