//! The subresource `scale`: the size of a Deployment, ReplicaSet or StatefulSet as an autoscaling/v1 Scale.

use serde_json::{Value, json};

use crate::{
    failure::{Cause, Failure},
    meta,
    selector::Labels,
};

/// Returns the Scale of an object.
pub(crate) fn shown(object: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        meta::copy(&object["metadata"], &mut metadata, &[field]);
    }
    let replicas = |part: &str| meta::at(object, &[part, "replicas"]).and_then(Value::as_i64).unwrap_or_default();
    let mut status = json!({"replicas": replicas("status")});
    let selector = Labels::of_object(&object["spec"]["selector"]).to_string();
    if !selector.is_empty() {
        meta::set(&mut status, &["selector"], selector);
    }
    let mut spec = json!({});
    if replicas("spec") != 0 {
        meta::set(&mut spec, &["replicas"], replicas("spec"));
    }
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status})
}

/// Returns the object with the size and the revision of a Scale.
pub(crate) fn scaled(object: &Value, scale: &Value) -> Result<Value, Failure> {
    if meta::text(scale, &["kind"]) != "Scale" {
        return Err(Failure::bad_request("the object of the subresource scale is no Scale"));
    }
    let mut new = object.clone();
    let replicas = meta::at(scale, &["spec", "replicas"]).and_then(Value::as_i64).unwrap_or_default();
    meta::set(&mut new, &["spec", "replicas"], replicas);
    if replicas < 0 {
        let detail = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", &replicas.into(), detail);
        return Err(Failure::invalid_of("autoscaling", "Scale", meta::name(object), &[cause]));
    }
    let revision = meta::revision(scale);
    if !revision.is_empty() {
        meta::set(&mut new, &["metadata", "resourceVersion"], revision);
    }
    Ok(new)
}
