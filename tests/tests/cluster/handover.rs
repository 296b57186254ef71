//! A plugin with groups, an input and applied objects, and two replicas that share the namespaces: what changes while
//! no replica acts is right after a SIGKILL of the one that acted, and the status names an input that is not received.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_tests::{helm::Helm, process::Host, runner, wait::until};
use podium_vocabulary::Language;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    exclusive,
    kubectl::Kubectl,
    objects::{NAMESPACE, SOON, apply, condition, start},
    replicas::install,
    workloads::{Shape, deployment},
};

/// A Lease of a replica that is gone has to end, and its objects are watched as another one's.
const TAKEN: Duration = Duration::from_secs(90);
const ACCOUNT: &str = "--serviceaccount=objects:labeller";
/// Keeps a PodDisruptionBudget for each workload, with the number of its Pods and a price.
const SCRIPT: &str = r#"
import { pods, workload, writes } from "podium";

export default ({ pod, deleted, key, config }) => {
  const last = pod ?? deleted;
  const name = last ? workload(last).name : key.name.split("/").pop();
  const budget = { apiVersion: "policy/v1", kind: "PodDisruptionBudget" };
  if (!pod) {
    writes.deleteObject({ ...budget, namespace: "objects", name });
    return;
  }
  const members = [...pods.find({ namespace: "objects", workload: workload(pod) })].length;
  const { prices } = config.inputs;
  const price = prices === undefined ? "unavailable" : (prices?.data.web ?? "none");
  writes.applyObject({
    ...budget, metadata: { namespace: "objects", name },
    spec: { minAvailable: members, selector: { matchLabels: { price } } },
  });
};
"#;

fn spec() -> Value {
    json!({
        "source": { "script": { "language": "javascript", "inline": SCRIPT } },
        "serviceAccountName": "labeller",
        "inputs": [{
            "id": "prices", "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": "prices",
        }],
        "watch": { "sections": ["owners", "status"], "related": { "by": "workload" } },
        "grants": {
            "read": { "pods": { "sections": ["labels", "owners", "status"] } },
            "write": {
                "objects": [{
                    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "resource": "poddisruptionbudgets",
                }],
            },
        },
    })
}

/// The spec of the budget of a workload, without what the API server adds.
fn budget(kubectl: &Kubectl, name: &str) -> Result<(Value, String)> {
    let budget = kubectl.admin(&["-n", NAMESPACE, "get", "poddisruptionbudget", name, "-o", "json"])?;
    let spec = &serde_json::from_str::<Value>(&budget)?["spec"];
    let price = spec["selector"]["matchLabels"]["price"].as_str().unwrap_or_default();
    Ok((spec["minAvailable"].clone(), price.to_owned()))
}

/// Returns the runs of the plugin.
async fn runs(host: &Host) -> Result<f64> {
    host.metric("controller_runtime_reconcile_total", &["labeller"]).await
}

/// Waits until each replica has its share and one runs the plugin and is at rest. Returns its place.
async fn acting(hosts: &[Host; 2]) -> Result<usize> {
    let acting = until("one replica that acts", SOON, async || {
        let mut loaded = Vec::new();
        for host in hosts {
            loaded.push(!host.get("/readyz?verbose").await?.contains("labeller ok: standby"));
            ensure!(host.metric("podium_lease_shards", &[]).await? == 8.0, "shards are handed over");
        }
        ensure!(loaded.iter().filter(|loaded| **loaded).count() == 1, "{loaded:?}");
        loaded.iter().position(|loaded| *loaded).context("none")
    })
    .await?;
    let mut before = 0.0;
    until("the runs of the replica that acts", SOON, async || {
        let last = std::mem::replace(&mut before, runs(&hosts[acting]).await?);
        sleep(Duration::from_secs(3)).await;
        ensure!(before > 0.0 && (before - last).abs() < 0.1, "{last} and {before} runs");
        Ok(acting)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_inputs_and_children_are_right_after_a_replica_is_killed() -> Result<()> {
    let Some(runner) = runner::component(Language::JavaScript)? else { return Ok(()) };
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    let of_namespace = |arguments: &[&str]| kubectl.admin(&[&["-n", NAMESPACE], arguments].concat());
    let (mut options, _) = start(&plane, &client).await?;
    let runners = tempfile::tempdir()?;
    fs::copy(runner, runners.path().join("javascript-1.wasm"))?;
    options.arguments.extend(["--lease", "on", "--active-replicas", "all", "--runners"].map(str::to_owned));
    options.arguments.push(runners.path().to_string_lossy().into_owned());
    for (name, resource, verbs) in [
        ("budgets", "poddisruptionbudgets.policy", "get,list,watch,create,patch,delete"),
        ("prices", "configmaps", "list,watch"),
    ] {
        of_namespace(&["create", "role", name, "--resource", resource, "--verb", verbs])?;
        of_namespace(&["create", "rolebinding", name, "--role", name, ACCOUNT])?;
    }
    install(&helm, &plane, "replicas=2,activeReplicas=all")?;
    of_namespace(&["create", "configmap", "prices", "--from-literal=web=3"])?;
    for name in ["web", "gone"] {
        deployment(&client, NAMESPACE, name, 2, Shape::default()).await?;
    }
    until("the kind", SOON, async || apply(&client, &spec()).await).await?;

    let hosts = [Host::spawn(&options).await?, Host::spawn(&options).await?];
    let expect = async |within: Duration, name: &str, members: u32, price: &str| {
        let is_right = async || {
            let budget = budget(&kubectl, name)?;
            ensure!(budget == (members.into(), price.to_owned()), "{budget:?}");
            Ok(())
        };
        until(&format!("the budget of {name}"), within, is_right).await
    };
    for name in ["web", "gone"] {
        expect(SOON, name, 2, "3").await?;
    }
    condition(&client, "InputsReady", "True", "Received").await?;
    let acting = acting(&hosts).await?;
    let before = runs(&hosts[acting]).await?;

    // A status that changes is no change of the object.
    for second in 0..10 {
        let status = json!({ "status": { "expectedPods": second } }).to_string();
        of_namespace(&["patch", "pdb", "web", "--subresource=status", "--type=merge", "-p", &status])?;
        sleep(Duration::from_secs(1)).await;
    }
    let after = runs(&hosts[acting]).await?;
    ensure!(after - before < 1.0, "{before} and {after} runs");

    let [first, second] = hosts;
    let (killed, other) = if acting == 0 { (first, second) } else { (second, first) };
    killed.kill().await?;
    let edit = json!({ "spec": { "minAvailable": 1 } }).to_string();
    of_namespace(&["patch", "pdb", "web", "--type=merge", "-p", &edit])?;
    of_namespace(&["patch", "configmap", "prices", "--type=merge", "-p", r#"{"data":{"web":"4"}}"#])?;
    of_namespace(&["delete", "deployment", "gone", "--cascade=foreground"])?;
    expect(TAKEN, "web", 2, "4").await.with_context(|| other.log())?;
    until("the end of the budget of a workload that is gone", TAKEN, async || {
        let answer = budget(&kubectl, "gone").err().context("it is there")?.to_string();
        ensure!(answer.contains("NotFound"), "{answer}");
        Ok(())
    })
    .await
    .with_context(|| other.log())?;
    of_namespace(&["patch", "pdb", "web", "--type=merge", "-p", &edit])?;
    expect(SOON, "web", 2, "4").await.with_context(|| other.log())?;
    of_namespace(&["delete", "rolebinding", "prices"])?;
    expect(TAKEN, "web", 2, "unavailable").await.with_context(|| other.log())?;
    let object = condition(&client, "InputsReady", "False", "NotReceived").await?;
    let message = object["status"]["conditions"].to_string();
    let refusal = "prices: system:serviceaccount:objects:labeller may not list ConfigMap objects/prices";
    ensure!(message.contains(refusal), "{message}");
    ensure!(other.terminate().await?.success());
    Ok(())
}
