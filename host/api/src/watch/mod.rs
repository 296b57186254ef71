//! Turns the API server's list and watch into observations, in order, with nothing lost and nothing going back in time.
//!
//! A [`Watch`] begins with a streaming list, or with a paginated list if the server does not support streaming. Short
//! watches follow, each resumed at the revision at which the previous one ended, so that another list is only needed
//! after the history or an event was lost. One task does all of this, so two lists never overlap. This module neither
//! stores Pods nor decides which plugins run.

mod adapt;
mod failures;
mod items;
mod lines;
mod list;
mod object;
mod observations;
mod refusals;
mod retries;
mod rollback;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Request, header};
use parking_lot::Mutex;
use podium_encoding::Pool;
use podium_engine::dispatch::Lost;
use podium_pods::pod::{CachedPods, Observation, PodList};
use podium_vocabulary::{PodKey, Revision};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use self::{
    adapt::{PageSize, Streaming},
    failures::Failures,
    object::{Decoder, Malformed},
    observations::{Closed, ObservationSender},
    refusals::Refusals,
};
pub use self::{
    lines::{Batch, Lines},
    retries::Retries,
    rollback::RollbackDetector,
};
use crate::{Api, ApiError};

/// How often in a row an API server may report that it has not reached the observed revision. After that its newest
/// state is used, whatever its revision. The server waits 3 s each time; a replica is not behind for that long, but a
/// restored etcd is.
const MAX_BEHIND: u32 = 4;

/// The Accept header of lists and watches: without managedFields, which are not stored, 40 % of a Pod's JSON. Servers
/// without the feature gate of KEP-5958, such as those of 1.36, ignore the parameter and send them.
const PODS: &str = "application/json;drop=metadata.managedFields,application/json";

/// The least time between two lists because of lost events.
const LISTS_APART: Duration = Duration::from_secs(60);

/// Which Pods to watch, and the timeouts of requests.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    /// The most Pods in one page of a paged list: about 5 MB, the chunk size of client-go.
    pub page_limit: u32,
    /// The longest silence of one page of a paged list, before the response begins and within it.
    pub page_deadline: Duration,
    /// The timeout after which the API server ends a watch with a bookmark. A dead connection is detected soon after
    /// it.
    pub watch_timeout: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            page_limit: 500,
            page_deadline: Duration::from_secs(15),
            watch_timeout: Duration::from_secs(8),
        }
    }
}

/// Counters of a watch.
#[derive(Debug, Default)]
pub struct Counters {
    lists: AtomicU64,
    watches: AtomicU64,
    events: AtomicU64,
    unreadable: AtomicU64,
    rollbacks: AtomicU64,
    /// The namespaces and uids of the Pods whose latest state could not be decoded.
    undecoded: Mutex<BTreeSet<(Arc<str>, Arc<str>)>>,
}

impl Counters {
    /// Returns the number of lists, of either kind.
    pub fn lists(&self) -> u64 {
        self.lists.load(Relaxed)
    }
    /// Returns the number of watches.
    pub fn watches(&self) -> u64 {
        self.watches.load(Relaxed)
    }
    /// Returns the number of lines of watches.
    pub fn events(&self) -> u64 {
        self.events.load(Relaxed)
    }
    /// Records that the API server's history was set back.
    pub fn rolled_back(&self) {
        self.rollbacks.fetch_add(1, Relaxed);
    }
    /// Returns how often the API server's history was found to be set back.
    pub fn rollbacks(&self) -> u64 {
        self.rollbacks.load(Relaxed)
    }
    /// Returns how many states of Pods could not be decoded. The cache kept the previous states.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.load(Relaxed)
    }
    /// Returns the number of Pods of a namespace, or with `None` of all, whose latest state could not be decoded. The
    /// cache has an older state of them or none. They are counted before the observation that leaves them out is sent.
    pub fn undecoded(&self, namespace: Option<&str>) -> usize {
        let undecoded = self.undecoded.lock();
        let first = (namespace.unwrap_or_default().into(), "".into());
        undecoded.range(first..).take_while(|(of, _)| namespace.is_none_or(|namespace| namespace == &**of)).count()
    }
}

/// A list and watch of Pods.
#[must_use = "a watch does nothing until it is run"]
pub struct Watch {
    api: Api,
    options: WatchOptions,
    decoder: Decoder,
    retries: Retries,
    counters: Arc<Counters>,
    /// The revision at which the next watch begins; `None` if a list comes first.
    position: Option<Revision>,
    /// The newest observed revision. No older list is used, unless the history was rolled back.
    seen: Revision,
    /// How often in a row the API server had not reached `seen`.
    behind: u32,
    /// Detects whether the API server has lost the observed history.
    rollback: RollbackDetector,
    streaming: Streaming,
    pages: PageSize,
    /// Refused watches.
    refusals: Refusals,
    failures: Failures,
    /// The latest proof that an event was lost.
    lost: watch::Receiver<Lost>,
    /// The revision of the latest list.
    listed: Revision,
    /// When a list may follow a lost event.
    list_lost: Instant,
}

/// The next request after this one.
#[derive(Debug)]
enum Next {
    /// The next request follows at once.
    Continue,
    /// The same request, after a wait. Readers are marked stale if that takes long.
    Resume { reason: String },
    /// The same request, after a wait. Readers are marked stale now.
    Retry { reason: String, after: Option<Duration> },
    /// A list, because the missed events cannot be fetched.
    Relist { reason: String },
    /// A list, because the API server has no history since the last one.
    Expired { reason: String },
}

impl Watch {
    /// Returns a watch. `seed` is for the jitter of waits and must differ between hosts; otherwise all of them
    /// reconnect at the same moment.
    pub fn new(api: Api, options: WatchOptions, pool: Arc<Pool>, known: Arc<dyn CachedPods>, seed: u64) -> Self {
        let pages = PageSize::new(options.page_limit);
        Self {
            api,
            options,
            decoder: Decoder::new(pool, known),
            retries: Retries::new(seed),
            counters: Arc::default(),
            position: None,
            seen: Revision::default(),
            behind: 0,
            rollback: RollbackDetector::default(),
            streaming: Streaming::default(),
            pages,
            refusals: Refusals::default(),
            failures: Failures::default(),
            lost: watch::channel(Lost::default()).1,
            listed: Revision::default(),
            list_lost: Instant::now(),
        }
    }

    /// Lists again when an event was lost since the latest list, at most once a minute. A Pod that cannot be decoded
    /// looks the same, and is no reason.
    pub fn listing_when(self, lost: watch::Receiver<Lost>) -> Self {
        Self { lost, ..self }
    }

    /// Uses these counters instead of new ones.
    pub fn counted_by(self, counters: Arc<Counters>) -> Self {
        Self { counters, ..self }
    }

    /// Returns the counters, which outlive the watch.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Sends observations until the receiver is dropped, and retries failures forever. Dropping the future ends it
    /// earlier; the observations that were sent are complete. A slow receiver slows the API server down.
    pub async fn run(mut self, observations: mpsc::Sender<Observation>) {
        let closed = observations.clone();
        tokio::select! {
            biased;
            () = closed.closed() => {}
            () = self.drive(ObservationSender::new(observations)) => {}
        }
    }

    async fn drive(&mut self, mut sender: ObservationSender) {
        loop {
            let failed = if self.position.is_some() { "watch failed" } else { "list failed" };
            let next = match self.position {
                Some(from) => {
                    let next = self.run_watch_until_lost(from, &mut sender).await;
                    if !matches!(next, Ok(Next::Expired { .. })) {
                        self.retries.accepted();
                    }
                    next
                }
                None => {
                    let next = self.list(&mut sender).await;
                    self.listed = self.seen;
                    next
                }
            };
            let (reason, wait) = match next {
                Ok(Next::Continue) => continue,
                Err(Closed) => return,
                Ok(Next::Resume { reason }) => {
                    let wait = self.retries.wait(None);
                    self.log_failure(failed, &reason, wait);
                    sender.interrupted();
                    if sender.during(tokio::time::sleep(wait)).await.is_err() {
                        return;
                    }
                    continue;
                }
                Ok(Next::Retry { reason, after }) => (reason, self.retries.wait(after)),
                Ok(Next::Relist { reason }) => {
                    self.position = None;
                    (reason, self.retries.wait(None))
                }
                Ok(Next::Expired { reason }) => {
                    self.position = None;
                    (reason, self.retries.wait_expired())
                }
            };
            self.log_failure(failed, &reason, wait);
            if sender.stale(reason).await.is_err() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Runs a watch until its end, or until an event is known to be lost.
    async fn run_watch_until_lost(&mut self, from: Revision, sender: &mut ObservationSender) -> Result<Next, Closed> {
        let mut proofs = self.lost.clone();
        let list_lost = self.list_lost;
        let listed = self.listed;
        let undecoded: BTreeSet<_> = self.counters.undecoded.lock().iter().map(|(_, uid)| uid.clone()).collect();
        let lost = async {
            sleep_until(list_lost).await;
            let is_reason = |(uid, cached): &Lost| *cached > listed && !undecoded.contains(uid);
            if proofs.wait_for(is_reason).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = lost => {
                self.list_lost = Instant::now() + LISTS_APART;
                Ok(Next::Relist { reason: "the watch has lost an event of a write".to_owned() })
            }
            next = self.run_watch(from, sender) => next,
        }
    }

    /// Logs a failure. `count` is the number of failures since the last line, because a server that is down is tried
    /// several times a second.
    fn log_failure(&mut self, failed: &'static str, error: &str, wait: Duration) {
        let Some(count) = self.failures.failed(error, Instant::now()) else { return };
        let retry_in_ms = wait.as_millis() as u64;
        let relist = self.position.is_none();
        let namespace = self.options.namespace.as_deref().unwrap_or("all");
        tracing::warn!(resource = "pods", namespace, error, count, retry_in_ms, relist, "{failed}");
    }

    /// Records that the watch sent an event or ended regularly.
    fn succeeded(&mut self) {
        self.retries.reset();
        self.refusals.end();
        if self.failures.end() {
            tracing::info!(resource = "pods", "watch restored");
        }
    }

    /// Returns the reaction to an error of a watch: that of [`Self::after_error`], or a list if the error repeats.
    /// `at_once` is true if the watch brought nothing before it.
    fn after_watch_error(&mut self, error: &ApiError, at_once: bool) -> Next {
        if error.code() == Some(410) && at_once {
            return Next::Expired { reason: error.to_string() };
        }
        if let ApiError::Status { code, .. } = error
            && *code != 410
            && !is_behind(error)
            && self.refusals.refused(*code)
        {
            return Next::Relist { reason: error.to_string() };
        }
        self.after_error(error)
    }

    /// Returns the reaction to an error of the API server, in a list or a watch.
    fn after_error(&mut self, error: &ApiError) -> Next {
        if error.code() == Some(410) {
            return Next::Relist { reason: error.to_string() };
        }
        if is_behind(error) {
            return self.after_behind(error.to_string());
        }
        if matches!(error, ApiError::Transport { sent: false, .. }) {
            // The API server cannot be reached, so longer waits would not reduce its load and would delay the
            // recovery.
            self.retries.reset();
        }
        Next::Retry { reason: error.to_string(), after: error.retry_after() }
    }

    fn after_behind(&mut self, reason: String) -> Next {
        self.behind += 1;
        match self.behind < MAX_BEHIND {
            true => Next::Retry { reason, after: None },
            false => Next::Relist { reason },
        }
    }

    fn unreadable(&mut self, pod: &PodKey, error: &str) {
        self.counters.unreadable.fetch_add(1, Relaxed);
        tracing::error!(%pod, error, "pod cannot be decoded; the cache keeps its previous state");
        self.counters.undecoded.lock().insert((pod.namespace.clone(), pod.uid.clone()));
    }

    /// Records that a state of the Pod was decoded.
    fn decoded(&mut self, pod: &PodKey) {
        let mut undecoded = self.counters.undecoded.lock();
        if !undecoded.is_empty() {
            undecoded.remove(&(pod.namespace.clone(), pod.uid.clone()));
        }
    }

    /// Records a complete list: Pods that could not be decoded and are not held by it are decoded or gone.
    fn decoded_list(&mut self, pods: &PodList) {
        let mut undecoded = self.counters.undecoded.lock();
        if !undecoded.is_empty() {
            let held = pods.held.clone().sorted();
            undecoded.retain(|(_, uid)| held.contains(uid));
        }
    }

    fn get(&self, query: &str) -> Result<Request<Vec<u8>>, ApiError> {
        let path = match &self.options.namespace {
            Some(namespace) => format!("/api/v1/namespaces/{namespace}/pods?{query}"),
            None => format!("/api/v1/pods?{query}"),
        };
        let unusable = |error: http::Error| ApiError::Transport { sent: false, message: error.to_string() };
        Request::get(path).header(header::ACCEPT, PODS).body(Vec::new()).map_err(unusable)
    }
}

impl From<Malformed> for Next {
    fn from(malformed: Malformed) -> Self {
        Self::Relist { reason: malformed.to_string() }
    }
}

/// Returns true if the server has not reached the requested revision. Servers before 1.33 name no cause.
fn is_behind(error: &ApiError) -> bool {
    error.has_cause("ResourceVersionTooLarge")
        || matches!(error, ApiError::Status { message, .. } if message.contains("Too large resource version"))
}
