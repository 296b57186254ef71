//! The API as a tower service: from a request's bytes to a response, for `kube::Client::new` in the process and for a
//! socket.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    discovery,
    failure::Failure,
    faults::{Refusal, Requests},
    handle::{self, Answer},
    present::Shape,
    rbac,
    request::{self, Query, Request, Verb},
    requests::Logged,
    watch::Watch,
};

/// The API server's own limit of a body, in bytes.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The API of one cluster. Clones serve the same cluster.
#[derive(Clone, Debug)]
#[must_use]
pub struct Api {
    pub(crate) core: Arc<Core>,
    /// Ends the watches that were opened through this service.
    pub(crate) stop: CancellationToken,
}

impl<B> tower::Service<http::Request<B>> for Api
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let core = self.core.clone();
        let stop = self.stop.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let answer = match Limited::new(body, LARGEST_BODY).collect().await {
                Ok(body) => respond(&core, &stop, parts, body.to_bytes()).await,
                Err(error) if error.is::<LengthLimitError>() => failed(&Failure::too_large()),
                Err(error) => failed(&Failure::bad_request(error.to_string())),
            };
            let delay = core.faults.delay_now();
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            Ok(answer)
        })
    }
}

async fn respond(core: &Arc<Core>, stop: &CancellationToken, parts: Parts, body: Bytes) -> Response<Body> {
    let query_text = parts.uri.query().unwrap_or_default().to_owned();
    let query = Query::parse(&query_text);
    let kinds = core.offered();
    let Some(target) = request::route(&kinds, &parts.method, parts.uri.path(), &query) else {
        let accept = parts.headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let found = discovery::answer(&kinds, parts.uri.path(), accept);
        return found.unwrap_or_else(|| {
            // The router of a built-in group answers within it; other paths have no router.
            let group = request::group(parts.uri.path());
            let known = group.is_some_and(|group| kinds.iter().any(|kind| !kind.custom && kind.group == group));
            if known { failed(&Failure::no_route()) } else { typed(404, "text/plain", "404 page not found\n") }
        });
    };
    let target = match target {
        Ok(target) => target,
        Err(failure) => return failed(&failure),
    };
    let request = Request { target, query, headers: parts.headers, body };
    let verb = request.target.verb;
    let refusal = core.faults.take_refusal(asked_for(&request));
    let response = match (refusal, Shape::requested(request.header("accept"))) {
        (Some(refusal), _) if refusal != Refusal::Gone || verb != Verb::Watch => failed(&refusal.failure()),
        (_, Err(failure)) => failed(&failure),
        (refusal, Ok(shape)) if verb == Verb::Watch => watch(core, stop, &request, shape, refusal),
        (_, Ok(shape)) => {
            let mut warnings = Vec::new();
            let mut response = match handle::handle(core, &request, shape, &mut warnings) {
                Ok(_) if verb.is_write() && core.faults.take_cut() => cut(),
                Ok(Answer::Json(code, text)) => json(code, text),
                Ok(Answer::NoContent) => no_content(),
                Err(failure) => failed(&failure),
            };
            warn(&mut response, &warnings);
            response
        }
    };
    log(core, &request, query_text, response.status());
    response
}

/// Returns the kind of a request as faults distinguish them.
fn asked_for(request: &Request) -> Requests {
    match request.target.verb {
        Verb::List => Requests::Lists,
        Verb::Watch if request.query.flag("sendInitialEvents") => Requests::Lists,
        Verb::Watch => Requests::Watches,
        verb if verb.is_write() => Requests::Writes,
        _ => Requests::All,
    }
}

/// Returns a response that never arrives: over a connection its head is not sent either.
fn cut() -> Response<Body> {
    let broken = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "disconnected on request");
    Response::new(Body::from_stream(futures::stream::iter([Err::<Bytes, _>(broken)])))
}

fn watch(
    core: &Arc<Core>,
    stop: &CancellationToken,
    request: &Request,
    shape: Shape,
    refusal: Option<Refusal>,
) -> Response<Body> {
    let allowed = rbac::authorize(&core.state.lock(), request, Verb::Watch);
    match allowed.and_then(|()| Watch::new(core, request, shape, refusal)) {
        Ok(watch) => {
            let mut response = Response::new(Body::from_stream(watch.stream(core.clone(), stop.clone())));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(failure) => failed(&failure),
    }
}

fn log(core: &Core, request: &Request, query: String, status: StatusCode) {
    let target = &request.target;
    let given = |header| Some(request.header(header).to_owned()).filter(|value| !value.is_empty());
    core.log.push(Logged {
        at_millis: core.clock.now_millis(),
        verb: target.verb,
        resource: target.kind.qualified(),
        subresource: target.subresource.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        query,
        content_type: request.content_type().to_owned(),
        user_agent: request.header("user-agent").to_owned(),
        impersonated: given("impersonate-user"),
        traceparent: given("traceparent"),
        code: status.as_u16(),
    });
}

fn failed(failure: &Failure) -> Response<Body> {
    let mut response = json(failure.code, failure.to_value().to_string());
    if let Some(seconds) = failure.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds each warning once in the format of RFC 7234; 299 is a miscellaneous persistent warning.
fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for (index, warning) in warnings.iter().enumerate().filter(|(index, w)| !warnings[..*index].contains(w)) {
        let mut header = "299 - \"".to_owned();
        for letter in warning.chars().filter(|letter| !letter.is_control()) {
            if matches!(letter, '"' | '\\') {
                header.push('\\');
            }
            header.push(letter);
        }
        header.push('"');
        match HeaderValue::from_maybe_shared(Bytes::from(header)) {
            Ok(header) => {
                response.headers_mut().append(header::WARNING, header);
            }
            Err(error) => tracing::debug!(%error, index, "warning is not a valid header value"),
        }
    }
}

pub(crate) fn json(code: u16, text: String) -> Response<Body> {
    typed(code, "application/json", text)
}

fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

pub(crate) fn text_plain(text: String) -> Response<Body> {
    typed(200, "text/plain", text)
}

/// Returns a complete response of a media type.
pub(crate) fn typed(code: u16, media: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
