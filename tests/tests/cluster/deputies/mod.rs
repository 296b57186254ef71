//! Faults by which other controllers did for one tenant what the tenant itself may not do, replicated as plugins. Each
//! is refused by the host while RBAC permits everything, and by RBAC while the host permits everything that a
//! configuration can permit.
//!
//! No build of the host omits its checks, so a configuration permits everything: that of a `ClusterReconcilePlugin`
//! with all grants, whose account has a Role in one namespace. The suite `architecture` checks that nothing else makes
//! an authorized write.

mod reload;
mod replicas;

use std::{fs, io::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use podium_tests::{
    controlplane::{Audit, AuditedWrite, ControlPlane, Mark},
    guests,
    process::{Host, HostOptions},
    wait::until,
};
use replicas::{REPLICAS, Replica, Victims};
use serde_json::{Value, json};

use crate::{
    cluster,
    workloads::{account, create, namespace},
};

const SOON: Duration = Duration::from_secs(120);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The tenant of the plugins, and the account that may do everything, or what a tenant may.
const OPEN: &str = "system:serviceaccount:shop:open";
const NARROW: &str = "system:serviceaccount:shop:narrow";

/// The wall that holds; the other one is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wall {
    /// The host's grants and scope. The plugin's account and the host's are cluster-admin.
    First,
    /// RBAC of the plugin's account. The plugin has the scope of the cluster and all grants.
    Second,
}

impl Wall {
    /// Returns the configuration of a plugin that makes these host calls on the Pods of its selector.
    fn plugin(self, name: &str, calls: &Value, watch: &str) -> Result<String> {
        let component = guests::path("deputy")?.canonicalize()?;
        let (kind, metadata, account) = match self {
            Self::First => ("ReconcilePlugin", ", namespace: shop", "serviceAccountName: open"),
            Self::Second => {
                ("ClusterReconcilePlugin", "", "serviceAccountName: narrow\n  serviceAccountNamespace: shop")
            }
        };
        // A plugin of a namespace whose configuration grants these is refused.
        let well_known = match self {
            Self::First => "",
            Self::Second => {
                "
        - { apiVersion: v1, kind: Namespace, resource: namespaces }
        - { apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, resource: clusterroles }"
            }
        };
        Ok(format!(
            "apiVersion: podium.dev/v1alpha1
kind: {kind}
metadata: {{ name: {name}{metadata} }}
spec:
  source: {{ file: {} }}
  {account}
  watch: {{ selector: {{ matchLabels: {{ suite: deputies }} }}, sections: [spec]{watch} }}
  limits: {{ class: interpreter, wallMillis: 20000, cpuMillis: 1000 }}
  grants:
    read: {{ pods: {{ sections: [labels, spec], live: true }} }}
    write:
      labels: [guests.example/*]
      annotations: [guests.example/*]
      conditions: [guests.example/*]
      events: true
      delete: true
      evict: true
      objects:
        - {{ apiVersion: v1, kind: ConfigMap, resource: configmaps }}
        - {{ apiVersion: guests.example/v1, kind: Realm, resource: realms }}{well_known}
  config: {}
",
            component.display(),
            json!({ "calls": calls })
        ))
    }

    /// The plugin's name in the log.
    fn id(self, name: &str) -> String {
        match self {
            Self::First => format!("shop/{name}"),
            Self::Second => name.to_owned(),
        }
    }
}

/// A tenant with one Pod, and another one with a Pod and a ConfigMap that must stay as they are.
async fn tenants(client: &Client) -> Result<()> {
    namespace(client, "shop").await?;
    namespace(client, "bank").await?;
    let pod = |name: &str| {
        json!({
            "metadata": { "name": name, "labels": { "suite": if name == "a" { "deputies" } else { "victims" } } },
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "main", "image": "registry.example/app:1.2.3" }],
            },
        })
    };
    create(client, "/api/v1/namespaces/shop/pods", pod("a")).await?;
    create(client, "/api/v1/namespaces/bank/pods", pod("vault")).await?;
    let ledger = json!({ "metadata": { "name": "ledger" }, "data": { "gold": "7" } });
    create(client, "/api/v1/namespaces/bank/configmaps", ledger).await?;
    // A kind without namespaces that the host does not know.
    let names = json!({ "kind": "Realm", "listKind": "RealmList", "plural": "realms", "singular": "realm" });
    let any = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": any });
    let realms = json!({
        "metadata": { "name": "realms.guests.example" },
        "spec": { "group": "guests.example", "scope": "Cluster", "names": names, "versions": [version] },
    });
    create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", realms).await?;
    for name in ["open", "narrow"] {
        account(client, "shop", name).await?;
    }
    let bound = json!({
        "metadata": { "name": "open" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "open", "namespace": "shop" }],
    });
    create(client, &format!("{RBAC}/clusterrolebindings"), bound).await?;
    let role = json!({
        "metadata": { "name": "narrow" },
        "rules": [
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch", "delete"] },
            { "apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"] },
            { "apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"] },
            { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"] },
            { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["get", "create", "patch"] },
        ],
    });
    create(client, &format!("{RBAC}/namespaces/shop/roles"), role).await?;
    let bound = json!({
        "metadata": { "name": "narrow" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "narrow" },
        "subjects": [{ "kind": "ServiceAccount", "name": "narrow", "namespace": "shop" }],
    });
    create(client, &format!("{RBAC}/namespaces/shop/rolebindings"), bound).await
}

/// Requests that hosts sent for plugins.
fn of_plugins(audit: &Audit, mark: Mark) -> Result<Vec<AuditedWrite>> {
    let mut requests = audit.requests_of("admin", mark)?;
    requests.retain(|request| request.user_agent.starts_with("podium-host/"));
    Ok(requests)
}

/// The answers that a plugin logged, in order.
fn answers(log: &str, id: &str) -> Vec<String> {
    let lines = log.lines().filter(|line| line.contains(&format!("plugin={id} ")));
    lines.filter_map(|line| Some(line.split_once("podium::plugin: ")?.1.to_owned())).collect()
}

/// Checks that the open account may write to the victim, so that a refusal is the host's.
async fn control(client: &Client) -> Result<()> {
    let patch = json!({ "metadata": { "annotations": { "control": "1" } } }).to_string().into_bytes();
    let request = http::Request::patch("/api/v1/namespaces/bank/pods/vault")
        .header("Content-Type", "application/merge-patch+json")
        .header("Impersonate-User", OPEN);
    client.request::<Value>(request.body(patch)?).await.context("the open account may do everything")?;
    Ok(())
}

async fn is_labelled(client: &Client, name: &str) -> Result<()> {
    let pod = Api::<Pod>::namespaced(client.clone(), "shop").get("a").await?;
    let labels = pod.metadata.labels.unwrap_or_default();
    ensure!(labels.contains_key(&format!("guests.example/{name}")), "{name} has not labelled its own Pod: {labels:?}");
    Ok(())
}

/// Runs all replicas against one wall. Each must also do what its plugin may do.
async fn run(plane: &ControlPlane, client: &Client, wall: Wall, victims: &Victims) -> Result<Vec<&'static Replica>> {
    let directory = tempfile::tempdir()?;
    for replica in REPLICAS {
        for (name, watch, calls) in replica.plugins(victims) {
            let file = directory.path().join(format!("{name}.yaml"));
            fs::write(file, wall.plugin(name, &calls, watch)?)?;
        }
    }
    let audit = plane.audit();
    let mark = audit.now()?;
    let options = HostOptions {
        kubeconfig: plane.kubeconfig_path(),
        plugins: vec![directory.path().to_owned()],
        arguments: ["--strict", "--require-service-account"].map(str::to_owned).to_vec(),
    };
    let host = Host::spawn(&options).await?;
    for replica in REPLICAS {
        until(replica.fault, SOON, async || {
            for (name, _, _) in replica.plugins(victims) {
                is_labelled(client, name).await?;
                let answers = answers(&host.log(), &wall.id(name));
                let requests = of_plugins(&audit, mark)?;
                let agent = format!(" plugin/{}", wall.id(name));
                let requests: Vec<_> = requests.iter().filter(|of| of.user_agent.ends_with(&agent)).collect();
                match wall {
                    Wall::First => replica.refused_by_the_host(name, &answers)?,
                    Wall::Second => replica.refused_by_rbac(name, &answers, &requests)?,
                }
            }
            Ok(())
        })
        .await?;
    }
    let status = host.terminate().await?;
    ensure!(status.success(), "SIGTERM ends with {status}");
    let account = if wall == Wall::First { OPEN } else { NARROW };
    for request in of_plugins(&audit, mark)? {
        // The host itself reads Pods to learn what became visible of a write.
        let is_own = request.impersonated.is_none() && request.verb == "get";
        ensure!(is_own || request.impersonated.as_deref() == Some(account), "as another account: {request:?}");
        let foreign = request.namespace != "shop";
        ensure!(
            !(foreign && !is_own && request.code < 400),
            "a request in another namespace was accepted: {request:?}"
        );
        ensure!(!(foreign && wall == Wall::First), "the host sent a request in another namespace: {request:?}");
    }
    ensure!(*victims == Victims::read(client).await?, "{victims:?} is not as it was");
    Ok(REPLICAS.iter().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_other_controllers_are_refused_by_each_wall() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    tenants(&client).await?;
    control(&client).await?;
    let mut table = vec![format!("{:<58}{:<36}{}", "FAULT", "HOST (RBAC OPEN)", "RBAC (HOST OPEN)")];
    let victims = Victims::read(&client).await?;
    let first = run(&plane, &client, Wall::First, &victims).await?;
    clear(&client).await?;
    let second = run(&plane, &client, Wall::Second, &victims).await?;
    for (replica, again) in first.iter().zip(&second) {
        ensure!(replica.fault == again.fault, "the same replicas twice");
        table.push(format!("{:<58}{:<36}{}", replica.fault, "refused, none left the namespace", "refused, 403"));
    }
    clear(&client).await?;
    let cut = reload::refused_by_the_host(&plane, &client, &victims).await?;
    clear(&client).await?;
    reload::refused_by_rbac(&plane, &client, &victims).await?;
    let host = format!("refused, run cut in {} ms", cut.as_millis());
    table.push(format!("{:<58}{host:<36}{}", reload::FAULT, "refused, 403"));
    ensure!(table.len() == 8, "seven faults: {table:#?}");
    // Written directly, because the test harness hides the output of a passing test.
    writeln!(std::io::stderr(), "{}", table.join("\n"))?;
    Ok(())
}

/// Removes the labels of the plugins.
async fn clear(client: &Client) -> Result<()> {
    for labels in [Value::Null, json!({ "suite": "deputies" })] {
        let patch = json!({ "metadata": { "labels": labels } }).to_string().into_bytes();
        let request = http::Request::patch("/api/v1/namespaces/shop/pods/a");
        let request = request.header("Content-Type", "application/merge-patch+json").body(patch)?;
        client.request::<Value>(request).await?;
    }
    Ok(())
}
