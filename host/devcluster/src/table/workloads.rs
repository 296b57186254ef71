//! Deployments, ReplicaSets, StatefulSets and Jobs.

use serde_json::{Value, json};

use super::{age, age::human, kinds::Row};
use crate::{clock, kinds::Kind, meta, selector::Labels};

pub(super) fn printer(kind: &Kind) -> (&'static [&'static str], Row) {
    match kind.kind.as_str() {
        "Deployment" => {
            (&["Name", "Ready", "Up-to-date", "Available", "Age", "+Containers", "+Images", "+Selector"], deployment)
        }
        "ReplicaSet" => {
            (&["Name", "#Desired", "#Current", "#Ready", "Age", "+Containers", "+Images", "+Selector"], replica_set)
        }
        "StatefulSet" => (&["Name", "Ready", "Age", "+Containers", "+Images"], stateful_set),
        _ => (&["Name", "Status", "Completions", "Duration", "Age", "+Containers", "+Images", "+Selector"], job),
    }
}

fn spec(object: &Value, field: &str) -> i64 {
    object["spec"][field].as_i64().unwrap_or_default()
}

fn status(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}

/// Returns a row that begins with the name and ends with the template.
fn row(object: &Value, cells: Vec<Value>, now: i64, selector: bool) -> Vec<Value> {
    let containers = meta::list(object, &["spec", "template", "spec", "containers"]);
    let all = |field: &str| containers.iter().map(|c| meta::text(c, &[field])).collect::<Vec<_>>().join(",");
    let mut row = vec![json!(meta::name(object))];
    row.extend(cells);
    row.extend([age(object, now), json!(all("name")), json!(all("image"))]);
    if selector {
        row.push(json!(Labels::of_object(&object["spec"]["selector"]).to_string()));
    }
    row
}

fn ready(object: &Value) -> Value {
    json!(format!("{}/{}", status(object, "readyReplicas"), spec(object, "replicas")))
}

fn deployment(object: &Value, now: i64) -> Vec<Value> {
    let count = |field: &str| json!(status(object, field));
    row(object, vec![ready(object), count("updatedReplicas"), count("availableReplicas")], now, true)
}

fn replica_set(object: &Value, now: i64) -> Vec<Value> {
    let counts = [spec(object, "replicas"), status(object, "replicas"), status(object, "readyReplicas")];
    row(object, counts.map(Value::from).to_vec(), now, true)
}

fn stateful_set(object: &Value, now: i64) -> Vec<Value> {
    row(object, vec![ready(object)], now, false)
}

fn job(object: &Value, now: i64) -> Vec<Value> {
    let is = |kind: &str| meta::condition(object, kind).is_some_and(|condition| condition["status"] == "True");
    let state = match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if meta::is_terminating(object) => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    };
    let succeeded = status(object, "succeeded");
    let completions = match (object["spec"]["completions"].as_i64(), spec(object, "parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let time = |field: &str| clock::parse(meta::text(object, &["status", field]));
    let duration = time("startTime").map(|start| {
        let end = time("completionTime").unwrap_or(now);
        human((end - start).max(0) / 1000)
    });
    let cells = [state.to_owned(), completions, duration.unwrap_or_default()];
    row(object, cells.map(Value::from).to_vec(), now, true)
}
