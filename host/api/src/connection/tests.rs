//! Renewals of refused credentials, with an API server that accepts one token.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use tower::service_fn;

use super::*;
use crate::{Api, ApiError};

const UNAUTHORIZED: &str = r#"{"kind":"Status","code":401,"reason":"Unauthorized","message":"Unauthorized"}"#;

/// The token that the API server accepts, the one that the configuration has, and counters.
#[derive(Default)]
struct Cluster {
    accepted: AtomicU32,
    configured: AtomicU32,
    requests: AtomicU32,
    renewals: AtomicU32,
    refusal: Mutex<Option<&'static str>>,
    /// Whether reading the configuration hangs.
    hangs: Mutex<bool>,
}

impl Cluster {
    /// Returns a client with the token that is configured now.
    fn client(self: &Arc<Self>) -> kube::Client {
        let of = self.clone();
        let token = self.configured.load(Relaxed);
        let service = service_fn(move |_: Request<Body>| {
            of.requests.fetch_add(1, Relaxed);
            let (code, body) = match of.accepted.load(Relaxed) == token {
                true => (200, "{}"),
                false => (401, of.refusal.lock().unwrap_or(UNAUTHORIZED)),
            };
            let body = Full::new(Bytes::from_static(body.as_bytes()));
            std::future::ready(Response::builder().status(code).body(body))
        });
        kube::Client::new(service, "default")
    }

    fn apis(self: &Arc<Self>) -> [Api; 3] {
        let of = self.clone();
        let make = move || {
            let of = of.clone();
            let made = async move {
                of.renewals.fetch_add(1, Relaxed);
                if *of.hangs.lock() {
                    std::future::pending::<()>().await;
                }
                match of.configured.load(Relaxed) {
                    u32::MAX => Err("no such file".to_owned()),
                    _ => Ok([(); 3].map(|()| of.client())),
                }
            };
            made.boxed()
        };
        let connections = Connection::renewed_by([(); 3].map(|()| self.client()), Box::new(make));
        connections.map(|connection| Api::new(connection, Duration::from_secs(5)))
    }

    fn counts(&self) -> (u32, u32) {
        (self.requests.swap(0, Relaxed), self.renewals.swap(0, Relaxed))
    }
}

async fn get(api: &Api) -> Result<Bytes, ApiError> {
    api.bytes(Request::get("/api/v1/pods").body(Vec::new()).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn renewed_credentials_reach_all_parts_with_the_first_refusal() {
    let cluster = Arc::new(Cluster::default());
    let [api, watch, _] = cluster.apis();
    let statuses = api.clone();
    assert!(get(&api).await.is_ok() && get(&watch).await.is_ok());
    assert_eq!(cluster.counts(), (2, 0), "nothing is read while all is well");

    cluster.accepted.store(1, Relaxed);
    cluster.configured.store(1, Relaxed);
    let (one, two, three) = tokio::join!(get(&api), get(&watch), get(&statuses));
    assert!(one.is_ok() && two.is_ok() && three.is_ok(), "{one:?} {two:?} {three:?}");
    assert_eq!(cluster.counts(), (6, 1), "each request is repeated once, and the files are read once");
    assert!(watch.stream(Request::get("/").body(Vec::new()).unwrap()).await.is_ok());
    assert_eq!(cluster.counts(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_refused_are_read_again_every_10_s() {
    let cluster = Arc::new(Cluster::default());
    let [api, watch, _] = cluster.apis();
    cluster.accepted.store(1, Relaxed);
    for second in 0..60 {
        for api in [&api, &watch] {
            let error = get(api).await.unwrap_err();
            assert!(error.is_unauthenticated(), "{second}: {error}");
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let (requests, renewals) = cluster.counts();
    assert_eq!(renewals, 6);
    assert!(requests <= 120 + 2 * renewals, "{requests}");
    // Late, and for a moment the file is not there.
    cluster.configured.store(u32::MAX, Relaxed);
    assert!(get(&api).await.is_err());
    cluster.configured.store(1, Relaxed);
    tokio::time::advance(EVERY).await;
    assert!(get(&watch).await.is_ok() && get(&api).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_is_not_read_in_time_delays_no_request_for_long() {
    let cluster = Arc::new(Cluster::default());
    let [api, watch, _] = cluster.apis();
    cluster.accepted.store(1, Relaxed);
    *cluster.hangs.lock() = true;
    for api in [&api, &watch] {
        let began = Instant::now();
        let error = get(api).await.unwrap_err();
        assert!(error.is_unauthenticated() && began.elapsed() <= PATIENCE, "{error}");
    }
    assert_eq!(cluster.counts().1, 1, "not again while it hangs");
    *cluster.hangs.lock() = false;
    cluster.configured.store(1, Relaxed);
    tokio::time::advance(ABANDONED).await;
    assert!(get(&api).await.is_ok(), "abandoned");
}

#[tokio::test(start_paused = true)]
async fn only_the_api_servers_own_401_has_the_credentials_read() {
    let cluster = Arc::new(Cluster::default());
    let [api, ..] = cluster.apis();
    cluster.accepted.store(1, Relaxed);
    cluster.configured.store(1, Relaxed);
    let of_webhook =
        r#"{"kind":"Status","code":401,"message":"admission webhook \"a.example\" denied the request: no"}"#;
    // Of a ValidatingAdmissionPolicy with the reason `Unauthorized`.
    let of_policy = r#"{"kind":"Status","code":401,"reason":"Unauthorized","message":"pods \"a\" is forbidden: no",
        "details":{"name":"a","kind":"pods","causes":[{"message":"no"}]}}"#;
    for refusal in [of_webhook, of_policy] {
        *cluster.refusal.lock() = Some(refusal);
        assert!(get(&api).await.is_err_and(|error| !error.is_unauthenticated()), "{refusal}");
        assert_eq!(cluster.counts(), (1, 0));
    }
}
