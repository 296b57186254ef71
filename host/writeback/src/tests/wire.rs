//! [`Wire`]: a fake of the wire. Every request is recorded, and every response is scripted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use ::http::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use podium_vocabulary::{Action, ObjectOwner, ObjectRef};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower::service_fn;

use crate::{plan::tests::key, *};

#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) uri: String,
    pub(super) content: String,
    pub(super) accept: String,
    pub(super) user: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) body: Value,
}

/// `None`: no response, or the one of [`Wire::answer`].
pub(super) type Answer = Option<(u16, Value)>;

#[derive(Clone, Default)]
pub(super) struct Wire {
    seen: Arc<Mutex<Vec<Seen>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    late: Arc<Notify>,
}

impl Wire {
    pub(super) fn answering(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
    }

    pub(super) fn writeback(&self) -> Writeback {
        let wire = self.clone();
        let service = service_fn(move |request: ::http::Request<Body>| {
            let wire = wire.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                wire.seen.lock().unwrap().push(Seen {
                    method: parts.method.to_string(),
                    uri: parts.uri.path_and_query().unwrap().to_string(),
                    content: header("content-type").unwrap_or_default(),
                    accept: header("accept").unwrap_or_default(),
                    user: header("impersonate-user"),
                    agent: header("user-agent"),
                    parent: header("traceparent"),
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                });
                let next = || wire.answers.lock().unwrap().pop_front().expect("a request too many");
                let mut answer = next();
                if answer.is_none() {
                    wire.late.notified().await;
                    answer = next();
                }
                let (code, body) = answer.expect("a late answer");
                let body = Full::new(Bytes::from(body.to_string()));
                Response::builder().status(code).body(body)
            }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(60)).with_backpressure();
        Writeback::new(&api, Prune::annotations(["x.example/pruned"]))
    }

    /// Waits for this number of requests.
    pub(super) async fn received(&self, requests: usize) {
        while self.seen.lock().unwrap().len() < requests {
            tokio::task::yield_now().await;
        }
    }

    /// Adds the answer of a later request.
    pub(super) fn queue(&self, answer: Answer) {
        self.answers.lock().unwrap().push_back(answer);
    }

    /// Answers the request that has no response yet.
    pub(super) fn answer(&self, answer: Answer) {
        self.answers.lock().unwrap().push_front(answer);
        self.late.notify_one();
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        assert!(self.answers.lock().unwrap().is_empty(), "an answer was not asked for");
        self.seen.lock().unwrap().clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(|seen| format!("{} {}", seen.method, seen.uri)).collect()
    }
}

pub(super) fn sender() -> Sender {
    Sender { manager: "podium/shop/a".into(), impersonate: Some("system:serviceaccount:shop:a".into()) }
}

pub(super) fn status(code: u16, cause_field: &str, cause: &str) -> Answer {
    let causes = json!([{ "field": cause_field, "reason": cause, "message": "because" }]);
    let body = json!({ "kind": "Status", "code": code, "message": "because", "details": { "causes": causes } });
    Some((code, body))
}

pub(super) fn results(sent: &Sent) -> Vec<WriteResult> {
    sent.reports.iter().map(|report| report.result.clone()).collect()
}

pub(super) fn apply(data: &[(&str, &str)]) -> Action {
    let object = ObjectRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        resource: "configmaps".into(),
        namespace: Some("shop".into()),
        name: "summary".into(),
    };
    let data: BTreeMap<_, _> = data.iter().copied().collect();
    let metadata = json!({"namespace": "shop", "name": "summary"});
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    Action::ApplyObject { object, body, owner: Some(ObjectOwner::Pod(key())) }
}
