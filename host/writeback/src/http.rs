//! Requests of the plan as HTTP requests: paths, queries, headers and bodies in the form that the API server expects.
//! Pure; a request that cannot be encoded returns an error with its reason.

use http::Method;
use podium_api::{METADATA, in_query, plugin_user_agent, resource_path};
use podium_engine::ports::Sender;
use podium_vocabulary::{ObjectRef, PodKey};
use podium_wire::Condition;
use serde_json::{Map, Value, json};

use super::{SERVER_TIMEOUT, plan::MetaPatch};

const MERGE: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";

pub(super) type Request = http::Request<Vec<u8>>;

/// Returns a request. `path` consists of names that `authz` accepted.
fn request(method: Method, path: String, content: &str, body: &Value, sender: &Sender) -> Result<Request, http::Error> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = http::Request::builder().method(method).uri(path);
    if let Some(user) = &sender.impersonate {
        request = request.header("impersonate-user", user);
    }
    request = request.header(http::header::USER_AGENT, plugin_user_agent(sender.plugin()));
    let body = if content == APPLY { as_yaml(&body) } else { body };
    request.header(http::header::CONTENT_TYPE, content).body(body.into_bytes())
}

/// Escapes JSON for the API server's YAML reader. Outside ASCII it refuses some characters and changes others, such
/// as U+0085, so these are escaped. Characters above U+FFFF stay as they are, because it refuses the surrogate pairs
/// of JSON.
fn as_yaml(json: &str) -> String {
    let mut yaml = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\u{7f}'..='\u{ffff}' => {
                yaml.push_str("\\u");
                let code = u32::from(character);
                yaml.extend([12, 8, 4, 0].into_iter().filter_map(|shift| char::from_digit(code >> shift & 0xf, 16)));
            }
            _ => yaml.push(character),
        }
    }
    yaml
}

fn pod_path(key: &PodKey) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", key.namespace, key.name)
}

/// Returns the path of an object of another kind. The resource comes from the grant and not from API discovery, so
/// that a write reaches the granted resource, and plugins need no right to discover kinds.
pub(super) fn object_path(object: &ObjectRef) -> String {
    let ObjectRef { api_version, kind: _, resource, namespace, name } = object;
    format!("{}/{name}", resource_path(api_version, namespace.as_deref(), resource))
}

/// Returns the query of a write. The API server aborts a write that takes longer and answers 504. A write that only
/// the client gave up on might still be executed.
fn timeout() -> String {
    format!("timeout={}s", SERVER_TIMEOUT.as_secs())
}

/// Returns the query of a write with a field manager.
fn manager(sender: &Sender) -> String {
    format!("fieldManager={}&{}", in_query(&sender.manager), timeout())
}

/// Returns a read as the host's own account, because the plugin does not see the Pod that is read to determine a
/// write's result.
pub(super) fn get_pod(key: &PodKey) -> Result<Request, http::Error> {
    http::Request::get(pod_path(key)).body(Vec::new())
}

pub(super) fn get(path: &str, sender: &Sender) -> Result<Request, http::Error> {
    request(Method::GET, path.to_owned(), JSON, &Value::Null, sender)
}

/// Returns a read of an object's metadata.
pub(super) fn get_metadata(path: &str, sender: &Sender) -> Result<Request, http::Error> {
    get(path, sender).map(only_metadata)
}

/// Requests the object's metadata only. A server without this form answers with the whole object.
fn only_metadata(mut request: Request) -> Request {
    let accepted = http::HeaderValue::from_static(METADATA);
    request.headers_mut().insert(http::header::ACCEPT, accepted);
    request
}

pub(super) fn patch_meta(key: &PodKey, patch: &MetaPatch, sender: &Sender) -> Result<Request, http::Error> {
    let MetaPatch { labels, annotations, add_finalizers, remove_finalizers } = patch;
    let mut metadata = Map::new();
    metadata.insert("uid".into(), json!(*key.uid));
    if !labels.is_empty() {
        metadata.insert("labels".into(), json!(labels));
    }
    if !annotations.is_empty() {
        metadata.insert("annotations".into(), json!(annotations));
    }
    if !add_finalizers.is_empty() {
        metadata.insert("finalizers".into(), json!(add_finalizers));
    }
    if !remove_finalizers.is_empty() {
        metadata.insert("$deleteFromPrimitiveList/finalizers".into(), json!(remove_finalizers));
    }
    let path = format!("{}?{}", pod_path(key), manager(sender));
    request(Method::PATCH, path, MERGE, &json!({ "metadata": metadata }), sender).map(only_metadata)
}

/// The body only contains the uid and the conditions, because /status would also change labels and finalizers.
pub(super) fn patch_status<'a>(
    key: &PodKey,
    conditions: impl IntoIterator<Item = (&'a String, &'a Option<Condition>)>,
    sender: &Sender,
) -> Result<Request, http::Error> {
    let conditions: Vec<Value> = conditions.into_iter().map(|(name, wanted)| condition(name, wanted)).collect();
    let body = json!({ "metadata": { "uid": *key.uid }, "status": { "conditions": conditions } });
    let path = format!("{}/status?{}", pod_path(key), manager(sender));
    request(Method::PATCH, path, MERGE, &body, sender).map(only_metadata)
}

fn condition(condition_type: &str, wanted: &Option<Condition>) -> Value {
    let Some(wanted) = wanted else { return json!({ "type": condition_type, "$patch": "delete" }) };
    // Empty strings are sent, because a merge patch keeps fields that it does not name.
    json!({
        "type": condition_type,
        "status": wanted.status.as_str(),
        "reason": wanted.reason.as_deref().unwrap_or_default(),
        "message": wanted.message.as_deref().unwrap_or_default(),
        "lastTransitionTime": wanted.last_transition_time.map(|time| time.to_string()),
    })
}

fn delete_options(uid: Option<&str>, grace_seconds: Option<u32>) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    if let Some(uid) = uid {
        options["preconditions"] = json!({ "uid": uid });
    }
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    options
}

pub(super) fn delete(key: &PodKey, grace_seconds: Option<u32>, sender: &Sender) -> Result<Request, http::Error> {
    request(
        Method::DELETE,
        format!("{}?{}", pod_path(key), timeout()),
        JSON,
        &delete_options(Some(&key.uid), grace_seconds),
        sender,
    )
}

pub(super) fn evict(key: &PodKey, sender: &Sender) -> Result<Request, http::Error> {
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "namespace": *key.namespace, "name": *key.name },
        "deleteOptions": { "preconditions": { "uid": *key.uid } },
    });
    request(Method::POST, format!("{}/eviction?{}", pod_path(key), timeout()), JSON, &body, sender)
}

/// Returns an apply. Without `force` a field of another manager makes it fail, with `force` it is taken.
pub(super) fn apply(path: &str, body: &Value, force: bool, sender: &Sender) -> Result<Request, http::Error> {
    request(Method::PATCH, format!("{path}?{}&force={force}", manager(sender)), APPLY, body, sender)
}

/// Without `Background` some kinds would orphan their dependents.
pub(super) fn delete_object(path: &str, uid: Option<&str>, sender: &Sender) -> Result<Request, http::Error> {
    let mut options = delete_options(uid, None);
    options["propagationPolicy"] = json!("Background");
    request(Method::DELETE, format!("{path}?{}", timeout()), JSON, &options, sender)
}

pub(super) fn create(path: &str, body: &Value, sender: &Sender) -> Result<Request, http::Error> {
    request(Method::POST, format!("{path}?{}", manager(sender)), JSON, body, sender)
}

pub(super) fn merge(path: &str, body: &Value, sender: &Sender) -> Result<Request, http::Error> {
    request(Method::PATCH, format!("{path}?{}", manager(sender)), "application/merge-patch+json", body, sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_object_is_of_its_group_namespace_and_resource() {
        let path = |api_version: &str, resource: &str, namespace: Option<&str>| {
            object_path(&ObjectRef {
                api_version: api_version.into(),
                kind: "Any".into(),
                resource: resource.into(),
                namespace: namespace.map(Into::into),
                name: "a".into(),
            })
        };
        assert_eq!(path("v1", "configmaps", Some("shop")), "/api/v1/namespaces/shop/configmaps/a");
        assert_eq!(path("v1", "namespaces", None), "/api/v1/namespaces/a");
        assert_eq!(path("apps/v1", "deployments", Some("shop")), "/apis/apps/v1/namespaces/shop/deployments/a");
        assert_eq!(path("shop.example/v1", "carts", None), "/apis/shop.example/v1/carts/a");
    }

    #[test]
    fn an_applied_body_is_equal_as_yaml_and_as_json() {
        let value = json!({ "a": "\u{85}\u{7f}\u{fffe}\u{feff}\u{2028}\u{e9}\u{1f600}\"\\\n" });
        let yaml = as_yaml(&value.to_string());
        assert_eq!(yaml, "{\"a\":\"\\u0085\\u007f\\ufffe\\ufeff\\u2028\\u00e9\u{1f600}\\\"\\\\\\n\"}");
        assert_eq!(serde_json::from_str::<Value>(&yaml).unwrap(), value);
    }
}
