//! Rules of the kinds with a template of Pods: Deployments, ReplicaSets, StatefulSets, Jobs.

use serde_json::{Value, json};

use super::pods;
use crate::{failure::Cause, kinds::Kind, meta, selector::Labels};

/// The fields of a StatefulSet that an update may change.
const SET_UPDATABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
/// Labels of a Job's Pods: with its name, and with its uid.
const JOB_NAME: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];
const JOB_UID: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];

const TEMPLATE_LABELS: [&str; 3] = ["template", "metadata", "labels"];

/// Sets the defaults of the types.
pub(super) fn default_spec(kind: &Kind, object: &mut Value) {
    pods::default_template(meta::object(&mut object["spec"]).entry("template").or_insert(Value::Null));
    let defaults: &[(&str, Value)] = &match kind.kind.as_str() {
        "Deployment" => vec![
            ("replicas", json!(1)),
            ("strategy.type", json!("RollingUpdate")),
            ("revisionHistoryLimit", json!(10)),
            ("progressDeadlineSeconds", json!(600)),
        ],
        "StatefulSet" => vec![
            ("replicas", json!(1)),
            ("podManagementPolicy", json!("OrderedReady")),
            ("revisionHistoryLimit", json!(10)),
            ("persistentVolumeClaimRetentionPolicy.whenDeleted", json!("Retain")),
            ("persistentVolumeClaimRetentionPolicy.whenScaled", json!("Retain")),
        ],
        "Job" => vec![
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
            ("manualSelector", json!(false)),
        ],
        _ => vec![("replicas", json!(1))],
    };
    let spec = &mut object["spec"];
    for (path, value) in defaults {
        meta::default(spec, &path.split('.').collect::<Vec<_>>(), value.clone());
    }
    match kind.kind.as_str() {
        "Deployment" if spec["strategy"]["type"] == "RollingUpdate" => {
            for bound in ["maxUnavailable", "maxSurge"] {
                meta::default(spec, &["strategy", "rollingUpdate", bound], "25%");
            }
        }
        "StatefulSet" => {
            if meta::text(spec, &["updateStrategy", "type"]).is_empty() {
                meta::set(spec, &["updateStrategy", "type"], "RollingUpdate");
                meta::default(spec, &["updateStrategy", "rollingUpdate"], json!({}));
            }
            if meta::at(spec, &["updateStrategy", "rollingUpdate"]).is_some() {
                meta::default(spec, &["updateStrategy", "rollingUpdate", "partition"], 0);
            }
        }
        "Job" => {
            if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
                meta::set(spec, &["completions"], 1);
            }
            meta::default(spec, &["parallelism"], 1);
            let labels = spec["template"]["metadata"]["labels"].clone();
            if labels.is_object() && object["metadata"]["labels"].is_null() {
                meta::set(object, &["metadata", "labels"], labels);
            }
        }
        _ => {}
    }
}

/// Sets the fields that the server itself sets: the counts that a status always has, and the selector of a Job.
/// `uid` is the object's.
pub(super) fn prepare_create(kind: &Kind, object: &mut Value, uid: &str) {
    match kind.kind.as_str() {
        "ReplicaSet" => meta::set(object, &["status"], json!({"replicas": 0})),
        "StatefulSet" => meta::set(object, &["status"], json!({"replicas": 0, "availableReplicas": 0})),
        "Job" if object["spec"]["manualSelector"] != true => {
            let name = meta::name(object).to_owned();
            // Labels that are the default, which is those of the template, get these too.
            let shared = meta::at(object, &["metadata", "labels"]) == meta::at(&object["spec"], &TEMPLATE_LABELS);
            for (labels, value) in [(JOB_NAME, name.as_str()), (JOB_UID, uid)] {
                for label in labels {
                    meta::default(&mut object["spec"], &["template", "metadata", "labels", label], value);
                }
            }
            if shared && object["metadata"]["labels"].is_object() {
                let labels = object["spec"]["template"]["metadata"]["labels"].clone();
                meta::set(object, &["metadata", "labels"], labels);
            }
            meta::default(&mut object["spec"], &["selector", "matchLabels", JOB_UID[0]], uid);
        }
        _ => {}
    }
}

pub(super) fn check(kind: &Kind, object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let count = |field: &str, causes: &mut Vec<Cause>| {
        if let Some(number) = spec.get(field)
            && number.as_i64().is_none_or(|number| number < 0)
        {
            causes.push(Cause::invalid(format!("spec.{field}"), number, "must be greater than or equal to 0"));
        }
    };
    for field in ["replicas", "minReadySeconds"] {
        count(field, causes);
    }
    check_selector(kind, spec, causes);
    let mut inner = Vec::new();
    pods::check_create(&spec["template"], &mut inner);
    causes.extend(inner.into_iter().map(|cause| cause.within("spec.template")));
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let field = "spec.template.spec.restartPolicy";
    match kind.kind.as_str() {
        "Job" if *policy == "Always" => {
            causes.push(Cause::required(field, "valid values: \"OnFailure\", \"Never\""));
        }
        "Job" => {}
        _ if matches!(policy.as_str(), Some("OnFailure" | "Never")) => {
            causes.push(Cause::unsupported(field, policy, &["Always"]));
        }
        _ => {}
    }
    for field in ["revisionHistoryLimit", "progressDeadlineSeconds", "parallelism", "completions", "backoffLimit"] {
        count(field, causes);
    }
    if kind.kind == "Deployment" {
        check_strategy(&spec["strategy"], causes);
    }
}

fn check_selector(kind: &Kind, spec: &Value, causes: &mut Vec<Cause>) {
    let selector = &spec["selector"];
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    }
    let empty = ["matchLabels", "matchExpressions"].iter().all(|field| match &selector[*field] {
        Value::Object(labels) => labels.is_empty(),
        Value::Array(expressions) => expressions.is_empty(),
        _ => true,
    });
    if empty && !selector.is_null() {
        let named = if kind.kind == "StatefulSet" { "statefulset" } else { "deployment" };
        causes.push(Cause::invalid("spec.selector", selector, &format!("empty selector is invalid for {named}")));
    } else if empty || !Labels::of_object(selector).matches(&spec["template"]) {
        let labels = meta::at(spec, &TEMPLATE_LABELS).unwrap_or(&Value::Null);
        let detail = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", labels, detail));
    }
}

fn check_strategy(strategy: &Value, causes: &mut Vec<Cause>) {
    let rolling = strategy.get("rollingUpdate");
    match meta::text(strategy, &["type"]) {
        "Recreate" if rolling.is_some() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            causes.push(Cause::forbidden("spec.strategy.rollingUpdate", detail));
        }
        "RollingUpdate" => {
            let none = |bound: &str| rolling.is_some_and(|rolling| rolling[bound] == 0 || rolling[bound] == "0%");
            if none("maxUnavailable") && none("maxSurge") {
                let value = &strategy["rollingUpdate"]["maxUnavailable"];
                let field = "spec.strategy.rollingUpdate.maxUnavailable";
                causes.push(Cause::invalid(field, value, "may not be 0 when `maxSurge` is 0"));
            }
        }
        "Recreate" => {}
        _ => causes.push(Cause::unsupported("spec.strategy", strategy, &["Recreate", "RollingUpdate"])),
    }
}

pub(super) fn check_update(kind: &Kind, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    check(kind, new, causes);
    let before = &old["spec"];
    let after = &new["spec"];
    let fixed: &[&str] = match kind.kind.as_str() {
        "Job" => &["completions", "selector", "template", "completionMode", "podFailurePolicy", "successPolicy"],
        "StatefulSet" => &[],
        _ => &["selector"],
    };
    for field in fixed.iter().filter(|field| before.get(**field) != after.get(**field)) {
        causes.push(Cause::invalid(format!("spec.{field}"), &after[*field], "field is immutable"));
    }
    if kind.kind == "StatefulSet" {
        let mut allowed = after.clone();
        for field in SET_UPDATABLE {
            meta::copy(before, &mut allowed, &[field]);
        }
        if allowed != *before {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                'minReadySeconds' are forbidden";
            causes.push(Cause::forbidden("spec", detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;

    #[test]
    fn a_selector_must_select_the_template_and_stays() {
        let kind = Kinds::default().find("apps", "v1", "deployments").unwrap();
        let deployment = |selector: Value, labels: Value| {
            let template = json!({
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x/y:1"}]},
            });
            let mut object = json!({"spec": {"selector": selector, "template": template}});
            default_spec(&kind, &mut object);
            object
        };
        let causes = |object: &Value| {
            let mut causes = Vec::new();
            check(&kind, object, &mut causes);
            causes.iter().map(|cause| cause.field().to_owned()).collect::<Vec<_>>()
        };
        let web = json!({"matchLabels": {"app": "web"}});
        let good = deployment(web.clone(), json!({"app": "web"}));
        assert!(causes(&good).is_empty());
        assert_eq!(causes(&deployment(web, json!({"app": "db"}))), ["spec.template.metadata.labels"]);
        let both = ["spec.selector", "spec.template.metadata.labels"];
        assert_eq!(causes(&deployment(Value::Null, json!({"app": "web"}))), both);
        assert_eq!(causes(&deployment(json!({}), json!({"app": "web"}))), ["spec.selector"]);
        let other = deployment(json!({"matchLabels": {"tier": "front"}}), json!({"app": "web", "tier": "front"}));
        let mut found = Vec::new();
        check_update(&kind, &good, &other, &mut found);
        assert_eq!(found.iter().map(Cause::field).collect::<Vec<_>>(), ["spec.selector"]);
    }
}
