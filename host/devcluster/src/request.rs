//! Parses a request: verb, kind, names and options. It decides nothing about objects.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::{
    failure::Failure,
    kinds::{Kind, Kinds},
    protobuf::{self, Unreadable},
    types::{self, Decoded, Struct},
};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The verbs of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// Returns the verb in RBAC's spelling.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Returns true if it may change the cluster.
    #[must_use]
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The target of a request.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) verb: Verb,
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) subresource: String,
}

/// The parameters of the query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Self(pairs.collect())
    }

    /// Returns the value; empty if it is absent.
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), "true" | "1")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, Failure> {
        match self.get(key) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Failure::bad_request(format!("invalid value for query parameter {key}: \"{text}\""))),
        }
    }

    pub(crate) fn dry_run(&self) -> bool {
        self.get("dryRun") == "All"
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        index += 1;
        match byte {
            b'+' => out.push(b' '),
            b'%' => match bytes.get(index..index + 2).and_then(|hex| std::str::from_utf8(hex).ok()) {
                Some(hex) if let Ok(value) = u8::from_str_radix(hex, 16) => {
                    out.push(value);
                    index += 2;
                }
                _ => out.push(byte),
            },
            other => out.push(other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A parsed request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// Returns the media type of the body without its parameters.
    pub(crate) fn content_type(&self) -> &str {
        self.header("content-type").split(';').next().unwrap_or_default().trim()
    }

    /// Returns the field manager: the parameter, or else the first word of the User-Agent.
    pub(crate) fn field_manager(&self) -> String {
        match self.query.get("fieldManager") {
            "" => {
                let agent = self.header("user-agent").split('/').next().unwrap_or_default();
                if agent.is_empty() { "unknown".into() } else { agent.chars().take(128).collect() }
            }
            manager => manager.to_owned(),
        }
    }

    /// Returns the body as one JSON object, parsed as YAML if the media type is YAML.
    pub(crate) fn object(&self) -> Result<Value, Failure> {
        decode_object(&self.body, self.content_type())
    }

    /// Returns the body, decoded as the type.
    pub(crate) fn decode(&self, kind: &Struct) -> Result<Decoded, Failure> {
        if !is_json(self.content_type()) {
            return types::decode(kind, &self.object()?).map_err(not_json);
        }
        let mut input = serde_json::Deserializer::from_slice(&self.body);
        let decoded = types::decode(kind, &mut input).map_err(not_json)?;
        input.end().map_err(not_json)?;
        Ok(decoded)
    }
}

fn is_json(content_type: &str) -> bool {
    content_type.is_empty() || content_type.ends_with("json")
}

fn not_json(error: serde_json::Error) -> Failure {
    Failure::bad_request(format!("error decoding JSON: {error}"))
}

fn decode_object(body: &[u8], content_type: &str) -> Result<Value, Failure> {
    let value: Value = if content_type == PROTOBUF {
        protobuf::decode(body).map_err(|unreadable| match unreadable {
            Unreadable::Kind(_) | Unreadable::Field(_) => {
                Failure::unsupported_media(&["application/json", "application/yaml"])
            }
            Unreadable::Malformed => Failure::bad_request(unreadable.to_string()),
        })?
    } else if content_type.ends_with("yaml") {
        let text = std::str::from_utf8(body).map_err(|e| Failure::bad_request(e.to_string()))?;
        serde_saphyr::from_str(text).map_err(|e| Failure::bad_request(format!("error decoding YAML: {e}")))?
    } else if is_json(content_type) {
        serde_json::from_slice(body).map_err(not_json)?
    } else {
        return Err(Failure::unsupported_media(&["application/json", "application/yaml"]));
    };
    if value.is_object() { Ok(value) } else { Err(Failure::bad_request("the body of the request is no object")) }
}

/// Returns the group of a path.
pub(crate) fn group(path: &str) -> Option<&str> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    match segments.next()? {
        "api" => Some(""),
        "apis" => segments.next(),
        _ => None,
    }
}

/// Parses a path. Returns `None` if it is not served.
pub(crate) fn route(kinds: &Kinds, method: &Method, path: &str, query: &Query) -> Option<Result<Target, Failure>> {
    let segments: Vec<String> = path.split('/').filter(|s| !s.is_empty()).map(decode).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, plural, rest) = match rest {
        ["namespaces", name] => (None, "namespaces", vec![*name]),
        ["namespaces", name, sub @ ("status" | "finalize")] => (None, "namespaces", vec![*name, *sub]),
        ["namespaces", namespace, plural, rest @ ..] => (Some((*namespace).to_owned()), *plural, rest.to_vec()),
        [plural, rest @ ..] => (None, *plural, rest.to_vec()),
        [] => return None,
    };
    let kind = kinds.find(group, version, plural)?;
    if namespace.is_some() && !kind.namespaced {
        return None;
    }
    let (name, subresource) = match rest.as_slice() {
        [] => ("", ""),
        [name] => (*name, ""),
        [name, sub] => (*name, *sub),
        _ => return None,
    };
    let known = subresource.is_empty()
        || (subresource == "status" && kind.status)
        || (subresource == "finalize" && kind.is("namespaces"))
        || kind.subresources.iter().any(|s| s.name == subresource);
    // An object of a namespaced kind is only served under its namespace.
    if !known || (!name.is_empty() && kind.namespaced && namespace.is_none()) {
        return None;
    }
    let verb = match (method.as_str(), name.is_empty()) {
        ("GET", true) if query.flag("watch") => Verb::Watch,
        ("GET", true) => Verb::List,
        ("GET", false) => Verb::Get,
        ("POST", true) => Verb::Create,
        ("POST", false) if !subresource.is_empty() => Verb::Create,
        ("PUT", false) => Verb::Update,
        ("PATCH", false) => Verb::Patch,
        ("DELETE", false) if subresource.is_empty() => Verb::Delete,
        ("DELETE", true) if kind.has_delete_collection() => Verb::DeleteCollection,
        _ => return Some(Err(Failure::method_not_allowed())),
    };
    let target = Target { verb, kind, namespace, name: name.to_owned(), subresource: subresource.to_owned() };
    Some(Ok(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(method: &str, path: &str, query: &str) -> Option<(Verb, String, Option<String>, String, String)> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let target = route(&Kinds::default(), &method, path, &Query::parse(query))?.ok()?;
        Some((target.verb, target.kind.qualified(), target.namespace, target.name, target.subresource))
    }

    #[test]
    fn paths_are_read_as_the_api_server_reads_them() {
        let shop = || Some("shop".to_owned());
        assert_eq!(
            routed("PATCH", "/api/v1/namespaces/shop/pods/a/status", ""),
            Some((Verb::Patch, "pods".into(), shop(), "a".into(), "status".into()))
        );
        assert_eq!(
            routed("GET", "/api/v1/namespaces/shop", ""),
            Some((Verb::Get, "namespaces".into(), None, "shop".into(), String::new()))
        );
        assert_eq!(
            routed("GET", "/api/v1/pods", "watch=1"),
            Some((Verb::Watch, "pods".into(), None, String::new(), String::new()))
        );
        assert_eq!(routed("GET", "/api/v1/pods/a", ""), None);
        assert_eq!(routed("GET", "/api/v1/namespaces/shop/nodes", ""), None);
        assert_eq!(routed("GET", "/apis/apps/v1/daemonsets", ""), None);
    }

    #[test]
    fn a_query_is_decoded_and_broken_escapes_stay_as_they_are() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&limit=5&x=%zz+1");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.get("x"), "%zz 1");
        assert!(Query::parse("limit=x").number("limit").is_err());
    }
}
