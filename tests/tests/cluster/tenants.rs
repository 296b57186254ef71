//! Plugin objects that the API server itself refuses: by the schema of their kinds, and by the admission policies in
//! `deploy/`. No host runs.

use std::{process::Output, time::Duration};

use anyhow::{Result, ensure};
use kube::Client;
use podium_tests::{controlplane::ControlPlane, wait::until};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::{Kubectl, stderr},
    workloads::{account, create, namespace},
};

const SOON: Duration = Duration::from_secs(60);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const API_VERSION: &str = "podium.dev/v1alpha1";

fn spec() -> Value {
    json!({
        "source": { "configMap": { "name": "tidy", "key": "plugin.wasm", "sha256": "0".repeat(64) } },
        "serviceAccountName": "tidy",
        "watch": { "selector": { "matchLabels": { "app": "cart" } }, "sections": ["labels"] },
        "grants": { "read": { "pods": { "sections": ["labels"] } }, "write": { "labels": ["shop.example/x"] } },
    })
}

fn plugin(name: &str, spec: &Value) -> Value {
    let metadata = json!({ "namespace": "shop", "name": name });
    json!({ "apiVersion": API_VERSION, "kind": "ReconcilePlugin", "metadata": metadata, "spec": spec })
}

fn cluster_plugin(name: &str, spec: &Value) -> Value {
    let metadata = json!({ "name": name });
    json!({ "apiVersion": API_VERSION, "kind": "ClusterReconcilePlugin", "metadata": metadata, "spec": spec })
}

/// A spec with another value at a path such as `limits.writes`; `null` removes the field.
fn with(path: &str, value: Value) -> Value {
    let mut spec = spec();
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = parents.split('.').filter(|part| !part.is_empty()).fold(&mut spec, |below, part| &mut below[part]);
    match value {
        Value::Null => drop(parent.as_object_mut().map(|fields| fields.remove(last))),
        value => parent[last] = value,
    }
    spec
}

fn apply(kubectl: &Kubectl, user: &str, object: &Value) -> Result<Output> {
    kubectl.run(user, &["apply", "-f", "-"], object.to_string().as_bytes())
}

fn granted(output: &Output) -> Result<()> {
    ensure!(output.status.success(), "{}", stderr(output));
    Ok(())
}

/// Binds a role of the cluster to a user: in the namespace shop, or in all.
async fn bind(client: &Client, role: &str, user: &str, everywhere: bool) -> Result<()> {
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user});
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let name = format!("{user}-{role}");
    let object = json!({"metadata": {"name": name}, "roleRef": role_ref, "subjects": [subject]});
    let path = if everywhere { "clusterrolebindings" } else { "namespaces/shop/rolebindings" };
    create(client, &format!("{RBAC}/{path}"), object).await
}

async fn role(client: &Client, name: &str, group: &str, resources: &[&str], verbs: &[&str]) -> Result<()> {
    let rules = json!([{"apiGroups": [group], "resources": resources, "verbs": verbs}]);
    create(client, &format!("{RBAC}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules})).await
}

/// Installs the kinds, for users who may do more or less: `alice` administers the namespace, `bob` may only manage
/// plugins, `eve` may also create Pods, but not read them.
async fn installed(plane: &ControlPlane, client: &Client) -> Result<Kubectl> {
    let kubectl = Kubectl::new(plane);
    kubectl.install(&["namespace.yaml", "crds.yaml", "rbac.yaml", "roles.yaml"])?;
    kubectl.admin(&["wait", "--for=condition=Established", "crd", "--all"])?;
    namespace(client, "shop").await?;
    account(client, "shop", "tidy").await?;
    let plugins = ["reconcileplugins", "clusterreconcileplugins"];
    role(client, "plugins", "podium.dev", &plugins, &["get", "list", "create", "update", "patch", "delete"]).await?;
    role(client, "creates-pods", "", &["pods"], &["create"]).await?;
    role(client, "reads-pods", "", &["pods"], &["get", "list", "watch"]).await?;
    role(client, "impersonates", "", &["serviceaccounts"], &["impersonate"]).await?;
    role(client, "patches-pods", "", &["pods"], &["patch"]).await?;
    bind(client, "admin", "alice", false).await?;
    for user in ["bob", "eve"] {
        bind(client, "plugins", user, true).await?;
    }
    bind(client, "creates-pods", "eve", false).await?;
    // The roles of `admin` are aggregated by a controller some time after the start.
    until("an administrator of a namespace to create a plugin", SOON, async || {
        granted(&apply(&kubectl, "alice", &plugin("first", &spec()))?)
    })
    .await?;
    Ok(kubectl)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_is_refused_by_the_schema_with_its_field() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = installed(&plane, &client).await?;
    for (path, value, message) in [
        ("source", json!({}), "spec.source: Invalid value: names no place of the component"),
        ("source.configMap.sha256", Value::Null, "spec.source.configMap.sha256: Required value"),
        (
            "source.configMap.sha256",
            "latest".into(),
            "sha256: Invalid value: \"latest\": must be 64 hexadecimal digits",
        ),
        ("source.file", "/etc/passwd".into(), "unknown field \"spec.source.file\""),
        (
            "source.oci",
            json!({"image": "registry.example/a:1"}),
            "spec.source: Invalid value: names more than one place",
        ),
        (
            "source",
            json!({"oci": {"image": "team/a:1"}}),
            "image: Invalid value: \"team/a:1\": must begin with the host",
        ),
        ("source", json!({"oci": {"image": "registry.example/a"}}), "spec.source.oci.image: Invalid value"),
        ("watch.sections", json!(["labels", "status"]), "a section that grants.read.pods.sections does not have"),
        ("watch.sections", json!(["colour"]), "spec.watch.sections[0]: Unsupported value: \"colour\""),
        ("watch.resyncSeconds", 1.into(), "spec.watch.resyncSeconds: Invalid value: 1"),
        (
            "watch.related",
            json!({"by": "label"}),
            "spec.watch.related: Invalid value: label is required with by: label",
        ),
        ("watch.related", json!({"by": "node", "label": "app"}), "label is required with by: label, and invalid"),
        (
            "watch.related",
            json!({"by": "workload"}),
            "watch.related needs sections that grants.read.pods.sections does",
        ),
        ("watch.related", json!({"by": "owner"}), "spec.watch.related.by: Unsupported value: \"owner\""),
        ("watch.related", json!({"by": "node", "debounceSeconds": 0}), "related.debounceSeconds: Invalid value: 0"),
        ("watch.selector.matchExpressions", json!([{"key": "a", "operator": "In"}]), "need at least one value"),
        (
            "watch.selector.matchExpressions",
            json!([{"key": "a", "operator": "Exists", "values": ["b"]}]),
            "take no values",
        ),
        ("limits", json!({"cpuMillis": 5_000}), "spec.limits: Invalid value: cpuMillis is more than wallMillis"),
        ("limits", json!({"class": "interpreter", "reuse": 2}), "spec.limits: Invalid value: reuse above 1"),
        ("limits", json!({"memoryMiB": 4_096}), "spec.limits.memoryMiB: Invalid value: 4096"),
        ("limit", json!({}), "unknown field \"spec.limit\""),
        ("phase", "first".into(), "spec.phase: Unsupported value: \"first\""),
        ("after", json!(vec!["a"; 33]), "spec.after: Too many: 33"),
        ("grants.write.labels", json!(["*"]), "labels[0]: Invalid value: \"*\": may have a '*' only after"),
        ("after", json!(["other", "broken"]), "spec.after names the plugin itself; remove its name"),
        (
            "grants.write.objects",
            json!([{"apiVersion": "v1", "kind": "Namespace", "resource": "namespaces"}]),
            "spec.grants.write.objects[0]: Invalid value: objects of this kind have no namespace",
        ),
        (
            "grants.write.objects",
            json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "resource": "clusterroles"}]),
            "objects of this kind have no namespace",
        ),
        (
            "grants.write.labels",
            json!(["kubernetes.io/*"]),
            "spec.grants.write.labels[0]: Invalid value: \"kubernetes.io/*\": is of a reserved",
        ),
        (
            "grants.write.conditions",
            json!(["Ready"]),
            "spec.grants.write.conditions[0]: Invalid value: \"Ready\": belongs to Kubernetes",
        ),
        (
            "grants.write.objects",
            json!([{"apiVersion": "v1", "kind": "Pod", "resource": "pods"}]),
            "spec.grants.write.objects[0].kind: Invalid value: \"Pod\": Pods are not written as",
        ),
        ("serviceAccountNamespace", "bank".into(), "unknown field \"spec.serviceAccountNamespace\""),
    ] {
        let refused = apply(&kubectl, "alice", &plugin("broken", &with(path, value.clone())))?;
        ensure!(
            !refused.status.success() && stderr(&refused).contains(message),
            "{path} {value}: {}",
            stderr(&refused)
        );
    }
    for (field, message) in [
        ("serviceAccountName", "serviceAccountName and serviceAccountNamespace go together"),
        ("serviceAccountNamespace", "serviceAccountName and serviceAccountNamespace go together"),
    ] {
        let mut spec = with("serviceAccountNamespace", "shop".into());
        spec[field] = Value::Null;
        let refused = apply(&kubectl, "bob", &cluster_plugin("broken", &spec))?;
        ensure!(stderr(&refused).contains(message), "{field}: {}", stderr(&refused));
    }

    let mut spec = with("serviceAccountName", Value::Null);
    spec["source"] = json!({"oci": {"image": "registry.example/a:1", "pullSecretName": "pull"}});
    let refused = apply(&kubectl, "alice", &plugin("broken", &spec))?;
    ensure!(stderr(&refused).contains("serviceAccountName is missing: source.oci.pullSecretName"), "{refused:?}");
    spec["serviceAccountName"] = "tidy".into();
    granted(&apply(&kubectl, "alice", &plugin("of-registry", &spec))?)?;

    // The limits that hold are in the object.
    let stored = kubectl.admin(&["-n", "shop", "get", "rp", "first", "-o", "json"])?;
    let stored: Value = serde_json::from_str(&stored)?;
    ensure!(stored["spec"]["limits"]["cpuMillis"] == 20 && stored["spec"]["phase"] == "main", "{stored}");
    let explained = kubectl.admin(&["explain", "reconcileplugin.spec.limits.cpuMillis"])?;
    ensure!(explained.contains("Milliseconds on the processor"), "{explained}");
    let listed = kubectl.admin(&["-n", "shop", "get", "podium"])?;
    ensure!(["READY", "REASON", "HEALTHY", "SUSPEND", "AGE"].iter().all(|column| listed.contains(column)), "{listed}");
    let wide = kubectl.admin(&["-n", "shop", "get", "podium", "--output=wide"])?;
    ensure!(wide.contains("DIGEST") && !listed.contains("DIGEST"), "{wide}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_beyond_its_authors_rights_is_refused() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = installed(&plane, &client).await?;
    granted(&apply(&kubectl, "bob", &plugin("early", &spec()))?)?;
    kubectl.install(&["admission-plugins.yaml"])?;
    let mut turn = 0;
    until("the policy to be in force", SOON, async || {
        turn += 1;
        let refused = apply(&kubectl, "bob", &plugin(&format!("own-{turn}"), &spec()))?;
        ensure!(stderr(&refused).contains("bob may neither create pods in shop nor impersonate tidy"), "{refused:?}");
        Ok(())
    })
    .await?;
    let reads = "spec.grants.read: eve may not get pods in shop";
    let refused = apply(&kubectl, "eve", &plugin("own", &spec()))?;
    ensure!(stderr(&refused).contains(reads), "{}", stderr(&refused));
    let refused = apply(&kubectl, "alice", &plugin("own", &with("serviceAccountName", Value::Null)))?;
    ensure!(stderr(&refused).contains("spec.serviceAccountName: is missing"), "{}", stderr(&refused));
    // A change of the spec is judged, by whomever; a label, the deletion in the foreground and its collector pass.
    let refused = apply(&kubectl, "bob", &plugin("early", &with("suspend", true.into())))?;
    ensure!(stderr(&refused).contains("bob may neither"), "{}", stderr(&refused));
    granted(&kubectl.run("bob", &["-n", "shop", "label", "rp", "early", "team=a"], b"")?)?;
    let delete = ["-n", "shop", "delete", "rp", "early", "--cascade=foreground", "--wait=false"];
    granted(&kubectl.run("bob", &delete, b"")?)?;
    until("the garbage collector, which looks for new kinds every 30 s", SOON, async || {
        let left = kubectl.admin(&["-n", "shop", "get", "rp", "early", "--ignore-not-found"])?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })
    .await?;

    // The host removes finalizers that the grant covers, so who may not patch Pods may not ask for them.
    for right in ["reads-pods", "creates-pods", "plugins"] {
        bind(&client, right, "mallory", false).await?;
    }
    until("the rights", SOON, async || granted(&apply(&kubectl, "mallory", &plugin("modest", &spec()))?)).await?;
    let finalizers = with("grants.write.finalizers", json!(["other.example/protects"]));
    for name in ["modest", "new"] {
        let refused = apply(&kubectl, "mallory", &plugin(name, &finalizers))?;
        let message = "spec.grants.write.finalizers: mallory may not patch pods in shop";
        ensure!(!refused.status.success() && stderr(&refused).contains(message), "{}", stderr(&refused));
    }

    what_the_account_may_not_is_a_warning(&kubectl, &client).await
}

/// Alice may do all of it, and is warned that the account may not.
async fn what_the_account_may_not_is_a_warning(kubectl: &Kubectl, client: &Client) -> Result<()> {
    let mut all = with(
        "grants.write",
        json!({
            "labels": ["shop.example/x"], "annotations": ["shop.example/x"], "finalizers": ["shop.example/x"],
            "conditions": ["shop.example/X"], "events": true, "delete": true, "evict": true,
            "objects": [
                {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"},
                {"apiVersion": "apps/v1", "kind": "Deployment", "resource": "deployments"},
                {"apiVersion": "batch/v1", "kind": "Job", "resource": "jobs"},
                {"apiVersion": "batch/v1", "kind": "CronJob", "resource": "cronjobs"},
            ],
            "scale": [{"apiVersion": "apps/v1", "kind": "Deployment", "resource": "deployments"}],
        }),
    );
    all["grants"]["read"]["pods"]["live"] = true.into();
    all["grants"]["read"]["objects"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "resource": "jobs"}]);
    let warned = apply(kubectl, "alice", &plugin("all", &all))?;
    granted(&warned)?;
    for message in [
        "spec.grants.write.labels: system:serviceaccount:shop:tidy may not patch pods in shop",
        "spec.grants.write.annotations: ",
        "spec.grants.write.finalizers: ",
        "spec.grants.write.conditions: system:serviceaccount:shop:tidy may not patch pods/status in shop",
        "spec.grants.write.events: system:serviceaccount:shop:tidy may not create events in shop",
        "spec.grants.write.delete: system:serviceaccount:shop:tidy may not delete pods in shop",
        "spec.grants.write.evict: system:serviceaccount:shop:tidy may not create pods/eviction in shop",
        "spec.grants.read.pods.live: system:serviceaccount:shop:tidy may not get pods in shop",
        "spec.source.configMap: system:serviceaccount:shop:tidy may not get the ConfigMap tidy in shop",
        "spec.grants.read.objects: system:serviceaccount:shop:tidy may not get all of jobs in shop",
        "spec.grants.write.objects: system:serviceaccount:shop:tidy may not patch",
        "spec.grants.write.scale: system:serviceaccount:shop:tidy may not get and patch all of deployments/scale in \
         shop",
    ] {
        ensure!(stderr(&warned).contains(message), "{message}: {}", stderr(&warned));
    }
    // The cost of a rule is bounded by the API server: many kinds are stored, and 16 are compared.
    let kinds = |count| -> Value {
        let kind =
            |at| json!({"apiVersion": "shop.example/v1", "kind": format!("K{at}"), "resource": format!("k{at}")});
        (0..count).map(kind).collect()
    };
    for count in [16, 256] {
        let many = with("grants.write", json!({ "objects": kinds(count) }));
        let warned = apply(kubectl, "alice", &plugin(&format!("many-{count}"), &many))?;
        granted(&warned)?;
        ensure!(count > 16 || stderr(&warned).contains("may not patch all of k0, k1"), "{}", stderr(&warned));
    }
    let source = json!({"oci": {"image": "registry.example/a:1", "pullSecretName": "pull"}});
    let warned = apply(kubectl, "alice", &plugin("of-registry", &with("source", source)))?;
    granted(&warned)?;
    let message = "spec.source.oci.pullSecretName: system:serviceaccount:shop:tidy may not get the Secret pull in shop";
    ensure!(stderr(&warned).contains(message), "{}", stderr(&warned));
    let account = "system:serviceaccount:shop:tidy";
    bind(client, "patches-pods", account, false).await?;
    until("no warning of labels", SOON, async || {
        let warned = apply(
            kubectl,
            "alice",
            &plugin("all", &{
                all["suspend"] = true.into();
                all.clone()
            }),
        )?;
        kubectl.admin(&["-n", "shop", "delete", "rp", "all"])?;
        ensure!(!stderr(&warned).contains("write.labels"), "{}", stderr(&warned));
        ensure!(stderr(&warned).contains("write.delete"), "{}", stderr(&warned));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_plugin_beyond_its_authors_rights_is_refused() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = installed(&plane, &client).await?;
    kubectl.install(&["admission-plugins.yaml"])?;
    let everywhere = with("serviceAccountNamespace", "shop".into());
    // Of the namespace of the account, and of no other.
    let mut turn = 0;
    until("the policy to be in force", SOON, async || {
        turn += 1;
        let refused = apply(&kubectl, "bob", &cluster_plugin(&format!("own-{turn}"), &everywhere))?;
        ensure!(stderr(&refused).contains("bob may neither create pods in shop nor impersonate tidy"), "{refused:?}");
        Ok(())
    })
    .await?;
    let refused = apply(&kubectl, "eve", &cluster_plugin("own", &everywhere))?;
    ensure!(stderr(&refused).contains("eve may not get pods in all namespaces"), "{}", stderr(&refused));
    bind(&client, "reads-pods", "eve", false).await?;
    let refused = apply(&kubectl, "eve", &cluster_plugin("own", &everywhere))?;
    ensure!(stderr(&refused).contains("eve may not get pods in all namespaces"), "{}", stderr(&refused));
    bind(&client, "reads-pods", "eve", true).await?;
    // The policy on pods/status binds accounts of the host's namespace, and would not bind this one elsewhere.
    until("the right to read all Pods", SOON, async || {
        let refused = apply(&kubectl, "eve", &cluster_plugin("own", &everywhere))?;
        ensure!(stderr(&refused).contains("accounts of ClusterReconcilePlugins are in podium;"), "{refused:?}");
        Ok(())
    })
    .await?;
    bind(&client, "creates-pods", "eve", true).await?;
    let beside_the_host = with("serviceAccountNamespace", "podium".into());
    until("the right to use the account", SOON, async || {
        let warned = apply(&kubectl, "eve", &cluster_plugin("own", &beside_the_host))?;
        granted(&warned)?;
        let message =
            "spec.grants.write.labels: system:serviceaccount:podium:tidy may not patch pods in all namespaces";
        ensure!(stderr(&warned).contains(message), "{}", stderr(&warned));
        Ok(())
    })
    .await
}
