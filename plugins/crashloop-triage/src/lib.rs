//! Records on a Pod why it keeps crashing: an annotation such as `web=OOMKilled`, and an Event when the cause is
//! first known or becomes worse, so that an on-call engineer need not read the status of every container.
//!
//! The diagnosis is a class without a count, and can only become worse while a container crashes, so the restarts of
//! a crash loop cost no writes. It is removed when the containers have run for a while.

mod cause;
mod config;
mod diagnosis;
mod memo;

use std::collections::BTreeMap;

use podium_sdk::{ContainerState, ContainerStatus, Event, Outcome, Pod, Request, Result, Timestamp, reconciler};

use cause::Cause;
pub use config::Config;
use memo::Memo;

/// The annotation: container=class, separated by commas.
pub const DIAGNOSIS: &str = "triage.podium.dev/diagnosis";

reconciler!(reconcile);

/// # Errors
/// Returns an error if annotations or status are not granted, or if the configuration is not a [`Config`].
pub fn reconcile(request: &Request) -> Result<Outcome> {
    let config: Config = request.config()?;
    let Some(pod) = request.pod() else {
        memo::forget(request.key())?;
        return Ok(Outcome::settled());
    };
    if pod.is_terminating()? || pod.is_finished()? {
        return Ok(Outcome::settled());
    }
    let memo = Memo::from_pod(pod, request.now(), config.window())?;
    let said = diagnosis::parse(pod.annotation(DIAGNOSIS)?.unwrap_or_default());
    let mut found = BTreeMap::new();
    let mut recheck: Option<Timestamp> = None;
    for container in containers(pod)? {
        let before = said.get(container.name.as_str()).copied();
        let well_at = well_at(container, &config);
        let well = well_at.is_some_and(|well_at| well_at <= request.now());
        let cause = if well { None } else { before.max(cause(container, &memo, &config)) };
        if let Some(cause) = cause {
            found.insert(container.name.as_str(), cause);
            recheck = [recheck, well_at].into_iter().flatten().min();
        }
    }
    say(pod, &said, &found)?;
    // A container that keeps running causes no change, so its recovery needs a requeue.
    Ok(recheck.map_or(Outcome::settled(), |recheck| Outcome::requeue_after(recheck.since(request.now()))))
}

/// Returns the containers, including init containers, which crash as well.
fn containers(pod: &Pod) -> Result<impl Iterator<Item = &ContainerStatus>> {
    let status = pod.status()?;
    Ok(status.init_container_statuses.iter().chain(&status.container_statuses))
}

/// Returns when a running container counts as recovered; `None` for one that does not run.
fn well_at(container: &ContainerStatus, config: &Config) -> Option<Timestamp> {
    match container.state {
        ContainerState::Running { started_at } => Some(started_at? + config.recovery()),
        _ => None,
    }
}

/// Returns why this container crashes, if it crashes often enough to be reported.
fn cause(container: &ContainerStatus, memo: &Memo, config: &Config) -> Option<Cause> {
    let cause = Cause::from_status(container)?;
    let restarts = container.restart_count;
    let threshold = if cause == Cause::OomKilled { config.oom_threshold } else { config.threshold };
    let down = match &container.state {
        ContainerState::Waiting { reason, .. } => reason.as_deref() == Some("CrashLoopBackOff"),
        ContainerState::Terminated { .. } => true,
        _ => false,
    };
    // A container that runs between two crashes counts by its restarts within the window, not by older ones.
    let crashes = if down || cause == Cause::OomKilled { restarts } else { memo.restarts_lately(container) };
    (restarts > 0 && crashes >= threshold).then_some(cause)
}

/// Stages the diagnosis, and an Event if a container's diagnosis is new or worse.
fn say(pod: &Pod, said: &BTreeMap<&str, Cause>, found: &BTreeMap<&str, Cause>) -> Result<()> {
    if found.is_empty() {
        // The present value may not be a diagnosis, so its removal is staged in any case.
        if pod.annotation(DIAGNOSIS)?.is_some() {
            pod.remove_annotation(DIAGNOSIS)?;
        }
        return Ok(());
    }
    // If the value is the same, the host drops the write, and nothing has become worse.
    pod.set_annotation(DIAGNOSIS, &diagnosis::format(found))?;
    let worse = found.iter().filter(|(container, cause)| said.get(*container) < Some(cause));
    let notes: Vec<_> = worse.map(|(container, cause)| format!("container {container}: {}", cause.advice())).collect();
    if !notes.is_empty() {
        let note = notes.join("; ");
        let end = note.floor_char_boundary(note.len().min(diagnosis::LONGEST_NOTE));
        pod.emit(Event::warning("CrashLoopDiagnosed", &note[..end]).action("Diagnose"))?;
    }
    Ok(())
}
