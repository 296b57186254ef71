//! Plugins as objects of the API server: loaded, changed and unloaded by `kubectl`'s requests, with a status that
//! shows the result of each change, and no status written while nothing changes.

use std::{collections::BTreeSet, fmt::Write, fs, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use http::Request;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use podium_tests::{
    controlplane::{ControlPlane, Faults, Link, Mark},
    guests,
    process::{Host, HostOptions, workspace_dir},
    wait::until,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::{
    cluster,
    kubectl::Kubectl,
    plugins::{SEEN, write_labeller},
    workloads::{account, create, label, namespace, pod},
};

pub(crate) const SOON: Duration = Duration::from_secs(60);
/// The host's account in `deploy/`, in the audit log.
pub(crate) const HOST: &str = "system:serviceaccount:podium:podium-host";
pub(crate) const NAMESPACE: &str = "objects";
const CLUSTER_PLUGINS: &str = "/apis/podium.dev/v1alpha1/clusterreconcileplugins";
pub(crate) const PLUGINS: &str = "/apis/podium.dev/v1alpha1/namespaces/objects/reconcileplugins";

/// The plugin's account may read the ConfigMap and label Pods, and the host may use it.
async fn plugin_rights(client: &Client) -> Result<()> {
    account(client, NAMESPACE, "labeller").await?;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    let may = |resource: &str, names: &[&str], verbs: &[&str]| {
        let mut rule = json!({ "apiGroups": [""], "resources": [resource], "verbs": verbs });
        rule["resourceNames"] = json!(names);
        rule
    };
    let labels = vec![may("configmaps", &["labeller"], &["get"]), may("pods", &[], &["get", "patch"])];
    for (name, rules, subject) in [
        ("labeller", labels, ("labeller", NAMESPACE)),
        ("host", vec![may("serviceaccounts", &["labeller"], &["impersonate"])], ("podium-host", "podium")),
    ] {
        create(client, &format!("{path}/roles"), json!({"metadata": {"name": name}, "rules": rules})).await?;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": subject.0, "namespace": subject.1}],
        });
        create(client, &format!("{path}/rolebindings"), binding).await?;
    }
    Ok(())
}

pub(crate) fn digest(component: &[u8]) -> String {
    Sha256::digest(component).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) async fn config_map(client: &Client, component: Arc<[u8]>) -> Result<String> {
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

/// The rights of the host's account in `deploy/kustomize/base/rbac.yaml`, as `verb resource`.
fn shipped_rights() -> Result<BTreeSet<String>> {
    let yaml = fs::read_to_string(workspace_dir().join("deploy/kustomize/base/rbac.yaml"))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml)?;
    let roles = documents.iter().filter(|object| object["kind"] == "ClusterRole");
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let rules: Vec<_> = roles.filter_map(|role| role["rules"].as_array()).flatten().collect();
    ensure!(!rules.is_empty(), "no rules");
    let rights = |rule: &Value| -> Vec<String> {
        let (resources, verbs) = (texts(&rule["resources"]), texts(&rule["verbs"]));
        verbs.iter().flat_map(|verb| resources.iter().map(move |of| format!("{verb} {of}"))).collect()
    };
    Ok(rules.into_iter().flat_map(rights).collect())
}

pub(crate) fn spec(sha256: &str) -> Value {
    json!({
        "source": { "configMap": { "name": "labeller", "key": "plugin.wasm", "sha256": sha256 } },
        "serviceAccountName": "labeller",
        "watch": { "sections": ["labels"] },
        "grants": { "read": { "pods": { "sections": ["labels"] } }, "write": { "labels": [SEEN] } },
    })
}

/// Applies the object as `kubectl apply --server-side` does.
pub(crate) async fn apply(client: &Client, spec: &Value) -> Result<()> {
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
pub(crate) async fn condition(client: &Client, kind: &str, status: &str, reason: &str) -> Result<Value> {
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

pub(crate) async fn labelled(client: &Client, name: &str) -> Result<()> {
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), NAMESPACE);
    until("the label", SOON, async || label(&api.get(name).await?, SEEN).map(drop).ok_or_else(|| anyhow!("none"))).await
}

/// Returns the writes of the host's own account.
fn own_writes(plane: &ControlPlane, mark: Mark) -> Result<Vec<String>> {
    let writes = plane.audit().writes_of(HOST, mark)?;
    let own = writes.into_iter().filter(|write| write.impersonated.is_none());
    Ok(own.map(|write| format!("{} {} {}", write.verb, write.resource, write.code)).collect())
}

/// Returns the rights that the host's own account used.
fn used_rights(plane: &ControlPlane, mark: Mark) -> Result<BTreeSet<String>> {
    let requests = plane.audit().requests_of(HOST, mark)?.into_iter();
    let own = requests.filter(|request| request.impersonated.is_none());
    Ok(own.map(|request| format!("{} {}", request.verb, request.resource)).collect())
}

/// The host's account and its rights as `deploy/` has them, without the kinds.
pub(crate) async fn start(plane: &ControlPlane, client: &Client) -> Result<(HostOptions, Mark)> {
    Kubectl::new(plane).install(&["namespace.yaml", "rbac.yaml"])?;
    account(client, "podium", "default").await?;
    let kubeconfig = plane.kubeconfig_of("podium", "podium-host").await?;
    namespace(client, NAMESPACE).await?;
    plugin_rights(client).await?;
    let arguments = vec!["--watch-plugins".to_owned(), "--require-service-account".to_owned()];
    Ok((HostOptions { kubeconfig, plugins: Vec::new(), arguments }, plane.audit().now()?))
}

async fn a_plugin_of_the_cluster(client: &Client, sha256: &str) -> Result<()> {
    let mut of_cluster = spec(sha256);
    of_cluster["suspend"] = true.into();
    of_cluster["serviceAccountNamespace"] = NAMESPACE.into();
    let everywhere = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ClusterReconcilePlugin",
        "metadata": { "name": "everywhere" }, "spec": of_cluster,
    });
    create(client, CLUSTER_PLUGINS, everywhere).await?;
    until("the status of a plugin of the cluster", SOON, async || {
        let request = Request::get(format!("{CLUSTER_PLUGINS}/everywhere")).body(Vec::new())?;
        let object: Value = client.request(request).await?;
        ensure!(object["status"]["conditions"][4]["reason"] == "Suspended", "{}", object["status"]);
        Ok(())
    })
    .await
}

/// Creates 20 RunReports at once: the first is answered, and those beyond 8 are listed and deleted.
async fn questions(client: &Client) -> Result<()> {
    let reports = format!("/apis/podium.dev/v1alpha1/namespaces/{NAMESPACE}/runreports");
    for at in 0..20 {
        let metadata = json!({ "name": format!("q{at:02}") });
        let spec = json!({ "pod": { "name": "a" } });
        let report = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "RunReport", "metadata": metadata, "spec": spec,
        });
        create(client, &reports, report).await?;
    }
    until("an answer, and few questions", SOON, async || {
        let list: Value = client.request(Request::get(&reports).body(Vec::new())?).await?;
        let left = list["items"].as_array().context("no items")?;
        let answered = left.iter().filter(|report| !report["status"]["report"].is_null()).count();
        ensure!(answered > 0 && left.len() <= 12, "{} left, {answered} answered", left.len());
        Ok(())
    })
    .await
}

async fn other_objects(client: &Client, sha256: &str) -> Result<()> {
    a_plugin_of_the_cluster(client, sha256).await?;
    questions(client).await
}

/// Loses the answer to a write, so that the host reads the Pod as its own account.
async fn a_lost_answer(plane: &ControlPlane, client: &Client, link: &Link, mark: Mark) -> Result<()> {
    link.set(Faults::Lost(100));
    pod(client, NAMESPACE, "d").await?;
    labelled(client, "d").await?;
    link.set(Faults::None);
    until("a read of the Pod", SOON, async || {
        let used = used_rights(plane, mark)?;
        ensure!(used.contains("get pods"), "{used:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_loaded_changed_and_unloaded_as_its_status_says() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let (mut options, mark) = start(&plane, &client).await?;
    let state = tempfile::tempdir()?;
    options.arguments.extend(["--state-dir".to_owned(), state.path().to_string_lossy().into_owned()]);
    let link = Link::new(1);
    let proxy = link.proxy(&options.kubeconfig).await?;
    options.kubeconfig = proxy.kubeconfig_path().to_owned();
    let sha256 = config_map(&client, guests::component("good")?).await?;
    pod(&client, NAMESPACE, "a").await?;

    // Without the definitions the host is ready, says so, and finds them when they are there.
    let host = Host::spawn(&options).await?;
    ensure!(host.log().contains("apply its CustomResourceDefinition"), "{}", host.log());
    Kubectl::new(&plane).install(&["crds.yaml"])?;
    until("the kind", SOON, async || apply(&client, &spec(&sha256)).await).await?;
    let ready = condition(&client, "Ready", "True", "Running").await?;
    labelled(&client, "a").await?;
    let active = &ready["status"]["active"];
    ensure!(active["digest"] == format!("sha256:{sha256}") && active["generation"] == 1, "{active}");
    ensure!(active["imports"].as_array().is_some_and(|imports| !imports.is_empty()), "{active}");
    // As the API server stored them, with the defaults.
    ensure!(active["grants"] == ready["spec"]["grants"] && active["grants"]["write"]["labels"][0] == SEEN, "{active}");

    // A changed configuration is another version.
    let mut changed = spec(&sha256);
    changed["config"] = json!({ "threshold": 5 });
    apply(&client, &changed).await?;
    let swapped = condition(&client, "Ready", "True", "Running").await?;
    ensure!(swapped["status"]["active"]["generation"] == 2, "{}", swapped["status"]);

    // A component of another digest is not run, and the version before continues.
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

    other_objects(&client, &sha256).await.with_context(|| host.log())?;

    // Narrower grants apply at once, although the component exceeds them.
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

    a_lost_answer(&plane, &client, &link, mark).await?;

    let mut suspended = changed.clone();
    suspended["suspend"] = true.into();
    apply(&client, &suspended).await?;
    condition(&client, "Suspended", "True", "Suspended").await?;

    // A mistake that the schema of the kind cannot express.
    let mut mistaken = changed.clone();
    mistaken["watch"]["selector"] = json!({ "matchLabels": { "no label": "x" } });
    apply(&client, &mistaken).await?;
    let refused = condition(&client, "Ready", "False", "InvalidSpec").await?;
    ensure!(refused.to_string().contains("spec.watch.selector.matchLabels"), "{refused}");

    apply(&client, &changed).await?;
    condition(&client, "Ready", "True", "Running").await?;
    client.request::<Value>(Request::delete(format!("{PLUGINS}/labeller")).body(Vec::new())?).await?;
    until("the end of its series", SOON, async || {
        let metrics = host.get("/metrics").await?;
        ensure!(!metrics.contains("objects/labeller"), "they are there");
        Ok(())
    })
    .await?;

    // The host's own account writes statuses and Events. It used each of its rights, and no request was refused.
    let own = own_writes(&plane, mark)?;
    let known = ["patch reconcileplugins/status 200", "patch clusterreconcileplugins/status 200"];
    let reports = ["patch runreports/status 200", "delete runreports 200"];
    let known = [&known[..], &reports, &["create events 201", "patch events 200"]].concat();
    ensure!(!own.is_empty() && own.iter().all(|write| known.contains(&write.as_str())), "{own:?}");
    let requests = plane.audit().requests_of(HOST, mark)?;
    ensure!(requests.iter().all(|request| request.code != 403), "{requests:?}");
    let used = used_rights(&plane, mark)?;
    // A list in pages is only for API servers that refuse lists as watches, and reads of Leases are not in the log.
    let is_unused = |right: &String| !used.contains(right) && !["list pods", "get leases"].contains(&&**right);
    let unused: Vec<_> = shipped_rights()?.into_iter().filter(is_unused).collect();
    ensure!(unused.is_empty(), "{unused:?} of {used:?}");
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
    Kubectl::new(&plane).install(&["crds.yaml"])?;
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
