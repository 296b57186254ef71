//! A conversation with one API server: each request with its response becomes a step that can be compared.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, Request, header, response::Parts};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::conformance::normal::Normaliser;

const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// The real server builds its OpenAPI documents on the first request, which takes seconds of a processor.
const DOCUMENT_WITHIN: Duration = Duration::from_secs(120);

pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// A description of the request, and the response without the parts that may differ.
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
    body: Option<String>,
    hidden: Vec<&'static str>,
    compared: Compared,
}

/// The compared parts of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Everything except the message about a malformed request.
    Meaning,
    /// Everything including the message about a malformed request.
    Message,
}

impl Call {
    fn new(method: Method, path: impl Into<String>, body: Option<Value>) -> Self {
        Self {
            method,
            path: path.into(),
            content_type: "application/json",
            accept: "application/json",
            impersonate: None,
            body: body.map(|body| body.to_string()),
            hidden: Vec::new(),
            compared: Compared::Meaning,
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
    /// Sends a body literally, also one that is not a JSON value.
    pub(crate) fn with_body(self, body: &str) -> Self {
        Self { body: Some(body.to_owned()), ..self }
    }
    /// Also compares the message of a malformed request.
    pub(crate) fn with_message(self) -> Self {
        Self { compared: Compared::Message, ..self }
    }
    /// Leaves out a field of the response, by its last key, at any depth.
    pub(crate) fn hiding(mut self, key: &'static str) -> Self {
        self.hidden.push(key);
        self
    }
}

/// All requests of one scenario to one server, in its own namespace.
pub(crate) struct Exchange {
    client: Client,
    pub(crate) namespace: String,
    normaliser: Normaliser,
    steps: Vec<Step>,
}

impl Exchange {
    /// Creates the namespace and the objects that Pods need to be admitted.
    pub(crate) async fn begin(client: Client, scenario: &str) -> Result<Self> {
        let namespace = scenario.replace(' ', "-");
        let exchange = Self { client, namespace, normaliser: Normaliser::default(), steps: Vec::new() };
        let name = exchange.namespace.clone();
        let made = Call::post("/api/v1/namespaces", json!({"metadata": {"name": name}}));
        ensure!(exchange.send(&made).await?.0 == 201, "no namespace {name}");
        let account = Call::post(exchange.path("serviceaccounts"), json!({"metadata": {"name": "default"}}));
        // 409 if a controller was faster.
        ensure!(matches!(exchange.send(&account).await?.0, 201 | 409), "no ServiceAccount in {name}");
        Ok(exchange)
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns a path of the core group in the scenario's namespace.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// Returns a path of a named group in the scenario's namespace.
    pub(crate) fn group_path(&self, group_version: &str, rest: &str) -> String {
        format!("/apis/{group_version}/namespaces/{}/{rest}", self.namespace)
    }

    /// Sends a request and records the response. Returns the response unchanged.
    pub(crate) async fn step(&mut self, what: &str, call: Call) -> Result<Value> {
        let (head, bytes) = self.bytes(&call).await.with_context(|| what.to_owned())?;
        let answer = read(&bytes);
        self.normaliser.next_step();
        let shown = self.normaliser.normal(answer.clone(), &call.hidden, call.compared);
        let mut text = head.status.as_u16().to_string();
        for warning in head.headers.get_all(header::WARNING) {
            text += &format!("\nWarning: {}", warning.to_str()?);
        }
        self.steps.push(Step { what: what.to_owned(), answer: format!("{text}\n{shown:#}") });
        Ok(answer)
    }

    /// Sends a request and records only the status and the media type, for documents that are too long to compare.
    pub(crate) async fn media_type(&mut self, what: &str, call: Call) -> Result<()> {
        let (head, _) = self.bytes_within(&call, DOCUMENT_WITHIN).await.with_context(|| what.to_owned())?;
        let media = head.headers.get(header::CONTENT_TYPE).map(|media| media.to_str()).transpose()?;
        self.note(what, format!("{} {}", head.status, media.unwrap_or_default()));
        Ok(())
    }

    /// Sends a request without recording it, for responses that are compared in parts.
    pub(crate) async fn look(&self, call: Call) -> Result<Value> {
        Ok(read(&self.bytes_within(&call, DOCUMENT_WITHIN).await?.1))
    }

    /// Sends a request until the response is `settled` and records nothing, for responses that depend on a cache of
    /// the server.
    pub(crate) async fn look_until(&self, call: Call, settled: impl Fn(&Value) -> bool) -> Result<Value> {
        podium_tests::wait::until("a settled answer", ANSWER_WITHIN, async || {
            let answer = self.look(call.clone()).await?;
            ensure!(settled(&answer), "answered {answer}");
            Ok(answer)
        })
        .await
    }

    /// Sends a request until the response has the status, and records only that response, for asynchronous work of
    /// the server.
    pub(crate) async fn eventually(&mut self, what: &str, status: u16, call: Call) -> Result<Value> {
        let this = &*self;
        let answer = podium_tests::wait::until(what, ANSWER_WITHIN, async || {
            let (got, answer) = this.send(&call).await?;
            ensure!(got == status, "answered {got}: {answer}");
            Ok(answer)
        })
        .await?;
        self.normaliser.next_step();
        let shown = self.normaliser.normal(answer.clone(), &call.hidden, call.compared);
        self.steps.push(Step { what: what.to_owned(), answer: format!("{status}\n{shown:#}") });
        Ok(answer)
    }

    /// Watches until the server ends the stream and records all events. `path` has a timeoutSeconds.
    pub(crate) async fn watch(&mut self, what: &str, path: String) -> Result<Vec<Value>> {
        let (head, bytes) = self.bytes(&Call::get(path)).await.with_context(|| what.to_owned())?;
        self.normaliser.next_step();
        let mut shown = head.status.as_u16().to_string();
        let mut events = Vec::new();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line)?;
            // Bookmarks come at any time; only the one that ends the initial events has a fixed position.
            let ends = &event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"];
            if event["type"] != "BOOKMARK" || ends == "true" {
                shown += &format!("\n{:#}", self.normaliser.normal(event.clone(), &[], Compared::Meaning));
            }
            events.push(event);
        }
        self.steps.push(Step { what: what.to_owned(), answer: shown });
        Ok(events)
    }

    /// Records a value that is derived from responses: an equality, an order.
    pub(crate) fn note(&mut self, what: &str, value: impl std::fmt::Display) {
        self.steps.push(Step { what: what.to_owned(), answer: value.to_string() });
    }

    async fn send(&self, call: &Call) -> Result<(u16, Value)> {
        let (head, bytes) = self.bytes(call).await?;
        Ok((head.status.as_u16(), read(&bytes)))
    }

    async fn bytes(&self, call: &Call) -> Result<(Parts, Vec<u8>)> {
        self.bytes_within(call, ANSWER_WITHIN).await
    }

    async fn bytes_within(&self, call: &Call, within: Duration) -> Result<(Parts, Vec<u8>)> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header(header::ACCEPT, call.accept)
            .header(header::CONTENT_TYPE, call.content_type)
            .header(header::USER_AGENT, "conformance");
        if let Some(user) = &call.impersonate {
            request = request.header("Impersonate-User", user);
        }
        let body = call.body.clone().unwrap_or_default().into_bytes();
        let answer = async {
            let answer = self.client.send(request.body(Body::from(body))?).await?;
            let (head, body) = answer.into_parts();
            Ok((head, body.collect().await?.to_bytes().to_vec()))
        };
        timeout(within, answer).await.context("no answer in time")?
    }
}

/// Returns JSON as it is, and other text as a separate field.
fn read(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| json!({ "text": String::from_utf8_lossy(bytes).trim_end() }))
}

/// Returns `metadata.uid`.
pub(crate) fn uid(object: &Value) -> String {
    text(object, "/metadata/uid")
}

/// Returns `metadata.resourceVersion`.
pub(crate) fn revision(object: &Value) -> String {
    text(object, "/metadata/resourceVersion")
}

/// Returns a string of a response; empty if there is none.
pub(crate) fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}
