//! Plugins as objects of the API server: loaded, changed and unloaded by `kubectl`'s requests, with a status that
//! shows the result of each change, and no status written while nothing changes.

use std::{fmt::Write, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use http::Request;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use podium_tests::{
    controlplane::{ControlPlane, Mark},
    guests,
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::{
    cluster,
    plugins::{SEEN, write_labeller},
    workloads::{HOST, account, create, host_account, label, namespace, pod},
};

const SOON: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "objects";
const PLUGINS: &str = "/apis/podium.dev/v1alpha1/namespaces/objects/reconcileplugins";

/// The definitions of the two kinds, without a schema of the spec: what the host does not accept reaches it.
async fn definitions(client: &Client) -> Result<()> {
    for (kind, resource, scope) in [
        ("ReconcilePlugin", "reconcileplugins", "Namespaced"),
        ("ClusterReconcilePlugin", "clusterreconcileplugins", "Cluster"),
    ] {
        let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schema = json!({ "type": "object", "properties": { "spec": any, "status": any } });
        let version = json!({
            "name": "v1alpha1", "served": true, "storage": true, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": schema },
        });
        let names = json!({ "kind": kind, "plural": resource, "singular": kind.to_lowercase() });
        let object = json!({
            "metadata": { "name": format!("{resource}.podium.dev") },
            "spec": { "group": "podium.dev", "names": names, "scope": scope, "versions": [version] },
        });
        create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object).await?;
    }
    Ok(())
}

/// Grants the host the rights that it needs for plugin objects, and no others.
async fn host_rights(client: &Client) -> Result<()> {
    let resources = ["reconcileplugins", "clusterreconcileplugins"];
    let status = resources.map(|resource| format!("{resource}/status"));
    let role = json!({
        "metadata": { "name": "podium-plugins" },
        "rules": [
            { "apiGroups": ["podium.dev"], "resources": resources, "verbs": ["list", "watch"] },
            { "apiGroups": ["podium.dev"], "resources": status, "verbs": ["patch"] },
        ],
    });
    let binding = json!({
        "metadata": { "name": "podium-plugins" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "podium-plugins" },
        "subjects": [{ "kind": "ServiceAccount", "name": "podium", "namespace": "podium-system" }],
    });
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await?;
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await
}

/// The plugin's account may read the ConfigMap and label Pods.
async fn plugin_rights(client: &Client) -> Result<()> {
    account(client, NAMESPACE, "labeller").await?;
    let role = json!({
        "metadata": { "name": "labeller" },
        "rules": [
            { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["labeller"], "verbs": ["get"] },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"] },
        ],
    });
    let binding = json!({
        "metadata": { "name": "labeller" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "labeller" },
        "subjects": [{ "kind": "ServiceAccount", "name": "labeller", "namespace": NAMESPACE }],
    });
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    create(client, &format!("{path}/roles"), role).await?;
    create(client, &format!("{path}/rolebindings"), binding).await
}

fn digest(component: &[u8]) -> String {
    Sha256::digest(component).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn config_map(client: &Client, component: Arc<[u8]>) -> Result<String> {
    let sha256 = digest(&component);
    let data = [("plugin.wasm".to_owned(), ByteString(component.to_vec()))].into();
    let object = ConfigMap {
        metadata: ObjectMeta { name: Some("labeller".to_owned()), ..ObjectMeta::default() },
        binary_data: Some(data),
        ..ConfigMap::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    api.create(&PostParams::default(), &object).await?;
    Ok(sha256)
}

fn spec(sha256: &str) -> Value {
    json!({
        "source": { "configMap": { "name": "labeller", "key": "plugin.wasm", "sha256": sha256 } },
        "serviceAccountName": "labeller",
        "watch": { "sections": ["labels"] },
        "grants": { "read": { "pods": { "sections": ["labels"] } }, "write": { "labels": [SEEN] } },
    })
}

/// Applies the object as `kubectl apply --server-side` does.
async fn apply(client: &Client, spec: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": "labeller", "namespace": NAMESPACE }, "spec": spec,
    });
    let request = Request::patch(format!("{PLUGINS}/labeller?fieldManager=tenant&force=true"))
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())?;
    client.request::<Value>(request).await?;
    Ok(())
}

async fn object(client: &Client) -> Result<Value> {
    Ok(client.request(Request::get(format!("{PLUGINS}/labeller")).body(Vec::new())?).await?)
}

/// Waits until the condition, of the present generation, has this status and reason. Returns the object.
async fn condition(client: &Client, kind: &str, status: &str, reason: &str) -> Result<Value> {
    until(&format!("{kind}={status} {reason}"), SOON, async || {
        let object = object(client).await?;
        let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
        let found = conditions.iter().find(|condition| condition["type"] == kind).context("no such condition")?;
        ensure!(found["observedGeneration"] == object["metadata"]["generation"], "of an earlier generation: {found}");
        ensure!(found["status"] == status && found["reason"] == reason, "{found}");
        Ok(object)
    })
    .await
}

async fn labelled(client: &Client, name: &str) -> Result<()> {
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
    until("the label", SOON, async || label(&api.get(name).await?, SEEN).map(drop).ok_or_else(|| anyhow!("none"))).await
}

/// Returns the writes of the host's own account.
fn own_writes(plane: &ControlPlane, mark: Mark) -> Result<Vec<String>> {
    let writes = plane.audit().writes_of(HOST, mark)?;
    let own = writes.into_iter().filter(|write| write.impersonated.is_none());
    Ok(own.map(|write| format!("{} {} {}", write.verb, write.resource, write.code)).collect())
}

async fn start(plane: &ControlPlane, client: &Client) -> Result<(HostOptions, Mark)> {
    let kubeconfig = host_account(plane, client).await?;
    host_rights(client).await?;
    namespace(client, NAMESPACE).await?;
    plugin_rights(client).await?;
    let arguments = vec!["--watch-plugins".to_owned(), "--require-service-account".to_owned()];
    Ok((HostOptions { kubeconfig, plugins: Vec::new(), arguments }, plane.audit().now()?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_loaded_changed_and_unloaded_and_its_status_says_so() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let (options, mark) = start(&plane, &client).await?;
    let sha256 = config_map(&client, guests::component("good")?).await?;
    pod(&client, NAMESPACE, "a").await?;

    // Without the definitions the host is ready, says so, and finds them when they are there.
    let host = Host::spawn(&options).await?;
    ensure!(host.log().contains("apply its CustomResourceDefinition"), "{}", host.log());
    definitions(&client).await?;
    until("the kind", SOON, async || apply(&client, &spec(&sha256)).await).await?;
    let ready = condition(&client, "Ready", "True", "Running").await?;
    labelled(&client, "a").await?;
    let active = &ready["status"]["active"];
    ensure!(active["digest"] == format!("sha256:{sha256}") && active["generation"] == 1, "{active}");
    ensure!(active["imports"].as_array().is_some_and(|imports| !imports.is_empty()), "{active}");
    ensure!(active["grants"] == spec(&sha256)["grants"], "{active}");

    // A changed configuration is another version.
    let mut changed = spec(&sha256);
    changed["config"] = json!({ "threshold": 5 });
    apply(&client, &changed).await?;
    let swapped = condition(&client, "Ready", "True", "Running").await?;
    ensure!(swapped["status"]["active"]["generation"] == 2, "{}", swapped["status"]);

    // A component of another digest is not run, and the version before goes on.
    let mut bad = changed.clone();
    bad["source"]["configMap"]["sha256"] = "0".repeat(64).into();
    apply(&client, &bad).await?;
    let kept = condition(&client, "Fetched", "False", "DigestMismatch").await?;
    ensure!(kept["status"]["active"]["generation"] == 2, "{}", kept["status"]);
    pod(&client, NAMESPACE, "b").await?;
    labelled(&client, "b").await?;

    // Nothing is written while nothing changes: four times the shortest pause between two writes of a status, and ten
    // times the interval at which the host compares. A real wait, because the host is another process.
    let quiet = plane.audit().now()?;
    sleep(Duration::from_secs(20)).await;
    ensure!(own_writes(&plane, quiet)?.is_empty(), "{:?}", own_writes(&plane, quiet)?);

    // Narrower grants hold at once, also though the component exceeds them.
    let mut narrow = changed.clone();
    narrow["grants"]["write"] = json!({});
    apply(&client, &narrow).await?;
    let stopped = condition(&client, "Ready", "False", "GrantsExceeded").await?;
    ensure!(stopped["status"]["active"].is_null(), "{}", stopped["status"]);
    let controller = [r#"controller="objects/labeller""#];
    let runs = host.metric("controller_runtime_reconcile_total", &controller).await?;
    pod(&client, NAMESPACE, "c").await?;

    apply(&client, &changed).await?;
    condition(&client, "Ready", "True", "Running").await?;
    labelled(&client, "c").await?;
    let more = host.metric("controller_runtime_reconcile_total", &controller).await?;
    ensure!(more > runs, "{more} runs after {runs}");

    let mut suspended = changed.clone();
    suspended["suspend"] = true.into();
    apply(&client, &suspended).await?;
    condition(&client, "Ready", "False", "Suspended").await?;

    // A spec with a mistake that is read all the same.
    let mut mistaken = changed.clone();
    mistaken["watch"]["resyncSeconds"] = 1.into();
    apply(&client, &mistaken).await?;
    let refused = condition(&client, "Ready", "False", "InvalidSpec").await?;
    ensure!(refused.to_string().contains("spec.watch.resyncSeconds"), "{refused}");

    apply(&client, &changed).await?;
    condition(&client, "Ready", "True", "Running").await?;
    client.request::<Value>(Request::delete(format!("{PLUGINS}/labeller")).body(Vec::new())?).await?;
    until("the end of its series", SOON, async || {
        let metrics = host.get("/metrics").await?;
        ensure!(!metrics.contains("objects/labeller"), "they are there");
        Ok(())
    })
    .await?;

    // The host's own account writes statuses, and each of them was permitted.
    let own = own_writes(&plane, mark)?;
    let expected = "patch reconcileplugins/status 200";
    ensure!(!own.is_empty() && own.iter().all(|write| write == expected), "{own:?}");
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_file_and_an_object_of_one_name_the_file_runs() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let (mut options, mark) = start(&plane, &client).await?;
    let directory = tempfile::tempdir()?;
    write_labeller(directory.path(), NAMESPACE, Some("labeller"))?;
    options.plugins.push(directory.path().to_owned());
    definitions(&client).await?;
    // The ConfigMap does not exist: the object's plugin would not be loaded, and the host does not look for it.
    until("the kind", SOON, async || apply(&client, &spec(&"0".repeat(64))).await).await?;
    pod(&client, NAMESPACE, "a").await?;
    let host = Host::spawn(&options).await?;
    labelled(&client, "a").await?;
    let taken = condition(&client, "Ready", "False", "NameTaken").await?;
    ensure!(taken["status"]["active"].is_null(), "{}", taken["status"]);
    client.request::<Value>(Request::delete(format!("{PLUGINS}/labeller")).body(Vec::new())?).await?;
    until("the deletion", SOON, async || {
        ensure!(object(&client).await.is_err(), "it is there");
        Ok(())
    })
    .await?;
    pod(&client, NAMESPACE, "b").await?;
    labelled(&client, "b").await?;
    let requests = plane.audit().requests_of(HOST, mark)?;
    ensure!(requests.iter().all(|request| request.resource != "configmaps"), "{requests:?}");
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}
