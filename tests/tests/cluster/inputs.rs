//! A ConfigMap as the input of a plugin, on the real control plane: RBAC that names one object permits its list and
//! watch, a change reaches all Pods, and a right that ends takes the value away.

use std::{env, time::Duration};

use anyhow::{Result, ensure};
use podium_tests::{process::Host, runner, wait::until};
use podium_vocabulary::Language;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster,
    kubectl::Kubectl,
    printed_rights,
    workloads::{Shape, all, deployment, label, namespace, pods},
};

const SHOP: &str = "shop";
/// Pods, without `PODIUM_INPUT_PODS`.
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
    let number = env::var("PODIUM_INPUT_PODS").ok().map_or(Ok(PODS), |number| number.parse())?;
    let kubectl = Kubectl::new(&plane);
    namespace(&client, SHOP).await?;
    let (options, _directory) = printed_rights::grant(&plane, &runner, &plugin())?;
    deployment(&client, SHOP, "web", number, Shape::default()).await?;
    let host = Host::spawn(&options).await?;
    let are = |price: &'static str| {
        let client = client.clone();
        async move || all(&pods(&client, SHOP, "app=web").await?, number, price, |pod| label(pod, PRICE) == Some(price))
    };
    until("no price", WITHIN, are("none")).await?;
    kubectl.admin(&["-n", SHOP, "create", "configmap", "prices", "--from-literal=web=3"])?;
    let began = Instant::now();
    until("a price", WITHIN, are("3")).await?;
    println!("{number} Pods have the price {} ms after it was created", began.elapsed().as_millis());
    kubectl.admin(&["-n", SHOP, "patch", "configmap", "prices", "--type=merge", "-p", r#"{"data":{"web":"4"}}"#])?;
    let began = Instant::now();
    until("another price", WITHIN, are("4")).await?;
    println!("{number} Pods have the price {} ms after it was changed", began.elapsed().as_millis());
    kubectl.admin(&["-n", SHOP, "delete", "rolebinding", "podium-inputs-priced"])?;
    let began = Instant::now();
    until("the end of the right", WITHIN, are("unavailable")).await?;
    println!("{number} Pods lost the price {} s after the right ended", began.elapsed().as_secs());
    ensure!(host.terminate().await?.success());
    Ok(())
}
