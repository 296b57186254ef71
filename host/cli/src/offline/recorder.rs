//! The requests of a host that would change a cluster, with their bodies, between the host and a cluster in this
//! process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use podium_devcluster::{Api, Cluster};
use serde::Serialize;
use serde_json::Value;
use tower::{Service, ServiceExt, service_fn};

type Answer = <Api as Service<http::Request<Full<Bytes>>>>::Response;

/// A request, as `podium run` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    /// The method and the path.
    pub(crate) request: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(crate) body: Value,
    /// The status code, unless the cluster accepted the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<u16>,
}

impl Request {
    /// Returns the Event of a request that creates one: `Warning Crowded on shop/a: too many`.
    pub(crate) fn event(&self) -> Option<String> {
        let text = |path: &str| self.body.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let is_event = self.request.starts_with("POST /apis/events.k8s.io/") && self.refused.is_none();
        is_event.then(|| {
            let pod = format!("{}/{}", text("/regarding/namespace"), text("/regarding/name"));
            format!("{} {} on {pod}: {}", text("/type"), text("/reason"), text("/note"))
        })
    }
}

/// The requests so far.
#[derive(Clone)]
pub(super) struct Recorder {
    api: Api,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Recorder {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self { api: cluster.service(), requests: Arc::default() }
    }

    pub(super) fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a client whose requests are recorded.
    pub(super) fn client(&self) -> kube::Client {
        let recorder = self.clone();
        let service = service_fn(move |request: http::Request<Body>| recorder.clone().pass(request));
        kube::Client::new(service, "default")
    }

    async fn pass(self, request: http::Request<Body>) -> Result<Answer, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let place = (parts.method != Method::GET).then(|| {
            let content_type = parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let mut requests = self.requests();
            requests.push(Request {
                request: format!("{} {}", parts.method, parts.uri.path()),
                content_type: content_type.map(str::to_owned),
                // An apply is YAML that is JSON, too.
                body: serde_json::from_slice(&body).unwrap_or_default(),
                refused: None,
            });
            requests.len() - 1
        });
        let answered = self.api.clone().oneshot(http::Request::from_parts(parts, Full::new(body))).await;
        let answer = answered.unwrap_or_else(|never| match never {});
        let refused = place.filter(|_| !answer.status().is_success());
        if let Some(request) = self.requests().get_mut(refused.unwrap_or(usize::MAX)) {
            request.refused = Some(answer.status().as_u16());
        }
        Ok(answer)
    }
}
