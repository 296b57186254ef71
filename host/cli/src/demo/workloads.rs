//! The contents of the demo's cluster: tenants, namespaces, workloads with their Pods, and the incidents that are
//! injected.
//!
//! The Pods of a rollout are created and deleted here, as the Deployment controller would: owned by a ReplicaSet whose
//! name ends in the template's hash. The checks know each Pod by its name, and the owners do not exist as objects.

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

/// The version of the owners: one that the cluster does not serve, because its garbage collector would delete Pods
/// whose owners do not exist.
const UNSERVED: &str = "extensions/v1beta1";
/// The most concurrent requests to the API server.
const CONCURRENT: usize = 16;
/// The annotation that selects how the simulated kubelet treats a Pod's containers.
const BEHAVIOUR: &str = "devcluster.podium.dev/behaviour";

/// Namespaces by tenant.
pub(super) const TENANTS: [(&str, &[&str]); 4] = [
    ("shop", &["shop-front", "shop-back"]),
    ("bank", &["bank-ledger", "bank-jobs"]),
    ("media", &["media-encode"]),
    ("lab", &["lab"]),
];

/// The namespace of the plugin that spins forever.
pub(super) const SPINNING_NAMESPACE: &str = "lab";

/// The controller that owns a workload's Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Pods of a ReplicaSet whose name is the workload's and a hash of the template.
    Deployment {
        hash: &'static str,
    },
    ReplicaSet,
    StatefulSet,
}

/// A set of equal Pods.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    namespace: &'static str,
    pub(super) name: &'static str,
    kind: Kind,
    replicas: u32,
    image: &'static str,
}

const fn deployment(namespace: &'static str, name: &'static str, replicas: u32, image: &'static str) -> Workload {
    set(Kind::Deployment { hash: "6d4cf56db6" }, namespace, name, replicas, image)
}

const fn set(kind: Kind, namespace: &'static str, name: &'static str, replicas: u32, image: &'static str) -> Workload {
    Workload { namespace, name, kind, replicas, image }
}

/// About 200 Pods, all with pinned images and limits.
const WORKLOADS: [Workload; 17] = [
    WEB_BEFORE,
    deployment("shop-front", "search", 12, "registry.example/search:4.2.0"),
    deployment("shop-front", "images", 12, "registry.example/images:1.9.1"),
    deployment("shop-back", "cart", 14, "registry.example/cart:3.1.4"),
    deployment("shop-back", "checkout", 12, "registry.example/checkout:2.7.0"),
    deployment("shop-back", "stock", 12, "registry.example/stock:0.9.3"),
    set(Kind::StatefulSet, "shop-back", "queue", 6, "registry.example/queue:3.13.1"),
    deployment("bank-ledger", "ledger", 14, "registry.example/ledger:8.0.2"),
    deployment("bank-ledger", "quotes", 12, "registry.example/quotes:1.4.4"),
    set(Kind::StatefulSet, "bank-ledger", "store", 6, "registry.example/store:16.4"),
    deployment("bank-jobs", "scheduler", 12, "registry.example/scheduler:5.5.0"),
    deployment("bank-jobs", "reports", 14, "registry.example/reports:2.2.8"),
    deployment("media-encode", "encoder", 20, "registry.example/encoder:7.1.0"),
    deployment("media-encode", "thumbnails", 14, "registry.example/thumbnails:1.0.12"),
    set(Kind::ReplicaSet, "media-encode", "legacy", 8, "registry.example/legacy:0.1.7"),
    deployment("lab", "notebook", 12, "registry.example/notebook:2026.1"),
    deployment("lab", "trial", 2, "registry.example/trial:0.0.3"),
];

/// The workload that is rolled out, before and after.
pub(super) const WEB_BEFORE: Workload = deployment("shop-front", "web", 12, "registry.example/web:1.0.0");
pub(super) const WEB_AFTER: Workload =
    Workload { kind: Kind::Deployment { hash: "7c9d8b5f4d" }, image: "registry.example/web:1.1.0", ..WEB_BEFORE };

/// Incidents, each with its own check.
pub(super) const CRASHING: Incident = Incident {
    pod: set(Kind::ReplicaSet, "bank-jobs", "settle", 1, "registry.example/settle:1.0.1"),
    behaviour: Some("crash"),
    node: None,
};
pub(super) const UNPINNED: Incident = Incident {
    pod: set(Kind::ReplicaSet, "media-encode", "player", 1, "registry.example/player:latest"),
    behaviour: None,
    node: None,
};
pub(super) const FINISHED: Incident = Incident {
    pod: set(Kind::ReplicaSet, "bank-jobs", "backup", 1, "registry.example/backup:6.0.0"),
    behaviour: Some("finish"),
    node: None,
};
pub(super) const CROWDED: Incident = Incident {
    pod: set(Kind::ReplicaSet, "shop-front", "session", 4, "registry.example/session:1.3.0"),
    behaviour: None,
    node: Some(0),
};
/// Created while the host's watch is interrupted and its revision has expired.
pub(super) const UNWATCHED: Workload =
    set(Kind::ReplicaSet, "shop-back", "unwatched", 1, "registry.example/unwatched:1.0.0");
pub(super) const EXPIRED: Workload = Workload { name: "expired", image: "registry.example/expired:1.0.0", ..UNWATCHED };

/// Returns a Pod for a measurement in this namespace. Its number is part of its name.
pub(super) fn measured(namespace: &'static str, number: u64) -> anyhow::Result<Pod> {
    let workload = Workload {
        namespace,
        name: "measured",
        kind: Kind::ReplicaSet,
        replicas: 1,
        image: "registry.example/measured:1.0.0",
    };
    let mut pod = workload.pod(0, None, None)?;
    pod.metadata.name = Some(format!("{}-{number:05x}", workload.name));
    Ok(pod)
}

/// Pods with a fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Incident {
    pub(super) pod: Workload,
    behaviour: Option<&'static str>,
    /// The index of the node for all Pods, without the scheduler.
    node: Option<usize>,
}

impl Workload {
    /// Returns the namespace and the name of its nth Pod.
    fn pod_name(&self, index: u32) -> (&'static str, String) {
        let name = match self.kind {
            Kind::Deployment { hash } => format!("{}-{hash}-{index:05x}", self.name),
            Kind::ReplicaSet => format!("{}-{index:05x}", self.name),
            Kind::StatefulSet => format!("{}-{index}", self.name),
        };
        (self.namespace, name)
    }

    pub(super) fn pod_names(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let workload = *self;
        (0..self.replicas).map(move |index| workload.pod_name(index))
    }

    pub(super) fn pods(&self, behaviour: Option<&str>, node: Option<&str>) -> anyhow::Result<Vec<Pod>> {
        (0..self.replicas).map(|index| self.pod(index, behaviour, node)).collect()
    }

    fn pod(&self, index: u32, behaviour: Option<&str>, node: Option<&str>) -> anyhow::Result<Pod> {
        let (owner_kind, owner) = match self.kind {
            Kind::Deployment { hash } => ("ReplicaSet", format!("{}-{hash}", self.name)),
            Kind::ReplicaSet => ("ReplicaSet", self.name.to_owned()),
            Kind::StatefulSet => ("StatefulSet", self.name.to_owned()),
        };
        let mut pod = json!({
            "metadata": {
                "namespace": self.namespace,
                "name": self.pod_name(index).1,
                "labels": { "app": self.name, "tenant": tenant(self.namespace) },
                "ownerReferences": [{
                    "apiVersion": UNSERVED, "kind": owner_kind, "name": owner, "controller": true,
                    "uid": uid(self.namespace, &owner),
                }],
            },
            "spec": {
                "restartPolicy": if behaviour == Some("finish") { "Never" } else { "Always" },
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main",
                    "image": self.image,
                    "resources": {
                        "requests": { "cpu": "50m", "memory": "32Mi" },
                        "limits": { "cpu": "200m", "memory": "64Mi" },
                    },
                }],
            },
        });
        if let Kind::Deployment { hash } = self.kind {
            pod["metadata"]["labels"]["pod-template-hash"] = json!(hash);
        }
        if let Some(behaviour) = behaviour {
            pod["metadata"]["annotations"] = json!({ BEHAVIOUR: behaviour });
        }
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        serde_json::from_value(pod).context("a Pod of the demo is malformed")
    }
}

fn tenant(namespace: &str) -> &'static str {
    TENANTS.iter().find(|(_, namespaces)| namespaces.contains(&namespace)).map_or("none", |(tenant, _)| tenant)
}

/// Returns a uid for an owner that does not exist as an object: the same in each run, and different for each owner.
fn uid(namespace: &str, name: &str) -> String {
    let hash = namespace
        .bytes()
        .chain([b'/'])
        .chain(name.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{:08x}-{:04x}-4000-8000-{:012x}", hash >> 32, hash >> 16 & 0xffff, hash & 0xffff_ffff_ffff)
}

/// The cluster with the demo's changes.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    /// Names of the cluster's nodes.
    nodes: Vec<String>,
}

impl Cluster {
    pub(super) async fn connect(client: Client) -> anyhow::Result<Self> {
        let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone()).list(&<_>::default()).await?;
        Ok(Self { client, nodes: nodes.iter().map(ResourceExt::name_any).collect() })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Creates the tenants' namespaces and all workloads; returns the number of Pods.
    pub(super) async fn seed(&self) -> anyhow::Result<usize> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for (tenant, names) in TENANTS {
            for name in names {
                let namespace = json!({ "metadata": { "name": name, "labels": { "tenant": tenant } } });
                namespaces.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
            }
        }
        let mut pods = Vec::new();
        for workload in WORKLOADS {
            pods.extend(workload.pods(None, None)?);
        }
        let count = pods.len();
        self.create_all(pods).await?;
        Ok(count)
    }

    pub(super) async fn create(&self, workload: &Workload) -> anyhow::Result<()> {
        self.create_all(workload.pods(None, None)?).await.map(drop)
    }

    /// Creates the Pods of an incident, and returns their uids.
    pub(super) async fn inject(&self, incident: &Incident) -> anyhow::Result<Vec<String>> {
        let node = incident.node.and_then(|index| self.nodes.get(index)).map(String::as_str);
        self.create_all(incident.pod.pods(incident.behaviour, node)?).await
    }

    /// Replaces each old Pod with a new one, one after the other.
    pub(super) async fn roll_out(&self) -> anyhow::Result<()> {
        let pods = self.pods(WEB_AFTER.namespace);
        for (index, (_, old)) in (0..).zip(WEB_BEFORE.pod_names()) {
            self.create_all(vec![WEB_AFTER.pod(index, None, None)?]).await?;
            pods.delete(&old, &DeleteParams::default()).await?;
        }
        Ok(())
    }

    /// Creates Pods, and returns their uids.
    async fn create_all(&self, pods: Vec<Pod>) -> anyhow::Result<Vec<String>> {
        stream::iter(pods)
            .map(|pod| async move {
                let name = pod.name_any();
                let api = self.pods(pod.metadata.namespace.as_deref().unwrap_or_default());
                let created = api.create(&PostParams::default(), &pod).await;
                let created = created.with_context(|| format!("cannot create Pod {name}"))?;
                created.uid().with_context(|| format!("Pod {name} has no uid"))
            })
            .buffer_unordered(CONCURRENT)
            .try_collect()
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn about_two_hundred_pods_of_four_tenants_in_six_namespaces() {
        let pods: u32 = WORKLOADS.iter().map(|workload| workload.replicas).sum();
        let namespaces: BTreeSet<_> = WORKLOADS.iter().map(|workload| workload.namespace).collect();
        let tenants: BTreeSet<_> = namespaces.iter().map(|namespace| tenant(namespace)).collect();
        assert_eq!((namespaces.len(), tenants.len()), (6, 4));
        assert!((190..=210).contains(&pods), "{pods}");
    }

    #[test]
    fn owners_differ_by_uid() {
        let uids: BTreeSet<_> = WORKLOADS.iter().map(|workload| uid(workload.namespace, workload.name)).collect();
        assert_eq!(uids.len(), WORKLOADS.len());
    }

    #[test]
    fn a_rollout_changes_the_replica_set_and_not_the_workload() {
        let owner = |workload: &Workload| {
            workload.pod(0, None, None).unwrap().metadata.owner_references.unwrap_or_default()[0].name.clone()
        };
        assert_eq!(owner(&WEB_BEFORE), "web-6d4cf56db6");
        assert_eq!(owner(&WEB_AFTER), "web-7c9d8b5f4d");
    }
}
