//! The command line: what can be asked for, and the help that teaches it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::build::Target;

/// Sandboxed reconcilers for Kubernetes Pods: write one, try it on a laptop, see many at work.
#[derive(Debug, Parser)]
#[command(
    name = "podium",
    version,
    propagate_version = true,
    after_help = "Examples:\n  \
        podium new hello && cd hello    a plugin to begin with\n  \
        podium dev                      a cluster, the host and the plugin, rebuilt on every save\n  \
        podium build                    the component, and exactly what it can do\n  \
        podium demo                     five plugins on a cluster of 200 Pods, checked"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the crate of a new plugin
    New(New),
    /// Build a plugin's crate to a component and list what it imports
    Build(Build),
    /// Run plugins on a cluster in this process (or yours) and rebuild them on every save
    Dev(Dev),
    /// Show everything at work on a cluster in this process, and check it
    Demo(Demo),
    /// Print shell completions
    #[command(after_help = "Example:\n  podium completion bash > ~/.local/share/bash-completion/completions/podium")]
    Completion { shell: clap_complete::Shell },
}

/// For people or for programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
}

#[derive(Debug, Args)]
#[command(
    long_about = "Write the crate of a new plugin: Cargo.toml, src/lib.rs with a reconcile function and its test, \
        and plugin.yaml with what it watches and may touch.",
    after_help = "Example:\n  podium new hello && cd hello && podium dev"
)]
pub struct New {
    /// The folder to make; its name is the plugin's: lower case letters, digits and '-'
    pub path: PathBuf,
    /// Where podium-sdk is; by default, the checkout that podium was built from
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    long_about = "Build a plugin's crate to a component and list what it imports.\n\n\
        The list is exact: an import that is not there is something the plugin cannot do, and the host refuses to \
        load a plugin whose imports exceed its grants.",
    after_help = "Examples:\n  \
        podium build                                  the crate in this folder\n  \
        podium build plugins/pod-ttl --out ttl.wasm   and put the component there\n  \
        podium build --output json | jq .imports      for programs"
)]
pub struct Build {
    /// The crate's folder
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Copy the component to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// What to compile for; wasm32-wasip2 brings WASI's clocks, random and standard output
    #[arg(long, value_enum, default_value_t)]
    pub target: Target,
    /// Where cargo puts what it makes [default: the workspace's target directory]
    #[arg(long, value_name = "DIR")]
    pub target_dir: Option<PathBuf>,
    /// Say nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(
    long_about = "Run plugins on a Kubernetes API server in this process and rebuild them on every save.\n\n\
        A path is the folder of a crate, or a folder of such folders. Beside Cargo.toml, plugin.yaml says what the \
        plugin watches and may touch; where it is missing, one to begin with is printed.",
    after_help = "Examples:\n  \
        podium dev                              the crate in this folder\n  \
        podium dev plugins                      every crate in that folder\n  \
        podium dev --kubeconfig ~/.kube/config  on a cluster that is there already\n\n\
        Then, in another terminal, with the KUBECONFIG that it prints:\n  \
        kubectl run web --image nginx:1.29 && kubectl get pods --watch"
)]
pub struct Dev {
    /// Folders of crates
    #[arg(default_value = ".")]
    pub paths: Vec<PathBuf>,
    /// Work on this cluster, with the rights that the file gives, instead of one in this process
    #[arg(long, value_name = "FILE", env = "PODIUM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Watch this namespace alone
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Nodes of the cluster in this process
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub nodes: usize,
    /// What the host logs, as in RUST_LOG
    #[arg(long, value_name = "FILTER", env = "PODIUM_LOG", default_value = "warn,podium::plugin=debug")]
    pub log: String,
}

#[derive(Debug, Args)]
#[command(
    long_about = "Show everything at work and check it: 200 Pods of four tenants on a Kubernetes API server in this \
        process, five plugins, a rollout, a crash loop, an unpinned image, a finished Pod, a crowded workload, a \
        plugin that spins for ever, a lost watch connection and an expired one.\n\n\
        Ends within a minute once built, with a list of checks that are each read back from the cluster. Fails when \
        one of them does.",
    after_help = "Examples:\n  \
        podium demo                          watch it\n  \
        podium demo --keep                   leave it running, to look around with kubectl\n  \
        podium demo --output json | tail -1  the result for programs, as the last line of stdout"
)]
pub struct Demo {
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Leave cluster and host running after the checks, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
    /// Decides everything that the cluster draws by lot
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// What the host logs, as in RUST_LOG
    #[arg(long, value_name = "FILTER", env = "PODIUM_LOG", default_value = "off")]
    pub log: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn demo_takes_output_json_and_keep() {
        let arguments = Arguments::parse_from(["podium", "demo", "--output", "json", "--keep"]);
        let Command::Demo(demo) = arguments.command else { panic!("not demo: {arguments:?}") };
        assert_eq!((demo.output, demo.keep), (Output::Json, true));
    }
}
