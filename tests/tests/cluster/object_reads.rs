//! Reads and replicas of objects on the real control plane, with the rights that `podium inspect` prints and no others.

use std::time::Duration;

use anyhow::{Result, ensure};
use podium_tests::{process::Host, runner, wait::until};
use podium_vocabulary::Language;
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::Kubectl,
    printed_rights,
    workloads::{Shape, all, deployment, label, namespace, pods},
};

const SHOP: &str = "shop";
const READY: &str = "example.com/ready";
const WITHIN: Duration = Duration::from_secs(120);
const SCRIPT: &str = r#"
import { objects, writes } from "podium";
export default ({ pod }) => {
  if (!pod) return;
  const { namespace } = pod.metadata;
  const kind = { apiVersion: "apps/v1", kind: "Deployment", namespace };
  const answer = (name) => {
    try {
      return objects.get({ ...kind, name });
    } catch ({ code }) {
      return { code };
    }
  };
  const web = answer("web");
  const absent = answer("absent");
  // The right may end between the two reads.
  const code = web?.code ?? absent?.code;
  const seen = code ?? `${web.status.replicas ?? 0}-${absent ?? "none"}-${web.metadata.managedFields}`;
  writes.setLabel(pod, "example.com/ready", seen);
  if (!code) objects.scale({ ...kind, name: "workers" }, web.spec.paused ? 0 : 2);
  return { afterSeconds: 1 };
};
"#;

fn plugin() -> Value {
    json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": "reader", "namespace": SHOP },
        "spec": {
            "source": { "script": { "language": "javascript", "inline": SCRIPT } },
            "serviceAccountName": "podium-plugin-reader",
            "watch": { "selector": { "matchLabels": { "app": "web" } } },
            "grants": {
                "read": { "objects": [{ "apiVersion": "apps/v1", "kind": "Deployment", "resource": "deployments" }] },
                "write": {
                    "labels": [READY],
                    "scale": [{ "apiVersion": "apps/v1", "kind": "Deployment", "resource": "deployments" }],
                },
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_read_and_another_is_scaled_with_printed_rights() -> Result<()> {
    let Some(runner) = runner::component(Language::JavaScript)? else { return Ok(()) };
    let Some((plane, client, _turn)) = cluster(1).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    namespace(&client, SHOP).await?;
    let (options, _directory) = printed_rights::grant(&plane, &runner, &plugin())?;
    deployment(&client, SHOP, "web", 2, Shape::default()).await?;
    deployment(&client, SHOP, "workers", 1, Shape::default()).await?;
    let host = Host::spawn(&options).await?;
    let seen = |count: usize, seen: &'static str| {
        let client = client.clone();
        async move || all(&pods(&client, SHOP, "app=web").await?, count, seen, |pod| label(pod, READY) == Some(seen))
    };
    until("the status of two replicas", WITHIN, seen(2, "2-none-undefined")).await?;
    kubectl.admin(&["-n", SHOP, "scale", "deployment/web", "--replicas=3"])?;
    until("the status of three replicas", WITHIN, seen(3, "3-none-undefined")).await?;
    // Scaled from 1 to 2, to none while the other Deployment is paused, and back.
    let workers = |count: usize| {
        let client = client.clone();
        async move || all(&pods(&client, SHOP, "app=workers").await?, count, "workers", |_| true)
    };
    until("two workers", WITHIN, workers(2)).await?;
    kubectl.admin(&["-n", SHOP, "rollout", "pause", "deployment/web"])?;
    until("no workers", WITHIN, workers(0)).await?;
    kubectl.admin(&["-n", SHOP, "rollout", "resume", "deployment/web"])?;
    until("two workers again", WITHIN, workers(2)).await?;
    // The rule after that of Pods.
    let without = r#"[{"op": "remove", "path": "/rules/1"}]"#;
    kubectl.admin(&["-n", SHOP, "patch", "role", "podium-plugin-reader", "--type=json", "-p", without])?;
    until("the end of the right", WITHIN, seen(3, "unavailable")).await?;
    ensure!(host.terminate().await?.success());
    Ok(())
}

/// Labels Pods with the rack of their Node.
const RACKS: &str = r#"
import { objects, writes } from "podium";
export default ({ pod }) => {
  if (!pod?.spec.nodeName) return;
  const node = objects.get({ apiVersion: "v1", kind: "Node", name: pod.spec.nodeName });
  writes.setLabel(pod, "example.com/ready", node.metadata.labels["example.com/rack"]);
};
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_plugin_reads_the_node_of_a_pod() -> Result<()> {
    let Some(runner) = runner::component(Language::JavaScript)? else { return Ok(()) };
    let Some((plane, client, _turn)) = cluster(1).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    namespace(&client, SHOP).await?;
    let plugin = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ClusterReconcilePlugin", "metadata": { "name": "racks" },
        "spec": {
            "source": { "script": { "language": "javascript", "inline": RACKS } },
            "serviceAccountName": "podium-cluster-plugin-racks", "serviceAccountNamespace": SHOP,
            "watch": { "selector": { "matchLabels": { "app": "web" } }, "sections": ["spec"] },
            "grants": {
                "read": {
                    "pods": { "sections": ["spec"] },
                    "objects": [{ "apiVersion": "v1", "kind": "Node", "resource": "nodes" }],
                },
                "write": { "labels": [READY] },
            },
        },
    });
    let (options, _directory) = printed_rights::grant(&plane, &runner, &plugin)?;
    kubectl.admin(&["label", "nodes", "--all", "example.com/rack=r1"])?;
    deployment(&client, SHOP, "web", 2, Shape::default()).await?;
    let host = Host::spawn(&options).await?;
    until("the racks", WITHIN, async || {
        all(&pods(&client, SHOP, "app=web").await?, 2, "r1", |pod| label(pod, READY) == Some("r1"))
    })
    .await?;
    ensure!(host.terminate().await?.success());
    Ok(())
}
