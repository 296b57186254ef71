//! Marks the Pods of a workload that are crowded on one node, where the loss of that node would take most of them.
//!
//! It marks and moves nothing: what to do about a crowd (evict, add a topology spread constraint) is for people or for
//! another plugin to say. A workload is what its Pods' controller is: the ReplicaSet, StatefulSet or Job.

mod crowd;
mod duty;

use std::time::Duration;

use podium_sdk::{Event, Outcome, Pod, Request, Result, Timestamp, pods, reconciler};
use serde::Deserialize;

use crowd::Crowds;
use duty::{Duty, Turn};

/// The annotation: the name of the node that the Pod shares with too many of its own.
pub const CROWDED: &str = "podium.dev/crowded";

/// Writes of one run; the default of `spec.limits.writes`. A larger crowd takes several runs.
const WRITES: usize = 20;

/// How soon the rest of a large crowd is marked.
const NEXT_BATCH: Duration = Duration::from_secs(1);

/// The Pods of a workload that is judged at every change of one of them: as many as the host returns in one page. A
/// larger workload is judged by one of its Pods for all, because each of n Pods reading n Pods would be n^2 reads in a
/// rollout.
const SMALL: u64 = 100;

/// The plugin's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The largest share of a workload's Pods that one node may hold, in percent.
    pub max_percent: u32,
    /// Workloads with fewer Pods than this are left alone.
    pub min_pods: usize,
    /// A workload is judged when its youngest Pod has reached this age, in seconds: while it is being rolled out, its
    /// Pods are unevenly spread at some time or other.
    pub settle_seconds: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_percent: 50, min_pods: 3, settle_seconds: 30 }
    }
}

reconciler!(reconcile);

/// # Errors
/// Where a section is not granted, or the configuration is not a [`Config`].
pub fn reconcile(request: &Request) -> Result<Outcome> {
    let config: Config = request.config()?;
    // A Pod that is gone leaves the others less or more crowded than before.
    let Some(pod) = request.pod().or(request.deleted()) else { return Ok(Outcome::settled()) };
    let Some(controller) = pod.controller()? else { return Ok(Outcome::settled()) };
    let settle = Duration::from_secs(config.settle_seconds);
    if let Some(pod) = request.pod()
        && counts(pod)?
        && let wait = (pod.created() + settle).since(request.now())
        && !wait.is_zero()
    {
        // The workload's youngest Pod is at least as young: it is not judged yet, and need not be read to know that.
        return Ok(Outcome::requeue_after(wait));
    }
    let siblings = pods::find().in_namespace(pod.namespace()).owned_by(&controller.uid);
    let judge = || judge(siblings.clone(), &config, &controller.name, request.now());
    if siblings.count()? <= SMALL {
        return judge();
    }
    let mut duty = Duty::of(&controller.uid, request);
    match duty.turn()? {
        Turn::Judge => duty.judged(judge()?),
        Turn::Wait(outcome) => Ok(outcome),
    }
}

/// Reads the Pods of a workload and marks those that are crowded.
fn judge(siblings: pods::Query, config: &Config, workload: &str, now: Timestamp) -> Result<Outcome> {
    let mut members = Vec::new();
    for member in siblings {
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
    let crowds = Crowds::of(nodes.into_iter().flatten(), config.max_percent, config.min_pods);
    mark(&members, &crowds, workload)
}

/// Pods that finished or go are no loss with their node.
fn counts(pod: &Pod) -> Result<bool> {
    Ok(!pod.is_terminating()? && !pod.is_finished()?)
}

/// Sets and removes annotations where they differ, and says once for each crowd that it is there.
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
