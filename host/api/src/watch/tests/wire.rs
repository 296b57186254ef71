//! A fake of the wire: scripted HTTP responses with timed bodies, and the recorded requests.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, header};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Api;

#[derive(Debug, Clone)]
enum Step {
    Bytes(Bytes),
    Wait(Duration),
    Cut,
    Hang,
}

/// One response; its body ends regularly after the last step.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    status: u16,
    retry_after: Option<u64>,
    head_after: Duration,
    steps: Vec<Step>,
}

pub(super) fn answer(status: u16) -> Answer {
    Answer { status, retry_after: None, head_after: Duration::ZERO, steps: Vec::new() }
}

impl Answer {
    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
    pub(super) fn bytes(self, bytes: &str) -> Self {
        self.step(Step::Bytes(Bytes::copy_from_slice(bytes.as_bytes())))
    }
    pub(super) fn line(self, line: &str) -> Self {
        self.bytes(&format!("{line}\n"))
    }
    pub(super) fn wait(self, seconds: u64) -> Self {
        self.step(Step::Wait(Duration::from_secs(seconds)))
    }
    /// Breaks the connection here.
    pub(super) fn cut(self) -> Self {
        self.step(Step::Cut)
    }
    /// Sends nothing more and does not end.
    pub(super) fn hang(self) -> Self {
        self.step(Step::Hang)
    }
    pub(super) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
    pub(super) fn head_after(mut self, wait: Duration) -> Self {
        self.head_after = wait;
        self
    }
}

/// Times since the start, in tokio's time, and requests: the query of a request for all Pods, or the target of any
/// other.
pub(super) type Requests = Arc<Mutex<Vec<(Duration, String)>>>;

/// Returns an API server that sends these responses in turn and then none.
pub(super) fn wire(answers: Vec<Answer>) -> (Api, Requests) {
    let requests = Requests::default();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let begun = Instant::now();
    let log = Arc::clone(&requests);
    let service = tower::service_fn(move |request: Request<Body>| {
        let target = request.uri().to_string();
        let pods = target.strip_prefix("/api/v1/pods?");
        if pods.is_some() {
            let accepted = request.headers()[header::ACCEPT].to_str().unwrap();
            assert_eq!(accepted, "application/json;drop=metadata.managedFields,application/json");
        }
        let query = pods.unwrap_or(&target);
        log.lock().push((begun.elapsed(), query.to_owned()));
        let answer = answers.lock().pop_front();
        async move {
            let Some(answer) = answer else { return std::future::pending().await };
            tokio::time::sleep(answer.head_after).await;
            let mut response = Response::builder().status(answer.status);
            if let Some(seconds) = answer.retry_after {
                response = response.header("retry-after", seconds);
            }
            let body = futures::stream::iter(answer.steps).filter_map(|step| async {
                match step {
                    Step::Bytes(bytes) => Some(Ok(Frame::data(bytes))),
                    Step::Wait(duration) => {
                        tokio::time::sleep(duration).await;
                        None
                    }
                    Step::Cut => Some(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset))),
                    Step::Hang => std::future::pending().await,
                }
            });
            response.body(StreamBody::new(body))
        }
    });
    (Api::new(kube::Client::new(service, "default"), Duration::from_secs(5)), requests)
}

/// Returns a Pod "shop/<name>" with uid "<name>-uid" as JSON.
pub(super) fn pod(name: &str, revision: u64) -> String {
    format!(
        "{{\"metadata\":{{\"namespace\":\"shop\",\"name\":\"{name}\",\"uid\":\"{name}-uid\",\
        \"resourceVersion\":\"{revision}\",\"annotations\":{{\"at\":\"{revision}\"}}}}}}"
    )
}

pub(super) fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

pub(super) fn bookmark(revision: u64) -> String {
    event("BOOKMARK", &format!(r#"{{"kind":"Pod","metadata":{{"resourceVersion":"{revision}"}}}}"#))
}

pub(super) fn end_of_list(revision: u64) -> String {
    let annotations = r#"{"k8s.io/initial-events-end":"true"}"#;
    let object = format!(r#"{{"metadata":{{"resourceVersion":"{revision}","annotations":{annotations}}}}}"#);
    event("BOOKMARK", &object)
}

pub(super) fn page(revision: u64, next: &str, items: &[String]) -> String {
    let items = items.join(",");
    format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{revision}","continue":"{next}"}},"items":[{items}]}}"#
    )
}

pub(super) fn status(code: u16, reason: &str, cause: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"code\":{code},\"reason\":\"{reason}\",\"message\":\"no\",\
        \"details\":{{\"causes\":[{{\"reason\":\"{cause}\"}}]}}}}"
    )
}
