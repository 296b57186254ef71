//! `podium why` of a tenant with rights in one namespace only: by a RunReport, on a real API server with the roles
//! and the admission policy in `deploy/`.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Result, ensure};
use kube::Client;
use podium_tests::{
    guests,
    process::{Host, podium_binary},
    runner,
    wait::until,
};
use podium_vocabulary::Language;
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::{Kubectl, stderr},
    objects::{NAMESPACE, PLUGINS, apply, condition, config_map, labelled, spec, start},
    workloads::{account, create, namespace, pod},
};

const SOON: Duration = Duration::from_secs(60);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn podium(kubeconfig: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(podium_binary()?);
    command.arg("why").args(arguments).arg("--kubeconfig").arg(kubeconfig);
    for of_host in ["PODIUM_TOKEN", "PODIUM_SERVER"] {
        command.env_remove(of_host);
    }
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Requires that no tenant, and no administrator later, sets metadata that keeps an object or makes it large.
fn metadata_is_bounded(kubectl: &Kubectl) -> Result<()> {
    let annotations = |size: usize| json!({ "x": "x".repeat(size) });
    let labels: serde_json::Map<_, _> = (0..9).map(|at| (format!("l{at}"), json!("x"))).collect();
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1" });
    for (field, value, message) in [
        ("finalizers", json!(["a.example/keep"]), "no finalizers"),
        ("ownerReferences", json!([owner]), "no ownerReferences"),
        ("labels", json!(labels), "at most 8 labels"),
        ("annotations", annotations(1025), "8 annotations of 1024 characters"),
        ("annotations", annotations(1024), ""),
    ] {
        let mut metadata = json!({ "namespace": NAMESPACE, "name": "bounded" });
        metadata[field] = value;
        let report = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "RunReport", "metadata": metadata,
            "spec": { "pod": { "name": "a" } },
        });
        let user = "system:serviceaccount:objects:alice";
        let made = kubectl.run(user, &["create", "-f", "-"], report.to_string().as_bytes())?;
        ensure!(made.status.success() == message.is_empty(), "{field}: {}", stderr(&made));
        ensure!(stderr(&made).contains(message), "{message}: {}", stderr(&made));
    }
    let finalizer = r#"{"metadata": {"finalizers": ["a.example/keep"]}}"#;
    let patch = ["-n", NAMESPACE, "patch", "runreport", "bounded", "--type", "merge", "-p", finalizer];
    let kept = kubectl.admin(&patch).err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(kept.contains("no finalizers"), "also of a change: {kept}");
    let question = r#"{"spec": {"pod": {"name": "b"}}}"#;
    let patch = ["-n", NAMESPACE, "patch", "runreport", "bounded", "--type", "merge", "-p", question];
    let changed = kubectl.admin(&patch).err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(changed.contains("cannot be changed; create another RunReport"), "{changed}");
    Ok(())
}

/// Creates a plugin of the tenant.
async fn plugin(client: &Client, name: &str, spec: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    });
    create(client, PLUGINS, object).await
}

/// Waits until `podium why` names this reason about the Pod and a plugin, in a message with this part.
async fn expect(alice: &Path, plugin: &str, reason: &str, part: &str) -> Result<()> {
    until(&format!("{plugin}: {reason}"), SOON, async || {
        let why = podium(alice, &["objects/a", "--plugin", plugin, "--output", "json"]).await?;
        let why: Value = serde_json::from_slice(&why.stdout)?;
        let reasons = why["plugins"]["items"][0]["reasons"].as_array().cloned().unwrap_or_default();
        let text = |found: &Value| found["message"].as_str().unwrap_or_default().to_lowercase();
        let is_it = |found: &Value| found["reason"] == reason && text(found).contains(&part.to_lowercase());
        ensure!(reasons.iter().any(is_it), "{why}");
        Ok(())
    })
    .await
}

/// Plugins of the tenant that do not run, each for a reason of its own.
async fn that_do_not_run(client: &Client, alice: &Path, sha256: &str) -> Result<()> {
    let without = |field: &str, value: Value| {
        let mut spec = spec(sha256);
        spec[field] = value;
        spec
    };
    let place = json!({ "configMap": { "name": "labeller", "key": "plugin.wasm", "sha256": "0".repeat(64) } });
    let groups = json!({ "sections": ["labels"], "related": { "by": "label", "label": "team" } });
    for (name, spec) in [
        ("suspended", without("suspend", json!(true))),
        ("narrow", without("watch", json!({ "selector": { "matchLabels": { "app": "none" } } }))),
        ("changed", without("source", place)),
        ("grouped", without("watch", groups)),
        ("powerless", without("serviceAccountName", json!("powerless"))),
    ] {
        plugin(client, name, &spec).await?;
    }
    for (plugin, reason, part) in [
        ("suspended", "Suspended", "spec.suspend"),
        ("narrow", "SelectorDoesNotMatch", ""),
        ("changed", "NotReady", "sha256"),
        ("grouped", "NoGroup", "the Pod has no label team"),
        ("powerless", "NotReady", "objects:powerless may not get ConfigMap objects/labeller"),
        ("labeller", "RequeueAfter", "asked for the next one"),
    ] {
        expect(alice, plugin, reason, part).await?;
    }
    Ok(())
}

/// Scripts of the tenant that run and do not reach what they are for, each for a reason of its own.
async fn that_achieve_nothing(client: &Client, alice: &Path, kubectl: &Kubectl) -> Result<()> {
    let script = |body: &str, section: &str, fields: Value| {
        let inline = format!(
            "import {{ writes, TerminalError }} from \"podium\";\nexport default ({{ pod }}) => {{\n  {body}\n}};\n"
        );
        let mut spec = json!({
            "source": { "script": { "language": "javascript", "inline": inline } },
            "serviceAccountName": "labeller", "watch": { "sections": [section] },
            "grants": {
                "read": { "pods": { "sections": ["labels", "annotations"] } },
                "write": { "labels": ["example.com/written"] },
            },
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    let none = || json!({});
    let label = "if (pod) writes.setLabel(pod, \"example.com/written\", \"1\");";
    let scripts = [
        ("failing", script("throw new Error(\"no price\");", "labels", none())),
        ("hopeless", script("throw new TerminalError(\"no price ever\");", "labels", none())),
        ("guard", script("return { stop: true };", "labels", none())),
        ("follower", script("", "labels", json!({ "after": ["guard"] }))),
        ("elsewhere", script("", "annotations", none())),
        ("refused", script(label, "labels", json!({ "serviceAccountName": "powerless" }))),
        ("content", script("", "labels", none())),
    ];
    for (name, spec) in &scripts {
        plugin(client, name, spec).await?;
    }
    for (name, _) in &scripts {
        let name = format!("reconcileplugin/{name}");
        kubectl.admin(&["-n", NAMESPACE, "wait", "--for=condition=Ready", &name, "--timeout=60s"])?;
    }
    kubectl.admin(&["-n", NAMESPACE, "label", "pod", "a", "team=web"])?;
    for (plugin, reason, part) in [
        ("failing", "BackOff", ""),
        ("hopeless", "Failed", ""),
        ("follower", "Stopped", "guard"),
        ("elsewhere", "SectionNotWatched", "the plugin watches: annotations"),
        ("refused", "Forbidden", "to patch pods"),
        ("content", "Settled", ""),
    ] {
        expect(alice, plugin, reason, part).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_asks_about_pods_that_it_may_get_and_no_others() -> Result<()> {
    let runner = runner::component(Language::JavaScript)?;
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    let (mut options, _) = start(&plane, &client).await?;
    let runners = tempfile::tempdir()?;
    if let Some(runner) = &runner {
        fs::copy(runner, runners.path().join("javascript-1.wasm"))?;
    }
    options.arguments.extend(["--runners".to_owned(), runners.path().to_string_lossy().into_owned()]);
    kubectl.install(&["crds.yaml", "roles.yaml", "admission-runreports.yaml"])?;
    kubectl.admin(&["wait", "--for=condition=Established", "crd", "--all"])?;
    namespace(&client, "neighbour").await?;
    // alice has the role `edit`, bob may create RunReports and may not get Pods.
    let rules = json!([{
        "apiGroups": ["podium.dev"], "resources": ["runreports"], "verbs": ["create", "get", "delete"],
    }]);
    create(&client, &format!("{RBAC}/clusterroles"), json!({ "metadata": { "name": "asks" }, "rules": rules })).await?;
    for (user, role) in [("alice", "edit"), ("bob", "asks")] {
        account(&client, NAMESPACE, user).await?;
        let subject = json!({ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": user });
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role });
        let binding = json!({ "metadata": { "name": user }, "roleRef": role, "subjects": [subject] });
        create(&client, &format!("{RBAC}/namespaces/{NAMESPACE}/rolebindings"), binding).await?;
    }
    let sha256 = config_map(&client, guests::component("good")?).await?;
    pod(&client, NAMESPACE, "a").await?;
    let host = Host::spawn(&options).await?;
    until("the kind", SOON, async || apply(&client, &spec(&sha256)).await).await?;
    condition(&client, "Ready", "True", "Running").await?;
    labelled(&client, "a").await?;

    let alice = plane.kubeconfig_of(NAMESPACE, "alice").await?;
    // The roles of `edit` are aggregated by a controller some time after the start.
    let why = until("an answer", SOON, async || {
        let why = podium(&alice, &["-n", NAMESPACE, "a"]).await?;
        ensure!(why.status.success(), "{}", stderr(&why));
        Ok(String::from_utf8(why.stdout)?)
    })
    .await?;
    for part in ["objects/a at revision ", "\nobjects/labeller  loaded\n  ", "last run ", "of the cluster are not"] {
        ensure!(why.contains(part), "{part}: {why}");
    }
    let gone = podium(&alice, &["objects/never", "--plugin", "labeller", "--output", "json"]).await?;
    let gone: Value = serde_json::from_slice(&gone.stdout)?;
    ensure!(gone["plugins"]["items"][0]["reasons"][0]["reason"] == "PodUnknown" && gone["uid"].is_null(), "{gone}");
    let none = stderr(&podium(&alice, &["objects/a", "--plugin", "none"]).await?);
    ensure!(none.contains("no ReconcilePlugin objects/none is configured"), "{none}");
    account(&client, NAMESPACE, "powerless").await?;
    that_do_not_run(&client, &alice, &sha256).await?;
    if runner.is_some() {
        that_achieve_nothing(&client, &alice, &kubectl).await?;
    }
    let left = kubectl.admin(&["-n", NAMESPACE, "get", "runreports", "-o", "name"])?;
    ensure!(left.is_empty(), "podium deletes what it made: {left}");

    let elsewhere = stderr(&podium(&alice, &["neighbour/a"]).await?);
    ensure!(elsewhere.contains("cannot create resource") && elsewhere.contains("ClusterRole edit"), "{elsewhere}");
    let bob = plane.kubeconfig_of(NAMESPACE, "bob").await?;
    // The policy holds a moment after it was created, and the rights too.
    until("the refusal of bob", SOON, async || {
        let refused = stderr(&podium(&bob, &["objects/a"]).await?);
        ensure!(refused.contains("bob may not get the pod a in objects"), "{refused}");
        Ok(())
    })
    .await?;

    // No name leads elsewhere.
    for (spec, message) in [
        (json!({ "pod": { "name": "../neighbour/a" } }), "spec.pod.name: Invalid value"),
        (json!({ "pod": { "name": "a" }, "plugin": "neighbour/x" }), "spec.plugin: Invalid value"),
        (json!({}), "spec.pod: Required value"),
    ] {
        let metadata = json!({ "namespace": NAMESPACE, "name": "odd" });
        let report = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "RunReport", "metadata": metadata, "spec": spec,
        });
        let input = report.to_string();
        let user = "system:serviceaccount:objects:alice";
        let refused = stderr(&kubectl.run(user, &["create", "-f", "-"], input.as_bytes())?);
        ensure!(refused.contains(message), "{message}: {refused}");
    }
    metadata_is_bounded(&kubectl)?;
    ensure!(host.terminate().await?.success(), "it failed");
    let silent = stderr(&podium(&alice, &["objects/a"]).await?);
    ensure!(silent.contains("no host answered within 10 s"), "{silent}");
    Ok(())
}
