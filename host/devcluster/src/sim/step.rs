//! The next step of a Pod and its delay, derived only from the Pod.

use std::time::Duration;

use serde_json::Value;

use super::{BEHAVIOUR, Pace};
use crate::meta;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Bind,
    Start,
    Exit,
    BackOff,
    Restart,
    Terminate,
}

pub(super) fn plan(pod: &Value, pace: &Pace) -> Option<(Step, Duration)> {
    let bound = !meta::text(pod, &["spec", "nodeName"]).is_empty();
    let behaviour = meta::annotation(pod, BEHAVIOUR).unwrap_or_default();
    if meta::is_terminating(pod) {
        let grace = meta::at(pod, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_u64).unwrap_or(0);
        // With a grace period of 0 the kubelet is done; finalizers keep the object.
        return (bound && grace > 0).then(|| (Step::Terminate, pace.terminate.min(Duration::from_secs(grace))));
    }
    if !bound {
        let gated = !meta::list(pod, &["spec", "schedulingGates"]).is_empty();
        return (!gated && behaviour != "pending").then_some((Step::Bind, pace.schedule));
    }
    match meta::text(pod, &["status", "phase"]) {
        "Pending" | "" => Some((Step::Start, pace.start)),
        "Running" => running(pod, behaviour, pace),
        _ => None,
    }
}

fn running(pod: &Value, behaviour: &str, pace: &Pace) -> Option<(Step, Duration)> {
    let status = meta::list(pod, &["status", "containerStatuses"]).first()?;
    let exits = matches!(behaviour, "crash" | "oom" | "finish" | "fail");
    let state = status.get("state")?;
    if state.get("running").is_some() {
        exits.then_some((Step::Exit, pace.run))
    } else if state.get("terminated").is_some() {
        Some((Step::BackOff, Duration::from_millis(10)))
    } else {
        Some((Step::Restart, back_off(status, pace)))
    }
}

/// Returns the back-off, which doubles with each restart.
pub(super) fn back_off(status: &Value, pace: &Pace) -> Duration {
    let restarts = status["restartCount"].as_u64().unwrap_or(0).min(16);
    pace.back_off.saturating_mul(1 << restarts).min(pace.longest_back_off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_crashing_pod_waits_twice_as_long_each_time_up_to_a_limit() {
        let pace = Pace::default();
        let seconds = |restarts: u64| back_off(&json!({"restartCount": restarts}), &pace).as_secs();
        assert_eq!([seconds(0), seconds(1), seconds(2), seconds(9)], [10, 20, 40, 300]);
    }

    #[test]
    fn a_gated_or_pending_pod_is_never_bound() {
        let pace = Pace::default();
        assert_eq!(plan(&json!({"spec": {"schedulingGates": [{"name": "g"}]}}), &pace), None);
        assert_eq!(plan(&json!({"metadata": {"annotations": {BEHAVIOUR: "pending"}}}), &pace), None);
        assert_eq!(plan(&json!({}), &pace).map(|(step, _)| step), Some(Step::Bind));
    }
}
