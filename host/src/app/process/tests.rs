//! Flags, and signals while disks are silent.

use super::*;

fn addresses(arguments: &[&str], in_cluster: bool) -> (String, String) {
    let all = [&["podium-host", "--plugins", "plugins"], arguments].concat();
    let flags = Flags::try_parse_from(all).unwrap();
    (probe_address(&flags, in_cluster).to_string(), flags.metrics_bind_address.to_string())
}

#[test]
fn in_a_cluster_only_probes_listen_on_all_addresses() {
    assert_eq!(addresses(&[], true), (":8081".into(), "127.0.0.1:8080".into()));
    assert_eq!(addresses(&[], false), ("127.0.0.1:8081".into(), "127.0.0.1:8080".into()));
    let flags = ["--health-probe-bind-address", "10.0.0.7:1", "--metrics-bind-address", ":2"];
    assert_eq!(addresses(&flags, true), ("10.0.0.7:1".into(), ":2".into()));
}

const PLUGIN: &str = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: a }\n\
    spec: { source: { file: a.wasm } }\n";
const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
    contexts: [{ name: a, context: { cluster: a, user: a } }]\n\
    clusters: [{ name: a, cluster: { server: 'http://127.0.0.1:1' } }]\nusers: [{ name: a, user: {} }]\n";

/// Returns the exit of a host that gets SIGTERM while it reads an empty pipe instead of this file.
fn signalled_while_it_reads(pipe: &str) -> Option<(u8, &'static str)> {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    std::fs::create_dir(path("state")).unwrap();
    std::fs::write(path("a.yaml"), PLUGIN).unwrap();
    std::fs::write(path("kubeconfig"), KUBECONFIG).unwrap();
    let _ = std::fs::remove_file(path(pipe));
    assert!(std::process::Command::new("mkfifo").arg(path(pipe)).status().unwrap().success());
    let none = ["--health-probe-bind-address", "0", "--metrics-bind-address", "0"].map(PathBuf::from);
    let files = [("--plugins", "a.yaml"), ("--kubeconfig", "kubeconfig"), ("--state-dir", "state")];
    let files = files.into_iter().flat_map(|(flag, name)| [flag.into(), path(name)]);
    let flags = Flags::try_parse_from([PathBuf::from("podium-host")].into_iter().chain(files).chain(none)).unwrap();
    let (report, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let exit = run(flags, Arc::default()).unwrap();
        report.send((exit.code, exit.reason))
    });
    // The host listens for signals from its start, so that by now one does not end the process.
    for _ in 0..10 {
        if let Ok(exit) = ended.recv_timeout(Duration::from_secs(1)) {
            return Some(exit);
        }
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    }
    None
}

#[test]
fn a_start_that_waits_for_a_disk_ends_on_sigterm() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _listening = runtime.block_on(async { signal(SignalKind::terminate()) }).unwrap();
    for pipe in ["kubeconfig", "state/journal", "state/lock"] {
        assert_eq!(signalled_while_it_reads(pipe), Some((0, "SIGTERM")), "{pipe}");
    }
}

#[test]
fn a_check_reads_the_policy_and_the_files_and_needs_no_cluster() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let policy = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: { defaults: { limits: { memoryMiB: 64 } } }\n";
    std::fs::write(path("good.yaml"), policy).unwrap();
    std::fs::write(path("typo.yaml"), policy.replace("memoryMiB", "memoryMib")).unwrap();
    let registry = "spec: { registries: [{ host: a.example, caFile: none.pem }] }";
    let lines: Vec<&str> = policy.lines().take(2).chain([registry]).collect();
    std::fs::write(path("file.yaml"), lines.join("\n")).unwrap();
    std::fs::write(path("plugin.yaml"), PLUGIN).unwrap();
    std::fs::write(path("bad.yaml"), PLUGIN.replace("source", "sauce")).unwrap();
    let checked = |flags: &[(&str, &str)]| {
        let files = flags.iter().flat_map(|(flag, name)| [PathBuf::from(flag), path(name)]);
        let all = ["podium-host", "--check"].map(PathBuf::from).into_iter().chain(files);
        run(Flags::try_parse_from(all).unwrap(), Arc::default()).unwrap().code
    };
    assert_eq!(checked(&[("--policy", "good.yaml"), ("--state-dir", "state")]), 0);
    assert!(!path("state").exists(), "a check opens no state directory");
    assert_eq!(checked(&[("--policy", "typo.yaml")]), 2);
    assert_eq!(checked(&[("--policy", "file.yaml")]), 2, "the file of a registry's authorities is missing");
    assert_eq!(checked(&[("--policy", "none.yaml")]), 2);
    assert_eq!(checked(&[("--policy", "good.yaml"), ("--plugins", "plugin.yaml")]), 0);
    assert_eq!(checked(&[("--policy", "good.yaml"), ("--plugins", "bad.yaml")]), 2);
}

#[test]
fn runs_get_half_of_the_containers_memory_by_default() {
    let mib = |asked: Option<u32>, limit: Option<u64>| run_memory(asked, || limit) >> 20;
    assert_eq!(mib(None, Some(512 << 20)), 256);
    assert_eq!(mib(None, Some(100 << 20)), 64, "a plugin with the default of 32 MiB can be loaded");
    assert_eq!(mib(None, None), 1_024);
    assert_eq!(mib(Some(100), Some(512 << 20)), 100);
    let flags = |value: &str| Flags::try_parse_from(["podium-host", "--plugins", "a", "--run-memory-mib", value]);
    assert_eq!(flags("2").unwrap().run_memory_mib, Some(2));
    assert!(flags("1").is_err() && flags("-1").is_err(), "a tenant's half of 1 MiB has no place for a run");
}
