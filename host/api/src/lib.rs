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
mod identity;
mod kubeconfig;
pub mod live;
pub mod watch;

use std::{error::Error as StdError, pin::Pin, sync::Arc, time::Duration};

pub use backpressure::{Backpressure, LiveReadOf};
use bytes::Bytes;
pub use client::{NewConnection, client};
pub use connection::{Clients, Connection, MakeClients};
use futures::{Stream, StreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy;
pub use identity::{plugin_user_agent, user_agent};
use kube::client::Body;
pub use kubeconfig::config;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use podium_vocabulary::text;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

/// The most bytes of one response, 128 MiB: five times a page of 500 of the largest Pods seen.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// The most bytes that are read of an error response. The API server quotes the value that it refuses, which may be
/// megabytes long.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// The most bytes that are stored of an error's message, because it goes to logs, reports and guests.
const MAX_MESSAGE_BYTES: usize = 1 << 10;
/// The most bytes that are stored of each field of a cause.
const MAX_CAUSE_BYTES: usize = 256;
/// The most causes that are stored. The API server names each wrong field of an object.
const MAX_CAUSES: usize = 16;
/// The most bytes that are quoted of a response that is not a Status.
const MAX_QUOTE_BYTES: usize = 200;

/// The bytes of a stream as they arrive. The stream ends after an error.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, ApiError>> + Send>>;

/// Receives each request that was sent: its method, the status code, or `None` without a response, and the time until
/// then.
pub type Observer = Arc<dyn Fn(&str, Option<u16>, Duration) + Send + Sync>;

/// A client of the API server with a deadline for each request.
#[derive(Clone)]
pub struct Api {
    connection: Connection,
    deadline: Duration,
    /// The time at which all requests end, regardless of their own deadlines.
    end: Option<Instant>,
    /// `None` if the caller observes Retry-After itself, as the watch does.
    backpressure: Option<Arc<Backpressure>>,
    observer: Option<Observer>,
}

/// The time at which a request ends.
#[derive(Clone, Copy)]
struct Deadline {
    at: Instant,
    within: Duration,
}

/// Why a request did not return a usable response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The API server, or a proxy before it, returned an error status.
    #[error("{code}{}: {message}", .reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default())]
    Status {
        /// The HTTP status code.
        code: u16,
        /// The Status' reason, such as "Conflict"; `None` if the response was not a Status, or a Status without a
        /// reason.
        reason: Option<String>,
        /// The name of the object that the Status is about; `None` if it names none, as when the path is not served.
        object: Option<String>,
        /// The Status' message, escaped, at most 1 KiB.
        message: String,
        /// The first 16 causes.
        causes: Vec<Cause>,
        /// The Retry-After of the response.
        retry_after: Option<Duration>,
    },
    /// Nothing was sent, because the API server had asked to wait. The value is the remaining time.
    #[error("not sent: the API server asked to wait {} s", .0.as_secs_f32())]
    Held(Duration),
    /// No response arrived within this deadline. The request may have been executed.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The connection failed. If `sent` is false, nothing reached the API server; otherwise the request may have been
    /// executed.
    #[error("{message}")]
    Transport {
        /// Whether the request may have reached the API server.
        sent: bool,
        /// The error and its causes.
        message: String,
    },
    /// The response has an unexpected form. A write was executed.
    #[error("malformed answer: {0}")]
    Malformed(String),
}

/// One cause in the details of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// The field at fault, such as "metadata.uid".
    pub field: String,
    /// The machine-readable reason, such as "DisruptionBudget".
    pub reason: String,
    /// The explanation for people.
    pub message: String,
}

impl Cause {
    fn bounded(self) -> Self {
        let Self { field, reason, message } = self;
        let bounded = |text: String| text::bounded(&text, MAX_CAUSE_BYTES);
        Self { field: bounded(field), reason: bounded(reason), message: bounded(message) }
    }
}

/// The fields of a `metav1.Status` that errors need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u32>,
}

impl Api {
    /// Returns a client that sends through `connection`. Each request ends after `deadline` at the latest.
    #[must_use]
    pub fn new(connection: impl Into<Connection>, deadline: Duration) -> Self {
        Self { connection: connection.into(), deadline, end: None, backpressure: None, observer: None }
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

    /// Returns how long requests of the account have to wait, or `None` if they may be sent. Without an account the
    /// answer is for the host's own account.
    #[must_use]
    pub fn held(&self, account: Option<&str>) -> Option<Duration> {
        self.backpressure.as_ref()?.wait(account, Instant::now())
    }

    /// Returns the same client with another deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
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
        let deadline = self.deadline()?;
        let (method, uri, began) = (request.method().clone(), request.uri().clone(), Instant::now());
        let pass = self.backpressure.as_ref().map(|backpressure| backpressure.admit(&request, began));
        let pass = pass.transpose().map_err(ApiError::Held)?;
        let answered = match self.send(request, deadline).await {
            Ok(response) => self.collect(response, deadline).await,
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

    /// Returns the body of a 2xx response as JSON.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn json(&self, request: Request<Vec<u8>>) -> Result<serde_json::Value, ApiError> {
        let bytes = self.bytes(request).await?;
        serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed(text::line(&error.to_string())))
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
    async fn send(&self, request: Request<Vec<u8>>, deadline: Deadline) -> Result<Response<Body>, ApiError> {
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
        let (method, began) = (request.method().clone(), Instant::now());
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
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
        match timeout_at(deadline.at, body.collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(ApiError::Malformed(format!("longer than {MAX_ANSWER_BYTES} bytes")))
            }
            Ok(Err(error)) => Err(transport(&*error)),
            Err(_) => Err(ApiError::Timeout(deadline.within)),
        }
    }
}

impl ApiError {
    /// Returns the error for the Status in an ERROR event of a watch.
    #[must_use]
    pub fn from_status(json: &[u8]) -> Self {
        refusal(0, None, json)
    }

    /// Returns the message for a guest, without addresses and host names of the connection to the API server.
    #[must_use]
    pub fn for_guests(&self) -> String {
        match self {
            Self::Status { code, reason: None, .. } => format!("the API server answered {code}"),
            Self::Status { code, reason: Some(reason), message, .. } => {
                format!("the API server answered {code} {reason}: {message}")
            }
            Self::Transport { .. } => "the connection to the API server failed".to_owned(),
            Self::Malformed(_) => "the API server's answer cannot be read".to_owned(),
            Self::Held(_) | Self::Timeout(_) => self.to_string(),
        }
    }

    /// Returns the status code of an error response.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns true if the API server did not accept the host's own credentials. Nothing was executed then, and other
    /// requests fail in the same way, whoever they impersonate.
    #[must_use]
    pub fn is_unauthenticated(&self) -> bool {
        // Admission answers 401 too, and names the object or a cause then.
        let is_bare = matches!(self, Self::Status { object: None, causes, .. } if causes.is_empty());
        self.code() == Some(401) && is_bare && !self.is_about_the_object()
    }

    /// Returns true if a cause has this reason.
    #[must_use]
    pub fn has_cause(&self, name: &str) -> bool {
        matches!(self, Self::Status { causes, .. } if causes.iter().any(|cause| cause.reason == name))
    }

    /// Returns true if the error concerns the object of the request instead of the API server's load: a disruption
    /// budget forbids the eviction, or an admission webhook, which may be a tenant's, answered.
    #[must_use]
    pub fn is_about_the_object(&self) -> bool {
        let webhook = |message: &str| message.starts_with("admission webhook ");
        self.has_cause("DisruptionBudget") || matches!(self, Self::Status { message, .. } if webhook(message))
    }

    /// Returns the Retry-After of the response, or `None` if there was none or no response.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Returns whether an error is of TLS. An error of IO does not name the error that it contains as its source.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    let of_io = || error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    error.is::<rustls::Error>() || of_io().is_some_and(|inner| is_tls(inner)) || error.source().is_some_and(is_tls)
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

/// Makes the error of a response. With a `code` of 0 the Status' own code is used.
fn refusal(code: u16, retry_after: Option<Duration>, body: &[u8]) -> ApiError {
    let status = serde_json::from_slice::<Status>(body).ok().filter(|status| status.kind == "Status");
    let Some(status) = status else {
        let quote = String::from_utf8_lossy(&body[..body.len().min(2 * MAX_QUOTE_BYTES)]).into_owned();
        let message = text::bounded(quote.trim(), MAX_QUOTE_BYTES);
        return ApiError::Status { code, reason: None, object: None, message, causes: Vec::new(), retry_after };
    };
    let details = status.details.unwrap_or_default();
    let seconds = details.retry_after_seconds.filter(|seconds| *seconds > 0).map(u64::from);
    ApiError::Status {
        code: if code == 0 { status.code } else { code },
        reason: Some(text::bounded(&status.reason, MAX_CAUSE_BYTES)).filter(|reason| !reason.is_empty()),
        object: Some(text::bounded(&details.name, MAX_CAUSE_BYTES)).filter(|name| !name.is_empty()),
        message: text::bounded(&status.message, MAX_MESSAGE_BYTES),
        causes: details.causes.unwrap_or_default().into_iter().take(MAX_CAUSES).map(Cause::bounded).collect(),
        retry_after: retry_after.or(seconds.map(Duration::from_secs)),
    }
}

fn transport(error: &(dyn StdError + 'static)) -> ApiError {
    let mut message = error.to_string();
    let mut sent = true;
    let mut next = Some(error);
    while let Some(error) = next {
        // There were no credentials or no connection: nothing was sent.
        sent &= !error.downcast_ref().is_some_and(legacy::Error::is_connect);
        sent &= !matches!(error.downcast_ref(), Some(kube::Error::Auth(_)));
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        next = error.source();
    }
    // rustls names the rule only.
    if message.contains("CaUsedAsEndEntity") {
        message += ": the API server presents the certificate of an authority (CA:TRUE) as its own; it needs one with \
            CA:FALSE, signed by an authority that the kubeconfig has in certificate-authority";
    }
    ApiError::Transport { sent, message: text::line(&message) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use http_body_util::Full;
    use podium_pods::testing::{NASTY, assert_clean};
    use tower::service_fn;

    use super::*;

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
