//! The host as a process: logs, configuration, signals, exit codes. `flags` has its flags.

mod flags;

use std::{
    env, fmt,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    thread::{self, available_parallelism},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
pub use flags::Flags;
use flags::{ActiveReplicas, Command, LeaseMode, NAME};
use podium_engine::journal;
use podium_lease::Mode;
use podium_registry::Proxies;
use podium_runtime::Compilation;
use podium_vocabulary::{Prune, text};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::Instant,
};
use tracing::field;

use super::{
    App, Beside, LeaseOptions, Operator, Options, TraceOptions,
    certificate::Certificate,
    compile, disk,
    life::Driver,
    memory_limit,
    options::RUN_MEMORY,
    policy::{self, IN_FORCE, PolicyFile},
    start_line::{self, Given},
};
use crate::{
    admin::{self, Bound, ListenAddress, Process},
    config::{self, ConfigError},
    telemetry::{Dropped, Logs, init_logs},
};

/// Exit code when the host cannot continue.
const FAILED: u8 = 1;
/// Exit code when the configuration or a flag cannot be used: something outside the host has to change first.
const MISCONFIGURED: u8 = 2;
/// Port of /healthz and /readyz, as in controllers that are made with kubebuilder.
const PROBE_PORT: u16 = 8081;

/// Why the process ends, which its last log line says.
enum Exit {
    /// The name of a signal.
    Stopped(&'static str),
    /// `--check` found no mistake.
    Checked,
    /// Flags or a configuration cannot be used; the log has which.
    Misconfigured,
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Exit {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

impl Exit {
    const fn code_and_reason(&self) -> (u8, &'static str) {
        match self {
            Self::Stopped(signal) => (0, signal),
            Self::Checked => (0, "checked"),
            Self::Misconfigured => (MISCONFIGURED, "flags or configuration cannot be used"),
            Self::Failed(_) => (FAILED, "the host failed"),
        }
    }
}

/// Runs `podium-host`: parses the process's arguments and runs until SIGTERM or SIGINT.
#[must_use]
pub fn main() -> ExitCode {
    let (flags, given) = start_line::parse::<Flags>();
    if let Some(Command::Compile(compile)) = flags.command {
        return compile.run();
    }
    // Held to the end: the last lines come out when it is dropped.
    let (logs, writer) = match init_logs(&flags.log_level, flags.log_format) {
        Ok(logs) => logs,
        Err(error) => return without_logs(&error, MISCONFIGURED),
    };
    let write = move || writer.run(io::stderr());
    if let Err(error) = thread::Builder::new().name("podium-logs".into()).spawn(write) {
        return without_logs(&error, FAILED);
    }
    given.log();
    let exit = run(flags, &logs, given);
    if let Exit::Failed(error) = &exit {
        tracing::error!("{error:#}");
    }
    let (code, reason) = exit.code_and_reason();
    tracing::info!(code, reason, "exiting");
    ExitCode::from(code)
}

#[expect(clippy::print_stderr, reason = "there are no logs yet")]
fn without_logs(error: &dyn std::error::Error, code: u8) -> ExitCode {
    eprintln!("podium-host: {error}");
    ExitCode::from(code)
}

fn run(flags: Flags, logs: &Logs, given: Given) -> Exit {
    raise_file_limit();
    // Two providers may be linked one day; naming one keeps that from being a panic at the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let workers = flags.workers.map_or_else(|| 4 * available_parallelism().map_or(1, usize::from), usize::from);
    // One thread more than guests: probes are answered while every guest computes. The watch has its own thread.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers + 1).enable_all().build();
    let runtime = match runtime.context("cannot start threads") {
        Ok(runtime) => runtime,
        Err(error) => return error.into(),
    };
    let exit = runtime.block_on(serve(flags, workers, logs, given)).map_or_else(|exit| exit, Exit::Stopped);
    // A compilation that was cut off by the shutdown is not waited for; its process ends with this one.
    runtime.shutdown_timeout(Duration::from_millis(500));
    exit
}

/// Runs the host until a signal arrives, which is returned.
async fn serve(flags: Flags, workers: usize, logs: &Logs, given: Given) -> Result<&'static str, Exit> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let stopped = async {
        tokio::select! {
            biased;
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    tokio::pin!(stopped);

    let program = compile::own_program(NAME).context("the host's own program, which compiles plugins, is not found")?;
    let proxies = proxies()?;
    let run_memory = run_memory(flags.run_memory_mib, memory_limit::container_limit);
    let paths = flags.plugins.clone();
    let policy = flags.policy.clone().map(|file| PolicyFile::new(file, proxies.clone()));
    let reading = move || {
        let read = policy.as_ref().map(PolicyFile::read).transpose();
        (policy, read.map(Option::flatten), config::load(&paths))
    };
    let (policy_file, policy, configurations) = read(&mut stopped, reading).await?;
    // The value "" means no key.
    let prune = Prune::annotations(flags.prune_annotations.iter().filter(|key| !key.is_empty()).cloned());
    let plugins = accepted(&flags, configurations, policy.as_ref().err(), &prune)?;
    let port = flags.metrics_port.clone();
    let address = flags.metrics_bind_address;
    let certificate = read(&mut stopped, move || port.certificate(&address)).await?;
    let certificate =
        certificate.map_err(|error| misconfigured("certificate of the port of metrics refused", &error))?;
    let operator = operator(&flags, certificate, logs.dropped()).await?;
    let file = flags.kubeconfig.clone();
    let of_api_server = proxies.clone();
    let connections = read(&mut stopped, move || disk::connections(file, of_api_server)).await?;
    let ([client, watch_client, lease_client], api_server) =
        connections.map_err(|error| not_connected(&flags, error))?;
    let state_dir = flags.state_dir.as_deref().map(text::path).unwrap_or_default();
    let directory = flags.state_dir.clone();
    let now = now_millis();
    let process =
        Process { flags: given.all(), levels: Some(logs.levels()), started_millis: now, began: Instant::now() };
    let state = read(&mut stopped, move || disk::state(directory.as_deref(), now)).await?;
    let disk::State { journal, code, components } = state.map_err(|error| unusable_state(&state_dir, &error))?;
    let policy_file = policy_file.map(|file| Arc::new(file.stored_in(code.clone())));
    let policy = match (policy, policy_file.clone()) {
        (Err(_), Some(file)) => Some(last_policy(read(&mut stopped, move || file.last_good()).await?)?),
        (policy, _) => policy.unwrap_or_default(),
    };
    let (policy, images) = policy.unzip();
    let start = App::start(Options {
        cleanup_account: cleanup_account(&flags, &client),
        beside: beside(&flags, &lease_client),
        lease: lease(&flags, lease_client),
        watch_client,
        namespace: flags.namespace.clone(),
        workers,
        run_memory,
        state_memory: memory_limit::of_states(memory_limit::container_limit()),
        operator: Operator { api_server, process: Some(process.into()), ..operator },
        journal,
        prune,
        policy,
        policy_file,
        images: images.flatten(),
        components,
        require_service_account: flags.require_service_account,
        compilation: Compilation::Jailed { program, cache: code },
        runners: flags.runners.clone().or_else(compile::own_runners),
        traces: traces(&flags, proxies, &mut stopped).await?,
        wall_clock: Some(Arc::new(now_millis)),
        ..Options::new(client, seed(), now_millis())
    });
    let app = tokio::select! {
        biased;
        signal = &mut stopped => return Ok(signal),
        app = start => app?,
    };
    serve_until(app, &flags, plugins, &mut stopped).await.map_err(|exit| {
        let Exit::Failed(error) = exit else { return exit };
        error.downcast::<journal::OtherCluster>().map_or_else(Exit::Failed, |other| unusable_state(&state_dir, &other))
    })
}

fn misconfigured(message: &str, error: &dyn fmt::Display) -> Exit {
    tracing::error!(error = text::line(&error.to_string()), "{message}");
    Exit::Misconfigured
}

/// Returns the proxies of the environment. A variable whose value is not UTF-8 counts as missing.
fn proxies() -> Result<Proxies, Exit> {
    Proxies::new(|name| env::var(name).ok()).map_err(|error| misconfigured("proxy refused", &error))
}

/// Returns the traces that flags and environment ask for.
async fn traces(
    flags: &Flags,
    proxies: Proxies,
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
) -> Result<Option<TraceOptions>, Exit> {
    let flags = flags.traces.clone();
    let options = read(stopped, move || flags.options(|name| env::var(name).ok(), &proxies)).await?;
    options.map_err(|error| misconfigured("traces refused", &error))
}

/// Returns the account that removes finalizers of plugins that are gone: that of the chart, in a cluster.
fn cleanup_account(flags: &Flags, client: &podium_api::Connection) -> Option<String> {
    flags.cleanup_service_account.clone().or_else(|| {
        let in_cluster = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        in_cluster.then(|| format!("system:serviceaccount:{}:podium-cleanup", client.default_namespace()))
    })
}

/// Returns the Lease that the flags ask for.
fn lease(flags: &Flags, connection: podium_api::Connection) -> Option<LeaseOptions> {
    let own_namespace = connection.default_namespace();
    // The objects of the whole cluster are run by one installation.
    let namespace = flags.namespace.clone().or_else(|| (!flags.watch_plugins).then(|| own_namespace.clone()));
    let pod = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| env::var(name).ok());
    (flags.lease == LeaseMode::On).then(|| LeaseOptions {
        connection,
        namespace,
        own_namespace,
        // The name of a Pod stays when its container is started again.
        holder: format!("{}_{:08x}", pod.as_deref().unwrap_or(NAME), seed() >> 32),
        duration: Duration::from_secs(flags.lease_duration_seconds.into()),
        active_replicas: match flags.active_replicas {
            ActiveReplicas::One => Mode::One,
            ActiveReplicas::All => Mode::All,
        },
        boot_time: Some(Arc::new(boot_time)),
    })
}

/// Returns where a host without a Lease looks for another host: it may run the plugin objects of the whole cluster.
fn beside(flags: &Flags, connection: &podium_api::Connection) -> Option<Beside> {
    (flags.lease == LeaseMode::Off).then(|| Beside {
        connection: connection.clone(),
        namespace: flags.namespace.clone(),
        own_namespace: connection.default_namespace(),
    })
}

/// Returns the plugins that are loaded at the start, and logs the mistakes and warnings of the configuration.
///
/// # Errors
/// An exit without a start, also for `--check`.
fn accepted(
    flags: &Flags,
    configurations: config::Configurations,
    policy: Option<&Vec<ConfigError>>,
    prune: &Prune,
) -> Result<Vec<config::Defined>, Exit> {
    let config::Configurations { plugins, errors, warnings } = configurations;
    for ConfigError { file, line, field, message } in &warnings {
        let file = text::path(file);
        let field = name(field);
        let warning = text::line(message);
        tracing::warn!(%file, line, field, warning, "configuration accepted with a warning");
    }
    errors.iter().for_each(|mistake| refused(mistake, None));
    policy.into_iter().flatten().for_each(|mistake| refused(mistake, Some("--policy")));
    if policy.is_some() && (flags.check || flags.state_dir.is_none()) {
        return Err(Exit::Misconfigured);
    }
    if flags.check {
        return Err(if errors.is_empty() { Exit::Checked } else { Exit::Misconfigured });
    }
    if plugins.is_empty() && errors.is_empty() && !flags.watch_plugins {
        tracing::error!(plugins = listed(&flags.plugins), "no plugin configuration found");
        return Err(Exit::Misconfigured);
    }
    warn_of_pruned(&plugins, prune);
    if (plugins.is_empty() && !flags.watch_plugins) || (flags.strict && !errors.is_empty()) {
        return Err(Exit::Misconfigured);
    }
    Ok(plugins)
}

/// Logs why there is no connection to the cluster, if flags can change it.
fn not_connected(flags: &Flags, error: disk::NoClient) -> Exit {
    match error {
        disk::NoClient::Misconfigured(error) => {
            let file = flags.kubeconfig.as_deref().map(text::path);
            let error = text::line(&error);
            let flag = file.is_some().then_some("--kubeconfig");
            tracing::error!(flag, file = file.map(field::display), error, "no connection to the cluster is configured");
            Exit::Misconfigured
        }
        failed @ disk::NoClient::Failed(_) => Exit::Failed(failed.into()),
    }
}

/// Logs that the policy's files have mistakes, and which policy is in force.
fn last_policy(read: Result<policy::Read, String>) -> Result<policy::Read, Exit> {
    match &read {
        Ok(_) => tracing::error!(flag = "--policy", "policy refused; {IN_FORCE}"),
        Err(error) => {
            let error = text::line(error);
            tracing::error!(flag = "--policy", error, "policy refused, and there is none before it");
        }
    }
    read.map_err(|_| Exit::Misconfigured)
}

/// Loads the plugins and serves until a signal arrives, which is returned, or until the host fails. The host is ready
/// when the plugin objects are loaded too, if there are any to wait for.
async fn serve_until(
    mut app: App,
    flags: &Flags,
    plugins: Vec<config::Defined>,
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
) -> Result<&'static str, Exit> {
    let of_files: Vec<_> = plugins.iter().map(|plugin| plugin.spec.clone()).collect();
    let objects = flags.watch_plugins.then(|| app.watch_objects(flags.namespace.as_deref(), &of_files));
    let driver = app.driver.clone();
    let precompiling = driver.clone();
    let loaded = async move {
        // Plugins in other languages do not wait for the runners, and the host is ready after both.
        let precompiled = async {
            if flags.precompile {
                precompiling.components.precompile().await;
            }
        };
        tokio::join!(load(driver, plugins, flags.strict, flags.watch_plugins), precompiled).0
    };
    let ended = tokio::select! {
        biased;
        signal = &mut *stopped => Ok(signal),
        loaded = loaded => match loaded {
            Ok(true) => serve_loaded(&mut app, objects, stopped).await.map_err(Exit::Failed),
            Ok(false) => Err(Exit::Misconfigured),
            Err(error) => Err(Exit::Failed(error)),
        },
        // As when the state directory is of another cluster: compilers are not waited for.
        error = app.failed() => Err(Exit::Failed(error)),
    };
    tracing::info!("shutting down: no new runs, those under way may end");
    app.shutdown().await;
    ended
}

async fn serve_loaded(
    app: &mut App,
    objects: Option<watch::Receiver<bool>>,
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
) -> anyhow::Result<&'static str> {
    let mut starting = true;
    let loaded = async {
        if let Some(mut objects) = objects {
            // An error means that the host fails.
            let _ = objects.wait_for(|loaded| *loaded).await;
        }
    };
    tokio::pin!(loaded);
    loop {
        tokio::select! {
            biased;
            signal = &mut *stopped => return Ok(signal),
            () = &mut loaded, if starting => {
                starting = false;
                app.started();
            }
            error = app.failed() => return Err(error),
        }
    }
}

/// Runs a function that blocks on another thread, so that a disk that does not respond cannot prevent the process from
/// exiting.
///
/// # Errors
/// An exit if a signal arrives first.
async fn read<T: Send + 'static>(
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Exit> {
    let reading = tokio::task::spawn_blocking(read);
    tokio::select! {
        biased;
        signal = stopped => Err(Exit::Stopped(signal)),
        read = reading => Ok(read.context("the files of the start were not read")?),
    }
}

/// Binds the ports that probes and metrics are served on. Fails with the end of the process where an address cannot be
/// used, which is logged.
async fn operator(
    flags: &Flags,
    certificate: Option<Arc<Certificate>>,
    dropped: Arc<Dropped>,
) -> Result<Operator, Exit> {
    // Kubernetes sets it in every container.
    let in_cluster = env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let (address, flag) = (probe_address(flags, in_cluster), "health-probe-bind-address");
    let probes = bind(address, flag, "/healthz and /readyz", "http").await?;
    let scheme = if certificate.is_some() { "https" } else { "http" };
    let metrics = bind(flags.metrics_bind_address, "metrics-bind-address", "/metrics", scheme).await?;
    Ok(Operator { probes, metrics, certificate, dropped, ..Operator::default() })
}

/// The kubelet reaches probes at the Pod's address.
fn probe_address(flags: &Flags, in_cluster: bool) -> ListenAddress {
    let local = ListenAddress::One(([127, 0, 0, 1], PROBE_PORT).into());
    let default = if in_cluster { ListenAddress::All(PROBE_PORT) } else { local };
    flags.health_probe_bind_address.unwrap_or(default)
}

/// Returns `None` for an address that is off.
async fn bind(address: ListenAddress, flag: &str, what: &str, scheme: &str) -> Result<Option<Bound>, Exit> {
    match admin::bind(address).await {
        Ok(bound) => {
            if let Some(bound) = &bound {
                tracing::info!(paths = what, url = %format_args!("{scheme}://{}", bound.address()), "serving HTTP");
            }
            Ok(bound)
        }
        Err(error) => {
            let flag = format!("--{flag}");
            let error = error.to_string();
            tracing::error!(flag, %address, error, "cannot listen; choose another address");
            Err(Exit::Misconfigured)
        }
    }
}

/// Raises the soft limit of open files to the hard one, as Go's runtime does: container runtimes leave the soft one at
/// 1,024 for programs that use `select`, and this one does not.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, soft = limit.current, hard = limit.maximum, "the limit of open files cannot be raised");
    }
}

/// The memory of runs in bytes. The other half of a container's limit is the cache's, the compiler's and the runs' own
/// copies of Pods.
fn run_memory(mib: Option<u32>, limit: impl FnOnce() -> Option<u64>) -> u64 {
    const LEAST: u64 = 64 << 20;
    match mib {
        Some(mib) => u64::from(mib) << 20,
        None => limit().map_or(RUN_MEMORY, |limit| (limit / 2).max(LEAST)),
    }
}

/// Logs a mistake in a configuration, or in the file that a flag names.
fn refused(mistake: &ConfigError, flag: Option<&str>) {
    let ConfigError { file, line, field, message } = mistake;
    let file = text::path(file);
    let field = name(field);
    let error = text::line(message);
    tracing::error!(flag, %file, line, field, error, "configuration refused");
}

/// Logs why the state directory cannot be used.
fn unusable_state(directory: &str, error: &dyn std::error::Error) -> Exit {
    let error = text::line(&error.to_string());
    tracing::error!(flag = "--state-dir", file = %directory, error, "state directory refused");
    Exit::Misconfigured
}

/// Returns the name of a field for a log line; `None` for a mistake that is about the whole file.
fn name(field: &str) -> Option<String> {
    (!field.is_empty()).then(|| text::name(field))
}

/// Warns of plugins that may write pruned annotations: each of their runs sends a request.
fn warn_of_pruned(plugins: &[config::Defined], prune: &Prune) {
    for config::Defined { file, spec, .. } in plugins {
        let granted = |key: &&str| spec.grants.write.annotations.iter().any(|pattern| pattern.matches(key));
        for key in prune.keys().filter(granted) {
            tracing::warn!(
                file = %text::path(file),
                plugin = %spec.id,
                annotation = key,
                "plugin may write an annotation that --prune-annotations removes: it does not see the value that it \
                 wrote, and each run that writes it sends a request"
            );
        }
    }
}

/// Loads all plugins, and logs why one is not. With `strict` none runs before all are known to be good. Returns false
/// when the host must not continue: with `strict` when any plugin was not loaded, otherwise when none was, none is
/// tried again. Each load is a task of its own.
async fn load(driver: Arc<Driver>, plugins: Vec<config::Defined>, strict: bool, watched: bool) -> anyhow::Result<bool> {
    plugins.iter().for_each(|plugin| driver.expect(&plugin.spec.id));
    let wanted = plugins.len();
    let mut good = 0;
    let mut waiting = 0;
    let mut prepared = Vec::new();
    let mut loads = JoinSet::new();
    for config::Defined { file, spec, .. } in plugins {
        let driver = driver.clone();
        let id = spec.id.clone();
        loads.spawn(async move {
            let attempt = match driver.prepare(spec).await {
                Ok(plugin) if !strict => {
                    driver.install(plugin).await;
                    Ok(None)
                }
                attempt => attempt.map(Some),
            };
            (file, id, attempt)
        });
    }
    while let Some(ended) = loads.join_next().await {
        let (file, id, attempt) = ended.context("a load panicked")?;
        match attempt {
            Ok(plugin) => {
                good += 1;
                prepared.extend(plugin);
            }
            Err(failure) => {
                let passing = failure.is_passing();
                waiting += usize::from(passing);
                let retry = passing && !strict;
                let error = failure.to_string();
                tracing::error!(file = %text::path(&file), plugin = %id, retry, error, "plugin not loaded");
            }
        }
    }
    if (strict && good < wanted) || (good + waiting == 0 && !watched) {
        return Ok(false);
    }
    for plugin in prepared {
        driver.install(plugin).await;
    }
    Ok(true)
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| text::path(path)).collect::<Vec<_>>().join(", ")
}

#[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time since the machine's start, on Linux with the times of its suspensions.
fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Differs between hosts that start in the same moment, so that their waits do too.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
