//! Records of runs, and why a plugin does not run: each situation is prepared on a whole host, and the response names
//! its cause.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
    time::Duration,
};

use anyhow::ensure;
use kube::api::{Patch, PatchParams};
use podium_devcluster::{Cluster, Options, Refusal, Requests};
use podium_host::{
    admin::{self, ListenAddress},
    app::{App, Operator},
};
use podium_tests::{
    embedded, plugins,
    process::{podium_binary, podium_command},
    sandbox,
    wait::until,
    wire::Wire,
};
use podium_vocabulary::{LimitClass, PluginId, PluginSpec, RequestRates};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
const CARTS: &str = "  watch: { selector: { matchLabels: { app: cart } }, sections: [labels] }";
const KEY: &str = "guests.example/x";

/// A plugin of the cluster that makes the host calls of a script.
fn probe(name: &str, script: &str, more: &str) -> PluginSpec {
    let mut spec = plugins::guest("probe", name, more).unwrap();
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    spec
}

fn cluster() -> Cluster {
    Cluster::start(Options { simulate: false, ..Options::default() }).unwrap()
}

/// A host with plugins on a cluster with the Pod `cart-0`.
struct Bench {
    cluster: Cluster,
    app: App,
}

impl Bench {
    async fn new(plugins: Vec<PluginSpec>) -> Self {
        let cluster = cluster();
        embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
        let app = embedded::host(&cluster, Wire::new(&cluster).client(), plugins).await.unwrap();
        let bench = Self { cluster, app };
        bench.rest().await;
        bench
    }

    async fn rest(&self) {
        embedded::at_rest(&self.cluster, &self.app).await.unwrap();
    }

    /// Merges a patch into the metadata of `cart-0`, and waits until the host is at rest.
    async fn patch(&self, metadata: Value) {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        embedded::pods(&self.cluster, Some("default")).patch("cart-0", &PatchParams::default(), &patch).await.unwrap();
        self.rest().await;
    }

    /// Returns the response about a Pod and one plugin.
    fn on_pod(&self, pod: &str, plugin: &str) -> Value {
        plugin_on_pod(&self.app, pod, plugin)
    }

    /// Returns the reasons that are named for a Pod and a plugin.
    fn reasons(&self, pod: &str, plugin: &str) -> Vec<String> {
        reasons(&self.app, pod, plugin)
    }

    /// Returns causes and result of the runs on `cart-0`, the earliest first.
    fn runs(&self, plugin: &str) -> Vec<(String, String)> {
        let of = self.on_pod("cart-0", plugin);
        let runs = of["runs"].as_array().unwrap().iter().rev();
        let causes = |run: &Value| run["causes"].as_array().unwrap().iter().map(shown).collect::<Vec<_>>().join(",");
        runs.map(|run| (causes(run), shown(&run["result"]))).collect()
    }

    /// Waits until this reason is named for `cart-0`, and returns it.
    async fn names(&self, plugin: &str, reason: &str) -> Value {
        until(reason, MINUTE, async || {
            let reasons = self.on_pod("cart-0", plugin)["reasons"].clone();
            let found = reasons.as_array().unwrap().iter().find(|of| of["reason"] == reason).cloned();
            ensure!(found.is_some(), "{reasons:#}");
            Ok(found.unwrap_or_default())
        })
        .await
        .unwrap()
    }
}

fn plugin_on_pod(app: &App, pod: &str, plugin: &str) -> Value {
    let answer = app.pod_runs("default", pod, Some(plugin)).unwrap();
    serde_json::to_value(answer).unwrap()["plugins"]["items"][0].clone()
}

fn reasons(app: &App, pod: &str, plugin: &str) -> Vec<String> {
    plugin_on_pod(app, pod, plugin)["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| shown(&reason["reason"]))
        .collect()
}

fn shown(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(cause, result)| ((*cause).to_owned(), (*result).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_record_names_causes_writes_their_results_and_whose_write_it_read() {
    let bench = Bench::new(vec![probe("mark", &format!("label {KEY} 1"), CARTS)]).await;
    bench.patch(json!({"labels": {"team": "web"}})).await;
    assert_eq!(bench.runs("mark"), pairs(&[("load", "settled"), ("labels", "settled"), ("labels", "settled")]));
    let of = bench.on_pod("cart-0", "mark");
    let runs = of["runs"].as_array().unwrap();
    assert_eq!(runs[0]["writtenBy"], Value::Null, "the Pod was changed by a client");
    assert_eq!(runs[1]["writtenBy"], "mark", "its own label");
    let writes =
        |result| json!([{"write": format!("set label {KEY}=1 on default/cart-0"), "result": result, "message": null}]);
    assert_eq!((&runs[2]["writes"], &runs[0]["writes"]), (&writes("applied"), &writes("unchanged")));
    let keys: Vec<_> = runs[0].as_object().unwrap().keys().map(String::as_str).collect();
    let documented = [
        "attempt",
        "causes",
        "cpuMicros",
        "deleted",
        "fuel",
        "group",
        "hostCalls",
        "message",
        "millisAgo",
        "number",
        "plugin",
        "pod",
        "requeueAfterMillis",
        "result",
        "tookMicros",
        "uid",
        "waitedMicros",
        "writes",
        "writesUnlisted",
        "writtenBy",
    ];
    assert_eq!(keys.len(), documented.len());
    assert!(documented.iter().all(|key| keys.contains(key)), "{keys:?}");
    assert!(runs[0]["fuel"].as_u64().unwrap() > 0 && runs[0]["hostCalls"] == 2, "{:#}", runs[0]);
    let plugin = serde_json::to_value(bench.app.plugin_runs("mark").unwrap()).unwrap();
    assert_eq!((&plugin["state"], plugin["runs"].as_array().unwrap().len()), (&json!("loaded"), 3));
    assert!(bench.app.plugin_runs("other").is_none());
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_of_another_plugin_is_named_when_one_plugin_is_asked_about() {
    let plugins = vec![probe("mark", &format!("label {KEY} 1"), CARTS), probe("reads", "subject", CARTS)];
    let bench = Bench::new(plugins).await;
    assert_eq!(bench.on_pod("cart-0", "reads")["runs"][0]["writtenBy"], "mark");
    let plugin = serde_json::to_value(bench.app.plugin_runs("reads").unwrap()).unwrap();
    assert_eq!(plugin["runs"][0]["writtenBy"], "mark");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn added_and_deleted_pods_are_causes() {
    let bench = Bench::new(vec![probe("watch", "subject", CARTS)]).await;
    embedded::create_pod(&bench.cluster, "cart-1", "cart").unwrap();
    bench.rest().await;
    embedded::delete_pod(&bench.cluster, "cart-1").await.unwrap();
    bench.rest().await;
    let of = bench.on_pod("cart-1", "watch");
    let runs = of["runs"].as_array().unwrap();
    let causes: Vec<_> = runs.iter().map(|run| (run["causes"].clone(), run["deleted"].clone())).collect();
    assert_eq!(causes, [(json!(["deleted"]), json!(true)), (json!(["added"]), json!(false))]);
    assert_eq!(bench.reasons("cart-1", "watch"), ["PodUnknown"]);
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_its_back_off_and_names_the_first_cause() {
    let bench = Bench::new(vec![probe("fails", "retry later", CARTS)]).await;
    let reason = bench.names("fails", "BackOff").await;
    assert!(reason["waitMillis"].as_u64().unwrap() <= 300_000, "{reason}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let runs = bench.runs("fails");
    assert_eq!(runs[..2], pairs(&[("load", "retry"), ("load,retry", "retry")]));
    assert_eq!(bench.on_pod("cart-0", "fails")["runs"][0]["message"], "later");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn requeues_and_resyncs_are_causes() {
    let later = probe("later", "requeue 60000", CARTS);
    let watch = "  watch: { selector: { matchLabels: { app: cart } }, sections: [labels], resyncSeconds: 60 }";
    let bench = Bench::new(vec![later, probe("resync", "subject", watch)]).await;
    let reason = bench.names("later", "RequeueAfter").await;
    assert!((50_000..=60_000).contains(&reason["waitMillis"].as_u64().unwrap()), "{reason}");
    assert_eq!(bench.reasons("cart-0", "resync"), ["Settled"]);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(bench.runs("later"), pairs(&[("load", "requeueAfter"), ("requeue", "requeueAfter")]));
    let runs = bench.runs("resync");
    assert_eq!((&runs[0].0[..], &runs[1].0[..]), ("load", "resync"));
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_unwatched_section_and_a_selector_are_named() {
    let bench = Bench::new(vec![probe("labels", "subject", CARTS)]).await;
    assert_eq!(bench.reasons("cart-0", "labels"), ["Settled"]);
    bench.patch(json!({"annotations": {"note": "1"}})).await;
    let reason = bench.names("labels", "SectionNotWatched").await;
    assert!(shown(&reason["message"]).ends_with("the plugin watches: labels, lifecycle"), "{reason}");
    assert_eq!(bench.runs("labels").len(), 1);
    embedded::create_pod(&bench.cluster, "till-0", "till").unwrap();
    bench.rest().await;
    assert_eq!(bench.reasons("till-0", "labels"), ["SelectorDoesNotMatch"]);
    assert_eq!(bench.reasons("absent", "labels"), ["PodUnknown"]);
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_of_another_namespace_and_one_that_is_not_ready_are_named() {
    let mut other = probe("other", "subject", CARTS);
    other.id = PluginId { namespace: Some("shop".into()), name: "other".into() };
    let bench = Bench::new(vec![other]).await;
    assert_eq!(bench.reasons("cart-0", "shop/other"), ["OtherNamespace"]);
    let all = bench.app.pod_runs("default", "cart-0", None).unwrap();
    assert_eq!(all.plugins.total, 0, "it does not concern the Pod");
    let suspended = PluginSpec { suspend: true, ..probe("suspended", "subject", CARTS) };
    bench.app.load(suspended).await.unwrap();
    assert_eq!(bench.reasons("cart-0", "suspended"), ["Suspended"]);
    let mut refused = probe("refused", "subject", CARTS);
    refused.grants = podium_vocabulary::Grants::default();
    bench.app.load(refused).await.unwrap_err();
    assert_eq!(bench.reasons("cart-0", "refused"), ["NotReady"]);
    bench.app.expect(&PluginId { namespace: None, name: "next".into() });
    assert_eq!(bench.reasons("cart-0", "next"), ["Loading"]);
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_waits_for_another_one_names_it() {
    let cluster = cluster();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    // Live reads of the first plugin are never answered.
    let wire = Wire::with(&cluster, |sent| {
        let is_live = !sent.is_write() && sent.uri.contains("/pods/cart-0");
        Box::pin(async move {
            if is_live {
                std::future::pending().await
            }
        })
    });
    let mut first = probe("first", &"live default cart-0\n".repeat(20), CARTS);
    first.limits.wall = 2 * MINUTE;
    let second = PluginSpec { after: vec!["first".to_owned()], ..probe("second", "subject", CARTS) };
    let app = embedded::host(&cluster, wire.client(), vec![second, first]).await.unwrap();
    let bench = Bench { cluster, app };
    bench.names("first", "Running").await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "web"}}}));
    let pods = embedded::pods(&bench.cluster, Some("default"));
    pods.patch("cart-0", &PatchParams::default(), &patch).await.unwrap();
    let reason = bench.names("second", "Order").await;
    assert_eq!(reason["message"], "waits for the run of first on this Pod (labels)");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_another_one_stops_and_one_that_gave_up_are_named() {
    let next = PluginSpec { after: vec!["guard".to_owned()], ..probe("next", "subject", CARTS) };
    let plugins = vec![probe("guard", "stop", CARTS), probe("terminal", "terminal never", CARTS), next];
    let bench = Bench::new(plugins).await;
    bench.patch(json!({"labels": {"team": "web"}})).await;
    assert_eq!(bench.reasons("cart-0", "next"), ["Stopped"]);
    assert_eq!(bench.runs("next"), pairs(&[("load", "settled")]), "a load runs each plugin");
    assert_eq!(bench.reasons("cart-0", "guard"), ["Settled"]);
    assert_eq!(bench.reasons("cart-0", "terminal"), ["Failed"]);
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_writes_and_a_missing_right_are_named() {
    let flip = probe("flip", &format!("label {KEY} 1\ncommit\nlabel {KEY} 2"), CARTS);
    let account = format!("{CARTS}\n  serviceAccountName: registrar\n  serviceAccountNamespace: default");
    let refused = probe("refused", "label guests.example/y 1", &account);
    let cluster = cluster();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let app = embedded::host(&cluster, Wire::new(&cluster).client(), vec![flip, refused]).await.unwrap();
    let bench = Bench { cluster, app };
    let reason = bench.names("flip", "WriteLoop").await;
    assert!(reason["waitMillis"].as_u64().unwrap() <= 60_000, "{reason}");
    let reason = bench.names("refused", "Forbidden").await;
    assert!(shown(&reason["message"]).contains("to patch pods"), "{reason}");
    let of = bench.on_pod("cart-0", "refused");
    let mut results = Vec::new();
    for run in of["runs"].as_array().unwrap() {
        results.push((shown(&run["result"]), shown(&run["writes"][0]["result"])));
    }
    assert!(results.iter().all(|(result, write)| result == "unsettled" && write == "forbidden"), "{results:?}");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_named() {
    let bench = Bench::new(vec![probe("mark", &format!("label {KEY} 1"), CARTS)]).await;
    let busy = Refusal::TooManyRequests { retry_after_seconds: 30 };
    // Not the test's own patch, which changes the label back.
    let patch = Patch::Merge(json!({"metadata": {"labels": {KEY: "2"}}}));
    let pods = embedded::pods(&bench.cluster, Some("default"));
    pods.patch("cart-0", &PatchParams::default(), &patch).await.unwrap();
    bench.cluster.faults().refuse(Requests::Writes, busy, 1);
    let reason = bench.names("mark", "RetryAfter").await;
    assert!(reason["waitMillis"].as_u64().unwrap() <= 30_000, "{reason}");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn used_up_requests_per_second_are_named() {
    let mut flood = probe("flood", &format!("label {KEY} 1\ncommit\nunlabel {KEY}\nrequeue 100"), CARTS);
    flood.limits.requests = RequestRates { writes: 1, live_reads: 1, events: 1 };
    let cluster = cluster();
    (0..5).for_each(|at| _ = embedded::create_pod(&cluster, &format!("cart-{at}"), "cart").unwrap());
    let app = embedded::host(&cluster, Wire::new(&cluster).client(), vec![flood]).await.unwrap();
    let bench = Bench { cluster, app };
    let reason = bench.names("flood", "RequestsPerSecond").await;
    assert_eq!(reason["message"], "the requests per second of flood or its tenant are used up");
    bench.app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_does_not_act_says_so() {
    let cluster = cluster();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let mut apps = Vec::new();
    for holder in ["one", "two"] {
        let wire = Wire::new(&cluster);
        let lease = embedded::lease(wire.client(), "podium", holder);
        let options = embedded::options(&cluster, wire.client());
        let app = App::start_simulated(podium_host::app::Options { lease: Some(lease), ..options }).await.unwrap();
        app.load(probe("mark", "subject", CARTS)).await.unwrap();
        app.started();
        tokio::time::sleep(MINUTE).await;
        apps.push(app);
    }
    assert_eq!(reasons(&apps[0], "cart-0", "mark"), ["Settled"]);
    assert_eq!(reasons(&apps[1], "cart-0", "mark"), ["Standby"]);
    for app in apps {
        app.shutdown().await;
    }
}

/// Runs `podium` with these arguments. Returns its exit code and what it printed.
async fn podium(arguments: Vec<String>) -> (Option<i32>, String) {
    let run = || Command::new(podium_binary().unwrap()).args(arguments).env_remove("PODIUM_TOKEN").output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&printed).into_owned())
}

#[tokio::test]
async fn the_commands_runs_and_why_show_what_the_host_answers() {
    let cluster = cluster();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let metrics = admin::bind(ListenAddress::One(([127, 0, 0, 1], 0).into())).await.unwrap().unwrap();
    let server = format!("http://{}", metrics.address());
    let operator = Operator { metrics: Some(metrics), ..Operator::default() };
    let options = embedded::options(&cluster, Wire::new(&cluster).client());
    let app = App::start_simulated(podium_host::app::Options { operator, ..options }).await.unwrap();
    app.load(probe("mark", &format!("label {KEY} 1"), CARTS)).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    let ask = async |arguments: &str| {
        let arguments = arguments.split(' ').map(str::to_owned);
        podium(arguments.chain(["--server".to_owned(), server.clone()]).collect()).await
    };
    let run = format!("ago: labels by mark -> set label {KEY}=1 (unchanged)  settled  ");
    let (code, why) = ask("why -n default cart-0").await;
    assert_eq!(code, Some(0), "{why}");
    for part in ["default/cart-0 at revision ", "\nmark  loaded\n  Settled: nothing has changed", &run] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let (code, top) = ask("top --once --interval 1").await;
    assert_eq!(code, Some(0), "{top}");
    assert!(
        top.starts_with("1 Pods, 1 plugins\nPLUGIN  STATE   RUNS/S") && top.contains("\nmark    loaded  0.0"),
        "{top}"
    );
    let (code, top) = ask("top --interval 1 --output json").await;
    let top: Value = serde_json::from_str(&top).unwrap();
    assert_eq!((code, &top["plugins"][0]["plugin"], &top["pods"]), (Some(0), &json!("mark"), &json!(1)));
    let (code, runs) = ask("runs --pod default/cart-0").await;
    let row: Vec<_> = runs.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!((code, &row[..2]), (Some(0), &["mark", "default/cart-0"][..]), "{runs}");
    let (code, runs) = ask("runs --plugin mark --output json").await;
    let runs: Value = serde_json::from_str(&runs).unwrap();
    assert_eq!((code, &runs["runs"][0]["causes"]), (Some(0), &json!(["labels"])));
    let (code, error) = ask("runs --plugin shop/none").await;
    assert_eq!(code, Some(1));
    assert!(error.contains("no plugin of this name is configured"), "{error}");
    assert_eq!(ask("runs --pod cart-0").await.0, Some(2));
    app.shutdown().await;
}

/// Starts a host whose Lease is in the same cluster, with its own port of metrics.
async fn replica(cluster: &Cluster, holder: &str) -> (App, String) {
    let metrics = admin::bind(ListenAddress::One(([127, 0, 0, 1], 0).into())).await.unwrap().unwrap();
    let address = metrics.address().to_string();
    let wire = Wire::new(cluster);
    let lease = Some(embedded::lease(wire.client(), "podium", holder));
    let operator = Operator { metrics: Some(metrics), ..Operator::default() };
    let options = embedded::options(cluster, wire.client());
    let app = App::start_simulated(podium_host::app::Options { operator, lease, ..options }).await.unwrap();
    app.load(probe("mark", &format!("label {KEY} 1"), CARTS)).await.unwrap();
    app.started();
    (app, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_ask_the_replica_that_runs_the_plugin() {
    let cluster = cluster();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let (first, holder) = replica(&cluster, "podium-host-a_1").await;
    until("runs of the plugin", Duration::from_secs(60), async || {
        let runs = first.plugin_runs("mark").map_or(0, |of| of.runs.len());
        ensure!(runs > 0);
        Ok(())
    })
    .await
    .unwrap();
    let (second, standby) = replica(&cluster, "podium-host-b_2").await;
    let url = format!("http://{standby}");
    let folder = tempfile::tempdir().unwrap();
    let kubectl = |says: &str| {
        let file = folder.path().join("kubectl");
        fs::write(&file, format!("#!/bin/sh\necho \"$@\" > {:?}\n{says}\n", folder.path().join("asked"))).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    };
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let forwards = |address: &str| format!("echo 'Forwarding from 127.0.0.1:{} -> 8080'\nexec sleep 60", port(address));
    let ask = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::from(podium_command().unwrap());
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        command.args(arguments).args(["--server", &url]).env("PATH", path).env_remove("PODIUM_TOKEN");
        let output = command.kill_on_drop(true).output().await.unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&printed).into_owned())
    };

    kubectl("echo 'error: pods \"podium-host-a\" not found' >&2; exit 1");
    let runs = ["runs", "--plugin", "mark"];
    until("the standby to know the holder", Duration::from_secs(20), async || {
        let (code, said) = ask(&runs).await;
        ensure!(code == Some(1), "{said}");
        for part in [
            "the plugins run in Pod podium/podium-host-a, and http://127.0.0.1:",
            " is podium-host-b_2: kubectl port-forward: error: pods \"podium-host-a\" not found. ",
            "kubectl -n podium port-forward pod/podium-host-a 8081:metrics &",
            "with --server http://localhost:8081",
        ] {
            ensure!(said.contains(part), "{part}: {said}");
        }
        Ok(())
    })
    .await
    .unwrap();
    let (code, top) = ask(&["top", "--once", "--interval", "1"]).await;
    assert!(code == Some(0) && top.contains("not counted: the plugins run in Pod podium/podium-host-a"), "{top}");

    let (code, top) = ask(&["top", "--output", "json", "--interval", "1"]).await;
    assert!(code == Some(0) && top.contains("\"notCounted\": [\n    \"podium-host-a_1\"\n  ]"), "{top}");

    // A forwarded port of a third process is not believed.
    kubectl(&forwards(&standby));
    let (code, said) = ask(&["profile", "--plugin", "mark", "--seconds", "1"]).await;
    assert!(code == Some(1) && said.contains("the forwarded port is not that of the holder"), "{said}");

    let run = format!("labels by mark -> set label {KEY}=1 (unchanged)  settled");
    let check = async |more: &[&str]| {
        let (code, runs) = ask(&[&runs[..], more].concat()).await;
        assert!(code == Some(0) && runs.contains("default/cart-0"), "{runs}");
        for plugin in [&[][..], &["--plugin", "mark"]] {
            let (code, why) = ask(&[&["why", "-n", "default", "cart-0"], plugin, more].concat()).await;
            assert!(code == Some(0) && why.contains("\nmark  loaded\n") && why.contains(&run), "{why}");
        }
        let (code, top) = ask(&[&["top", "--once", "--interval", "1"], more].concat()).await;
        assert!(code == Some(0) && top.contains("\nmark    loaded  0.0"), "{top}");
    };
    kubectl(&forwards(&holder));
    check(&[]).await;
    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    assert_eq!(asked, "--namespace podium port-forward --address 127.0.0.1 pod/podium-host-a :metrics\n");
    kubectl("exit 1");
    check(&["--replica", &format!("http://{holder}")]).await;
    for app in [second, first] {
        app.shutdown().await;
    }
}
