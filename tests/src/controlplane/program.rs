//! Builds `controlplane/main.go` into the target directory, once for each state of its sources and of Go.

use std::{
    env,
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::process::target_dir;

/// Without these kubectl and the API server call themselves "v0.0.0-master".
const LINKER_FLAGS: &str = "-s -w \
    -X k8s.io/component-base/version.gitVersion=v1.36.3 \
    -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=36";
/// What the built program is made of.
const SOURCES: [&str; 3] = ["main.go", "go.mod", "go.sum"];
/// Modules come over the network.
const DOWNLOAD_ATTEMPTS: u32 = 5;
/// A first build takes minutes: a sign of life so often.
const PROGRESS: Duration = Duration::from_secs(15);

/// The built program, which is etcd, kube-apiserver and others by its first argument.
#[derive(Debug, Clone)]
pub(super) struct Program(PathBuf);

impl Program {
    /// None where Go is missing.
    pub(super) async fn build() -> Result<Option<Self>> {
        tokio::task::spawn_blocking(build).await?
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(program);
        command
    }

    pub(super) fn kubectl(&self) -> PathBuf {
        self.0.with_file_name("kubectl")
    }

    /// A private key in PEM.
    pub(super) fn new_signing_key(&self) -> Result<Vec<u8>> {
        let output = self.command("new-signing-key").stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "no signing key: {}", output.status);
        Ok(output.stdout)
    }
}

fn build() -> Result<Option<Program>> {
    let Some(go_version) = go_version()? else {
        ensure!(env::var_os("CI").is_none_or(|value| value != "true"), "go is missing, and in CI no suite is skipped");
        tell("SKIPPED: no `go` on the PATH, so there is no real control plane to test against");
        return Ok(None);
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane");
    let directory = target_dir()?.join("controlplane");
    fs::create_dir_all(&directory)?;
    let program = Program(directory.join("controlplane"));

    // Test binaries that run at the same time build it once.
    let lock = File::create(directory.join("lock"))?;
    lock.lock()?;
    let mut wanted = format!("{go_version}\n{LINKER_FLAGS}\n");
    for source in SOURCES {
        wanted += &fs::read_to_string(sources.join(source)).with_context(|| format!("read {source}"))?;
    }
    // What the program was built from, word for word: shorter than a good reason for a digest.
    let record = directory.join("built-from");
    if program.0.exists() && fs::read_to_string(&record).is_ok_and(|built| built == wanted) {
        return Ok(Some(program));
    }
    download(&sources)?;
    compile(&sources, &program.0)?;
    match fs::remove_file(program.kubectl()) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => std::os::unix::fs::symlink("controlplane", program.kubectl())?,
    }
    fs::write(record, wanted)?;
    Ok(Some(program))
}

fn go(sources: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(sources).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
    go
}

fn go_version() -> Result<Option<String>> {
    match Command::new("go").arg("version").output() {
        Ok(output) if output.status.success() => Ok(Some(String::from_utf8(output.stdout)?)),
        Ok(output) => bail!("go version: {}", output.status),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("start go"),
    }
}

#[expect(clippy::disallowed_methods, reason = "go is waited for on a thread of its own, in real time")]
fn download(sources: &Path) -> Result<()> {
    tell("downloading the modules of the control plane");
    for attempt in 1..=DOWNLOAD_ATTEMPTS {
        // Of the whole module graph only what the program imports.
        if go(sources).args(["list", "-deps", "."]).stdout(Stdio::null()).status()?.success() {
            return Ok(());
        }
        tell(&format!("a download failed, attempt {attempt} of {DOWNLOAD_ATTEMPTS}"));
        std::thread::sleep(Duration::from_secs(2) * attempt);
    }
    bail!("the modules of the control plane cannot be downloaded")
}

#[expect(clippy::disallowed_methods, reason = "go is waited for on a thread of its own, in real time")]
fn compile(sources: &Path, program: &Path) -> Result<()> {
    tell("building the control plane (minutes the first time, then cached)");
    let mut build = go(sources);
    build.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", LINKER_FLAGS, "-o"]).arg(program).arg(".");
    let started = Instant::now();
    let mut told = started;
    let mut child = build.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            tell(&format!("building the control plane: {} s", started.elapsed().as_secs()));
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    ensure!(status.success(), "the control plane does not build");
    tell(&format!("built the control plane in {} s", started.elapsed().as_secs()));
    Ok(())
}

/// libtest hides what a passing test prints; this it does not.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "podium-tests: {line}");
}
