//! The host as a child process, from the target directory of the tests.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tempfile::TempDir;

use super::Process;
use crate::wait::until;

/// Time from the start of the process until the first list is in the cache and all plugins are compiled (in a debug
/// build).
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The time within which the host promises to end after SIGTERM.
const DRAINED_WITHIN: Duration = Duration::from_secs(10);

/// The options of a host process.
#[derive(Debug, Clone, Default)]
pub struct HostOptions {
    pub kubeconfig: PathBuf,
    /// Directories or files of plugin configurations.
    pub plugins: Vec<PathBuf>,
    /// Further flags.
    pub arguments: Vec<String>,
}

/// A running host.
#[derive(Debug)]
pub struct Host {
    process: Process,
    probes: SocketAddr,
    metrics: SocketAddr,
    /// Contains the log.
    _directory: TempDir,
}

impl Host {
    /// Starts the host and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if it cannot be built, ends early or does not become ready in time.
    pub async fn spawn(options: &HostOptions) -> Result<Self> {
        Self::spawn_by(Command::new(host_binary()?), options).await
    }

    /// Like [`Self::spawn`], with a command to which the host's arguments are appended.
    ///
    /// # Errors
    /// See [`Self::spawn`].
    pub async fn spawn_by(mut command: Command, options: &HostOptions) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        command.arg("--kubeconfig").arg(&options.kubeconfig);
        // A flag among the further arguments has precedence.
        command.env("PODIUM_LOG_FORMAT", "text");
        for port in ["PODIUM_HEALTH_PROBE_BIND_ADDRESS", "PODIUM_METRICS_BIND_ADDRESS"] {
            command.env(port, "127.0.0.1:0");
        }
        for plugins in &options.plugins {
            command.arg("--plugins").arg(plugins);
        }
        command.args(&options.arguments);
        let mut process = Process::spawn("podium-host", &mut command, directory.path().join("host.log"))?;
        let (probes, metrics) = until("the host to listen", READY_WITHIN, async || {
            process.check_running()?;
            let log = process.log();
            Ok((address(&log, "/healthz and /readyz")?, address(&log, "/metrics")?))
        })
        .await?;
        let mut host = Self { process, probes, metrics, _directory: directory };
        until("the host to be ready", READY_WITHIN, async || {
            host.process.check_running()?;
            host.get("/readyz").await.map(drop)
        })
        .await?;
        Ok(host)
    }

    /// Returns the body of a GET on the host's port for that path.
    ///
    /// # Errors
    /// Returns an error if there is no response, or none with status 200.
    pub async fn get(&self, path: &str) -> Result<String> {
        self.request(Method::GET, path, "").await
    }

    /// Sends a text to a path, and returns the answer.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub async fn put(&self, path: &str, text: &str) -> Result<String> {
        self.request(Method::PUT, path, text).await
    }

    async fn request(&self, method: Method, path: &str, text: &str) -> Result<String> {
        let client: Client<HttpConnector, Full<bytes::Bytes>> =
            Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let of_metrics = ["/metrics", "/debug", "/statusz", "/flagz"].iter().any(|prefix| path.starts_with(prefix));
        let address = if of_metrics { self.metrics } else { self.probes };
        let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
        let request = request.body(Full::new(text.to_owned().into()))?;
        let answer = tokio::time::timeout(Duration::from_secs(5), client.request(request)).await??;
        let status = answer.status();
        let body = String::from_utf8_lossy(&answer.into_body().collect().await?.to_bytes()).into_owned();
        ensure!(status.is_success(), "{path} answered {status}: {body}");
        Ok(body)
    }

    /// Returns the sum of a metric's samples whose labels contain every part of `labels`, such as
    /// `result="forbidden"`.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub async fn metric(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let text = self.get("/metrics").await?;
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        Ok(samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the address of the port of metrics.
    #[must_use]
    pub fn metrics_address(&self) -> SocketAddr {
        self.metrics
    }

    /// Returns the log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Sends SIGSTOP and waits until the process does not run.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub async fn stop(&self) -> Result<()> {
        self.process.signal("STOP")?;
        let stat = format!("/proc/{}/stat", self.process.id());
        until("the host to stop", READY_WITHIN, async || {
            let stat = fs::read_to_string(&stat)?;
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            ensure!(state == Some('T'), "its state is {state:?}");
            Ok(())
        })
        .await
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn go_on(&self) -> Result<()> {
        self.process.signal("CONT")
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// Returns an error if it does not end within the promised 10 s.
    pub async fn terminate(mut self) -> Result<ExitStatus> {
        self.process.signal("TERM")?;
        self.process.ended(DRAINED_WITHIN).await
    }

    /// Sends SIGKILL, which the process cannot handle.
    ///
    /// # Errors
    /// Returns an error if it had already ended.
    pub async fn kill(mut self) -> Result<()> {
        self.process.check_running()?;
        self.process.signal("KILL")?;
        self.process.ended(DRAINED_WITHIN).await.map(drop)
    }
}

/// Finds the address of these paths in the log, because port 0 was requested.
fn address(log: &str, paths: &str) -> Result<SocketAddr> {
    let line = log.lines().find(|line| line.contains("serving HTTP") && line.contains(paths));
    let url = |line: &'_ str| line.find("://").map(|at| at + 3);
    let (_, rest) = line.and_then(|line| line.split_at_checked(url(line)?)).context("the log has no such address")?;
    let end = rest.find(|letter: char| !(letter.is_ascii_hexdigit() || ".:[]".contains(letter))).unwrap_or(rest.len());
    rest[..end].parse().context("the log has a strange address")
}

/// Returns the host's binary, built once per test binary in the same profile and target directory. Cargo holds no
/// lock on that directory while tests run; the whole workspace is selected so that no dependency changes its
/// features.
///
/// # Errors
/// Returns an error if it does not build.
pub fn host_binary() -> Result<&'static Path> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BINARY
        .get_or_init(|| build().map_err(|error| format!("{error:#}")))
        .as_deref()
        .map_err(|error| anyhow::anyhow!("{error}"))
}

/// Returns the binary of the command line, `podium`, built together with the host's.
///
/// # Errors
/// Returns an error if they do not build.
pub fn podium_binary() -> Result<PathBuf> {
    Ok(host_binary()?.with_file_name("podium"))
}

/// Returns a command of [`podium_binary`], which keeps compiled code in the target directory and not in the home of the
/// user.
///
/// # Errors
/// Returns an error if it does not build.
pub fn podium_command() -> Result<Command> {
    let mut command = Command::new(podium_binary()?);
    command.env("XDG_CACHE_HOME", target_dir()?.join("caches"));
    Ok(command)
}

fn build() -> Result<PathBuf> {
    let profile = profile_dir()?;
    let mut command = cargo();
    command.args(["build", "--quiet", "--workspace", "--bins", "--target-dir"]).arg(target_dir()?);
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    ensure!(command.status().context("start cargo")?.success(), "podium-host does not build");
    fs::canonicalize(profile.join("podium-host")).context("cargo built no podium-host")
}

/// Returns cargo with the workspace's toolchain, in the workspace's directory.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace_dir());
    // Build scripts of dependencies would mistake cargo's variables about the test's package for their own, and
    // everything that depends on them would be rebuilt, now and by the next build.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_a_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

fn is_of_a_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| variable.starts_with(prefix))
}

/// Returns the directory of the workspace's Cargo.toml.
#[must_use]
pub fn workspace_dir() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// Returns cargo's directory of this program's profile, `target/debug`; tests are in its folder `deps`.
fn profile_dir() -> Result<PathBuf> {
    let executable = env::current_exe()?;
    let profile = executable.ancestors().skip(1).find(|path| !path.ends_with("deps"));
    Ok(profile.context("the program does not run from cargo's target directory")?.to_owned())
}

/// Returns cargo's target directory.
///
/// # Errors
/// Returns an error if the test's binary was moved out of it.
pub fn target_dir() -> Result<PathBuf> {
    Ok(profile_dir()?.parent().context("no target directory")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_is_read_from_a_line_of_either_log_format() {
        let text = "INFO podium: serving HTTP paths=\"/metrics\" url=http://127.0.0.1:41873 workers=2\n";
        let json = r#"{"message":"serving HTTP","paths":"/metrics","url":"http://127.0.0.1:41873"}"#;
        for log in [text, json] {
            assert_eq!(address(log, "/metrics").unwrap().port(), 41873, "{log}");
        }
        assert!(address(text, "/healthz and /readyz").is_err());
    }
}
