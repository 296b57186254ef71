//! `podium-host` in the smallest container that docs/install.md names, under a real limit of the kernel.

use std::{fs, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_devcluster::{Cluster, Options};
use podium_encoding::testing::pod_json;
use podium_tests::{
    bombs,
    cgroup::MemoryGroup,
    plugins,
    process::{Host, HostOptions, host_binary},
    wait::until,
};
use serde_json::json;

use super::host::configuration;

const WITHIN: Duration = Duration::from_secs(120);
const LIMIT: u64 = 128 << 20;
const PODS: u32 = 5_000;
const PLUGINS: u32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_128_mib_ten_plugins_run_on_5000_pods() -> Result<()> {
    let Some(group) = MemoryGroup::with_limit(LIMIT) else { return Ok(()) };
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() })?;
    let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    for own in 0..PODS {
        let mut pod = pod_json((own / 70) as usize, own.into(), "Running");
        pod["metadata"]["ownerReferences"] = json!([]);
        pod["metadata"]["name"] = format!("web-{own}").into();
        pod["metadata"]["namespace"] = "default".into();
        // The cluster sets these, and knows no other fields.
        for field in ["resourceVersion", "uid"] {
            pod["metadata"][field] = json!(null);
        }
        pod["spec"]["zone"] = json!(null);
        pod["status"] = json!(null);
        cluster.create(pod).with_context(|| format!("Pod {own}"))?;
    }
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name);
    fs::write(path("kubeconfig"), server.kubeconfig())?;
    fs::create_dir(path("plugins"))?;
    // Each has other code. They write only to Pods with a controller: all runs fit into the time of a test.
    let sample = plugins::sample_yaml("workload-label")?;
    let component = sample.lines().find_map(|line| line.trim().strip_prefix("file: ")).context("no file")?;
    let component_bytes = fs::read(component)?;
    for number in 0..PLUGINS {
        let (name, wasm) = (format!("plugin-{number}"), path(&format!("{number}.wasm")));
        fs::write(&wasm, bombs::marked(&component_bytes, &name))?;
        let yaml = sample
            .replace(component, &wasm.to_string_lossy())
            .replace("name: workload-label", &format!("name: {name}"));
        fs::write(path(&format!("plugins/{name}.yaml")), yaml)?;
    }
    let python = plugins::python()?;
    if let Some(component) = &python {
        let class = "  limits: { class: interpreter, memoryMiB: 32 }\n";
        fs::write(path("plugins/python.yaml"), configuration("python", component, class))?;
    }
    let options = HostOptions {
        kubeconfig: path("kubeconfig"),
        plugins: vec![path("plugins")],
        arguments: ["--state-dir".to_owned(), path("state").display().to_string()].to_vec(),
    };
    let host = Host::spawn_by(group.command(host_binary()?), &options).await?;
    until("a run of each plugin on each Pod", WITHIN, async || {
        let runs = host.metric("controller_runtime_reconcile_total", &[r#"result="success""#]).await?;
        ensure!(runs >= f64::from(PODS * PLUGINS), "{runs} runs");
        Ok(())
    })
    .await?;
    let ready = host.metric("podium_plugin_ready", &[]).await?;
    ensure!((ready - f64::from(PLUGINS)).abs() < 0.5, "{ready} plugins are ready: {}", host.log());
    let refusal = "the memory limit of the host's container leaves ";
    ensure!(python.is_none() || host.log().contains(refusal), "{}", host.log());
    let resident = host.metric("process_resident_memory_bytes", &[]).await?;
    let figures = format!("{} MiB resident, peak {} MiB", resident / f64::from(1 << 20), group.peak()? >> 20);
    ensure!(group.killed()? == 0, "the kernel ended a process: {figures}");
    eprintln!("podium-tests: {figures}");
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}
