//! Lists and watches the objects of one kind.
//!
//! Simpler than the watch of Pods: there are few objects, each is decoded, and none is kept here. A list that is older
//! than an earlier event is applied too; the watch behind it brings the newer state.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use http::Request;
use podium_api::{
    Api, ApiError, in_query,
    watch::{Batch, Counters, Lines, Retries, RollbackDetector},
};
use podium_engine::intervals::Intervals;
use podium_vocabulary::{PluginId, fnv, text};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    sync::{Semaphore, mpsc, watch},
    time::{Instant, sleep, timeout_at},
};

use super::{
    bounds::Trimming,
    object::{API_VERSION, Kind, Object},
};
use crate::config::Policy;

/// Deadline of one page.
const PAGE_DEADLINE: Duration = Duration::from_secs(15);
/// After this time the API server ends a watch, and it is resumed. A bookmark or the end shows that the connection
/// works.
const WATCH_SECONDS: u64 = 60;
/// Time that the end of a watch may take to arrive.
const END_GRACE: Duration = Duration::from_secs(5);
/// A watch that ends sooner is not resumed at once.
const SHORT: Duration = Duration::from_secs(1);
/// How long the kind may not be served before its objects count as deleted. An API server that starts may answer so for
/// a moment, and so may a proxy with a wrong route.
const ABSENT: Duration = Duration::from_secs(30);
/// The wait between requests for a kind that is not served, which needs a person who creates its definition.
const ABSENT_WAIT: Duration = Duration::from_secs(10);

/// A kind of the API server.
pub(crate) trait Served: Clone + Send + Sync + 'static {
    /// The plural, for log lines.
    fn resource(&self) -> &str;

    /// Returns the path of all objects, or of those of a namespace.
    fn path(&self, namespace: Option<&str>) -> String;

    /// Returns a request of a list or a watch.
    fn request(&self, uri: &str, _is_watch: bool) -> http::request::Builder {
        Request::get(uri)
    }

    /// The most objects of a page of the list. The API server limits an object to 1.5 MiB, and a page to 128 MiB here.
    fn page(&self) -> u32 {
        50
    }

    /// Returns how long to wait before the next list after the API server has refused one or a watch, and the message
    /// about it. `None` if that is a failure as any other.
    fn refused(&self) -> Option<(Duration, String)> {
        None
    }
}

impl Served for Kind {
    fn resource(&self) -> &str {
        Self::resource(*self)
    }

    fn path(&self, namespace: Option<&str>) -> String {
        let resource = Self::resource(*self);
        match namespace.filter(|_| *self != Self::Cluster) {
            Some(namespace) => format!("/apis/{API_VERSION}/namespaces/{namespace}/{resource}"),
            None => format!("/apis/{API_VERSION}/{resource}"),
        }
    }
}

/// An object of a kind that is listed and watched.
pub(crate) trait Watchable: Sized + Send + 'static {
    /// The kind.
    type Kind: Served;
    /// The identity of an object.
    type Id: Send;

    /// # Errors
    /// Returns an error for JSON without an identity.
    fn read(kind: &Self::Kind, json: &str) -> Result<Self, String>;

    fn id(self) -> Self::Id;

    /// Returns what ends a complete list at this revision, if something does.
    fn end(_revision: &str) -> Option<Self> {
        None
    }

    /// Returns true if a list so far is not continued.
    fn is_full(_kind: &Self::Kind, _objects: &[Self]) -> bool {
        false
    }

    /// Removes from a list so far everything that is beyond the bounds of its tenant.
    fn trim(objects: &mut Vec<Self>, trimming: &mut Trimming, policy: Option<&Policy>);
}

impl Watchable for Object {
    type Kind = Kind;
    type Id = PluginId;

    fn read(kind: &Kind, json: &str) -> Result<Self, String> {
        Self::read(*kind, json)
    }

    fn id(self) -> PluginId {
        self.id
    }

    fn trim(objects: &mut Vec<Self>, trimming: &mut Trimming, policy: Option<&Policy>) {
        trimming.page(objects, policy);
    }
}

/// A report of the API server.
#[derive(Debug, PartialEq)]
pub(crate) enum Change<O: Watchable = Object> {
    /// All objects.
    Listed(Vec<O>),
    /// The kind is not served, so there are no objects, or there are none any more. Or the account may not see them.
    Absent,
    /// A new object, or a new state of one.
    Applied(Box<O>),
    /// An object is gone.
    Deleted(O::Id),
    /// An object is beyond the number of its tenant, and decides nothing. Not of the API server.
    Left(O::Id),
}

/// A list and watch of the objects of one kind.
pub(crate) struct ObjectWatch<O: Watchable = Object> {
    api: Api,
    kind: O::Kind,
    /// `None` for all namespaces.
    namespace: Option<String>,
    retries: Retries,
    failures: Intervals,
    /// Since when the kind is not served.
    absent: Option<Instant>,
    /// The latest watch was refused: a list is made, which may be refused too, and then one in each pause.
    is_unwatched: bool,
    /// Objects were reported that a kind that is not served no longer has.
    reported: bool,
    policy: watch::Receiver<Option<Policy>>,
    pods: Arc<Counters>,
    /// The one request for a page that is under way, of the watches of a tenant.
    of_tenant: Arc<Semaphore>,
    /// Pages of lists that are read at once, of all watches that share this.
    turns: Arc<Semaphore>,
    of: PhantomData<fn() -> O>,
}

/// A channel of the changes of a kind.
type Changes<O> = mpsc::Sender<(<O as Watchable>::Kind, Change<O>)>;

/// Why the watch begins again with a list.
enum Broken {
    /// The changes since the last revision are not known any more.
    Expired,
    Api(ApiError),
    Malformed(String),
    /// The receiver of the changes is gone.
    Closed,
}

impl From<ApiError> for Broken {
    fn from(error: ApiError) -> Self {
        if error.code() == Some(410) { Self::Expired } else { Self::Api(error) }
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The object of a bookmark.
#[derive(Deserialize)]
struct Bookmark {
    metadata: PageMetadata,
}

impl<O: Watchable> ObjectWatch<O> {
    /// `seed` is the host's, for the jitter of waits: the watches of one host do not retry together.
    pub(crate) fn new(api: Api, kind: O::Kind, namespace: Option<String>, seed: u64) -> Self {
        let retries = Retries::new(seed ^ fnv(&kind.path(namespace.as_deref())));
        let failures = Intervals::new();
        let policy = watch::channel(None).1;
        let pods = Arc::default();
        let [of_tenant, turns] = [(); 2].map(|()| Arc::new(Semaphore::new(1)));
        let absent = None;
        let of = PhantomData;
        let is_unwatched = false;
        let reported = false;
        Self {
            api,
            kind,
            namespace,
            retries,
            failures,
            absent,
            is_unwatched,
            reported,
            policy,
            pods,
            of_tenant,
            turns,
            of,
        }
    }

    /// Does not keep the specs of a list that are beyond the bounds of their tenants in the present policy.
    pub(crate) fn bounded_by(self, policy: watch::Receiver<Option<Policy>>) -> Self {
        Self { policy, ..self }
    }

    /// Lists the objects also when the watch of Pods has found that the API server's history was set back: they share
    /// it.
    pub(crate) fn beside(self, pods: Arc<Counters>) -> Self {
        Self { pods, ..self }
    }

    /// Sends a request for a page of a list only while it has the turn of its tenant, and reads the page only while it
    /// has one of `turns` as well: a request that the API server lets wait delays the lists of its tenant only.
    pub(crate) fn taking(self, of_tenant: &Arc<Semaphore>, turns: &Arc<Semaphore>) -> Self {
        Self { of_tenant: of_tenant.clone(), turns: turns.clone(), ..self }
    }

    /// Reports the objects and their changes until the receiver is gone.
    pub(crate) async fn run(mut self, changes: Changes<O>) {
        loop {
            let broken = match self.list().await {
                Ok((objects, revision)) => {
                    self.absent = None;
                    self.reported = true;
                    if changes.send((self.kind.clone(), Change::Listed(objects))).await.is_err() {
                        return;
                    }
                    if self.is_unwatched {
                        self.refused().await;
                    } else {
                        self.failures.end();
                    }
                    let broken = self.follow(revision, &changes).await;
                    if self.is_refused(&broken) {
                        self.is_unwatched = true;
                        continue;
                    }
                    broken
                }
                Err(broken) => broken,
            };
            if !matches!(broken, Broken::Api(ApiError::Status { code: 404, .. })) {
                // The kind may have been served in between.
                self.absent = None;
            }
            match broken {
                Broken::Closed => return,
                Broken::Expired => {
                    let wait = self.retries.wait_expired();
                    sleep(wait).await;
                }
                Broken::Api(ApiError::Status { code: 404, .. }) => {
                    if self.not_served(&changes).await.is_err() {
                        return;
                    }
                }
                broken if self.is_refused(&broken) => {
                    if changes.send((self.kind.clone(), Change::Absent)).await.is_err() {
                        return;
                    }
                    self.refused().await;
                }
                Broken::Api(error) => {
                    let wait = self.retries.wait(error.retry_after());
                    self.failed(&error.to_string(), wait).await;
                }
                Broken::Malformed(reason) => {
                    let wait = self.retries.wait(None);
                    self.failed(&reason, wait).await;
                }
            }
        }
    }

    /// Returns true if the account may not list or watch, and that is expected.
    fn is_refused(&self, broken: &Broken) -> bool {
        matches!(broken, Broken::Api(ApiError::Status { code: 403, .. })) && self.kind.refused().is_some()
    }

    /// Waits until a right that is missing may have been added.
    async fn refused(&mut self) {
        let Some((wait, message)) = self.kind.refused() else { return };
        if let Some(count) = self.failures.occurred(Instant::now()) {
            tracing::info!(count, "{}", text::line(&message));
        }
        // Watches that are refused together do not ask together.
        let jitter = self.retries.wait(None);
        sleep(wait + jitter).await;
    }

    /// # Errors
    /// Returns an error if the receiver of the changes is gone.
    async fn not_served(&mut self, changes: &Changes<O>) -> Result<(), ()> {
        let now = Instant::now();
        let is_first = self.absent.is_none();
        if is_first {
            tracing::warn!(
                resource = self.kind.resource(),
                "the API server does not serve this kind, so there are no objects of it; apply its \
                 CustomResourceDefinition"
            );
        }
        let is_absent = now - *self.absent.get_or_insert(now) >= ABSENT;
        let is_due = match self.reported {
            true => is_absent,
            false => is_first,
        };
        if is_due {
            self.reported = false;
            changes.send((self.kind.clone(), Change::Absent)).await.map_err(drop)?;
        }
        let wait = if is_absent { ABSENT_WAIT } else { self.retries.wait(None) };
        sleep(wait).await;
        Ok(())
    }

    async fn failed(&mut self, reason: &str, wait: Duration) {
        if let Some(count) = self.failures.occurred(Instant::now()) {
            let retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let resource = self.kind.resource();
            tracing::warn!(resource, error = text::line(reason), count, retry_in_ms, "list or watch failed");
        }
        sleep(wait).await;
    }

    fn get(&self, query: &str, is_watch: bool) -> Result<Request<Vec<u8>>, Broken> {
        let path = self.kind.path(self.namespace.as_deref());
        let join = if path.contains('?') { '&' } else { '?' };
        self.kind
            .request(&format!("{path}{join}{query}"), is_watch)
            .body(Vec::new())
            .map_err(|error| Broken::Malformed(error.to_string()))
    }

    /// Returns all objects that can be read, and the revision of the list.
    async fn list(&mut self) -> Result<(Vec<O>, String), Broken> {
        let api = self.api.with_deadline(PAGE_DEADLINE);
        let mut objects = Vec::new();
        let mut next = String::new();
        let mut trimming = Trimming::default();
        loop {
            let mut query = format!("limit={}", self.kind.page());
            if !next.is_empty() {
                query.push_str(&format!("&continue={}", in_query(&next)));
            }
            // Never closed.
            let _of_tenant = self.of_tenant.acquire().await;
            let (page, _turn) = api.bytes_in_turn(self.get(&query, false)?, self.turns.acquire()).await?;
            let Page { metadata, items } = serde_json::from_slice(&page).map_err(malformed)?;
            objects.extend(items.iter().flatten().filter_map(|item| self.object(item.get())));
            O::trim(&mut objects, &mut trimming, self.policy.borrow().as_ref());
            next = metadata.next.unwrap_or_default();
            if next.is_empty() {
                objects.extend(O::end(&metadata.resource_version));
            }
            if next.is_empty() || O::is_full(&self.kind, &objects) {
                return Ok((objects, metadata.resource_version));
            }
        }
    }

    /// Watches from a revision on, in one watch after the other, until a list is needed: also after several silent
    /// watches, because the API server's history may have been set back to before the revision.
    async fn follow(&mut self, mut revision: String, changes: &Changes<O>) -> Broken {
        let mut rollback = RollbackDetector::default();
        let rollbacks = self.pods.rollbacks();
        loop {
            let began = Instant::now();
            let watched = self.watch(&mut revision, &mut rollback, changes).await;
            if began.elapsed() >= SHORT {
                self.retries.accepted();
                self.is_unwatched = false;
            }
            let is_list_due = match watched {
                Ok(is_list_due) => is_list_due || self.pods.rollbacks() != rollbacks,
                Err(broken) => return broken,
            };
            if began.elapsed() >= SHORT {
                self.retries.reset();
            } else {
                let wait = self.retries.wait(None);
                sleep(wait).await;
            }
            if is_list_due {
                return Broken::Expired;
            }
        }
    }

    /// One watch, to its end. Returns true if a list is due.
    async fn watch(
        &self,
        revision: &mut String,
        rollback: &mut RollbackDetector,
        changes: &Changes<O>,
    ) -> Result<bool, Broken> {
        let timeout = rollback.watch_timeout(Duration::from_secs(WATCH_SECONDS));
        let query = format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            timeout.as_secs(),
            in_query(revision)
        );
        let deadline = Instant::now() + timeout + END_GRACE;
        let mut lines = Lines::new(self.api.stream(self.get(&query, true)?).await?);
        let mut silent = true;
        loop {
            let batch = tokio::select! {
                biased;
                () = changes.closed() => return Err(Broken::Closed),
                batch = timeout_at(deadline, lines.batch()) => batch,
            };
            let batch = match batch {
                Ok(Batch::Lines(batch)) => batch,
                Ok(Batch::TooLong) => return Err(Broken::Malformed("an event without end".to_owned())),
                // Resumed at the revision, also after the connection was cut.
                Ok(Batch::Cut(_)) => {
                    rollback.cut();
                    return Ok(false);
                }
                Ok(Batch::End) | Err(_) => return Ok(silent && rollback.silence()),
            };
            silent = false;
            rollback.confirm();
            for line in batch {
                if let Some(change) = self.event(&line, revision)? {
                    changes.send((self.kind.clone(), change)).await.map_err(|_| Broken::Closed)?;
                }
            }
        }
    }

    fn event(&self, line: &[u8], revision: &mut String) -> Result<Option<Change<O>>, Broken> {
        let Line { kind, object } = serde_json::from_slice(line).map_err(malformed)?;
        let json = object.get();
        if kind == "ERROR" {
            return Err(ApiError::from_status(json.as_bytes()).into());
        }
        if let Ok(Bookmark { metadata }) = serde_json::from_str(json)
            && !metadata.resource_version.is_empty()
        {
            // Some servers send the last state of a deleted object with its own revision.
            if kind != "DELETED" && is_before(&metadata.resource_version, revision) {
                return Err(Broken::Expired);
            }
            *revision = metadata.resource_version;
        }
        Ok(match kind {
            "ADDED" | "MODIFIED" => self.object(json).map(Box::new).map(Change::Applied),
            "DELETED" => self.object(json).map(|object| Change::Deleted(object.id())),
            _ => None,
        })
    }

    /// Reads an object; one without an identity is logged and left out.
    fn object(&self, json: &str) -> Option<O> {
        O::read(&self.kind, json)
            .inspect_err(|error| {
                tracing::warn!(resource = self.kind.resource(), error, "object cannot be read");
            })
            .ok()
    }
}

/// Returns true if a revision is of an earlier state, as after the API server's history was set back.
fn is_before(revision: &str, seen: &str) -> bool {
    let numbers = revision.parse::<u64>().ok().zip(seen.parse().ok());
    numbers.is_some_and(|(revision, seen)| revision < seen)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn malformed(error: serde_json::Error) -> Broken {
    Broken::Malformed(format!("malformed answer: {error}"))
}

#[cfg(test)]
mod tests;
