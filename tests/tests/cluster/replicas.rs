//! Replicas of the host on a real control plane: one of two runs the plugins, the other goes on after a SIGKILL of it,
//! and a host elsewhere writes nothing.

use std::{collections::BTreeMap, fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_tests::{
    controlplane::{AuditedWrite, ControlPlane},
    guests,
    helm::Helm,
    process::{Host, Process, host_binary, workspace_dir},
    wait::until,
};
use podium_vocabulary::Shards;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    exclusive,
    kubectl::Kubectl,
    objects::{HOST, NAMESPACE, apply, condition, config_map, labelled, spec, start},
    workloads::pod,
};

const SOON: Duration = Duration::from_secs(60);

/// Returns the number of the term in which the write was sent.
pub(crate) fn term(write: &AuditedWrite) -> Result<u32> {
    let (_, term) = write.user_agent.rsplit_once(" term/").with_context(|| format!("no term: {write:?}"))?;
    Ok(term.parse()?)
}

/// Checks that the log has a patch of each of the Pods, and at most one that the API server answered with success. The
/// log has the writes that the SIGKILL interrupted with another code, or without one.
fn check_patches(writes: &[AuditedWrite], pods: usize) -> Result<()> {
    let mut patches: BTreeMap<&str, Vec<&AuditedWrite>> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.resource == "pods" && write.verb == "patch") {
        patches.entry(&write.name).or_default().push(write);
    }
    ensure!(patches.len() == pods, "patches of {} of {pods} Pods: {:?}", patches.len(), patches.keys());
    for (name, writes) in &patches {
        let succeeded = writes.iter().filter(|write| write.code == 200).count();
        ensure!(succeeded <= 1 && writes.len() <= 2, "{name}: {writes:?}");
    }
    let interrupted = patches.values().filter(|writes| writes.iter().all(|write| write.code != 200)).count();
    // A tenant has runs and deliveries on at most half of the workers, which are four for each processor.
    ensure!(
        interrupted <= 2 * std::thread::available_parallelism()?.get(),
        "{interrupted} patches were not answered: {patches:?}"
    );
    Ok(())
}

/// Checks that each Pod was patched once, and that the replicas did not write at one time.
fn check_writes(writes: Vec<AuditedWrite>) -> Result<()> {
    let (leases, writes): (Vec<_>, Vec<_>) = writes.into_iter().partition(|write| write.resource == "leases");
    ensure!(leases.len() > 5 && leases.iter().all(|write| write.code < 300), "{leases:?}");
    check_patches(&writes, 42)?;
    let second_term = writes.iter().filter(|write| term(write).is_ok_and(|term| term == 2)).map(|write| write.received);
    let began = second_term.min().context("no write of the second term")?;
    for write in &writes {
        ensure!(matches!((term(write)?, write.received < began), (1, true) | (2, false)), "{write:?}");
    }
    Ok(())
}

/// Installs the kinds with their annotation, and the rights to the Leases.
pub(crate) fn install(helm: &Helm, plane: &ControlPlane, values: &str) -> Result<()> {
    let mut command = Command::new(helm.path());
    command.args(["template", "podium"]).arg(workspace_dir().join("deploy/chart"));
    command.args(["--namespace", "podium", "--set", values]);
    command.args(["--show-only", "templates/rbac.yaml", "--show-only", "templates/crds.yaml"]);
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, command.output()?.stdout)?;
    let file = file.path().to_string_lossy();
    Kubectl::new(plane).admin(&["apply", "--server-side", "--force-conflicts", "-f", &file])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_sigkill_the_other_replica_acts_and_nothing_is_done_twice() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let (mut options, mark) = start(&plane, &client).await?;
    options.arguments.extend(["--lease", "on"].map(str::to_owned));
    let sha256 = config_map(&client, guests::component("good")?).await?;
    install(&helm, &plane, "replicas=2")?;
    until("the kind", SOON, async || apply(&client, &spec(&sha256)).await).await?;

    let first = Host::spawn(&options).await?;
    pod(&client, NAMESPACE, "before").await?;
    labelled(&client, "before").await?;
    condition(&client, "Ready", "True", "Running").await?;
    let second = Host::spawn(&options).await?;
    let standby = second.get("/readyz?verbose").await?;
    ensure!(standby.contains("[+]lease ok: standby; ") && standby.contains("labeller ok: standby"), "{standby}");
    ensure!(second.metric("leader_election_master_status", &[]).await? == 0.0);
    ensure!(first.metric("leader_election_master_status", &[]).await? == 1.0);

    // A host elsewhere, with an administrator's kubeconfig.
    let directory = tempfile::tempdir()?;
    let admin = plane.kubeconfig_path();
    let mut command = Command::new(host_binary()?);
    command.args([
        "--lease",
        "on",
        "--watch-plugins",
        "--health-probe-bind-address",
        "0",
        "--metrics-bind-address",
        "0",
    ]);
    command.arg("--kubeconfig").arg(&admin);
    let mut outside = Process::spawn("a host elsewhere", &mut command, directory.path().join("host.log"))?;
    until("the line about the Lease", SOON, async || {
        outside.check_running()?;
        ensure!(outside.log().contains("the Lease cannot be used"), "none yet");
        Ok(())
    })
    .await?;

    for index in 0..20 {
        pod(&client, NAMESPACE, &format!("early-{index}")).await?;
    }
    first.kill().await?;
    let killed = Instant::now();
    for index in 0..20 {
        pod(&client, NAMESPACE, &format!("late-{index}")).await?;
    }
    labelled(&client, "late-0").await?;
    let took = killed.elapsed();
    // It has just started, so that it waits for twice the duration of the Lease.
    ensure!(took <= Duration::from_secs(25), "{took:?}");
    for name in (0..20).flat_map(|index| [format!("early-{index}"), format!("late-{index}")]) {
        labelled(&client, &name).await?;
    }
    pod(&client, NAMESPACE, "after").await?;
    labelled(&client, "after").await?;
    // Whatever would be done twice would be done by now.
    sleep(Duration::from_secs(5)).await;

    check_writes(plane.audit().writes_of(HOST, mark)?)?;
    let outsiders = plane.audit().writes_of("admin", mark)?;
    let outsiders: Vec<_> = outsiders.iter().filter(|write| write.user_agent.starts_with("podium-host")).collect();
    ensure!(outsiders.is_empty(), "{outsiders:?}");
    let lines = outside.log().matches("the Lease cannot be used").count();
    ensure!(lines == 1 && outside.log().contains("podium"), "{}", outside.log());

    // A shutdown releases the Lease. The third replica has just started, so that it waits for the duration once.
    let third = Host::spawn(&options).await?;
    let ended = second.terminate().await?;
    let began = Instant::now();
    pod(&client, NAMESPACE, "handed-over").await?;
    labelled(&client, "handed-over").await?;
    let took = began.elapsed();
    ensure!(ended.success() && took <= Duration::from_secs(15), "{took:?}");
    ensure!(third.terminate().await?.success());
    Ok(())
}

/// Waits until each shard has a holder, and returns that of the plugin's namespace.
async fn owner(host: &Host) -> Result<String> {
    let number = (0..Shards::COUNT).find(|number| Shards::one(*number) == Shards::of_namespace(NAMESPACE));
    let mut holder = String::new();
    until("a holder of each shard", SOON, async || {
        let owners: Value = serde_json::from_str(&host.get("/debug/owners").await?)?;
        let all = owners["owners"].as_array().context("no owners")?;
        ensure!(owners["shared"] == true && all.len() == Shards::COUNT, "{owners}");
        ensure!(all.iter().all(|owner| owner["holder"].as_str().is_some_and(|holder| !holder.is_empty())), "{owners}");
        let of = all.get(number.context("no shard")?).context("no owner")?;
        holder = of["holder"].as_str().context("no holder")?.to_owned();
        Ok(())
    })
    .await?;
    Ok(holder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_the_shards_and_the_other_one_acts_after_a_sigkill() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let (mut options, mark) = start(&plane, &client).await?;
    options.arguments.extend(["--lease", "on", "--active-replicas", "all"].map(str::to_owned));
    let sha256 = config_map(&client, guests::component("good")?).await?;
    install(&helm, &plane, "replicas=2,activeReplicas=all")?;
    until("the kind", SOON, async || apply(&client, &spec(&sha256)).await).await?;

    let first = Host::spawn(&options).await?;
    let second = Host::spawn(&options).await?;
    pod(&client, NAMESPACE, "before").await?;
    labelled(&client, "before").await?;
    condition(&client, "Ready", "True", "Running").await?;
    let shards = async |host: &Host| host.metric("podium_lease_shards", &[]).await;
    // The processes have one name of a machine and numbers of their own: the one that runs the plugin has it loaded.
    let runs = async |host: &Host| anyhow::Ok(!host.get("/readyz?verbose").await?.contains("labeller ok: standby"));
    let mut holder = String::new();
    let mut is_first = false;
    until("a share of the shards for each replica", SOON, async || {
        holder = owner(&first).await?;
        ensure!(owner(&second).await? == holder, "they differ");
        let of_first = shards(&first).await?;
        let of_second = shards(&second).await?;
        ensure!(of_first == 8.0 && of_second == 8.0, "{of_first} and {of_second}");
        is_first = runs(&first).await?;
        ensure!(runs(&second).await? != is_first, "one of them runs the plugin");
        Ok(())
    })
    .await?;
    let (acting, other) = if is_first { (first, second) } else { (second, first) };
    for index in 0..20 {
        pod(&client, NAMESPACE, &format!("early-{index}")).await?;
    }
    acting.kill().await?;
    let killed = Instant::now();
    for index in 0..20 {
        pod(&client, NAMESPACE, &format!("late-{index}")).await?;
    }
    for name in (0..20).flat_map(|index| [format!("early-{index}"), format!("late-{index}")]) {
        labelled(&client, &name).await?;
    }
    let took = killed.elapsed();
    ensure!(took <= Duration::from_secs(30), "{took:?}");
    until("all shards", SOON, async || {
        let of_other = shards(&other).await?;
        ensure!((of_other - 16.0).abs() < 0.1, "{of_other}");
        Ok(())
    })
    .await?;
    ensure!(owner(&other).await? != holder, "{holder} was killed");
    // Whatever would be done twice would be done by now.
    sleep(Duration::from_secs(5)).await;
    let writes = plane.audit().writes_of(HOST, mark)?;
    for write in writes.iter().filter(|write| write.resource == "leases") {
        ensure!(write.code < 300 || write.code == 409, "{write:?}");
    }
    check_patches(&writes, 41)?;
    ensure!(other.terminate().await?.success());
    Ok(())
}
