//! The flags of `podium-host`, and the text of `--help`.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use podium_vocabulary::{
    Prune,
    syntax::{dns_label, dns_subdomain, qualified_name},
};

use super::super::{compile::Compile, metrics_port::MetricsPort, traces::TraceFlags};
use crate::{admin::ListenAddress, telemetry::LogFormat};

pub(super) const NAME: &str = "podium-host";

/// The program's commands besides running the host.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Compile(Compile),
}

/// Whether a host needs a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LeaseMode {
    On,
    Off,
}

/// How many replicas run plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ActiveReplicas {
    #[value(name = "1")]
    One,
    All,
}

/// Runs reconcile plugins, as sandboxed WebAssembly components, on the Pods of a cluster.
///
/// One process, one watch, one cache; each plugin reads and writes what its configuration grants and nothing else.
#[derive(Debug, Parser)]
#[command(
    name = NAME,
    version,
    max_term_width = 100,
    after_help = EXAMPLES,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Flags {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// Kubeconfig of the cluster. Without it: the Pod's ServiceAccount in a cluster, else $KUBECONFIG or ~/.kube/config
    #[arg(long, env = "PODIUM_KUBECONFIG", value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Plugin configurations: files, or directories whose .yaml and .yml files are read
    #[arg(
        long,
        env = "PODIUM_PLUGINS",
        value_name = "DIR|FILE",
        num_args = 1..,
        required_unless_present_any = ["watch_plugins", "check"]
    )]
    pub(super) plugins: Vec<PathBuf>,
    /// Run the plugins that the cluster's ReconcilePlugin and ClusterReconcilePlugin objects define, and follow their
    /// changes. With --namespace: the ReconcilePlugins of this namespace. A plugin of the same name in --plugins has
    /// precedence
    #[arg(long, env = "PODIUM_WATCH_PLUGINS")]
    pub(super) watch_plugins: bool,
    /// Policy of the platform: a file with the limits that plugins may ask for, by namespace. Without it, a plugin may
    /// ask for everything that a configuration can have
    #[arg(long, env = "PODIUM_POLICY", value_name = "FILE")]
    pub(super) policy: Option<PathBuf>,
    /// Directory with the runners of scripts, such as javascript-1.wasm [default: the directory runners beside this
    /// program, if it exists; without one, scripts are refused]
    #[arg(long, env = "PODIUM_RUNNERS", value_name = "DIR")]
    pub(super) runners: Option<PathBuf>,
    /// Compile the runners of scripts before the host is ready, and not for the first script of their language. With
    /// --state-dir only the first start takes the time
    #[arg(long, env = "PODIUM_PRECOMPILE")]
    pub(super) precompile: bool,
    /// Refuse plugins without spec.serviceAccountName, whose writes and live reads would be sent as the host's own
    /// account. The host's account then needs no right to write
    #[arg(long, env = "PODIUM_REQUIRE_SERVICE_ACCOUNT")]
    pub(super) require_service_account: bool,
    /// The ServiceAccount that removes finalizers of a deleted plugin from Pods where the plugin's own account may not;
    /// its rights are in deploy/kustomize/base/cleanup.yaml [default: podium-cleanup of the host's namespace in a Pod,
    /// none elsewhere]
    #[arg(long, env = "PODIUM_CLEANUP_SERVICE_ACCOUNT", value_name = "NAMESPACE/NAME", value_parser = service_account)]
    pub(super) cleanup_service_account: Option<String>,
    /// Watch only the Pods of this namespace; the host then needs rights only there
    #[arg(long, env = "PODIUM_NAMESPACE", value_name = "NAME", value_parser = namespace)]
    pub(super) namespace: Option<String>,
    /// Run plugins only while this host holds the Lease podium-host, so that of several replicas one runs them. It
    /// is in the namespace of --namespace, else with --watch-plugins in the one that the definition of ReconcilePlugin
    /// names, else in the host's own
    #[arg(long, env = "PODIUM_LEASE", value_name = "on|off", hide_possible_values = true, default_value = "off")]
    pub(super) lease: LeaseMode,
    /// Duration of the Lease: after a crash another replica runs the plugins after this time and a second; while the
    /// API server does not answer for as long, none does
    #[arg(
        long,
        env = "PODIUM_LEASE_DURATION_SECONDS",
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(4..=600)
    )]
    pub(super) lease_duration_seconds: u16,
    /// How many of the replicas with --lease on run plugins: one, or all, each the plugins of its shards of namespaces
    #[arg(
        long,
        env = "PODIUM_ACTIVE_REPLICAS",
        value_name = "1|all",
        hide_possible_values = true,
        default_value = "1"
    )]
    pub(super) active_replicas: ActiveReplicas,
    /// Address of /healthz and /readyz: IP:PORT, :PORT for all addresses, or 0 for none [default: :8081 in a Pod,
    /// 127.0.0.1:8081 elsewhere]
    #[arg(long, env = "PODIUM_HEALTH_PROBE_BIND_ADDRESS", value_name = "ADDRESS")]
    pub(super) health_probe_bind_address: Option<ListenAddress>,
    /// Address of /metrics: IP:PORT, :PORT for all addresses, or 0 for none
    #[arg(long, env = "PODIUM_METRICS_BIND_ADDRESS", value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(super) metrics_bind_address: ListenAddress,
    #[command(flatten)]
    pub(super) metrics_port: MetricsPort,
    /// error, warn, info, debug, trace, or directives such as info,podium=debug
    #[arg(long, env = "PODIUM_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub(super) log_level: String,
    /// The form of the log
    #[arg(long, env = "PODIUM_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
    #[command(flatten)]
    pub(super) traces: TraceFlags,
    /// Directory for the deletion journal, components of registries and compiled plugins. Must not be shared with
    /// another host. Without it, deletions that happen while the host is down are missed, and every start pulls all
    /// images and compiles all plugins
    #[arg(long, env = "PODIUM_STATE_DIR", value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// Annotations to remove from Pods before they are stored: plugins find them absent and are not woken for them. ""
    /// removes none
    #[arg(
        long,
        env = "PODIUM_PRUNE_ANNOTATIONS",
        value_name = "KEY,..",
        value_delimiter = ',',
        value_parser = annotation_key,
        default_values_t = Prune::default().keys().map(str::to_owned)
    )]
    pub(super) prune_annotations: Vec<String>,
    /// Number of keys processed concurrently, of which one tenant gets at most a quarter [default: 4 per processor that
    /// the container may use]
    #[arg(long, env = "PODIUM_WORKERS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) workers: Option<u16>,
    /// MiB of memory that all runs may use together, as their plugins' memoryMiB declares, of which the plugins of one
    /// namespace get at most half. A run starts when its memory is free [default: half of the container's memory limit,
    /// but at least 64; without a limit 1024]
    #[arg(
        long,
        env = "PODIUM_RUN_MEMORY_MIB",
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(2..=1_048_576)
    )]
    pub(super) run_memory_mib: Option<u32>,
    /// Exit with code 2 if any plugin cannot be loaded, instead of continuing with the others
    #[arg(long, env = "PODIUM_STRICT")]
    pub(super) strict: bool,
    /// Read the policy and the configurations of plugins, log their mistakes, and exit: with code 2 if there are any.
    /// Nothing else is opened and no cluster is needed
    #[arg(long, env = "PODIUM_CHECK")]
    pub(super) check: bool,
}

const EXAMPLES: &str = "\
Examples:
  podium-host --plugins plugins/
  podium-host --watch-plugins --state-dir /var/lib/podium
  podium-host --plugins plugins/ --policy policy.yaml --state-dir /var/lib/podium
  podium-host --kubeconfig ~/.kube/config --plugins team-a.yaml team-b.yaml --namespace shop --log-format json

Exit codes: 0 after SIGTERM or SIGINT, 1 when the host fails, 2 when flags or configuration cannot be used.";

fn namespace(text: &str) -> Result<String, &'static str> {
    dns_label(text)?;
    Ok(text.to_owned())
}

/// Returns the account as RBAC names it.
fn service_account(text: &str) -> Result<String, &'static str> {
    let (namespace, name) = text.split_once('/').ok_or("must be NAMESPACE/NAME")?;
    dns_label(namespace)?;
    dns_subdomain(name)?;
    Ok(format!("system:serviceaccount:{namespace}:{name}"))
}

fn annotation_key(text: &str) -> Result<String, &'static str> {
    if !text.is_empty() {
        qualified_name(text)?;
    }
    Ok(text.to_owned())
}
