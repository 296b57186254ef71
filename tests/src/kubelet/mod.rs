//! A node with one kubelet: it binds the Pods of a namespace to itself and runs them as containers, with exactly the
//! image, arguments, environment, volumes, token and limits that the API server has in the Pod. It reports readiness by
//! the Pod's own probe, and ends Pods as the API server asks.
//!
//! It refuses a Pod with a field that it does not know, so that no part of a manifest is ignored.

mod container;
mod network;
mod pod;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use container::Container;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::controlplane::ControlPlane;

const NODE: &str = "node-of-containers";
const NODES: &str = "/api/v1/nodes";
const INTERVAL: Duration = Duration::from_millis(200);
/// The programs that build images and run containers: packages of Debian with the same names, and iproute2.
const PROGRAMS: [&str; 7] = ["buildah", "podman", "runc", "jq", "ip", "unshare", "strip"];

/// Returns whether this machine can build images and run containers; a missing program is reported on stderr.
///
/// # Errors
/// Returns an error in CI (`CI=true`), where no suite is skipped.
pub fn has_containers() -> Result<bool> {
    let is_missing = |program: &&str| {
        let version = if *program == "ip" { "-V" } else { "--version" };
        Command::new(program).arg(version).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    };
    let Some(program) = PROGRAMS.iter().find(|program| is_missing(program)) else { return Ok(true) };
    ensure!(!crate::process::in_ci(), "{program} is missing, and in CI no suite is skipped");
    // Directly, because libtest hides the output of a passing test.
    let _ = writeln!(std::io::stderr(), "podium-tests: SKIPPED: no `{program}` on the PATH, so no container is run");
    Ok(false)
}

/// A running node. Dropping it ends its containers.
#[derive(Debug)]
pub struct Kubelet {
    containers: Containers,
    task: JoinHandle<()>,
    failure: Arc<Mutex<Option<String>>>,
}

type Containers = Arc<Mutex<BTreeMap<String, Arc<Container>>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kubelet {
    /// Starts the node. In its Pods, these ports of 127.0.0.1 are those of the machine, beside the API server's.
    ///
    /// # Errors
    /// Returns an error if the API server refuses it.
    pub async fn start(plane: &ControlPlane, namespace: &str, ports: &[u16]) -> Result<Self> {
        let client = plane.client().await?;
        let node = json!({ "metadata": { "name": NODE } });
        client.request::<Value>(Request::post(NODES).body(node.to_string().into_bytes())?).await?;
        let (containers, failure): (Containers, Arc<Mutex<Option<String>>>) = <_>::default();
        let node = Node {
            pods: Api::namespaced(client.clone(), namespace),
            client,
            namespace: namespace.to_owned(),
            port: plane.address().port(),
            ports: ports.to_vec(),
            containers: containers.clone(),
        };
        let failed = failure.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = node.reconcile().await {
                    *locked(&failed) = Some(format!("{error:#}"));
                }
                sleep(INTERVAL).await;
            }
        });
        Ok(Self { containers, task, failure })
    }

    /// Returns the latest failure and the log of each container.
    #[must_use]
    pub fn report(&self) -> String {
        let logs: Vec<_> = locked(&self.containers).values().map(|container| container.log()).collect();
        format!("kubelet: {:?}\n{}", locked(&self.failure), logs.join("\n---\n"))
    }

    /// Returns the response body of a GET in the network of the only container.
    ///
    /// # Errors
    /// Returns an error if there is none, or if it does not answer with status 200.
    pub async fn get(&self, port: u16, path: &str) -> Result<String> {
        let container = locked(&self.containers).values().next().cloned().context("no container")?;
        container.get(port, path).await
    }

    /// Returns the most memory that the only container has had, in bytes, and the number of times that it reached its
    /// limit or was refused memory, by its control group.
    ///
    /// # Errors
    /// Returns an error if there is none.
    pub fn memory(&self) -> Result<(u64, u64)> {
        locked(&self.containers).values().next().context("no container")?.memory()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Node {
    client: Client,
    pods: Api<Pod>,
    namespace: String,
    /// The API server's.
    port: u16,
    /// The others.
    ports: Vec<u16>,
    containers: Containers,
}

impl Node {
    async fn reconcile(&self) -> Result<()> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let there: BTreeSet<_> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
        let gone: Vec<_> = locked(&self.containers).keys().filter(|uid| !there.contains(*uid)).cloned().collect();
        for uid in gone {
            self.end(&uid, 0).await;
        }
        for pod in &pods {
            let name = pod.metadata.name.as_deref().context("a Pod without a name")?;
            self.pod(pod, name).await.with_context(|| format!("Pod {name}"))?;
        }
        Ok(())
    }

    async fn pod(&self, pod: &Pod, name: &str) -> Result<()> {
        let uid = pod.metadata.uid.clone().context("no uid")?;
        let spec = pod.spec.as_ref().context("no spec")?;
        if spec.node_name.is_none() {
            let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", self.namespace);
            let target = json!({ "target": { "kind": "Node", "name": NODE }, "metadata": { "name": name } });
            self.client.request::<Value>(Request::post(path).body(target.to_string().into_bytes())?).await?;
            return Ok(());
        }
        if pod.metadata.deletion_timestamp.is_some() {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
            self.end(&uid, u32::try_from(grace)?).await;
            let preconditions = Preconditions { uid: Some(uid), ..Preconditions::default() };
            let now = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
            self.pods.delete(name, &now).await?;
            return Ok(());
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if let Some("Succeeded" | "Failed") = phase {
            return Ok(());
        }
        let known = locked(&self.containers).get(&uid).cloned();
        let Some(container) = known else {
            let parsed = pod::parse(&serde_json::to_value(pod)?, &self.client, &self.namespace).await?;
            let mut container = Container::start(parsed, self.port, &self.ports).await?;
            let Some(succeeded) = container.ended().await? else {
                locked(&self.containers).insert(uid, Arc::new(container));
                return Ok(());
            };
            let status = json!({ "status": { "phase": if succeeded { "Succeeded" } else { "Failed" } } });
            self.pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
            ensure!(succeeded, "{}", container.log());
            return Ok(());
        };
        for (mount, files) in pod::config_maps(&serde_json::to_value(pod)?, &self.client, &self.namespace).await? {
            container.update(mount, &files)?;
        }
        let ready = container.is_ready().await;
        let shown = pod.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|conditions| {
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        });
        if ready != shown {
            let status = if ready { "True" } else { "False" };
            let conditions = ["Ready", "ContainersReady"].map(|kind| json!({ "type": kind, "status": status }));
            let status = json!({ "status": { "phase": "Running", "conditions": conditions } });
            self.pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await?;
        }
        Ok(())
    }

    async fn end(&self, uid: &str, grace: u32) {
        let container = locked(&self.containers).remove(uid);
        if let Some(container) = container {
            container.stop(grace).await;
        }
    }
}
