//! A plugin that holds finalizers of Pods is deleted: no Pod keeps one, also without the plugin's account and with a
//! host that is killed meanwhile, and the account that helps can do nothing else.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use podium_tests::{
    guests,
    process::{Host, HostOptions, podium_binary},
    wait::until,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::Kubectl,
    objects::{HOST, digest},
    workloads::{account, create, namespace, pod},
};

const SOON: Duration = Duration::from_secs(60);
/// The promise: no Pod has a finalizer so long after its plugin was deleted.
const PROMISED: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "finalizers";
const PLUGINS: &str = "/apis/podium.dev/v1alpha1/namespaces/finalizers/reconcileplugins";
const FINALIZER: &str = "guests.example/hold";
const CLEANUP: &str = "system:serviceaccount:podium:podium-cleanup";
const PODS: usize = 150;

async fn rights(client: &Client) -> Result<()> {
    account(client, NAMESPACE, "holder").await?;
    let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
    let rules = json!([
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["patch"] },
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] },
    ]);
    let host = json!([{ "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"] }]);
    for (name, rules, subject) in [("holder", rules, ("holder", NAMESPACE)), ("host", host, ("podium-host", "podium"))]
    {
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

async fn plugin(client: &Client, name: &str) -> Result<()> {
    let component = guests::component("probe")?;
    let object = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        binary_data: Some([("plugin.wasm".to_owned(), ByteString(component.to_vec()))].into()),
        ..ConfigMap::default()
    };
    Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &object).await?;
    let spec = json!({
        "source": { "configMap": { "name": name, "key": "plugin.wasm", "sha256": digest(&component) } },
        "serviceAccountName": "holder",
        "limits": { "class": "interpreter" },
        "config": { "script": format!("finalize {FINALIZER}") },
        // The component imports all reads and Events.
        "grants": {
            "read": { "pods": { "sections": ["labels"] } },
            "write": { "finalizers": [FINALIZER], "events": true },
        },
    });
    let object = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    });
    until("the kind", SOON, async || create(client, PLUGINS, object.clone()).await).await
}

/// Returns the number of Pods, and of those with the finalizer.
async fn held(client: &Client) -> Result<(usize, usize)> {
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await?.items;
    let has = |pod: &&Pod| pod.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER);
    Ok((pods.len(), pods.iter().filter(has).count()))
}

async fn object(client: &Client, name: &str) -> Result<Value> {
    Ok(client.request(Request::get(format!("{PLUGINS}/{name}")).body(Vec::new())?).await?)
}

/// The finalizer cannot be taken out of the grant; another one can be added.
fn a_grant_of_finalizers_only_grows(kubectl: &Kubectl) -> Result<()> {
    let grant =
        |finalizers: Value| json!({ "spec": { "grants": { "write": { "finalizers": finalizers } } } }).to_string();
    let patch = |finalizers: Value| {
        let patch = ["-n", NAMESPACE, "patch", "reconcileplugin", "holder", "--type=merge", "-p", &grant(finalizers)];
        kubectl.admin(&patch)
    };
    for narrower in [json!(null), json!([]), json!(["guests.example/other"])] {
        let refusal = patch(narrower.clone()).err().context("it was accepted")?.to_string();
        ensure!(refusal.contains("lacks a finalizer that it had"), "{narrower}: {refusal}");
    }
    patch(json!(["guests.example/other", FINALIZER]))?;
    Ok(())
}

/// A grant of no finalizers is the same as none: neither is a grant that became narrower.
async fn a_grant_of_none_may_come_and_go(client: &Client, kubectl: &Kubectl) -> Result<()> {
    let source = json!({ "configMap": { "name": "none", "key": "plugin.wasm", "sha256": "0".repeat(64) } });
    let object = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
        "metadata": { "name": "none", "namespace": NAMESPACE },
        "spec": { "source": source, "grants": { "write": { "finalizers": [] } } },
    });
    create(client, PLUGINS, object).await?;
    for grants in [json!({ "write": { "finalizers": null } }), json!({ "write": { "finalizers": [] } }), json!(null)] {
        let patch = json!({ "spec": { "grants": grants } }).to_string();
        kubectl.admin(&["-n", NAMESPACE, "patch", "reconcileplugin", "none", "--type=merge", "-p", &patch])?;
    }
    kubectl.admin(&["-n", NAMESPACE, "delete", "reconcileplugin", "none"])?;
    Ok(())
}

/// A second plugin with the name is refused, with both names.
async fn a_second_plugin_of_the_finalizer_is_refused(client: &Client) -> Result<()> {
    plugin(client, "second").await?;
    until("the refusal", SOON, async || {
        let status = object(client, "second").await?["status"].to_string();
        ensure!(status.contains("finalizers/holder") && status.contains("finalizers/second"), "{status}");
        Ok(())
    })
    .await?;
    client.request::<Value>(Request::delete(format!("{PLUGINS}/second")).body(Vec::new())?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_keeps_a_finalizer_of_a_deleted_plugin() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    kubectl.install(&["namespace.yaml", "rbac.yaml", "crds.yaml", "cleanup.yaml", "admission-cleanup.yaml"])?;
    let kubeconfig = plane.kubeconfig_of("podium", "podium-host").await?;
    namespace(&client, NAMESPACE).await?;
    rights(&client).await?;
    let flags = ["--watch-plugins", "--require-service-account", "--cleanup-service-account", "podium/podium-cleanup"];
    let options = HostOptions {
        kubeconfig,
        plugins: Vec::new(),
        arguments: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    };
    let mark = plane.audit().now()?;
    for index in 0..PODS {
        pod(&client, NAMESPACE, &format!("cart-{index}")).await?;
    }
    plugin(&client, "holder").await?;
    let host = Host::spawn(&options).await?;
    until("every pod to be held", SOON, async || {
        let held = held(&client).await?;
        ensure!(held == (PODS, PODS), "{held:?}: {}", object(&client, "holder").await?["status"]);
        Ok(())
    })
    .await?;
    let finalizers = object(&client, "holder").await?["metadata"]["finalizers"].clone();
    ensure!(finalizers == json!(["podium.dev/pod-finalizers"]), "{finalizers}");

    a_grant_of_finalizers_only_grows(&kubectl)?;
    a_grant_of_none_may_come_and_go(&client, &kubectl).await?;
    a_second_plugin_of_the_finalizer_is_refused(&client).await?;

    // Half of the Pods are on their way out. The plugin goes together with its account's rights, and the host is
    // killed when it has begun.
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for index in 0..PODS / 2 {
        pods.delete(&format!("cart-{index}"), &DeleteParams { grace_period_seconds: Some(0), ..Default::default() })
            .await?;
    }
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings");
    for path in [format!("{bindings}/holder"), format!("{bindings}/host"), format!("{PLUGINS}/holder")] {
        client.request::<Value>(Request::delete(path).body(Vec::new())?).await?;
    }
    let deleted = tokio::time::Instant::now();
    until("the first pods to be released", SOON, async || {
        let (_, held) = held(&client).await?;
        ensure!(held < PODS, "none of {held}");
        Ok(())
    })
    .await?;
    host.kill().await?;
    let (_, left) = held(&client).await?;
    ensure!(left > 0, "the host was not killed in the middle");
    let host = Host::spawn(&options).await?;
    until("no pod to be held", SOON, async || {
        let held = held(&client).await?;
        ensure!(held == (PODS / 2, 0), "{held:?}");
        Ok(())
    })
    .await?;
    let took = deleted.elapsed();
    println!("{PODS} Pods released {took:?} after the deletion; {left} were left when the host was killed");
    ensure!(took < PROMISED, "{took:?}");
    until("the object to go", SOON, async || {
        ensure!(object(&client, "holder").await.is_err(), "it is there");
        Ok(())
    })
    .await?;
    until("the end of its series", SOON, async || {
        ensure!(!host.get("/metrics").await?.contains("finalizers/holder"), "they are there");
        Ok(())
    })
    .await?;
    let writes = plane.audit().writes_of(HOST, mark)?;
    let by_cleanup = writes.iter().filter(|write| write.impersonated.as_deref() == Some(CLEANUP) && write.code == 200);
    let by_cleanup = by_cleanup.count();
    ensure!(by_cleanup > PODS / 2, "{by_cleanup} of {PODS}");
    cleanup_can_do_nothing_else(&kubectl, &client).await?;
    uninstalled(&plane.kubeconfig_path(), &client).await?;
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}

/// Kubernetes deletes the Pods first and waits for them, so the plugin's object is not deleted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_of_a_suspended_plugin_that_holds_pods_is_deleted() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    kubectl.install(&["namespace.yaml", "rbac.yaml", "crds.yaml", "cleanup.yaml", "admission-cleanup.yaml"])?;
    namespace(&client, NAMESPACE).await?;
    rights(&client).await?;
    for index in 0..3 {
        pod(&client, NAMESPACE, &format!("cart-{index}")).await?;
    }
    plugin(&client, "holder").await?;
    let flags = ["--watch-plugins", "--require-service-account", "--cleanup-service-account", "podium/podium-cleanup"];
    let kubeconfig = plane.kubeconfig_of("podium", "podium-host").await?;
    let arguments = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let host = Host::spawn(&HostOptions { kubeconfig, plugins: Vec::new(), arguments }).await?;
    until("every pod to be held", SOON, async || {
        let held = held(&client).await?;
        ensure!(held == (3, 3), "{held:?}: {}", object(&client, "holder").await?["status"]);
        Ok(())
    })
    .await?;
    let suspend = ["-n", NAMESPACE, "patch", "reconcileplugin", "holder", "--type=merge", "-p"];
    kubectl.admin(&[&suspend[..], &[r#"{ "spec": { "suspend": true } }"#]].concat())?;
    until("the suspension", SOON, async || {
        let status = object(&client, "holder").await?["status"].clone();
        ensure!(status["conditions"].to_string().contains("Suspended"), "{status}");
        ensure!(status["finalizers"]["names"] == json!([FINALIZER]), "{status}");
        Ok(())
    })
    .await?;

    kubectl.admin(&["delete", "namespace", NAMESPACE, "--wait=false"])?;
    let deleted = tokio::time::Instant::now();
    until("the release", 3 * SOON, async || {
        let shown = object(&client, "holder").await.map(|object| object["status"].to_string());
        ensure!(shown.is_err() || held(&client).await? == (0, 0), "{:?}: {shown:?}", held(&client).await?);
        Ok(())
    })
    .await?;
    ensure!(deleted.elapsed() > SOON, "after {:?}", deleted.elapsed());
    until("the namespace to go", SOON, async || {
        let path = format!("/api/v1/namespaces/{NAMESPACE}");
        let there = client.request::<Value>(Request::get(path).body(Vec::new())?).await;
        ensure!(there.is_err(), "{there:?}");
        Ok(())
    })
    .await?;
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}

/// Sends a merge patch as another user, and returns the message of a refusal. kubectl would read the object before.
async fn refusal(client: &Client, user: &str, path: &str, patch: &Value) -> Result<Option<String>> {
    let request = Request::patch(path)
        .header("impersonate-user", user)
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string().into_bytes())?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

async fn cleanup_can_do_nothing_else(kubectl: &Kubectl, client: &Client) -> Result<()> {
    // Of services, so no controller removes it from a Pod.
    let kept = "service.kubernetes.io/load-balancer-cleanup";
    let finalizers = json!({ "metadata": { "finalizers": [FINALIZER, kept] } });
    let name = format!("cart-{}", PODS - 1);
    kubectl.admin(&["-n", NAMESPACE, "patch", "pod", &name, "--type=merge", "-p", &finalizers.to_string()])?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}");
    for (change, expected) in [
        (json!({ "metadata": { "labels": { "a": "b" } } }), "only remove one finalizer"),
        (json!({ "metadata": { "labels": { "a": "b" }, "finalizers": [kept] } }), "nothing but finalizers"),
        (json!({ "metadata": { "finalizers": [FINALIZER] } }), "finalizers of Kubernetes"),
        (json!({ "metadata": { "finalizers": [] } }), "only remove one finalizer"),
        (json!({ "metadata": { "finalizers": [kept, "guests.example/other"] } }), "only remove one finalizer"),
    ] {
        let refused = refusal(client, CLEANUP, &path, &change).await?;
        ensure!(refused.as_ref().is_some_and(|message| message.contains(expected)), "{change}: {refused:?}");
    }
    let refused = refusal(client, CLEANUP, &path, &json!({ "metadata": { "finalizers": [kept] } })).await?;
    ensure!(refused.is_none(), "{refused:?}");
    // The host's account changes nothing of a plugin but the host's finalizer.
    plugin(client, "kept").await?;
    let refused = refusal(client, HOST, &format!("{PLUGINS}/kept"), &json!({ "spec": { "suspend": true } })).await?;
    ensure!(refused.as_ref().is_some_and(|message| message.contains("only the finalizer")), "{refused:?}");
    Ok(())
}

/// `podium uninstall` deletes the plugin that is left, and the kinds.
async fn uninstalled(kubeconfig: &std::path::Path, client: &Client) -> Result<()> {
    let podium = |arguments: &[&str]| {
        let mut command = std::process::Command::new(podium_binary()?);
        command.arg("uninstall").arg("--kubeconfig").arg(kubeconfig).args(["--output", "json"]).args(arguments);
        let output = command.output()?;
        let text = String::from_utf8(output.stdout)?;
        let json: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        anyhow::Ok((output.status.code(), json))
    };
    let (code, listed) = podium(&[])?;
    ensure!(code == Some(1) && listed["error"].to_string().contains("finalizers/kept"), "{code:?} {listed}");
    let (code, done) = podium(&["--yes", "--crds"])?;
    ensure!(code == Some(0) && done["deleted"] == json!(["finalizers/kept"]), "{code:?} {done}");
    until("the kinds to go", SOON, async || {
        ensure!(client.request::<Value>(Request::get(PLUGINS).body(Vec::new())?).await.is_err(), "they are there");
        Ok(())
    })
    .await
}
