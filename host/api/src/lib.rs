//! Requests to the API server with a deadline, and its answers as errors that a caller can act on; the watch of Pods
//! and the live reads are made of them.
//!
//! One call is one attempt. Only the modules that send a request decide whether and when to repeat it.

#![warn(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

mod backpressure;
mod client;
mod connection;
mod error;
mod fence;
mod identity;
mod kubeconfig;
pub mod live;
pub mod watch;

use std::{error::Error as StdError, future::ready, pin::Pin, sync::Arc, time::Duration};

pub use backpressure::{Backpressure, HeldRequests, LiveReadOf};
use bytes::Bytes;
pub use client::{NewConnection, client};
pub use connection::{Clients, Connection, MakeClients};
pub use error::{ApiError, Cause};
use error::{refusal, transport};
pub use fence::{Fence, Permit};
use futures::{Stream, StreamExt};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Limited};
pub use identity::{plugin_user_agent, user_agent};
use kube::client::Body;
pub use kubeconfig::config;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use podium_vocabulary::{ObjectRef, Tenant, json, text};
use tokio::time::{Instant, timeout_at};

/// The most bytes of one response, 128 MiB: five times a page of 500 of the largest Pods seen.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// The most bytes that are read of an error response. The API server quotes the value that it refuses, which may be
/// megabytes long.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// The bytes of a stream as they arrive. The stream ends after an error.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, ApiError>> + Send>>;

/// The Accept header of a request of which only the object's metadata is answered. A server without this form answers
/// with the whole object.
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The same for a list. For the representation of one object a server answers a list with 406.
pub const METADATA_OF_LISTS: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Receives each request that was sent: its method, the status code, or `None` without a response, and the time until
/// then.
pub type Observer = Arc<dyn Fn(&str, Option<u16>, Duration) + Send + Sync>;

/// A client of the API server with a deadline for each request.
#[derive(Clone)]
pub struct Api {
    connection: Connection,
    deadline: Duration,
    /// The most bytes of a response's body.
    answer_bytes: usize,
    /// The time at which all requests end, regardless of their own deadlines.
    end: Option<Instant>,
    /// `None` if the caller observes Retry-After itself, as the watch does.
    backpressure: Option<Arc<Backpressure>>,
    /// `None` if writes may always be sent.
    fence: Option<Fence>,
    /// The tenant whose writes are sent; `None` for the host's own.
    tenant: Option<Tenant>,
    /// The header `traceparent` of each request.
    trace: Option<HeaderValue>,
    observer: Option<Observer>,
}

/// The time at which a request ends.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    within: Duration,
}

impl Api {
    /// Returns a client that sends through `connection`. Each request ends after `deadline` at the latest.
    #[must_use]
    pub fn new(connection: impl Into<Connection>, deadline: Duration) -> Self {
        Self {
            connection: connection.into(),
            deadline,
            answer_bytes: MAX_ANSWER_BYTES,
            end: None,
            backpressure: None,
            fence: None,
            tenant: None,
            trace: None,
            observer: None,
        }
    }

    /// Returns the same client, whose requests `observer` receives.
    #[must_use]
    pub fn observed_by(&self, observer: Observer) -> Self {
        Self { observer: Some(observer), ..self.clone() }
    }

    /// Returns a client that sends nothing until the Retry-After of an earlier response has passed. Clones share this
    /// state; see [`Backpressure`].
    #[must_use]
    pub fn with_backpressure(&self) -> Self {
        Self { backpressure: Some(Arc::default()), ..self.clone() }
    }

    /// Returns a client that sends a request other than a read only while `fence` permits it. The API server ends it
    /// after 5 s, or earlier at the end of the right.
    #[must_use]
    pub fn fenced_by(&self, fence: Fence) -> Self {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// Returns the same client for writes about one tenant.
    #[must_use]
    pub fn for_tenant(&self, tenant: Tenant) -> Self {
        Self { tenant: Some(tenant), ..self.clone() }
    }

    /// Returns the same client for requests that are part of a span, by the header `traceparent`.
    #[must_use]
    pub fn traced(&self, parent: &str) -> Self {
        Self { trace: HeaderValue::from_str(parent).ok(), ..self.clone() }
    }

    /// Returns how long requests of the account have to wait, or `None` if they may be sent. Without an account the
    /// answer is for the host's own account.
    #[must_use]
    pub fn held(&self, account: Option<&str>) -> Option<Duration> {
        self.backpressure.as_ref()?.wait(account, Instant::now())
    }

    /// Returns the requests that are held after a Retry-After.
    #[must_use]
    pub fn holds(&self) -> Vec<HeldRequests> {
        self.backpressure.as_ref().map_or_else(Vec::new, |backpressure| backpressure.held(Instant::now()))
    }

    /// Returns the same client with another deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// Returns the same client, which reads at most this number of bytes of the body of a response.
    #[must_use]
    pub fn with_answer_bytes(&self, answer_bytes: usize) -> Self {
        Self { answer_bytes, ..self.clone() }
    }

    /// Returns the same client for work that must end by `end`: a request under way is cancelled then, and a later
    /// one is not sent.
    #[must_use]
    pub fn with_end(&self, end: Instant) -> Self {
        Self { end: Some(end), ..self.clone() }
    }

    /// Returns the body of a 2xx response.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn bytes(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        self.bytes_in_turn(request, ready(())).await.map(|(bytes, ())| bytes)
    }

    /// Returns the body of a 2xx response, and the result of `turn`, which the caller drops after the body. The body is
    /// read when `turn` is ready; it is first polled when the response has begun, so that a request that waits in the
    /// API server has no turn. This wait does not count for the deadline.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn bytes_in_turn<T>(
        &self,
        request: Request<Vec<u8>>,
        turn: impl Future<Output = T>,
    ) -> Result<(Bytes, T), ApiError> {
        let deadline = self.deadline()?;
        let method = request.method().clone();
        let uri = request.uri().clone();
        let began = Instant::now();
        let pass = self.backpressure.as_ref().map(|backpressure| backpressure.admit(&request, began));
        let pass = pass.transpose().map_err(ApiError::Held)?;
        let answered = match self.send(request, deadline).await {
            Ok(response) => {
                let waits = Instant::now();
                let turn = turn.await;
                let at = deadline.at + waits.elapsed();
                let deadline = Deadline { at: self.end.map_or(at, |end| at.min(end)), ..deadline };
                self.collect(response, deadline).await.map(|bytes| (bytes, turn))
            }
            Err(error) => Err(error),
        };
        if let Some(pass) = pass {
            pass.answered(answered.as_ref().err(), Instant::now());
        }
        answered.inspect_err(|error| {
            let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::debug!(%method, %uri, millis, %error, "request failed");
        })
    }

    /// Returns the body of a 2xx response as JSON; see [`json::value`].
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn json(&self, request: Request<Vec<u8>>) -> Result<serde_json::Value, ApiError> {
        let bytes = self.bytes(request).await?;
        json::value(&bytes).map_err(|error| ApiError::Malformed(text::line(&error.to_string())))
    }

    /// Returns the body of a 2xx response as a stream. The deadline covers the head of the response; the caller
    /// limits how long the body may pause.
    ///
    /// # Errors
    /// See [`ApiError`]. The stream itself only returns `Transport` errors.
    pub async fn stream(&self, request: Request<Vec<u8>>) -> Result<Chunks, ApiError> {
        let response = self.send(request, self.deadline()?).await?;
        let chunks = response.into_body().into_data_stream();
        Ok(Box::pin(chunks.map(|chunk| chunk.map_err(|error| transport(&error)))))
    }

    fn deadline(&self) -> Result<Deadline, ApiError> {
        let now = Instant::now();
        let left = self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
        if left.is_zero() {
            return Err(ApiError::Transport { sent: false, message: "no time is left".to_owned() });
        }
        let within = left.min(self.deadline);
        Ok(Deadline { at: now + within, within })
    }

    /// Sends the request; once more if the host's credentials were refused, and there are others now. The first
    /// attempt was not executed then.
    async fn send(&self, mut request: Request<Vec<u8>>, deadline: Deadline) -> Result<Response<Body>, ApiError> {
        if let Some(parent) = &self.trace {
            request.headers_mut().insert("traceparent", parent.clone());
        }
        let (number, client) = self.connection.client();
        let again = self.connection.is_renewable().then(|| request.clone());
        let (error, is_tls) = match self.attempt(client, request, deadline).await {
            Ok(response) => return Ok(response),
            Err(failed) => failed,
        };
        let refused = is_tls || error.is_unauthenticated();
        let Some(again) = again.filter(|_| refused) else { return Err(error) };
        if !self.connection.renewed(number, &error.to_string()).await
            || matches!(error, ApiError::Transport { sent: true, .. })
        {
            return Err(error);
        }
        self.attempt(self.connection.client().1, again, deadline).await.map_err(|(error, _)| error)
    }

    /// Sends a request once. An error has with it whether TLS failed: a certificate of either side was not accepted.
    async fn attempt(
        &self,
        client: kube::Client,
        request: Request<Vec<u8>>,
        deadline: Deadline,
    ) -> Result<Response<Body>, (ApiError, bool)> {
        let method = request.method().clone();
        let (request, deadline) = match self.fence.as_ref().filter(|_| !method.is_safe()) {
            Some(fence) => {
                fence::pass(fence(self.tenant.as_ref()), request, deadline).map_err(|error| (error, false))?
            }
            None => (request, deadline),
        };
        let began = Instant::now();
        let sent = timeout_at(deadline.at, client.send(request.map(Body::from))).await;
        if let Some(observe) = &self.observer {
            let response = sent.as_ref().ok().and_then(|sent| sent.as_ref().ok());
            observe(method.as_str(), response.map(|response| response.status().as_u16()), began.elapsed());
        }
        let response = match sent {
            Ok(response) => response.map_err(|error| (transport(&error), is_tls(&error)))?,
            Err(_) => return Err((ApiError::Timeout(deadline.within), false)),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let header = response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Err((refusal(code, retry_after, &read_beginning(response.into_body(), deadline).await), false))
    }

    async fn collect(&self, response: Response<Body>, deadline: Deadline) -> Result<Bytes, ApiError> {
        let body = Limited::new(response.into_body(), self.answer_bytes);
        match timeout_at(deadline.at, body.collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(ApiError::TooLong(self.answer_bytes))
            }
            Ok(Err(error)) => Err(transport(&*error)),
            Err(_) => Err(ApiError::Timeout(deadline.within)),
        }
    }
}

/// Returns whether an error is of TLS. An error of IO does not name the error that it contains as its source.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    let of_io = || error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    error.is::<rustls::Error>() || of_io().is_some_and(|inner| is_tls(inner)) || error.source().is_some_and(is_tls)
}

/// Returns the path of the objects of a resource, such as `configmaps` of `v1`, of a namespace or of all.
#[must_use]
pub fn resource_path(api_version: &str, namespace: Option<&str>, resource: &str) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let within = namespace.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    format!("/{root}/{api_version}/{within}{resource}")
}

/// Returns the message about an object whose path the API server does not have: its answer of 404 names no object.
#[must_use]
pub fn unserved(object: &ObjectRef) -> String {
    let ObjectRef { api_version, resource, namespace, .. } = object;
    let with = if namespace.is_some() { "with" } else { "without" };
    format!(
        "{resource} of {api_version} are not served {with} a namespace by this API server; correct apiVersion and \
         resource of the grant, or metadata.namespace of the object"
    )
}

/// Percent-encodes a value of a query, such as a continue token, which may contain any character. A slash stays as it
/// is, because a query may contain it (RFC 3986, section 3.4).
#[must_use]
pub fn in_query(value: &str) -> PercentEncode<'_> {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
    utf8_percent_encode(value, ENCODED)
}

/// Returns the first [`MAX_REFUSAL_BYTES`] of an error response's body. If the body cannot be read to its end, it
/// returns the bytes that arrived, so the error keeps its status code.
async fn read_beginning(mut body: Body, deadline: Deadline) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < MAX_REFUSAL_BYTES {
        let Ok(Some(Ok(frame))) = timeout_at(deadline.at, body.frame()).await else { break };
        let Ok(data) = frame.into_data() else { break };
        read.extend_from_slice(&data[..data.len().min(MAX_REFUSAL_BYTES - read.len())]);
    }
    read
}

#[cfg(test)]
mod tests {
    use std::io;

    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use podium_pods::testing::{NASTY, assert_clean};
    use tower::service_fn;

    use super::{
        error::{MAX_CAUSE_BYTES, MAX_CAUSES, MAX_MESSAGE_BYTES},
        *,
    };

    fn answering(status: u16, retry_after: Option<&'static str>, body: &'static str) -> Api {
        let service = service_fn(move |_: Request<Body>| async move {
            let mut response = Response::builder().status(status);
            if let Some(seconds) = retry_after {
                response = response.header("retry-after", seconds);
            }
            response.body(Full::new(Bytes::from_static(body.as_bytes())))
        });
        Api::new(kube::Client::new(service, "default"), Duration::from_secs(5))
    }

    fn get() -> Request<Vec<u8>> {
        Request::get("/api/v1/pods").body(Vec::new()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_observer_receives_each_request_that_was_sent() {
        let seen = Arc::<parking_lot::Mutex<Vec<_>>>::default();
        let observed = |api: &Api| {
            let seen = seen.clone();
            api.observed_by(Arc::new(move |method, code, took| seen.lock().push((method.to_owned(), code, took))))
        };
        let get_it = |code, took| ("GET".to_owned(), code, took);
        for code in [200, 401, 503] {
            let _ = observed(&answering(code, None, "")).bytes(get()).await;
            let _ = observed(&answering(code, None, "")).stream(get()).await;
            assert_eq!(std::mem::take(&mut *seen.lock()), [(); 2].map(|()| get_it(Some(code), Duration::ZERO)));
        }
        let silent = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Full<Bytes>>, io::Error>>());
        let silent = Api::new(kube::Client::new(silent, "default"), Duration::from_secs(5));
        let _ = observed(&silent).bytes(get()).await;
        assert_eq!(*seen.lock(), [get_it(None, Duration::from_secs(5))]);
        let _ = observed(&silent).with_end(Instant::now()).bytes(get()).await;
        assert_eq!(seen.lock().len(), 1, "nothing was sent");
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_turn_does_not_count_for_the_deadline() {
        let service = service_fn(|_: Request<Body>| async {
            let chunk = async {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Ok::<_, io::Error>(Frame::data(Bytes::from_static(b"a")))
            };
            Ok::<_, io::Error>(Response::new(StreamBody::new(futures::stream::once(chunk)).boxed_unsync()))
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let turn = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        assert_eq!(api.bytes_in_turn(get(), turn(60)).await, Ok((Bytes::from_static(b"a"), ())));
        let ending = api.with_end(Instant::now() + Duration::from_secs(3));
        assert!(matches!(ending.bytes_in_turn(get(), turn(1)).await, Err(ApiError::Timeout(_))));
    }

    #[tokio::test]
    async fn a_refusal_carries_code_reason_causes_and_how_long_to_wait() {
        let body = r#"{"kind":"Status","status":"Failure","message":"m","reason":"TooManyRequests","code":429,
            "details":{"name":"cart-0","causes":[{"reason":"DisruptionBudget","message":"c"}],"retryAfterSeconds":3}}"#;
        let error = answering(429, None, body).json(get()).await.unwrap_err();
        let cause = Cause { reason: "DisruptionBudget".into(), message: "c".into(), ..Cause::default() };
        let expected = ApiError::Status {
            code: 429,
            reason: Some("TooManyRequests".into()),
            object: Some("cart-0".into()),
            message: "m".into(),
            causes: vec![cause],
            retry_after: Some(Duration::from_secs(3)),
        };
        assert_eq!(error, expected);
        let error = answering(503, Some("7"), "upstream is away").json(get()).await.unwrap_err();
        assert_eq!((error.code(), error.retry_after()), (Some(503), Some(Duration::from_secs(7))));
        assert_eq!(error.to_string(), "503: upstream is away");
    }

    /// Answers as the API server does when a ConfigMap's key is too long: it quotes the key twice.
    fn quoting(bytes: usize) -> Api {
        let service = service_fn(move |_: Request<Body>| async move {
            let value = "\u{1b}k".repeat(bytes / 2);
            let cause = serde_json::json!({ "field": value, "reason": "FieldValueInvalid", "message": value });
            let details = serde_json::json!({ "causes": vec![cause; MAX_CAUSES + 2] });
            let status =
                serde_json::json!({ "kind": "Status", "message": value, "reason": "Invalid", "details": details });
            Response::builder().status(422).body(Full::new(Bytes::from(status.to_string())))
        });
        Api::new(kube::Client::new(service, "default"), Duration::from_secs(5))
    }

    #[tokio::test]
    async fn a_refusal_is_bounded_and_escaped_whatever_it_quotes() {
        // The last body is longer than the bytes that are read, so it is quoted instead of parsed.
        for (bytes, reason) in [(20, "Invalid"), (300, "Invalid"), (900_000, "")] {
            let error = quoting(bytes).json(get()).await.unwrap_err();
            let ApiError::Status { code: 422, reason: kept, message, causes, .. } = error else { panic!("{error}") };
            assert_eq!(kept.as_deref(), Some(reason).filter(|reason| !reason.is_empty()));
            assert!(message.len() <= MAX_MESSAGE_BYTES && !message.contains('\u{1b}') && !message.is_empty());
            assert!(causes.len() <= MAX_CAUSES && causes.iter().all(|cause| cause.message.len() <= MAX_CAUSE_BYTES));
        }
        let error = quoting(600).json(get()).await.unwrap_err();
        assert!(error.to_string().len() < 2 * MAX_MESSAGE_BYTES);
    }

    #[test]
    fn text_of_the_api_server_has_no_effect_on_lines_and_terminals() {
        let nasty = NASTY.repeat(100);
        let cause = serde_json::json!({ "field": nasty, "reason": nasty, "message": nasty });
        let details = serde_json::json!({ "name": nasty, "causes": [cause] });
        let status = serde_json::json!({ "kind": "Status", "message": nasty, "reason": nasty, "details": details });
        for body in [status.to_string(), nasty] {
            let error = refusal(422, None, body.as_bytes());
            assert_clean(&error.to_string(), MAX_MESSAGE_BYTES + MAX_CAUSE_BYTES + 64);
            assert_clean(&error.for_guests(), MAX_MESSAGE_BYTES + MAX_CAUSE_BYTES + 64);
            let ApiError::Status { causes, object, .. } = error else { unreachable!("it is a refusal") };
            let causes = causes.iter().flat_map(|cause| [&cause.field, &cause.reason, &cause.message]);
            causes.chain(&object).for_each(|text| assert_clean(text, MAX_CAUSE_BYTES));
        }
        assert_clean(&transport(&io::Error::other(NASTY.repeat(100))).to_string(), 2 << 10);
    }

    #[test]
    fn a_certificate_of_an_authority_is_refused_with_what_is_needed() {
        let refused =
            rustls::CertificateError::Other(rustls::OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity"))));
        let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(refused));
        assert!(transport(&error).to_string().contains("one with CA:FALSE"), "{}", transport(&error));
        assert!(is_tls(&error));
    }

    #[test]
    fn a_guest_does_not_learn_where_the_api_server_is() {
        let address = "error trying to connect: tcp connect error: 10.0.0.1:6443".to_owned();
        let hidden = [
            ApiError::Transport { sent: true, message: address.clone() },
            ApiError::Malformed(address.clone()),
            refusal(502, None, address.as_bytes()),
        ];
        for error in hidden {
            assert!(!error.for_guests().contains("10.0.0.1") && error.to_string().contains("10.0.0.1"));
        }
    }

    #[test]
    fn a_value_of_a_query_is_percent_encoded() {
        assert_eq!(in_query("podium/shop/tidy-1.a_b~").to_string(), "podium/shop/tidy-1.a_b~");
        assert_eq!(in_query("a+b&c=d e%?#\u{e9}").to_string(), "a%2Bb%26c%3Dd%20e%25%3F%23%C3%A9");
    }

    #[tokio::test]
    async fn an_answer_that_is_no_json_is_malformed() {
        let error = answering(200, None, "<html>").json(get()).await.unwrap_err();
        assert!(matches!(error, ApiError::Malformed(_)), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_end_at_the_given_time_and_none_is_sent_after_it() {
        let service =
            service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Full<Bytes>>, http::Error>>());
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let api = api.with_end(Instant::now() + Duration::from_secs(7));
        assert_eq!(api.bytes(get()).await, Err(ApiError::Timeout(Duration::from_secs(5))));
        assert_eq!(api.bytes(get()).await, Err(ApiError::Timeout(Duration::from_secs(2))));
        assert!(matches!(api.bytes(get()).await, Err(ApiError::Transport { sent: false, .. })));
    }

    #[tokio::test]
    async fn a_silent_server_is_a_timeout() {
        let service =
            service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Full<Bytes>>, http::Error>>());
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_millis(20));
        assert_eq!(api.bytes(get()).await, Err(ApiError::Timeout(Duration::from_millis(20))));
    }
}
