//! Pods: READY, STATUS and RESTARTS are computed like in the API server's printer.

use serde_json::{Value, json};

use super::age;
use crate::{clock, meta};

pub(super) const COLUMNS: &[&str] =
    &["Name", "Ready", "Status", "Restarts", "Age", "+IP", "+Node", "+Nominated Node", "+Readiness Gates"];

pub(super) fn row(pod: &Value, now_millis: i64) -> Vec<Value> {
    let statuses = meta::list(pod, &["status", "containerStatuses"]);
    let total = meta::list(pod, &["spec", "containers"]).len();
    let ready = statuses.iter().filter(|s| s["ready"] == Value::Bool(true)).count();
    let or_none = |path: &[&str]| match meta::text(pod, path) {
        "" => json!("<none>"),
        text => json!(text),
    };
    vec![
        json!(meta::name(pod)),
        json!(format!("{ready}/{total}")),
        json!(reason(pod)),
        json!(restarts(statuses, now_millis)),
        age(pod, now_millis),
        or_none(&["status", "podIP"]),
        or_none(&["spec", "nodeName"]),
        or_none(&["status", "nominatedNodeName"]),
        json!("<none>"),
    ]
}

fn restarts(statuses: &[Value], now_millis: i64) -> String {
    let count: i64 = statuses.iter().filter_map(|s| s["restartCount"].as_i64()).sum();
    let last =
        statuses.iter().filter_map(|s| clock::parse(meta::text(s, &["lastState", "terminated", "finishedAt"]))).max();
    match last {
        Some(at) if count > 0 => format!("{count} ({} ago)", age::human((now_millis - at).max(0) / 1000)),
        _ => count.to_string(),
    }
}

/// Returns the word in the column STATUS.
pub(super) fn reason(pod: &Value) -> String {
    let mut reason = match meta::text(pod, &["status", "reason"]) {
        "" => meta::text(pod, &["status", "phase"]).to_owned(),
        reason => reason.to_owned(),
    };
    if let Some(scheduled) = meta::condition(pod, "PodScheduled")
        && scheduled["reason"] == "SchedulingGated"
    {
        reason = "SchedulingGated".into();
    }
    let mut running = false;
    for status in meta::list(pod, &["status", "containerStatuses"]).iter().rev() {
        let waiting = meta::text(status, &["state", "waiting", "reason"]);
        let terminated = meta::at(status, &["state", "terminated"]);
        if !waiting.is_empty() {
            reason = waiting.to_owned();
        } else if let Some(terminated) = terminated {
            reason = match (meta::text(terminated, &["reason"]), terminated["signal"].as_i64().unwrap_or(0)) {
                ("", 0) => format!("ExitCode:{}", terminated["exitCode"]),
                ("", signal) => format!("Signal:{signal}"),
                (reason, _) => reason.to_owned(),
            };
        } else if status["ready"] == Value::Bool(true) && meta::at(status, &["state", "running"]).is_some() {
            running = true;
        }
    }
    if reason == "Completed" && running {
        reason = if crate::rules::is_ready(pod) { "Running".into() } else { "NotReady".into() };
    }
    if meta::is_terminating(pod) && !matches!(meta::text(pod, &["status", "phase"]), "Succeeded" | "Failed") {
        reason = "Terminating".into();
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_the_word_that_kubectl_shows() {
        let crashing = json!({"status": {"phase": "Running", "containerStatuses": [
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}});
        assert_eq!(reason(&crashing), "CrashLoopBackOff");
        let ending = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}});
        assert_eq!(reason(&ending), "Terminating");
        assert_eq!(reason(&json!({"status": {"phase": "Pending"}})), "Pending");
    }
}
