//! The API server's own authorization of plugins, without the host's: the RBAC that `podium inspect` prints, and the
//! admission policies in `deploy/`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use podium_tests::{
    controlplane::ControlPlane,
    process::{Host, HostOptions, podium_binary, workspace_dir},
    wait::until,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    plugins::{SEEN, write_labeller},
    workloads::{account, create, label, namespace, pod},
};

const SOON: Duration = Duration::from_secs(60);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// kubectl with the administrator's kubeconfig, as another user.
struct Kubectl(PathBuf, PathBuf);

impl Kubectl {
    fn new(plane: &ControlPlane) -> Self {
        Self(plane.kubectl_path(), plane.kubeconfig_path())
    }

    fn run(&self, user: &str, arguments: &[&str], input: &[u8]) -> Result<Output> {
        let mut command = Command::new(&self.0);
        command.arg("--kubeconfig").arg(&self.1).arg("--as").arg(user).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        std::io::Write::write_all(&mut child.stdin.take().context("no stdin")?, input)?;
        Ok(child.wait_with_output()?)
    }

    /// A patch of a Pod's status, or of the Pod itself.
    fn patch(&self, user: &str, pod: &str, subresource: Option<&str>, patch: &Value) -> Result<Output> {
        let patch = patch.to_string();
        let mut arguments = vec!["-n", "walled", "patch", "pod", pod, "--type", "merge", "-p", &patch];
        arguments.extend(subresource.iter().flat_map(|name| ["--subresource", name]));
        self.run(user, &arguments, b"")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
    command.arg("inspect").arg(configuration).args(["--host", "podium-system/podium", "--output", "yaml"]);
    let printed = command.args(["--impersonation", impersonation]).output()?;
    ensure!(printed.status.success(), "{}", stderr(&printed));
    Ok(printed.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rbac_that_inspect_prints_is_enough_and_a_namespace_admin_may_apply_it() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    // The host may read Pods and nothing else.
    namespace(&client, "podium-system").await?;
    account(&client, "podium-system", "podium").await?;
    let reads = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
    create(&client, &format!("{RBAC}/clusterroles"), role("ClusterRole", "podium-reads", &reads)).await?;
    let host = json!({"kind": "ServiceAccount", "namespace": "podium-system", "name": "podium"});
    let bound = binding("podium-reads", "ClusterRole", "podium-reads", &host);
    create(&client, &format!("{RBAC}/clusterrolebindings"), bound).await?;
    let kubeconfig = plane.kubeconfig_of("podium-system", "podium").await?;
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
    let constrained = kubectl.run("alice", &["apply", "-f", "-"], &inspect(&configuration, "constrained")?)?;
    ensure!(!constrained.status.success() && stderr(&constrained).contains("attempting to grant"), "{constrained:?}");

    pod(&client, "walled", "a").await?;
    let host = "system:serviceaccount:podium-system:podium";
    let refused = kubectl.patch(host, "a", None, &json!({"metadata": {"labels": {"x": "y"}}}))?;
    ensure!(stderr(&refused).contains("cannot patch resource"), "the host may write as itself: {refused:?}");
    let arguments = vec!["--require-service-account".to_owned()];
    let _host = Host::spawn(&HostOptions { kubeconfig, plugins: vec![directory.path().to_owned()], arguments }).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "walled");
    until("the plugin's label", SOON, async || {
        ensure!(label(&pods.get("a").await?, SEEN).is_some(), "no label");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_status_is_no_way_around_the_right_to_patch_pods_and_network_plugins_go_on() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    namespace(&client, "walled").await?;
    account(&client, "walled", "plugin").await?;
    account(&client, "kube-system", "calico-cni-plugin").await?;
    // The rights of Calico's ClusterRole, and those that kubectl needs to read the Pod before it patches a subresource.
    let rules = json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch"]},
    ]);
    create(&client, &format!("{RBAC}/clusterroles"), role("ClusterRole", "status-only", &rules)).await?;
    for (name, space) in [("plugin", "walled"), ("calico-cni-plugin", "kube-system")] {
        let subject = json!({"kind": "ServiceAccount", "namespace": space, "name": name});
        let bound = binding(name, "ClusterRole", "status-only", &subject);
        create(&client, &format!("{RBAC}/clusterrolebindings"), bound).await?;
    }
    pod(&client, "walled", "a").await?;
    let (plugin, calico) =
        ("system:serviceaccount:walled:plugin", "system:serviceaccount:kube-system:calico-cni-plugin");
    let changed = |field: &str, value: &str| json!({"metadata": {field: {"guests.example/x": value}}});
    let allowed = kubectl.patch(plugin, "a", Some("status"), &changed("labels", "v0"))?;
    ensure!(allowed.status.success(), "without the policy: {}", stderr(&allowed));
    let policy = workspace_dir().join("deploy/admission/pods-status.yaml");
    let mut apply = Command::new(plane.kubectl_path());
    let applied = apply.arg("--kubeconfig").arg(plane.kubeconfig_path()).args(["apply", "-f"]).arg(policy).output()?;
    ensure!(applied.status.success(), "{}", stderr(&applied));

    let mut turn = 0;
    until("the policy to be in force", SOON, async || {
        turn += 1;
        let refused = kubectl.patch(plugin, "a", Some("status"), &changed("labels", &format!("v{turn}")))?;
        ensure!(stderr(&refused).contains("may not change labels"), "{refused:?}");
        Ok(())
    })
    .await?;
    for patch in [
        changed("annotations", "other"),
        json!({"metadata": {"finalizers": ["guests.example/x"]}}),
        json!({"metadata": {"labels": null}}),
    ] {
        let refused = kubectl.patch(plugin, "a", Some("status"), &patch)?;
        ensure!(stderr(&refused).contains("may not change labels"), "{patch}: {refused:?}");
    }
    let condition = json!({"status": {"conditions": [{"type": "guests.example/Ok", "status": "True"}]}});
    let allowed = kubectl.patch(plugin, "a", Some("status"), &condition)?;
    ensure!(allowed.status.success(), "{}", stderr(&allowed));
    let address = changed("annotations", "10.0.0.1/32");
    let allowed = kubectl.patch(calico, "a", Some("status"), &address)?;
    ensure!(allowed.status.success(), "a network plugin's annotation: {}", stderr(&allowed));
    Ok(())
}
