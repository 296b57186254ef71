//! Reports a Pod of which a container restarts again and again: a condition, and one Event for each change of it.

use std::time::Duration;

use podium_sdk::{
    Condition, ConditionStatus, ContainerState, ContainerStatus, Event, Outcome, Request, Result, Timestamp, reconciler,
};

const RESTART_LOOP: &str = "example.com/RestartLoop";
/// After this time the kubelet forgets the restarts of a container.
const STABLE: Duration = Duration::from_secs(600);

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let before = pod.condition(RESTART_LOOP)?;
    let is_marked = before.is_some_and(|condition| condition.status == ConditionStatus::True);
    let containers = if pod.is_finished()? { &[] } else { pod.container_statuses()? };
    let restarts = |container: &&ContainerStatus| is_restarting(container, is_marked, request.now());
    if let Some(container) = containers.iter().find(restarts) {
        let message = format!("container {} restarts again and again", container.name);
        let condition = Condition::new(RESTART_LOOP, ConditionStatus::True).because("CrashLoopBackOff", &message);
        pod.report(&condition, Event::warning("RestartLoop", message))?;
        return Ok(Outcome::requeue_after(STABLE));
    }
    if before.is_some() {
        let condition = Condition::new(RESTART_LOOP, ConditionStatus::False);
        pod.report(&condition, Event::normal("RestartLoopEnded", "no container restarts any more"))?;
    }
    Ok(Outcome::settled())
}

/// A loop begins with the kubelet's back-off, and ends when the container has run for a while.
fn is_restarting(container: &ContainerStatus, is_marked: bool, now: Timestamp) -> bool {
    match &container.state {
        ContainerState::Waiting { reason: Some(reason), .. } if reason == "CrashLoopBackOff" => true,
        ContainerState::Running { started_at: Some(at) } if now.since(*at) >= STABLE => false,
        _ => is_marked && container.restart_count > 0,
    }
}
