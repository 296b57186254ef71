//! Replicas of the host on a real control plane: one of two runs the plugins, the other goes on after a SIGKILL of it,
//! and a host elsewhere writes nothing.

use std::{collections::BTreeMap, fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_tests::{
    controlplane::AuditedWrite,
    guests,
    helm::Helm,
    process::{Host, Process, host_binary, workspace_dir},
    wait::until,
};
use tokio::time::{Instant, sleep};

use crate::{
    exclusive,
    kubectl::Kubectl,
    objects::{HOST, NAMESPACE, apply, condition, config_map, labelled, spec, start},
    workloads::pod,
};

const SOON: Duration = Duration::from_secs(60);

/// Returns the number of the term in which the write was sent.
fn term(write: &AuditedWrite) -> Result<u32> {
    let (_, term) = write.user_agent.rsplit_once(" term/").with_context(|| format!("no term: {write:?}"))?;
    Ok(term.parse()?)
}

/// Checks that each Pod was patched once, and that the replicas did not write at one time.
fn check_writes(writes: Vec<AuditedWrite>) -> Result<()> {
    let (leases, writes): (Vec<_>, Vec<_>) = writes.into_iter().partition(|write| write.resource == "leases");
    ensure!(leases.len() > 5 && leases.iter().all(|write| write.code < 300), "{leases:?}");
    let mut patches: BTreeMap<&str, usize> = BTreeMap::new();
    for write in writes.iter().filter(|write| write.resource == "pods" && write.code == 200) {
        *patches.entry(&write.name).or_default() += 1;
    }
    // The log may have the write that the SIGKILL interrupted with another code.
    ensure!((41..=42).contains(&patches.len()) && patches.values().all(|count| *count == 1), "{patches:?}");
    let second_term = writes.iter().filter(|write| term(write).is_ok_and(|term| term == 2)).map(|write| write.received);
    let began = second_term.min().context("no write of the second term")?;
    for write in &writes {
        ensure!(matches!((term(write)?, write.received < began), (1, true) | (2, false)), "{write:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_sigkill_the_other_replica_acts_and_nothing_is_done_twice() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let (mut options, mark) = start(&plane, &client).await?;
    options.arguments.extend(["--lease", "on"].map(str::to_owned));
    let sha256 = config_map(&client, guests::component("good")?).await?;
    // The kinds with their annotation, and the rights to the Lease.
    let mut command = Command::new(helm.path());
    command.args(["template", "podium"]).arg(workspace_dir().join("deploy/chart"));
    command.args(["--namespace", "podium", "--set", "replicas=2"]);
    command.args(["--show-only", "templates/rbac.yaml", "--show-only", "templates/crds.yaml"]);
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, command.output()?.stdout)?;
    let file = file.path().to_string_lossy();
    Kubectl::new(&plane).admin(&["apply", "--server-side", "--force-conflicts", "-f", &file])?;
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
