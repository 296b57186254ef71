//! OpenAPI: the media types that kubectl depends on, and the fields of all types of the served kinds. Bodies of
//! subresources (Binding, Eviction) are not in the documents of devcluster.

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::conformance::exchange::{Call, Exchange};

const CORE: &str = "/openapi/v3/api/v1";
/// Documents, and the first schemas in each.
const ROOTS: &[(&str, &[&str])] = &[
    (
        CORE,
        &[
            "io.k8s.api.core.v1.ConfigMap",
            "io.k8s.api.core.v1.Event",
            "io.k8s.api.core.v1.Namespace",
            "io.k8s.api.core.v1.Node",
            "io.k8s.api.core.v1.Pod",
            "io.k8s.api.core.v1.Secret",
            "io.k8s.api.core.v1.ServiceAccount",
        ],
    ),
    (
        "/openapi/v3/apis/apiextensions.k8s.io/v1",
        &["io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"],
    ),
    ("/openapi/v3/apis/coordination.k8s.io/v1", &["io.k8s.api.coordination.v1.Lease"]),
    ("/openapi/v3/apis/events.k8s.io/v1", &["io.k8s.api.events.v1.Event"]),
    ("/openapi/v3/apis/policy/v1", &["io.k8s.api.policy.v1.PodDisruptionBudget"]),
    (
        "/openapi/v3/apis/rbac.authorization.k8s.io/v1",
        &[
            "io.k8s.api.rbac.v1.ClusterRole",
            "io.k8s.api.rbac.v1.ClusterRoleBinding",
            "io.k8s.api.rbac.v1.Role",
            "io.k8s.api.rbac.v1.RoleBinding",
        ],
    ),
];

pub(crate) async fn documents(x: &mut Exchange) -> Result<()> {
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    x.media_type("version 2 as kubectl asks for it", Call::get("/openapi/v2").accept(protobuf)).await?;
    x.media_type("version 2 as JSON", Call::get("/openapi/v2")).await?;
    x.media_type("version 3", Call::get("/openapi/v3")).await?;
    x.media_type("version 3 of a group", Call::get(CORE)).await?;
    for (path, roots) in ROOTS {
        let document = x.look(Call::get(*path)).await?;
        let mut names: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
        let mut at = 0;
        while let Some(name) = names.get(at).cloned() {
            at += 1;
            let schema = &document["components"]["schemas"][&name];
            let shown = fields(schema, &document, &mut names);
            let kinds = &schema["x-kubernetes-group-version-kind"];
            // On the real server, shared types list all kinds that use them.
            let kinds = if name.contains("apimachinery") { &Value::Null } else { kinds };
            x.note(&format!("{path} {name}"), format!("{kinds:#}\n{:#}", Value::Object(shown)));
        }
    }
    Ok(())
}

/// Returns the fields of an object and their types, and adds the types that it refers to to `names`.
fn fields(schema: &Value, document: &Value, names: &mut Vec<String>) -> Map<String, Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    properties
        .into_iter()
        .map(|(name, property)| {
            let mark = if required.iter().any(|required| *required == name) { " (required)" } else { "" };
            let shown = kind(&property, document, names);
            (name, json!(format!("{shown}{mark}")))
        })
        .collect()
}

fn kind(schema: &Value, document: &Value, names: &mut Vec<String>) -> String {
    let reference = schema["allOf"][0]["$ref"].as_str().or(schema["$ref"].as_str());
    if let Some(name) = reference.and_then(|reference| reference.rsplit('/').next()) {
        let referred = &document["components"]["schemas"][name];
        if !referred["properties"].is_object() {
            return kind(referred, document, names);
        }
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        return name.to_owned();
    }
    if schema["items"].is_object() {
        return format!("[{}]", kind(&schema["items"], document, names));
    }
    if schema["additionalProperties"].is_object() {
        return format!("{{{}}}", kind(&schema["additionalProperties"], document, names));
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (None | Some("object"), None) if schema["oneOf"].is_null() => "any".to_owned(),
        (kind, format) => format!("{} {} {}", kind.unwrap_or_default(), format.unwrap_or_default(), schema["oneOf"]),
    }
}
