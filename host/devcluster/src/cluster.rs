//! A cluster that is started, inspected, disturbed and shut down through one handle.

use std::{net::SocketAddr, sync::Arc};

use serde_json::{Value, json};
use tokio::{runtime::Handle, sync::watch, task::JoinHandle};

use crate::{
    clock::Clock,
    core::{Core, Offer},
    failure::Failure,
    faults::Faults,
    gc,
    managed::Author,
    meta,
    requests::RequestLog,
    rules,
    serve::Server,
    service::Api,
    sim::{self, Pace, Simulation},
    store::Key,
    types::{self, Decoded, Struct},
    write::{self, Write},
};

/// 2026-01-01T00:00:00Z in milliseconds since the epoch.
const DEFAULT_START: i64 = 1_767_225_600_000;

/// The fields of metadata that [`Cluster::restore`] keeps, of those that the API server sets.
const KEPT: [&str; 5] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

/// The options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of uids, generated names and the simulation's choices.
    pub seed: u64,
    /// The number of initial nodes, named from `node-0`.
    pub nodes: usize,
    /// Whether a simulated scheduler and kubelet and the controllers of workloads run. Without them Pods, Deployments
    /// and other workloads do not change by themselves.
    pub simulate: bool,
    /// Whether objects are collected whose owners are all gone. Without it objects of another cluster stay whose owners
    /// are not in this one, deletions in the foreground and of Namespaces do not end, and Namespaces have no default
    /// ServiceAccount.
    pub collect: bool,
    /// The cluster's time at the start, in milliseconds since the epoch; it advances with tokio's clock.
    pub start_millis: i64,
    pub pace: Pace,
    /// Resources that are served to clients, as in `pods` or `leases.coordination.k8s.io`; empty for all. Requests
    /// for others are answered with 404, and discovery leaves them out.
    pub only: Vec<String>,
    /// Whether a watch may begin with a streaming list. Servers before 1.34 refuse that with 422.
    pub streaming_lists: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            nodes: 3,
            simulate: true,
            collect: true,
            start_millis: DEFAULT_START,
            pace: Pace::default(),
            only: Vec::new(),
            streaming_lists: true,
        }
    }
}

/// Why a cluster did not start or refused an object.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cluster's tasks need a runtime.
    #[error("there is no tokio runtime to run on: {0}")]
    NoRuntime(#[from] tokio::runtime::TryCurrentError),
    /// An object was refused, with the status code and the message that a client would receive.
    #[error("{message} ({code})")]
    Refused { code: u16, message: String },
    /// No resource is served for this object.
    #[error("no resource is served for {api_version} {kind}")]
    UnknownKind { api_version: String, kind: String },
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        let message = meta::text(&failure.to_value(), &["message"]).to_owned();
        Self::Refused { code: failure.code, message }
    }
}

/// A running cluster. When dropped, it stops its tasks without waiting for them; [`shutdown`](Self::shutdown) waits.
#[derive(Debug)]
#[must_use = "a dropped cluster stops"]
pub struct Cluster {
    core: Arc<Core>,
    simulation: Simulation,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts a cluster on the current runtime.
    ///
    /// # Errors
    /// Returns an error outside a runtime.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let runtime = Handle::try_current()?;
        let offer = Offer { only: options.only, streaming_lists: options.streaming_lists };
        let core = Arc::new(Core::new(options.seed, Clock::new(options.start_millis), offer));
        let paused = watch::Sender::new(false);
        let mut cluster =
            Self { core: core.clone(), simulation: Simulation { paused: paused.clone() }, tasks: Vec::new() };
        for namespace in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))?;
        }
        for index in 0..options.nodes {
            let node = cluster.create(sim::node(index, &core.clock.now()))?;
            cluster.create(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": meta::name(&node), "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": meta::name(&node), "leaseDurationSeconds": 40},
            }))?;
        }
        if options.collect {
            cluster.tasks.push(runtime.spawn(gc::run(core.clone())));
        }
        if options.simulate {
            let simulated = sim::run(core, options.pace, options.seed, paused.subscribe());
            cluster.tasks.push(runtime.spawn(simulated));
        }
        Ok(cluster)
    }

    /// Returns the API for clients in the process, for `kube::Client::new`.
    pub fn service(&self) -> Api {
        Api { core: self.core.clone(), stop: self.core.stopping.child_token() }
    }

    /// Serves the API on a socket. Port 0 selects a free one.
    ///
    /// # Errors
    /// Returns an error if the address cannot be bound.
    pub async fn listen(&self, addr: SocketAddr) -> std::io::Result<Server> {
        Server::bind(self.service(), addr).await
    }

    /// Stores an object as the cluster's administrator, without the request log. A `status` is stored with it.
    ///
    /// # Errors
    /// Returns an error if the kind is not served, or if the API server would refuse the object.
    pub fn create(&self, object: Value) -> Result<Value, StartError> {
        self.store(object, |kind, name, strict| {
            strict.iter().for_each(|error| tracing::warn!(kind, name, "{error}"));
            Ok(())
        })
    }

    /// Stores an object of another cluster: as [`Self::create`], but it keeps its uid and its times, and an unknown
    /// or repeated field is an error.
    ///
    /// # Errors
    /// See [`Self::create`].
    pub fn restore(&self, mut object: Value) -> Result<Value, StartError> {
        meta::remove(&mut object, &["metadata", "resourceVersion"]);
        // A client prints a field that is not set as null.
        let set = |value: &&Value| !value.is_null();
        let kept = KEPT.map(|field| (field, meta::at(&object, &["metadata", field]).filter(set).cloned()));
        let stored = self.store(object, |_, _, strict| match strict {
            [] => Ok(()),
            errors => Err(Failure::bad_request(format!("strict decoding error: {}", errors.join(", ")))),
        })?;
        let api_version = meta::text(&stored, &["apiVersion"]);
        let found = self.core.state.lock().kinds.of_object(api_version, meta::text(&stored, &["kind"]));
        let Some(kind) = found.filter(|_| kept.iter().any(|(_, value)| value.is_some())) else { return Ok(stored) };
        let mut restored = rules::from_view(&kind, stored);
        for (field, value) in kept.into_iter().filter_map(|(field, value)| Some((field, value?))) {
            meta::set(&mut restored, &["metadata", field], value);
        }
        let restored = self.core.write(|state| state.put(&kind, restored));
        Ok(Value::clone(&rules::to_view(&kind, &restored)))
    }

    fn store(
        &self,
        mut object: Value,
        judge: impl FnOnce(&str, &str, &[String]) -> Result<(), Failure>,
    ) -> Result<Value, StartError> {
        let api_version = meta::text(&object, &["apiVersion"]);
        let kind = meta::text(&object, &["kind"]);
        let found = self.core.state.lock().kinds.of_object(api_version, kind);
        let kind =
            found.ok_or_else(|| StartError::UnknownKind { api_version: api_version.into(), kind: kind.into() })?;
        let status = if kind.status { meta::remove(&mut object, &["status"]) } else { None };
        let Decoded { object: decoded, strict, wrong, .. } =
            types::decode(Struct::for_kind(&kind), &object).map_err(|error| Failure::bad_request(error.to_string()))?;
        if let Some(wrong) = wrong {
            return Err(Failure::undecodable(&kind.kind, &kind.version, &wrong.in_json()).into());
        }
        judge(&kind.kind, meta::name(&decoded), &strict)?;
        object = decoded;
        let namespace = if kind.namespaced {
            meta::default(&mut object, &["metadata", "namespace"], "default");
            Some(meta::namespace(&object).to_owned())
        } else {
            None
        };
        let author = |subresource: &str| Author {
            manager: "devcluster".into(),
            apply: false,
            subresource: subresource.into(),
            api_version: kind.api_version(),
            time: self.core.clock.now(),
        };
        let write = |subresource| Write { kind: kind.clone(), author: author(subresource), dry_run: false };
        let stored = self.core.write(|state| {
            let created = write::create(state, &self.core.clock, &write(""), namespace.as_deref(), object)?;
            let Some(status) = status else { return Ok::<_, Failure>(created) };
            write::update(state, &write("status"), &Key::from_object(&created), |old| {
                let mut new = old.clone();
                meta::set(&mut new, &["status"], status);
                Ok(new)
            })
        })?;
        Ok(Value::clone(&rules::to_view(&kind, &stored)))
    }

    /// Returns all objects of a resource (`pods`, `leases.coordination.k8s.io`) and their revision, as the cluster
    /// itself sees them: without the request log and unaffected by faults.
    #[must_use]
    pub fn list(&self, resource: &str) -> (u64, Vec<Value>) {
        let state = self.core.state.lock();
        let Some(kind) = state.kinds.stored().into_iter().find(|kind| kind.resource() == resource) else {
            return (state.store.revision(), Vec::new());
        };
        let objects = state.store.iter(resource, None).map(|(_, object)| Value::clone(&rules::to_view(&kind, object)));
        (state.store.revision(), objects.collect())
    }

    /// Returns the handle for injecting faults.
    pub fn faults(&self) -> Faults {
        Faults { core: self.core.clone() }
    }

    /// Returns the log of requests through the API.
    pub fn requests(&self) -> RequestLog {
        self.core.log.clone()
    }

    /// Returns the handle that pauses and resumes the simulated scheduler, kubelet and controllers.
    pub fn simulation(&self) -> Simulation {
        self.simulation.clone()
    }

    /// Returns the cluster's time in milliseconds since the epoch.
    #[must_use]
    pub fn now_millis(&self) -> i64 {
        self.core.clock.now_millis()
    }

    /// Ends open watches and the cluster's tasks, and waits for the tasks.
    pub async fn shutdown(mut self) {
        self.core.stopping.cancel();
        for task in std::mem::take(&mut self.tasks) {
            if let Err(error) = task.await {
                tracing::warn!(%error, "task of the cluster failed");
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.core.stopping.cancel();
    }
}
