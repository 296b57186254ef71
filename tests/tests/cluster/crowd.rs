//! Tenants with as many plugin objects as the policy permits, each with as many finalizers and references to others as
//! an object may have, that change without a pause: the object of another tenant has a status, the host answers its
//! probes, and its memory grows by a bounded amount.
//!
//! Components that attack are in the suite `hostile`.

use std::{convert::Infallible, io::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use podium_tests::{guests, process::Host, wait::until};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    exclusive,
    kubectl::Kubectl,
    many_objects::{host, memory},
    objects::{NAMESPACE, config_map, spec, start},
    workloads::{create, namespace},
};

/// Objects of a tenant that has many: the default of the policy.
const OBJECTS: u32 = 100;
/// The most of a list in a configuration.
const FINALIZERS: u32 = 256;
const AFTER: u32 = 32;
/// Bytes of the configuration: the specs of a tenant stay below the 4 MiB that are kept of them.
const CONFIG: usize = 20 << 10;
/// Requests of the test at the same time.
const CONCURRENT: usize = 8;
/// The time-out of the liveness probe in the chart.
const PROBE: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(120);
/// The longest time to a status. A debug build beside other programs takes 15 to 20 s, because the API server is slow
/// to send such objects to its watches; a release build takes 3 s.
const LATEST: Duration = Duration::from_secs(50);
/// New objects of the other tenant.
const NEW: usize = 5;
/// Changes of each object.
const CHANGES: usize = 2;
/// The most MiB by which the second half of the changes of a tenant may let memory grow. The heap is still warming up:
/// 10 to 27 were seen. Versions that stay with their objects would be 100, texts of specs only 4.
const GROWTH: f64 = 64.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_does_not_wait_for_the_changes_of_100_objects_of_another() -> Result<()> {
    beside(&[NAMESPACE]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes; see `just test-crowd`"]
async fn a_tenant_does_not_wait_for_the_changes_of_500_objects_of_five_others() -> Result<()> {
    beside(&[NAMESPACE, "crowd-1", "crowd-2", "crowd-3", "crowd-4"]).await
}

async fn beside(crowds: &[&str]) -> Result<()> {
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let (mut options, _) = start(&plane, &client).await?;
    Kubectl::new(&plane).install(&["crds.yaml", "cleanup.yaml", "admission-cleanup.yaml"])?;
    options.arguments.extend(["--cleanup-service-account", "podium/podium-cleanup"].map(str::to_owned));
    let sha256 = config_map(&client, guests::component("good")?).await?;
    for name in crowds.iter().filter(|name| **name != NAMESPACE).chain(&["bank"]) {
        namespace(&client, name).await?;
    }
    until("the kind", SOON, async || create(&client, &path("bank"), object(&"0".repeat(64), 0)).await).await?;
    let host = host(&options).await?;
    let before = waits(&client, "before").await?;

    // In one of the namespaces the component is there, and the plugins are loaded.
    let creating = objects(crowds).map(|(crowd, number)| {
        let client = &client;
        let object = object(&sha256, number);
        async move { create(client, &path(crowd), object).await }
    });
    stream::iter(creating).buffer_unordered(CONCURRENT).try_collect::<()>().await?;
    until("the plugins", SOON, async || {
        let loaded = host.metric("podium_plugin_ready", &["/crowd-"]).await?;
        let get = Request::get(format!("{}/crowd-000", path(NAMESPACE))).body(Vec::new())?;
        let first: Value = client.request(get).await?;
        ensure!(loaded >= f64::from(OBJECTS), "{loaded} of {OBJECTS}: {}", first["status"]["conditions"]);
        Ok(())
    })
    .await?;

    let both = async { tokio::try_join!(changes(&client, &host, crowds), waits(&client, "beside")) };
    let (growth, beside) = tokio::select! {
        done = both => done?,
        failed = probes(&host) => match failed? {},
    };
    writeln!(
        std::io::stderr(),
        "crowd: a status after {before:.1?}, beside them after {beside:.1?}; {growth:.1} MiB more"
    )?;
    ensure!(growth < GROWTH * f64::from(u32::try_from(crowds.len())?), "{growth} MiB more");
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}

fn path(namespace: &str) -> String {
    format!("/apis/podium.dev/v1alpha1/namespaces/{namespace}/reconcileplugins")
}

fn objects<'a>(crowds: &'a [&str]) -> impl Iterator<Item = (&'a str, u32)> {
    crowds.iter().flat_map(|crowd| (0..OBJECTS).map(move |number| (*crowd, number)))
}

/// Returns an object that runs after those with the next numbers, against the order of their names.
fn object(sha256: &str, number: u32) -> Value {
    let mut spec = spec(sha256);
    spec["after"] = (number + 1..=number + AFTER).map(|other| format!("crowd-{other:03}")).collect();
    let finalizer = |of: u32| format!("crowd.example/a-finalizer-{number:03}-{of:03}");
    spec["grants"]["write"]["finalizers"] = (0..FINALIZERS).map(finalizer).collect();
    let metadata = json!({ "name": format!("crowd-{number:03}") });
    json!({ "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin", "metadata": metadata, "spec": spec })
}

/// Changes all objects a number of times. Returns the MiB by which the host's memory grew in the second half.
async fn changes(client: &Client, host: &Host, crowds: &[&str]) -> Result<f64> {
    let mut halfway = 0.0;
    for change in 0..CHANGES {
        if change == CHANGES / 2 {
            halfway = memory(host.id(), "VmRSS:")?;
        }
        let config = json!({ "spec": { "config": { "change": change, "text": "x".repeat(CONFIG) } } }).to_string();
        // One after the other: the API server takes longer for such an object than the host, and many at once delay
        // its watches.
        for (crowd, number) in objects(crowds) {
            let uri = format!("{}/crowd-{number:03}", path(crowd));
            let patch = Request::patch(uri).header(CONTENT_TYPE, "application/merge-patch+json");
            client.request::<Value>(patch.body(config.clone().into_bytes())?).await?;
        }
    }
    Ok(memory(host.id(), "VmRSS:")? - halfway)
}

/// Creates objects of the other tenant, one after the other. Returns the longest time until one had a status.
async fn waits(client: &Client, name: &str) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    for number in 0..NEW {
        let mut object = object(&"0".repeat(64), 0);
        object["metadata"]["name"] = format!("{name}-{number}").into();
        let began = Instant::now();
        create(client, &path("bank"), object).await?;
        until("a status", LATEST, async || {
            let get = Request::get(format!("{}/{name}-{number}", path("bank"))).body(Vec::new())?;
            let object: Value = client.request(get).await?;
            ensure!(object["status"]["conditions"].is_array(), "none");
            Ok(())
        })
        .await?;
        longest = longest.max(began.elapsed());
    }
    Ok(longest)
}

/// Probes the host as the kubelet does, more often. Returns when it does not answer in time.
async fn probes(host: &Host) -> Result<Infallible> {
    loop {
        timeout(PROBE, host.get("/healthz")).await.context("/healthz takes longer than the probe waits")??;
        sleep(Duration::from_millis(200)).await;
    }
}
