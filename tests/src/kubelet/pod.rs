//! A Pod as far as containers need it. A field that is not known here is an error.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::Value;

use crate::controlplane::token;

/// The parts of a Pod that its container needs.
#[derive(Debug, Default)]
pub(super) struct ParsedPod {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) arguments: Vec<String>,
    pub(super) user: u64,
    pub(super) group: u64,
    pub(super) fs_group: u64,
    pub(super) memory: Option<String>,
    pub(super) cpus: Option<f64>,
    pub(super) mounts: Vec<Mount>,
    /// Port and path of the probe of readiness; `None` if the Pod runs to its end.
    pub(super) readiness: Option<(u16, String)>,
}

#[derive(Debug)]
pub(super) struct Mount {
    pub(super) path: String,
    pub(super) read_only: bool,
    pub(super) contents: Contents,
}

#[derive(Debug, Clone)]
pub(super) enum Contents {
    /// Files by their path.
    Files(BTreeMap<String, Vec<u8>>),
    Empty,
}

/// Fields of a Pod that change nothing for a container of one node.
const OF_THE_CLUSTER: [&str; 17] = [
    "serviceAccount",
    "nodeName",
    "schedulerName",
    "priority",
    "preemptionPolicy",
    "tolerations",
    "topologySpreadConstraints",
    "terminationGracePeriodSeconds",
    "enableServiceLinks",
    "dnsPolicy",
    "restartPolicy",
    "serviceAccountName",
    "securityContext",
    "containers",
    "volumes",
    "nodeSelector",
    "automountServiceAccountToken",
];
const OF_A_CONTAINER: [&str; 13] = [
    "name",
    "image",
    "imagePullPolicy",
    "args",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "resources",
    "securityContext",
    "volumeMounts",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

fn only(object: &Value, known: &[&str]) -> Result<()> {
    let unknown: Vec<_> = object.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    let unknown: Vec<_> = unknown.into_iter().filter(|key| !known.contains(key)).collect();
    ensure!(unknown.is_empty(), "{unknown:?} are not known to this kubelet");
    Ok(())
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("no text: {value}"))
}

/// Returns the Pod with the contents of its volumes, a new token among them.
pub(super) async fn parse(pod: &Value, client: &Client, namespace: &str) -> Result<ParsedPod> {
    let spec = &pod["spec"];
    only(spec, &OF_THE_CLUSTER)?;
    ensure!(spec["enableServiceLinks"] == false, "environment variables of Services are not known to this kubelet");
    let [container] = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        bail!("not one container")
    };
    only(container, &OF_A_CONTAINER)?;
    let security = &spec["securityContext"];
    only(security, &["runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "seccompProfile"])?;
    ensure!(security["seccompProfile"]["type"] == "RuntimeDefault", "{security}");
    let own = &container["securityContext"];
    only(own, &["allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"])?;
    // The container is always run so.
    ensure!(own["allowPrivilegeEscalation"] == false && own["readOnlyRootFilesystem"] == true, "{own}");
    ensure!(own["capabilities"]["drop"][0] == "ALL" && own["capabilities"]["add"].is_null(), "{own}");
    let id = |field: &str| security[field].as_u64().with_context(|| format!("no {field}"));
    let probe = &container["readinessProbe"]["httpGet"];
    ensure!(probe.is_object() || spec["restartPolicy"] == "Never", "no probe of readiness");
    let mut readiness = None;
    if probe.is_object() {
        let ports = container["ports"].as_array().context("no ports")?;
        let port = ports.iter().find(|port| port["name"] == probe["port"]).context("the probe names no port")?;
        let port = u16::try_from(port["containerPort"].as_u64().context("no port")?)?;
        readiness = Some((port, text(&probe["path"])?));
    }
    let limits = &container["resources"]["limits"];
    let cpus = limits["cpu"].as_str().map(|cpu| match cpu.strip_suffix('m') {
        Some(millis) => millis.parse::<f64>().map(|millis| millis / 1_000.0),
        None => cpu.parse(),
    });
    let mut mounts = Vec::new();
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        only(mount, &["name", "mountPath", "readOnly"])?;
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        let volume = volumes.clone().find(|volume| volume["name"] == mount["name"]).context("no such volume")?;
        let account = text(&spec["serviceAccountName"])?;
        let contents = contents(volume, client, namespace, &account).await?;
        let read_only = mount["readOnly"] == true;
        mounts.push(Mount { path: text(&mount["mountPath"])?, read_only, contents });
    }
    let arguments = container["args"].as_array().into_iter().flatten().map(text).collect::<Result<_>>()?;
    Ok(ParsedPod {
        name: text(&pod["metadata"]["name"])?,
        image: text(&container["image"])?,
        arguments,
        user: id("runAsUser")?,
        group: id("runAsGroup")?,
        fs_group: id("fsGroup")?,
        memory: limits["memory"].as_str().map(str::to_owned),
        cpus: cpus.transpose()?,
        mounts,
        readiness,
    })
}

/// Returns the present files of the mounts that are ConfigMaps, by the number of the mount.
pub(super) async fn config_maps(
    pod: &Value,
    client: &Client,
    namespace: &str,
) -> Result<Vec<(usize, BTreeMap<String, Vec<u8>>)>> {
    let spec = &pod["spec"];
    let mut maps = Vec::new();
    for (index, mount) in spec["containers"][0]["volumeMounts"].as_array().into_iter().flatten().enumerate() {
        let mut volumes = spec["volumes"].as_array().into_iter().flatten();
        let volume = volumes.find(|volume| volume["name"] == mount["name"]).context("no such volume")?;
        if let Some(name) = volume["configMap"]["name"].as_str() {
            maps.push((index, config_map(client, namespace, name).await?));
        }
    }
    Ok(maps)
}

async fn contents(volume: &Value, client: &Client, namespace: &str, account: &str) -> Result<Contents> {
    only(volume, &["name", "configMap", "emptyDir", "projected"])?;
    if volume["emptyDir"].is_object() {
        return Ok(Contents::Empty);
    }
    let mut files = BTreeMap::new();
    if let Some(name) = volume["configMap"]["name"].as_str() {
        files.extend(config_map(client, namespace, name).await?);
    }
    for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
        only(source, &["serviceAccountToken", "configMap", "downwardAPI"])?;
        if let Some(path) = source["serviceAccountToken"]["path"].as_str() {
            files.insert(path.to_owned(), token(client.clone(), namespace, account).await?.into_bytes());
        }
        if let Some(name) = source["configMap"]["name"].as_str() {
            files.extend(config_map(client, namespace, name).await?);
        }
        for item in source["downwardAPI"]["items"].as_array().into_iter().flatten() {
            ensure!(item["fieldRef"]["fieldPath"] == "metadata.namespace", "{item}");
            files.insert(text(&item["path"])?, namespace.as_bytes().to_vec());
        }
    }
    ensure!(!files.is_empty(), "an unknown volume: {volume}");
    Ok(Contents::Files(files))
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get(name).await.context(name.to_owned())?;
    Ok(map.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into_bytes())).collect())
}
