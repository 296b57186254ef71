//! A plugin that runs for groups of Pods, on the real control plane: a rollout is no end of a workload, and each end is
//! delivered, also while the host is killed.

use std::{collections::BTreeMap, env, fs, ops::Range, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use podium_tests::{
    controlplane::{ControlPlane, Options},
    process::{Host, HostOptions},
    runner,
    wait::until,
};
use podium_vocabulary::Language;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    exclusive,
    kubectl::Kubectl,
    workloads::{Shape, deployment, host_account, namespace, pods},
};

const SHOP: &str = "shop";

/// Keeps a ConfigMap for each workload, and deletes it when the last Pod is gone: then the request has the last state,
/// or after a restart only the name of the group.
const SCRIPT: &str = r#"
import { pods, workload, writes } from "podium";

export default function reconcile({ pod, deleted, key }) {
  const last = pod ?? deleted;
  const name = last ? workload(last).name : key.name.split("/").pop();
  const object = { apiVersion: "v1", kind: "ConfigMap", namespace: "shop", name: `of-${name}` };
  if (!pod) {
    writes.deleteObject(object);
    return;
  }
  let members = 0;
  for (const _ of pods.find({ namespace: "shop", workload: workload(pod) })) {
    members += 1;
  }
  writes.applyObject({
    apiVersion: "v1", kind: "ConfigMap", metadata: { namespace: "shop", name: `of-${name}` },
    data: { members: String(members) },
  });
}
"#;

fn plugin() -> String {
    json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": "members", "namespace": SHOP },
        "spec": {
            "source": { "script": { "language": "javascript", "inline": SCRIPT } },
            "watch": { "sections": ["owners", "status"], "related": { "by": "workload" } },
            "grants": {
                "read": { "pods": { "sections": ["labels", "owners", "status"] } },
                "write": { "objects": [{ "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps" }] },
            },
        },
    })
    .to_string()
}

/// Returns the uids of the ConfigMaps, by the workload, with the number of its Pods.
async fn config_maps(client: &Client) -> Result<BTreeMap<String, (String, String)>> {
    let path = format!("/api/v1/namespaces/{SHOP}/configmaps");
    let list: Value = client.request(Request::get(path).body(Vec::new())?).await?;
    let items = list["items"].as_array().context("no items")?.iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |item: &Value| {
        let name = text(&item["metadata"]["name"]).strip_prefix("of-")?.to_owned();
        Some((name, (text(&item["metadata"]["uid"]), text(&item["data"]["members"]))))
    };
    Ok(items.filter_map(of).collect())
}

/// Checks the records of the host: a group has at most one run in each second.
async fn runs_rest(host: &Host) -> Result<usize> {
    let answer: Value = serde_json::from_str(&host.get("/debug/plugins/shop/members").await?)?;
    let mut starts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for run in answer["runs"].as_array().context("no runs")? {
        let ago = run["millisAgo"].as_f64().unwrap_or_default() + run["tookMicros"].as_f64().unwrap_or_default() / 1e3;
        starts.entry(run["group"].as_str().context("no group")?.to_owned()).or_default().push(ago);
    }
    for (group, ago) in &starts {
        // A run starts a moment after it was queued, and its end is read a moment after it.
        let close = ago.windows(2).find(|two| (two[1] - two[0]).abs() < 900.0);
        ensure!(close.is_none(), "{group}: {ago:?}");
    }
    Ok(starts.values().map(Vec::len).sum())
}

/// The groups, and the Pods of each.
fn numbers() -> Result<(usize, usize)> {
    let number = |name: &str, default| env::var(name).ok().map_or(Ok(default), |number| number.parse());
    Ok((number("PODIUM_GROUPS", 20)?, number("PODIUM_GROUP_PODS", 3)?))
}

/// Returns the options of a host with the plugin and a state directory, whose account may write ConfigMaps.
async fn options(plane: &ControlPlane, client: &Client, directory: &Path, runner: &Path) -> Result<HostOptions> {
    let kubectl = Kubectl::new(plane);
    let [plugins, runners, state] = ["plugins", "runners", "state"].map(|name| directory.join(name));
    [&plugins, &runners].into_iter().try_for_each(fs::create_dir)?;
    fs::write(plugins.join("members.yaml"), plugin())?;
    fs::copy(runner, runners.join("javascript-1.wasm"))?;
    namespace(client, SHOP).await?;
    let kubeconfig = host_account(plane, client).await?;
    kubectl.admin(&["create", "clusterrole", "maps", "--resource=configmaps", "--verb=get,create,patch,delete"])?;
    let account = "--serviceaccount=podium-system:podium";
    kubectl.admin(&["create", "clusterrolebinding", "maps", "--clusterrole=maps", account])?;
    let mut arguments = Vec::new();
    for (flag, directory) in [("--state-dir", &state), ("--runners", &runners)] {
        arguments.extend([flag.to_owned(), directory.to_string_lossy().into_owned()]);
    }
    Ok(HostOptions { kubeconfig, plugins: vec![plugins], arguments })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_outlives_rollouts_and_its_end_a_killed_host() -> Result<()> {
    let (groups, members) = numbers()?;
    // A node has 110 Pods, also while a rollout has one more of each workload.
    let nodes = 2 + groups * (members + 1) / 100;
    // The controllers of a rollout send 20 requests a second.
    let seconds = 120 + 3 * groups as u64;
    let within = Duration::from_secs(seconds);
    let Some(runner) = runner::component(Language::JavaScript)? else { return Ok(()) };
    let Some((plane, client, _turn)) = exclusive(Options { nodes, ..Options::default() }).await? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let kubectl = Kubectl::new(&plane);
    let options = options(&plane, &client, directory.path(), &runner).await?;
    let host = Host::spawn(&options).await?;
    let name = |at: usize| format!("web-{at}");
    for at in 0..groups {
        deployment(&client, SHOP, &name(at), members, Shape::default()).await?;
    }
    let complete = |expected: usize| {
        let client = client.clone();
        async move || {
            let found = config_maps(&client).await?;
            let complete = found.values().filter(|(_, of_map)| *of_map == members.to_string()).count();
            ensure!((found.len(), complete) == (expected, expected), "{expected} of {found:?}");
            anyhow::Ok(found)
        }
    };
    let before = until("the workloads", within, complete(groups)).await?;
    let began = Instant::now();
    for at in 0..groups {
        kubectl.admin(&["-n", SHOP, "rollout", "restart", &format!("deployment/{}", name(at))])?;
    }
    for at in 0..groups {
        let of = format!("deployment/{}", name(at));
        kubectl.admin(&["-n", SHOP, "rollout", "status", &of, &format!("--timeout={seconds}s")])?;
    }
    let took = began.elapsed().as_secs();
    let after = until("the rollouts", within, complete(groups)).await?;
    let uids =
        |maps: &BTreeMap<String, (String, String)>| maps.values().map(|(uid, _)| uid.clone()).collect::<Vec<_>>();
    ensure!(uids(&before) == uids(&after), "a rollout ended a group: {before:?} {after:?}");
    let records = runs_rest(&host).await?;
    ensure!(records >= 20.min(groups), "{records} records");
    println!("{groups} groups of {members} Pods: restarted in {took} s, {records} records at most one a second each");

    // A third ends with the host, a third around kills of it, and the rest stays.
    let third = groups / 3;
    let delete = |of: Range<usize>, wait: &str| -> Result<()> {
        let names: Vec<String> = of.map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        kubectl.admin(&[&["-n", SHOP, "delete", "deployment", wait, "--cascade=foreground"], &names[..]].concat())?;
        Ok(())
    };
    delete(0..third, "--wait=true")?;
    until("the ends", within, complete(groups - third)).await?;
    let kills = (groups / 50).max(1);
    let mut host = host;
    for kill in 0..kills {
        let [first, end] = [kill, kill + 1].map(|kill| third + kill * third / kills);
        let half = first.midpoint(end);
        delete(first..half, "--wait=false")?;
        host.kill().await?;
        delete(half..end, "--wait=true")?;
        until("the Pods", within, async || {
            let left = pods(&client, SHOP, "").await?.len();
            ensure!(left == members * (groups - end), "{left} Pods");
            Ok(())
        })
        .await?;
        host = Host::spawn(&options).await?;
    }
    let left = until("the ends of before", within, complete(groups - 2 * third)).await?;
    println!("{third} groups ended around {kills} kills");
    ensure!(left.iter().all(|(name, map)| after.get(name) == Some(map)), "{left:?}");
    runs_rest(&host).await?;
    ensure!(host.terminate().await?.success());
    Ok(())
}
