//! Helpers of the suites: a cluster in the process and plain requests to it.

#![allow(dead_code, reason = "each suite uses its part")]

use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use podium_devcluster::{Api, Cluster, Options};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

/// Returns a cluster without a simulation, in which Pods do not change by themselves.
pub(crate) fn still() -> Cluster {
    Cluster::start(Options { simulate: false, nodes: 2, ..Options::default() }).unwrap()
}

/// Returns a cluster with a simulated scheduler and kubelet.
pub(crate) fn alive() -> Cluster {
    Cluster::start(Options { nodes: 2, ..Options::default() }).unwrap()
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
    })
}

/// A client that sends plain requests.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) api: Api,
    pub(crate) headers: Vec<(&'static str, String)>,
}

impl Client {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        Self { api: cluster.service(), headers: vec![("user-agent", "suite/1".into())] }
    }

    pub(crate) fn with(&self, name: &'static str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name, value.into()));
        client
    }

    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: String,
    ) -> http::Response<axum::body::Body> {
        let mut request = Request::builder().method(method).uri(path).header("content-type", media);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        self.api.clone().oneshot(request.body(Full::from(body)).unwrap()).await.unwrap()
    }

    pub(crate) async fn send(&self, method: Method, path: &str, media: &str, body: String) -> (u16, Value) {
        let response = self.open(method, path, media, body).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, "application/json", String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(Method::POST, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn post_response(&self, path: &str, body: Value) -> http::Response<axum::body::Body> {
        self.open(Method::POST, path, "application/json", body.to_string()).await
    }

    /// Returns the status of a response that arrives completely.
    pub(crate) async fn try_post(&self, path: &str, body: Value) -> Result<u16, axum::Error> {
        let response = self.post_response(path, body).await;
        let status = response.status().as_u16();
        response.into_body().collect().await.map(|_| status)
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.send(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, media: &str, body: Value) -> (u16, Value) {
        self.send(Method::PATCH, path, media, body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> (u16, Value) {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.send(Method::DELETE, path, "application/json", body).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Watching {
        let response = self.open(Method::GET, path, "application/json", String::new()).await;
        assert_eq!(response.status(), 200);
        Watching { body: response.into_body(), rest: Vec::new() }
    }

    /// Repeats the request until the response matches.
    pub(crate) async fn until(&self, path: &str, fits: impl Fn(u16, &Value) -> bool) -> Value {
        let asking = async {
            loop {
                let (code, value) = self.get(path).await;
                if fits(code, &value) {
                    return value;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), asking).await.expect("the cluster never got there")
    }
}

/// An open watch.
pub(crate) struct Watching {
    body: axum::body::Body,
    rest: Vec<u8>,
}

impl Watching {
    /// Returns the next event's type and object; `None` when the watch ended, `Err` when it was cut.
    pub(crate) async fn next(&mut self) -> Result<Option<(String, Value)>, axum::Error> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                return Ok(Some((event["type"].as_str().unwrap().to_owned(), event["object"].clone())));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => self.rest.extend(frame?.into_data().unwrap()),
            }
        }
    }

    /// Returns the next complete line, whatever it contains; `None` at the end.
    pub(crate) async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Some(self.rest.drain(..=end).collect());
            }
            self.rest.extend(self.body.frame().await?.unwrap().into_data().unwrap());
        }
    }

    /// Returns the bytes after the last complete line.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.rest
    }

    pub(crate) async fn event(&mut self) -> (String, Value) {
        self.next().await.unwrap().expect("the watch ended")
    }
}

pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub(crate) fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Returns the field of the first cause of an error.
pub(crate) fn cause(status: &Value) -> &str {
    status["details"]["causes"][0]["field"].as_str().unwrap_or_default()
}
