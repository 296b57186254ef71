//! The FlowSchemas of the chart on the real API server: which requests of which account are of which priority level.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::{Client, client::Body};
use podium_tests::{helm::Helm, wait::until};
use serde_json::Value;

use super::manifests::{rendered, template};
use crate::{cluster, kubectl::Kubectl, workloads::namespace};

/// The FlowSchema that Kubernetes has for every account.
const ACCOUNTS: &str = "service-accounts";

/// Returns the name of the FlowSchema of a request; the API server names it by its uid, also beside a refusal.
async fn schema(client: &Client, account: &str, (verb, path): (&str, &str), names: &Value) -> Result<String> {
    let user = format!("system:serviceaccount:{account}");
    let request = Request::builder().method(verb).uri(path).header("impersonate-user", user);
    let request = request.header("content-type", "application/merge-patch+json").body(Body::from(b"{}".to_vec()))?;
    let answer = client.send(request).await?;
    let uid = answer.headers().get("x-kubernetes-pf-flowschema-uid").context("no FlowSchema")?.to_str()?;
    let items = names["items"].as_array().context("no items")?;
    let named = items.iter().find(|schema| schema["metadata"]["uid"] == uid);
    Ok(named.and_then(|schema| schema["metadata"]["name"].as_str()).context("an unknown FlowSchema")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_hosts_leases_and_watches_do_not_wait_behind_writes() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, "podium").await?;
    let values = ["--set", "replicas=2", "--show-only", "templates/flow.yaml"];
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), &template(&helm, "podium", &values)?.stdout)?;
    let kubectl = Kubectl::new(&plane);
    kubectl.admin(&["apply", "--filename", &file.path().to_string_lossy()])?;
    let schemas: Value = serde_json::from_str(&kubectl.admin(&["get", "flowschemas", "--output=json"])?)?;
    let levels: BTreeMap<&str, &str> = schemas["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|schema| {
            let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str()?;
            Some((schema["metadata"]["name"].as_str()?, level))
        })
        .collect();
    ensure!(levels["podium.podium-host"] == "workload-high", "{levels:?}");
    ensure!(levels["podium.podium-host-leases"] == "leader-election", "{levels:?}");
    ensure!(levels[ACCOUNTS] == "workload-low", "{levels:?}");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/podium/leases/podium-host";
    let status = "/apis/podium.dev/v1alpha1/namespaces/shop/reconcileplugins/hello/status";
    let pod = "/api/v1/namespaces/shop/pods/cart-0";
    let expected = [
        ("podium:podium-host", ("GET", lease), "podium.podium-host-leases"),
        ("podium:podium-host", ("PUT", lease), "podium.podium-host-leases"),
        ("podium:podium-host", ("GET", "/api/v1/pods?watch=1"), "podium.podium-host"),
        ("podium:podium-host", ("GET", "/api/v1/namespaces/shop/pods"), "podium.podium-host"),
        ("podium:podium-host", ("GET", "/apis/podium.dev/v1alpha1/clusterreconcileplugins"), "podium.podium-host"),
        ("podium:podium-host", ("PATCH", status), "podium.podium-host"),
        // Writes of a plugin without an account, and those of one with an account.
        ("podium:podium-host", ("PATCH", pod), ACCOUNTS),
        ("shop:podium-plugin-hello", ("PATCH", pod), ACCOUNTS),
        ("shop:podium-plugin-hello", ("GET", "/api/v1/namespaces/shop/pods"), ACCOUNTS),
    ];
    // The API server reads the objects some time after they were written.
    until("the FlowSchemas", Duration::from_secs(60), async || {
        for (account, request, name) in expected {
            let found = schema(&client, account, request, &schemas).await?;
            ensure!(found == name, "{account} {request:?}: {found}, expected {name}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn one_replica_has_no_flow_of_leases_and_a_switch_ends_both() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    for (value, count) in [("replicas=1", 1), ("replicas=2", 2), ("replicas=2,flowSchemas.enabled=false", 0)] {
        let objects = rendered(&helm, "podium", &["--set", value])?;
        let found = objects.iter().filter(|object| object["kind"] == "FlowSchema").count();
        ensure!(found == count, "{value}: {found}");
    }
    Ok(())
}
