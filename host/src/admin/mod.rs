//! The host's own HTTP endpoints: probes (`/healthz`, `/readyz`) on one port, `/metrics` on another.
//!
//! The port of probes does not authenticate its clients: the kubelet must reach it, so its responses name no Pod. The
//! port of metrics has two forms. [`reviewed_metrics`] is for every address: over TLS, and for clients that the API
//! server admits. [`metrics`] has no credentials and no TLS, for the loopback interface; `/debug` is then for clients
//! of that interface only, wherever the port listens.

mod address;
mod debug;
mod pprof;
mod readiness;
mod reconcile_status;
mod reviewer;
mod runs;
mod server;
mod zpages;

pub use address::{AddressError, ListenAddress, is_loopback};
pub use debug::{Inspected, Owner, Owners};
pub use pprof::{Profile, Profiles, SAMPLES_HEADER, Unprofiled};
pub use readiness::{Check, Readiness};
pub use reconcile_status::{
    ActiveRun, CacheSize, Closed, ENTRIES, Held, Listed, Loop, Panic, ReconcileStatus, TEXT, Tenant,
};
pub use reviewer::Reviewer;
pub use runs::{PluginOnPod, PluginRuns, PluginUsed, PluginsUsed, PodRuns, Run, RunWrite, WhyNot};
pub use server::{Bound, bind};
pub use zpages::Process;

use std::sync::Arc;

use axum::{
    Router,
    extract::RawQuery,
    http::{StatusCode, header},
    middleware::from_fn_with_state,
    response::IntoResponse,
    routing::get,
};
use tokio_rustls::rustls::ServerConfig;

use crate::telemetry::Metrics;

/// Returns the readiness of the host now.
pub type ReadinessNow = Arc<dyn Fn() -> Readiness + Send + Sync>;
/// Returns why the host should be restarted, or `None`.
pub type DeadNow = Arc<dyn Fn() -> Option<String> + Send + Sync>;
/// Returns the certificate and the protocol versions for the next connection.
pub type TlsNow = Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>;

/// The most concurrent connections to the probe port. The kubelet uses one for each probe.
const PROBE_CONNECTIONS: usize = 64;
/// The most concurrent connections to the metrics port. Each may hold a response of several megabytes.
const METRICS_CONNECTIONS: usize = 16;

/// A port's routes and its limit of concurrent connections.
pub struct Endpoints {
    router: Router,
    /// The routes for clients of the loopback interface.
    local: Router,
    connections: usize,
    /// `None` for connections without TLS.
    tls: Option<TlsNow>,
}

/// Returns the endpoints of the probe port.
#[must_use]
pub fn probes(readiness: ReadinessNow, dead: DeadNow) -> Endpoints {
    let healthy = move || async move {
        match dead() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        }
    };
    let ready = move |RawQuery(query): RawQuery| async move {
        let readiness = readiness();
        let verbose = query.is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("verbose")));
        let code = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (code, readiness.render(verbose))
    };
    let router = Router::new().route("/healthz", get(healthy)).route("/readyz", get(ready));
    Endpoints { local: router.clone(), router, connections: PROBE_CONNECTIONS, tls: None }
}

/// Returns the endpoints of a metrics port without credentials: `/metrics`, and for clients of the loopback interface
/// `/debug`, `/statusz` and `/flagz`.
#[must_use]
pub fn metrics(
    metrics: Arc<Metrics>,
    of: Arc<dyn Inspected>,
    profiles: Arc<dyn Profiles>,
    process: Option<Arc<Process>>,
) -> Endpoints {
    let router = scraped(metrics);
    let local = router.clone().merge(debug::local(inspected(of, profiles, process)));
    Endpoints { router, local, connections: METRICS_CONNECTIONS, tls: None }
}

/// Returns the endpoints of a metrics port for clients that the API server admits, over TLS: `/metrics`, those of
/// `/debug`, `/statusz` and `/flagz`, each for those who have the right to that path.
#[must_use]
pub fn reviewed_metrics(
    metrics: Arc<Metrics>,
    of: Arc<dyn Inspected>,
    profiles: Arc<dyn Profiles>,
    process: Option<Arc<Process>>,
    reviewer: Reviewer,
    tls: TlsNow,
) -> Endpoints {
    let router = scraped(metrics).merge(inspected(of, profiles, process));
    let router = router.route_layer(from_fn_with_state(Arc::new(reviewer), reviewer::require));
    Endpoints { local: router.clone(), router, connections: METRICS_CONNECTIONS, tls: Some(tls) }
}

/// Returns the routes that name Pods and plugins of all tenants.
fn inspected(of: Arc<dyn Inspected>, profiles: Arc<dyn Profiles>, process: Option<Arc<Process>>) -> Router {
    process.map_or_else(Router::new, zpages::routes).merge(debug::routes(of)).merge(pprof::routes(profiles))
}

/// Returns the route of `/metrics`.
fn scraped(metrics: Arc<Metrics>) -> Router {
    let render = move || async move {
        match metrics.render() {
            Ok(text) => {
                let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                ([(header::CONTENT_TYPE, openmetrics)], text).into_response()
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    };
    Router::new().route("/metrics", get(render))
}
