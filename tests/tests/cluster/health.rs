//! A plugin that fails is shown as one by its object: condition, column, failures and Events. The host may emit no
//! Events about anything else.

use std::time::Duration;

use anyhow::{Result, ensure};
use podium_tests::{guests, process::Host, wait::until};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::{Kubectl, stderr},
    objects::{HOST, NAMESPACE, apply, condition, config_map, spec, start},
    workloads::pod,
};

const SOON: Duration = Duration::from_secs(60);

/// An Event about an object, as the host might send it.
fn event(kind: &str, name: &str) -> String {
    let api_version = if kind == "Pod" { "v1" } else { "podium.dev/v1alpha1" };
    let regarding = json!({ "apiVersion": api_version, "kind": kind, "namespace": NAMESPACE, "name": "labeller" });
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "namespace": NAMESPACE, "name": name },
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Loaded", "action": "Reconcile",
        "reportingController": "podium.dev/host", "reportingInstance": "podium-host", "regarding": regarding,
    });
    event.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_whose_writes_are_refused_is_unhealthy_and_has_events() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let (options, _) = start(&plane, &client).await?;
    let kubectl = Kubectl::new(&plane);
    kubectl.install(&["crds.yaml", "admission-events.yaml"])?;
    let create = |kind: &str, name: &str| kubectl.run(HOST, &["create", "-f", "-"], event(kind, name).as_bytes());
    until("the policy to be in force", SOON, async || {
        let refused = create("Pod", "of-a-pod")?;
        kubectl.admin(&["-n", NAMESPACE, "delete", "events", "of-a-pod", "--ignore-not-found"])?;
        ensure!(stderr(&refused).contains("only its Events about plugin objects"), "{refused:?}");
        Ok(())
    })
    .await?;
    ensure!(create("ReconcilePlugin", "of-a-plugin")?.status.success());
    // An Event of another client, without a request to read it.
    let others = event("Pod", "of-others");
    ensure!(
        kubectl.run("admin", &["--as-group=system:masters", "create", "-f", "-"], others.as_bytes())?.status.success()
    );
    let refused = kubectl.run(HOST, &["apply", "--server-side", "-f", "-"], others.as_bytes())?;
    ensure!(stderr(&refused).contains("only its Events about plugin objects"), "{refused:?}");

    let sha256 = config_map(&client, guests::component("good")?).await?;
    kubectl.admin(&["-n", NAMESPACE, "delete", "rolebinding", "labeller"])?;
    kubectl.admin(&["-n", NAMESPACE, "create", "role", "reads", "--verb=get", "--resource=configmaps"])?;
    let account = format!("--serviceaccount={NAMESPACE}:labeller");
    kubectl.admin(&["-n", NAMESPACE, "create", "rolebinding", "reads", "--role=reads", &account])?;
    pod(&client, NAMESPACE, "a").await?;
    until("the kind", SOON, async || apply(&client, &spec(&sha256)).await).await?;
    let host = Host::spawn(&options).await?;
    let object = condition(&client, "Healthy", "False", "WritesRefused").await?;
    let failure = &object["status"]["failures"][0];
    ensure!(failure["reason"] == "forbidden" && failure["pod"] == format!("{NAMESPACE}/a"), "{failure}");
    condition(&client, "Ready", "True", "Running").await?;

    let table = kubectl.admin(&["-n", NAMESPACE, "get", "rp"])?;
    ensure!(table.contains("HEALTHY") && table.lines().all(|line| line.len() <= 80), "{table}");
    until("the Events", SOON, async || {
        let described = kubectl.admin(&["-n", NAMESPACE, "describe", "rp", "labeller"])?;
        let events = described.split_once("Events:").map_or("", |(_, events)| events);
        ensure!(["Loaded", "WritesRefused"].iter().all(|reason| events.contains(reason)), "{described}");
        Ok(())
    })
    .await?;
    let events = kubectl.admin(&["-n", NAMESPACE, "get", "events.v1.events.k8s.io", "-o", "json"])?;
    let events: Value = serde_json::from_str(&events)?;
    let warned = events["items"].as_array().into_iter().flatten().any(|event| {
        event["type"] == "Warning" && event["reason"] == "WritesRefused" && event["regarding"]["name"] == "labeller"
    });
    ensure!(warned, "{events}");
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}
