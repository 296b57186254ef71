//! [`Reviewer`]: asks the API server whether the bearer of a token may read a path, by a TokenReview and a
//! SubjectAccessReview, as controller-runtime's filter of metrics does.
//!
//! Decisions are kept for [`KEPT`], so a right that was revoked ends within that time. Without an answer of the API
//! server only a client of `/metrics` is admitted whose last answer, within [`KEPT_WITHOUT_ANSWER`], was positive:
//! otherwise an outage of the API server would not show in metrics. Tokens are neither stored nor logged: a decision is
//! kept under a digest.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use foldhash::fast::FixedState;
use lru::LruCache;
use parking_lot::Mutex;
use podium_engine::{
    intervals::Intervals,
    throttle::{Bucket, Rate},
};
use podium_vocabulary::text;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use podium_api::{Api, ApiError};

/// How long a decision is kept. Prometheus scrapes every 15 s or less often, so this is at most two requests for each
/// scrape; the bound is for clients that ask more often.
const KEPT: Duration = Duration::from_secs(10);
/// How long a positive decision admits to [`METRICS`] while there is no newer one. Alerts on an outage of the API
/// server need a minute of figures.
const KEPT_WITHOUT_ANSWER: Duration = Duration::from_secs(5 * 60);
/// The path of metrics.
const METRICS: &str = "/metrics";
/// The most decisions that are kept, of positive and of negative ones, on metrics and on other paths. A connection
/// serves one request and 16 are open, so clients with a right are few.
const DECISIONS: NonZeroUsize = NonZeroUsize::new(256).expect("is not 0");
/// The most decisions in a second that the API server is asked for, on tokens whose last decision was positive and on
/// others, for metrics and for other paths: the rate of a client of Kubernetes by default. Any client that can connect
/// may send tokens.
const REQUESTS: Rate = Rate { per_second: 20, burst: 20 };
/// Deadline of one of the two requests. A connection is closed after 10 s.
const DEADLINE: Duration = Duration::from_secs(3);

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Admits the clients that the API server admits.
pub struct Reviewer {
    api: Api,
    /// About [`METRICS`].
    metrics: Mutex<Kept>,
    /// About all other paths, which have names of Pods: clients that ask about many displace nothing of metrics.
    debug: Mutex<Kept>,
}

struct Kept {
    /// Negative and positive decisions, so that the ones displace none of the others: by the SHA-256 of verb, path and
    /// token, with the time at which they were made.
    decisions: [LruCache<[u8; 32], (Decision, Instant), FixedState>; 2],
    /// For the decisions for which the API server is asked, on other keys and on those with a positive decision.
    requests: [Bucket; 2],
    failures: Intervals,
}

/// The API server's decision on a token, a verb and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Decision {
    Allowed,
    /// The token is not valid.
    Unauthenticated,
    /// The user has no right to the path.
    Forbidden {
        user: String,
    },
}

/// Why there is no decision.
#[derive(Debug, PartialEq, Eq)]
enum Undecided {
    /// Too many decisions were asked for within a second.
    TooMany,
    /// The API server did not answer as expected.
    Failed { asked: &'static str, error: Box<ApiError> },
}

impl Undecided {
    /// Returns true if the API server answered that the host may not ask.
    fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed { error, .. } if error.code() == Some(403))
    }
}

/// The status of a TokenReview.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    /// `username`, `uid`, `groups` and `extra`, as a SubjectAccessReview repeats them.
    user: UserInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
    uid: Value,
    groups: Value,
    extra: Value,
}

/// The status of a SubjectAccessReview.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
}

#[derive(Debug, Deserialize)]
struct Reviewed<S> {
    status: S,
}

impl Reviewer {
    /// Returns a reviewer that asks by the host's own account.
    #[must_use]
    pub fn new(api: &Api) -> Self {
        let kept = || Kept {
            decisions: [(); 2].map(|()| LruCache::with_hasher(DECISIONS, FixedState::default())),
            requests: [(); 2].map(|()| Bucket::full(REQUESTS, Instant::now())),
            failures: Intervals::new(),
        };
        Self { api: api.with_deadline(DEADLINE), metrics: Mutex::new(kept()), debug: Mutex::new(kept()) }
    }

    fn kept(&self, path: &str) -> &Mutex<Kept> {
        if path == METRICS { &self.metrics } else { &self.debug }
    }

    async fn decision(&self, token: &str, verb: &str, path: &str) -> Result<Decision, Undecided> {
        // Neither a method nor a path nor the value of a header can contain NUL.
        let key = Sha256::digest([verb, path, token].join("\0")).into();
        let decided = self.decide(&key, token, verb, path).await;
        match decided {
            Err(undecided)
                if path == METRICS
                    && !undecided.is_refusal()
                    && self.metrics.lock().was_allowed(&key, Instant::now()) =>
            {
                Ok(Decision::Allowed)
            }
            decided => decided,
        }
    }

    async fn decide(&self, key: &[u8; 32], token: &str, verb: &str, path: &str) -> Result<Decision, Undecided> {
        if let Some(decision) = self.kept(path).lock().begin(key, Instant::now())? {
            return Ok(decision);
        }
        // The decision is as old as its first request.
        let asked = Instant::now();
        let decision = self.ask(token, verb, path).await?;
        let mut kept = self.kept(path).lock();
        kept.failures.end();
        kept.put(*key, decision.clone(), asked);
        Ok(decision)
    }

    async fn ask(&self, token: &str, verb: &str, path: &str) -> Result<Decision, Undecided> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token },
        });
        let TokenStatus { authenticated, user } = self.review("tokenreviews", TOKEN_REVIEWS, &review).await?;
        let UserInfo { username, uid, groups, extra } = user;
        if !authenticated || username.is_empty() {
            return Ok(Decision::Unauthenticated);
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": username, "uid": uid, "groups": groups, "extra": extra,
                "nonResourceAttributes": { "path": path, "verb": verb },
            },
        });
        let AccessStatus { allowed, denied } = self.review("subjectaccessreviews", ACCESS_REVIEWS, &review).await?;
        Ok(if allowed && !denied { Decision::Allowed } else { Decision::Forbidden { user: username } })
    }

    /// Creates a review. The API server answers with its status and stores nothing.
    async fn review<S: DeserializeOwned>(
        &self,
        asked: &'static str,
        path: &str,
        review: &Value,
    ) -> Result<S, Undecided> {
        let failed = |error: ApiError| Undecided::Failed { asked, error: Box::new(error) };
        let mut request = Request::new(review.to_string().into_bytes());
        *request.method_mut() = Method::POST;
        *request.uri_mut() =
            Uri::try_from(path).map_err(|error| failed(ApiError::Malformed(text::line(&error.to_string()))))?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        let answer = self.api.json(request).await.map_err(failed)?;
        let Reviewed { status } = serde_json::from_value(answer)
            .map_err(|error| failed(ApiError::Malformed(text::line(&error.to_string()))))?;
        Ok(status)
    }

    /// Returns the response for a client that is not admitted because there is no decision, and logs the reason.
    fn undecided(&self, path: &str, undecided: &Undecided) -> Response {
        let Undecided::Failed { asked, error } = undecided else {
            return refusal(StatusCode::TOO_MANY_REQUESTS, "too many new tokens within a second; repeat the request");
        };
        let advice = if undecided.is_refusal() {
            "the host's account may not create them: apply deploy/kustomize/base/metrics-rbac.yaml"
        } else {
            "repeat the request when the API server is available"
        };
        if let Some(count) = self.kept(path).lock().failures.occurred(Instant::now()) {
            tracing::warn!(resource = asked, %error, advice, count, "client of metrics not authenticated");
        }
        refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            &format!("the API server did not answer a request for {asked}; {advice}"),
        )
    }
}

impl Kept {
    /// Returns the decision that is kept for a key. Without one the API server is asked, which counts.
    fn begin(&mut self, key: &[u8; 32], now: Instant) -> Result<Option<Decision>, Undecided> {
        let kind = usize::from(self.decisions[1].contains(key));
        if let Some((decision, made)) = self.decisions[kind].get(key)
            && now < *made + KEPT
        {
            return Ok(Some(decision.clone()));
        }
        if self.requests[kind].try_take(1, now) { Ok(None) } else { Err(Undecided::TooMany) }
    }

    /// Keeps a decision for which the API server was asked at `asked`, unless a newer one is kept.
    fn put(&mut self, key: [u8; 32], decision: Decision, asked: Instant) {
        let mut kept = self.decisions.iter().filter_map(|decisions| decisions.peek(&key));
        if kept.all(|(_, made)| *made <= asked) {
            let kind = usize::from(decision == Decision::Allowed);
            self.decisions[1 - kind].pop(&key);
            self.decisions[kind].put(key, (decision, asked));
        }
    }

    /// Returns true if the latest decision on a key is positive and not older than [`KEPT_WITHOUT_ANSWER`].
    fn was_allowed(&self, key: &[u8; 32], now: Instant) -> bool {
        self.decisions[1].peek(key).is_some_and(|(_, made)| now < *made + KEPT_WITHOUT_ANSWER)
    }
}

/// Passes a request on if its token may use its method on its path.
pub(super) async fn require(State(reviewer): State<Arc<Reviewer>>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(request.headers()) else { return unauthenticated() };
    let verb = request.method().as_str().to_ascii_lowercase();
    let path = request.uri().path();
    match reviewer.decision(token, &verb, path).await {
        Ok(Decision::Allowed) => next.run(request).await,
        Ok(Decision::Unauthenticated) => unauthenticated(),
        Ok(Decision::Forbidden { user }) => {
            let user = text::name(&user);
            let role = if path == METRICS { "podium-metrics-reader" } else { "podium-debug-reader" };
            let message = format!("{user} may not {} {path}; bind the ClusterRole {role} to it", text::name(&verb));
            refusal(StatusCode::FORBIDDEN, &message)
        }
        Err(undecided) => reviewer.undecided(path, &undecided),
    }
}

/// Returns the token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthenticated() -> Response {
    let message = "a valid bearer token of an account of this cluster is required: Authorization: Bearer TOKEN";
    let mut response = refusal(StatusCode::UNAUTHORIZED, message);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn refusal(code: StatusCode, message: &str) -> Response {
    (code, format!("{message}\n")).into_response()
}

#[cfg(test)]
mod tests;
