//! Faults between the real API server and a host: responses that are lost after the write was done, conflicts, 429
//! with Retry-After, slow responses and lost connections. Which write meets one follows a seed.
//!
//! [`Link::client`] is for a host in the test's process, [`Link::proxy`] for a host that is a process.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use futures::StreamExt;
use http::{
    Method, Request, Response,
    header::{CONNECTION, HeaderMap, TRANSFER_ENCODING},
};
use http_body_util::{BodyExt, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn as hyper_service};
use hyper_util::rt::TokioIo;
use kube::{
    Client, Config,
    client::Body,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{BoxError, service_fn};

use crate::programs::Choices;

/// Faults of writes; only the last one affects reads and watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Faults {
    None,
    /// This percentage is done, and the responses are lost.
    Lost(usize),
    /// This percentage is answered with 409.
    Conflicts(usize),
    /// All are answered with 429 and a Retry-After of this number of seconds.
    Busy(u32),
    /// All are done after this time.
    Slow(Duration),
    /// All are done and their responses are lost. From the first one on reads fail and watches show nothing, until
    /// other faults are set.
    Unseen,
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A write that the host sent.
#[derive(Debug, Clone)]
pub struct Sent {
    pub at: Instant,
    pub method: Method,
    pub path: String,
    pub body: Bytes,
    /// Whether the API server received it.
    pub reached: bool,
}

/// The way to the API server, whose faults can be set.
#[derive(Debug, Clone)]
pub struct Link(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    faults: Mutex<Faults>,
    choices: Mutex<Choices>,
    sent: Mutex<Vec<Sent>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    /// True while reads fail and watches show nothing.
    blind: watch::Sender<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Inner {
            faults: Mutex::new(Faults::None),
            choices: Mutex::new(Choices::new(seed)),
            sent: Mutex::default(),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
            blind: watch::Sender::new(false),
        }))
    }

    pub fn set(&self, faults: Faults) {
        *lock(&self.0.faults) = faults;
        self.0.blind.send_replace(false);
    }

    /// Returns the writes so far.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        lock(&self.0.sent).clone()
    }

    /// Returns the number of writes since then.
    #[must_use]
    pub fn since(&self, then: Instant) -> usize {
        lock(&self.0.sent).iter().filter(|sent| sent.at >= then).count()
    }

    /// Returns the most writes that were under way at a time.
    #[must_use]
    pub fn most_under_way(&self) -> usize {
        self.0.most_under_way.load(Ordering::SeqCst)
    }

    pub fn forget_most_under_way(&self) {
        self.0.most_under_way.store(0, Ordering::SeqCst);
    }

    /// Returns a client whose writes meet the faults.
    #[must_use]
    pub fn client(&self, client: Client) -> Client {
        let inner = Arc::clone(&self.0);
        let service = service_fn(move |request: Request<Body>| {
            let (inner, client) = (Arc::clone(&inner), client.clone());
            async move { inner.pass(client, request).await }
        });
        Client::new(service, "default")
    }

    /// Starts a proxy to the API server of a kubeconfig. It speaks plain HTTP and leaves credentials to its clients.
    ///
    /// # Errors
    /// Returns an error if there is no port, or if the kubeconfig cannot be read.
    pub async fn proxy(&self, kubeconfig: &Path) -> Result<FaultProxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let own = listener.local_addr()?;
        let mut through = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(through.clone(), &KubeConfigOptions::default()).await?;
        config.auth_info = AuthInfo::default();
        let client = podium_api::client(config)?;
        let cluster = through.clusters.first_mut().and_then(|named| named.cluster.as_mut());
        let cluster = cluster.context("a kubeconfig without a cluster")?;
        cluster.server = Some(format!("http://{own}"));
        cluster.certificate_authority = None;
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("kubeconfig");
        fs::write(&path, serde_json::to_vec(&through)?)?;
        let losses = watch::Sender::new(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&self.0), client, losses.subscribe()));
        Ok(FaultProxy { kubeconfig: path, address: own, losses, _tasks: tasks, _directory: directory })
    }
}

/// A server in front of the API server, see [`Link::proxy`]. Dropping it closes all connections and the listener.
#[derive(Debug)]
pub struct FaultProxy {
    kubeconfig: PathBuf,
    address: SocketAddr,
    losses: watch::Sender<u64>,
    _tasks: JoinSet<()>,
    /// Contains the kubeconfig.
    _directory: TempDir,
}

impl FaultProxy {
    /// Returns the kubeconfig that uses the proxy.
    #[must_use]
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the address of the proxy.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all open connections, those of watches too. New ones are accepted.
    pub fn lose_connections(&self) {
        self.losses.send_modify(|losses| *losses += 1);
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>, client: Client, lost: watch::Receiver<u64>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        connections.spawn(serve(near, Arc::clone(&inner), client.clone(), lost.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(near: TcpStream, inner: Arc<Inner>, client: Client, mut lost: watch::Receiver<u64>) {
    lost.mark_unchanged();
    let answer = hyper_service(move |request: Request<Incoming>| {
        let (inner, client) = (Arc::clone(&inner), client.clone());
        async move { forwarded(&inner, client, request).await.map_err(|error| anyhow!(error)) }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(near), answer);
    tokio::select! {
        // A request without a response ends its connection, as the fault of a lost response does.
        _ = served => {}
        _ = lost.changed() => {}
    }
}

async fn forwarded(inner: &Inner, client: Client, request: Request<Incoming>) -> Result<Answer, BoxError> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    of_the_connection(&mut parts.headers);
    let mut answer = inner.pass(client, Request::from_parts(parts, Body::from(body.to_vec()))).await?;
    of_the_connection(answer.headers_mut());
    Ok(answer)
}

/// Removes the headers that concern one connection only.
fn of_the_connection(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
}

impl Inner {
    async fn pass(&self, client: Client, request: Request<Body>) -> Result<Answer, BoxError> {
        if request.method() == Method::GET {
            return self.read(client, request).await;
        }
        let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::SeqCst);
        // Dropped even when the host drops the request.
        let _done = Done(&self.under_way);
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let faults = *lock(&self.faults);
        let hit = |percent| lock(&self.choices).percent(percent);
        let refused = match faults {
            // A creation conflicts only with an object that exists.
            Faults::Conflicts(percent) if parts.method != Method::POST && hit(percent) => {
                Some(refusal(409, "Conflict", None)?)
            }
            Faults::Busy(seconds) => Some(refusal(429, "TooManyRequests", Some(seconds))?),
            _ => None,
        };
        lock(&self.sent).push(Sent {
            at: Instant::now(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            body: body.clone(),
            reached: refused.is_none(),
        });
        if let Some(refused) = refused {
            return Ok(refused.map(boxed));
        }
        if faults == Faults::Unseen {
            self.blind.send_replace(true);
        }
        if let Faults::Slow(long) = faults {
            sleep(long).await;
        }
        let answer = client.send(Request::from_parts(parts, Body::from(body.to_vec()))).await?;
        match faults {
            Faults::Lost(percent) if hit(percent) => Err("the connection was lost".into()),
            Faults::Unseen => Err("the connection was lost".into()),
            _ => Ok(answer.map(boxed)),
        }
    }

    async fn read(&self, client: Client, request: Request<Body>) -> Result<Answer, BoxError> {
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        if !is_watch && *self.blind.borrow() {
            return Err("the connection was lost".into());
        }
        let answer = client.send(request).await?;
        if !is_watch {
            return Ok(answer.map(boxed));
        }
        let blind = self.blind.subscribe();
        let frames = |body| {
            BodyStream::new(body).then(move |frame| {
                let mut blind = blind.clone();
                async move {
                    // It only fails with the end of the test.
                    let _ = blind.wait_for(|blind| !blind).await;
                    frame
                }
            })
        };
        Ok(answer.map(|body| boxed(StreamBody::new(frames(body)))))
    }
}

fn boxed<B>(body: B) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: BodyExt<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn refusal(code: u16, reason: &str, retry_after: Option<u32>) -> Result<Response<Body>, http::Error> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "injected by the test", "details": { "retryAfterSeconds": retry_after },
    });
    let mut answer = Response::builder().status(code).header("Content-Type", "application/json");
    if let Some(seconds) = retry_after {
        answer = answer.header("Retry-After", seconds);
    }
    answer.body(Body::from(status.to_string().into_bytes()))
}
