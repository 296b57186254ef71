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
    status::{Histogram, LoadState, PluginState, PluginStatus, RunResult, Status, Used},
};
use podium_vocabulary::PluginId;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, MetricEncoder, NoLabelSet, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::{ApiRequests, COMMIT, Dropped, Source, VERSION, process::Process};

/// Upper bounds of the buckets in seconds, in steps of 2 or 2.5, from 50 us (a warm run) to a minute, about where
/// [`Histogram`] ends.
const BOUNDS: [f64; 19] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    25.0, 60.0,
];

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
    /// `None` if the host runs plugins without a Lease.
    pub lease: Option<LeaseFigures>,
    /// The most runs of one plugin at once.
    pub most_runs: usize,
    /// The requests to the API server.
    pub requests: Arc<ApiRequests>,
    /// The number of dropped log lines.
    pub dropped: Arc<Dropped>,
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
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let figures = (self.figures)();
        let plugins = figures.status.plugins();
        let encoder = &mut encoder;
        encode_runs(encoder, &plugins)?;
        figures.encode_loads(encoder, &plugins)?;
        figures.encode_queue(encoder, &plugins)?;
        figures.encode_deliveries(encoder, &plugins)?;
        figures.encode_host(encoder)?;
        self.process.encode(encoder)
    }
}

impl Figures {
    fn plugin(&self, id: &PluginId) -> PluginFigures {
        self.plugins.get(id).copied().unwrap_or_default()
    }

    fn encode_loads(&self, encoder: &mut DescriptorEncoder<'_>, plugins: &Plugins) -> fmt::Result {
        let requests = "Requests sent to the API server for a plugin's writes";
        counter(encoder, plugins, "podium_write_requests", requests, PluginStatus::requests)?;
        let help = "Processor time of runs that the tenant is charged";
        let mut cpu = encoder.encode_descriptor("podium_run_cpu", help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (id, status) in plugins {
            let labels = [("controller", id.to_string()), ("tenant", tenant(id))];
            ConstCounter::new(status.cpu().as_secs_f64()).encode(cpu.encode_family(&labels)?)?;
        }
        let help = "Pods with a finalizer of a plugin that was deleted";
        let mut metric = encoder.encode_descriptor("podium_plugin_finalizers_left", help, None, MetricType::Gauge)?;
        for (id, pods) in &self.removals {
            let labels = [("controller", id.to_string())];
            let pods = i64::try_from(*pods).unwrap_or(i64::MAX);
            ConstGauge::new(pods).encode(metric.encode_family(&labels)?)?;
        }
        let help = "1 while a version of the configured plugin is loaded";
        let loads = self.status.loads();
        by_load(encoder, &loads, "podium_plugin_ready", help, |plugin| plugin.runs)?;
        let help = "1 while the configuration of the plugin suspends it";
        by_load(encoder, &loads, "podium_plugin_suspended", help, |plugin| plugin.load == LoadState::Suspended)?;
        let loading = loads.iter().filter(|plugin| plugin.load == LoadState::Loading).count();
        let help = "Plugins whose present configuration is being loaded";
        unlabelled(encoder, "podium_plugins_loading", help, i64::try_from(loading).unwrap_or(i64::MAX))
    }

    fn encode_queue(&self, encoder: &mut DescriptorEncoder<'_>, plugins: &Plugins) -> fmt::Result {
        gauge(encoder, plugins, "controller_runtime_active_workers", "Runs in progress", |_, status| {
            i64::try_from(status.active()).unwrap_or(i64::MAX)
        })?;
        let most = i64::try_from(self.most_runs).unwrap_or(i64::MAX);
        let help = "The most runs of a plugin, and of its tenant, at once";
        gauge(encoder, plugins, "controller_runtime_max_concurrent_reconciles", help, |_, _| most)?;
        let lengths = |status: &PluginStatus| status.active_runs().into_iter().map(|run| run.since.elapsed());
        let help = "Time that the runs in progress have taken together";
        gauge(encoder, plugins, "workqueue_unfinished_work_seconds", help, |_, status| {
            lengths(status).sum::<Duration>().as_secs_f64()
        })?;
        let help = "Time that the longest run in progress has taken";
        gauge(encoder, plugins, "workqueue_longest_running_processor_seconds", help, |_, status| {
            lengths(status).max().unwrap_or_default().as_secs_f64()
        })?;
        gauge(encoder, plugins, "workqueue_depth", "Keys waiting to be processed", |id, _| {
            i64::try_from(self.plugin(id).depth).unwrap_or(i64::MAX)
        })?;
        encode_tenants(encoder, &self.tenants)
    }

    fn encode_deliveries(&self, encoder: &mut DescriptorEncoder<'_>, plugins: &Plugins) -> fmt::Result {
        let unsettled = "Deletions on which the plugin has not settled yet";
        gauge(encoder, plugins, "podium_deletions_unsettled", unsettled, |id, _| {
            i64::try_from(self.plugin(id).deletions).unwrap_or(i64::MAX)
        })?;
        let dropped = "Last states of deleted Pods that were dropped because too many waited for the plugin";
        counter(encoder, plugins, "podium_deletion_states_dropped", dropped, PluginStatus::states_dropped)?;
        let given_up = "Deletions that were given up because the plugin did not settle on them";
        counter(encoder, plugins, "podium_deletions_given_up", given_up, PluginStatus::deletions_given_up)?;
        let unlisted = "Failures that the status of the plugin did not list, because it listed 8 others";
        let many: Vec<_> = plugins.iter().filter(|(_, status)| status.failures_unlisted() > 0).cloned().collect();
        counter(encoder, &many, "podium_failures_unlisted", unlisted, PluginStatus::failures_unlisted)?;
        let lost = "Lines of the plugin's log that were dropped because its tenant's share of the log was used up";
        let lossy: Vec<_> = plugins.iter().filter(|(_, status)| status.log_lines_dropped() > 0).cloned().collect();
        counter(encoder, &lossy, "podium_plugin_log_dropped_lines", lost, PluginStatus::log_lines_dropped)?;
        limits(encoder, plugins)?;
        let run = "Duration of a run including its writes";
        histogram(encoder, plugins, "controller_runtime_reconcile_time", run, |status| &status.run_time)?;
        histogram(encoder, plugins, "workqueue_work_duration", run, |status| &status.run_time)?;
        let queue = "Time from an event to the run that handles it";
        histogram(encoder, plugins, "workqueue_queue_duration", queue, |status| &status.queue_time)?;
        let write = "Time from an event to the API server's response to the write";
        let wrote: Vec<_> = plugins.iter().filter(|(_, status)| status.event_to_write.count() > 0).cloned().collect();
        histogram(encoder, &wrote, "podium_event_to_write", write, |status| &status.event_to_write)?;
        let seen = "Time from the API server's response to the write until the cache shows it";
        histogram(encoder, &wrote, "podium_write_to_seen", seen, |status| &status.write_to_seen)
    }

    fn encode_host(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let CacheFigures { pods, stale, revision } = self.cache;
        unlabelled(encoder, "podium_cache_pods", "Pods in the cache", i64::try_from(pods).unwrap_or(i64::MAX))?;
        let revision = i64::try_from(revision).unwrap_or(i64::MAX);
        unlabelled(encoder, "podium_cache_revision", "The newest observed revision", revision)?;
        unlabelled(encoder, "podium_cache_stale", "1 while the watch is interrupted", stale.into())?;
        let help =
            "Accounts and plugins whose requests wait because the API server answered Retry-After, and 1 if all wait";
        unlabelled(encoder, "podium_requests_held", help, i64::try_from(self.held).unwrap_or(i64::MAX))?;
        let help = "Log lines dropped because standard error was not read in time";
        let mut lines = encoder.encode_descriptor("podium_log_dropped_lines", help, None, MetricType::Counter)?;
        for source in Source::ALL {
            ConstCounter::new(self.dropped.lines(source)).encode(lines.encode_family(&[("source", source.name())])?)?;
        }
        self.requests.encode(encoder)?;
        let help = "Version and commit of the program";
        let mut build = encoder.encode_descriptor("podium_build_info", help, None, MetricType::Gauge)?;
        ConstGauge::new(1_i64).encode(build.encode_family(&[("version", VERSION), ("commit", COMMIT)])?)?;
        let tasks = i64::try_from(self.tasks).unwrap_or(i64::MAX);
        unlabelled(encoder, "podium_runtime_tasks", "Asynchronous tasks that have not ended", tasks)?;
        if let Some(refused) = self.policy_refused {
            let help = "1 while the policy's files have mistakes, and the policy before them is in force";
            unlabelled(encoder, "podium_policy_refused", help, refused.into())?;
        }
        if let Some(lease) = self.lease {
            encode_lease(encoder, lease)?;
        }
        if let Some(journal) = self.journal {
            encode_journal(encoder, journal)?;
        }
        Ok(())
    }
}

fn encode_runs(encoder: &mut DescriptorEncoder<'_>, plugins: &Plugins) -> fmt::Result {
    by_result(encoder, plugins, "controller_runtime_reconcile", "Runs by result", |status| {
        RunResult::ALL.iter().map(|result| (result.name(), status.runs_by(*result))).collect()
    })?;
    by_result(encoder, plugins, "podium_writes", "Writes by result", |status| status.writes().into_iter().collect())?;
    by_result(encoder, plugins, "podium_events", "Events by result", |status| status.events().into_iter().collect())?;
    by_result(encoder, plugins, "podium_run_failures", "Failed runs by reason", |status| {
        // The objective of runs needs this one before its first occurrence.
        let mut failures = status.failures();
        failures.entry(FailureKind::Host.name()).or_default();
        failures.into_iter().collect()
    })?;
    loops(encoder, plugins)?;
    let error = |status: &PluginStatus| status.runs_by(RunResult::Error);
    counter(encoder, plugins, "controller_runtime_reconcile_errors", "Runs that failed", error)?;
    let panics = "Runs that trapped or exceeded a limit";
    counter(encoder, plugins, "controller_runtime_reconcile_panics", panics, PluginStatus::panics)?;
    let terminal = "Runs whose failure the plugin called terminal";
    let figure = |status: &PluginStatus| status.failures_by(FailureKind::Terminal);
    counter(encoder, plugins, "controller_runtime_terminal_reconcile_errors", terminal, figure)?;
    counter(encoder, plugins, "workqueue_adds", "Wake-ups", PluginStatus::adds)?;
    counter(encoder, plugins, "workqueue_retries", "Runs that were not a first attempt", PluginStatus::retries)
}

/// Returns the tenant of a plugin as [`Figures::tenants`] has it.
fn tenant(id: &PluginId) -> String {
    id.namespace.as_ref().map_or_else(|| format!("cluster/{id}"), ToString::to_string)
}

fn encode_tenants(encoder: &mut DescriptorEncoder<'_>, tenants: &[(String, TenantFigures)]) -> fmt::Result {
    let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, figure: &dyn Fn(&TenantFigures) -> f64| {
        let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (tenant, figures) in tenants {
            ConstGauge::new(figure(figures)).encode(metric.encode_family(&[("tenant", tenant.as_str())])?)?;
        }
        Ok(())
    };
    gauge("podium_tenant_runs", "Runs in progress", None, &|of| of.runs as f64)?;
    let deliveries = "Runs that have ended and whose writes are being sent";
    gauge("podium_tenant_deliveries", deliveries, None, &|of| of.deliveries as f64)?;
    gauge("podium_tenant_waiting_keys", "Keys waiting to be processed", None, &|of| of.waiting as f64)?;
    let stale = "Keys that have waited for more than 30 s to be processed";
    gauge("podium_tenant_stale_keys", stale, None, &|of| of.stale as f64)?;
    let without = "Keys that wait because the requests per second of the plugin or the tenant are used up";
    gauge("podium_tenant_keys_without_tokens", without, None, &|of| of.without_tokens as f64)?;
    let debt = "Processor time by which the tenant is ahead of the one whose turn it is";
    gauge("podium_tenant_debt", debt, Some(&Unit::Seconds), &|of| of.debt.as_secs_f64())?;
    let mut counter = |name: &str, help: &str, kind: usize| {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (tenant, figures) in tenants {
            let labels = [("tenant", tenant.as_str())];
            ConstCounter::new(figures.refused[kind]).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    };
    let writes = "Writes that were not sent because the requests per second were used up";
    counter("podium_tenant_writes_without_tokens", writes, budget::WRITES)?;
    let reads = "Live reads that were refused because the requests per second were used up";
    counter("podium_tenant_live_reads_without_tokens", reads, budget::LIVE_READS)?;
    let events = "Events that were dropped because the requests per second were used up";
    counter("podium_tenant_events_without_tokens", events, budget::EVENTS)
}

fn encode_journal(encoder: &mut DescriptorEncoder<'_>, journal: journal::Figures) -> fmt::Result {
    let figure = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
    let entries = "Pairs of a plugin and a Pod on which it ran";
    unlabelled(encoder, "podium_journal_entries", entries, figure(journal.entries))?;
    let pending = "Deletions that have not settled for a plugin that ran on the Pod";
    unlabelled(encoder, "podium_journal_pending_deletions", pending, figure(journal.pending_deletions))?;
    let bytes = i64::try_from(journal.bytes).unwrap_or(i64::MAX);
    unlabelled(encoder, "podium_journal_bytes", "Length of the journal's file", bytes)?;
    unlabelled(encoder, "podium_journal_failing", "1 while the journal cannot be written", journal.failing.into())?;
    let dropped = ConstCounter::new(journal.dropped_entries);
    let help = "Entries that were not recorded because too many waited for the disk";
    dropped.encode(encoder.encode_descriptor("podium_journal_dropped_entries", help, None, MetricType::Counter)?)?;
    let damaged = ConstCounter::new(journal.damaged);
    let help = "Damaged places in the journal's file at the start, each of which has lost at least one entry";
    damaged.encode(encoder.encode_descriptor("podium_journal_damaged_places", help, None, MetricType::Counter)?)
}

fn unlabelled(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn encode_lease(encoder: &mut DescriptorEncoder<'_>, figures: LeaseFigures) -> fmt::Result {
    let LeaseFigures { leads, shards, takeovers, unowned } = figures;
    let help = "1 while this replica holds a Lease and runs plugins";
    let mut metric = encoder.encode_descriptor("leader_election_master_status", help, None, MetricType::Gauge)?;
    ConstGauge::new(i64::from(leads)).encode(metric.encode_family(&[("name", "podium-host")])?)?;
    let help = "Shards of tenants whose plugins this replica runs";
    unlabelled(encoder, "podium_lease_shards", help, i64::try_from(shards).unwrap_or(i64::MAX))?;
    let help = "How often this replica has taken a Lease";
    let metric = encoder.encode_descriptor("podium_lease_takeovers", help, None, MetricType::Counter)?;
    ConstCounter::new(takeovers).encode(metric)?;
    let help = "Time for which no living replica has held some Lease";
    let metric = encoder.encode_descriptor("podium_lease_unheld", help, Some(&Unit::Seconds), MetricType::Gauge)?;
    ConstGauge::new(unowned.as_secs_f64()).encode(metric)
}

fn by_result(
    encoder: &mut DescriptorEncoder<'_>,
    plugins: &Plugins,
    name: &str,
    help: &str,
    figures: impl Fn(&PluginStatus) -> Vec<(&'static str, u64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (id, status) in plugins {
        let id = id.to_string();
        for (result, count) in figures(status) {
            let labels = [("controller", id.as_str()), ("result", result)];
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Encodes the figures of loops and missing rights, only of plugins that have any.
fn loops(encoder: &mut DescriptorEncoder<'_>, plugins: &Plugins) -> fmt::Result {
    let help = "Pods that a plugin changed too often within a minute, by the field that changed most often and the \
                sender of its other values";
    let mut metric = encoder.encode_descriptor("podium_write_loops", help, None, MetricType::Counter)?;
    for (id, status) in plugins {
        let id = id.to_string();
        for ((field, counterpart), count) in status.loops() {
            let labels = [("controller", id.as_str()), ("field", field), ("counterpart", counterpart.as_str())];
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    let has = |figure: fn(&PluginStatus) -> u64| -> Vec<_> {
        plugins.iter().filter(|(_, status)| figure(status) > 0).cloned().collect()
    };
    let help = "Writes that were not sent because changes of their Pods wait";
    let figure = PluginStatus::writes_withheld;
    counter(encoder, &has(figure), "podium_writes_withheld", help, figure)?;
    let help = "Times at which writes of one kind were stopped because the plugin's account has no right to them";
    counter(encoder, &has(PluginStatus::closings), "podium_forbidden_closings", help, PluginStatus::closings)
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    plugins: &Plugins,
    name: &str,
    help: &str,
    figure: impl Fn(&PluginStatus) -> u64,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (id, status) in plugins {
        let id = id.to_string();
        let labels = [("controller", id.as_str()), ("name", id.as_str())];
        ConstCounter::new(figure(status)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge<N: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    plugins: &Plugins,
    name: &str,
    help: &str,
    figure: impl Fn(&PluginId, &PluginStatus) -> N,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (plugin, status) in plugins {
        let id = plugin.to_string();
        let labels = [("controller", id.as_str()), ("name", id.as_str())];
        ConstGauge::new(figure(plugin, status)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes the limits of runs and what runs used of them. A limit of which a plugin never used anything has no series,
/// and so a plugin that never ran has none.
fn limits(encoder: &mut DescriptorEncoder<'_>, plugins: &Plugins) -> fmt::Result {
    let uses = plugins.iter().map(|(id, status)| (id.to_string(), status.uses()));
    let uses: Vec<(String, Vec<Used>)> = uses.filter(|(_, uses)| !uses.is_empty()).collect();
    if uses.is_empty() {
        return Ok(());
    }
    let help = "Use of the limits of runs in bytes, seconds or numbers: by the last run, and the most by any run";
    let mut metric = encoder.encode_descriptor("podium_run_used", help, None, MetricType::Gauge)?;
    for (id, used) in uses.iter().flat_map(|(id, uses)| uses.iter().map(move |used| (id, used))) {
        let [last, peak, _] = used.in_base_units();
        for (run, value) in [("last", last), ("peak", peak)] {
            let labels = [("controller", id.as_str()), ("limit", used.of.name()), ("run", run)];
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    let help = "The limits of the plugin's runs, in bytes, seconds or numbers";
    let mut metric = encoder.encode_descriptor("podium_run_limit", help, None, MetricType::Gauge)?;
    for (id, used) in uses.iter().flat_map(|(id, uses)| uses.iter().map(move |used| (id, used))) {
        let [_, _, limit] = used.in_base_units();
        let labels = [("controller", id.as_str()), ("limit", used.of.name())];
        ConstGauge::new(limit).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Encodes a gauge of every configured plugin, also of one that was never loaded.
fn by_load(
    encoder: &mut DescriptorEncoder<'_>,
    plugins: &[PluginState],
    name: &str,
    help: &str,
    is: impl Fn(&PluginState) -> bool,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for plugin in plugins {
        let labels = [("controller", plugin.id.to_string())];
        ConstGauge::new(i64::from(is(plugin))).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    plugins: &Plugins,
    name: &str,
    help: &str,
    figure: impl Fn(&PluginStatus) -> &Histogram,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (id, status) in plugins {
        let id = id.to_string();
        let labels = [("controller", id.as_str()), ("name", id.as_str())];
        encode_histogram(metric.encode_family(&labels)?, figure(status))?;
    }
    Ok(())
}

pub(super) fn encode_histogram(mut family: MetricEncoder<'_>, times: &Histogram) -> fmt::Result {
    let cumulative = times.cumulative(&BOUNDS.map(Duration::from_secs_f64));
    let count = times.count().max(cumulative.last().copied().unwrap_or_default());
    let mut below = 0;
    // A plugin that never ran has one bucket: with all of them, 500 idle plugins would have 40,000 series.
    let (bounds, cumulative) = if count == 0 { (&[][..], Vec::new()) } else { (&BOUNDS[..], cumulative) };
    let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(BOUNDS.len() + 1);
    for (bound, upto) in bounds.iter().zip(cumulative) {
        buckets.push((*bound, upto - below));
        below = upto;
    }
    buckets.push((f64::INFINITY, count - below));
    family.encode_histogram::<NoLabelSet>(times.sum().as_secs_f64(), count, &buckets, None)
}

#[cfg(test)]
mod tests;
