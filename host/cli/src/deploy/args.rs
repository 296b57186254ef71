//! The flags of `podium deploy`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use crate::args::{Format, HostAccount, RegistryAccess, Runners, Toolchain};

/// Deploy a plugin to a cluster, and wait until it runs
#[derive(Debug, Args)]
#[command(
    long_about = "Deploy the plugins of a plugin.yaml to a cluster, and wait until they run.\n\nThe file is the one of \
        podium dev. It is checked as by podium check, and a crate is built as by podium build. A script needs nothing \
        else: one of at most 64 KiB is in the object, a larger one is put into a ConfigMap. For a component say where: \
        --registry pushes it as podium push does, --configmap puts it into a ConfigMap of at most 1 MiB. Digest, \
        serviceAccountName and the RBAC of the grants are filled in. In plugin.yaml only the copy of a script is \
        renewed, as by podium build; a dry run changes no file.\n\nAll objects are sent by server-side apply as the \
        field manager podium-deploy, first as a dry run on the server, so that nothing is changed or pushed if one of \
        them is refused. Then the command waits until the host reports that this version runs. If it does not, the \
        version before runs on where the host permits it, and the message says so. Objects that a plugin no longer \
        needs are left.",
    after_help = "Examples:\n  \
        podium deploy                               the plugin in this folder, to the cluster of your kubeconfig\n  \
        podium deploy hello --registry registry.example/team/hello:1.0\n  \
        podium deploy hello --configmap             without a registry\n  \
        podium deploy --context staging --wait 2m   another cluster, and longer\n  \
        podium deploy --dry-run=client -o yaml      print the objects for GitOps, without any request to a cluster\n  \
        podium deploy --output json | jq .plugins   the result for a program\n\n\
        Exit codes: 0 the plugins run, or are applied with --no-wait; 1 refused, failing or not ready in time; 2 \
        invalid arguments."
)]
pub struct Deploy {
    /// A folder with plugin.yaml, or the file
    #[arg(default_value = ".", value_name = "DIR|plugin.yaml")]
    pub path: PathBuf,
    /// Push the component to this HOST/REPOSITORY:TAG; the object gets the image with its digest
    #[arg(long, value_name = "REFERENCE", conflicts_with = "configmap")]
    pub registry: Option<String>,
    /// Secret from which the host reads credentials for the registry, in the namespace of the plugin's account
    #[arg(long, value_name = "NAME", requires = "registry")]
    pub pull_secret: Option<String>,
    /// Store the component or script in the ConfigMap podium-plugin-NAME (podium-cluster-plugin-NAME)
    #[arg(long)]
    pub configmap: bool,
    /// Refuse plugins of another namespace, or of none; the namespace itself is metadata.namespace
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Kubeconfig of the cluster [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "PODIUM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    #[command(flatten)]
    pub host: HostAccount,
    /// Leave out the account and its rights, which an administrator has applied
    #[arg(long)]
    pub no_rbac: bool,
    /// Overwrite fields that other field managers own
    #[arg(long)]
    pub force_conflicts: bool,
    /// How long to wait until the plugins run, such as 90s or 2m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time, conflicts_with = "no_wait")]
    pub wait: Duration,
    /// Apply, and do not wait
    #[arg(long)]
    pub no_wait: bool,
    /// Send nothing: neither to the cluster nor to the registry
    #[arg(long, value_enum, value_name = "WHERE")]
    pub dry_run: Option<DryRun>,
    #[command(flatten)]
    pub toolchain: Toolchain,
    #[command(flatten)]
    pub runners: Runners,
    #[command(flatten)]
    pub access: RegistryAccess,
    /// Format of the result on stdout; yaml is the objects of a dry run
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}

/// Where a dry run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Before the first request
    Client,
}

/// Parses a time in seconds or minutes.
fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = number.parse::<u32>().ok().map(|number| u64::from(number) * unit).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| "must be seconds or minutes, such as 90s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_seconds_or_minutes() {
        assert_eq!(
            [time("90s"), time("90"), time("2m")],
            [90, 90, 120].map(|seconds| Ok(Duration::from_secs(seconds)))
        );
        for wrong in ["", "s", "0", "-1s", "1h", "1.5m", "99999999999s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
