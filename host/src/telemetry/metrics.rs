//! /metrics: the counters of `status` under the names that controller-runtime's dashboards use, with `controller` =
//! plugin.
//!
//! Nothing is counted here; a scrape reads the other modules' counters. Labels are plugins and results, never a Pod's
//! name, so the configuration bounds the number of series.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use podium_engine::{
    dispatch::budget,
    journal,
    ports::FailureKind,
    queue::TenantFigures,
    status::{LoadState, PluginState, PluginStatus, RunResult, Status},
};
use podium_vocabulary::PluginId;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text::encode},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{ApiRequests, COMMIT, Dropped, Source, TraceFigures, VERSION, families::Families, process::Process};

/// The figures of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Pods in the cache.
    pub pods: usize,
    /// True while the watch is interrupted, so that the cache may lag behind.
    pub stale: bool,
    /// The newest observed revision; its growth shows that the watch works.
    pub revision: u64,
}

/// The figures of the Lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseFigures {
    /// True while this replica runs plugins.
    pub leads: bool,
    /// The shards of tenants whose plugins it runs.
    pub shards: usize,
    /// How often this replica has taken it.
    pub takeovers: u64,
    /// For how long no living replica has held it, as far as this one knows.
    pub unowned: Duration,
    /// The last states of deleted Pods that were dropped because those of a standby have a bound.
    pub dropped: u64,
}

/// How often the files of the certificate of the port of metrics were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateFigures {
    /// Also those that failed.
    pub reads: u64,
    /// Reads after which the certificate before is in use.
    pub errors: u64,
}

/// The keys of a plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PluginFigures {
    /// Keys that are due and not yet run.
    pub depth: usize,
    /// Deletions that are kept because the plugin's runs on them have not settled.
    pub deletions: usize,
}

/// The figures of all modules at one scrape.
#[derive(Debug, Default)]
pub struct Figures {
    /// The plugins' counters.
    pub status: Arc<Status>,
    /// The loaded plugins.
    pub plugins: BTreeMap<PluginId, PluginFigures>,
    /// Every tenant that has a plugin, or had one until lately: a namespace, or `cluster/NAME` for a
    /// `ClusterReconcilePlugin`.
    pub tenants: Vec<(String, TenantFigures)>,
    /// The cache.
    pub cache: CacheFigures,
    /// `None` if the host keeps no journal.
    pub journal: Option<journal::Figures>,
    /// The number of asynchronous tasks that have not ended.
    pub tasks: usize,
    /// How many Pods have a finalizer of a plugin that was deleted.
    pub removals: Vec<(PluginId, usize)>,
    /// For how many accounts and plugins requests are held after a Retry-After.
    pub held: usize,
    /// True while the policy's files have mistakes; `None` without a policy.
    pub policy_refused: Option<bool>,
    /// `None` if the port of metrics has no certificate of files.
    pub certificate: Option<CertificateFigures>,
    /// `None` if the host runs plugins without a Lease.
    pub lease: Option<LeaseFigures>,
    /// Without a Lease of its own: whether another host holds it. `None` if this one does not look.
    pub other_holds: Option<bool>,
    /// The most runs of one plugin at once.
    pub most_runs: usize,
    /// The requests to the API server.
    pub requests: Arc<ApiRequests>,
    /// The number of dropped log lines.
    pub dropped: Arc<Dropped>,
    /// `None` if runs are not traced.
    pub traces: Option<TraceFigures>,
}

/// Renders metrics on demand.
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Returns metrics that call `figures` at each scrape.
    #[must_use]
    pub fn new(figures: impl Fn() -> Figures + Send + Sync + 'static) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrapes { figures: Box::new(figures), process: Process::new() }));
        Self { registry }
    }

    /// Returns the metrics in the OpenMetrics text format.
    ///
    /// # Errors
    /// Never in practice: writing to a String does not fail.
    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

struct Scrapes {
    figures: Box<dyn Fn() -> Figures + Send + Sync>,
    process: Process,
}

impl fmt::Debug for Scrapes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scrapes").finish_non_exhaustive()
    }
}

type Plugins = [(PluginId, Arc<PluginStatus>)];

impl Collector for Scrapes {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = (self.figures)();
        let plugins = figures.status.plugins();
        let mut families = Families(encoder);
        encode_runs(&mut families, &plugins)?;
        figures.encode_loads(&mut families, &plugins)?;
        figures.encode_queue(&mut families, &plugins)?;
        figures.encode_deliveries(&mut families, &plugins)?;
        encode_limits(&mut families, &plugins)?;
        encode_times(&mut families, &plugins)?;
        figures.encode_host(&mut families)?;
        self.process.encode(&mut families)
    }
}

impl Figures {
    fn plugin(&self, id: &PluginId) -> PluginFigures {
        self.plugins.get(id).copied().unwrap_or_default()
    }

    fn encode_loads(&self, families: &mut Families<'_>, plugins: &Plugins) -> fmt::Result {
        let help = "Requests sent to the API server for a plugin's writes";
        families.counter("podium_write_requests", help, each(plugins, |_, status| status.requests.get()))?;
        let cpu = plugins
            .iter()
            .map(|(id, status)| ([("controller", id.to_string()), ("tenant", tenant(id))], status.cpu().as_secs_f64()));
        families.counter("podium_run_cpu_seconds", "Processor time of runs that the tenant is charged", cpu)?;
        let help = "Pods with a finalizer of a plugin that was deleted";
        let removals = self.removals.iter().map(|(id, pods)| ([("controller", id.to_string())], *pods));
        families.gauge("podium_plugin_finalizers_left", help, removals)?;
        let loads = self.status.loads();
        let help = "1 while a version of the configured plugin is loaded";
        families.gauge("podium_plugin_ready", help, loads.iter().map(|plugin| configured(plugin, plugin.runs)))?;
        let help = "1 while the configuration of the plugin suspends it";
        let suspended = loads.iter().map(|plugin| configured(plugin, plugin.load == LoadState::Suspended));
        families.gauge("podium_plugin_suspended", help, suspended)?;
        let loading = loads.iter().filter(|plugin| plugin.load == LoadState::Loading).count();
        let help = "Plugins whose present configuration is being loaded";
        families.single("podium_plugins_loading", help, ConstGauge::new(loading))
    }

    fn encode_queue(&self, families: &mut Families<'_>, plugins: &Plugins) -> fmt::Result {
        let active = each(plugins, |_, status| status.active());
        families.gauge("controller_runtime_active_workers", "Runs in progress", active)?;
        let help = "The most runs of a plugin, and of its tenant, at once";
        let most = each(plugins, |_, _| self.most_runs);
        families.gauge("controller_runtime_max_concurrent_reconciles", help, most)?;
        let lengths = |status: &PluginStatus| status.active_runs().into_iter().map(|run| run.since.elapsed());
        let help = "Time that the runs in progress have taken together";
        let together = each(plugins, |_, status| lengths(status).sum::<Duration>().as_secs_f64());
        families.gauge("workqueue_unfinished_work_seconds", help, together)?;
        let help = "Time that the longest run in progress has taken";
        let longest = each(plugins, |_, status| lengths(status).max().unwrap_or_default().as_secs_f64());
        families.gauge("workqueue_longest_running_processor_seconds", help, longest)?;
        let depth = each(plugins, |id, _| self.plugin(id).depth);
        families.gauge("workqueue_depth", "Keys waiting to be processed", depth)?;
        self.encode_tenants(families)
    }

    fn encode_tenants(&self, families: &mut Families<'_>) -> fmt::Result {
        let gauges: [(&str, &str, TenantFigure); 6] = [
            ("podium_tenant_runs", "Runs in progress", |tenant| tenant.runs as f64),
            ("podium_tenant_deliveries", "Runs that have ended and whose writes are being sent", |tenant| {
                tenant.deliveries as f64
            }),
            ("podium_tenant_waiting_keys", "Keys waiting to be processed", |tenant| tenant.waiting as f64),
            ("podium_tenant_stale_keys", "Keys that have waited for more than 30 s to be processed", |tenant| {
                tenant.stale as f64
            }),
            (
                "podium_tenant_keys_without_tokens",
                "Keys that wait because the requests per second of the plugin or the tenant are used up",
                |tenant| tenant.without_tokens as f64,
            ),
            (
                "podium_tenant_debt_seconds",
                "Processor time by which the tenant is ahead of the one whose turn it is",
                |tenant| tenant.debt.as_secs_f64(),
            ),
        ];
        for (name, help, figure) in gauges {
            families.gauge(name, help, self.tenants.iter().map(|(name, tenant)| (by_tenant(name), figure(tenant))))?;
        }
        let counters = [
            (budget::WRITES, "podium_tenant_writes_without_tokens", "Writes that were not sent"),
            (budget::LIVE_READS, "podium_tenant_live_reads_without_tokens", "Live reads that were refused"),
            (budget::EVENTS, "podium_tenant_events_without_tokens", "Events that were dropped"),
        ];
        for (kind, name, refused) in counters {
            let help = format!("{refused} because the requests per second were used up");
            let figures = self.tenants.iter().map(|(name, tenant)| (by_tenant(name), tenant.refused[kind]));
            families.counter(name, &help, figures)?;
        }
        Ok(())
    }

    fn encode_deliveries(&self, families: &mut Families<'_>, plugins: &Plugins) -> fmt::Result {
        let help = "Deletions on which the plugin has not settled yet";
        let deletions = each(plugins, |id, _| self.plugin(id).deletions);
        families.gauge("podium_deletions_unsettled", help, deletions)?;
        let help = "Last states of deleted Pods that were dropped because too many waited for the plugin";
        let dropped = each(plugins, |_, status| status.states_dropped.get());
        families.counter("podium_deletion_states_dropped", help, dropped)?;
        let help = "Deletions that were given up because the plugin did not settle on them";
        let given_up = each(plugins, |_, status| status.deletions_given_up.get());
        families.counter("podium_deletions_given_up", help, given_up)?;
        let help = "Failures that the status of the plugin did not list, because it listed 8 others";
        let unlisted = above_zero(plugins, PluginStatus::failures_unlisted);
        families.counter("podium_failures_unlisted", help, unlisted)?;
        let help = "Lines of the plugin's log that were dropped because its tenant's share of the log was used up";
        let dropped = above_zero(plugins, |status| status.log_lines_dropped.get());
        families.counter("podium_plugin_log_dropped_lines", help, dropped)
    }

    fn encode_host(&self, families: &mut Families<'_>) -> fmt::Result {
        let CacheFigures { pods, stale, revision } = self.cache;
        families.single("podium_cache_pods", "Pods in the cache", ConstGauge::new(pods))?;
        families.single("podium_cache_revision", "The newest observed revision", ConstGauge::new(revision))?;
        let stale = ConstGauge::new(i64::from(stale));
        families.single("podium_cache_stale", "1 while the watch is interrupted", stale)?;
        let help =
            "Accounts and plugins whose requests wait because the API server answered Retry-After, and 1 if all wait";
        families.single("podium_requests_held", help, ConstGauge::new(self.held))?;
        let help = "Log lines dropped because standard error was not read in time";
        let lines = Source::ALL.map(|source| ([("source", source.name())], self.dropped.lines(source)));
        families.counter("podium_log_dropped_lines", help, lines)?;
        self.requests.encode(families)?;
        let build = [([("version", VERSION), ("commit", COMMIT)], 1_i64)];
        families.gauge("podium_build_info", "Version and commit of the program", build)?;
        let help = "Asynchronous tasks that have not ended";
        families.single("podium_runtime_tasks", help, ConstGauge::new(self.tasks))?;
        if let Some(refused) = self.policy_refused {
            let help = "1 while the policy's files have mistakes, and the policy before them is in force";
            families.single("podium_policy_refused", help, ConstGauge::new(i64::from(refused)))?;
        }
        if let Some(CertificateFigures { reads, errors }) = self.certificate {
            let help = "How often the certificate of the port of metrics was read";
            families.single("certwatcher_read_certificate", help, ConstCounter::new(reads))?;
            let help = "Reads of the certificate of the port of metrics that failed; the one before is in use";
            families.single("certwatcher_read_certificate_errors", help, ConstCounter::new(errors))?;
        }
        if let Some(holds) = self.other_holds {
            let help = "1 while another host holds the Lease, and this one runs plugins without it";
            families.single("podium_lease_held_by_other", help, ConstGauge::new(i64::from(holds)))?;
        }
        if let Some(lease) = self.lease {
            encode_lease(families, lease)?;
        }
        if let Some(traces) = self.traces {
            encode_traces(families, traces)?;
        }
        self.journal.map_or(Ok(()), |journal| encode_journal(families, journal))
    }
}

fn encode_runs(families: &mut Families<'_>, plugins: &Plugins) -> fmt::Result {
    let runs = by_result(plugins, |status| {
        RunResult::ALL.iter().map(|result| (result.name(), status.runs_by(*result))).collect()
    });
    families.counter("controller_runtime_reconcile", "Runs by result", runs)?;
    families.counter("podium_writes", "Writes by result", by_result(plugins, PluginStatus::writes))?;
    families.counter("podium_events", "Events by result", by_result(plugins, PluginStatus::events))?;
    let failures = by_result(plugins, |status| {
        // The objective of runs needs this one before its first occurrence.
        let mut failures = status.failures();
        failures.entry(FailureKind::Host.name()).or_default();
        failures
    });
    families.counter("podium_run_failures", "Failed runs by reason", failures)?;
    encode_loops(families, plugins)?;
    let errors = each(plugins, |_, status| status.runs_by(RunResult::Error));
    families.counter("controller_runtime_reconcile_errors", "Runs that failed", errors)?;
    let panics = each(plugins, |_, status| status.panics());
    families.counter("controller_runtime_reconcile_panics", "Runs that trapped or exceeded a limit", panics)?;
    let help = "Runs whose failure the plugin called terminal";
    let terminal = each(plugins, |_, status| status.failures_by(FailureKind::Terminal));
    families.counter("controller_runtime_terminal_reconcile_errors", help, terminal)?;
    families.counter("workqueue_adds", "Wake-ups", each(plugins, |_, status| status.adds.get()))?;
    let retries = each(plugins, |_, status| status.retries.get());
    families.counter("workqueue_retries", "Runs that were not a first attempt", retries)
}

/// Encodes the figures of loops and missing rights, only of plugins that have any.
fn encode_loops(families: &mut Families<'_>, plugins: &Plugins) -> fmt::Result {
    let help = "Pods that a plugin changed too often within a minute, by the field that changed most often and the \
                sender of its other values";
    let loops = plugins.iter().flat_map(|(id, status)| {
        status.loops().into_iter().map(|((field, counterpart), count)| {
            let labels = [("controller", id.to_string()), ("field", field.to_owned()), ("counterpart", counterpart)];
            (labels, count)
        })
    });
    families.counter("podium_write_loops", help, loops)?;
    let help = "Writes that were not sent because changes of their Pods wait";
    families.counter("podium_writes_withheld", help, above_zero(plugins, |status| status.writes_withheld.get()))?;
    let help = "Times at which writes of one kind were stopped because the plugin's account has no right to them";
    families.counter("podium_forbidden_closings", help, above_zero(plugins, |status| status.closings.get()))
}

/// Encodes the limits of runs and what runs used of them. A limit of which a plugin never used anything has no series,
/// and so a plugin that never ran has none.
fn encode_limits(families: &mut Families<'_>, plugins: &Plugins) -> fmt::Result {
    let uses: Vec<_> = plugins
        .iter()
        .flat_map(|(id, status)| status.uses().into_iter().map(|used| (id.to_string(), used)))
        .map(|(id, used)| ([("controller", id), ("limit", used.of.name().to_owned())], used.in_base_units()))
        .collect();
    if uses.is_empty() {
        return Ok(());
    }
    let help = "Use of the limits of runs in bytes, seconds or numbers: by the last run, and the most by any run";
    let runs = uses.iter().flat_map(|([id, limit], [last, peak, _])| {
        [("last", last), ("peak", peak)]
            .map(|(run, value)| ([id.clone(), limit.clone(), ("run", run.to_owned())], *value))
    });
    families.gauge("podium_run_used", help, runs)?;
    let help = "The limits of the plugin's runs, in bytes, seconds or numbers";
    families.gauge("podium_run_limit", help, uses.iter().map(|(labels, [_, _, limit])| (labels.clone(), *limit)))
}

fn encode_times(families: &mut Families<'_>, plugins: &Plugins) -> fmt::Result {
    let help = "Duration of a run including its writes";
    for name in ["controller_runtime_reconcile_time_seconds", "workqueue_work_duration_seconds"] {
        families.histogram(name, help, each(plugins, |_, status| &status.run_time))?;
    }
    let help = "Time from an event to the run that handles it";
    families.histogram("workqueue_queue_duration_seconds", help, each(plugins, |_, status| &status.queue_time))?;
    let wrote: Vec<_> = plugins.iter().filter(|(_, status)| status.event_to_write.count() > 0).cloned().collect();
    let help = "Time from an event to the API server's response to the write";
    families.histogram("podium_event_to_write_seconds", help, each(&wrote, |_, status| &status.event_to_write))?;
    let help = "Time from the API server's response to the write until the cache shows it";
    families.histogram("podium_write_to_seen_seconds", help, each(&wrote, |_, status| &status.write_to_seen))
}

fn encode_journal(families: &mut Families<'_>, journal: journal::Figures) -> fmt::Result {
    let help = "Pairs of a plugin and a Pod on which it ran";
    families.single("podium_journal_entries", help, ConstGauge::new(journal.entries))?;
    let help = "Deletions that have not settled for a plugin that ran on the Pod";
    families.single("podium_journal_pending_deletions", help, ConstGauge::new(journal.pending_deletions))?;
    families.single("podium_journal_bytes", "Length of the journal's file", ConstGauge::new(journal.bytes))?;
    let failing = ConstGauge::new(i64::from(journal.failing));
    families.single("podium_journal_failing", "1 while the journal cannot be written", failing)?;
    let help = "Entries that were not recorded because too many waited for the disk";
    families.single("podium_journal_dropped_entries", help, ConstCounter::new(journal.dropped_entries))?;
    let help = "Damaged places in the journal's file at the start, each of which has lost at least one entry";
    families.single("podium_journal_damaged_places", help, ConstCounter::new(journal.damaged))
}

fn encode_lease(families: &mut Families<'_>, figures: LeaseFigures) -> fmt::Result {
    let LeaseFigures { leads, shards, takeovers, unowned, dropped } = figures;
    let help = "1 while this replica holds a Lease and runs plugins";
    families.gauge("leader_election_master_status", help, [([("name", "podium-host")], i64::from(leads))])?;
    let help = "Shards of tenants whose plugins this replica runs";
    families.single("podium_lease_shards", help, ConstGauge::new(shards))?;
    let help = "How often this replica has taken a Lease";
    families.single("podium_lease_takeovers", help, ConstCounter::new(takeovers))?;
    let help = "Last states of deleted Pods that were dropped because a standby keeps 32 MiB";
    families.single("podium_lease_states_dropped", help, ConstCounter::new(dropped))?;
    let help = "Time for which no living replica has held some Lease";
    families.single("podium_lease_unheld_seconds", help, ConstGauge::new(unowned.as_secs_f64()))
}

fn encode_traces(families: &mut Families<'_>, figures: TraceFigures) -> fmt::Result {
    let TraceFigures { exported, rate, queue_full, export_failed } = figures;
    families.single("podium_traces_exported", "Traces that the collector accepted", ConstCounter::new(exported))?;
    let dropped = [("rate", rate), ("queue_full", queue_full), ("export_failed", export_failed)];
    let dropped = dropped.map(|(reason, count)| ([("reason", reason)], count));
    families.counter("podium_traces_dropped", "Traces of runs that were not exported", dropped)
}

/// Returns the tenant of a plugin as [`Figures::tenants`] has it.
fn tenant(id: &PluginId) -> String {
    id.namespace.as_ref().map_or_else(|| format!("cluster/{id}"), ToString::to_string)
}

/// A figure of a tenant, as a gauge shows it.
type TenantFigure = fn(&TenantFigures) -> f64;

fn by_tenant(tenant: &str) -> [(&'static str, String); 1] {
    [("tenant", tenant.to_owned())]
}

/// A configured plugin's gauge, also of one that was never loaded.
fn configured(plugin: &PluginState, value: bool) -> ([(&'static str, String); 1], i64) {
    ([("controller", plugin.id.to_string())], value.into())
}

/// Returns a figure of each plugin under the labels of controller-runtime.
fn each<'p, N>(
    plugins: &'p Plugins,
    figure: impl Fn(&'p PluginId, &'p PluginStatus) -> N,
) -> impl Iterator<Item = ([(&'static str, String); 2], N)> {
    plugins
        .iter()
        .map(move |(id, status)| ([("controller", id.to_string()), ("name", id.to_string())], figure(id, status)))
}

/// Returns a figure of the plugins that have any of it.
fn above_zero(
    plugins: &Plugins,
    figure: fn(&PluginStatus) -> u64,
) -> impl Iterator<Item = ([(&'static str, String); 2], u64)> {
    each(plugins, move |_, status| figure(status)).filter(|(_, count)| *count > 0)
}

fn by_result(
    plugins: &Plugins,
    figures: impl Fn(&PluginStatus) -> BTreeMap<&'static str, u64>,
) -> impl Iterator<Item = ([(&'static str, String); 2], u64)> {
    plugins.iter().flat_map(move |(id, status)| {
        figures(status)
            .into_iter()
            .map(|(result, count)| ([("controller", id.to_string()), ("result", result.to_owned())], count))
    })
}

#[cfg(test)]
mod tests;
