//! OpenAPI documents. Version 3 has the fields and types of the served kinds, without descriptions: kubectl uses it
//! for `explain`, and to find out that the server validates fields. Version 2 has no definitions, so that kubectl
//! leaves validation and patches to the server.

use axum::body::Body;
use http::Response;
use serde_json::{Map, Value, json};

use crate::{
    kinds::{Kind, Kinds},
    meta,
    service::{json, typed},
    types::{Struct, Type},
};

/// The served version of the API.
const VERSION: &str = "v1.36.3";
const TITLE: &str = "Kubernetes";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// Clients request the older spelling, which is not a valid media type, so no server answers with it.
const PROTOBUF_ASKED: [&str; 2] = [PROTOBUF, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"];

/// Returns the document at `/openapi/` and these segments; `None` if there is none.
pub(crate) fn answer(kinds: &Kinds, segments: &[&str], accept: &str) -> Option<Response<Body>> {
    let document = match segments {
        // The real server does not set the content type of JSON here.
        ["v3"] => return Some(typed(200, "text/plain; charset=utf-8", index(kinds).to_string())),
        ["v2"] if accept.split([',', ';']).any(|offer| PROTOBUF_ASKED.contains(&offer.trim())) => {
            return Some(typed(200, PROTOBUF, v2_protobuf()));
        }
        ["v2"] => json!({"swagger": "2.0", "info": {"title": TITLE, "version": VERSION}, "paths": {}}),
        ["v3", "api", version] => document(kinds, "", version)?,
        ["v3", "apis", group, version] => document(kinds, group, version)?,
        _ => return None,
    };
    Some(json(200, document.to_string()))
}

/// Returns a `Document` of version 2 in protobuf: `swagger` (field 1) and `info` (field 2).
fn v2_protobuf() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
        let mut out = vec![number << 3 | 2, length];
        out.extend_from_slice(bytes);
        out
    };
    let info = [field(1, TITLE.as_bytes()), field(2, VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info)].concat()
}

fn index(kinds: &Kinds) -> Value {
    let paths: Map<String, Value> = kinds
        .iter()
        .map(|kind| {
            let prefix = if kind.group.is_empty() { "api" } else { "apis" };
            let path = format!("{prefix}/{}", kind.api_version());
            let url = format!("/openapi/v3/{path}?hash=podium");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// Returns the document of one group and version.
fn document(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    let mut schemas = Schemas::default();
    for kind in kinds.iter().filter(|k| k.group == group && k.version == version) {
        path(kind, &mut paths);
        schemas.add_kind(kind);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas.done()},
    }))
}

/// Adds the path of one object. kubectl recognises by the parameter `fieldValidation` that the server validates
/// fields.
fn path(kind: &Kind, paths: &mut Map<String, Value>) {
    let prefix = if kind.group.is_empty() { "/api" } else { "/apis" };
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let all = format!("{prefix}/{}{scope}/{}", kind.api_version(), kind.plural);
    let operation = |action: &str| {
        json!({
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": group_version_kind(kind),
        })
    };
    if kind.review {
        paths.insert(all, json!({"post": operation("post")}));
        return;
    }
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let mut patch = operation("patch");
    patch["parameters"] = json!([parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")]);
    patch["requestBody"] = json!({"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}});
    paths.insert(format!("{all}/{{name}}"), json!({"get": operation("get"), "patch": patch}));
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// The schemas of a document: those of its kinds and of every type that one of them refers to.
#[derive(Default)]
struct Schemas {
    schemas: Map<String, Value>,
    referred: Vec<&'static str>,
}

impl Schemas {
    fn add_kind(&mut self, kind: &Kind) {
        let shape = Struct::for_kind(kind);
        let (name, mut schema) = if kind.custom {
            let words: Vec<&str> = kind.group.rsplit('.').collect();
            let mut schema = kind.schema.as_deref().cloned().unwrap_or_else(|| json!({"type": "object"}));
            let own = self.of_struct(shape);
            for field in ["apiVersion", "kind", "metadata"] {
                meta::set(&mut schema, &["properties", field], own["properties"][field].clone());
            }
            (format!("{}.{}.{}", words.join("."), kind.version, kind.kind), schema)
        } else {
            (full_name(shape.name), self.of_struct(shape))
        };
        schema["x-kubernetes-group-version-kind"] = json!([group_version_kind(kind)]);
        self.schemas.insert(name, schema);
    }

    fn done(mut self) -> Map<String, Value> {
        while let Some(name) = self.referred.pop() {
            let full = full_name(name);
            if !self.schemas.contains_key(&full) {
                let schema = match name {
                    "resource.Quantity" => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
                    "intstr.IntOrString" => {
                        json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
                    }
                    "meta.Time" | "meta.MicroTime" => json!({"type": "string", "format": "date-time"}),
                    name => self.of_struct(Struct::named(name)),
                };
                self.schemas.insert(full, schema);
            }
        }
        self.schemas
    }

    fn of_struct(&mut self, shape: &Struct) -> Value {
        let properties: Map<String, Value> =
            shape.fields.iter().map(|field| (field.name.to_owned(), self.of_type(&field.kind))).collect();
        let required: Vec<&str> = shape.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let mut schema = json!({"type": "object"});
        if !properties.is_empty() {
            schema["properties"] = json!(properties);
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }

    fn of_type(&mut self, kind: &Type) -> Value {
        match kind {
            Type::Bool => json!({"type": "boolean"}),
            Type::String(_) => json!({"type": "string"}),
            Type::Int32 => json!({"type": "integer", "format": "int32"}),
            Type::Int64 => json!({"type": "integer", "format": "int64"}),
            Type::Float64 => json!({"type": "number", "format": "double"}),
            Type::Bytes => json!({"type": "string", "format": "byte"}),
            Type::Any => json!({"type": "object"}),
            Type::Time => self.refer("meta.Time"),
            Type::MicroTime => self.refer("meta.MicroTime"),
            Type::Quantity => self.refer("resource.Quantity"),
            Type::IntOrString => self.refer("intstr.IntOrString"),
            Type::Struct(name) => self.refer(name),
            Type::List(element, _) => json!({"type": "array", "items": self.of_type(element)}),
            Type::Map(element, _) => json!({"type": "object", "additionalProperties": self.of_type(element)}),
        }
    }

    fn refer(&mut self, name: &'static str) -> Value {
        self.referred.push(name);
        json!({"allOf": [{"$ref": format!("#/components/schemas/{}", full_name(name))}]})
    }
}

/// Returns the name of a Go type in OpenAPI.
fn full_name(name: &str) -> String {
    let (group, short) = name.split_once('.').unwrap_or(("", name));
    match group {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{short}"),
        "resource" => format!("io.k8s.apimachinery.pkg.api.resource.{short}"),
        "intstr" => format!("io.k8s.apimachinery.pkg.util.intstr.{short}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.{short}"),
        group => format!("io.k8s.api.{group}.v1.{short}"),
    }
}
