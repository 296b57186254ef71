//! The command line: `compare` measures, and starts `serve` and `subject`, which can also be run by hand.

use std::{path::PathBuf, process::ExitCode, sync::LazyLock, thread, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::PossibleValue};

use crate::{
    controller, driver, floor,
    generate::{self, PopulationKind},
    load, queue, server, subject,
};

/// Measures Podium's cache and other clients: the cost of an event, the memory of a Pod, the latency of a change.
#[derive(Debug, Parser)]
#[command(name = "podium-bench", version, max_term_width = 100)]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run every subject several times and print one table
    Compare(Compare),
    /// Serve generated Pods as an API server would, until it is stopped
    Serve(Serve),
    /// Follow a server's Pods and report progress on standard output
    Subject {
        #[arg(value_enum)]
        subject: subject::Subject,
        #[arg(long, value_name = "URL")]
        url: String,
        /// The certificate to trust, as PEM
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
    },
    /// The queue of keys beside kube-rs' scheduler and client-go's workqueue
    Queue(QueueFlags),
    /// podium-host, kube-rs and controller-runtime label new Pods of a real control plane: the cost of each
    Load {
        #[command(flatten)]
        options: load::Options,
        /// table or json
        #[arg(long, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
    /// Label the Pods of namespaces by kube-rs, until it is stopped
    Controller(Labels),
    /// Label them with nothing but the host's client, until it is stopped
    Floor(Labels),
    /// Measure one queue, and print its figures as JSON
    QueueSubject {
        #[arg(value_enum)]
        subject: queue::Subject,
        #[arg(value_name = "KEYS")]
        keys: usize,
    },
}

#[derive(Debug, Args)]
struct Labels {
    #[arg(value_name = "KUBECONFIG")]
    kubeconfig: PathBuf,
    #[arg(value_name = "NAMESPACE", required = true)]
    namespaces: Vec<String>,
}

#[derive(Debug, Args)]
struct QueueFlags {
    /// Due keys, for each row of the table
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1000,100000,1000000")]
    keys: Vec<usize>,
    /// Runs of each subject
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    /// The Go client, as built from tests/bench/go
    #[arg(long, value_name = "FILE")]
    go: Option<PathBuf>,
    /// table or json
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Debug, Args)]
struct Generate {
    /// How many Pods; `hostile` adds 5,000
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pods: usize,
    /// The same seed makes the same Pods and events
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Pods of one owner, on average
    #[arg(long, value_name = "N", default_value_t = 70)]
    pods_per_workload: usize,
    /// A folder of real Pods, one .json each, as templates instead of invented ones; with the populations status and
    /// churn
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    generate: Generate,
    /// How Pods differ and what events change
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    population: PopulationKind,
    /// The Go client, which encodes Pods as protobuf for clients that request it
    #[arg(long, value_name = "FILE")]
    encoder: Option<PathBuf>,
    /// Serve over TLS too, with a certificate that is written to this folder
    #[arg(long, value_name = "DIR")]
    tls: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Compare {
    #[command(flatten)]
    generate: Generate,
    /// How Pods differ and what events change; several, separated by commas, run one after the other and have a row
    /// each
    #[arg(long, value_enum, value_name = "NAME|all", value_delimiter = ',', default_value = "status")]
    population: Vec<Populations>,
    /// Events without pause, to measure the cost of one
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    events: usize,
    /// Events per second, to measure the cost and the latency of one; several, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "20,200,2000")]
    rate: Vec<u32>,
    /// Seconds at each rate; more for fewer than 200 events
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u32,
    /// Runs of each subject
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    /// Pause between the steps of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    settle: u64,
    /// Over TLS, with a certificate made by openssl
    #[arg(long)]
    tls: bool,
    /// The subjects, separated by commas [default: all that are built, except wire and wire-protobuf]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    subjects: Vec<String>,
    /// The Go client, as built from tests/bench/go
    #[arg(long, value_name = "FILE")]
    go: Option<PathBuf>,
    /// table or json
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

/// One population, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Populations {
    One(PopulationKind),
    All,
}

impl ValueEnum for Populations {
    fn value_variants<'a>() -> &'a [Self] {
        static VARIANTS: LazyLock<Vec<Populations>> = LazyLock::new(|| {
            let each = PopulationKind::value_variants().iter().map(|kind| Populations::One(*kind));
            each.chain([Populations::All]).collect()
        });
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::One(kind) => kind.to_possible_value(),
            Self::All => Some(PossibleValue::new("all").help("Each of them, in this order")),
        }
    }
}

/// Returns the populations in their order, each once.
fn each(asked: &[Populations]) -> Vec<PopulationKind> {
    let is_asked =
        |kind: &&PopulationKind| asked.contains(&Populations::All) || asked.contains(&Populations::One(**kind));
    PopulationKind::value_variants().iter().filter(is_asked).copied().collect()
}

impl Generate {
    fn options(self, kind: PopulationKind) -> generate::Options {
        let Self { pods, seed, pods_per_workload, from } = self;
        generate::Options { kind, pods, seed, pods_per_workload, from, ..generate::Options::default() }
    }
}

/// The entry point of both binaries, which only differ in their allocator.
#[must_use]
pub fn main() -> ExitCode {
    let done = match Flags::parse().command {
        Command::Compare(flags) => driver::compare(&driver::Options {
            populations: each(&flags.population),
            generate: flags.generate.options(PopulationKind::default()),
            events: flags.events,
            rates: flags.rate,
            seconds: flags.seconds,
            repeats: flags.repeats,
            tls: flags.tls,
            settle: Duration::from_secs(flags.settle),
            subjects: flags.subjects,
            go: flags.go,
            json: flags.output == Output::Json,
        }),
        Command::Serve(flags) => serve(flags),
        Command::Subject { subject, url, ca } => subject::run(subject, &url, ca.as_deref()),
        Command::Queue(QueueFlags { keys, repeats, go, output }) => {
            queue::compare(&queue::Options { keys, repeats, go, json: output == Output::Json })
        }
        Command::Load { options, output } => load::compare(&options, output == Output::Json),
        Command::Controller(Labels { kubeconfig, namespaces }) => controller::run(&kubeconfig, &namespaces),
        Command::Floor(Labels { kubeconfig, namespaces }) => floor::run(&kubeconfig, &namespaces),
        Command::QueueSubject { subject, keys } => queue::measure(subject, keys),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: Serve) -> anyhow::Result<()> {
    let serving = server::Serving { encoder: flags.encoder, tls: flags.tls };
    let server = server::start(&flags.generate.options(flags.population), serving)?;
    match server.tls {
        Some((tls, certificate)) => {
            println!("listening {} https://{tls} {}", server.address, certificate.display());
        }
        None => println!("listening {0} http://{0}", server.address),
    }
    loop {
        thread::park();
    }
}
