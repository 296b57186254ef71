//! The plugin of the cookbook that keeps a ConfigMap for each workload, on the real control plane: the ConfigMap is
//! right after a rollout, an edit, a deletion, and a scale to zero and back.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::Client;
use podium_tests::{
    controlplane::ControlPlane,
    plugins,
    process::{Host, HostOptions, podium_binary, workspace_dir},
    wait::until,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    cluster,
    kubectl::Kubectl,
    workloads::{Shape, deployment, namespace, pods},
};

const SHOP: &str = "shop";
const PLUGIN: &str = "workload-configmap";
const MAP: &str = "configmap/deployment-web-nodes";
const WITHIN: Duration = Duration::from_secs(60);
/// Longer than a debounce, and than three repairs in a row.
const QUIET: Duration = Duration::from_secs(25);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_plugin_keeps_for_a_workload_is_right_after_each_change() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(1).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let kubectl = Kubectl::new(&plane);
    let host = start(&plane, &client, directory.path(), &[]).await?;
    deployment(&client, SHOP, "web", 3, Shape::default()).await?;

    let map =
        || -> Result<Value> { Ok(serde_json::from_str(&kubectl.admin(&["-n", SHOP, "get", MAP, "-o", "json"])?)?) };
    let is_right = async || {
        let map = map()?;
        let names: Vec<String> =
            pods(&client, SHOP, "").await?.into_iter().filter_map(|pod| pod.metadata.name).collect();
        let data = map["data"].as_object().context("no data")?;
        ensure!(names.len() == 3 && data.len() == 3, "{map}");
        ensure!(names.iter().all(|name| data.contains_key(name)), "{names:?} {map}");
        ensure!(map["metadata"]["ownerReferences"][0]["kind"] == "Deployment", "{map}");
        ensure!(map["metadata"]["labels"].as_object().is_some_and(|labels| labels.len() == 1), "{map}");
        ensure!(map["metadata"]["deletionTimestamp"].is_null(), "{map}");
        Ok(())
    };
    until("the ConfigMap", WITHIN, is_right).await?;
    let uid = map()?["metadata"]["uid"].clone();
    let unlabelled = r#"{"metadata":{"labels":null,"ownerReferences":null}}"#;
    let changes: [(&str, &[&str]); 5] = [
        ("rollout", &["set", "image", "deployment/web", "*=registry.example/c:2"]),
        ("edit", &["patch", MAP, "--type=merge", "-p", r#"{"data":null}"#]),
        ("labels", &["patch", MAP, "--type=merge", "-p", unlabelled]),
        ("deletion", &["delete", MAP]),
        ("scale to zero", &["scale", "deployment/web", "--replicas=0"]),
    ];
    for (change, arguments) in changes {
        kubectl.admin(&[&["-n", SHOP], arguments].concat())?;
        match change {
            "rollout" => drop(kubectl.admin(&["-n", SHOP, "rollout", "status", "deployment/web", "--timeout=60s"])?),
            "scale to zero" => {
                until("no Pods", WITHIN, async || {
                    ensure!(pods(&client, SHOP, "").await?.is_empty(), "Pods");
                    Ok(())
                })
                .await?;
                ensure!(map()?["metadata"]["deletionTimestamp"].is_null(), "the ConfigMap of a workload without Pods");
                kubectl.admin(&["-n", SHOP, "scale", "deployment/web", "--replicas=3"])?;
            }
            _ => {}
        }
        let began = Instant::now();
        until(change, WITHIN, is_right).await.with_context(|| host.log())?;
        println!("{change}: right {} ms after it was seen", began.elapsed().as_millis());
        ensure!(change == "deletion" || map()?["metadata"]["uid"] == uid || change == "scale to zero", "{change}");
    }
    let revision = map()?["metadata"]["resourceVersion"].clone();
    sleep(QUIET).await;
    ensure!(map()?["metadata"]["resourceVersion"] == revision, "written while nothing changed: {}", host.log());
    kubectl.admin(&["-n", SHOP, "delete", "deployment", "web"])?;
    until("the collection of the ConfigMap", WITHIN, async || {
        ensure!(map().is_err(), "it is there");
        Ok(())
    })
    .await?;
    ensure!(host.terminate().await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_force_an_object_of_another_client_is_taken_and_reported_once() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(1).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let kubectl = Kubectl::new(&plane);
    let replaced = [("resource: configmaps }]", "resource: configmaps, force: true }], events: true")];
    let host = start(&plane, &client, directory.path(), &replaced).await?;
    kubectl.admin(&[
        "-n",
        SHOP,
        "create",
        "role",
        "events",
        "--resource=events.events.k8s.io",
        "--verb=create,patch",
    ])?;
    let subject = format!("--serviceaccount={SHOP}:podium-plugin-{PLUGIN}");
    kubectl.admin(&["-n", SHOP, "create", "rolebinding", "events", "--role=events", &subject])?;
    deployment(&client, SHOP, "web", 1, Shape::default()).await?;
    let map =
        || -> Result<Value> { Ok(serde_json::from_str(&kubectl.admin(&["-n", SHOP, "get", MAP, "-o", "json"])?)?) };
    let (pod, right) = until("the ConfigMap", WITHIN, async || {
        let data = map()?["data"].clone();
        let pod = data.as_object().and_then(|data| data.keys().next()).context("no Pod")?.clone();
        Ok((pod, data))
    })
    .await?;
    // Without its annotation the object is not the plugin's any more. It is edited twice.
    for value in ["theirs", "theirs again"] {
        let edit = json!({ "metadata": { "annotations": null }, "data": { &pod: value } });
        kubectl.admin(&["-n", SHOP, "patch", MAP, "--type=merge", "-p", &edit.to_string()])?;
        until("the plugin's data", WITHIN, async || {
            ensure!(map()?["data"] == right, "{}", map()?);
            Ok(())
        })
        .await
        .with_context(|| host.log())?;
    }
    let events = until("the Event", WITHIN, async || {
        let events = kubectl.admin(&["-n", SHOP, "get", "events.events.k8s.io", "-o", "json"])?;
        let events: Value = serde_json::from_str(&events)?;
        let items = events["items"].as_array().cloned().unwrap_or_default();
        let taken: Vec<Value> = items.into_iter().filter(|event| event["reason"] == "FieldsTaken").collect();
        ensure!(!taken.is_empty(), "none");
        Ok(taken)
    })
    .await
    .with_context(|| host.log())?;
    let note = events[0]["note"].as_str().unwrap_or_default();
    ensure!(events.len() == 1 && note.contains("kubectl-patch") && note.contains(&pod), "{events:?}");
    // A right that goes while the objects are watched, and comes back.
    let name = format!("podium-plugin-{PLUGIN}");
    kubectl.admin(&["-n", SHOP, "delete", "rolebinding", &name])?;
    let edit = json!({ "data": { &pod: "without a right" } }).to_string();
    kubectl.admin(&["-n", SHOP, "patch", MAP, "--type=merge", "-p", &edit])?;
    sleep(QUIET).await;
    ensure!(map()?["data"][&pod] == "without a right", "{}", map()?);
    let role = format!("--role={name}");
    kubectl.admin(&["-n", SHOP, "create", "rolebinding", &name, &role, &subject])?;
    until("the repair with the right", Duration::from_secs(180), async || {
        ensure!(map()?["data"] == right, "{}", map()?);
        Ok(())
    })
    .await
    .with_context(|| host.log())?;
    ensure!(host.terminate().await?.success());
    Ok(())
}

/// Starts a host with the plugin, whose account has the rights that `podium inspect` prints.
async fn start(plane: &ControlPlane, client: &Client, directory: &Path, replaced: &[(&str, &str)]) -> Result<Host> {
    let kubectl = Kubectl::new(plane);
    namespace(client, SHOP).await?;
    let folder = workspace_dir().join("docs/cookbook").join(PLUGIN);
    let output = Command::new(podium_binary()?).args(["inspect", "--output", "yaml"]).arg(&folder).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let objects: Vec<Value> = serde_saphyr::from_multiple(std::str::from_utf8(&output.stdout)?)?;
    let own: Vec<&Value> = objects.iter().filter(|object| object["metadata"]["namespace"] == SHOP).collect();
    let objects = directory.join("rights.json");
    fs::write(&objects, json!({ "apiVersion": "v1", "kind": "List", "items": own }).to_string())?;
    kubectl.admin(&["apply", "-f", &objects.to_string_lossy()])?;
    let account = format!("podium-plugin-{PLUGIN}");
    // Those for the owner, of which inspect prints a note.
    let owners = "--resource=replicasets.apps,deployments.apps";
    kubectl.admin(&["-n", SHOP, "create", "role", "owners", owners, "--verb=get"])?;
    let subject = format!("--serviceaccount={SHOP}:{account}");
    kubectl.admin(&["-n", SHOP, "create", "rolebinding", "owners", "--role=owners", &subject])?;
    let configured = directory.join("plugins");
    fs::create_dir(&configured)?;
    let mut text =
        plugins::yaml_of(&folder)?.replace("\nspec:\n", &format!("\nspec:\n  serviceAccountName: {account}\n"));
    for (from, to) in replaced {
        ensure!(text.contains(from), "{from} is not in {text}");
        text = text.replace(from, to);
    }
    fs::write(configured.join("plugin.yaml"), text)?;
    let options = HostOptions { kubeconfig: plane.kubeconfig_path(), plugins: vec![configured], arguments: Vec::new() };
    Host::spawn(&options).await
}
