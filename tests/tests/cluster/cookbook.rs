//! The entries of the cookbook that depend on a real API server: the subresource `scale`, and the zone of a Node that
//! it copies to Pods.

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
    printed_rights,
    workloads::{annotation, label, namespace, pods},
};

const SHOP: &str = "shop";
const ZONE: &str = "topology.kubernetes.io/zone=eu-1a";
const WITHIN: Duration = Duration::from_secs(120);

fn deployment(name: &str, replicas: u32) -> String {
    let labels = json!({ "app": name });
    let annotations = json!({ "example.com/day-replicas": "3" });
    let containers = json!([{ "name": "c", "image": "registry.example/c:1" }]);
    let template = json!({
        "metadata": { "labels": labels, "annotations": annotations }, "spec": { "containers": containers },
    });
    let spec = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": template });
    let metadata = json!({ "namespace": SHOP, "name": name });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec }).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_scaled_whoever_owns_them_and_none_stays_none() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(1).await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let kubectl = Kubectl::new(&plane);
    namespace(&client, SHOP).await?;
    kubectl.admin(&["label", "node", "--all", ZONE])?;
    for name in ["applied", "classic"] {
        let file = directory.path().join(format!("{name}.json"));
        fs::write(&file, deployment(name, 2))?;
        let file = file.to_string_lossy();
        let server_side: &[&str] = if name == "classic" { &[] } else { &["--server-side"] };
        kubectl.admin(&[&["apply", "-f", &file], server_side].concat())?;
    }
    let configured = directory.path().join("plugins");
    fs::create_dir(&configured)?;
    for name in ["night-scale", "top-workload"] {
        let text = plugins::yaml_of(&workspace_dir().join("docs/cookbook").join(name))?;
        let file = configured.join(format!("{name}.yaml"));
        // It is never night.
        fs::write(&file, text.replace("fromHour: 20", "fromHour: 6"))?;
        printed_rights::apply(&plane, &file)?;
    }
    let options = HostOptions { kubeconfig: plane.kubeconfig_path(), plugins: vec![configured], arguments: Vec::new() };
    let host = Host::spawn(&options).await?;
    let replicas = |name: &str| {
        let of = format!("deployment/{name}");
        kubectl.admin(&["-n", SHOP, "get", &of, "-o", "jsonpath={.spec.replicas}"])
    };
    until("the plugins", WITHIN, async || {
        for name in ["applied", "classic"] {
            ensure!(replicas(name)? == "3", "{}", host.log());
            let found = pods(&client, SHOP, &format!("app={name}")).await?;
            ensure!(found.len() == 3, "{} Pods", found.len());
            for pod in &found {
                let marks = (label(pod, "example.com/workload"), annotation(pod, "example.com/zone"));
                ensure!(marks == (Some(name), Some("eu-1a")), "{marks:?}");
            }
        }
        Ok(())
    })
    .await?;
    kubectl.admin(&["-n", SHOP, "scale", "deployment/applied", "--replicas=0"])?;
    until("the end of its Pods", WITHIN, async || {
        ensure!(pods(&client, SHOP, "app=applied").await?.is_empty());
        Ok(())
    })
    .await?;
    ensure!((replicas("applied")?, replicas("classic")?) == ("0".to_owned(), "3".to_owned()), "{}", host.log());
    ensure!(host.terminate().await?.success());
    Ok(())
}
