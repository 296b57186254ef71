//! Jobs: Pods that run until enough of them have succeeded.

use serde_json::{Map, Value, json};

use crate::{
    Action, Kind, Step,
    claim::claim,
    conditions::{self, Condition},
    object, pod,
    replicaset::BURST,
    time,
    world::World,
};

/// The finalizer of Pods that the Job has not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const CONTROLLER: &str = "kubernetes.io/job-controller";
const HEARTBEAT: &str = "lastProbeTime";
/// Seconds before the first replacement of a failed Pod, doubled by each further failure.
const BACK_OFF: i64 = 10;
const LONGEST_BACK_OFF: i64 = 600;

/// A Job and its Pods in numbers.
struct Progress<'a> {
    job: &'a Value,
    pods: Vec<&'a Value>,
    active: Vec<&'a Value>,
    succeeded: i64,
    failed: i64,
    terminating: i64,
    suspended: bool,
}

pub(crate) fn sync<'a>(world: &World<'a>, job: &'a Value, step: &mut Step) {
    let mut status = object::map(job, &["status"]);
    if !is_covered(job) || object::is_terminating(job) {
        return;
    }
    if is_finished(job) {
        return expire(world, job, step);
    }
    let mut progress = Progress::new(world, job, step);
    if !progress.suspended && !status.contains_key("startTime") {
        status.insert("startTime".into(), world.now_text().into());
    }
    if let Some(end) = progress.end(world, &status, step) {
        for pod in std::mem::take(&mut progress.active) {
            step.delete(Kind::Pod, pod);
            progress.terminating += 1;
        }
        progress.finish(world, &mut status, end);
    } else {
        progress.manage(world, step);
        progress.show_suspension(world, &mut status);
    }
    object::set_count(&mut status, "active", object::count(progress.active.len()));
    object::set_count(&mut status, "succeeded", progress.succeeded);
    object::set_count(&mut status, "failed", progress.failed);
    let ready = progress.active.iter().filter(|pod| pod::is_ready(pod)).count();
    status.insert("ready".into(), object::count(ready).into());
    status.insert("terminating".into(), progress.terminating.into());
    status.insert("uncountedTerminatedPods".into(), json!({}));
    step.status(Kind::Job, job, status.into());
}

/// Returns true if all that the Job demands is supported.
fn is_covered(job: &Value) -> bool {
    let managed = object::text(job, &["spec", "managedBy"]);
    object::text(job, &["spec", "completionMode"]) != "Indexed"
        && ["podFailurePolicy", "successPolicy"].iter().all(|field| object::at(job, &["spec", field]).is_null())
        && matches!(managed, "" | CONTROLLER)
}

fn is_true(status: &Map<String, Value>, kind: &str) -> bool {
    conditions::find(status, kind).is_some_and(|condition| condition["status"] == "True")
}

fn is_finished(job: &Value) -> bool {
    let status = object::map(job, &["status"]);
    is_true(&status, "Complete") || is_true(&status, "Failed")
}

/// Deletes a finished Job after `ttlSecondsAfterFinished`.
fn expire(world: &World<'_>, job: &Value, step: &mut Step) {
    let Some(wait) = object::number(job, &["spec", "ttlSecondsAfterFinished"]) else { return };
    let ends = object::list(job, &["status", "conditions"]).iter();
    let ends = ends.filter(|condition| matches!(object::text(condition, &["type"]), "Complete" | "Failed"));
    let end = ends.filter_map(|condition| time::parse(object::text(condition, &["lastTransitionTime"]))).min();
    match end.map(|end| end.saturating_add(wait)) {
        Some(due) if due <= world.now => step.delete(Kind::Job, job),
        Some(due) => step.wake_at(due),
        None => {}
    }
}

/// Releases counted Pods, so that they can be deleted: those of Jobs that are finished or do not exist any more.
pub(crate) fn release(world: &World<'_>, step: &mut Step) {
    // One whose deletion waits for its Pods does not count them any more.
    let jobs = world.all(Kind::Job).iter().filter(|job| !is_finished(job) && !object::is_terminating(job));
    let unfinished: std::collections::BTreeSet<&str> = jobs.map(|job| object::uid(job)).collect();
    for pod in world.all(Kind::Pod).iter().filter(|pod| is_tracked(pod)) {
        // One that a Job adopts in this step stays tracked.
        if step.patches(Kind::Pod, pod) {
            continue;
        }
        let owner = object::controller(pod);
        if owner.is_none_or(|owner| owner["kind"] == "Job" && !unfinished.contains(object::text(owner, &["uid"]))) {
            untrack(pod, step);
        }
    }
}

fn is_tracked(pod: &Value) -> bool {
    object::list(pod, &["metadata", "finalizers"]).iter().any(|finalizer| finalizer == TRACKING)
}

fn untrack(pod: &Value, step: &mut Step) {
    let finalizers = object::list(pod, &["metadata", "finalizers"]).iter();
    let kept: Vec<&Value> = finalizers.filter(|finalizer| *finalizer != TRACKING).collect();
    step.push(Kind::Pod, pod, Action::Patch(json!({"metadata": {"finalizers": kept}})));
}

/// Why a Job ends.
#[derive(Clone, Copy)]
enum End {
    Succeeded,
    Failed(&'static str, &'static str),
}

impl<'a> Progress<'a> {
    /// Counts the Pods, and releases those that it counts.
    fn new(world: &World<'a>, job: &'a Value, step: &mut Step) -> Self {
        let pods = claim(world, Kind::Pod, Kind::Job, job, step);
        let count = |field: &str| object::number(job, &["status", field]).unwrap_or_default();
        let mut progress = Self {
            job,
            active: pods.iter().copied().filter(|pod| pod::is_active(pod)).collect(),
            succeeded: count("succeeded"),
            failed: count("failed"),
            terminating: 0,
            suspended: object::at(job, &["spec", "suspend"]) == true,
            pods,
        };
        for pod in &progress.pods {
            let terminating = object::is_terminating(pod) && !pod::is_finished(pod);
            progress.terminating += i64::from(terminating);
            if is_tracked(pod) && (pod::is_finished(pod) || terminating) {
                let succeeded = pod::phase(pod) == "Succeeded";
                progress.succeeded += i64::from(succeeded);
                progress.failed += i64::from(!succeeded);
                untrack(pod, step);
            }
        }
        progress
    }

    /// Returns the reason for which the Job ends, now or since an earlier step.
    fn end(&self, world: &World<'_>, status: &Map<String, Value>, step: &mut Step) -> Option<End> {
        const LIMIT: End = End::Failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        const LATE: End = End::Failed("DeadlineExceeded", "Job was active longer than specified deadline");
        if is_true(status, "SuccessCriteriaMet") {
            return Some(End::Succeeded);
        }
        if let Some(target) = conditions::find(status, "FailureTarget") {
            return Some(if target["reason"] == "DeadlineExceeded" { LATE } else { LIMIT });
        }
        let limit = object::number(self.job, &["spec", "backoffLimit"]).unwrap_or(6);
        let restarts: i64 = self.active.iter().map(|pod| pod::restarts(pod)).sum();
        let on_failure = object::text(self.job, &["spec", "template", "spec", "restartPolicy"]) == "OnFailure";
        if self.failed > limit || (on_failure && restarts > 0 && restarts >= limit) {
            return Some(LIMIT);
        }
        let started = time::parse(status.get("startTime").and_then(Value::as_str).unwrap_or_default());
        let deadline = object::number(self.job, &["spec", "activeDeadlineSeconds"]);
        if let (Some(started), Some(deadline), false) = (started, deadline, self.suspended) {
            let due = started.saturating_add(deadline);
            if due <= world.now {
                return Some(LATE);
            }
            step.wake_at(due);
        }
        let enough = object::number(self.job, &["spec", "completions"]).unwrap_or(self.succeeded.max(1));
        (self.succeeded >= enough && self.active.is_empty()).then_some(End::Succeeded)
    }

    /// Sets the conditions of the end; the last one when no Pod is left.
    fn finish(&self, world: &World<'_>, status: &mut Map<String, Value>, end: End) {
        let (interim, last, reason, message) = match end {
            End::Succeeded => {
                let message = "Reached expected number of succeeded pods";
                ("SuccessCriteriaMet", "Complete", "CompletionsReached", message)
            }
            End::Failed(reason, message) => ("FailureTarget", "Failed", reason, message),
        };
        let now = world.now_text();
        let mut set = |kind| {
            if !is_true(status, kind) {
                conditions::set(status, &Condition { kind, status: "True", reason, message }, HEARTBEAT, &now);
            }
        };
        set(interim);
        if self.terminating > 0 {
            return;
        }
        set(last);
        if last == "Complete" {
            status.insert("completionTime".into(), now.into());
        }
    }

    /// Creates or deletes Pods.
    fn manage(&mut self, world: &World<'_>, step: &mut Step) {
        let parallelism = object::number(self.job, &["spec", "parallelism"]).unwrap_or(1);
        let active = object::count(self.active.len());
        let wanted = match object::number(self.job, &["spec", "completions"]) {
            _ if self.suspended => 0,
            Some(completions) => (completions - self.succeeded).clamp(0, parallelism),
            None if self.succeeded > 0 => active.min(parallelism),
            None => parallelism,
        };
        let surplus = usize::try_from(active - wanted).unwrap_or_default();
        if surplus > 0 {
            pod::sort_for_deletion(&mut self.active);
        }
        for pod in self.active.drain(..surplus.min(self.active.len())) {
            // A Pod that the Job stops itself is no failure.
            if is_tracked(pod) {
                untrack(pod, step);
            }
            step.delete(Kind::Pod, pod);
            self.terminating += 1;
        }
        let missing = wanted - active;
        if missing <= 0 {
            return;
        }
        if let Some(due) = self.backed_off_until().filter(|due| *due > world.now) {
            return step.wake_at(due);
        }
        for mut pod in pod::generate(world, Kind::Job, self.job, missing.min(BURST)) {
            let mut finalizers = object::list(&pod, &["metadata", "finalizers"]).to_vec();
            finalizers.push(TRACKING.into());
            pod["metadata"]["finalizers"] = finalizers.into();
            step.create(Kind::Pod, pod);
        }
    }

    /// Returns when failed Pods may be replaced. Failures before the last success do not count.
    fn backed_off_until(&self) -> Option<i64> {
        let ends = |phase: &'static str| {
            self.pods.iter().filter(move |pod| pod::phase(pod) == phase).filter_map(|pod| pod::finished_at(pod))
        };
        let success = ends("Succeeded").max();
        let failures: Vec<i64> = ends("Failed").filter(|end| success.is_none_or(|success| *end > success)).collect();
        let doublings = u32::try_from(failures.len().checked_sub(1)?).unwrap_or(u32::MAX).min(16);
        let wait = (BACK_OFF << doublings).min(LONGEST_BACK_OFF);
        failures.into_iter().max().map(|last| last.saturating_add(wait))
    }

    fn show_suspension(&self, world: &World<'_>, status: &mut Map<String, Value>) {
        let (value, reason, message) = if self.suspended {
            ("True", "JobSuspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Job resumed")
        };
        if is_true(status, "Suspended") == self.suspended {
            return;
        }
        let condition = Condition { kind: "Suspended", status: value, reason, message };
        conditions::set(status, &condition, HEARTBEAT, &world.now_text());
        if self.suspended {
            status.remove("startTime");
        } else {
            status.insert("startTime".into(), world.now_text().into());
        }
    }
}
