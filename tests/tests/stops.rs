//! `podium-host` as a process that is stopped by SIGSTOP and continued by SIGCONT, in the middle of runs: no run fails
//! or seems to have taken so long, the host becomes ready again, and events of the meantime are handled. Against the
//! embedded cluster, in real time.
//!
//! A stop is longer than the 100 ms without a tick of the epoch after which no run is started. The long one is longer
//! than the host's deadlines for requests and for a silent watch, and than the wall limit of the plugin: 7 s, or those
//! of `PODIUM_STOP_SECONDS`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{env, fs, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_devcluster::{Cluster, Options};
use podium_tests::{
    embedded, plugins,
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::json;
use tokio::time::sleep;

const WITHIN: Duration = Duration::from_secs(60);
/// Pods that are read again and again, so that each stop is in the middle of runs.
const PODS: usize = 8;

/// Returns a plugin that searches, reads live and writes for each of its Pods, and again after a millisecond.
fn busy() -> String {
    let script = "count default\nlive default asked-0\nlabel guests.example/at 1\ncommit\ncount default\nrequeue 1";
    let more = format!(
        "  watch: {{ selector: {{ matchLabels: {{ app: asked }} }} }}\n  \
           limits: {{ class: interpreter, cpuMillis: 1000, wallMillis: 5000 }}\n  \
           config: {{ script: {} }}",
        json!(script)
    );
    let yaml = plugins::guest_yaml("probe", "busy", &more).unwrap();
    // The probe imports all functions.
    yaml.replace("sections: [labels]", "sections: [labels], live: true").replace(
        "annotations: [guests.example/*] }",
        "annotations: [guests.example/*], finalizers: [guests.example/*], conditions: [guests.example/*], events: \
        true, delete: true, evict: true, objects: [{ apiVersion: v1, kind: ConfigMap, resource: configmaps }] }",
    )
}

async fn runs(host: &Host) -> Result<f64> {
    host.metric("controller_runtime_reconcile_total", &["controller=\"busy\""]).await
}

/// Waits until the host is ready, and has begun and ended more runs than it can have had under way.
async fn at_work(host: &Host) -> Result<()> {
    until("the host to be ready", WITHIN, async || host.get("/readyz").await.map(drop)).await?;
    let before = runs(host).await?;
    until("runs", WITHIN, async || {
        let more = runs(host).await? - before;
        ensure!(more > 2.0 * PODS as f64, "{more} runs");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_host_fails_no_run_and_handles_missed_events() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("kubeconfig"), server.kubeconfig()).unwrap();
    for index in 0..PODS {
        embedded::create_pod(&cluster, &format!("asked-{index}"), "asked").unwrap();
    }
    fs::write(path("busy.yaml"), busy()).unwrap();
    let selector = "  watch: { selector: { matchLabels: { app: cart } } }";
    fs::write(path("registrar.yaml"), plugins::guest_yaml("registrar", "registrar", selector).unwrap()).unwrap();
    let options = HostOptions {
        kubeconfig: path("kubeconfig"),
        plugins: vec![path("busy.yaml"), path("registrar.yaml")],
        arguments: ["--strict", "--log-level", "info,podium::plugin=warn"].map(str::to_owned).to_vec(),
    };
    let host = Host::spawn(&options).await.unwrap();
    at_work(&host).await.unwrap();
    let long = env::var("PODIUM_STOP_SECONDS").map_or(7, |seconds| seconds.parse().unwrap());
    let stops = [Duration::from_millis(300); 10].into_iter().chain([Duration::from_secs(long)]);
    for (number, long) in stops.enumerate() {
        host.stop().await.unwrap();
        let cart = format!("cart-{number}");
        embedded::create_pod(&cluster, &cart, "cart").unwrap();
        // How long the process is stopped is the subject of the test.
        sleep(long).await;
        host.go_on().unwrap();
        until("the label", WITHIN, async || {
            let label = embedded::label(&cluster, &cart, "guests.example/seen").await?;
            label.map(drop).context("it has none")
        })
        .await
        .unwrap();
        at_work(&host).await.unwrap();
        assert_eq!(host.metric("podium_run_failures_total", &[]).await.unwrap(), 0.0, "after {number}: {}", host.log());
    }
    let wall = ["limit=\"wall\"", "run=\"peak\""];
    let peak = host.metric("podium_run_used", &[&["controller=\"busy\""][..], &wall].concat()).await.unwrap();
    assert!(peak < 7.0, "a run took {peak} s");
    host.get("/healthz").await.unwrap();
    assert!(!host.log().contains("the epoch does not advance"), "{}", host.log());
    assert!(host.terminate().await.unwrap().success());
}
