//! The traits between the engine and its environment: runs of plugins and their cost, writes, live reads, tasks, and
//! jobs that block. Implementations know nothing of each other.

mod meter;
mod run;
mod trace;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
pub use meter::Meter;
use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::{
    Event, EventResult, ObjectGrant, ObjectRef, PodKey, Refused, Revision, Write, WriteReport,
    authz::{Authorized, ObjectRead},
};
pub use run::{
    Failure, FailureKind, Outcome, PLUGIN_TARGET, RUN_TARGET, Request, RunReport, Subject, Usage, panic_message,
};
use serde_json::Value;
pub use trace::{TRACED_WRITES, Trace, TraceId, TracedPart, WriteTime};

/// Writes and Events of a run that were authorised and not yet sent, in staging order.
#[derive(Debug, Default)]
pub struct Staged {
    /// The writes, which are sent in this order.
    pub writes: Vec<Authorized<Write>>,
    /// The Events. Those that report a write are sent with it.
    pub events: Vec<Authorized<Event>>,
    /// The trace of the run, if runs are traced. The requests of the writes name it if it is sampled.
    pub trace: Option<Trace>,
    /// The kinds of objects whose applies take fields of other managers.
    pub forced: Vec<ObjectGrant>,
}

/// The answer to the read of an object.
pub type ObjectAnswer<'a> = BoxFuture<'a, Result<Option<Value>, Refused>>;

fn no_objects() -> Refused {
    Refused::Unavailable("objects cannot be read here".to_owned())
}

/// The interface of a run to its environment. Implemented by dispatch over a snapshot, writeback and live reads. Only
/// the engine's one choke point for host calls uses it, after authorization and accounting.
pub trait World: Send + 'static {
    /// Returns true if the plugin may not do any more what it could when the run began: the run is being ended, and
    /// its host calls are refused.
    fn is_revoked(&self) -> bool;
    /// Returns the run's snapshot. Only [`World::commit`] advances it.
    fn view(&self) -> &dyn PodView;
    /// Reads a Pod from the API server.
    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>>;
    /// Reads an object from the API server, as the plugin's account. Returns it without managedFields, or `None` if it
    /// does not exist. By default no object can be read.
    fn object<'a>(&'a mut self, _read: &'a Authorized<ObjectRead>) -> ObjectAnswer<'a> {
        Box::pin(std::future::ready(Err(no_objects())))
    }
    /// Sends the staged writes, waits until the cache shows them, and advances the snapshot. Returns the reports in
    /// staging order.
    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>>;
    /// Returns the value of a key of the plugin's own state, or `None` if there is none.
    fn state_get(&mut self, key: &str) -> Option<StateEntry>;
    /// Stores a value and returns its new version.
    ///
    /// # Errors
    /// Returns an error if the version is not `expected`, or if the plugin's quota is used up.
    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError>;
    /// # Errors
    /// See [`World::state_put`].
    fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError>;
    /// Is called for each call that the grants do not permit, with the reason for the plugin's author. Does nothing by
    /// default: the message of a failed run has the latest reason.
    fn not_granted(&mut self, _why: &str) {}
    /// Logs one line of the plugin, with `fields` in the plugin's order. Control characters are already escaped.
    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]);
}

/// The severity of a plugin's log line, as in the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// For the plugin's author.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that the plugin handles itself.
    Warn,
    /// A problem that needs attention.
    Error,
}

/// A value of a plugin's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateEntry {
    /// The bytes that the plugin stored.
    pub value: Vec<u8>,
    /// Grows with every put to the key; never 0.
    pub version: u64,
}

/// Why a write to the plugin's state was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateError {
    /// The stored version is not the expected one.
    Conflict(Option<StateEntry>),
    /// The plugin's quota is used up, or the key or the value is too long.
    Refused(Refused),
}

impl From<Refused> for StateError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// One plugin that can be run. Implemented by `runtime` for a wasm component, and by closures in tests.
pub trait Reconcile: Send + Sync {
    /// Performs one run. The run owns the world, because a wasmtime store cannot borrow.
    fn reconcile(&self, request: Request, world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>>;

    /// Creates an instance and drops it, without a run. The default has no instances.
    ///
    /// # Errors
    /// Returns an error if the code that a component runs at its start fails.
    fn instantiate(&self, _world: Box<dyn World>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Sends authorised writes. Implemented by `writeback`, called by dispatch.
pub trait Deliver: Send + Sync {
    /// Plans the writes against `view` and sends them; `now_millis` dates conditions and Events. `subject` is the Pod
    /// of the run, which may be gone; the other Pods that Events are about must be in the view.
    fn deliver<'a>(
        &'a self,
        sender: &'a Sender,
        subject: &'a PodKey,
        view: &'a dyn PodView,
        staged: Staged,
        now_millis: u64,
    ) -> BoxFuture<'a, Sent>;

    /// Returns how long the API server asked this sender to wait, during which [`Self::deliver`] sends nothing, or
    /// `None` if the sender may send.
    fn held(&self, sender: &Sender) -> Option<Duration>;
}

/// The identity under which writes are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// `fieldManager`, at most 128 bytes.
    pub manager: String,
    /// `Impersonate-User`, if the plugin has a ServiceAccount.
    pub impersonate: Option<String>,
}

impl Sender {
    /// Returns the plugin's name, cut to the limit of the manager's name: `shop/hello`.
    #[must_use]
    pub fn plugin(&self) -> &str {
        self.manager.strip_prefix("podium/").unwrap_or(&self.manager)
    }
}

/// Fields of an object that an apply took from other managers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The object.
    pub object: ObjectRef,
    /// The API server's message, which names managers and fields.
    pub message: String,
}

/// The result of sending.
#[derive(Debug, Default)]
pub struct Sent {
    /// The reports, in staging order.
    pub reports: Vec<WriteReport>,
    /// The states that the cache must show before the plugin's next run on the Pods that it wrote to.
    pub expected: Vec<Expectation>,
    /// The fields that applies took from other managers.
    pub taken: Vec<Taken>,
    /// The number of requests that were sent to write or to create Events.
    pub requests: u32,
    /// Those of them that were for Events.
    pub event_requests: u32,
    /// The number of reads that were sent to decide about writes or their results.
    pub reads: u32,
    /// The results of the run's Events, except suppressed repeats.
    pub events: Vec<EventResult>,
    /// How long to wait before unsettled writes are retried, if the API server sent a Retry-After; at most 60 s.
    pub retry_after: Option<Duration>,
    /// The kinds of writes that are not sent for a time, beginning with this delivery.
    pub closings: Vec<Closing>,
    /// The times of the writes that needed a request; empty if runs are not traced.
    pub times: Vec<WriteTime>,
}

/// Writes that are not sent for a time, because the account has no right to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// The verb of RBAC.
    pub verb: &'static str,
    /// The resource of RBAC, with its group unless it is the core's: `pods/status`, `deployments.apps`.
    pub resource: String,
    /// The namespace; `None` for objects of the cluster.
    pub namespace: Option<String>,
    /// How long nothing is sent.
    pub wait: Duration,
    /// False if the request was one that tried again after an earlier time.
    pub is_first: bool,
}

/// The state of a Pod that the cache shows once it has caught up with a write. A Pod that is gone meets every
/// expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The Pod that was written to.
    pub key: PodKey,
    /// The state that the cache must show.
    pub shown: Shown,
}

/// How a write becomes visible in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The Pod at this revision or a newer one: the revision of the API server's response to a patch.
    Revision(Revision),
    /// A deletionTimestamp: the API server accepted a deletion or an eviction.
    Deletion,
    /// No Pod of this uid: the patch removed the last finalizer of a Pod whose deletion nothing else prevents.
    Gone,
    /// The response was lost or cannot be decoded. A live read determines the revision to expect.
    Unknown,
}

/// The requester of a live read. A Retry-After on a plugin's own reads must not delay other reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The plugin, during a run.
    Plugin,
    /// The host, to decide whether a run may start.
    Host,
}

/// Reads one Pod or one other object from the API server. Implemented by `live`, called by dispatch.
pub trait Live: Send + Sync {
    /// Reads a Pod. `sender` is the plugin for which the Pod is read. A read that the plugin requests has the rights
    /// of its account; one that the host requests has the host's own.
    fn get<'a>(
        &'a self,
        asker: Asker,
        sender: &'a Sender,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>>;

    /// Reads an object for the plugin of `sender`, with the rights of its account, and never with the host's. See
    /// [`World::object`].
    fn object<'a>(&'a self, _sender: &'a Sender, _read: &'a Authorized<ObjectRead>) -> ObjectAnswer<'a> {
        Box::pin(std::future::ready(Err(no_objects())))
    }
}

/// Runs blocking jobs. Implemented by app; called by the ingest loop, whose thread must not block.
pub trait Blocking: Send + Sync {
    /// Starts the job on a blocking thread and does not wait for it.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
}

/// Runs tasks beside the workers. Implemented by app; called by dispatch, for deliveries.
pub trait Tasks: Send + Sync {
    /// Starts the task and does not wait for it.
    fn start(&self, task: BoxFuture<'static, ()>);
}
