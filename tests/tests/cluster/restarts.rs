//! The version of a plugin object that runs after a restart of the host is the one that ran before it, also if the
//! object's present spec failed; and only while spec and policy permit it.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams},
};
use podium_tests::{guests, process::Host, wait::until};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    cluster,
    kubectl::Kubectl,
    objects::{NAMESPACE, apply, condition, config_map, digest, labelled, spec, start},
    workloads::{label, pod},
};

/// Replaces the component in the ConfigMap, and returns its digest.
async fn replace(client: &Client, component: &[u8]) -> Result<String> {
    let object = ConfigMap {
        metadata: ObjectMeta::default(),
        binary_data: Some([("plugin.wasm".to_owned(), ByteString(component.to_vec()))].into()),
        ..ConfigMap::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    api.patch("labeller", &PatchParams::default(), &Patch::Merge(object)).await?;
    Ok(digest(component))
}

/// The version of generation 1 runs, and labels a new Pod.
async fn first_runs(client: &Client, object: &Value, sha256: &str, name: &str) -> Result<()> {
    let active = &object["status"]["active"];
    ensure!(active["digest"] == format!("sha256:{sha256}") && active["generation"] == 1, "{}", object["status"]);
    let message = object["status"]["conditions"][4]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("the version of generation 1 goes on"), "{message}");
    pod(client, NAMESPACE, name).await?;
    labelled(client, name).await
}

async fn not_labelled(client: &Client, name: &str) -> Result<()> {
    pod(client, NAMESPACE, name).await?;
    // A real wait, because the host is another process: many times what a label takes.
    sleep(Duration::from_secs(3)).await;
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
    ensure!(label(&api.get(name).await?, crate::plugins::SEEN).is_none(), "it has the label");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_runs_the_version_that_ran_before_it() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let (mut options, _) = start(&plane, &client).await?;
    let state = tempfile::tempdir()?;
    options.arguments.extend(["--state-dir".to_owned(), state.path().to_string_lossy().into_owned()]);
    let good = guests::component("good")?;
    let sha256 = config_map(&client, good.clone()).await?;
    Kubectl::new(&plane).install(&["crds.yaml"])?;
    pod(&client, NAMESPACE, "a").await?;
    let host = Host::spawn(&options).await?;
    until("the kind", Duration::from_secs(60), async || apply(&client, &spec(&sha256)).await).await?;
    condition(&client, "Ready", "True", "Running").await?;
    labelled(&client, "a").await?;

    // A version that fails when it is tried. The ConfigMap does not have the bytes of the one before any more.
    let panics = spec(&replace(&client, &guests::component("panics")?).await?);
    apply(&client, &panics).await?;
    let refused = condition(&client, "Ready", "False", "ProbeFailed").await?;
    first_runs(&client, &refused, &sha256, "b").await?;
    ensure!(host.terminate().await?.success(), "it failed");
    let host = Host::spawn(&options).await?;
    ensure!(host.log().contains("plugin runs again in the version before its spec"), "{}", host.log());
    let refused = condition(&client, "Ready", "False", "ProbeFailed").await?;
    first_runs(&client, &refused, &sha256, "c").await?;

    // One that cannot be fetched.
    apply(&client, &spec(&"0".repeat(64))).await?;
    condition(&client, "Ready", "False", "DigestMismatch").await?;
    ensure!(host.terminate().await?.success(), "it failed");
    let host = Host::spawn(&options).await?;
    let refused = condition(&client, "Ready", "False", "DigestMismatch").await?;
    first_runs(&client, &refused, &sha256, "d").await?;
    ensure!(host.terminate().await?.success(), "it failed");

    // The policy of the next start permits neither.
    let namespaces = json!({ NAMESPACE: { "excluded": true } });
    let policy = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "Policy", "spec": { "namespaces": namespaces },
    });
    fs::write(state.path().join("policy.yaml"), policy.to_string())?;
    let mut excluded = options.clone();
    let file = state.path().join("policy.yaml").to_string_lossy().into_owned();
    excluded.arguments.extend(["--policy".to_owned(), file]);
    let host = Host::spawn(&excluded).await?;
    let forbidden = condition(&client, "Ready", "False", "PolicyForbids").await?;
    ensure!(forbidden["status"]["active"].is_null(), "{}", forbidden["status"]);
    not_labelled(&client, "e").await?;
    ensure!(host.terminate().await?.success(), "it failed");

    // The spec is the first one again, of which only the disk has the bytes.
    let host = Host::spawn(&options).await?;
    labelled(&client, "e").await?;
    apply(&client, &spec(&sha256)).await?;
    let stored = condition(&client, "Fetched", "True", "Stored").await?;
    ensure!(stored["status"]["active"]["digest"] == format!("sha256:{sha256}"), "{}", stored["status"]);
    condition(&client, "Ready", "True", "Stored").await?;
    ensure!(host.terminate().await?.success(), "it failed");
    let host = Host::spawn(&options).await?;
    condition(&client, "Fetched", "True", "Stored").await?;
    ensure!(host.terminate().await?.success(), "it failed");

    // Grants that were narrowed while no host ran do not come back, in any start.
    let mut narrow = panics;
    narrow["grants"]["write"] = json!({});
    apply(&client, &narrow).await?;
    let host = Host::spawn(&options).await?;
    let stopped = condition(&client, "Ready", "False", "GrantsExceeded").await?;
    ensure!(stopped["status"]["active"].is_null(), "{}", stopped["status"]);
    ensure!(host.terminate().await?.success(), "it failed");
    let host = Host::spawn(&options).await?;
    let stopped = condition(&client, "Ready", "False", "GrantsExceeded").await?;
    ensure!(stopped["status"]["active"].is_null(), "{}", stopped["status"]);
    not_labelled(&client, "f").await?;
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}
