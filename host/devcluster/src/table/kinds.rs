//! The other built-in kinds; kinds that are not named have a name and an age.

use serde_json::{Value, json};

use super::age;
use crate::meta;

/// Returns the cells of an object at a time in milliseconds.
pub(super) type Row = fn(&Value, i64) -> Vec<Value>;

pub(super) fn printer(resource: &str) -> (&'static [&'static str], Row) {
    match resource {
        "namespaces" => (&["Name", "Status", "Age"], namespace),
        "nodes" => (
            &[
                "Name",
                "Status",
                "Roles",
                "Age",
                "Version",
                "+Internal-IP",
                "+External-IP",
                "+OS-Image",
                "+Kernel-Version",
                "+Container-Runtime",
            ],
            node,
        ),
        "events" => (
            &[
                "Last Seen",
                "Type",
                "Reason",
                "Object",
                "+Subobject",
                "+Source",
                "Message",
                "+First Seen",
                "+Count",
                "+Name",
            ],
            event,
        ),
        "configmaps" => (&["Name", "Data", "Age"], config_map),
        "secrets" => (&["Name", "Type", "Data", "Age"], secret),
        "serviceaccounts" => (&["Name", "Secrets", "Age"], service_account),
        "leases.coordination.k8s.io" => (&["Name", "Holder", "Age"], lease),
        "poddisruptionbudgets.policy" => {
            (&["Name", "Min Available", "Max Unavailable", "#Allowed Disruptions", "Age"], budget)
        }
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            (&["Name", "Role", "Age"], binding)
        }
        "roles.rbac.authorization.k8s.io" | "clusterroles.rbac.authorization.k8s.io" => (&["Name", "Created At"], role),
        "customresourcedefinitions.apiextensions.k8s.io" => (&["Name", "Created At"], role),
        "controllerrevisions.apps" => (&["Name", "Controller", "Revision", "Age"], revision),
        _ => (&["Name", "Age"], plain),
    }
}

fn name(object: &Value) -> Value {
    json!(meta::name(object))
}

fn plain(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

fn namespace(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), json!(meta::text(object, &["status", "phase"])), age(object, now)]
}

fn node(object: &Value, now: i64) -> Vec<Value> {
    let mut status = match meta::condition(object, "Ready") {
        Some(ready) if ready["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == Value::Bool(true) {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str| match meta::text(object, &["status", "nodeInfo", field]) {
        "" => json!("<unknown>"),
        text => json!(text),
    };
    let address = meta::list(object, &["status", "addresses"])
        .iter()
        .find(|a| a["type"] == "InternalIP")
        .map_or("<none>", |a| meta::text(a, &["address"]));
    vec![
        name(object),
        json!(status),
        json!("<none>"),
        age(object, now),
        info("kubeletVersion"),
        json!(address),
        json!("<none>"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

/// Returns the cells of an Event of either version; fields of the newer one are read second.
fn event(object: &Value, now: i64) -> Vec<Value> {
    let either = |paths: [&[&str]; 3]| -> String {
        paths.iter().map(|path| meta::text(object, path)).find(|t| !t.is_empty()).unwrap_or_default().to_owned()
    };
    let about = object.get("involvedObject").or_else(|| object.get("regarding")).unwrap_or(&Value::Null);
    let subject = format!("{}/{}", meta::text(about, &["kind"]).to_lowercase(), meta::text(about, &["name"]));
    let first = either([&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]]);
    let series = meta::text(object, &["series", "lastObservedTime"]).to_owned();
    let last = match either([&["lastTimestamp"], &["deprecatedLastTimestamp"], &["eventTime"]]) {
        _ if !series.is_empty() => series,
        last if last.is_empty() => first.clone(),
        last => last,
    };
    let count = ["count", "deprecatedCount"].iter().find_map(|f| object[*f].as_i64());
    let count = count.or_else(|| object["series"]["count"].as_i64()).unwrap_or(1);
    vec![
        json!(age::since(&last, now)),
        json!(meta::text(object, &["type"])),
        json!(meta::text(object, &["reason"])),
        json!(subject),
        json!(meta::text(about, &["fieldPath"])),
        json!(either([&["reportingComponent"], &["reportingController"], &["source", "component"]])),
        json!(either([&["message"], &["note"], &["message"]]).trim()),
        json!(age::since(&first, now)),
        json!(count),
        name(object),
    ]
}

fn entries(object: &Value) -> Value {
    let count = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    json!(count("data") + count("binaryData"))
}

fn config_map(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), entries(object), age(object, now)]
}

fn secret(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), json!(meta::text(object, &["type"])), entries(object), age(object, now)]
}

fn service_account(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), json!(meta::list(object, &["secrets"]).len()), age(object, now)]
}

fn lease(object: &Value, now: i64) -> Vec<Value> {
    vec![name(object), json!(meta::text(object, &["spec", "holderIdentity"])), age(object, now)]
}

fn budget(object: &Value, now: i64) -> Vec<Value> {
    let bound = |field: &str| match &object["spec"][field] {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    };
    let allowed = object["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
    vec![name(object), bound("minAvailable"), bound("maxUnavailable"), json!(allowed), age(object, now)]
}

fn binding(object: &Value, now: i64) -> Vec<Value> {
    let role = &object["roleRef"];
    let role = format!("{}/{}", meta::text(role, &["kind"]), meta::text(role, &["name"]));
    vec![name(object), json!(role), age(object, now)]
}

fn revision(object: &Value, now: i64) -> Vec<Value> {
    let owners = meta::list(object, &["metadata", "ownerReferences"]);
    let controller = owners.iter().find(|owner| owner["controller"] == true).map(|owner| {
        let group = meta::text(owner, &["apiVersion"]).split_once('/').map(|(group, _)| format!(".{group}"));
        let kind = meta::text(owner, &["kind"]).to_lowercase();
        format!("{kind}{}/{}", group.unwrap_or_default(), meta::text(owner, &["name"]))
    });
    let number = object["revision"].as_i64().unwrap_or_default();
    vec![name(object), json!(controller.unwrap_or_else(|| "<none>".into())), json!(number), age(object, now)]
}

fn role(object: &Value, _: i64) -> Vec<Value> {
    vec![name(object), json!(meta::text(object, &["metadata", "creationTimestamp"]))]
}
