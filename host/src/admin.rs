//! The operator's port: /healthz, /readyz, /metrics.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;

/// Why the host cannot be relied on now; none when it can.
pub type Readiness = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// A port that is bound and not yet served.
#[must_use]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// Binds the port; 0 picks a free one.
///
/// # Errors
/// When the address cannot be bound.
pub async fn bind(address: SocketAddr) -> std::io::Result<Bound> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok(Bound { listener, address })
}

impl Bound {
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the token is cancelled, without waiting for slow clients then.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn serve(
        self,
        readiness: Readiness,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let ready = move || async move {
            match readiness() {
                None => (StatusCode::OK, "ok\n".to_owned()),
                Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {reason}\n")),
            }
        };
        let metrics = move || async move {
            match metrics.render() {
                Ok(text) => {
                    let openmetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                    ([(header::CONTENT_TYPE, openmetrics)], text).into_response()
                }
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
            }
        };
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics));
        let serve = axum::serve(self.listener, router);
        tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            served = serve => served,
        }
    }
}
