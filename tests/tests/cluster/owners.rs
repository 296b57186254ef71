//! The object that a plugin applies for the top workload of its Pods, on the real control plane: a rollout and the end
//! of the old ReplicaSet keep it, and Kubernetes deletes it with the Deployment.

use std::{fs, time::Duration};

use anyhow::{Context, Result, ensure};
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use podium_tests::{
    guests,
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::Kubectl,
    workloads::{Shape, account, all, create, deployment, host_account, namespace, pods},
};

const SHOP: &str = "owners";
const SETTINGS: &str = "web-settings";
const PODS: usize = 2;
const KEY: &str = "guests.example/a";
const WITHIN: Duration = Duration::from_secs(120);
const APPS: &str = "/apis/apps/v1/namespaces/owners";

/// A plugin that applies one ConfigMap for the workload of each Pod.
fn plugin() -> Result<String> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": SETTINGS, "namespace": SHOP },
        "data": { "made-by": "keeper" },
    });
    let script = json!({ "script": format!("apply-of-workload {object}") });
    let spec = json!({
        "source": { "file": guests::path("probe")?.canonicalize()? },
        "serviceAccountName": "keeper",
        "watch": { "sections": ["labels", "status"] },
        // The component imports every write.
        "grants": {
            "read": { "pods": { "sections": ["labels", "status"], "live": true } },
            "write": {
                "labels": [KEY], "annotations": [KEY], "finalizers": [KEY], "conditions": [KEY],
                "delete": true, "evict": true, "events": true,
                "objects": [{ "apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps" }],
            },
        },
        "config": script,
    });
    let metadata = json!({ "name": "keeper", "namespace": SHOP });
    let (api_version, kind) = ("podium.dev/v1alpha1", "ReconcilePlugin");
    Ok(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec }).to_string())
}

async fn rights(client: &Client) -> Result<()> {
    account(client, SHOP, "keeper").await?;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{SHOP}");
    let rules = json!([
        { "apiGroups": ["apps"], "resources": ["replicasets", "deployments"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"] },
    ]);
    create(client, &format!("{path}/roles"), json!({ "metadata": { "name": "keeper" }, "rules": rules })).await?;
    let binding = json!({
        "metadata": { "name": "keeper" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "keeper" },
        "subjects": [{ "kind": "ServiceAccount", "name": "keeper", "namespace": SHOP }],
    });
    create(client, &format!("{path}/rolebindings"), binding).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_deployment_outlives_a_rollout() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(3).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    namespace(&client, SHOP).await?;
    rights(&client).await?;
    fs::write(directory.path().join("keeper.yaml"), plugin()?)?;
    deployment(&client, SHOP, "web", PODS, Shape::default()).await?;
    let kubeconfig = host_account(&plane, &client).await?;
    let plugins = vec![directory.path().to_owned()];
    let options = HostOptions { kubeconfig, plugins, arguments: vec!["--strict".to_owned()] };
    let settings: Api<ConfigMap> = Api::namespaced(client.clone(), SHOP);
    an_edit_is_repaired_and_another_clients_object_kept(&Kubectl::new(&plane), &options, &settings).await?;
    let host = Host::spawn(&options).await?;

    let first = until("the object", WITHIN, async || Ok(settings.get(SETTINGS).await?)).await?;
    let owner = get(&client, &format!("{APPS}/deployments/web")).await?["metadata"]["uid"].clone();
    let owners = json!(first.metadata.owner_references);
    ensure!(owners[0]["uid"] == owner && owners[0]["kind"] == "Deployment", "{owners}");

    let old = replica_sets(&client).await?;
    let template = json!({ "metadata": { "labels": { "release": "2" } } });
    let body = json!({ "spec": { "template": template } }).to_string().into_bytes();
    let patch =
        Request::patch(format!("{APPS}/deployments/web")).header("Content-Type", "application/merge-patch+json");
    client.request::<Value>(patch.body(body)?).await?;
    until("the rollout", WITHIN, async || {
        let found = pods(&client, SHOP, "app=web").await?;
        let is_new = |labels: &std::collections::BTreeMap<String, String>| labels.contains_key("release");
        all(&found, PODS, "of the new template", |pod| pod.metadata.labels.as_ref().is_some_and(is_new))
    })
    .await?;
    for name in old {
        client.request::<Value>(Request::delete(format!("{APPS}/replicasets/{name}")).body(Vec::new())?).await?;
    }
    // Each of the new Pods has had a run, whose apply would have changed the owner.
    let runs = host.metric("controller_runtime_reconcile_total", &[r#"result="success""#]).await?;
    let visit = json!({ "metadata": { "labels": { "visited": "yes" } } });
    for pod in pods(&client, SHOP, "app=web").await? {
        let path = format!("/api/v1/namespaces/{SHOP}/pods/{}", pod.metadata.name.unwrap_or_default());
        let patch = Request::patch(path).header("Content-Type", "application/merge-patch+json");
        client.request::<Value>(patch.body(visit.to_string().into_bytes())?).await?;
    }
    until("runs on the new Pods", WITHIN, async || {
        let now = host.metric("controller_runtime_reconcile_total", &[r#"result="success""#]).await?;
        ensure!(now >= runs + PODS as f64, "{now} after {runs}:\n{}", host.log());
        ensure!(replica_sets(&client).await?.len() == 1, "the old ReplicaSet is there");
        Ok(())
    })
    .await?;
    let kept = settings.get(SETTINGS).await?;
    ensure!(kept.metadata.uid == first.metadata.uid, "another object");
    ensure!(json!(kept.metadata.owner_references) == owners, "{:?}", kept.metadata.owner_references);

    let options = json!({ "propagationPolicy": "Background" }).to_string().into_bytes();
    let delete = Request::delete(format!("{APPS}/deployments/web")).header("Content-Type", "application/json");
    client.request::<Value>(delete.body(options)?).await?;
    until("the end of the Pods and of the object", WITHIN, async || {
        let left = pods(&client, SHOP, "app=web").await?.len();
        ensure!(left == 0, "{left} Pods");
        ensure!(settings.get_opt(SETTINGS).await?.is_none(), "the object is there");
        let due = host.metric("podium_tenant_waiting_keys", &[]).await?;
        ensure!(due == 0.0, "{due} keys");
        Ok(())
    })
    .await?;
    ensure!(host.terminate().await?.success());
    ensure!(settings.get_opt(SETTINGS).await?.is_none(), "the runs on the last Pods made it again");
    Ok(())
}

/// Another client edits the object of the plugin, and then makes one of the same name before the plugin does. The next
/// start applies the object again; without one, that is after the time for which an applied object is trusted.
async fn an_edit_is_repaired_and_another_clients_object_kept(
    kubectl: &Kubectl,
    options: &HostOptions,
    settings: &Api<ConfigMap>,
) -> Result<()> {
    let is_of = async |writer: &str| {
        let data = settings.get(SETTINGS).await?.data.unwrap_or_default();
        ensure!(data.get("made-by").is_some_and(|made_by| made_by == writer), "{data:?}");
        Ok(())
    };
    let host = Host::spawn(options).await?;
    until("the object", WITHIN, async || is_of("keeper").await).await?;
    ensure!(host.terminate().await?.success());
    let edit = r#"{"data": {"made-by": "another"}}"#;
    kubectl.admin(&["-n", SHOP, "patch", "configmap", SETTINGS, "--type=merge", "-p", edit])?;
    is_of("another").await?;
    let host = Host::spawn(options).await?;
    until("the repair", WITHIN, async || is_of("keeper").await).await?;
    ensure!(host.terminate().await?.success());
    kubectl.admin(&["-n", SHOP, "delete", "configmap", SETTINGS])?;
    kubectl.admin(&["-n", SHOP, "create", "configmap", SETTINGS, "--from-literal=made-by=another"])?;
    let host = Host::spawn(options).await?;
    until("the conflict", WITHIN, async || {
        ensure!(host.log().contains("kubectl-create"), "{}", host.log());
        Ok(())
    })
    .await?;
    ensure!(host.terminate().await?.success());
    is_of("another").await?;
    kubectl.admin(&["-n", SHOP, "delete", "configmap", SETTINGS])?;
    Ok(())
}

async fn get(client: &Client, path: &str) -> Result<Value> {
    client.request(Request::get(path).body(Vec::new())?).await.with_context(|| path.to_owned())
}

async fn replica_sets(client: &Client) -> Result<Vec<String>> {
    let list = get(client, &format!("{APPS}/replicasets")).await?;
    let names = list["items"].as_array().context("a list without items")?.iter();
    Ok(names.filter_map(|set| set["metadata"]["name"].as_str().map(str::to_owned)).collect())
}
