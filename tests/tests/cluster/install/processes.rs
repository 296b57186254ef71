//! The host as a process of this machine, with the arguments, the environment and the files that its container has from
//! the chart or from the kustomize base.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podium_tests::{
    controlplane::ControlPlane,
    helm::Helm,
    process::{Host, HostOptions, host_binary, workspace_dir},
    wait::until,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::manifests::{deploy, find, rendered};
use crate::{cluster, kubectl::Kubectl, workloads::namespace};

/// The host reads its policy again every few seconds.
const SOON: Duration = Duration::from_secs(60);

/// A container whose mounts are directories of this machine, to which arguments and files refer instead.
struct Container {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Mount paths with their directories.
    mounts: Vec<(String, String)>,
    _directory: TempDir,
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &Value) -> Result<&'a Value> {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == *name);
    found.with_context(|| format!("no {kind} {name}"))
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("no text: {value}"))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl Container {
    /// Returns the only container of a Pod, with the ConfigMaps and Secrets that it names from these objects.
    fn new(objects: &[Value], spec: &Value) -> Result<Self> {
        let container = &spec["containers"][0];
        let directory = tempfile::tempdir()?;
        let mut mounts = Vec::new();
        for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
            let path = directory.path().join(index.to_string());
            fs::create_dir(&path)?;
            mounts.push((text(&mount["mountPath"])?, path.display().to_string()));
        }
        let mut arguments = items(&container["args"]).iter().map(text).collect::<Result<Vec<_>>>()?;
        let mut environment = Vec::new();
        for source in items(&container["envFrom"]) {
            let secret = named(objects, "Secret", &source["secretRef"]["name"])?;
            for (name, value) in secret["stringData"].as_object().into_iter().flatten() {
                environment.push((name.clone(), text(value)?));
            }
        }
        for variable in items(&container["env"]) {
            environment.push((text(&variable["name"])?, text(&variable["value"])?));
        }
        arguments.retain(|argument| !argument.contains("-bind-address="));
        let mut of = Self { arguments: Vec::new(), environment, mounts, _directory: directory };
        of.arguments = arguments.iter().map(|argument| of.here(argument)).collect();
        of.write(objects, spec)?;
        Ok(of)
    }

    /// Replaces mount paths.
    fn here(&self, text: &str) -> String {
        self.mounts.iter().fold(text.to_owned(), |text, (there, path)| text.replace(there, path))
    }

    /// Writes the files of ConfigMaps.
    fn write(&self, objects: &[Value], spec: &Value) -> Result<()> {
        for (mount, (_, path)) in items(&spec["containers"][0]["volumeMounts"]).iter().zip(&self.mounts) {
            let volume = items(&spec["volumes"]).iter().find(|volume| volume["name"] == mount["name"]);
            let source = &volume.with_context(|| format!("no volume of {mount}"))?["configMap"];
            if source.is_null() {
                continue;
            }
            let map = named(objects, "ConfigMap", &source["name"])?;
            for (key, value) in map["data"].as_object().context("no data")? {
                let item = items(&source["items"]).iter().find(|item| item["key"] == *key);
                let name = item.map_or_else(|| Ok(key.clone()), |item| text(&item["path"]))?;
                fs::write(Path::new(path).join(name), self.here(&text(value)?))?;
            }
        }
        Ok(())
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(host_binary()?);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Runs it to its end.
    fn output(&self) -> Result<Output> {
        Ok(self.command()?.args(&self.arguments).output()?)
    }

    /// Starts it with the account of the host, and waits until it is ready.
    async fn host(&self, plane: &ControlPlane) -> Result<Host> {
        let kubeconfig = plane.kubeconfig_of("podium", "podium-host").await?;
        let options = HostOptions { kubeconfig, arguments: self.arguments.clone(), ..HostOptions::default() };
        Host::spawn_by(self.command()?, &options).await
    }
}

/// Applies rendered objects.
fn apply(kubectl: &Kubectl, objects: &[Value]) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string())?;
    kubectl.admin(&["apply", "--filename", &file.path().to_string_lossy()]).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_the_values_of_a_large_company_is_ready() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, "podium").await?;
    let values = workspace_dir().join("docs/values-company.yaml").to_string_lossy().into_owned();
    let company = rendered(&helm, "podium", &["--values", &values])?;
    apply(&Kubectl::new(&plane), &company)?;
    // The API server of the tests has no address of the company's networks.
    let no_proxy = format!("env[0].value=10.0.0.0/8\\,.svc\\,.company.example\\,{}", plane.address().ip());
    let mut objects = rendered(&helm, "podium", &["--values", &values, "--set", &no_proxy])?;
    let authority = named(&objects, "ConfigMap", &json!("podium-host-policy"))?["data"]["company-ca.pem"].clone();
    // Both are there before the chart. No proxy listens.
    let proxy = json!({ "HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1" });
    let there = [
        json!({ "kind": "Secret", "metadata": { "name": "company-proxy" }, "stringData": proxy }),
        json!({ "kind": "ConfigMap", "metadata": { "name": "vendor-ca" }, "data": { "ca-bundle.crt": authority } }),
    ];
    objects.extend(there);
    let spec = &find(&objects, "Deployment")?["spec"]["template"]["spec"];
    let container = Container::new(&objects, spec)?;
    let host = container.host(&plane).await?;
    let state = host.get("/readyz?verbose").await?;
    ensure!(state.ends_with("readyz check passed\n"), "{state}");
    ensure!(host.terminate().await?.success());

    // The variables count: with the values as they are, this API server is beyond the proxy.
    let mut beyond = container.command()?;
    beyond.env("NO_PROXY", "10.0.0.0/8,.svc,.company.example");
    beyond.arg("--kubeconfig").arg(plane.kubeconfig_of("podium", "podium-host").await?);
    beyond.args(&container.arguments).args(["--health-probe-bind-address=127.0.0.1:0"]);
    beyond.arg("--metrics-bind-address=127.0.0.1:0");
    let log = tempfile::NamedTempFile::new()?;
    let host = podium_tests::process::Process::spawn("podium-host", &mut beyond, log.path().to_owned())?;
    until("a connection through the proxy to fail", SOON, async || {
        ensure!(host.log().contains("proxy"), "{}", host.log());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_check_before_an_upgrade_refuses_a_policy_with_a_mistake() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let good = rendered(&helm, "podium", &["--set", "policy.defaults.limits.writes=19"])?;
    let check =
        |objects: &[Value]| Container::new(objects, &find(objects, "Job")?["spec"]["template"]["spec"])?.output();
    let output = check(&good)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // Helm's own schema would refuse this before.
    let bad: Vec<Value> = serde_json::from_str(&json!(good).to_string().replace("writes: 19", "writes: many"))?;
    ensure!(bad != good, "no such limit");
    let output = check(&bad)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.code() == Some(2), "{}: {said}", output.status);
    let policy = named(&bad, "ConfigMap", &json!("podium-host-policy-check"))?["data"]["policy.yaml"].clone();
    let line = text(&policy)?.lines().position(|line| line.contains("writes: many")).context("no such line")? + 1;
    for words in ["policy.yaml".to_owned(), "spec.defaults.limits.writes".to_owned(), format!("\"line\":{line}")] {
        ensure!(said.contains(&words), "{words} is not in {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_of_the_kustomize_base_reads_a_changed_policy_again() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, "podium").await?;
    let base = deploy("kustomize/base").to_string_lossy().into_owned();
    let built = Kubectl::new(&plane).admin(&["kustomize", &base])?;
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&built)?;
    apply(&Kubectl::new(&plane), &objects)?;
    let spec = find(&objects, "Deployment")?["spec"]["template"]["spec"].clone();
    let container = Container::new(&objects, &spec)?;
    let host = container.host(&plane).await?;
    let mut replaced = async |text: &str, words: &str| {
        let map = objects.iter_mut().find(|object| object["kind"] == "ConfigMap").context("no ConfigMap")?;
        map["data"]["policy.yaml"] = json!(text);
        container.write(&objects, &spec)?;
        until(words, SOON, async || {
            ensure!(host.log().contains(words), "{}", host.log());
            Ok(())
        })
        .await
    };
    let policy = |writes: &str| {
        let spec = format!("{{ defaults: {{ limits: {{ writes: {writes} }} }} }}");
        format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {spec}\n")
    };
    replaced(&policy("many"), "policy refused; ").await?;
    replaced(&policy("19"), "policy replaced").await?;
    ensure!(host.terminate().await?.success());
    Ok(())
}
