//! Readiness and metrics, served on the ports that the process has bound.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use podium_api::{Api, HeldRequests};
use podium_engine::{
    dispatch::{Expectations, PodQueue, Registry},
    ingest::GonePods,
    journal::Journal,
    status::{LoadState, PluginState, Status},
};
use podium_pods::{cache::Reader, pod::PodView};
use podium_vocabulary::{PluginId, text};
use podium_writeback::ClosedKind;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Phase, PolicyFile, certificate::Certificate, lease::Leadership, watchdog::Watchdog, why::Explain};
use crate::{
    admin::{self, Bound, Check, Process, Profiles, Readiness, Reviewer},
    telemetry::{ApiRequests, CacheFigures, Dropped, Figures, Metrics, Outbox, PluginFigures},
};

/// The ports that serve probes and metrics. By default there are none.
#[derive(Debug, Default)]
pub struct Operator {
    /// The port of `/healthz` and `/readyz`.
    pub probes: Option<Bound>,
    /// The port of `/metrics` and `/debug/reconcile-status`.
    pub metrics: Option<Bound>,
    /// The certificate of the port of metrics, which then admits the clients that the API server admits. With `None`
    /// the port has neither TLS nor credentials.
    pub certificate: Option<Arc<Certificate>>,
    /// The number of dropped log lines, for metrics.
    pub dropped: Arc<Dropped>,
    /// The host and port of the API server, for metrics.
    pub api_server: String,
    /// The process, for `/statusz`, `/flagz` and `/debug/log-level`.
    pub process: Option<Arc<Process>>,
}

/// The modules from which readiness and metrics are read.
pub(super) struct Observed {
    pub(super) status: Arc<Status>,
    pub(super) registry: Arc<Registry>,
    pub(super) queue: Arc<PodQueue>,
    /// The most runs of one plugin at once.
    pub(super) most_runs: usize,
    /// The requests of all clients of the API server.
    pub(super) requests: Arc<ApiRequests>,
    pub(super) expectations: Arc<Expectations>,
    /// Returns the kinds of writes that are not sent because RBAC refused one of them.
    pub(super) closed: Box<dyn Fn() -> Vec<ClosedKind> + Send + Sync>,
    /// Returns why a plugin does not run on the Pod of a namespace and name.
    pub(super) explain: Explain,
    /// The requests that are held after a Retry-After.
    pub(super) held: Box<dyn Fn() -> Vec<HeldRequests> + Send + Sync>,
    pub(super) reader: Reader,
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) phase: watch::Receiver<Phase>,
    /// Returns the Pods that have a finalizer of a deleted plugin.
    pub(super) removals: Box<dyn Fn() -> Vec<(PluginId, usize)> + Send + Sync>,
    /// `None` if there is no policy that is read again.
    pub(super) policy_file: Option<Arc<PolicyFile>>,
    /// Why the engine starts no run.
    pub(super) stalled: Box<dyn Fn() -> Option<String> + Send + Sync>,
    pub(super) watchdog: Arc<Watchdog>,
    /// `None` if plugins run without a Lease.
    pub(super) leadership: Option<Arc<Leadership>>,
    /// The last states of deleted Pods that a standby keeps.
    pub(super) gone: Arc<GonePods>,
    /// Whether another host holds the Lease that this one runs without; `None` if it does not look.
    pub(super) other_holds: Option<Arc<AtomicBool>>,
    /// `None` if runs are not traced.
    pub(super) outbox: Option<Arc<Outbox>>,
}

impl Observed {
    /// Spawns the servers of the bound ports. `api` sends as the host's own account.
    pub(super) fn serve(
        self: &Arc<Self>,
        operator: Operator,
        profiles: Arc<dyn Profiles>,
        api: &Api,
        services: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) {
        let Operator { probes, metrics, certificate, dropped, api_server: _, process } = operator;
        if let Some(bound) = metrics {
            let observed = self.clone();
            let metrics = Arc::new(self.metrics(dropped, certificate.clone()));
            let endpoints = match certificate {
                None => admin::metrics(metrics, observed, profiles, process),
                Some(certificate) => {
                    let presented = certificate.clone();
                    let stop = stop.clone();
                    services.spawn(async move {
                        stop.run_until_cancelled_owned(certificate.follow()).await;
                        Ok(())
                    });
                    let tls = Arc::new(move || presented.config());
                    admin::reviewed_metrics(metrics, observed, profiles, process, Reviewer::new(api), tls)
                }
            };
            let serve = bound.serve(endpoints, stop.clone());
            services.spawn(async move {
                serve.await;
                Ok(())
            });
        }
        if let Some(bound) = probes {
            let watchdog = self.watchdog.clone();
            let observed = self.clone();
            let dead = Arc::new(move || watchdog.dead());
            let serve = bound.serve(admin::probes(Arc::new(move || observed.readiness()), dead), stop.clone());
            services.spawn(async move {
                serve.await;
                Ok(())
            });
        }
    }

    /// A plugin that could not be loaded is listed and does not make the host unready: one tenant's component must
    /// not take the host out of service for others.
    fn readiness(&self) -> Readiness {
        let phase = *self.phase.borrow();
        let plugins = self.status.loads();
        let draining = matches!(phase, Phase::Draining).then(|| "draining".to_owned());
        let loading = matches!(phase, Phase::Loading).then(|| {
            let loading = plugins.iter().filter(|plugin| plugin.load == LoadState::Loading);
            let loading: Vec<_> = loading.map(|plugin| plugin.id.to_string()).collect();
            let loading = if loading.is_empty() { "the list of plugins".to_owned() } else { loading.join(", ") };
            format!("still loading: {loading}")
        });
        let mut checks = vec![
            Check::required("watch", stale(&self.reader)),
            Check::required("plugins", loading),
            Check::required("interruption", (self.stalled)()),
            Check::required("progress", self.watchdog.unready()),
            Check::required("shutdown", draining),
        ];
        checks.extend(self.leadership.as_ref().map(|leadership| leadership.check()));
        checks.extend(plugins.into_iter().map(|PluginState { id, load, runs }| {
            let earlier = if runs { ", an earlier version runs" } else { "" };
            let name = format!("plugin/{id}");
            match load {
                LoadState::Loaded => match self.uses(&id) {
                    Some(uses) => Check::passed(name, uses),
                    None => Check::listed(name, None),
                },
                LoadState::Standby | LoadState::Suspended => Check::passed(name, load.name()),
                _ => Check::listed(name, Some(format!("{}{earlier}", load.name()))),
            }
        }));
        // The reason of a failure may be an answer of the API server.
        for check in &mut checks {
            check.failure = check.failure.take().map(|failure| text::line(&failure));
        }
        Readiness { checks }
    }

    /// Returns the use of the plugin's limits by its runs; `None` before its first run.
    fn uses(&self, id: &PluginId) -> Option<String> {
        let uses: Vec<String> = self.status.get(id)?.uses().iter().map(ToString::to_string).collect();
        (!uses.is_empty()).then(|| format!("used by the last run (peak) of limit: {}", uses.join(", ")))
    }

    fn metrics(self: &Arc<Self>, dropped: Arc<Dropped>, certificate: Option<Arc<Certificate>>) -> Metrics {
        let runtime = tokio::runtime::Handle::current();
        let observed = self.clone();
        Metrics::new(move || Figures {
            tasks: runtime.metrics().num_alive_tasks(),
            dropped: dropped.clone(),
            certificate: certificate.as_ref().and_then(|certificate| certificate.figures()),
            ..observed.figures()
        })
    }

    fn figures(&self) -> Figures {
        let plugins = self.registry.all().into_iter().map(|loaded| {
            let depth = self.queue.depth(loaded.lane);
            let deletions = self.expectations.tombstones.figures(loaded.lane).unsettled;
            (loaded.spec.id.clone(), PluginFigures { depth, deletions })
        });
        let names = self.registry.tenants();
        let tenants = self.queue.tenants();
        let tenants = names.into_iter().map(|(number, name)| (name, tenants.get(&number).copied().unwrap_or_default()));
        let snapshot = self.reader.snapshot();
        let stale = self.reader.staleness().is_some();
        Figures {
            status: self.status.clone(),
            plugins: plugins.collect(),
            tenants: tenants.collect(),
            cache: CacheFigures { pods: snapshot.len(), stale, revision: snapshot.revision().0 },
            journal: self.journal.as_ref().map(|journal| journal.figures()),
            removals: (self.removals)(),
            held: (self.held)().len(),
            policy_refused: self.policy_file.as_ref().map(|policy| policy.is_refused()),
            lease: self.leadership.as_ref().map(|leadership| leadership.figures(&self.gone)),
            other_holds: self.other_holds.as_ref().map(|holds| holds.load(Relaxed)),
            most_runs: self.most_runs,
            requests: self.requests.clone(),
            traces: self.outbox.as_ref().map(|outbox| outbox.figures()),
            ..Figures::default()
        }
    }
}

/// Returns why readers may see old data.
pub(super) fn stale(reader: &Reader) -> Option<String> {
    reader.staleness().map(|staleness| format!("the cache is stale: {}", staleness.reason))
}

#[cfg(test)]
pub(super) mod tests;
