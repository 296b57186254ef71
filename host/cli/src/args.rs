//! The command line: subcommands, flags and their help texts.

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
    value_parser,
};

use podium_host::app::compile::Compile;

use crate::build::{Install, Target};
pub use crate::{
    deploy::Deploy,
    profile::Profile,
    run::{RunFormat, RunOnce},
    runs::{Runs, Why},
    test::Test,
    top::Top,
    uninstall::Uninstall,
};

/// Sandboxed reconcilers for Kubernetes Pods: create, build, check and run plugins.
#[derive(Debug, Parser)]
#[command(
    name = "podium",
    version,
    propagate_version = true,
    after_help = "Examples:\n  \
        podium new hello && cd hello    create a plugin\n  \
        podium dev                      run a cluster, the host and the plugin, and rebuild it on every save\n  \
        podium test                     run the cases in tests/*.yaml: Pods, and the writes that are expected\n  \
        podium build                    build the component and list its imports\n  \
        podium check                    check plugin.yaml and the component as the host does\n  \
        podium deploy                   deploy the plugin to the cluster of your kubeconfig, and wait for it\n  \
        podium inspect                  print what a component imports, and the RBAC that its plugin needs\n  \
        podium push hello.wasm registry.example/team/hello:1.0
  \
        podium demo                     run five plugins on a cluster of 200 Pods and check the result"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

// The help of a subcommand with arguments is at their type: a comment here would replace its long text.
#[derive(Debug, Subcommand)]
pub enum Command {
    New(New),
    Build(Build),
    Check(Check),
    Deploy(Deploy),
    Inspect(Inspect),
    Push(Push),
    Pull(Pull),
    Uninstall(Uninstall),
    Runs(Runs),
    Top(Top),
    Profile(Profile),
    Why(Why),
    Run(RunOnce),
    Test(Test),
    Dev(Dev),
    /// Print the JSON Schema of plugin.yaml, of a policy or of a case for editors, or the definitions of the objects
    #[command(
        long_about = "Print the JSON Schema (draft 2020-12) of plugin.yaml, of a policy for podium-host --policy, or \
            of a case of podium test, to stdout.\n\nEditors with the YAML language server complete fields, show their \
            descriptions and underline mistakes when the first line of plugin.yaml names the schema:\n\n  # \
            yaml-language-server: \
            $schema=plugin.schema.json\n\npodium new writes the file and the line. podium check reports more than a \
            schema can: how fields go together, and whether the component fits its grants.\n\nWith crds, print the \
            CustomResourceDefinitions of ReconcilePlugin and ClusterReconcilePlugin as YAML, for podium-host \
            --watch-plugins. Install them before the host's first start, and again with each new version of it.",
        after_help = "Examples:\n  \
            podium schema > plugin.schema.json            beside plugin.yaml, for editors\n  \
            podium schema policy > policy.schema.json     beside a policy\n  \
            podium schema case > tests/case.schema.json   beside the cases of podium test\n  \
            podium schema | jq .properties.spec.properties.limits\n  \
            podium schema crds | kubectl apply --server-side -f -"
    )]
    Schema {
        /// The document
        #[arg(value_enum, default_value_t)]
        document: Document,
    },
    Demo(Demo),
    Compile(Compile),
    /// Print shell completions
    #[command(
        long_about = "Print a script to stdout with which a shell completes the subcommands and flags of podium. Each \
            shell has its own directory from which it loads such scripts.",
        after_help = "Examples:\n  \
            podium completion bash > ~/.local/share/bash-completion/completions/podium\n  \
            podium completion zsh > \"${fpath[1]}/_podium\"\n  \
            podium completion fish > ~/.config/fish/completions/podium.fish"
    )]
    Completion {
        /// The shell that reads the script
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// The format of an error message. `demo` prints its own errors, with its checks.
    #[must_use]
    pub fn output(&self) -> Output {
        match self {
            Self::Build(arguments) => arguments.output,
            Self::Check(arguments) => arguments.output,
            Self::Push(arguments) => arguments.output,
            Self::Pull(arguments) => arguments.output,
            Self::Uninstall(arguments) => arguments.output,
            Self::Runs(arguments) => arguments.server.output,
            Self::Top(arguments) => arguments.server.output,
            Self::Profile(arguments) => arguments.server.output,
            Self::Why(arguments) => arguments.server.output,
            Self::Test(arguments) => arguments.output,
            Self::Inspect(Inspect { output: Format::Json, .. })
            | Self::Deploy(Deploy { output: Format::Json, .. })
            | Self::Run(RunOnce { output: RunFormat::Json, .. }) => Output::Json,
            Self::New(_)
            | Self::Deploy(_)
            | Self::Inspect(_)
            | Self::Schema { .. }
            | Self::Run(_)
            | Self::Dev(_)
            | Self::Demo(_)
            | Self::Compile(_)
            | Self::Completion { .. } => Output::Table,
        }
    }
}

/// A document with a schema.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Document {
    #[default]
    Plugin,
    Policy,
    Case,
    Crds,
}

/// The format of standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
}

/// Permitted changes of the Rust toolchain.
#[derive(Debug, Clone, Copy, Args)]
pub struct Toolchain {
    /// Whether to install a missing compilation target with rustup, or to fail
    #[arg(
        long,
        value_name = "WHEN",
        env = Install::VARIABLE,
        default_value_t,
        value_parser = PossibleValuesParser::new(Install::VALUES).try_map(|value| value.parse::<Install>())
    )]
    pub install_targets: Install,
}

/// Create a new plugin, as a crate or as a script
#[derive(Debug, Args)]
#[command(
    long_about = "Create a new plugin: a reconcile function with its test, plugin.yaml with the sections to watch and \
        the grants, and cases for podium test in tests.\n\nIn Rust it is a crate. In JavaScript it is plugin.js, \
        whose test runs with node --test, and in Python plugin.py, with python3 -m unittest; plugin.yaml has a copy of \
        it, for kubectl apply.",
    after_help = "Examples:\n  \
        podium new hello && cd hello && podium test && podium dev\n  \
        podium new hello --lang js && cd hello && podium dev\n  \
        podium new hello --lang python && cd hello && podium dev"
)]
pub struct New {
    /// The folder to create; its name is the name of the plugin: lower-case letters, digits and '-'
    pub path: PathBuf,
    /// The language of the plugin
    #[arg(long, value_enum, default_value_t)]
    pub lang: Lang,
    /// Directory of podium-sdk, for Rust [default: beside podium, as in an archive, or in its checkout]
    #[arg(long, value_name = "DIR")]
    pub sdk: Option<PathBuf>,
}

/// The language of a new plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Lang {
    #[default]
    Rust,
    Js,
    Python,
}

/// The runners of scripts.
#[derive(Debug, Clone, Args)]
pub struct Runners {
    /// Directory with the runners of scripts, such as javascript-1.wasm [default: the directory runners beside this
    /// program, or else the one of the checkout, where they are built]
    #[arg(long, env = "PODIUM_RUNNERS", value_name = "DIR")]
    pub runners: Option<PathBuf>,
}

/// Build a plugin's crate as a component and list its imports
#[derive(Debug, Args)]
#[command(
    long_about = "Build a plugin's crate as a component and list its imports. Of a script, copy plugin.js or plugin.py \
        into plugin.yaml and check both.\n\n\
        The list is exact: the plugin cannot call functions that it does not import, and the host refuses to load a \
        plugin whose imports exceed its grants. If plugin.yaml is beside Cargo.toml, the build reads it as the host \
        does, and fails if the host would refuse the plugin.",
    after_help = "Examples:\n  \
        podium build                                  build the crate in this folder\n  \
        podium build plugins/pod-ttl --out ttl.wasm   copy the component to ttl.wasm\n  \
        podium build --output json | jq .imports      print the imports as JSON"
)]
pub struct Build {
    /// The crate's folder
    #[arg(default_value = ".")]
    pub path: PathBuf,
    /// Copy the component to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Compilation target; wasm32-wasip2 adds WASI's clocks, random and standard output
    #[arg(long, value_enum, default_value_t)]
    pub target: Target,
    /// cargo's target directory [default: the one of the workspace]
    #[arg(long, value_name = "DIR")]
    pub target_dir: Option<PathBuf>,
    #[command(flatten)]
    pub toolchain: Toolchain,
    #[command(flatten)]
    pub runners: Runners,
    /// Print only the result
    #[arg(short, long)]
    pub quiet: bool,
    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Check a plugin's configuration, and the component if it is built; build and run nothing
#[derive(Debug, Args)]
#[command(
    long_about = "Check plugin configurations as podium-host does when it starts: every field and, if the component is \
        built, its size, its exports, and its imports against the grants. Nothing is built and nothing runs.\n\nA path \
        is a configuration file, a folder with plugin.yaml in it, or a folder of either. The component is the file \
        that spec.source.file names, beside the configuration or in the crate's target directory, as it was built \
        last. If a crate is not built, only its configuration is checked. The syntax of a script is checked by its \
        runner, if there is one.",
    after_help = "Examples:\n  \
        podium check                             check plugin.yaml in this folder\n  \
        podium check plugin.js                   check the script and plugin.yaml beside it\n  \
        podium check plugins                     check every plugin in that folder, and duplicate names\n  \
        podium check --component ttl.wasm ttl/   check another component\n  \
        podium check --policy policy.yaml        check the plugin against a policy of podium-host, too\n  \
        podium check --output json | jq .errors  print the mistakes as JSON\n\n\
        Exit codes: 0 the host would load all plugins, 1 it would refuse at least one, 2 invalid arguments."
)]
pub struct Check {
    /// Configuration files, folders of plugins, or folders of configuration files
    #[arg(default_value = ".")]
    pub paths: Vec<PathBuf>,
    /// Check this component instead of the one that spec.source.file names
    #[arg(long, value_name = "FILE")]
    pub component: Option<PathBuf>,
    #[command(flatten)]
    pub runners: Runners,
    /// Check the plugins against this policy, as podium-host --policy does
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Print what a component imports, the smallest grants that fit, and the RBAC that the plugin needs
#[derive(Debug, Args)]
#[command(
    long_about = "Print what a component imports, function by function, the smallest grants that fit, and the RBAC \
        that the plugin needs, as YAML to apply.\n\nOf a component it prints a first plugin.yaml with exactly the \
        grants that the imports need. Of a plugin.yaml it prints the ServiceAccount, its Role with the rights of the \
        grants, and the Role with which the host may impersonate this account. All other lines are comments, so the \
        output can be applied as it is.",
    after_help = "Examples:\n  \
        podium inspect target/podium/pod_ttl.wasm   its imports, and a first plugin.yaml\n  \
        podium inspect plugins/pod-ttl              its imports, unused grants, and RBAC\n  \
        podium inspect --output yaml | kubectl apply -f -\n  \
        podium inspect plugins --output json        all plugins in that folder, for a program\n  \
        podium inspect --host podium-system/podium --impersonation constrained\n\n\
        Exit codes: 0 printed, 1 a file cannot be read, is no plugin or has mistakes, 2 invalid arguments."
)]
pub struct Inspect {
    /// A component, a configuration, a folder with plugin.yaml, or a folder of plugins
    #[arg(default_value = ".")]
    pub path: PathBuf,
    #[command(flatten)]
    pub host: HostAccount,
    /// Format of the result on stdout; yaml is only the objects to apply
    #[arg(long, value_enum, default_value_t)]
    pub output: Format,
}

/// The host's account, and its right to use a plugin's.
#[derive(Debug, Clone, Args)]
pub struct HostAccount {
    /// ServiceAccount of podium-host
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "podium/podium-host")]
    pub host: String,
    /// How the host may use the plugin's account
    #[arg(long, value_enum, default_value_t)]
    pub impersonation: Impersonation,
}

/// The right of the host to use a plugin's ServiceAccount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Impersonation {
    /// All rights of this one account; works on every cluster
    #[default]
    Plain,
    /// Only the rights that the grants need; for clusters with the feature ConstrainedImpersonation
    Constrained,
}

/// The format of `inspect` and `deploy` on standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
    Yaml,
}

/// Publish a component to an OCI registry, or in a ConfigMap
#[derive(Debug, Args)]
#[command(
    long_about = "Publish a component, and print the source to write into plugin.yaml.\n\n\
        To a registry it is pushed as an artifact of the CNCF's layout for WebAssembly, which oras, crane and wkg \
        read too. The source has the digest of the manifest, so that a tag that is moved changes nothing in the \
        cluster. The same file has the same digest whenever it is pushed.\n\nWith --configmap no registry is needed: \
        the ConfigMap is printed, for kubectl apply, or created or changed by --apply. The source has the SHA-256 of \
        the file; the host refuses other bytes, so whoever may edit the ConfigMap cannot change the plugin. A \
        ConfigMap holds at most 1 MiB.\n\nCredentials are those of docker login: of $DOCKER_CONFIG/config.json or \
        ~/.docker/config.json, with its credential helpers, or else of podman login. --username and \
        $PODIUM_REGISTRY_PASSWORD or --password-stdin \
        replace them.",
    after_help = "Examples:\n  \
        podium push ttl.wasm registry.example/team/ttl:1.0\n  \
        podium push ttl.wasm localhost:5000/ttl:dev --plain-http\n  \
        podium push ttl.wasm registry.example/team/ttl:1.0 --output json | jq -r .reference\n  \
        podium push ttl.wasm --configmap shop/ttl | kubectl apply -f -\n  \
        podium push ttl.wasm --configmap shop/plugins:ttl.wasm --apply\n\n\
        Exit codes: 0 published or printed, 1 the file is no plugin or the registry refused it, 2 invalid arguments."
)]
pub struct Push {
    /// The component, as podium build makes it
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// HOST/REPOSITORY:TAG; the host is always written
    #[arg(value_name = "REFERENCE", required_unless_present = "configmap", conflicts_with = "configmap")]
    pub reference: Option<String>,
    /// A ConfigMap for the component instead of a registry; the key is the name of the file by default
    #[arg(long, value_name = "NAMESPACE/NAME[:KEY]")]
    pub configmap: Option<String>,
    /// Create or change the ConfigMap instead of printing it; its other keys stay
    #[arg(long, requires = "configmap", conflicts_with = "reference")]
    pub apply: bool,
    /// Cluster of --apply [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "PODIUM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Version to write into the manifest; another version makes another digest
    #[arg(long, value_name = "VERSION", conflicts_with = "configmap")]
    pub component_version: Option<String>,
    #[command(flatten)]
    pub registry: RegistryAccess,
    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// Pull a component from an OCI registry
#[derive(Debug, Args)]
#[command(
    long_about = "Pull a component from an OCI registry into a file, as podium-host does: exactly one layer, with the \
        digest that the manifest names, of at most 32 MiB. The file is written when the digest is right.\n\nPrints the \
        reference with the digest of the manifest. Credentials are found as by podium push.",
    after_help = "Examples:\n  \
        podium pull registry.example/team/ttl:1.0              write ttl.wasm\n  \
        podium pull registry.example/team/ttl:1.0 -o old.wasm && podium inspect old.wasm\n  \
        podium pull localhost:5000/ttl:dev --plain-http --output json | jq -r .reference\n\n\
        Exit codes: 0 pulled, 1 it is no component or the registry refused it, 2 invalid arguments."
)]
pub struct Pull {
    /// HOST/REPOSITORY:TAG or HOST/REPOSITORY@DIGEST
    pub reference: String,
    /// The file to write [default: the last part of the repository, with .wasm]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub registry: RegistryAccess,
    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

/// How a registry is reached, and as whom.
#[derive(Debug, Clone, Args)]
pub struct RegistryAccess {
    /// Use http instead of https
    #[arg(long)]
    pub plain_http: bool,
    /// Trust only the authorities in this file, in PEM, instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "plain_http")]
    pub ca_file: Option<PathBuf>,
    /// Name of the user, instead of docker's credentials; the password is in $PODIUM_REGISTRY_PASSWORD
    #[arg(long, value_name = "NAME", env = "PODIUM_REGISTRY_USERNAME")]
    pub username: Option<String>,
    /// Read the password of --username from stdin
    #[arg(long, requires = "username")]
    pub password_stdin: bool,
    /// Longest time of the transfer to or from the registry
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

/// Run plugins on a cluster in this process, or on another one, and rebuild them on every save
#[derive(Debug, Args)]
#[command(
    long_about = "Run plugins on a Kubernetes API server in this process and rebuild them on every save.\n\n\
        A path is the folder of a crate or of a script, or a folder of such folders. plugin.yaml beside Cargo.toml or \
        the script has the sections to watch and the grants; if a crate has none, a first version of it is printed. \
        Each save of the script is copied into plugin.yaml.",
    after_help = "Examples:\n  \
        podium dev                              run the crate in this folder\n  \
        podium dev plugins                      run every crate in that folder\n  \
        podium dev --kubeconfig ~/.kube/config  use an existing cluster\n\n\
        Then, in another terminal, with the KUBECONFIG that it prints:\n  \
        kubectl -n shop run web --image nginx:1.29 && kubectl -n shop get pods --watch"
)]
pub struct Dev {
    /// Folders of crates or scripts
    #[arg(default_value = ".")]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub runners: Runners,
    /// Use this cluster, with the permissions of the kubeconfig, instead of one in this process
    #[arg(long, value_name = "FILE", env = "PODIUM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Watch only this namespace
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Load only plugins that this policy permits, as podium-host --policy does
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Nodes of the cluster in this process
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = nodes)]
    pub nodes: usize,
    #[command(flatten)]
    pub toolchain: Toolchain,
    /// Log filter of the host, as in RUST_LOG
    #[arg(long, value_name = "FILTER", env = "PODIUM_LOG", default_value = "warn,podium::plugin=debug")]
    pub log: String,
}

/// Maximum number of nodes of a cluster in this process: the simulation iterates over all of them.
const MAX_NODES: usize = 1_000;

fn nodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("no Pod runs on a cluster without nodes; use at least 1".to_owned()),
        Ok(count) if count <= MAX_NODES => Ok(count),
        _ => Err(format!("must be a whole number from 1 to {MAX_NODES}")),
    }
}

/// Run a scenario with five plugins on a cluster in this process, and check the result
#[derive(Debug, Args)]
#[command(
    long_about = "Run a scenario and check the result: 200 Pods of four tenants on a Kubernetes API server in this \
        process, five plugins, a rollout, a crash loop, an unpinned image, a finished Pod, a crowded workload, a \
        plugin in an endless loop, a lost watch connection and an expired one.\n\nTakes about half a minute once \
        built, and longer on a busy machine. Ends with a list of checks of the cluster's state, and fails if one of \
        them fails.\n\nWith --hostile it loads hostile components as plugins of one tenant instead, one after another: \
        endless loops in every function that the host calls, floods of host calls, copies that cost the host more than \
        the plugin, growth of memory and tables, violations of the component model, a component that takes gigabytes \
        to compile. A plugin of another tenant runs beside each of them. It prints what contained each attack and how \
        long the other tenant waited, without the attack and beside it, and exits with 1 if an attack was not \
        contained or delayed the other tenant. The components are made by podium itself, so no compilation target is \
        needed.",
    after_help = "Examples:\n  \
        podium demo                          run the scenario\n  \
        podium demo --hostile                attack the host, and measure a plugin of another tenant beside\n  \
        podium demo --hostile --plugins 100  the same with as many plugins as a tenant may have\n  \
        podium demo --keep                   keep the cluster running, for kubectl\n  \
        podium demo --output json | tail -1  print the result as JSON, in the last line of stdout"
)]
pub struct Demo {
    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Attack the host with hostile components instead, and measure a plugin of another tenant beside them
    #[arg(long, conflicts_with = "keep")]
    pub hostile: bool,
    /// The number of plugins of one tenant that have each hostile component
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "hostile",
          value_parser = value_parser!(u64).range(1..=100))]
    pub plugins: u64,
    /// Keep the cluster and the host running after the checks, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
    /// Seed of the cluster's random choices
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub toolchain: Toolchain,
    /// Log filter of the host, as in RUST_LOG
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
    fn each_help_text_has_an_example_and_explains_each_argument() {
        for subcommand in Arguments::command().get_subcommands_mut().filter(|subcommand| !subcommand.is_hide_set()) {
            let name = subcommand.get_name().to_owned();
            let about = subcommand.get_about().unwrap_or_default().to_string();
            let long_about = subcommand.get_long_about().unwrap_or_default().to_string();
            assert!(!about.is_empty() && long_about.len() > about.len(), "{name}: {about:?}, {long_about:?}");
            for argument in subcommand.get_arguments() {
                assert!(argument.get_help().is_some(), "{name}: {}", argument.get_id());
            }
            let unwrapped = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let help = unwrapped(&subcommand.render_long_help().to_string());
            assert!(help.contains(&unwrapped(&long_about)), "{name}: {help}");
            assert!(help.contains(&format!(": podium {name}")), "{name} has no example: {help}");
        }
    }

    #[test]
    fn a_cluster_without_nodes_is_refused_with_the_reason() {
        let error = Arguments::try_parse_from(["podium", "dev", "--nodes", "0"]).unwrap_err().to_string();
        assert!(error.contains("no Pod runs on a cluster without nodes"), "{error}");
        assert!(Arguments::try_parse_from(["podium", "dev", "--nodes", "1001"]).is_err());
        assert!(Arguments::try_parse_from(["podium", "dev", "--nodes", "1"]).is_ok());
    }

    #[test]
    fn schema_is_that_of_a_plugin_unless_a_document_is_named() {
        for (arguments, expected) in
            [(&[][..], Document::Plugin), (&["plugin"], Document::Plugin), (&["policy"], Document::Policy)]
        {
            let arguments = Arguments::parse_from([&["podium", "schema"], arguments].concat());
            let Command::Schema { document } = arguments.command else { panic!("not schema: {arguments:?}") };
            assert_eq!(document, expected);
        }
    }

    #[test]
    fn demo_takes_output_json_and_keep() {
        let arguments = Arguments::parse_from(["podium", "demo", "--output", "json", "--keep"]);
        let Command::Demo(demo) = arguments.command else { panic!("not demo: {arguments:?}") };
        assert_eq!((demo.output, demo.keep), (Output::Json, true));
    }

    #[test]
    fn demo_takes_hostile_and_no_keep_with_it() {
        let arguments = Arguments::parse_from(["podium", "demo", "--hostile"]);
        let Command::Demo(demo) = arguments.command else { panic!("not demo: {arguments:?}") };
        assert!(demo.hostile);
        assert!(Arguments::try_parse_from(["podium", "demo", "--hostile", "--keep"]).is_err());
    }
}
