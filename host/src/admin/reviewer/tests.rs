use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::Relaxed},
};

use axum::{Router, body::Body as AxumBody, middleware, routing::get};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use tower::ServiceExt;

use super::*;

/// An API server that knows one token, whose user has the right to `/metrics` and `/debug/pods/*` while `allowed`
/// is set.
#[derive(Default)]
struct Server {
    allowed: AtomicBool,
    /// The status code of each answer, or 0 for reviews.
    code: AtomicU16,
    token_reviews: AtomicU32,
    access_reviews: AtomicU32,
}

const TOKEN: &str = "secret.of.prometheus";
const USER: &str = "system:serviceaccount:monitoring:prometheus";

impl Server {
    fn answer(&self, path: &str, asked: &Value) -> Value {
        let spec = &asked["spec"];
        match path {
            TOKEN_REVIEWS => {
                self.token_reviews.fetch_add(1, Relaxed);
                let known = spec["token"] == TOKEN;
                let user = json!({
                    "username": USER, "uid": "7", "groups": ["system:serviceaccounts"], "extra": { "a": ["b"] },
                });
                json!({ "status": if known { json!({ "authenticated": true, "user": user }) } else { json!({}) } })
            }
            ACCESS_REVIEWS => {
                self.access_reviews.fetch_add(1, Relaxed);
                let expected = (json!(USER), json!("7"), json!(["system:serviceaccounts"]), json!({ "a": ["b"] }));
                let user = (&spec["user"], &spec["uid"], &spec["groups"], &spec["extra"]);
                assert_eq!(user, (&expected.0, &expected.1, &expected.2, &expected.3), "{spec}");
                let of = &spec["nonResourceAttributes"];
                let may = of["path"] == "/metrics" || of["path"].as_str().unwrap().starts_with("/debug/pods/");
                json!({ "status": { "allowed": may && of["verb"] == "get" && self.allowed.load(Relaxed) } })
            }
            other => panic!("{other}"),
        }
    }

    fn asked(&self) -> [u32; 2] {
        [self.token_reviews.load(Relaxed), self.access_reviews.load(Relaxed)]
    }
}

/// Returns the routes behind a reviewer that asks `server`.
fn routes(server: &Arc<Server>) -> Router {
    let server = server.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = server.clone();
        async move {
            assert!(!request.headers().contains_key(header::AUTHORIZATION), "asked by the host's own account");
            let path = request.uri().path().to_owned();
            let asked = request.into_body().collect().await.unwrap().to_bytes();
            let code = server.code.load(Relaxed);
            let (code, answer) = if code == 0 {
                (201, server.answer(&path, &serde_json::from_slice(&asked).unwrap()).to_string())
            } else {
                (code, "no answer".to_owned())
            };
            let body = Full::new(Bytes::from(answer));
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
    let reviewer = Arc::new(Reviewer::new(&api));
    let routes = Router::new().route("/metrics", get(|| async { "figures" })).route("/debug/x", get(|| async {}));
    let routes = routes.route("/debug/pods/{name}", get(|| async {}));
    routes.route_layer(middleware::from_fn_with_state(reviewer, require))
}

/// Returns status and body of a request with these values of the header `Authorization`.
async fn ask(routes: &Router, path: &str, authorization: &[&str]) -> (u16, String) {
    let mut request = http::Request::get(path);
    for value in authorization {
        request = request.header(header::AUTHORIZATION, *value);
    }
    let response = routes.clone().oneshot(request.body(AxumBody::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers().contains_key(header::WWW_AUTHENTICATE), response.status() == 401);
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn with_token(routes: &Router, path: &str) -> (u16, String) {
    ask(routes, path, &[&format!("Bearer {TOKEN}")]).await
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_user_has_the_right_is_admitted() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    assert_eq!(with_token(&routes, "/metrics").await, (200, "figures".to_owned()));
    assert_eq!(ask(&routes, "/metrics", &[&format!("bEARER   {TOKEN} ")]).await.0, 200);
    let (status, body) = with_token(&routes, "/debug/x").await;
    assert_eq!(status, 403, "a right to one path is none to another: {body}");
    assert!(body.contains("podium-debug-reader"), "{body}");
    assert_eq!(ask(&routes, "/other", &[]).await.0, 404, "the API server is not asked about paths that do not exist");
}

#[tokio::test(start_paused = true)]
async fn without_a_valid_token_the_answer_is_401() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    let good = format!("Bearer {TOKEN}");
    for authorization in [&[][..], &["Bearer"], &["Bearer "], &["Basic YTpi"], &[TOKEN], &[&good, &good]] {
        let (status, body) = ask(&routes, "/metrics", authorization).await;
        assert_eq!((status, body.contains(TOKEN)), (401, false), "{authorization:?}: {body}");
    }
    assert_eq!(server.asked(), [0, 0], "only tokens are reviewed");
    assert_eq!(ask(&routes, "/metrics", &["Bearer other"]).await.0, 401);
    assert_eq!(server.asked(), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_user_without_the_right_is_refused_with_the_role_to_bind() {
    let server = Arc::<Server>::default();
    let (status, body) = with_token(&routes(&server), "/metrics").await;
    assert_eq!(status, 403);
    let expected = format!("{USER} may not get /metrics; bind the ClusterRole podium-metrics-reader to it\n");
    assert_eq!(body, expected);
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_kept_for_10_s_and_no_longer() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    for _ in 0..3 {
        assert_eq!(with_token(&routes, "/metrics").await.0, 200);
        tokio::time::advance(Duration::from_secs(3)).await;
    }
    assert_eq!(server.asked(), [1, 1]);
    server.allowed.store(false, Relaxed);
    tokio::time::advance(Duration::from_millis(999)).await;
    assert_eq!(with_token(&routes, "/metrics").await.0, 200);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(with_token(&routes, "/metrics").await.0, 403, "a revoked right ends");
    server.allowed.store(true, Relaxed);
    tokio::time::advance(KEPT).await;
    assert_eq!(with_token(&routes, "/metrics").await.0, 200, "a refusal ends too");
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_of_the_api_server_no_new_client_is_admitted() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    for (code, advice) in
        [(403, "apply deploy/kustomize/base/metrics-rbac.yaml"), (500, "repeat the request"), (200, "repeat")]
    {
        server.code.store(code, Relaxed);
        let (status, body) = with_token(&routes, "/metrics").await;
        assert_eq!(status, 503, "{code}: {body}");
        assert!(body.contains("tokenreviews") && body.contains(advice) && !body.contains(TOKEN), "{body}");
    }
    server.code.store(0, Relaxed);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200, "a failure is not kept");
}

#[tokio::test(start_paused = true)]
async fn a_known_token_is_admitted_for_5_min_while_the_api_server_is_away() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    for code in [500, 503, 429, 401, 200] {
        server.code.store(0, Relaxed);
        assert_eq!(with_token(&routes, "/metrics").await.0, 200);
        server.code.store(code, Relaxed);
        for _ in 0..29 {
            tokio::time::advance(KEPT).await;
            assert_eq!(with_token(&routes, "/metrics").await.0, 200, "{code}: the last answer was positive");
        }
        let other = ask(&routes, "/metrics", &["Bearer other"]).await.0;
        assert_eq!((other, with_token(&routes, "/debug/x").await.0), (503, 503), "{code}: of these no answer is known");
        tokio::time::advance(KEPT).await;
        assert_eq!(with_token(&routes, "/metrics").await.0, 503, "{code}: not for ever");
    }
    server.code.store(0, Relaxed);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200);
    tokio::time::advance(KEPT).await;
    server.code.store(403, Relaxed);
    assert_eq!(with_token(&routes, "/metrics").await.0, 503, "the API server answers: the host may not ask");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_api_server_refused_is_not_admitted_while_it_is_away() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200);
    tokio::time::advance(KEPT).await;
    server.allowed.store(false, Relaxed);
    assert_eq!(with_token(&routes, "/metrics").await.0, 403);
    server.code.store(500, Relaxed);
    for _ in 0..60 {
        tokio::time::advance(KEPT).await;
        assert_eq!(with_token(&routes, "/metrics").await.0, 503);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_to_an_earlier_question_replaces_no_newer_decision() {
    let api = Api::new(kube::Client::new(tower::service_fn(never), "default"), Duration::from_secs(5));
    let mut kept = Reviewer::new(&api).metrics.into_inner();
    let asked = Instant::now();
    kept.put([0; 32], Decision::Unauthenticated, asked + Duration::from_secs(1));
    kept.put([0; 32], Decision::Allowed, asked);
    assert!(!kept.was_allowed(&[0; 32], asked + Duration::from_secs(2)));
}

#[tokio::test(start_paused = true)]
async fn new_tokens_beyond_20_in_a_second_do_not_reach_the_api_server() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200);
    for number in 0..1_000 {
        let (status, _) = ask(&routes, "/metrics", &[&format!("Bearer {number}")]).await;
        assert_eq!(status, if number < 19 { 401 } else { 429 }, "{number}");
    }
    assert_eq!(server.asked()[0], 20);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200, "clients with a decision are not affected");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ask(&routes, "/metrics", &["Bearer new"]).await.0, 401);
    tokio::time::advance(KEPT).await;
    for number in 0..20 {
        ask(&routes, "/metrics", &[&format!("Bearer later {number}")]).await;
    }
    assert_eq!(ask(&routes, "/metrics", &["Bearer another"]).await.0, 429);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200, "nor when their decision is old");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_unknown_tokens_displaces_no_known_one() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    for second in 0..600 {
        for number in 0..30 {
            let status = ask(&routes, "/metrics", &[&format!("Bearer {second} {number}")]).await.0;
            assert!([401, 429].contains(&status), "{status}");
        }
        if second % 30 == 0 {
            assert_eq!(with_token(&routes, "/metrics").await.0, if second == 0 { 429 } else { 200 }, "{second}");
            // The first one came before the flood.
            while second == 0 && with_token(&routes, "/metrics").await.0 != 200 {
                tokio::time::advance(Duration::from_millis(100)).await;
            }
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    // The rights of known ones are asked for again as usual, and end.
    server.allowed.store(false, Relaxed);
    for number in 0..30 {
        ask(&routes, "/metrics", &[&format!("Bearer last {number}")]).await;
    }
    assert_eq!(with_token(&routes, "/metrics").await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn clients_of_many_paths_of_debug_displace_no_decision_on_metrics() {
    let server = Arc::<Server>::default();
    server.allowed.store(true, Relaxed);
    let routes = routes(&server);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200);
    for second in 0..20 {
        tokio::time::advance(Duration::from_secs(1)).await;
        for number in 0..30 {
            let status = with_token(&routes, &format!("/debug/pods/{second}-{number}")).await.0;
            assert_eq!(status, if number < 20 { 200 } else { 429 }, "{second} {number}");
        }
    }
    assert_eq!(ask(&routes, "/metrics", &["Bearer new"]).await.0, 401, "there are decisions left for new clients");
    server.code.store(500, Relaxed);
    assert_eq!(with_token(&routes, "/metrics").await.0, 200, "the decision is still known in an outage");
    assert_eq!(with_token(&routes, "/debug/pods/0-0").await.0, 429);
}

#[tokio::test(start_paused = true)]
async fn at_most_256_decisions_of_each_kind_are_kept() {
    let api = Api::new(kube::Client::new(tower::service_fn(never), "default"), Duration::from_secs(5));
    let mut kept = Reviewer::new(&api).metrics.into_inner();
    for number in 0..1_000_u32 {
        let key = Sha256::digest(number.to_le_bytes()).into();
        kept.put(key, Decision::Unauthenticated, Instant::now());
        kept.put(key, Decision::Allowed, Instant::now());
        assert_eq!(kept.decisions.iter().filter(|decisions| decisions.contains(&key)).count(), 1);
        kept.put(Sha256::digest(number.to_be_bytes()).into(), Decision::Unauthenticated, Instant::now());
    }
    assert_eq!(kept.decisions.map(|decisions| decisions.len()), [DECISIONS.get(); 2]);
}

async fn never(_: http::Request<Body>) -> Result<http::Response<Full<Bytes>>, Infallible> {
    std::future::pending().await
}
