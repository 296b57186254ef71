//! Plugins that fail or write without end, on the real API server: each is slowed and named, and the plugin beside it
//! is not delayed.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use podium_host::app::{App, Options};
use podium_tests::{
    controlplane::{ControlPlane, Mark},
    plugins, sandbox,
    wait::until,
};
use podium_vocabulary::{LimitClass, PluginId, PluginSpec};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    cluster,
    workloads::{HOST, create, host_account, label, namespace, pod, pods},
};

const RING: &str = "fights";
const KEY: &str = "guests.example/x";
const SEEN: &str = "guests.example/seen";
const WITHIN: Duration = Duration::from_secs(60);
/// The time in which the writes of a fight are counted.
const ROUND: Duration = Duration::from_secs(25);
/// The most values that a plugin sends to one field in that time: ten, and one after each wait of 1, 2, 4 and 8 s.
const MOST: usize = 15;

/// A plugin that makes the host calls of a script on each Pod, and is woken by labels.
fn probe(name: &str, script: &str) -> Result<PluginSpec> {
    let mut spec = plugins::guest("probe", name, "  watch: { sections: [labels] }")?;
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    Ok(spec)
}

async fn start(plane: &ControlPlane, client: &Client, plugins: Vec<PluginSpec>) -> Result<App> {
    let kubeconfig = Kubeconfig::read_from(host_account(plane, client).await?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let app = App::start(Options { workers: 4, ..Options::new(podium_api::client(config)?, 1, 0) }).await?;
    for spec in plugins {
        app.load(spec).await?;
    }
    Ok(app)
}

/// Returns the number of patches of Pods that the host has sent.
fn patches(plane: &ControlPlane) -> Result<usize> {
    let writes = plane.audit().writes_of(HOST, Mark::default())?;
    Ok(writes.iter().filter(|write| write.verb == "patch" && write.resource == "pods").count())
}

/// Returns the senders of the other values in the loops of these plugins.
fn counterparts(app: &App, plugins: &[&str]) -> BTreeSet<String> {
    let of = |name: &&str| app.status().plugin(&PluginId { namespace: None, name: (*name).into() }).loops();
    plugins.iter().flat_map(of).map(|((_, by), _)| by).collect()
}

async fn is_reported(client: &Client) -> Result<()> {
    until("an Event", WITHIN, async || {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{RING}/events");
        let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        let events = list["items"].as_array().context("a list without items")?;
        let of_loop = |event: &&Value| event["reason"] == "WriteLoop" && event["note"].to_string().contains(KEY);
        ensure!(events.iter().any(|event| of_loop(&event)), "{events:#?}");
        Ok(())
    })
    .await
}

/// Q4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_always_failing_plugin_runs_ten_times_and_delays_no_neighbour() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, RING).await?;
    pod(&client, RING, "cart").await?;
    let failing = probe("failing", "retry always")?;
    let good = plugins::guest("registrar", "good", "  watch: { sections: [labels] }")?;
    let app = start(&plane, &client, vec![failing, good]).await?;
    let status = app.status().plugin(&PluginId { namespace: None, name: "failing".into() });
    let ends = Instant::now() + Duration::from_secs(10);
    let mut created = 1;
    let mut slowest = Duration::ZERO;
    while Instant::now() < ends {
        let name = format!("neighbour-{created}");
        let began = Instant::now();
        pod(&client, RING, &name).await?;
        created += 1;
        until("the neighbour's label", WITHIN, async || {
            let found = pods(&client, RING, "").await?;
            let labelled = found.iter().filter(|pod| label(pod, SEEN).is_some()).count();
            ensure!(labelled == created, "{labelled} of {created}");
            Ok(())
        })
        .await?;
        slowest = slowest.max(began.elapsed());
        sleep(Duration::from_millis(500)).await;
    }
    let (runs, failures) = (status.runs(), status.failures());
    // Each neighbour's label is an event, which is run at once, beside the ten of a key.
    ensure!(runs <= 12 * created as u64, "{runs} runs on {created} Pods in 10 s: {failures:?}");
    ensure!(slowest < Duration::from_secs(5), "{slowest:?} for the neighbour's write");
    app.shutdown().await;
    Ok(())
}

/// Q5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_that_fight_over_a_label_are_slowed_and_named() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, RING).await?;
    pod(&client, RING, "cart").await?;
    let of = |name: &str| probe(name, &format!("label {KEY} {name}"));
    let app = start(&plane, &client, vec![of("red")?, of("blue")?]).await?;
    sleep(ROUND).await;
    let sent = patches(&plane)?;
    ensure!((11..=2 * MOST).contains(&sent), "{sent} patches in {ROUND:?}");
    let named = counterparts(&app, &["red", "blue"]);
    ensure!(!named.is_empty() && named.iter().all(|by| by == "red" || by == "blue"), "{named:?}");
    is_reported(&client).await?;
    app.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fight_with_a_policy_that_replaces_each_value_is_slowed() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, RING).await?;
    policy(&client).await?;
    pod(&client, RING, "cart").await?;
    let app = start(&plane, &client, vec![probe("mine", &format!("label {KEY} mine"))?]).await?;
    sleep(ROUND).await;
    let sent = patches(&plane)?;
    // Of two Pods: that of the policy's trial has the label too.
    ensure!((11..=2 * MOST).contains(&sent), "{sent} patches in {ROUND:?}");
    let named = counterparts(&app, &["mine"]);
    ensure!(named.iter().eq(["another manager"]), "{named:?}");
    is_reported(&client).await?;
    app.shutdown().await;
    Ok(())
}

/// Creates a policy that replaces the plugin's value in every update, and waits until it is in force.
async fn policy(client: &Client) -> Result<()> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let is_mine = format!(
        "has(object.metadata.labels) && '{KEY}' in object.metadata.labels && object.metadata.labels['{KEY}'] == 'mine'"
    );
    let path = format!("/metadata/labels/{}", KEY.replace('/', "~1"));
    // With one value the API server would store each Pod once, and no change would wake the plugin.
    let was_theirs = format!("oldObject.metadata.?labels[?'{KEY}'].orValue('') == 'theirs'");
    let value = format!("{was_theirs} ? 'others' : 'theirs'");
    let mutation = format!("[JSONPatch{{op: 'replace', path: '{path}', value: {value}}}]");
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"] });
    let spec = json!({
        "matchConstraints": { "resourceRules": [rule] },
        "matchConditions": [{ "name": "mine", "expression": is_mine }],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{ "patchType": "JSONPatch", "jsonPatch": { "expression": mutation } }],
    });
    let metadata = json!({ "name": "theirs.example" });
    let object = json!({ "metadata": metadata, "spec": spec });
    create(client, &format!("{group}/mutatingadmissionpolicies"), object).await?;
    let binding = json!({ "metadata": metadata, "spec": { "policyName": "theirs.example" } });
    create(client, &format!("{group}/mutatingadmissionpolicybindings"), binding).await?;
    pod(client, RING, "trial").await?;
    until("the policy", WITHIN, async || {
        let path = format!("/api/v1/namespaces/{RING}/pods/trial");
        let patch = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        let body = json!({ "metadata": { "labels": { KEY: "mine" } } }).to_string().into_bytes();
        let patched: Value = client.request(patch.body(body)?).await?;
        let value = &patched["metadata"]["labels"][KEY];
        ensure!(value == "theirs" || value == "others", "{value}");
        Ok(())
    })
    .await
}
