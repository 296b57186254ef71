//! The traits between the engine and its environment: runs of plugins and their cost, writes, live reads, jobs that
//! block, and storing a write's answer in the cache. Implementations know nothing of each other.

mod meter;
mod run;

use std::{sync::Arc, time::Duration};

pub use meter::Meter;
use podium_pods::{
    model::{BoxFuture, Event, EventResult, PodKey, Refused, Revision, Write, WriteReport},
    pod::{CachedPod, PodView},
};
pub use run::{
    Failure, FailureKind, Outcome, PLUGIN_TARGET, RUN_TARGET, Request, RunReport, Subject, Usage, panic_message,
};

use crate::authz::Authorized;

/// Writes and Events of a run that were authorised and not yet sent, in staging order.
#[derive(Debug, Default)]
pub struct Staged {
    /// The writes, which are sent in this order.
    pub writes: Vec<Authorized<Write>>,
    /// The Events, of which those that report a write go with it.
    pub events: Vec<Authorized<Event>>,
}

/// What a run may ask of the world. Implemented by dispatch over a snapshot, writeback and live reads; called by the
/// engine's one choke point for host calls, which has authorised and accounted before.
pub trait World: Send + 'static {
    /// The run's snapshot. Moves only by [`World::commit`].
    fn view(&self) -> &dyn PodView;
    /// Reads a Pod from the API server itself.
    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>>;
    /// Sends, waits until the cache shows what was written, and moves the snapshot there. Reports in staging order.
    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>>;
    /// Returns the value of a key of the plugin's own state, or `None` if there is none.
    fn state_get(&mut self, key: &str) -> Option<StateEntry>;
    /// Returns the new version.
    ///
    /// # Errors
    /// When another version is there, or the plugin's share is used up.
    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError>;
    /// # Errors
    /// As [`World::state_put`].
    fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError>;
    /// One line of the plugin's log; `fields` in the plugin's order. Control characters are already escaped.
    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]);
}

/// The severity of a plugin's log line, as the contract has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// For the plugin's author.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that the plugin copes with.
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
    /// The version expected is not the one there.
    Conflict(Option<StateEntry>),
    /// The plugin's share is used up, or the key or the value is too long.
    Refused(Refused),
}

impl From<Refused> for StateError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// One plugin that can be run. Implemented by `runtime` for a wasm component, and by closures in tests.
pub trait Reconcile: Send + Sync {
    /// One run. The world is owned by the run, because an engine's store outlives no borrow.
    fn reconcile(&self, request: Request, world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>>;
}

/// Sends authorised writes. Implemented by `writeback`, called by dispatch.
pub trait Deliver: Send + Sync {
    /// Plans against `view` and sends; `now_millis` dates conditions and Events. `subject` is the Pod of the run, which
    /// may be gone; the other Pods that Events are about must be in the view.
    fn deliver<'a>(
        &'a self,
        sender: &'a Sender,
        subject: &'a PodKey,
        view: &'a dyn PodView,
        staged: Staged,
        now_millis: u64,
    ) -> BoxFuture<'a, Sent>;

    /// How long the API server asked this sender to wait; until then [`Self::deliver`] sends nothing. None: it may
    /// send.
    fn held(&self, sender: &Sender) -> Option<Duration>;
}

/// In whose name writes are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// `fieldManager`, at most 128 bytes.
    pub manager: String,
    /// `Impersonate-User`, where the plugin has a ServiceAccount.
    pub impersonate: Option<String>,
}

impl Sender {
    /// Returns the plugin's name, as far as the manager's has room for it: `shop/hello`.
    #[must_use]
    pub fn plugin(&self) -> &str {
        self.manager.strip_prefix("podium/").unwrap_or(&self.manager)
    }
}

/// What came of sending.
#[derive(Debug, Default)]
pub struct Sent {
    /// In staging order.
    pub reports: Vec<WriteReport>,
    /// The Pods as the API server answered, for the write-through.
    pub pods: Vec<Arc<CachedPod>>,
    /// What the cache has to show before the plugin is run again on the Pods that it wrote to.
    pub expected: Vec<Expectation>,
    /// Requests sent.
    pub requests: u32,
    /// What became of the run's Events, except repeats of what was said.
    pub events: Vec<EventResult>,
    /// How long to wait before writes that did not settle are tried again, where the API server asked for it; at most
    /// 60 s.
    pub retry_after: Option<Duration>,
}

/// What a cache that has caught up with a write shows of the Pod. A Pod that is gone fulfils every expectation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The Pod that was written to.
    pub key: PodKey,
    /// What the cache has to show of it.
    pub shown: Shown,
}

/// How a write becomes visible in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The Pod at this revision or a newer one: that of the API server's answer to a patch.
    Revision(Revision),
    /// A deletionTimestamp: the API server accepted a deletion or an eviction.
    Deletion,
    /// No Pod of this uid: the patch removed the last finalizer of a Pod that nothing else kept.
    Gone,
    /// The answer was lost or cannot be read. A live read determines the revision to expect.
    Unknown,
}

/// Who wants a live read. One that the plugin asks for must not hold up those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The plugin, in a run.
    Plugin,
    /// The host, to know whether a run may start.
    Host,
}

/// Reads one Pod from the API server. Implemented by `live`, called by dispatch.
pub trait Live: Send + Sync {
    /// `sender` is the plugin that the Pod is read for. A read that the plugin asks for has the rights of its account,
    /// one that the host asks for has the host's own.
    fn get<'a>(
        &'a self,
        asker: Asker,
        sender: &'a Sender,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>>;
}

/// Runs jobs that block. Implemented by app; called by the ingest loop, on whose thread nothing may block.
pub trait Blocking: Send + Sync {
    /// Starts the job on a thread where blocking is allowed. Does not wait for it.
    fn run(&self, job: Box<dyn FnOnce() + Send>);
}

/// Puts Pods as the API server answered with them into the cache. Implemented by `ingest`, which owns the cache's
/// writer; called by dispatch.
pub trait WriteThrough: Send + Sync {
    /// Returns when readers see these states or newer ones.
    fn write_through(&self, pods: Vec<Arc<CachedPod>>) -> BoxFuture<'_, ()>;
}
