//! Installing podium-host: the commands of docs/install.md as they are written, with the host as a container under
//! exactly the account, arguments, volumes and limits that its Pod has from the chart or from the kustomize base.

mod commands;
mod companies;
mod flow;
mod manifests;
mod processes;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use commands::Reader;
use kube::Client;
use podium_tests::{
    controlplane::{ControlPlane, Mark},
    helm::Helm,
    kubelet::{Kubelet, has_containers},
    registry::Registry,
    wait::until,
};

use crate::{cluster, kubectl::Kubectl, workloads::namespace};

const HOST: &str = "system:serviceaccount:podium:podium-host";
const SOON: Duration = Duration::from_secs(60);

/// Kinds that Kubernetes itself makes objects of at any time.
const NOT_COMPARED: [&str; 5] = ["events", "events.events.k8s.io", "leases", "endpointslices", "endpoints"];

struct Cluster {
    plane: ControlPlane,
    client: Client,
    kubelet: Kubelet,
    reader: Reader,
    /// The last to be dropped.
    _turn: tokio::sync::SemaphorePermit<'static>,
}

/// A control plane, a node for the namespace of the host, a registry, and a reader of the documentation. `None` if the
/// suites are skipped.
async fn start() -> Result<Option<Cluster>> {
    if !has_containers()? {
        return Ok(None);
    }
    let Some(helm) = Helm::build().await? else { return Ok(None) };
    let Some((plane, client, turn)) = cluster(0).await? else { return Ok(None) };
    let registry = Registry::start(None).await?.context("there is a control plane and no registry")?;
    let port = registry.address().port();
    let reader = Reader::new(&plane, &helm, registry)?;
    let kubelet = Kubelet::start(&plane, "podium", &[port]).await?;
    Ok(Some(Cluster { plane, client, kubelet, reader, _turn: turn }))
}

/// Returns the names of all objects of the cluster, except of kinds that change by themselves.
fn objects(kubectl: &Kubectl) -> Result<BTreeSet<String>> {
    let kinds = kubectl.admin(&["api-resources", "--verbs=list", "--output=name"])?;
    let kinds: Vec<_> =
        kinds.lines().filter(|kind| !NOT_COMPARED.contains(&kind.split('.').next().unwrap_or(kind))).collect();
    let columns = "--output=custom-columns=A:.kind,B:.metadata.namespace,C:.metadata.name";
    let listed = kubectl.admin(&["get", &kinds.join(","), "--all-namespaces", "--no-headers", columns])?;
    Ok(listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect())
}

/// Fails if the host's account was refused anything.
fn nothing_was_refused(plane: &ControlPlane, mark: Mark) -> Result<()> {
    let requests = plane.audit().requests_of(HOST, mark)?;
    ensure!(requests.iter().any(|request| request.resource == "reconcileplugins/status"), "{requests:?}");
    let refused: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_install_upgrade_and_leave_nothing() -> Result<()> {
    let Some(Cluster { plane, client, kubelet, mut reader, _turn }) = start().await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    namespace(&client, "shop").await?;
    kubectl.admin(&["--namespace=shop", "create", "rolebinding", "alice", "--clusterrole=admin", "--user=alice"])?;
    let (before, mark) = (objects(&kubectl)?, plane.audit().now()?);

    reader.run("Image", "").await?;
    reader.run("Install", "").await.with_context(|| kubelet.report())?;
    reader.run("A first plugin", "tenant").await.with_context(|| kubelet.report())?;
    nothing_was_refused(&plane, mark)?;
    // The tenant may do so only in its own namespace.
    let elsewhere = ["--namespace=default", "get", "reconcileplugins"];
    ensure!(!kubectl.run("alice", &elsewhere, b"")?.status.success(), "alice may read plugins elsewhere");

    reader.run("A plugin from a registry", "registry").await.with_context(|| kubelet.report())?;
    reader.run("A plugin from a registry", "tenant").await.with_context(|| kubelet.report())?;
    let kind = ["--namespace=shop", "get", "reconcileplugin/workload-label", "--output=jsonpath={.spec.source}"];
    ensure!(!kubectl.admin(&kind)?.contains("configMap"), "{}", kubectl.admin(&kind)?);

    reader.version = "0.1.1".to_owned();
    reader.run("Upgrade", "").await.with_context(|| kubelet.report())?;
    let image = ["--namespace=podium", "get", "pods", "--output=jsonpath={.items[*].spec.containers[*].image}"];
    ensure!(kubectl.admin(&image)?.ends_with("podium-host:0.1.1"), "{}", kubectl.admin(&image)?);
    // The new host has the plugin too.
    until("the plugin in the new host", SOON, async || {
        let state = kubelet.get(8081, "/readyz?verbose").await?;
        ensure!(state.contains("[+]plugin/shop/workload-label ok"), "{state}");
        Ok(())
    })
    .await?;

    reader.run("Uninstall", "").await.with_context(|| kubelet.report())?;
    reader.run("Uninstall", "tenant").await?;
    kubectl.admin(&["--namespace=shop", "delete", "deployment", "cart"])?;
    until("nothing to be left", SOON, async || {
        let after = objects(&kubectl)?;
        let (left, lost) =
            (after.difference(&before).collect::<Vec<_>>(), before.difference(&after).collect::<Vec<_>>());
        ensure!(left.is_empty() && lost.is_empty(), "left: {left:?}; lost: {lost:?}");
        Ok(())
    })
    .await?;

    reader.version = "0.1.2".to_owned();
    let rendered = reader.run("Without access to the internet", "airgap").await?;
    ensure!(rendered.contains("/podium-host:0.1.2\n"), "{rendered}");
    let rendered = reader.run("Capacity", "edge").await?;
    ensure!(
        rendered.contains("            limits:\n              cpu: 500m\n              memory: 128Mi\n"),
        "{rendered}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kustomize_base_runs_a_host_that_labels_a_pod() -> Result<()> {
    let Some(Cluster { plane, client, kubelet, reader, _turn }) = start().await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    namespace(&client, "shop").await?;
    kubectl.admin(&["--namespace=shop", "create", "rolebinding", "alice", "--clusterrole=admin", "--user=alice"])?;
    let mark = plane.audit().now()?;
    reader.run("Image", "").await?;
    reader.run("With kustomize", "kustomize").await.with_context(|| kubelet.report())?;
    reader.run("A first plugin", "tenant").await.with_context(|| kubelet.report())?;
    nothing_was_refused(&plane, mark)
}
