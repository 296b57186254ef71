//! The wire between a host and the embedded cluster: requests are recorded, held back, or preceded by an action.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Method;
use http_body_util::{BodyExt, Full};
use podium_devcluster::{Api, Cluster};
use tower::{Service, ServiceExt, service_fn};

type Answer = <Api as Service<http::Request<Full<Bytes>>>>::Response;

/// A request as the client sends it, before the API server receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub method: Method,
    /// The path and the query.
    pub uri: String,
    pub body: String,
}

impl Sent {
    /// Returns true if it may change the cluster.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Returns true if it opens a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.uri.contains("watch=1") || self.uri.contains("watch=true")
    }
}

/// An action before a request reaches the API server, or before its response reaches the host.
pub type Before = dyn Fn(&Sent) -> BoxFuture<'static, ()> + Send + Sync;

/// The wire of one host.
#[derive(Clone)]
pub struct Wire(Arc<Inner>);

struct Inner {
    api: Api,
    before: Box<Before>,
    after: Box<Before>,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    writes: Vec<Sent>,
    /// Unanswered writes by method and URI.
    open: BTreeMap<(String, String), u32>,
    overlapped: bool,
}

impl Wire {
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        Self::with(cluster, |_| Box::pin(std::future::ready(())))
    }

    /// Returns a wire with an action before each request.
    #[must_use]
    pub fn with(cluster: &Cluster, before: impl Fn(&Sent) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self::around(cluster, before, |_| Box::pin(std::future::ready(())))
    }

    /// Returns a wire with an action before each request and one before each response.
    #[must_use]
    pub fn around(
        cluster: &Cluster,
        before: impl Fn(&Sent) -> BoxFuture<'static, ()> + Send + Sync + 'static,
        after: impl Fn(&Sent) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        let (before, after) = (Box::new(before), Box::new(after));
        Self(Arc::new(Inner { api: cluster.service(), before, after, notes: Mutex::default() }))
    }

    /// Returns the writes so far, in the order in which they were sent.
    #[must_use]
    pub fn writes(&self) -> Vec<Sent> {
        self.0.notes().writes.clone()
    }

    /// Returns true if a write was ever sent before the same manager's write to the same object was answered.
    #[must_use]
    pub fn overlapped(&self) -> bool {
        self.0.notes().overlapped
    }

    /// Returns a client whose requests use this wire.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        let inner = Arc::clone(&self.0);
        let service = service_fn(move |request: http::Request<kube::client::Body>| {
            let inner = Arc::clone(&inner);
            async move { inner.pass(request).await }
        });
        kube::Client::new(service, "default")
    }
}

impl Inner {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, request: http::Request<kube::client::Body>) -> Result<Answer, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let sent = Sent {
            method: parts.method.clone(),
            uri: parts.uri.to_string(),
            body: String::from_utf8_lossy(&body).into_owned(),
        };
        let _open = sent.is_write().then(|| Open::note(self, &sent));
        (self.before)(&sent).await;
        let answered = self.api.clone().oneshot(http::Request::from_parts(parts, Full::new(body))).await;
        (self.after)(&sent).await;
        Ok(answered.unwrap_or_else(|never| match never {}))
    }
}

/// An unanswered write. It also ends if its sender is dropped.
struct Open<'a> {
    inner: &'a Inner,
    place: (String, String),
}

impl<'a> Open<'a> {
    fn note(inner: &'a Inner, sent: &Sent) -> Self {
        let place = (sent.method.to_string(), sent.uri.clone());
        let mut notes = inner.notes();
        notes.writes.push(sent.clone());
        let open = notes.open.entry(place.clone()).or_default();
        *open += 1;
        notes.overlapped |= *open > 1;
        drop(notes);
        Self { inner, place }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.inner.notes().open.get_mut(&self.place) {
            *open -= 1;
        }
    }
}
