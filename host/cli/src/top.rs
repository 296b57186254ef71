//! `podium top`: what each plugin uses now, from two readings of the counters of a running host.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{self, IsTerminal},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use futures::future::try_join_all;
use podium_host::admin::{PluginUsed, PluginsUsed};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    args::Output,
    replicas::{Replica, Replicas},
    runs::Server,
    ui,
};

/// Show what each plugin uses: runs, failures, writes, processor time
#[derive(Debug, Args)]
#[command(
    long_about = "Show what each plugin uses: runs, failed runs, writes and requests per second, processor time, and \
        the Pods that wait for a run; those with most processor time first.\n\nThe figures are of running hosts, from \
        their ports of /metrics: the difference of two readings. Replicas that run plugins are added. On a \
        terminal the table is renewed until Ctrl-C; otherwise it is printed once.",
    after_help = "To reach the host:\n  \
        kubectl -n podium port-forward deployment/podium-host 8080 &\n  \
        export PODIUM_TOKEN=$(kubectl -n podium create token operator)\n\n\
        Examples:\n  \
        podium top                                 renewed every 2 s\n  \
        podium top --interval 30 --output json     the mean of 30 s, once\n  \
        podium top --server https://localhost:8080 --replica https://localhost:8081    two replicas together\n\n\
        CPU is in thousandths of a processor (m), as in `kubectl top`.\n\n\
        Exit codes: 0 the host answered, 1 it did not, 2 called wrongly"
)]
pub struct Top {
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub interval: u64,
    /// The most plugins to show
    #[arg(long, value_name = "NUMBER", default_value_t = 40)]
    pub limit: usize,
    /// Print once, also on a terminal
    #[arg(long)]
    pub once: bool,
    #[command(flatten)]
    pub server: Server,
}

/// The use of one plugin between two readings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    plugin: String,
    state: String,
    runs_per_second: f64,
    failed_per_second: f64,
    writes_per_second: f64,
    requests_per_second: f64,
    /// Thousandths of a processor.
    cpu_millis: f64,
    running: usize,
    waiting: usize,
}

pub(crate) async fn run(top: Top) -> anyhow::Result<ExitCode> {
    let is_live = !top.once && top.server.output == Output::Table && io::stdout().is_terminal();
    let interval = Duration::from_secs(top.interval);
    let mut reading = Some(Reading::first(&top.server).await?);
    // Clears the screen.
    let start = if is_live { "\u{1b}[H\u{1b}[2J" } else { "" };
    loop {
        let next = async {
            tokio::time::sleep(interval).await;
            match reading.take() {
                Some(reading) => reading.next().await,
                // The plugins may run in other replicas after a failure.
                None => Reading::first(&top.server).await,
            }
        };
        let next = tokio::select! {
            next = next => next,
            stopped = ui::stopped() => return stopped.map(|()| ExitCode::SUCCESS),
        };
        let next = match next {
            Ok(next) => next,
            Err(error) if is_live => {
                ui::print(&format!("{start}{error:#}\n"))?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let Reading { replicas, now, before } = reading.insert(next);
        let Some(before) = before else { continue };
        let mut usages = usages(&before.used, &now.used, now.at - before.at);
        let total = usages.len();
        usages.truncate(top.limit);
        let pods = now.used.iter().map(|answer| answer.pods).max().unwrap_or_default();
        let stale = now.used.iter().find_map(|answer| answer.stale.clone());
        if top.server.output == Output::Json {
            let answer = serde_json::json!({
                "pods": pods,
                "stale": stale,
                "notCounted": replicas.not_counted,
                "total": total,
                "plugins": usages,
            });
            ui::print(&format!("{answer:#}\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let stale = stale.map_or_else(String::new, |stale| stale + "\n");
        ui::print(&format!("{start}{pods} Pods, {total} plugins\n{stale}{}", table(&usages, total)))?;
        if !is_live {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The counters of each replica at one time.
struct Counters {
    used: Vec<PluginsUsed>,
    at: Instant,
}

impl Counters {
    async fn read(replicas: &mut [Replica]) -> anyhow::Result<Self> {
        let read = replicas.iter_mut().map(|replica| async { replica.server()?.get("/debug/plugins").await });
        Ok(Self { used: try_join_all(read).await?, at: Instant::now() })
    }
}

/// The last two readings of the same replicas.
struct Reading {
    replicas: Replicas,
    now: Counters,
    before: Option<Counters>,
}

impl Reading {
    /// Finds the replicas, and reads their counters.
    async fn first(server: &Server) -> anyhow::Result<Self> {
        let mut replicas = server.of_all().await?;
        let now = Counters::read(&mut replicas.reached).await?;
        Ok(Self { replicas, now, before: None })
    }

    async fn next(self) -> anyhow::Result<Self> {
        let Self { mut replicas, now: before, .. } = self;
        let now = Counters::read(&mut replicas.reached).await?;
        Ok(Self { replicas, now, before: Some(before) })
    }
}

/// Returns the use of the plugins between two readings of all replicas, most processor time first, then those with
/// most waiting Pods. A counter that is smaller than before is of a host that was started again: it counts from 0.
fn usages(before: &[PluginsUsed], now: &[PluginsUsed], time: Duration) -> Vec<Usage> {
    let mut all = BTreeMap::<String, Usage>::new();
    for (before, now) in before.iter().zip(now) {
        let earlier: BTreeMap<_, _> = before.plugins.iter().map(|used| (&used.plugin, used)).collect();
        for used in &now.plugins {
            let one = usage(earlier.get(&used.plugin).copied(), used, time);
            match all.get_mut(&used.plugin) {
                Some(sum) => sum.add(one),
                None => drop(all.insert(used.plugin.clone(), one)),
            }
        }
    }
    let mut usages: Vec<_> = all.into_values().collect();
    usages.sort_by(|a, b| {
        let rest = |usage: &Usage| (Reverse(usage.waiting), usage.plugin.clone());
        b.cpu_millis.total_cmp(&a.cpu_millis).then_with(|| rest(a).cmp(&rest(b)))
    });
    usages
}

fn usage(before: Option<&PluginUsed>, used: &PluginUsed, time: Duration) -> Usage {
    let rate = |counter: fn(&PluginUsed) -> u64| {
        let count = counter(used);
        let since = before.map(counter).filter(|before| *before <= count);
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with one decimal")]
        let growth = (count - since.unwrap_or_default()) as f64;
        growth / time.as_secs_f64().max(0.001)
    };
    Usage {
        plugin: used.plugin.clone(),
        state: used.state.clone(),
        runs_per_second: rate(|used| used.runs),
        failed_per_second: rate(|used| used.failed),
        writes_per_second: rate(|used| used.writes),
        requests_per_second: rate(|used| used.requests),
        cpu_millis: rate(|used| used.cpu_micros) / 1_000.0,
        running: used.running,
        waiting: used.waiting,
    }
}

impl Usage {
    /// Adds that of another replica.
    fn add(&mut self, other: Self) {
        // A replica that runs the plugin says more about it than one that does not.
        if self.state == "standby" {
            self.state = other.state;
        }
        self.runs_per_second += other.runs_per_second;
        self.failed_per_second += other.failed_per_second;
        self.writes_per_second += other.writes_per_second;
        self.requests_per_second += other.requests_per_second;
        self.cpu_millis += other.cpu_millis;
        self.running += other.running;
        self.waiting += other.waiting;
    }
}

fn table(usages: &[Usage], total: usize) -> String {
    let rows = usages.iter().map(|usage| {
        [
            usage.plugin.clone(),
            usage.state.clone(),
            format!("{:.1}", usage.runs_per_second),
            format!("{:.1}", usage.failed_per_second),
            format!("{:.1}", usage.writes_per_second),
            format!("{:.1}", usage.requests_per_second),
            format!("{:.1}m", usage.cpu_millis),
            usage.running.to_string(),
            usage.waiting.to_string(),
        ]
    });
    let head = ["PLUGIN", "STATE", "RUNS/S", "FAILED/S", "WRITES/S", "REQUESTS/S", "CPU", "RUNNING", "WAITING"];
    let mut text = format!("{}\n", ui::table(head, rows));
    if usages.len() < total {
        text += &format!("and {} more; --limit shows them\n", total - usages.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(plugin: &str, state: &str, count: u64) -> PluginUsed {
        PluginUsed {
            plugin: plugin.to_owned(),
            state: state.to_owned(),
            runs: count,
            failed: count / 10,
            writes: count,
            requests: 2 * count,
            cpu_micros: 1_000 * count,
            running: 1,
            waiting: 2,
        }
    }

    fn answer(plugins: Vec<PluginUsed>) -> PluginsUsed {
        PluginsUsed { pods: 7, stale: None, plugins }
    }

    #[test]
    fn rates_are_differences_and_a_restarted_host_counts_from_zero() {
        let before = answer(vec![used("shop/a", "loaded", 100), used("shop/b", "loaded", 1_000)]);
        let now = answer(vec![
            used("shop/a", "loaded", 120),
            used("shop/b", "loaded", 10),
            used("shop/c", "loaded", 40),
            used("shop/d", "suspended", 0),
        ]);
        let usages = usages(&[before], &[now], Duration::from_secs(2));
        let shown: Vec<_> =
            usages.iter().map(|usage| (&*usage.plugin, usage.runs_per_second, usage.cpu_millis)).collect();
        assert_eq!(shown, [("shop/c", 20.0, 20.0), ("shop/a", 10.0, 10.0), ("shop/b", 5.0, 5.0), ("shop/d", 0.0, 0.0)]);
        let text = table(&usages[..2], usages.len());
        assert!(text.starts_with("PLUGIN  STATE   RUNS/S  FAILED/S"), "{text}");
        assert!(text.contains("shop/a  loaded  10.0    1.0       10.0      20.0        10.0m  1        2"), "{text}");
        assert!(text.ends_with("and 2 more; --limit shows them\n"), "{text}");
    }

    #[test]
    fn replicas_are_added_also_if_one_of_them_restarts() {
        let of = |state: &str, count| answer(vec![used("shop/a", state, count)]);
        let before = [of("standby", 5_000), of("loaded", 9_000)];
        let now = [of("standby", 10), of("loaded", 9_030)];
        for order in [[0, 1], [1, 0]] {
            let [before, now] = [&before, &now].map(|answers| order.map(|at| answers[at].clone()));
            let usages = usages(&before, &now, Duration::from_secs(1));
            assert_eq!((&*usages[0].state, usages[0].runs_per_second, usages[0].waiting), ("loaded", 40.0, 4));
        }
    }
}
