//! `podium-host` as a process, and its compiler's.

use std::{fs, net::Ipv4Addr, path::Path, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_devcluster::{Cluster, Options};
use podium_tests::{
    bombs, guests, plugins,
    process::{Host, HostOptions, Process, host_binary},
    runner,
    wait::until,
};
use podium_vocabulary::Language;

const WITHIN: Duration = Duration::from_secs(60);

/// The configuration of the guest `good` with another component, and further lines of `spec`.
pub(super) fn configuration(name: &str, component: &Path, more: &str) -> String {
    let yaml = plugins::guest_yaml("good", name, more).unwrap();
    let built = guests::path("good").unwrap();
    let (found, other) = (built.display().to_string(), component.display().to_string());
    assert!(yaml.contains(&found), "{yaml}");
    yaml.replace(&found, &other)
}

/// Ids of the processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the name, which may have any character: the state and the parent.
        let (_, rest) = stat.rsplit_once(')')?;
        (rest.split_whitespace().nth(1)?.parse() == Ok(parent)).then_some(())
    };
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|pid| is_child(pid).is_some()).collect()
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_slow_compilation_delays_no_other_plugin() -> Result<()> {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() })?;
    let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name);
    fs::write(path("kubeconfig"), server.kubeconfig())?;
    // It takes 40 s of processor time to compile.
    fs::write(path("slow.wasm"), bombs::slowed(&guests::component("good")?, 2_000))?;
    let class = "  limits: { class: interpreter }\n";
    fs::write(path("slow.yaml"), configuration("slow", &path("slow.wasm"), class))?;
    fs::write(path("quick.wasm"), &*guests::component("good")?)?;
    fs::write(path("zquick.yaml"), configuration("quick", &path("quick.wasm"), ""))?;
    let mut command = Command::new(host_binary()?);
    command.arg("--kubeconfig").arg(path("kubeconfig")).arg("--plugins").args([path("slow.yaml"), path("zquick.yaml")]);
    command.args(["--health-probe-bind-address", "0", "--metrics-bind-address", "0"]);
    let mut host = Process::spawn("podium-host", &mut command, path("host.log"))?;
    until("the log line about it", WITHIN, async || {
        host.check_running()?;
        let log = host.log();
        let is_logged = |text: &str| log.contains(text);
        ensure!(is_logged("still compiling after 2 s") && is_logged("plugin loaded plugin=quick"), "{log}");
        Ok(())
    })
    .await?;
    let compilers = children(host.id());
    let [compiler] = compilers[..] else { anyhow::bail!("{compilers:?}") };
    assert!(is_alive(compiler));
    host.signal("KILL")?;
    host.ended(WITHIN).await?;
    // Without this it would take longer.
    until("the end of the compiler", Duration::from_secs(5), async || {
        ensure!(!is_alive(compiler));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_host_restarted_in_its_state_directory_compiles_nothing() -> Result<()> {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() })?;
    let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name);
    fs::write(path("kubeconfig"), server.kubeconfig())?;
    fs::create_dir(path("plugins"))?;
    for number in 0..4 {
        // Two components of two plugins each.
        let component = path(&format!("{}.wasm", number % 2));
        fs::write(&component, bombs::marked(&guests::component("good")?, &(number % 2).to_string()))?;
        let name = format!("good-{number}");
        fs::write(path(&format!("plugins/{name}.yaml")), configuration(&name, &component, ""))?;
    }
    let options = HostOptions {
        kubeconfig: path("kubeconfig"),
        plugins: vec![path("plugins")],
        arguments: vec!["--state-dir".to_owned(), path("state").display().to_string()],
    };
    for (compiled, spoilt) in [(2, 0), (0, 0), (1, 1), (0, 0)] {
        if spoilt > 0 {
            let file = fs::read_dir(path("state/compiled"))?.next().context("an empty cache")??.path();
            let mut bytes = fs::read(&file)?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&file, bytes)?;
        }
        let host = Host::spawn(&options).await?;
        let log = host.log();
        host.terminate().await?;
        assert_eq!(log.matches("component compiled").count(), compiled, "{log}");
        assert_eq!(log.matches("removed, compiling again").count(), spoilt, "{log}");
        assert_eq!(log.matches("plugin loaded").count(), 4, "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn runners_are_compiled_before_the_host_is_ready() -> Result<()> {
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name);
    for folder in ["plugins", "runners"] {
        fs::create_dir(path(folder))?;
    }
    if runner::install(&path("runners"), &[Language::JavaScript])?.is_empty() {
        return Ok(());
    }
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() })?;
    let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
    fs::write(path("kubeconfig"), server.kubeconfig())?;
    fs::write(path("plugins/good.yaml"), configuration("good", &guests::path("good")?, ""))?;
    let [state, runners] = ["state", "runners"].map(|name| path(name).display().to_string());
    // The plugin at the first start, and then the runner.
    for (flag, compiled, loaded) in [(None, 1, 0), (Some("--precompile"), 1, 1), (Some("--precompile"), 0, 1)] {
        let arguments = ["--state-dir", &state, "--runners", &runners].into_iter().chain(flag);
        let arguments = arguments.map(str::to_owned).collect();
        let plugins = vec![path("plugins")];
        let host = Host::spawn(&HostOptions { kubeconfig: path("kubeconfig"), plugins, arguments }).await?;
        let log = host.log();
        host.terminate().await?;
        assert_eq!(log.matches("component compiled").count(), compiled, "{log}");
        assert_eq!(log.matches("runner loaded").count(), loaded, "{log}");
        let missing = r#"runner not compiled before the start language="python""#;
        assert_eq!(log.matches(missing).count(), loaded, "{log}");
    }
    Ok(())
}
