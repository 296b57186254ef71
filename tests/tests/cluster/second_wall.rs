//! The API server's own authorization of plugins, without the host's: the RBAC that `podium inspect` prints, and the
//! admission policies in `deploy/`.

use std::{
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use podium_tests::{
    process::{Host, HostOptions, podium_binary},
    wait::until,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::{Kubectl, stderr},
    plugins::{SEEN, write_labeller},
    workloads::{account, create, label, namespace, pod},
};

const SOON: Duration = Duration::from_secs(60);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A patch of a Pod's status, or of the Pod itself.
fn patch(kubectl: &Kubectl, user: &str, pod: &str, subresource: Option<&str>, patch: &Value) -> Result<Output> {
    let patch = patch.to_string();
    let mut arguments = vec!["-n", "walled", "patch", "pod", pod, "--type", "merge", "-p", &patch];
    arguments.extend(subresource.iter().flat_map(|name| ["--subresource", name]));
    kubectl.run(user, &arguments, b"")
}

fn role(kind: &str, name: &str, rules: &Value) -> Value {
    json!({"kind": kind, "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, kind: &str, role: &str, subject: &Value) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role});
    json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]})
}

fn inspect(configuration: &Path, impersonation: &str) -> Result<Vec<u8>> {
    let mut command = Command::new(podium_binary()?);
    command.arg("inspect").arg(configuration).args(["--output", "yaml"]);
    let printed = command.args(["--impersonation", impersonation]).output()?;
    ensure!(printed.status.success(), "{}", stderr(&printed));
    Ok(printed.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rbac_that_inspect_prints_is_enough() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    // The tenant administers its namespace and nothing else.
    namespace(&client, "walled").await?;
    let alice = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"});
    let bound = binding("alice", "ClusterRole", "admin", &alice);
    create(&client, &format!("{RBAC}/namespaces/walled/rolebindings"), bound).await?;

    let directory = tempfile::tempdir()?;
    write_labeller(directory.path(), "walled", Some("labeller"))?;
    let configuration = directory.path().join("labeller.yaml");
    let plain = inspect(&configuration, "plain")?;
    // The roles of `admin` are aggregated by a controller some time after the start.
    until("a namespace admin to apply the RBAC", SOON, async || {
        let applied = kubectl.run("alice", &["apply", "-f", "-"], &plain)?;
        ensure!(applied.status.success(), "{}", stderr(&applied));
        Ok(())
    })
    .await?;
    let constrained = inspect(&configuration, "constrained")?;
    let refused = kubectl.run("alice", &["apply", "-f", "-"], &constrained)?;
    ensure!(!refused.status.success() && stderr(&refused).contains("attempting to grant"), "{refused:?}");

    kubectl.install(&["namespace.yaml", "rbac.yaml", "roles.yaml"])?;
    let kubeconfig = plane.kubeconfig_of("podium", "podium-host").await?;
    pod(&client, "walled", "a").await?;
    let host = "system:serviceaccount:podium:podium-host";
    let refused = patch(&kubectl, host, "a", None, &json!({"metadata": {"labels": {"x": "y"}}}))?;
    ensure!(stderr(&refused).contains("cannot patch resource"), "the host may write as itself: {refused:?}");
    let arguments = vec!["--require-service-account".to_owned()];
    let running =
        Host::spawn(&HostOptions { kubeconfig, plugins: vec![directory.path().to_owned()], arguments }).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "walled");
    let labelled = async |name: &str| {
        until("the plugin's label", SOON, async || {
            ensure!(label(&pods.get(name).await?, SEEN).is_some(), "{name} has no label: {}", running.log());
            Ok(())
        })
        .await
    };
    labelled("a").await?;

    // With the aggregated role of deploy/kustomize/base/roles.yaml, the administrator may permit single verbs instead.
    let removed = kubectl.run("alice", &["delete", "-f", "-"], &plain)?;
    ensure!(removed.status.success(), "{}", stderr(&removed));
    until("a namespace admin to apply the RBAC of single verbs", SOON, async || {
        let applied = kubectl.run("alice", &["apply", "-f", "-"], &constrained)?;
        ensure!(applied.status.success(), "{}", stderr(&applied));
        Ok(())
    })
    .await?;
    let may = kubectl.run(host, &["-n", "walled", "auth", "can-i", "impersonate", "serviceaccounts/labeller"], b"")?;
    ensure!(!may.status.success(), "the host may still do everything as the account: {may:?}");
    pod(&client, "walled", "b").await?;
    labelled("b").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_status_is_no_way_around_the_right_to_patch_pods() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    namespace(&client, "walled").await?;
    account(&client, "walled", "plugin").await?;
    account(&client, "kube-system", "calico-cni-plugin").await?;
    // That of a ClusterReconcilePlugin is in the host's namespace.
    namespace(&client, "podium").await?;
    account(&client, "podium", "runner").await?;
    // The rights of Calico's ClusterRole, and those that kubectl needs to read the Pod before it patches a subresource.
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch"]},
    ]);
    create(&client, &format!("{RBAC}/clusterroles"), role("ClusterRole", "status-only", &rules)).await?;
    for (name, space) in [("plugin", "walled"), ("calico-cni-plugin", "kube-system"), ("runner", "podium")] {
        let subject = json!({"kind": "ServiceAccount", "namespace": space, "name": name});
        let bound = binding(name, "ClusterRole", "status-only", &subject);
        create(&client, &format!("{RBAC}/clusterrolebindings"), bound).await?;
    }
    pod(&client, "walled", "a").await?;
    let (plugin, calico) =
        ("system:serviceaccount:walled:plugin", "system:serviceaccount:kube-system:calico-cni-plugin");
    let changed = |field: &str, value: &str| json!({"metadata": {field: {"guests.example/x": value}}});
    let allowed = patch(&kubectl, plugin, "a", Some("status"), &changed("labels", "v0"))?;
    ensure!(allowed.status.success(), "without the policy: {}", stderr(&allowed));
    kubectl.install(&["admission-pods-status.yaml"])?;

    let mut turn = 0;
    until("the policy to be in force", SOON, async || {
        turn += 1;
        let refused = patch(&kubectl, plugin, "a", Some("status"), &changed("labels", &format!("v{turn}")))?;
        ensure!(stderr(&refused).contains("may not change labels"), "{refused:?}");
        Ok(())
    })
    .await?;
    for change in [
        changed("annotations", "other"),
        json!({"metadata": {"finalizers": ["guests.example/x"]}}),
        json!({"metadata": {"labels": null}}),
    ] {
        let refused = patch(&kubectl, plugin, "a", Some("status"), &change)?;
        ensure!(stderr(&refused).contains("may not change labels"), "{change}: {refused:?}");
    }
    let runner = "system:serviceaccount:podium:runner";
    let refused = patch(&kubectl, runner, "a", Some("status"), &changed("labels", "runner"))?;
    ensure!(stderr(&refused).contains("may not change labels"), "of a plugin of the cluster: {refused:?}");
    let condition = json!({"status": {"conditions": [{"type": "guests.example/Ok", "status": "True"}]}});
    let allowed = patch(&kubectl, plugin, "a", Some("status"), &condition)?;
    ensure!(allowed.status.success(), "{}", stderr(&allowed));
    let address = changed("annotations", "10.0.0.1/32");
    let allowed = patch(&kubectl, calico, "a", Some("status"), &address)?;
    ensure!(allowed.status.success(), "a network plugin's annotation: {}", stderr(&allowed));
    Ok(())
}
