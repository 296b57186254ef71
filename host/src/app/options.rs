//! The parts and settings that a host is started with.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use podium_api::Connection;
use podium_engine::{
    journal::Opened,
    ports::{Deliver, Reconcile},
};
use podium_runtime::Compilation;
use podium_vocabulary::{PluginId, Prune};

use super::{Beside, LeaseOptions, Operator, PolicyFile, TraceOptions, WallClock};
use crate::{
    config::Policy,
    images::{Images, Store},
};

/// Default number of runs that are under way concurrently.
const WORKERS: usize = 4;
/// Bytes of memory of all runs under way, where nothing limits the host's own. A tenant's half is enough for two runs
/// with the most memory that a configuration may ask for.
pub(super) const RUN_MEMORY: u64 = 1 << 30;
/// The default of the memory of all states: of 16 tenants that have all that they may have.
pub(super) const STATE_MEMORY: usize = 256 << 20;

/// Makes a port around another one.
pub type AroundDeliver = Box<dyn FnOnce(Arc<dyn Deliver>) -> Arc<dyn Deliver> + Send>;

/// The parts and settings of a host.
pub struct Options {
    /// The connection to the API server: a client made by [`podium_api::client`] or over a service in the process, or
    /// one of those of [`podium_api::Connection::renewed_by`].
    pub client: Connection,
    /// The connection of the watch. If it has its own client, its connections belong to the watch's thread.
    pub watch_client: Connection,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    /// The number of runs that are under way concurrently. One tenant has at most a quarter of them, but at least one,
    /// and as many deliveries; one worker is kept for tenants whose runs are short. The tokio runtime should have one
    /// thread more, so that probes are answered while every guest computes.
    pub workers: usize,
    /// Bytes that all runs under way may use together, as the limits of their plugins declare, of which one tenant gets
    /// at most half. A key waits in the queue until its run's memory is free.
    pub run_memory: u64,
    /// Bytes that the states of all plugins may have together. Beyond it the oldest values of the tenant with the most
    /// are dropped.
    pub state_memory: usize,
    /// The listeners for probes, metrics and debugging.
    pub operator: Operator,
    /// The journal, opened by [`podium_engine::journal::open`]. With `None`, deletions while the host is down are not
    /// delivered.
    pub journal: Option<Opened>,
    /// The fields of a Pod that are not stored.
    pub prune: Prune,
    /// Where components are compiled. The default is this process, without limits: for simulations and benches.
    pub compilation: Compilation,
    /// The directory with the runners of scripts, such as `javascript-1.wasm`. With `None` scripts are refused.
    pub runners: Option<PathBuf>,
    /// The code of plugins whose components are not read: the caller compiled it, for one host after another.
    pub code: BTreeMap<PluginId, Arc<dyn Reconcile>>,
    /// Makes a port around the one that sends writes, to note them. The default returns that one.
    pub around_deliver: AroundDeliver,
    /// The bounds on grants and limits of plugins. `None` permits everything that a configuration can have.
    pub policy: Option<Policy>,
    /// The files of the policy, which replace it when they change. With `None` it stays.
    pub policy_file: Option<Arc<PolicyFile>>,
    /// The account `system:serviceaccount:<namespace>:<name>` that finalizers of a deleted plugin are removed as where
    /// the plugin's own account is refused. With `None` they stay until it has the right.
    pub cleanup_account: Option<String>,
    /// Whether plugins without a ServiceAccount are refused.
    pub require_service_account: bool,
    /// The registries that components may come from. With `None` the host connects to none.
    pub images: Option<Images>,
    /// The components and the versions of plugin objects on disk. With `None`, a restart fetches all components again,
    /// and runs what the objects say.
    pub components: Option<Store>,
    /// The Lease without which the host runs no plugin and writes nothing. With `None` it always runs them, and so does
    /// another host.
    pub lease: Option<LeaseOptions>,
    /// Without a Lease of its own: where the host looks for one that another host holds. With `None` it does not look.
    pub beside: Option<Beside>,
    /// The seed of jitter and of the random numbers of WASI guests. It must differ between hosts.
    pub seed: u64,
    /// The time at the start in epoch milliseconds.
    pub now_millis: u64,
    /// Which runs are traced, and where their traces go. With `None` none is.
    pub traces: Option<TraceOptions>,
    /// Reads the system clock, so that the host follows when it is set. With `None`, the time advances from
    /// `now_millis`, as in a simulation.
    pub wall_clock: Option<WallClock>,
}

impl Options {
    /// The defaults: all namespaces, 4 workers, 1 GiB for runs, one client for everything, no state on disk, no
    /// ports, and a clock that starts at `now_millis`.
    #[must_use]
    pub fn new(client: impl Into<Connection>, seed: u64, now_millis: u64) -> Self {
        let client = client.into();
        Self {
            watch_client: client.clone(),
            client,
            namespace: None,
            workers: WORKERS,
            run_memory: RUN_MEMORY,
            state_memory: STATE_MEMORY,
            operator: Operator::default(),
            journal: None,
            prune: Prune::default(),
            compilation: Compilation::default(),
            runners: None,
            code: BTreeMap::new(),
            around_deliver: Box::new(|deliver| deliver),
            policy: None,
            policy_file: None,
            cleanup_account: None,
            require_service_account: false,
            images: None,
            components: None,
            lease: None,
            beside: None,
            seed,
            now_millis,
            traces: None,
            wall_clock: None,
        }
    }
}
