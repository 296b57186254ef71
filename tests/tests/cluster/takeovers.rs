//! Replicas of the host in rounds of faults while Pods come and go: the replica that runs the plugin is killed, stopped
//! for longer than the Lease lasts, cut off or replaced as in a rolling update, or kube-apiserver is killed and started
//! again. Another replica goes on, each deletion is delivered, and the audit log has no write of an earlier holder that
//! was received after the Lease was taken, and none without effect.
//!
//! With two replicas one runs all plugins; three share the shards of namespaces. Each kind of fault occurs once with
//! two; `PODIUM_TAKEOVER_ROUNDS` sets the number of rounds, and then each one waits for a replica that knows all
//! deletions, as the documented times are of such a one. `PODIUM_STOP_SECONDS` is the time of a stop.

mod churn;
mod group;
mod ledger;

use std::{
    cell::Cell,
    collections::BTreeMap,
    env,
    fmt::{self, Display, Formatter},
    io::Write,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use churn::Churn;
use group::{Group, Held, Replica};
use jiff::Timestamp;
use ledger::Ledger;
use podium_tests::{
    controlplane::{ControlPlane, Mark, Options},
    guests,
    helm::Helm,
    wait::until,
};
use podium_vocabulary::Shards;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::{
    exclusive,
    objects::{NAMESPACE, SOON, apply, condition, config_map, start},
    replicas::install,
};

/// A Lease lasts 8 s.
const STOP_SECONDS: u64 = 12;
/// The time for which the holder is cut off.
const CUT: Duration = Duration::from_secs(12);
/// Sufficient for shards to be shared out, which begins when no replica has gone for 30 s, and for a holder that has
/// just taken the Lease to say which deletions have settled, which it does a minute later.
const AT_REST: Duration = Duration::from_secs(240);
/// The most time until another replica acts, on a busy machine. One that has just started takes the Lease of a replica
/// that crashed 16 s later.
const MOST: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// The next replica starts, then the holder gets SIGTERM.
    Update,
    /// The holder gets SIGKILL, and a new replica starts at once.
    Kill,
    /// The holder gets SIGSTOP, and later SIGCONT.
    Stop,
    /// No byte passes between the holder and the API server.
    Cut,
    /// kube-apiserver gets SIGKILL, and is started again.
    Restart,
}

impl Display for Fault {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Update => "rolling update, SIGTERM",
            Self::Kill => "SIGKILL",
            Self::Stop => "SIGSTOP, SIGCONT",
            Self::Cut => "cut off",
            Self::Restart => "kube-apiserver SIGKILL",
        })
    }
}

/// The figures of a round.
struct Round {
    fault: Fault,
    /// From the fault, or the return of the API server, until the first write of the next term on a new Pod.
    took: Duration,
    deletions: usize,
    writes: usize,
    late: usize,
    repeated: usize,
}

struct Scene {
    plane: ControlPlane,
    group: Group,
    churn: Churn,
    /// Up to where the audit log was read.
    mark: Mark,
    /// When each term began.
    terms: BTreeMap<u32, Timestamp>,
    /// Whether a fault waits until another replica knows all deletions.
    is_patient: bool,
}

fn spec(sha256: &str, register: &str) -> Value {
    let writes = json!({ "labels": ["guests.example/*"], "annotations": ["guests.example/*"] });
    json!({
        "source": { "configMap": { "name": "labeller", "key": "plugin.wasm", "sha256": sha256 } },
        "serviceAccountName": "labeller",
        "config": { "register": register },
        "watch": { "sections": ["lifecycle"] },
        "grants": { "read": { "pods": { "sections": ["labels"] } }, "write": writes },
    })
}

/// Brings the fault about and ends it, while another replica acts. Returns when it began.
async fn occur(plane: &mut ControlPlane, group: &mut Group, fault: Fault, held: &Held) -> Result<Timestamp> {
    let stop = env::var("PODIUM_STOP_SECONDS").map_or(Ok(STOP_SECONDS), |seconds| seconds.parse())?;
    let began = Instant::now();
    let at = Timestamp::now();
    match fault {
        Fault::Update => {
            let Replica { host, network: _network, .. } = group.take(&held.by)?;
            ensure!(host.terminate().await?.success(), "the holder failed");
        }
        Fault::Kill => {
            let Replica { host, network: _network, .. } = group.take(&held.by)?;
            host.kill().await?;
            group.start(plane).await?;
        }
        Fault::Stop => {
            let host = &group.named(&held.by)?.host;
            host.stop().await?;
            // How long it is stopped is the subject of the test.
            sleep_until(began + Duration::from_secs(stop)).await;
            host.go_on()?;
        }
        Fault::Cut => {
            let network = &group.named(&held.by)?.network;
            network.cut();
            sleep_until(began + CUT).await;
            network.heal();
        }
        Fault::Restart => {
            plane.restart_apiserver().await?;
            // The replicas may act in the same term again.
            let back = Timestamp::now();
            group.held_after(held.term - 1).await?;
            return Ok(back);
        }
    }
    group.held_after(held.term).await?;
    Ok(at)
}

impl Scene {
    async fn start(replicas: usize, flags: &[&str]) -> Result<Option<(Self, impl Sized)>> {
        let Some(helm) = Helm::build().await? else { return Ok(None) };
        let options = Options { nodes: 2, ..Options::default() };
        let Some((plane, client, turn)) = exclusive(options).await? else { return Ok(None) };
        let (mut options, mark) = start(&plane, &client).await?;
        options.arguments.extend(["--lease", "on"].iter().chain(flags).map(|&flag| flag.to_owned()));
        let sha256 = config_map(&client, guests::component("registrar")?).await?;
        install(&helm, &plane, &format!("replicas={replicas}"))?;
        let (churn, register) = Churn::start(&client).await?;
        until("the kind", SOON, async || apply(&client, &spec(&sha256, &register)).await).await?;
        let of_namespace = |number: &usize| Shards::one(*number) == Shards::of_namespace(NAMESPACE);
        let shard = (0..Shards::COUNT).find(of_namespace).context("no shard")?;
        let lease = if flags.is_empty() { "podium-host".to_owned() } else { format!("podium-host-shard-{shard}") };
        let mut group = Group::new(lease, options, client.clone());
        for _ in 0..replicas {
            group.start(&plane).await?;
        }
        condition(&client, "Ready", "True", "Running").await?;
        let is_patient = env::var_os("PODIUM_TAKEOVER_ROUNDS").is_some();
        let mut scene = Self { plane, group, churn, mark, terms: BTreeMap::new(), is_patient };
        scene.churn.fill().await?;
        scene.churn.settled().await?;
        Ok(Some((scene, turn)))
    }

    /// Waits until each replica has its share and is ready.
    async fn at_rest(&self) -> Result<Held> {
        until("replicas at rest", AT_REST, async || {
            self.group.check_shares().await?;
            let held = self.group.held().await?;
            if self.is_patient {
                self.group.check_successor(&held)?;
            }
            Ok(held)
        })
        .await
    }

    async fn round(&mut self, fault: Fault) -> Result<Round> {
        let held = self.at_rest().await?;
        if fault == Fault::Update {
            self.group.start(&self.plane).await?;
        }
        self.churn.burst().await?;
        let is_over = Cell::new(false);
        let occur = async {
            let began = occur(&mut self.plane, &mut self.group, fault, &held).await?;
            is_over.set(true);
            Ok(began)
        };
        let (began, ()) = tokio::try_join!(occur, self.churn.run(&is_over))?;
        self.churn.create(1).await?;
        let deletions = self.churn.settled().await?;
        self.churn.check_living().await?;
        self.at_rest_again().await?;

        let audit = self.plane.audit();
        let next = audit.now()?;
        let ledger = Ledger::read(&audit, self.mark, &self.group.lease, &mut self.terms)?;
        self.mark = next;
        let before = if fault == Fault::Restart { held.term - 1 } else { held.term };
        let acted = ledger.acted(before, &self.churn.fresh, began).context("no write of the next term")?;
        let took = Duration::try_from(acted.duration_since(began))?;
        ensure!(took <= MOST, "another replica acted after {took:?}");
        let late = ledger.late(&self.terms);
        let repeated = ledger.repeated();
        print_line(&format!("{fault}: acted after {took:.1?}, {deletions} deletions, {} writes", ledger.len()))?;
        for write in late.iter().chain(&repeated) {
            print_line(&format!("{write:?}, terms: {:?}", self.terms))?;
        }
        ensure!(ledger.older_last().is_empty(), "last written in an earlier term: {:?}", ledger.older_last());
        let round = Round { fault, took, deletions, writes: ledger.len(), late: late.len(), repeated: repeated.len() };
        self.churn.forget().await?;
        Ok(round)
    }

    /// Waits until each replica is ready after a fault, so that one that was stopped has done what it would do.
    async fn at_rest_again(&self) -> Result<()> {
        until("all replicas to be ready", AT_REST, async || {
            for replica in &self.group.all {
                replica.host.get("/readyz").await?;
            }
            Ok(())
        })
        .await
    }

    async fn rounds(&mut self, faults: &[Fault], number: usize) -> Result<()> {
        let mut rounds = Vec::new();
        for (index, fault) in faults.iter().cycle().take(number).enumerate() {
            let round = self.round(*fault).await;
            let round = round.with_context(|| format!("round {index}, {fault}\n{}", self.group.logs()))?;
            rounds.push(round);
        }
        print_table(&mut rounds)?;
        for Round { fault, late, repeated, .. } in rounds {
            ensure!(late == 0, "{fault}: {late} writes of a former holder");
            ensure!(repeated == 0, "{fault}: {repeated} writes without effect");
        }
        for Replica { host, .. } in self.group.all.drain(..) {
            ensure!(host.terminate().await?.success(), "it failed");
        }
        Ok(())
    }
}

/// Prints to stderr directly, because the test harness captures `eprintln`.
fn print_line(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "takeovers: {line}")?)
}

fn print_table(rounds: &mut [Round]) -> Result<()> {
    print_line(&format!(
        "{:24}{:>7}{:>10}{:>10}{:>11}{:>8}{:>6}{:>10}",
        "fault", "rounds", "p50", "p99", "deletions", "writes", "late", "no effect"
    ))?;
    rounds.sort_by_key(|round| (round.fault, round.took));
    for of_one in rounds.chunk_by(|one, other| one.fault == other.fault) {
        let at = |percent: usize| format!("{:.2?}", of_one[(of_one.len() * percent).div_ceil(100) - 1].took);
        let sum = |count: fn(&Round) -> usize| of_one.iter().map(count).sum::<usize>();
        let deletions = sum(|round| round.deletions);
        let writes = sum(|round| round.writes);
        let late = sum(|round| round.late);
        let repeated = sum(|round| round.repeated);
        print_line(&format!(
            "{:24}{:>7}{:>10}{:>10}{deletions:>11}{writes:>8}{late:>6}{repeated:>10}",
            of_one[0].fault,
            of_one.len(),
            at(50),
            at(99)
        ))?;
    }
    Ok(())
}

fn number(default: usize) -> Result<usize> {
    match env::var("PODIUM_TAKEOVER_ROUNDS") {
        Ok(text) => text.parse().context("PODIUM_TAKEOVER_ROUNDS is not a number"),
        Err(_) => Ok(default),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_replicas_acts_after_each_fault_and_loses_nothing() -> Result<()> {
    let Some((mut scene, _turn)) = Scene::start(2, &[]).await? else { return Ok(()) };
    let faults = [Fault::Cut, Fault::Restart, Fault::Stop, Fault::Update, Fault::Kill];
    scene.rounds(&faults, number(faults.len())?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_replicas_that_share_acts_after_each_fault() -> Result<()> {
    let Some((mut scene, _turn)) = Scene::start(3, &["--active-replicas", "all"]).await? else { return Ok(()) };
    let faults = [Fault::Kill, Fault::Stop, Fault::Cut, Fault::Update, Fault::Restart];
    scene.rounds(&faults, number(1)?).await
}
