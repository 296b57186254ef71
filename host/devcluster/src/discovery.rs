//! Discovery: versions, groups, resources (in the old form and aggregated), and health.

use std::{collections::BTreeMap, sync::Arc};

use axum::body::Body;
use http::Response;
use serde_json::{Value, json};

use crate::{
    kinds::{Kind, Kinds},
    openapi,
    service::{json, text_plain, typed},
};

const READ_WRITE: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS: [&str; 3] = ["get", "patch", "update"];

/// Returns the response, or `None` if the path is not served.
pub(crate) fn answer(kinds: &Kinds, path: &str, accept: &str) -> Option<Response<Body>> {
    let aggregated = accept.contains("g=apidiscovery.k8s.io") && accept.contains("v=v2;");
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    let value = match segments.as_slice() {
        ["api" | "apis"] if aggregated => {
            let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            return Some(typed(200, media, aggregate(kinds, path.starts_with("/apis")).to_string()));
        }
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        }),
        ["apis"] => {
            let groups: Vec<Value> = groups(kinds).iter().map(|(name, kinds)| group(name, kinds)).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => {
            let groups = groups(kinds);
            let mut found = group(name, groups.get(*name)?);
            found["kind"] = json!("APIGroup");
            found["apiVersion"] = json!("v1");
            found
        }
        ["api", version] => resources(kinds, "", version)?,
        ["apis", group, version] => resources(kinds, group, version)?,
        ["version"] => version(),
        ["healthz" | "livez" | "readyz"] => return Some(text_plain("ok".into())),
        ["openapi", rest @ ..] => return openapi::answer(kinds, rest, accept),
        _ => return None,
    };
    Some(json(200, value.to_string()))
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "podium/devcluster",
    })
}

/// Returns all groups except the core one, each with its kinds.
fn groups(kinds: &Kinds) -> BTreeMap<String, Vec<Arc<Kind>>> {
    let mut groups: BTreeMap<String, Vec<Arc<Kind>>> = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        groups.entry(kind.group.clone()).or_default().push(kind.clone());
    }
    groups
}

fn versions(kinds: &[Arc<Kind>]) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for kind in kinds {
        if !versions.contains(&kind.version) {
            versions.push(kind.version.clone());
        }
    }
    // Stable versions before beta before alpha, because kubectl prefers the first.
    versions.sort_by_key(|v| (v.contains("alpha"), v.contains("beta"), std::cmp::Reverse(v.clone())));
    versions
}

fn group(name: &str, kinds: &[Arc<Kind>]) -> Value {
    let versions: Vec<Value> =
        versions(kinds).into_iter().map(|v| json!({"groupVersion": format!("{name}/{v}"), "version": v})).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    if kind.review {
        return vec!["create"];
    }
    READ_WRITE.into_iter().filter(|verb| *verb != "deletecollection" || kind.has_delete_collection()).collect()
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for kind in kinds.iter().filter(|k| k.group == group && k.version == version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        list.push(entry);
        if kind.status {
            list.push(json!({
                "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": STATUS,
            }));
        }
        for sub in &kind.subresources {
            list.push(json!({
                "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced,
                "group": sub.group_version.0, "version": sub.group_version.1, "kind": sub.kind, "verbs": sub.verbs,
            }));
        }
    }
    if list.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list,
    }))
}

fn aggregate(kinds: &Kinds, named_groups: bool) -> Value {
    let groups: Vec<(String, Vec<Arc<Kind>>)> = if named_groups {
        groups(kinds).into_iter().collect()
    } else {
        vec![(String::new(), kinds.iter().filter(|k| k.group.is_empty()).cloned().collect())]
    };
    let items: Vec<Value> = groups
        .iter()
        .map(|(name, kinds)| {
            let versions: Vec<Value> = versions(kinds)
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        kinds.iter().filter(|k| k.version == version).map(|k| aggregated_resource(k)).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let own = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let mut subresources = Vec::new();
    if kind.status {
        subresources.push(json!({"subresource": "status", "responseKind": own, "verbs": STATUS}));
    }
    for sub in &kind.subresources {
        let (group, version) = sub.group_version;
        subresources.push(json!({
            "subresource": sub.name, "verbs": sub.verbs,
            "responseKind": {"group": group, "version": version, "kind": sub.kind},
        }));
    }
    let mut resource = json!({
        "resource": kind.plural, "responseKind": own, "singularResource": kind.singular, "verbs": verbs(kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
    });
    for (field, list) in [("shortNames", json!(kind.short_names)), ("categories", json!(kind.categories))] {
        if list.as_array().is_some_and(|l| !l.is_empty()) {
            resource[field] = list;
        }
    }
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}
