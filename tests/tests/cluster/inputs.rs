//! A ConfigMap as the input of a plugin, on the real control plane: RBAC that names one object permits its list and
//! watch, a change reaches all Pods, and a right that ends takes the value away.

use std::{fs, process::Command, time::Duration};

use anyhow::{Result, ensure};
use podium_tests::{
    process::{Host, HostOptions, podium_binary},
    runner,
    wait::until,
};
use podium_vocabulary::Language;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster,
    kubectl::Kubectl,
    workloads::{Shape, all, deployment, label, namespace, pods},
};

const SHOP: &str = "shop";
const PODS: usize = 50;
const PRICE: &str = "example.com/price";
const WITHIN: Duration = Duration::from_secs(120);
const SCRIPT: &str = r#"
import { writes } from "podium";
export default ({ pod, config }) => {
  if (!pod) return;
  const { prices } = config.inputs;
  const price = prices === undefined ? "unavailable" : prices === null ? "none" : prices.data.web;
  writes.setLabel(pod, "example.com/price", price);
};
"#;

fn plugin() -> Value {
    json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": "priced", "namespace": SHOP },
        "spec": {
            "source": { "script": { "language": "javascript", "inline": SCRIPT } },
            "serviceAccountName": "podium-plugin-priced",
            "inputs": [{
                "id": "prices", "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps", "name": "prices",
            }],
            "watch": { "selector": { "matchLabels": { "app": "web" } } },
            "grants": { "write": { "labels": [PRICE] } },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_reaches_all_pods_and_ends_with_its_right() -> Result<()> {
    let Some(runner) = runner::component(Language::JavaScript)? else { return Ok(()) };
    let Some((plane, client, _turn)) = cluster(1).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let [plugins, runners] = ["plugins", "runners"].map(|name| directory.path().join(name));
    [&plugins, &runners].into_iter().try_for_each(fs::create_dir)?;
    fs::copy(runner, runners.join("javascript-1.wasm"))?;
    let configured = plugins.join("plugin.json.yaml");
    fs::write(&configured, plugin().to_string())?;
    let kubectl = Kubectl::new(&plane);
    namespace(&client, SHOP).await?;
    let mut inspect = Command::new(podium_binary()?);
    let output = inspect.args(["inspect", "--output", "yaml"]).arg(&configured).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout)?)?;
    objects.retain(|object| object["metadata"]["namespace"] == SHOP);
    let rights = directory.path().join("rights.json");
    fs::write(&rights, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())?;
    kubectl.admin(&["apply", "-f", &rights.to_string_lossy()])?;
    deployment(&client, SHOP, "web", PODS, Shape::default()).await?;
    let arguments = vec!["--runners".to_owned(), runners.to_string_lossy().into_owned()];
    let host =
        Host::spawn(&HostOptions { kubeconfig: plane.kubeconfig_path(), plugins: vec![plugins], arguments }).await?;
    let are = |price: &'static str| {
        let client = client.clone();
        async move || all(&pods(&client, SHOP, "app=web").await?, PODS, price, |pod| label(pod, PRICE) == Some(price))
    };
    until("no price", WITHIN, are("none")).await?;
    kubectl.admin(&["-n", SHOP, "create", "configmap", "prices", "--from-literal=web=3"])?;
    let began = Instant::now();
    until("a price", WITHIN, are("3")).await?;
    println!("{PODS} Pods have the price {} ms after it was created", began.elapsed().as_millis());
    kubectl.admin(&["-n", SHOP, "patch", "configmap", "prices", "--type=merge", "-p", r#"{"data":{"web":"4"}}"#])?;
    let began = Instant::now();
    until("another price", WITHIN, are("4")).await?;
    println!("{PODS} Pods have the price {} ms after it was changed", began.elapsed().as_millis());
    kubectl.admin(&["-n", SHOP, "delete", "rolebinding", "podium-inputs-priced"])?;
    let began = Instant::now();
    until("the end of the right", WITHIN, are("unavailable")).await?;
    println!("{PODS} Pods lost the price {} s after the right ended", began.elapsed().as_secs());
    ensure!(host.terminate().await?.success());
    Ok(())
}
