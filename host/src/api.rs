//! Requests to the API server with a deadline, and its answers as errors that say what to do.
//!
//! One request is one attempt: what may be sent again, and when, is known to the rooms that send it alone.

mod backpressure;
mod client;
mod identity;

use std::{error::Error as StdError, pin::Pin, sync::Arc, time::Duration};

pub use backpressure::{Backpressure, LiveReadOf};
use bytes::Bytes;
pub use client::{NewConnection, client};
use futures::{Stream, StreamExt};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy;
pub use identity::{plugin_user_agent, user_agent};
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use podium_pods::model::text;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

/// The most bytes of one answer, 128 MiB: a page of 500 of the largest Pods seen is a fifth of it.
const MAX_ANSWER_BYTES: usize = 128 << 20;
/// The most bytes that are read of a refusal: the API server quotes the value that it refuses, which may be megabytes.
const MAX_REFUSAL_BYTES: usize = 64 << 10;
/// The most bytes that are kept of a refusal's message. It goes to logs, reports and guests.
const MAX_MESSAGE_BYTES: usize = 1 << 10;
/// The most bytes that are kept of each text of a cause.
const MAX_CAUSE_BYTES: usize = 256;
/// Causes that are kept: the API server names each wrong field of an object.
const MAX_CAUSES: usize = 16;
/// How much of an answer that is no Status is quoted.
const MAX_QUOTE_BYTES: usize = 200;

/// The bytes of a stream, as they come. Ends for good after an error.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, ApiError>> + Send>>;

/// The API server and how long one request to it may take.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    deadline: Duration,
    /// When all requests have ended, whatever the deadline of each.
    end: Option<Instant>,
    /// None: whoever sends keeps to Retry-After by itself, as the watch does.
    backpressure: Option<Arc<Backpressure>>,
}

/// When a request has ended.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    within: Duration,
}

/// Why a request brought no good answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The API server refused, or something before it did.
    #[error("{code}{}: {message}", .reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default())]
    Status {
        /// The HTTP status code.
        code: u16,
        /// Such as "Conflict"; `None` if the answer was no Status, or a Status without a reason.
        reason: Option<String>,
        /// The name of the object that the Status is about; `None` if there is none, as where no such path is served.
        object: Option<String>,
        /// Escaped, at most 1 KiB.
        message: String,
        /// The first 16.
        causes: Vec<Cause>,
        /// How long the server asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// Nothing was sent: the API server asked to wait this long.
    #[error("not sent, the API server asked to wait {} s", .0.as_secs_f32())]
    Held(Duration),
    /// No answer within the deadline. What was asked for may have been done.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The connection failed. With `sent` false nothing has reached the API server; else it may have been done.
    #[error("{message}")]
    Transport {
        /// Whether the request may have reached the API server.
        sent: bool,
        /// The error and its causes.
        message: String,
    },
    /// An answer that is not what was asked for. If it was a write, it was done.
    #[error("malformed answer: {0}")]
    Malformed(String),
}

/// One cause in the details of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// Such as "metadata.uid".
    pub field: String,
    /// Such as "DisruptionBudget".
    pub reason: String,
    /// For people.
    pub message: String,
}

impl Cause {
    fn bounded(self) -> Self {
        let Self { field, reason, message } = self;
        let bounded = |text: String| text::bounded(&text, MAX_CAUSE_BYTES);
        Self { field: bounded(field), reason: bounded(reason), message: bounded(message) }
    }
}

/// A `metav1.Status`, as far as errors need it.
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
    /// Returns the API server behind `client`. Each request ends after `deadline` at the latest.
    #[must_use]
    pub fn new(client: kube::Client, deadline: Duration) -> Self {
        Self { client, deadline, end: None, backpressure: None }
    }

    /// The same API server, to which nothing is sent before a Retry-After of an earlier answer is over. Clones share
    /// what they were answered; see [`Backpressure`].
    #[must_use]
    pub fn with_backpressure(&self) -> Self {
        Self { backpressure: Some(Arc::default()), ..self.clone() }
    }

    /// How long requests of the account are to wait; none: they may be sent. Without an account it is about the host's
    /// own.
    #[must_use]
    pub fn held(&self, account: Option<&str>) -> Option<Duration> {
        self.backpressure.as_ref()?.wait(account, Instant::now())
    }

    /// The same API server with another deadline.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same API server for a piece of work that must have ended by then: a request that is under way is given up,
    /// one that has not begun is not sent.
    #[must_use]
    pub fn until(&self, end: Instant) -> Self {
        Self { end: Some(end), ..self.clone() }
    }

    /// The body of a 2xx answer.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn bytes(&self, request: Request<Vec<u8>>) -> Result<Bytes, ApiError> {
        let due = self.due()?;
        let (method, uri, began) = (request.method().clone(), request.uri().clone(), Instant::now());
        let pass = self.backpressure.as_ref().map(|backpressure| backpressure.admit(&request, began));
        let pass = pass.transpose().map_err(ApiError::Held)?;
        let answered = match self.send(request, due).await {
            Ok(response) => self.collect(response, due).await,
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

    /// The body of a 2xx answer as JSON.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn json(&self, request: Request<Vec<u8>>) -> Result<serde_json::Value, ApiError> {
        let bytes = self.bytes(request).await?;
        serde_json::from_slice(&bytes).map_err(|error| ApiError::Malformed(error.to_string()))
    }

    /// The body of a 2xx answer as it comes. The deadline is for the head of the answer; how long the body may be
    /// silent is the caller's to say.
    ///
    /// # Errors
    /// See [`ApiError`]; the items of the stream are `Transport` or nothing.
    pub async fn stream(&self, request: Request<Vec<u8>>) -> Result<Chunks, ApiError> {
        let response = self.send(request, self.due()?).await?;
        let chunks = response.into_body().into_data_stream();
        Ok(Box::pin(chunks.map(|chunk| chunk.map_err(|error| transport(&error)))))
    }

    fn due(&self) -> Result<Due, ApiError> {
        let now = Instant::now();
        let left = self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
        if left.is_zero() {
            return Err(ApiError::Transport { sent: false, message: "no time is left".to_owned() });
        }
        let within = left.min(self.deadline);
        Ok(Due { at: now + within, within })
    }

    async fn send(&self, request: Request<Vec<u8>>, due: Due) -> Result<Response<Body>, ApiError> {
        let response = match timeout_at(due.at, self.client.send(request.map(Body::from))).await {
            Ok(response) => response.map_err(|error| transport(&error))?,
            Err(_) => return Err(ApiError::Timeout(due.within)),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let header = response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        Err(refusal(code, retry_after, &beginning(response.into_body(), due).await))
    }

    async fn collect(&self, response: Response<Body>, due: Due) -> Result<Bytes, ApiError> {
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
        match timeout_at(due.at, body.collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(ApiError::Malformed(format!("longer than {MAX_ANSWER_BYTES} bytes")))
            }
            Ok(Err(error)) => Err(transport(&*error)),
            Err(_) => Err(ApiError::Timeout(due.within)),
        }
    }
}

impl ApiError {
    /// From the Status in an ERROR event of a watch.
    #[must_use]
    pub fn from_status(json: &[u8]) -> Self {
        refusal(0, None, json)
    }

    /// For a guest: what went wrong, without the addresses and names of the way to the API server.
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

    /// The status code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// True when a cause names this reason.
    #[must_use]
    pub fn has_cause(&self, name: &str) -> bool {
        matches!(self, Self::Status { causes, .. } if causes.iter().any(|cause| cause.reason == name))
    }

    /// True for a refusal that is about what was asked for and not about how busy the API server is: a disruption
    /// budget forbids the eviction, or an admission webhook, which may be a tenant's, answered.
    #[must_use]
    pub fn is_about_the_object(&self) -> bool {
        let webhook = |message: &str| message.starts_with("admission webhook ");
        self.has_cause("DisruptionBudget") || matches!(self, Self::Status { message, .. } if webhook(message))
    }

    /// Returns the Retry-After of the answer, or `None` if it has none or if there was no answer.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Percent-encodes a value of a query, such as a continue token, which may have any characters. A slash may stay as it
/// is in a query (RFC 3986, section 3.4).
pub(crate) fn in_query(value: &str) -> PercentEncode<'_> {
    const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
    utf8_percent_encode(value, ENCODED)
}

/// The first [`MAX_REFUSAL_BYTES`] of a refusal's body, or what came of it: it stays one when its body cannot be read
/// to the end.
async fn beginning(mut body: Body, due: Due) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < MAX_REFUSAL_BYTES {
        let Ok(Some(Ok(frame))) = timeout_at(due.at, body.frame()).await else { break };
        let Ok(data) = frame.into_data() else { break };
        read.extend_from_slice(&data[..data.len().min(MAX_REFUSAL_BYTES - read.len())]);
    }
    read
}

/// `code` 0: the Status has its own.
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
        // Found no credentials, or no connection: nothing went out.
        sent &= !error.downcast_ref().is_some_and(legacy::Error::is_connect);
        sent &= !matches!(error.downcast_ref(), Some(kube::Error::Auth(_)));
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        next = error.source();
    }
    ApiError::Transport { sent, message }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
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

    /// As the API server refuses a ConfigMap whose key is too long: with the key, twice.
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
    async fn a_refusal_is_kept_within_bounds_and_escaped_whatever_it_quotes() {
        // The last exceeds what is read of a body, so that it is quoted instead of parsed.
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
    async fn after_the_end_nothing_is_sent_and_before_it_no_longer_waited_than_that() {
        let service =
            service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Full<Bytes>>, http::Error>>());
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let api = api.until(Instant::now() + Duration::from_secs(7));
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
