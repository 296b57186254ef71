use std::collections::BTreeSet;

use podium_engine::{
    ports::{Failure, FailureKind, Outcome, Usage},
    status::LoadState,
};
use podium_pods::testing::NASTY;
use podium_vocabulary::{EventResult, Limits, PodKey, WriteReport, WriteResult};

use super::*;

fn render(status: &Arc<Status>) -> String {
    render_with(status, Arc::default())
}

fn render_with(status: &Arc<Status>, requests: Arc<ApiRequests>) -> String {
    let status = status.clone();
    let figures = move || {
        let removed = PluginId { namespace: Some("shop".into()), name: "removed".into() };
        let half = Duration::from_millis(1_500);
        let waiting = 9;
        let stale = 6;
        let without_tokens = 4;
        let refused = [3, 5, 7];
        let tenant = TenantFigures { runs: 2, deliveries: 1, waiting, stale, without_tokens, refused, debt: half };
        let entries = 5;
        let pending_deletions = 2;
        let dropped_entries = 1;
        let damaged = 6;
        let journal =
            journal::Figures { entries, pending_deletions, bytes: 700, failing: true, dropped_entries, damaged };
        let plugin = |(id, _)| (id, PluginFigures { depth: 3, deletions: 4 });
        Figures {
            removals: vec![(removed, 3)],
            plugins: status.plugins().into_iter().map(plugin).collect(),
            status: status.clone(),
            tenants: vec![("shop".into(), tenant)],
            cache: CacheFigures { pods: 7, stale: true, revision: 9 },
            journal: Some(journal),
            tasks: 8,
            held: 2,
            policy_refused: Some(true),
            other_holds: Some(true),
            certificate: Some(CertificateFigures { reads: 6, errors: 2 }),
            lease: Some(LeaseFigures { leads: true, shards: 16, takeovers: 3, unowned: half, dropped: 2 }),
            most_runs: 4,
            requests: requests.clone(),
            dropped: Arc::default(),
            traces: Some(TraceFigures { exported: 4, rate: 3, queue_full: 2, export_failed: 1 }),
        }
    };
    Metrics::new(figures).render().unwrap()
}

fn cart() -> PodKey {
    PodKey::new("shop", "cart-0", "u1")
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
        "podium_requests_held 2",
        "podium_journal_pending_deletions 2",
        "podium_journal_failing 1",
        "podium_policy_refused 1",
        "podium_lease_held_by_other 1",
        "certwatcher_read_certificate_total 6",
        "certwatcher_read_certificate_errors_total 2",
        r#"leader_election_master_status{name="podium-host"} 1"#,
        "podium_lease_shards 16",
        "podium_lease_takeovers_total 3",
        "podium_lease_unheld_seconds 1.5",
        "podium_lease_states_dropped_total 2",
        "podium_journal_dropped_entries_total 1",
        "podium_journal_damaged_places_total 6",
        "podium_runtime_tasks 8",
        r#"podium_run_failures_total{controller="shop/tidy",result="host"} 0"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="shop/tidy",name="shop/tidy"} 4"#,
        r#"controller_runtime_terminal_reconcile_errors_total{controller="shop/tidy",name="shop/tidy"} 0"#,
        r#"workqueue_unfinished_work_seconds{controller="shop/tidy",name="shop/tidy"} 0.0"#,
        r#"workqueue_longest_running_processor_seconds{controller="shop/tidy",name="shop/tidy"} 0.0"#,
        &format!("podium_build_info{{version=\"{VERSION}\",commit=\"{COMMIT}\"}} 1"),
        r#"podium_log_dropped_lines_total{source="host"} 0"#,
        r#"podium_log_dropped_lines_total{source="plugin"} 0"#,
        "podium_traces_exported_total 4",
        r#"podium_traces_dropped_total{reason="rate"} 3"#,
        r#"podium_traces_dropped_total{reason="export_failed"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn an_idle_plugin_has_at_most_31_series() {
    let status = Arc::new(Status::default());
    let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
    let plugin = status.plugin(&id);
    status.set_load(&id, LoadState::Loaded, true);
    let series = || render(&status).lines().filter(|line| line.contains("\"shop/tidy\"")).count();
    assert!(series() <= 31, "{} series", series());
    plugin.begin(Duration::ZERO, 1, &cart());
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
fn every_label_is_configured_or_listed_whatever_guests_say() {
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
        plugin.begin(Duration::ZERO, 1, &cart());
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
    plugin.writes_withheld.add(1);
    plugin.closings.add(1);
    plugin.used(&Usage { host_calls: 1, ..Usage::default() }, &Limits::default());
    let text = render(&status);
    assert!(!text.contains("forged"), "{text}");
    for (name, value) in labels(&text) {
        let is_known = match &*name {
            "controller" | "name" => ["shop/tidy", "shop/removed", "podium-host"].contains(&&*value),
            "tenant" => value == "shop",
            "field" => value == "label",
            "counterpart" => ["another manager", "shop/tidy"].contains(&&*value),
            "result" => RESULTS.contains(&&*value),
            "reason" => ["rate", "queue_full", "export_failed"].contains(&&*value),
            "source" => ["host", "plugin"].contains(&&*value),
            "limit" => podium_engine::status::Limit::ALL.iter().any(|limit| limit.name() == value),
            "run" => ["last", "peak"].contains(&&*value),
            "version" => value == VERSION,
            "commit" => value == COMMIT,
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
    let plugin = status.plugin(&id);
    let limits = Limits::default();
    let of_limits = || {
        let text = render(&status);
        let lines = text.lines().filter(|line| line.starts_with("podium_run_used{") || line.contains("_run_limit{"));
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
fn requests_to_the_api_server_are_counted_by_code_and_are_few_series() {
    let requests = Arc::new(ApiRequests::new("10.96.0.1:443".to_owned()));
    let took = Duration::from_millis(3);
    requests.record("GET", Some(200), took);
    requests.record("GET", Some(200), took);
    requests.record("POST", None, took);
    let text = render_with(&Arc::default(), requests.clone());
    for line in [
        r#"rest_client_requests_total{code="200",method="GET",host="10.96.0.1:443"} 2"#,
        r#"rest_client_requests_total{code="<error>",method="POST",host="10.96.0.1:443"} 1"#,
        r#"rest_client_request_duration_seconds_bucket{le="0.005",verb="GET",host="10.96.0.1:443"} 2"#,
        r#"rest_client_request_duration_seconds_count{verb="POST",host="10.96.0.1:443"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    for code in 100..1_000 {
        for method in ["DELETE", "GET", "PATCH", "POST", "PUT", "X"] {
            requests.record(method, Some(code), took);
        }
    }
    let text = render_with(&Arc::default(), requests);
    let samples = text.lines().filter_map(|line| line.strip_prefix("rest_client_requests_total{")?.split_once("} "));
    let counts: Vec<u64> = samples.map(|(_, count)| count.parse().unwrap()).collect();
    assert!(counts.len() <= 64 + 5, "{}", counts.len());
    assert_eq!(counts.iter().sum::<u64>(), 3 + 5 * 900);
}

#[tokio::test(start_paused = true)]
async fn runs_in_progress_show_how_long_they_have_taken() {
    let status = Arc::new(Status::default());
    let plugin = status.plugin(&PluginId { namespace: None, name: "tidy".into() });
    let figures = || {
        ["unfinished_work", "longest_running_processor"].map(|name| {
            let name = format!("workqueue_{name}_seconds{{controller=\"tidy\",name=\"tidy\"}}");
            sample(&render(&status), &name)
        })
    };
    for run in [0, 1] {
        assert_eq!(plugin.begin(Duration::ZERO, 1, &cart()), run);
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    assert_eq!(figures(), [6.0, 4.0]);
    plugin.left(0);
    assert_eq!(figures(), [2.0, 2.0]);
}

#[test]
fn processor_time_adds_up_by_plugin_and_tenant() {
    let status = Arc::new(Status::default());
    for (namespace, millis) in [(Some("shop".into()), 1_500), (None, 250)] {
        let plugin = status.plugin(&PluginId { namespace, name: "tidy".into() });
        plugin.charged(Duration::from_millis(millis));
        plugin.charged(Duration::from_nanos(500));
        plugin.charged(Duration::from_nanos(500));
    }
    let text = render(&status);
    for line in [
        r#"podium_run_cpu_seconds_total{controller="shop/tidy",tenant="shop"} 1.500001"#,
        r#"podium_run_cpu_seconds_total{controller="tidy",tenant="cluster/tidy"} 0.250001"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn every_configured_plugin_is_shown_as_ready_or_suspended() {
    let status = Arc::new(Status::default());
    let plugins =
        [("one", LoadState::Loaded, true), ("two", LoadState::Loading, false), ("three", LoadState::Suspended, false)];
    for (name, load, runs) in plugins {
        status.set_load(&PluginId { namespace: Some("shop".into()), name: name.into() }, load, runs);
    }
    let text = render(&status);
    for line in [
        r#"podium_plugin_finalizers_left{controller="shop/removed"} 3"#,
        r#"podium_plugin_ready{controller="shop/one"} 1"#,
        r#"podium_plugin_ready{controller="shop/two"} 0"#,
        r#"podium_plugin_ready{controller="shop/three"} 0"#,
        r#"podium_plugin_suspended{controller="shop/one"} 0"#,
        r#"podium_plugin_suspended{controller="shop/two"} 0"#,
        r#"podium_plugin_suspended{controller="shop/three"} 1"#,
        "podium_plugins_loading 1",
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
        plugin.begin(Duration::ZERO, 1, &cart());
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
fn quantiles_up_to_a_minute_are_exact_to_a_factor_of_three() {
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
