//! The workloads of the cluster: Deployments, a Job, a crash loop; the host's own ServiceAccount and its rights.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use podium_tests::controlplane::ControlPlane;
use serde_json::{Value, json};

/// The host's name in the audit log.
pub(crate) const HOST: &str = "system:serviceaccount:podium-system:podium";
/// The annotation with which KWOK crashes a Pod, see `controlplane/stages.yaml`.
const CRASH: &str = "suite.podium.dev/crash";

/// Creates an object; an existing one is not changed.
pub(crate) async fn create(client: &Client, path: &str, object: Value) -> Result<()> {
    match client.request::<Value>(Request::post(path).body(object.to_string().into_bytes())?).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error).with_context(|| format!("POST {path}: {object}")),
    }
}

pub(crate) async fn namespace(client: &Client, name: &str) -> Result<()> {
    create(client, "/api/v1/namespaces", json!({ "metadata": { "name": name } })).await?;
    account(client, name, "default").await
}

pub(crate) async fn account(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    create(client, &path, json!({ "metadata": { "name": name } })).await
}

/// Creates the host's ServiceAccount with exactly the rights that it needs; returns its kubeconfig.
pub(crate) async fn host_account(plane: &ControlPlane, client: &Client) -> Result<PathBuf> {
    namespace(client, "podium-system").await?;
    account(client, "podium-system", "podium").await?;
    let role = json!({
        "metadata": { "name": "podium" },
        "rules": [
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch", "delete"] },
            { "apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"] },
            { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] },
            { "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"] },
        ],
    });
    let binding = json!({
        "metadata": { "name": "podium" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "podium" },
        "subjects": [{ "kind": "ServiceAccount", "name": "podium", "namespace": "podium-system" }],
    });
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await?;
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await?;
    plane.kubeconfig_of("podium-system", "podium").await
}

/// The variations of a Deployment's Pods.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    pub(crate) crashes: bool,
    /// The node of all Pods.
    pub(crate) node: Option<&'static str>,
    /// Whether the image has a mutable tag, and the containers have no limits.
    pub(crate) careless: bool,
}

pub(crate) async fn deployment(
    client: &Client,
    namespace: &str,
    name: &str,
    replicas: usize,
    shape: Shape,
) -> Result<()> {
    let mut template = template(&json!({ "app": name }), shape);
    template["spec"]["restartPolicy"] = "Always".into();
    let object = json!({
        "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": template },
    });
    create(client, &format!("/apis/apps/v1/namespaces/{namespace}/deployments"), object).await
}

pub(crate) async fn job(client: &Client, namespace: &str, name: &str, completions: usize) -> Result<()> {
    let mut template = template(&json!({ "job": name }), Shape::default());
    template["spec"]["restartPolicy"] = "Never".into();
    let object = json!({
        "metadata": { "name": name },
        "spec": { "completions": completions, "parallelism": completions, "template": template },
    });
    create(client, &format!("/apis/batch/v1/namespaces/{namespace}/jobs"), object).await
}

fn template(labels: &Value, shape: Shape) -> Value {
    let container = if shape.careless {
        json!({ "name": "main", "image": "registry.example/app:latest" })
    } else {
        let limits = json!({ "memory": "64Mi" });
        json!({ "name": "main", "image": "registry.example/app:1.2.3", "resources": { "limits": limits } })
    };
    let mut template = json!({
        "metadata": { "labels": labels },
        "spec": { "automountServiceAccountToken": false, "containers": [container] },
    });
    if shape.crashes {
        template["metadata"]["annotations"] = json!({ CRASH: "loop" });
    }
    if let Some(node) = shape.node {
        template["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    }
    template
}

pub(crate) async fn pod(client: &Client, namespace: &str, name: &str) -> Result<Pod> {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "registry.example/app:1.2.3" }],
        },
    });
    create(client, &format!("/api/v1/namespaces/{namespace}/pods"), object).await?;
    Ok(Api::namespaced(client.clone(), namespace).get(name).await?)
}

/// Returns the matching Pods of a namespace.
pub(crate) async fn pods(client: &Client, namespace: &str, labels: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    Ok(api.list(&ListParams::default().labels(labels)).await?.items)
}

/// Pauses the crash loop in its present state.
pub(crate) async fn pause_crashes(client: &Client, namespace: &str, labels: &str) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    for pod in pods(client, namespace, labels).await? {
        let name = pod.metadata.name.context("a Pod without a name")?;
        let patch = json!({ "metadata": { "annotations": { CRASH: "paused" } } });
        api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// Fails unless there are as many `pods` as expected and all of them satisfy the claim.
pub(crate) fn all(pods: &[Pod], expected: usize, claim: &str, holds: impl Fn(&Pod) -> bool) -> Result<()> {
    let good = pods.iter().filter(|pod| holds(pod)).count();
    ensure!(good == expected && pods.len() == expected, "{claim}: {good} of {}, expected {expected}", pods.len());
    Ok(())
}

pub(crate) fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status.as_str())
}
