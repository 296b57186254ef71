//! `/debug`: the present state of runs as JSON, for people and scripts.
//!
//! The responses name Pods and plugins of all tenants. Without credentials only clients of the loopback interface get
//! them, and only under a name of that interface: a page in a browser that resolves its own name to 127.0.0.1 is
//! refused.

use std::{borrow::Cow, sync::Arc};

use axum::{
    Router,
    extract::{Path, RawQuery, Request},
    http::{HeaderMap, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
    routing::get,
};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::{PluginRuns, PluginsUsed, PodRuns, ReconcileStatus, is_loopback};

/// The state that the responses show.
pub trait Inspected: Send + Sync {
    /// Returns the runs under way, the keys that wait, and everything that is slowed.
    fn reconcile_status(&self) -> ReconcileStatus;
    /// Returns the plugins that may concern a Pod, or only the one of this name; `None` if that one is not configured.
    /// Nothing is said about a plugin of another namespace, not even that it is configured.
    fn pod(&self, namespace: &str, name: &str, plugin: Option<&str>) -> Option<PodRuns>;
    /// Returns the latest runs of the plugin of this name, `shop/hello` or `hello`; `None` if it is not configured.
    fn plugin(&self, plugin: &str) -> Option<PluginRuns>;
    /// Returns what all plugins have used.
    fn used(&self) -> PluginsUsed;
    /// Returns which replica runs the plugins of each shard of tenants; `None` without a Lease.
    fn owners(&self) -> Option<Owners>;
}

/// The response of `/debug/owners`: which replica runs which plugins, as the one that answers knows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Owners {
    /// Each replica runs the plugins of its shards; otherwise one runs all.
    pub shared: bool,
    /// The namespace of the Pods.
    pub namespace: String,
    /// The process that answers, as `holder` would name it.
    pub answers: String,
    /// By Lease.
    pub owners: Vec<Owner>,
}

/// The holder of a Lease.
#[derive(Debug, Serialize, Deserialize)]
pub struct Owner {
    /// The name of the Lease.
    pub lease: String,
    /// The numbers of the shards.
    pub shards: Vec<usize>,
    /// The process that holds it; empty if none does.
    pub holder: String,
    /// The Pod of the process; empty outside of one.
    pub pod: String,
    /// How often the Lease has changed hands.
    pub term: u32,
}

/// Returns the routes, for clients that were admitted.
pub(super) fn routes(of: Arc<dyn Inspected>) -> Router {
    let of_status = of.clone();
    let of_pod = of.clone();
    let of_plugin = of.clone();
    let of_all = of.clone();
    let of_owners = of.clone();
    let owners = move || async move { rendered_or(of_owners.owners().as_ref(), "this host runs without a Lease\n") };
    let plugin = move |name: &str| rendered(of.plugin(name).as_ref());
    let status = move || async move { rendered(Some(&of_status.reconcile_status())) };
    let pod = move |Path((namespace, name)): Path<(String, String)>, RawQuery(query): RawQuery| async move {
        match plugin_of(query.as_deref().unwrap_or_default()) {
            Ok(plugin) => rendered(of_pod.pod(&namespace, &name, plugin.as_deref()).as_ref()),
            Err(refusal) => (StatusCode::BAD_REQUEST, refusal).into_response(),
        }
    };
    let in_namespace =
        move |Path((namespace, name)): Path<(String, String)>| async move { plugin(&format!("{namespace}/{name}")) };
    Router::new()
        .route("/debug/reconcile-status", get(status))
        .route("/debug/owners", get(owners))
        .route("/debug/pods/{namespace}/{name}", get(pod))
        .route("/debug/plugins", get(move || async move { rendered(Some(&of_all.used())) }))
        .route("/debug/plugins/{namespace}/{name}", get(in_namespace))
        .route(
            "/debug/plugins/{name}",
            get(move |Path(name): Path<String>| async move { rendered(of_plugin.plugin(&name).as_ref()) }),
        )
}

/// Returns the plugin that a query names, if it names one.
fn plugin_of(query: &str) -> Result<Option<Cow<'_, str>>, &'static str> {
    if query.is_empty() {
        return Ok(None);
    }
    let plugin = query.strip_prefix("plugin=").filter(|plugin| !plugin.contains('&'));
    let plugin = plugin.and_then(|plugin| percent_decode_str(plugin).decode_utf8().ok());
    plugin.map(Some).ok_or("the only parameter is plugin, once: ?plugin=NAME\n")
}

/// Returns routes for requests to a name of the loopback interface only.
pub(super) fn local(routes: Router) -> Router {
    let require = async |headers: HeaderMap, request: Request, next: Next| {
        if !is_of_loopback(&headers) {
            let refusal = "the Host header must be localhost or a loopback address\n";
            return (StatusCode::FORBIDDEN, refusal).into_response();
        }
        next.run(request).await
    };
    routes.route_layer(from_fn(require))
}

fn rendered(answer: Option<&impl Serialize>) -> Response {
    rendered_or(answer, "no plugin of this name is configured\n")
}

fn rendered_or(answer: Option<&impl Serialize>, missing: &'static str) -> Response {
    let Some(answer) = answer else { return (StatusCode::NOT_FOUND, missing).into_response() };
    match serde_json::to_string_pretty(answer) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Returns true if the request names a host of the loopback interface, with any port.
fn is_of_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    is_loopback(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_plugin_and_nothing_else() {
        for (query, plugin) in [
            ("", None),
            ("plugin=audit", Some("audit")),
            ("plugin=shop/hello", Some("shop/hello")),
            ("plugin=shop%2Fhello", Some("shop/hello")),
        ] {
            assert_eq!(plugin_of(query).unwrap().as_deref(), plugin, "{query}");
        }
        for query in
            ["plugn=audit", "plugin", "a=b&plugin=audit", "plugin=audit&a=b", "plugin=a&plugin=b", "plugin=%ff"]
        {
            assert!(plugin_of(query).is_err(), "{query}");
        }
    }

    #[test]
    fn only_names_of_the_loopback_interface_are_accepted_as_host() {
        let of = |hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.parse().unwrap());
            }
            is_of_loopback(&headers)
        };
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.0.0.1", "127.8.8.8:1", "[::1]:8080", "[::1]"]
        {
            assert!(of(&[host]), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
        ] {
            assert!(!of(&[host]), "{host}");
        }
        assert!(!of(&[]) && !of(&["localhost", "evil.example"]));
    }
}
