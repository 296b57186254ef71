//! The chart and its plain form, without a cluster; and the image.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use podium_host::config::Policy;
use podium_tests::{
    helm::Helm,
    kubelet::has_containers,
    process::{host_binary, workspace_dir},
    runner,
};
use podium_vocabulary::Language;
use serde_json::Value;

/// The variable with which `just manifests` writes the files instead of comparing them.
const RENEW: &str = "PODIUM_RENEW_MANIFESTS";
/// Files of the base that are written by people.
const BY_HAND: [&str; 2] = ["kustomization.yaml", "namespace.yaml"];
/// The file of the policy, which kustomize makes a ConfigMap of.
const POLICY: &str = "policy.yaml";
/// Lines that are about Helm.
const OF_HELM: [&str; 3] = ["# Source: ", "app.kubernetes.io/managed-by: ", "helm.sh/chart: "];

pub(super) fn deploy(path: &str) -> PathBuf {
    workspace_dir().join("deploy").join(path)
}

pub(super) fn template(helm: &Helm, namespace: &str, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(helm.path());
    command.args(["template", "podium"]).arg(deploy("chart")).args(["--namespace", namespace]).args(arguments);
    Ok(command.output()?)
}

pub(super) fn rendered(helm: &Helm, namespace: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let output = template(helm, namespace, arguments)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

pub(super) fn find<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind).with_context(|| format!("no {kind}"))
}

#[tokio::test]
async fn the_kustomize_base_is_what_the_chart_renders() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    // Deleting the base deletes the kinds: there is no Helm that could keep them.
    let into =
        ["--set", "crds.keep=false,policyCheck.enabled=false", "--output-dir", &directory.path().to_string_lossy()];
    let output = template(&helm, "podium", &into)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(directory.path().join("podium/templates"))? {
        let entry = entry?;
        let text = fs::read_to_string(entry.path())?;
        let is_plain = |line: &&str| !OF_HELM.iter().any(|start| line.trim_start().starts_with(start));
        let lines = text.lines().filter(is_plain).skip_while(|line| *line == "---");
        // A document ends with an empty line.
        let plain = lines.collect::<Vec<_>>().join("\n").replace("\n\n---\n", "\n---\n").trim_end().to_owned() + "\n";
        let name = entry.file_name().to_string_lossy().into_owned();
        let plain = if name == POLICY { policy_text(&serde_saphyr::from_str(&plain)?)? } else { plain };
        let file = deploy("kustomize/base").join(&name);
        if env::var_os(RENEW).is_some() {
            fs::write(&file, &plain)?;
        }
        ensure!(
            fs::read_to_string(&file).is_ok_and(|text| text == plain),
            "{name} is old; renew it with `just manifests`"
        );
        names.insert(name);
    }
    let there =
        fs::read_dir(deploy("kustomize/base"))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let there: BTreeSet<String> = there.collect::<Result<_>>()?;
    let expected: BTreeSet<String> = names.iter().cloned().chain(BY_HAND.map(str::to_owned)).collect();
    ensure!(there == expected, "{there:?}, expected {expected:?}");
    let kustomization: Value =
        serde_saphyr::from_str(&fs::read_to_string(deploy("kustomize/base/kustomization.yaml"))?)?;
    let resources: BTreeSet<String> = serde_json::from_value(kustomization["resources"].clone())?;
    names.remove(POLICY);
    ensure!(resources.len() == names.len() + 1 && names.is_subset(&resources), "{resources:?} of {names:?}");
    let generated = &kustomization["configMapGenerator"][0];
    let deployment: Value = serde_saphyr::from_str(&fs::read_to_string(deploy("kustomize/base/deployment.yaml"))?)?;
    let volume = &deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"];
    ensure!(generated["name"] == *volume && generated["files"] == serde_json::json!([POLICY]), "{generated}: {volume}");
    ensure!(generated["options"]["disableNameSuffixHash"] == true, "the host reads it again: {generated}");
    Ok(())
}

#[tokio::test]
async fn helm_keeps_the_kinds_and_they_are_the_generated_ones() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let generated: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(deploy("chart/crds.yaml"))?)?;
    let objects = rendered(&helm, "podium", &[])?;
    let mut kinds: Vec<Value> =
        objects.into_iter().filter(|object| object["kind"] == "CustomResourceDefinition").collect();
    ensure!(kinds.len() == 3, "{} kinds", kinds.len());
    for kind in &mut kinds {
        let annotations = kind["metadata"].as_object_mut().and_then(|metadata| metadata.remove("annotations"));
        ensure!(annotations.is_some_and(|all| all["helm.sh/resource-policy"] == "keep"), "{}", kind["metadata"]);
    }
    ensure!(kinds == generated, "the chart renders other kinds than it has in crds.yaml");
    Ok(())
}

#[tokio::test]
async fn a_release_of_one_namespace_has_no_object_of_the_cluster() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let off = "crds.enabled=false,roles.enabled=false,admission.enabled=false,rbac.clusterIdentity=false,\
        flowSchemas.enabled=false,cleanup.enabled=false,metrics.authentication=false";
    let more = "persistence.enabled=true,watchNamespace=shop";
    let values = ["--set", off, "--set", more];
    let objects = rendered(&helm, "shop", &values)?;
    let elsewhere = objects.iter().find(|object| object["metadata"]["namespace"] != "shop");
    ensure!(elsewhere.is_none(), "{elsewhere:?}");
    ensure!(!objects.iter().any(|object| object["kind"].as_str().is_some_and(|kind| kind.starts_with("Cluster"))));
    let rules = &find(&objects, "Role")?["rules"];
    ensure!(!rules.to_string().contains("clusterreconcileplugins"), "{rules}");
    let spec = &find(&objects, "Deployment")?["spec"]["template"]["spec"];
    ensure!(spec["containers"][0]["args"].to_string().contains("--namespace=shop"), "{spec}");
    ensure!(spec["volumes"][1]["persistentVolumeClaim"]["claimName"] == "podium-host", "{spec}");
    ensure!(find(&objects, "PersistentVolumeClaim")?["spec"]["resources"]["requests"]["storage"] == "2Gi");
    // Its own namespace may have plugins.
    ensure!(policy(&objects)?["spec"]["namespaces"]["shop"].is_null());
    Ok(())
}

fn policy_text(map: &Value) -> Result<String> {
    Ok(map["data"][POLICY].as_str().context("no policy")?.to_owned())
}

/// Returns the policy of rendered objects; the host reads it, and the files beside it, without a mistake.
pub(super) fn policy(objects: &[Value]) -> Result<Value> {
    let map = find(objects, "ConfigMap")?;
    let directory = tempfile::tempdir()?;
    for (name, text) in map["data"].as_object().context("no data")? {
        fs::write(directory.path().join(name), text.as_str().context("no text")?)?;
    }
    let read = Policy::read(&directory.path().join(POLICY)).and_then(|policy| policy.registries());
    ensure!(read.is_ok(), "{:?}: {map}", read.err());
    Ok(serde_saphyr::from_str(&policy_text(map)?)?)
}

#[tokio::test]
async fn the_policy_of_the_values_excludes_the_namespaces_of_the_platform() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let values =
        ["--set", "policy.namespaces.kube-public.excluded=false", "--set", "policy.defaults.limits.memoryMiB=64"];
    let objects = rendered(&helm, "platform", &values)?;
    let policy = policy(&objects)?;
    let namespaces = &policy["spec"]["namespaces"];
    for (name, excluded) in
        [("kube-system", true), ("kube-node-lease", true), ("platform", true), ("kube-public", false)]
    {
        ensure!(namespaces[name]["excluded"] == excluded, "{name}: {namespaces}");
    }
    let defaults = &policy["spec"]["defaults"];
    ensure!(defaults["serviceAccountRequired"] == true && defaults["limits"]["memoryMiB"] == 64, "{defaults}");
    // The host reads it again, so that no plugin is interrupted. A file that is mounted by itself would never change.
    let deployment = find(&objects, "Deployment")?;
    ensure!(deployment == find(&rendered(&helm, "platform", &[])?, "Deployment")?);
    ensure!(!deployment.to_string().contains("subPath"), "{deployment}");
    Ok(())
}

#[tokio::test]
async fn alerts_and_dashboard_are_objects_on_demand() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let without = rendered(&helm, "podium", &[])?;
    ensure!(find(&without, "PrometheusRule").is_err() && find(&without, "ServiceMonitor").is_err());
    let on = ["serviceMonitor", "rules", "dashboard"].map(|part| format!("metrics.{part}.enabled=true")).join(",");
    let objects = rendered(&helm, "podium", &["--set", &on])?;
    let rules: Value = serde_saphyr::from_str(&fs::read_to_string(deploy("chart/monitoring/rules.yaml"))?)?;
    ensure!(find(&objects, "PrometheusRule")?["spec"] == rules && rules["groups"].is_array());
    let dashboard = objects.iter().find_map(|object| object["data"]["podium.json"].as_str()).context("no dashboard")?;
    let file: Value = serde_json::from_slice(&fs::read(deploy("chart/monitoring/dashboard.json"))?)?;
    ensure!(serde_json::from_str::<Value>(dashboard)? == file, "another dashboard");
    // The selector of the ServiceMonitor finds the Service, whose port has the protocol of the host.
    let (monitor, service) = (find(&objects, "ServiceMonitor")?, find(&objects, "Service")?);
    for (label, value) in monitor["spec"]["selector"]["matchLabels"].as_object().context("no selector")? {
        ensure!(service["metadata"]["labels"][label] == *value, "{label}: {service}");
    }
    let endpoint = &monitor["spec"]["endpoints"][0];
    ensure!(endpoint["port"] == service["spec"]["ports"][0]["name"] && endpoint["scheme"] == "https", "{endpoint}");
    Ok(())
}

#[tokio::test]
async fn a_value_that_the_chart_does_not_know_is_refused() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    for (value, message) in [
        ("replica=2", "additional properties 'replica' not allowed"),
        ("replicas=0", "minimum: got 0, want 1"),
        ("networkPolicy.enable=true", "additional properties 'enable' not allowed"),
        ("terminationGracePeriodSeconds=5", "minimum: got 5, want 11"),
        ("metrics.port=8081", "'not' failed"),
        ("podDisruptionBudget.maxUnavailable=0", "minimum: got 0, want 1"),
        ("policy.defaults.limits.memoryMib=64", "additional properties 'memoryMib' not allowed"),
        ("policy.namespace.shop.excluded=true", "additional properties 'namespace' not allowed"),
        ("policy.namespaces.kube_system.excluded=true", "kube_system"),
        ("policy.cluster.limits.memoryMiB=512", "maximum: got 512, want 256"),
        ("policyFiles.policy\\.yaml=x", "policy.yaml"),
    ] {
        let output = template(&helm, "podium", &["--set", value])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains(message), "{value}: {said}");
    }
    Ok(())
}

/// Builds the image, without its name in a list of images. Returns the printed lines.
fn build(tag: &str, directory: &Path) -> Result<String> {
    let mut command = Command::new("bash");
    command.arg(deploy("image/build.sh")).args(["--tag", tag]).arg("--binary").arg(host_binary()?);
    let runners = runner::for_image()?;
    command.env("PODIUM_IMAGE_RUNNERS", runners.path());
    let output = command.env("CARGO_TARGET_DIR", directory).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn two_builds_of_the_image_are_equal_and_its_sbom_is_complete() -> Result<()> {
    if !has_containers()? {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let tags = ["localhost/podium-tests:first", "localhost/podium-tests:second"];
    let ids = tags.map(|tag| build(tag, directory.path()));
    let ids: Vec<_> = ids.into_iter().map(|printed| Ok(id(&printed?)?.to_owned())).collect::<Result<_>>()?;
    let labels = run("podman", &["inspect", "--format", "{{.Config.User}} {{.Config.Labels}}", tags[0]]);
    let version = run("podman", &[&CONTAINER[..], &[tags[0], "--version"]].concat());
    run("podman", &[&["rmi", "--force"], &tags[..]].concat())?;
    ensure!(ids[0] == ids[1], "{ids:?}");
    let labels = labels?;
    ensure!(labels.starts_with("65532:65532 ") && labels.contains("image.version:0.1.0"), "{labels}");
    ensure!(version? == format!("podium-host {}\n", env!("CARGO_PKG_VERSION")));

    let bill: Value = serde_json::from_slice(&fs::read(directory.path().join("image/podium-host.cdx.json"))?)?;
    let components = bill["components"].as_array().context("no components")?;
    let named = |name: &str| {
        components.iter().find(|component| component["name"] == name).with_context(|| format!("no {name}"))
    };
    let lock = fs::read_to_string(workspace_dir().join("Cargo.lock"))?;
    let runner = runner::component(Language::JavaScript)?.map(|_| ["rquickjs", "rquickjs-sys"]);
    ensure!(named("quickjs-ng").is_ok() == runner.is_some());
    ensure!(named("componentize-py").is_ok() == runner::component(Language::Python)?.is_some());
    for name in ["wasmtime", "kube-client", "rustls", "ring"].into_iter().chain(runner.into_iter().flatten()) {
        let component = named(name)?;
        let (version, sum) = (component["version"].as_str().context("no version")?, &component["hashes"][0]["content"]);
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        let (_, rest) = lock.split_once(&entry).with_context(|| format!("Cargo.lock has no {entry}"))?;
        let checksum = rest.lines().nth(1).unwrap_or_default();
        ensure!(sum.as_str().is_some_and(|sum| checksum == format!("checksum = \"{sum}\"")), "{component}: {checksum}");
        ensure!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
    // Tools of builds and tests are not in the image.
    ensure!(named("proptest").is_err() && named("wit-parser").is_err());
    for name in ["ca-certificates", "libc6", "libgcc-s1"] {
        let installed = run("dpkg-query", &["--show", "--showformat=${Version}\n", name])?;
        ensure!(
            Some(named(name)?["version"].as_str().unwrap_or_default()) == installed.lines().next(),
            "{name}: {installed}"
        );
    }
    Ok(())
}

/// A container without rights.
const CONTAINER: [&str; 13] = [
    "--runtime",
    "runc",
    "run",
    "--rm",
    "--network=none",
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--ulimit",
    "nofile=1024:1024",
    "--ulimit",
    "nproc=1024:1024",
];

fn id(printed: &str) -> Result<&str> {
    printed.lines().find_map(|line| line.strip_prefix("id ")).context("no id was printed")
}
