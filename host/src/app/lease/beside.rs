//! Another host that holds the Lease while this one runs plugins without one: both act on the same Pods. Nothing is
//! refused; the log says it once, and a metric shows it.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::Request;
use podium_api::{Api, ApiError, Connection};
use podium_vocabulary::text;
use serde_json::Value;
use tokio::time::sleep;

use super::{NAME, named_namespace};
use crate::app::REQUEST_DEADLINE;

/// How often the Lease is read. A holder renews it every few seconds.
const READ: Duration = Duration::from_secs(60);

/// Where a host without a Lease looks for one that another host holds.
pub struct Beside {
    /// The connection of the reads.
    pub connection: Connection,
    /// As that of [`LeaseOptions`](super::LeaseOptions).
    pub namespace: Option<String>,
    /// The namespace of the host.
    pub own_namespace: String,
}

impl Beside {
    /// Records whether another host holds the Lease; never returns. A host that may not read it does not look again,
    /// and a read that fails says nothing.
    pub(in crate::app) async fn look(self, is_held: Arc<AtomicBool>) -> anyhow::Result<()> {
        let api = Api::new(self.connection, REQUEST_DEADLINE);
        let named = match self.namespace {
            Some(namespace) => Some(namespace),
            None => named(&api).await,
        };
        let namespace = named.unwrap_or(self.own_namespace);
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}");
        let mut before = Value::Null;
        let mut is_logged = false;
        loop {
            let spec = match read(&api, &path).await {
                Ok(mut lease) => lease["spec"].take(),
                Err(error) if error.code() == Some(404) => Value::Null,
                Err(error) if error.code() == Some(403) => {
                    is_held.store(false, Relaxed);
                    return pending().await;
                }
                Err(_) => {
                    sleep(READ).await;
                    continue;
                }
            };
            let holder = spec["holderIdentity"].as_str().unwrap_or_default();
            // One that is not renewed is of a host that has crashed.
            let holds = !holder.is_empty() && !before.is_null() && spec != before;
            is_held.store(holds, Relaxed);
            if holds && !is_logged {
                is_logged = true;
                let holder = text::line(holder);
                tracing::warn!(
                    namespace,
                    lease = NAME,
                    holder,
                    "another host holds the Lease, and this one runs plugins without it: each writes what its plugins \
                     do; end one of them, or start this one with --lease on"
                );
            }
            before = spec;
            sleep(READ).await;
        }
    }
}

/// Returns the namespace that the definition of the kinds names; `None` if it names none, or may not be read.
async fn named(api: &Api) -> Option<String> {
    loop {
        match named_namespace(api).await {
            Ok(named) => return named,
            Err(error) if error.code() == Some(403) => return None,
            Err(_) => sleep(READ).await,
        }
    }
}

async fn read(api: &Api, path: &str) -> Result<Value, ApiError> {
    let Ok(request) = Request::get(path).body(Vec::new()) else { return Ok(Value::Null) };
    api.json(request).await
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::atomic::AtomicUsize};

    use http::Response;
    use kube::client::Body;
    use podium_engine::fixtures::{Warnings, log_to};
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::app::lease::ANNOTATION;

    /// Reads from an API server with these answers, the last one for ever, for an hour; the definition of the kinds is
    /// not available at first. Returns whether the Lease was held after each of the answers, and how often it was read.
    async fn looked(answers: Vec<(u16, Value)>) -> (Vec<bool>, usize) {
        let reads = Arc::new(AtomicUsize::new(0));
        let count = reads.clone();
        let definitions = AtomicUsize::new(0);
        let first = answers.len();
        let service = service_fn(move |request: Request<Body>| {
            let is_lease = request.uri().path().ends_with("/namespaces/podium/leases/podium-host");
            let read = if is_lease { count.fetch_add(1, Relaxed) } else { 0 };
            let (code, lease) = answers[read.min(answers.len() - 1)].clone();
            let annotations = json!({ "metadata": { "annotations": { ANNOTATION: "podium" } } });
            let answer = if is_lease { lease } else { annotations };
            let is_available = is_lease || definitions.fetch_add(1, Relaxed) > 0;
            let code = [503, if is_lease { code } else { 200 }][usize::from(is_available)];
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            std::future::ready(Ok::<_, Infallible>(response.unwrap()))
        });
        let is_held = Arc::<AtomicBool>::default();
        let connection = kube::Client::new(service, "default").into();
        let beside = Beside { connection, namespace: None, own_namespace: "default".to_owned() };
        let task = tokio::spawn(beside.look(is_held.clone()));
        let mut held = Vec::new();
        sleep(READ).await;
        for _ in 0..first {
            sleep(READ - Duration::from_secs(1)).await;
            held.push(is_held.load(Relaxed));
            sleep(Duration::from_secs(1)).await;
        }
        sleep(Duration::from_secs(3_600)).await;
        task.abort();
        (held, reads.load(Relaxed))
    }

    fn lease(holder: &str, renewed: u32) -> (u16, Value) {
        (200, json!({ "spec": { "holderIdentity": holder, "renewTime": renewed } }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_renews_its_lease_is_logged_once() {
        let warnings = Warnings::default();
        let _logged = log_to(warnings.clone());
        let none = (404, json!({}));
        let released = lease("", 5);
        let answers = vec![none.clone(), lease("a", 1), lease("a", 1), lease("a", 2), lease("b", 3), released, none];
        let (held, _) = looked(answers).await;
        assert_eq!((held, warnings.count()), (vec![false, false, false, true, true, false, false], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_fails_says_nothing_and_without_the_right_none_is_held() {
        let failed = |code| (code, json!({}));
        let answers = vec![lease("a", 1), lease("a", 2), failed(503), failed(401), lease("a", 3), failed(403)];
        assert_eq!(looked(answers).await, (vec![false, true, true, true, true, false], 6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_may_not_read_the_lease_is_silent() {
        let warnings = Warnings::default();
        let _logged = log_to(warnings.clone());
        assert_eq!(looked(vec![(403, json!({}))]).await, (vec![false], 1));
        assert_eq!(warnings.count(), 0);
    }
}
