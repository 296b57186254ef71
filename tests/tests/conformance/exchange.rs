//! A conversation with one API server: each request and its answer become a step that can be compared.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::normal::Normaliser;

const ANSWER_WITHIN: Duration = Duration::from_secs(20);

pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// What was asked, in words, and the answer without what may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) what: String,
    pub(crate) answer: String,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    path: String,
    content_type: &'static str,
    accept: &'static str,
    impersonate: Option<String>,
    body: Option<Value>,
    hidden: Vec<&'static str>,
}

impl Call {
    fn new(method: Method, path: impl Into<String>, body: Option<Value>) -> Self {
        Self {
            method,
            path: path.into(),
            content_type: "application/json",
            accept: "application/json",
            impersonate: None,
            body,
            hidden: Vec::new(),
        }
    }
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, None)
    }
    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::POST, path, Some(body))
    }
    pub(crate) fn put(path: impl Into<String>, body: Value) -> Self {
        Self::new(Method::PUT, path, Some(body))
    }
    pub(crate) fn delete(path: impl Into<String>, options: Value) -> Self {
        Self::new(Method::DELETE, path, Some(options))
    }
    pub(crate) fn patch(content_type: &'static str, path: impl Into<String>, body: Value) -> Self {
        Self { content_type, ..Self::new(Method::PATCH, path, Some(body)) }
    }
    pub(crate) fn accept(self, accept: &'static str) -> Self {
        Self { accept, ..self }
    }
    pub(crate) fn impersonating(self, user: &str) -> Self {
        Self { impersonate: Some(user.to_owned()), ..self }
    }
    /// Leaves a field of the answer out, named by its last key, wherever it is.
    pub(crate) fn hiding(mut self, key: &'static str) -> Self {
        self.hidden.push(key);
        self
    }
}

/// All requests of one scenario to one server, in a namespace of its own.
pub(crate) struct Exchange {
    client: Client,
    pub(crate) namespace: String,
    normaliser: Normaliser,
    steps: Vec<Step>,
}

impl Exchange {
    /// Makes the namespace and in it what Pods need to be admitted.
    pub(crate) async fn begin(client: Client, scenario: &str) -> Result<Self> {
        let namespace = scenario.replace(' ', "-");
        let exchange = Self { client, namespace, normaliser: Normaliser::default(), steps: Vec::new() };
        let name = exchange.namespace.clone();
        let made = Call::post("/api/v1/namespaces", json!({"metadata": {"name": name}}));
        ensure!(exchange.send(&made).await?.0 == 201, "no namespace {name}");
        let account = Call::post(exchange.path("serviceaccounts"), json!({"metadata": {"name": "default"}}));
        // 409 where a controller was quicker.
        ensure!(matches!(exchange.send(&account).await?.0, 201 | 409), "no ServiceAccount in {name}");
        Ok(exchange)
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// A path of the core group in the scenario's namespace.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// A path of a named group in the scenario's namespace.
    pub(crate) fn group_path(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.namespace)
    }

    /// Sends and records. Gives the answer as it came.
    pub(crate) async fn step(&mut self, what: &str, call: Call) -> Result<Value> {
        let (status, answer) = self.send(&call).await.with_context(|| what.to_owned())?;
        self.normaliser.next_step();
        let shown = self.normaliser.normal(answer.clone(), &call.hidden);
        self.steps.push(Step { what: what.to_owned(), answer: format!("{status}\n{shown:#}") });
        Ok(answer)
    }

    /// Sends and records nothing: for what is compared in parts.
    pub(crate) async fn look(&self, call: Call) -> Result<Value> {
        Ok(self.send(&call).await?.1)
    }

    /// Sends until the answer has the status, and records that answer alone: for what the server does in its own time.
    pub(crate) async fn eventually(&mut self, what: &str, status: u16, call: Call) -> Result<Value> {
        let this = &*self;
        let answer = podium_tests::wait::until(what, ANSWER_WITHIN, async || {
            let (got, answer) = this.send(&call).await?;
            ensure!(got == status, "answered {got}: {answer}");
            Ok(answer)
        })
        .await?;
        self.normaliser.next_step();
        let shown = self.normaliser.normal(answer.clone(), &call.hidden);
        self.steps.push(Step { what: what.to_owned(), answer: format!("{status}\n{shown:#}") });
        Ok(answer)
    }

    /// Watches until the server ends the stream and records all events. `path` has a timeoutSeconds.
    pub(crate) async fn watch(&mut self, what: &str, path: String) -> Result<Vec<Value>> {
        let (status, bytes) = self.bytes(&Call::get(path)).await.with_context(|| what.to_owned())?;
        self.normaliser.next_step();
        let mut shown = format!("{status}");
        let mut events = Vec::new();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line)?;
            // Bookmarks come when the server likes; only the one that ends the initial events has its place.
            let ends = &event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
            if event["type"] != "BOOKMARK" || ends == "true" {
                shown += &format!("\n{:#}", self.normaliser.normal(event.clone(), &[]));
            }
            events.push(event);
        }
        self.steps.push(Step { what: what.to_owned(), answer: shown });
        Ok(events)
    }

    /// Records something derived from answers: an equality, an order.
    pub(crate) fn note(&mut self, what: &str, value: impl std::fmt::Display) {
        self.steps.push(Step { what: what.to_owned(), answer: value.to_string() });
    }

    async fn send(&self, call: &Call) -> Result<(u16, Value)> {
        let (status, bytes) = self.bytes(call).await?;
        let answer = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| json!({ "text": String::from_utf8_lossy(&bytes).trim_end() }));
        Ok((status, answer))
    }

    async fn bytes(&self, call: &Call) -> Result<(u16, Vec<u8>)> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(header::ACCEPT, call.accept)
            .header(header::CONTENT_TYPE, call.content_type)
            .header(header::USER_AGENT, "conformance");
        if let Some(user) = &call.impersonate {
            request = request.header("Impersonate-User", user);
        }
        let body = call.body.as_ref().map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let answer = async {
            let answer = self.client.send(request.body(Body::from(body))?).await?;
            let status = answer.status().as_u16();
            Ok((status, answer.into_body().collect().await?.to_bytes().to_vec()))
        };
        timeout(ANSWER_WITHIN, answer).await.context("no answer in time")?
    }
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> String {
    text(object, "/metadata/uid")
}

/// `metadata.resourceVersion`.
pub(crate) fn revision(object: &Value) -> String {
    text(object, "/metadata/resourceVersion")
}

/// A string in an answer, empty where there is none.
pub(crate) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
