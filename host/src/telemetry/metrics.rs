//! /metrics: the counters of `status` under the names that controller-runtime's dashboards use, with `controller` =
//! plugin.
//!
//! Nothing is counted here; a scrape reads the other modules' counters. Labels are plugins and results, never a Pod's
//! name, so the configuration bounds the number of series.

use std::{fmt, sync::Arc, time::Duration};

use podium_engine::status::{Histogram, LoadState, PluginState, PluginStatus, RunResult, Status, Used};
use podium_pods::model::PluginId;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::{Dropped, Source, process::Process};

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

/// The figures of the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalFigures {
    /// Pairs of a plugin and a Pod that it ran on.
    pub entries: usize,
    /// Pairs whose Pod is gone and whose deletion has not settled.
    pub pending_deletions: usize,
    /// The file's length.
    pub bytes: u64,
    /// True while the disk rejects writes.
    pub failing: bool,
    /// Entries that were not recorded because too many waited for the disk.
    pub dropped_entries: u64,
}

/// The figures of the checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointFigures {
    /// Epoch milliseconds of the last successful write; `None` before the first.
    pub saved_millis: Option<u64>,
    /// True if the latest attempt to write it failed.
    pub failing: bool,
}

/// The runs, deliveries and waiting keys of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantFigures {
    /// A namespace, or `cluster/NAME` for a `ClusterReconcilePlugin`.
    pub tenant: String,
    /// Runs under way.
    pub runs: usize,
    /// Runs that have ended and whose writes are being sent.
    pub deliveries: usize,
    /// Keys that are due and not yet run.
    pub waiting: usize,
    /// Those of them that wait because the requests per second are used up.
    pub without_tokens: usize,
    /// Requests of runs while the requests per second were used up.
    pub refused: Unsent,
    /// The processor time by which the tenant is ahead of the one whose turn it is.
    pub debt: Duration,
}

/// Requests that were not sent since the start, because the requests per second of a plugin or its tenant were used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unsent {
    /// Writes; each was reported to its plugin.
    pub writes: u64,
    /// Live reads; each was refused.
    pub live_reads: u64,
    /// Events that were dropped.
    pub events: u64,
}

/// The sources that are read at each scrape.
#[derive(Clone)]
pub struct Sources {
    /// The plugins' counters.
    pub status: Arc<Status>,
    /// Returns how many keys of a plugin are queued.
    pub depth: Arc<dyn Fn(&PluginId) -> usize + Send + Sync>,
    /// Returns how many deletions are kept for a plugin because its runs on them have not settled.
    pub deletions: Arc<dyn Fn(&PluginId) -> usize + Send + Sync>,
    /// Returns the current figures of every tenant that has a plugin or had one.
    pub tenants: Arc<dyn Fn() -> Vec<TenantFigures> + Send + Sync>,
    /// Returns the current figures of the cache.
    pub cache: Arc<dyn Fn() -> CacheFigures + Send + Sync>,
    /// Returns `None` if the host keeps no journal.
    pub journal: Arc<dyn Fn() -> Option<JournalFigures> + Send + Sync>,
    /// Returns `None` if the host keeps no checkpoint.
    pub checkpoint: Arc<dyn Fn() -> Option<CheckpointFigures> + Send + Sync>,
    /// The number of dropped log lines.
    pub dropped: Arc<Dropped>,
}

/// Renders metrics on demand.
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// Returns metrics that read `sources` at each scrape.
    #[must_use]
    pub fn new(sources: Sources) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Figures { sources, process: Process::new() }));
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

struct Figures {
    sources: Sources,
    process: Process,
}

impl fmt::Debug for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Figures").field("status", &self.sources.status).finish_non_exhaustive()
    }
}

type Plugins = [(PluginId, Arc<PluginStatus>)];

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Sources { status, depth, deletions, tenants, cache, journal, checkpoint, dropped: log } = &self.sources;
        let plugins = status.plugins();
        let encoder = &mut encoder;
        by_result(encoder, &plugins, "controller_runtime_reconcile", "Runs by result", |status| {
            RunResult::ALL.iter().map(|result| (result.name(), status.runs_by(*result))).collect()
        })?;
        by_result(encoder, &plugins, "podium_writes", "Writes by result", |status| {
            status.writes().into_iter().collect()
        })?;
        by_result(encoder, &plugins, "podium_events", "Events by result", |status| {
            status.events().into_iter().collect()
        })?;
        by_result(encoder, &plugins, "podium_run_failures", "Failed runs by reason", |status| {
            status.failures().into_iter().collect()
        })?;
        loops(encoder, &plugins)?;
        let error = |status: &PluginStatus| status.runs_by(RunResult::Error);
        counter(encoder, &plugins, "controller_runtime_reconcile_errors", "Runs that failed", error)?;
        let panics = "Runs that trapped or exceeded a limit";
        counter(encoder, &plugins, "controller_runtime_reconcile_panics", panics, PluginStatus::panics)?;
        counter(encoder, &plugins, "workqueue_adds", "Wake-ups", PluginStatus::adds)?;
        counter(encoder, &plugins, "workqueue_retries", "Runs that were not a first attempt", PluginStatus::retries)?;
        let requests = "Requests sent to the API server for a plugin's writes";
        counter(encoder, &plugins, "podium_write_requests", requests, PluginStatus::requests)?;
        let help = "1 while a version of the configured plugin is loaded";
        by_load(encoder, &status.loads(), "podium_plugin_ready", help, |plugin| plugin.runs)?;
        let help = "1 while the configuration of the plugin suspends it";
        by_load(encoder, &status.loads(), "podium_plugin_suspended", help, |plugin| {
            plugin.load == LoadState::Suspended
        })?;
        gauge(encoder, &plugins, "controller_runtime_active_workers", "Runs in progress", |_, status| status.active())?;
        gauge(encoder, &plugins, "workqueue_depth", "Keys waiting to be processed", |id, _| {
            i64::try_from(depth(id)).unwrap_or(i64::MAX)
        })?;
        encode_tenants(encoder, &tenants())?;
        let unsettled = "Deletions on which the plugin has not settled yet";
        gauge(encoder, &plugins, "podium_deletions_unsettled", unsettled, |id, _| {
            i64::try_from(deletions(id)).unwrap_or(i64::MAX)
        })?;
        let dropped = "Last states of deleted Pods that were dropped because too many waited for the plugin";
        counter(encoder, &plugins, "podium_deletion_states_dropped", dropped, PluginStatus::states_dropped)?;
        let given_up = "Deletions that were given up because the plugin did not settle on them";
        counter(encoder, &plugins, "podium_deletions_given_up", given_up, PluginStatus::deletions_given_up)?;
        let lost = "Lines of the plugin's log that were dropped because its tenant's share of the log was used up";
        let lossy: Vec<_> = plugins.iter().filter(|(_, status)| status.log_lines_dropped() > 0).cloned().collect();
        counter(encoder, &lossy, "podium_plugin_log_dropped_lines", lost, PluginStatus::log_lines_dropped)?;
        limits(encoder, &plugins)?;
        let run = "Duration of a run including its writes";
        histogram(encoder, &plugins, "controller_runtime_reconcile_time", run, |status| &status.run_time)?;
        histogram(encoder, &plugins, "workqueue_work_duration", run, |status| &status.run_time)?;
        let queue = "Time from an event to the run that handles it";
        histogram(encoder, &plugins, "workqueue_queue_duration", queue, |status| &status.queue_time)?;
        let write = "Time from an event to the API server's response to the write";
        let wrote: Vec<_> = plugins.iter().filter(|(_, status)| status.event_to_write.count() > 0).cloned().collect();
        histogram(encoder, &wrote, "podium_event_to_write", write, |status| &status.event_to_write)?;
        let cache = cache();
        unlabelled(encoder, "podium_cache_pods", "Pods in the cache", i64::try_from(cache.pods).unwrap_or(i64::MAX))?;
        let revision = i64::try_from(cache.revision).unwrap_or(i64::MAX);
        unlabelled(encoder, "podium_cache_revision", "The newest observed revision", revision)?;
        unlabelled(encoder, "podium_cache_stale", "1 while the watch is interrupted", cache.stale.into())?;
        let help = "Log lines dropped because standard error was not read in time";
        let mut lines = encoder.encode_descriptor("podium_log_dropped_lines", help, None, MetricType::Counter)?;
        for source in Source::ALL {
            ConstCounter::new(log.lines(source)).encode(lines.encode_family(&[("source", source.name())])?)?;
        }
        self.process.encode(encoder)?;
        if let Some(journal) = journal() {
            encode_journal(encoder, journal)?;
        }
        if let Some(checkpoint) = checkpoint() {
            encode_checkpoint(encoder, checkpoint)?;
        }
        Ok(())
    }
}

fn encode_tenants(encoder: &mut DescriptorEncoder<'_>, tenants: &[TenantFigures]) -> fmt::Result {
    let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, figure: &dyn Fn(&TenantFigures) -> f64| {
        let mut metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for of in tenants {
            ConstGauge::new(figure(of)).encode(metric.encode_family(&[("tenant", of.tenant.as_str())])?)?;
        }
        Ok(())
    };
    gauge("podium_tenant_runs", "Runs in progress", None, &|of| of.runs as f64)?;
    let deliveries = "Runs that have ended and whose writes are being sent";
    gauge("podium_tenant_deliveries", deliveries, None, &|of| of.deliveries as f64)?;
    gauge("podium_tenant_waiting_keys", "Keys waiting to be processed", None, &|of| of.waiting as f64)?;
    let without = "Keys that wait because the requests per second of the plugin or the tenant are used up";
    gauge("podium_tenant_keys_without_tokens", without, None, &|of| of.without_tokens as f64)?;
    let debt = "Processor time by which the tenant is ahead of the one whose turn it is";
    gauge("podium_tenant_debt", debt, Some(&Unit::Seconds), &|of| of.debt.as_secs_f64())?;
    let mut counter = |name: &str, help: &str, figure: fn(&Unsent) -> u64| {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for of in tenants {
            let labels = [("tenant", of.tenant.as_str())];
            ConstCounter::new(figure(&of.refused)).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    };
    let writes = "Writes that were not sent because the requests per second were used up";
    counter("podium_tenant_writes_without_tokens", writes, |unsent| unsent.writes)?;
    let reads = "Live reads that were refused because the requests per second were used up";
    counter("podium_tenant_live_reads_without_tokens", reads, |unsent| unsent.live_reads)?;
    let events = "Events that were dropped because the requests per second were used up";
    counter("podium_tenant_events_without_tokens", events, |unsent| unsent.events)
}

fn encode_journal(encoder: &mut DescriptorEncoder<'_>, journal: JournalFigures) -> fmt::Result {
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
    dropped.encode(encoder.encode_descriptor("podium_journal_dropped_entries", help, None, MetricType::Counter)?)
}

fn encode_checkpoint(encoder: &mut DescriptorEncoder<'_>, checkpoint: CheckpointFigures) -> fmt::Result {
    let failing = "1 if the last attempt to write the checkpoint failed";
    unlabelled(encoder, "podium_checkpoint_failing", failing, checkpoint.failing.into())?;
    let saved = ConstGauge::new(checkpoint.saved_millis.unwrap_or_default() as f64 / 1_000.0);
    let (name, help) =
        ("podium_checkpoint_last_success_timestamp", "When the checkpoint was last written; 0 before that");
    saved.encode(encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?)
}

fn unlabelled(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
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
    let help = "Fields to which too many values were sent within a minute, by the sender of the other values";
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
    let (help, figure) =
        ("Writes that were not sent because values of their fields wait", PluginStatus::writes_withheld);
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

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    plugins: &Plugins,
    name: &str,
    help: &str,
    figure: impl Fn(&PluginId, &PluginStatus) -> i64,
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
    let bounds = BOUNDS.map(Duration::from_secs_f64);
    for (id, status) in plugins {
        let id = id.to_string();
        let labels = [("controller", id.as_str()), ("name", id.as_str())];
        let times = figure(status);
        let cumulative = times.cumulative(&bounds);
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
        let mut family = metric.encode_family(&labels)?;
        family.encode_histogram::<prometheus_client::encoding::NoLabelSet>(
            times.sum().as_secs_f64(),
            count,
            &buckets,
            None,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use podium_engine::{
        ports::{Failure, FailureKind, Outcome, Usage},
        status::LoadState,
    };
    use podium_pods::{
        model::{EventResult, Limits, WriteReport, WriteResult},
        testing::NASTY,
    };

    use super::*;

    fn render(status: &Arc<Status>) -> String {
        let journal = || {
            let (entries, pending_deletions, dropped_entries) = (5, 2, 1);
            Some(JournalFigures { entries, pending_deletions, bytes: 700, failing: true, dropped_entries })
        };
        let sources = Sources {
            status: status.clone(),
            depth: Arc::new(|_: &PluginId| 3),
            deletions: Arc::new(|_: &PluginId| 4),
            tenants: Arc::new(|| {
                let debt = Duration::from_millis(1_500);
                let refused = Unsent { writes: 3, live_reads: 5, events: 7 };
                let tenant = "shop".into();
                vec![TenantFigures { tenant, runs: 2, deliveries: 1, waiting: 9, without_tokens: 4, refused, debt }]
            }),
            cache: Arc::new(|| CacheFigures { pods: 7, stale: true, revision: 9 }),
            journal: Arc::new(journal),
            checkpoint: Arc::new(|| Some(CheckpointFigures { saved_millis: Some(1_500), failing: false })),
            dropped: Arc::default(),
        };
        Metrics::new(sources).render().unwrap()
    }

    /// Returns the value of a sample without labels.
    fn sample(text: &str, name: &str) -> f64 {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    }

    #[test]
    fn stock_dashboards_find_their_series_from_the_start_with_zeros() {
        let status = Arc::new(Status::default());
        status.plugin(&PluginId { namespace: Some("shop".into()), name: "tidy".into() });
        let text = render(&status);
        for line in [
            r#"controller_runtime_reconcile_total{controller="shop/tidy",result="success"} 0"#,
            r#"controller_runtime_reconcile_errors_total{controller="shop/tidy",name="shop/tidy"} 0"#,
            r#"workqueue_depth{controller="shop/tidy",name="shop/tidy"} 3"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="shop/tidy",name="shop/tidy"} 0"#,
            "podium_cache_pods 7",
            "podium_cache_stale 1",
            "podium_journal_pending_deletions 2",
            "podium_journal_failing 1",
            "podium_journal_dropped_entries_total 1",
            "podium_checkpoint_failing 0",
            "podium_checkpoint_last_success_timestamp_seconds 1.5",
            r#"podium_log_dropped_lines_total{source="host"} 0"#,
            r#"podium_log_dropped_lines_total{source="plugin"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_idle_plugin_has_at_most_25_series() {
        let status = Arc::new(Status::default());
        let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
        let plugin = status.plugin(&id);
        status.set_load(&id, LoadState::Loaded, true);
        let series = || render(&status).lines().filter(|line| line.contains("\"shop/tidy\"")).count();
        assert!(series() <= 25, "{} series", series());
        plugin.begin(Duration::ZERO, 1);
        let _ = plugin.end(&Ok(Outcome::Settled), 0, Duration::ZERO);
        assert!(series() > 60, "buckets from the first run on: {} series", series());
    }

    /// Names and values of all labels.
    fn labels(text: &str) -> BTreeSet<(String, String)> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let sets = samples.filter_map(|line| line.split_once('{')?.1.rsplit_once('}').map(|(set, _)| set));
        let pairs = sets.flat_map(|set| set.split(',')).filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned())).collect()
    }

    #[test]
    fn every_label_is_a_configured_plugin_or_one_of_a_list_whatever_guests_say() {
        const RESULTS: &[&str] = &[
            // Of runs and of failures.
            "success",
            "error",
            "requeue",
            "requeue_after",
            "retry",
            "terminal",
            "trap",
            "cpu",
            "deadline",
            "memory",
            "revoked",
            "host",
            // Of writes and of Events.
            "applied",
            "unchanged",
            "conflict",
            "owned_by_other",
            "blocked",
            "gone",
            "forbidden",
            "invalid",
            "not_sent",
            "unknown",
            "sent",
            "delayed",
            "dropped",
        ];
        let status = Arc::new(Status::default());
        let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
        status.set_load(&id, LoadState::Refused { reason: NASTY.into() }, true);
        let plugin = status.plugin(&id);
        for kind in FailureKind::ALL {
            plugin.begin(Duration::ZERO, 1);
            let _ = plugin.end(&Err(Failure { kind, message: NASTY.into() }), 0, Duration::ZERO);
        }
        let text = || NASTY.to_owned();
        let results = [
            WriteResult::Applied,
            WriteResult::Unchanged,
            WriteResult::Conflict,
            WriteResult::OwnedByOther(text()),
            WriteResult::Blocked(text()),
            WriteResult::Gone,
            WriteResult::Forbidden(text()),
            WriteResult::Invalid(text()),
            WriteResult::NotSent,
            WriteResult::Unknown,
        ];
        let reports = results.into_iter().map(|result| WriteReport { id: 0, description: text(), result });
        plugin.wrote(&reports.collect::<Vec<_>>(), 1);
        for result in [EventResult::Sent, EventResult::Delayed, EventResult::Dropped] {
            plugin.event(result);
        }
        plugin.looped("label", "another manager");
        plugin.looped("label", "shop/tidy");
        plugin.withheld(1);
        plugin.closed();
        plugin.used(&Usage { host_calls: 1, ..Usage::default() }, &Limits::default());
        let text = render(&status);
        assert!(!text.contains("forged"), "{text}");
        for (name, value) in labels(&text) {
            let is_known = match &*name {
                "controller" | "name" => value == "shop/tidy",
                "tenant" => value == "shop",
                "field" => value == "label",
                "counterpart" => ["another manager", "shop/tidy"].contains(&&*value),
                "result" => RESULTS.contains(&&*value),
                "source" => ["host", "plugin"].contains(&&*value),
                "limit" => podium_engine::status::Limit::ALL.iter().any(|limit| limit.name() == value),
                "run" => ["last", "peak"].contains(&&*value),
                "le" => value == "+Inf" || value.parse::<f64>().is_ok(),
                _ => false,
            };
            assert!(is_known, "{name}={value}");
        }
        let seen = labels(&text).into_iter().filter(|(name, _)| name == "result").count();
        assert_eq!(seen, RESULTS.len(), "the list names no more than there is: {:?}", labels(&text));
    }

    #[test]
    fn a_limit_shows_the_last_run_and_the_peak_from_its_first_use_on() {
        let status = Arc::new(Status::default());
        let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
        let (plugin, limits) = (status.plugin(&id), Limits::default());
        let of_limits = || {
            let text = render(&status);
            let lines =
                text.lines().filter(|line| line.starts_with("podium_run_used{") || line.contains("_run_limit{"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of_limits(), [""; 0]);
        let usage = |millis, memory_bytes| {
            let cpu = Duration::from_millis(millis);
            Usage { cpu, memory_bytes, ..Usage::default() }
        };
        plugin.used(&usage(4, 1 << 20), &limits);
        plugin.used(&usage(2, 1 << 20), &limits);
        let expected = [
            r#"podium_run_used{controller="shop/tidy",limit="memory",run="last"} 1048576.0"#,
            r#"podium_run_used{controller="shop/tidy",limit="memory",run="peak"} 1048576.0"#,
            r#"podium_run_used{controller="shop/tidy",limit="cpu",run="last"} 0.002"#,
            r#"podium_run_used{controller="shop/tidy",limit="cpu",run="peak"} 0.004"#,
            r#"podium_run_limit{controller="shop/tidy",limit="memory"} 33554432.0"#,
            r#"podium_run_limit{controller="shop/tidy",limit="cpu"} 0.02"#,
        ];
        assert_eq!(of_limits(), expected);
    }

    #[test]
    fn every_configured_plugin_shows_whether_it_runs_from_the_start_and_whether_it_is_suspended() {
        let status = Arc::new(Status::default());
        let plugins = [
            ("one", LoadState::Loaded, true),
            ("two", LoadState::Loading, false),
            ("three", LoadState::Suspended, false),
        ];
        for (name, load, runs) in plugins {
            status.set_load(&PluginId { namespace: Some("shop".into()), name: name.into() }, load, runs);
        }
        let text = render(&status);
        for line in [
            r#"podium_plugin_ready{controller="shop/one"} 1"#,
            r#"podium_plugin_ready{controller="shop/two"} 0"#,
            r#"podium_plugin_ready{controller="shop/three"} 0"#,
            r#"podium_plugin_suspended{controller="shop/one"} 0"#,
            r#"podium_plugin_suspended{controller="shop/two"} 0"#,
            r#"podium_plugin_suspended{controller="shop/three"} 1"#,
            r#"podium_tenant_runs{tenant="shop"} 2.0"#,
            r#"podium_tenant_deliveries{tenant="shop"} 1.0"#,
            r#"podium_tenant_waiting_keys{tenant="shop"} 9.0"#,
            r#"podium_tenant_debt_seconds{tenant="shop"} 1.5"#,
            r#"podium_tenant_keys_without_tokens{tenant="shop"} 4.0"#,
            r#"podium_tenant_writes_without_tokens_total{tenant="shop"} 3"#,
            r#"podium_tenant_live_reads_without_tokens_total{tenant="shop"} 5"#,
            r#"podium_tenant_events_without_tokens_total{tenant="shop"} 7"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn buckets_are_cumulative_and_end_with_the_count() {
        let status = Arc::new(Status::default());
        let plugin = status.plugin(&PluginId { namespace: None, name: "tidy".into() });
        for millis in [1, 20, 90_000] {
            plugin.begin(Duration::ZERO, 1);
            let failure = Failure { kind: FailureKind::Cpu, message: String::new() };
            let _ = plugin.end(&Err(failure), 0, Duration::from_millis(millis));
        }
        let text = render(&status);
        for line in [
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.0025",controller="tidy",name="tidy"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.025",controller="tidy",name="tidy"} 2"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{le="+Inf",controller="tidy",name="tidy"} 3"#,
            r#"podium_run_failures_total{controller="tidy",result="cpu"} 3"#,
            r#"controller_runtime_reconcile_panics_total{controller="tidy",name="tidy"} 3"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_process_shows_itself_as_prometheus_client_libraries_do() {
        let text = render(&Arc::default());
        for (name, least) in [
            ("process_cpu_seconds_total", 0.0),
            ("process_resident_memory_bytes", 1e6),
            ("process_virtual_memory_bytes", 1e6),
            ("process_open_fds", 3.0),
            ("process_max_fds", 3.0),
            // 2020: the metric is the time of the start, not the uptime.
            ("process_start_time_seconds", 1.577e9),
        ] {
            assert!(sample(&text, name) >= least, "{name} is {}", sample(&text, name));
        }
    }

    #[test]
    fn a_quantile_between_a_millisecond_and_a_minute_is_known_to_a_factor_of_three() {
        let status = Arc::new(Status::default());
        status.plugin(&PluginId { namespace: None, name: "tidy".into() });
        status.plugins()[0].1.event_to_write.record(Duration::from_millis(1));
        let text = render(&status);
        let start = "podium_event_to_write_seconds_bucket{le=\"";
        let bounds = text.lines().filter_map(|line| line.strip_prefix(start)?.split('"').next()?.parse::<f64>().ok());
        let bounds: Vec<f64> = bounds.filter(|bound| bound.is_finite()).collect();
        assert!(bounds.iter().any(|bound| *bound <= 0.001) && bounds.iter().any(|bound| *bound >= 60.0), "{bounds:?}");
        assert!(bounds.windows(2).all(|pair| pair[1] / pair[0] < 3.0), "{bounds:?}");
    }
}
