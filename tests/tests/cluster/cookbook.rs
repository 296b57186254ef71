//! The entries of the cookbook that depend on a real API server: which manager owns `spec.replicas`, and the zone of a
//! Node that it copies to Pods.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use podium_tests::{
    plugins,
    process::{Host, HostOptions, workspace_dir},
    wait::until,
};
use serde_json::json;

use crate::{
    cluster,
    kubectl::Kubectl,
    workloads::{annotation, label, namespace, pods},
};

const SHOP: &str = "shop";
const ZONE: &str = "topology.kubernetes.io/zone=eu-1a";
const WITHIN: Duration = Duration::from_secs(120);

/// A Deployment without `spec.replicas`.
fn deployment(name: &str) -> String {
    let labels = json!({ "app": name });
    let annotations = json!({ "example.com/day-replicas": "3" });
    let containers = json!([{ "name": "c", "image": "registry.example/c:1" }]);
    let template = json!({
        "metadata": { "labels": labels, "annotations": annotations }, "spec": { "containers": containers },
    });
    let spec = json!({ "selector": { "matchLabels": labels }, "template": template });
    let metadata = json!({ "namespace": SHOP, "name": name });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_scaled_that_no_other_manager_owns() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(1).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let kubectl = Kubectl::new(&plane);
    namespace(&client, SHOP).await?;
    kubectl.admin(&["label", "node", "--all", ZONE])?;
    for name in ["applied", "classic"] {
        let file = directory.path().join(format!("{name}.json"));
        fs::write(&file, deployment(name))?;
        let file = file.to_string_lossy();
        let server_side: &[&str] = if name == "classic" { &[] } else { &["--server-side"] };
        kubectl.admin(&[&["apply", "-f", &file], server_side].concat())?;
    }
    let scale = |replicas: &str| kubectl.admin(&["-n", SHOP, "scale", "deployment/applied", "--replicas", replicas]);
    scale("2")?;
    let configured = directory.path().join("plugins");
    fs::create_dir(&configured)?;
    for name in ["night-scale", "top-workload"] {
        let text = plugins::yaml_of(&workspace_dir().join("docs/cookbook").join(name))?;
        // It is never night.
        fs::write(configured.join(format!("{name}.yaml")), text.replace("fromHour: 20", "fromHour: 6"))?;
    }
    let options = HostOptions { kubeconfig: plane.kubeconfig_path(), plugins: vec![configured], arguments: Vec::new() };
    let host = Host::spawn(&options).await?;
    let replicas = |name: &str| {
        let of = format!("deployment/{name}");
        kubectl.admin(&["-n", SHOP, "get", &of, "-o", "jsonpath={.spec.replicas}"])
    };
    until("the plugins", WITHIN, async || {
        ensure!(replicas("applied")? == "3", "{}", host.log());
        let found = pods(&client, SHOP, "app=applied").await?;
        ensure!(found.len() == 3, "{} Pods", found.len());
        for pod in &found {
            let marks = (label(pod, "example.com/workload"), annotation(pod, "example.com/zone"));
            ensure!(marks == (Some("applied"), Some("eu-1a")), "{marks:?}");
        }
        is_left_to("classic", "kubectl-client-side-apply", &host)
    })
    .await?;
    ensure!(host.terminate().await?.success());
    // The first apply after a start compares the object.
    scale("2")?;
    let host = Host::spawn(&options).await?;
    let left = async || is_left_to("applied", "kubectl", &host);
    until("the conflict", WITHIN, left).await?;
    ensure!((replicas("classic")?, replicas("applied")?) == ("1".to_owned(), "2".to_owned()), "{}", host.log());
    ensure!(host.terminate().await?.success());
    Ok(())
}

/// Fails unless the host reported that a manager owns the field of a Deployment.
fn is_left_to(deployment: &str, manager: &str, host: &Host) -> Result<()> {
    let write = format!("apply apps/v1 Deployment shop/{deployment}");
    let log = host.log();
    let mut lines = log.lines().filter(|line| line.contains("owned_by_other") && line.contains(&write));
    ensure!(lines.any(|line| line.contains(&format!("conflict with \\\"{manager}"))), "{manager}: {log}");
    Ok(())
}
