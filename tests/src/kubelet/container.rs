//! One container, run by podman with runc.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::time::sleep;

use super::{
    network::PodNetwork,
    pod::{Contents, Mount, ParsedPod},
};
use crate::process::Process;

/// The time in which a Pod that runs to its end has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Container {
    /// Unique on this machine.
    name: String,
    readiness: Option<(u16, String)>,
    network: PodNetwork,
    process: Process,
    fs_group: u64,
    /// Its volumes.
    directory: TempDir,
}

impl Container {
    pub(super) async fn start(pod: ParsedPod, api_port: u16, ports: &[u16]) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("podium-tests-{}-{number}", std::process::id());
        let directory = tempfile::tempdir()?;
        let network = PodNetwork::new(&[&[api_port], ports].concat()).await?;
        let mut command = Command::new("podman");
        command.args(["--runtime", "runc", "run", "--rm", "--name", &name, "--hostname", &pod.name]);
        command.args(["--pull", "always", "--quiet", "--tls-verify=false"]);
        command.args(["--network", &format!("ns:{}", network.path())]);
        command.args(["--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL"]);
        command.args(["--security-opt", "no-new-privileges", "--no-hosts"]);
        // The machine may refuse to raise its own limits, as podman does by default.
        command.args(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]);
        command.args(["--user", &format!("{}:{}", pod.user, pod.group), "--group-add", &pod.fs_group.to_string()]);
        command.args(["--env", "KUBERNETES_SERVICE_HOST=127.0.0.1"]);
        command.args(["--env", &format!("KUBERNETES_SERVICE_PORT={api_port}")]);
        if let Some(memory) = &pod.memory {
            // As Kubernetes, podman without swap.
            let bytes = bytes(memory)?.to_string();
            command.args(["--memory", &bytes, "--memory-swap", &bytes]);
        }
        if let Some(cpus) = pod.cpus {
            command.args(["--cpus", &cpus.to_string()]);
        }
        for (index, mount) in pod.mounts.iter().enumerate() {
            let source = volume(&directory.path().join(index.to_string()), mount, pod.fs_group)?;
            let mode = if mount.read_only { "ro" } else { "rw" };
            command.args(["--volume", &format!("{}:{}:{mode}", source.display(), mount.path)]);
        }
        command.arg(&pod.image).args(&pod.arguments);
        let process = Process::spawn(&pod.name, &mut command, directory.path().join("log"))?;
        Ok(Self { name, readiness: pod.readiness, network, process, fs_group: pod.fs_group, directory })
    }

    /// Replaces the files of a mount that have changed, each at once, as a kubelet does for a ConfigMap.
    pub(super) fn update(&self, mount: usize, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
        let directory = self.directory.path().join(mount.to_string());
        for (name, bytes) in files {
            if fs::read(directory.join(name)).ok().as_ref() != Some(bytes) {
                let next = self.directory.path().join("next");
                write(&next, bytes, self.fs_group)?;
                fs::rename(next, directory.join(name))?;
            }
        }
        Ok(())
    }

    pub(super) fn log(&self) -> String {
        self.process.log()
    }

    pub(super) async fn get(&self, port: u16, path: &str) -> Result<String> {
        self.network.get(port, path).await
    }

    pub(super) async fn is_ready(&self) -> bool {
        let Some((port, path)) = &self.readiness else { return false };
        self.get(*port, path).await.is_ok()
    }

    /// Waits for its end, if it has one; returns whether it succeeded.
    pub(super) async fn ended(&mut self) -> Result<Option<bool>> {
        if self.readiness.is_some() {
            return Ok(None);
        }
        for _ in 0..ENDS_WITHIN.as_secs() * 10 {
            if let Some(status) = self.process.status()? {
                return Ok(Some(status.success()));
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("it still runs:\n{}", self.log())
    }

    /// Ends it as a kubelet does: SIGTERM, and SIGKILL after the grace.
    pub(super) async fn stop(&self, grace: u32) {
        let (name, grace) = (self.name.clone(), grace.to_string());
        // It may have ended by itself.
        let _ = tokio::task::spawn_blocking(move || podman(&["stop", "--time", &grace, &name])).await;
    }

    pub(super) fn memory(&self) -> Result<(u64, u64)> {
        let pid = podman(&["inspect", "--format", "{{.State.Pid}}", &self.name])?;
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.trim()))?;
        let read = |path: PathBuf| -> Result<u64> {
            Ok(fs::read_to_string(&path).with_context(|| path.display().to_string())?.trim().parse()?)
        };
        let root = Path::new("/sys/fs/cgroup");
        let own = |wanted: &str| groups.lines().find_map(|line| line.split_once(wanted)).map(|(_, path)| path);
        if let Some(path) = own(":memory:/") {
            let group = root.join("memory").join(path);
            return Ok((read(group.join("memory.max_usage_in_bytes"))?, read(group.join("memory.failcnt"))?));
        }
        let group = root.join(own("0::/").context("no control group")?);
        let events = fs::read_to_string(group.join("memory.events"))?;
        let count = |name: &str| events.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let refused = count("oom ").context("no oom in memory.events")?;
        Ok((read(group.join("memory.peak"))?, refused))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Fails for a container that has ended.
        let _ = podman(&["rm", "--force", "--time", "0", &self.name]);
    }
}

fn podman(arguments: &[&str]) -> Result<String> {
    let output = Command::new("podman").args(arguments).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "podman {}: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

/// Creates the directory of a volume, as a kubelet does for a Pod with `fsGroup`.
fn volume(path: &Path, mount: &Mount, group: u64) -> Result<PathBuf> {
    fs::create_dir(path)?;
    match &mount.contents {
        Contents::Empty => {
            chown(path, None, Some(u32::try_from(group)?))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o2777))?;
        }
        Contents::Files(files) => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
            for (name, bytes) in files {
                write(&path.join(name), bytes, group)?;
            }
        }
    }
    Ok(path.to_owned())
}

fn write(file: &Path, bytes: &[u8], group: u64) -> Result<()> {
    fs::write(file, bytes)?;
    chown(file, None, Some(u32::try_from(group)?))?;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o640))?)
}

/// Returns a quantity of memory in bytes.
fn bytes(quantity: &str) -> Result<u64> {
    let (number, factor) = match quantity.strip_suffix("Mi") {
        Some(number) => (number, 1 << 20),
        None => (quantity.strip_suffix("Gi").with_context(|| format!("memory of {quantity}"))?, 1 << 30),
    };
    Ok(number.parse::<u64>()? * factor)
}
