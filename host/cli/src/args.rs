//! The command line: what can be asked for, and the help that teaches it.

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use crate::build::{Install, Target};

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
        podium check                    plugin.yaml and the component, as the host would judge them\n  \
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
    /// Check a plugin's configuration, and the component if it is built, without building or running anything
    Check(Check),
    /// Run plugins on a cluster in this process (or yours) and rebuild them on every save
    Dev(Dev),
    /// Print the JSON Schema of plugin.yaml, for completion and checks in editors
    #[command(
        long_about = "Print the JSON Schema (draft 2020-12) of plugin.yaml to stdout.\n\n\
            Editors with the YAML language server complete fields, show their descriptions and underline mistakes when \
            the first line of plugin.yaml names the schema:\n\n  \
            # yaml-language-server: $schema=plugin.schema.json\n\n\
            podium new writes the file and the line. podium check reports more than a schema can: how fields go \
            together, and whether the component fits its grants.",
        after_help = "Examples:\n  \
            podium schema > plugin.schema.json            beside plugin.yaml, for editors\n  \
            podium schema | jq .properties.spec.properties.limits"
    )]
    Schema,
    /// Show everything at work on a cluster in this process, and check it
    Demo(Demo),
    /// Print shell completions
    #[command(after_help = "Example:\n  podium completion bash > ~/.local/share/bash-completion/completions/podium")]
    Completion { shell: clap_complete::Shell },
}

impl Command {
    /// How an error is printed. `demo` prints its own, with its checks.
    #[must_use]
    pub fn output(&self) -> Output {
        match self {
            Self::Build(arguments) => arguments.output,
            Self::Check(arguments) => arguments.output,
            Self::New(_) | Self::Schema | Self::Dev(_) | Self::Demo(_) | Self::Completion { .. } => Output::Table,
        }
    }
}

/// For people or for programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
}

/// What may be done to the Rust toolchain.
#[derive(Debug, Clone, Copy, Args)]
pub struct Toolchain {
    /// Install the compilation target with rustup where it is missing, or fail
    #[arg(
        long,
        value_name = "WHEN",
        env = Install::VARIABLE,
        default_value_t,
        value_parser = PossibleValuesParser::new(Install::VALUES).try_map(|value| value.parse::<Install>())
    )]
    pub install_targets: Install,
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
        load a plugin whose imports exceed its grants. Where plugin.yaml stands beside Cargo.toml, it is read as the \
        host reads it, and the build fails where the host would refuse the plugin.",
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
    #[command(flatten)]
    pub toolchain: Toolchain,
    /// Say nothing but the result
    #[arg(short, long)]
    pub quiet: bool,
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

#[derive(Debug, Args)]
#[command(
    long_about = "Check plugin configurations as podium-host does when it starts: every field, and where the component \
        is built, its size, its exports, and its imports against the grants. Nothing is built and nothing runs.\n\n\
        A path is a configuration file, a folder with plugin.yaml in it, or a folder of either. The component is the file \
        that spec.source.file names, beside the configuration or in the crate's target directory, as it was built last. \
        Where a crate is not built, its configuration alone is checked.",
    after_help = "Examples:\n  \
        podium check                             plugin.yaml in this folder\n  \
        podium check plugins                     every plugin in that folder, duplicates included\n  \
        podium check --component ttl.wasm ttl/   with a component from elsewhere\n  \
        podium check --output json | jq .errors  for programs\n\n\
        Exit codes: 0 the host would load everything that was checked, 1 it would refuse something, 2 wrong arguments."
)]
pub struct Check {
    /// Configuration files, folders of plugins, or folders of configuration files
    #[arg(default_value = ".")]
    pub paths: Vec<PathBuf>,
    /// Check this component instead of the one that spec.source.file names
    #[arg(long, value_name = "FILE")]
    pub component: Option<PathBuf>,
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
        kubectl -n shop run web --image nginx:1.29 && kubectl -n shop get pods --watch"
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
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = nodes)]
    pub nodes: usize,
    #[command(flatten)]
    pub toolchain: Toolchain,
    /// What the host logs, as in RUST_LOG
    #[arg(long, value_name = "FILTER", env = "PODIUM_LOG", default_value = "warn,podium::plugin=debug")]
    pub log: String,
}

/// The most nodes of a cluster in this process: the simulation steps through all of them.
const MOST_NODES: usize = 1_000;

fn nodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("no Pod runs on a cluster without nodes; use at least 1".to_owned()),
        Ok(count) if count <= MOST_NODES => Ok(count),
        _ => Err(format!("must be a whole number from 1 to {MOST_NODES}")),
    }
}

#[derive(Debug, Args)]
#[command(
    long_about = "Show everything at work and check it: 200 Pods of four tenants on a Kubernetes API server in this \
        process, five plugins, a rollout, a crash loop, an unpinned image, a finished Pod, a crowded workload, a \
        plugin that spins for ever, a lost watch connection and an expired one.\n\n\
        Takes about half a minute once built, and longer on a busy machine. Ends with a list of checks that are each \
        read back from the cluster, and fails when one of them does.",
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
    #[command(flatten)]
    pub toolchain: Toolchain,
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
    fn a_cluster_without_nodes_is_refused_with_the_reason() {
        let error = Arguments::try_parse_from(["podium", "dev", "--nodes", "0"]).unwrap_err().to_string();
        assert!(error.contains("no Pod runs on a cluster without nodes"), "{error}");
        assert!(Arguments::try_parse_from(["podium", "dev", "--nodes", "1001"]).is_err());
        assert!(Arguments::try_parse_from(["podium", "dev", "--nodes", "1"]).is_ok());
    }

    #[test]
    fn demo_takes_output_json_and_keep() {
        let arguments = Arguments::parse_from(["podium", "demo", "--output", "json", "--keep"]);
        let Command::Demo(demo) = arguments.command else { panic!("not demo: {arguments:?}") };
        assert_eq!((demo.output, demo.keep), (Output::Json, true));
    }
}
