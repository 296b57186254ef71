//! The same seed leads to the same history of a simulated cluster and host: the same runs, host calls and requests, in
//! the same order and at the same times.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use podium_devcluster::{BEHAVIOUR, Cluster, Options, Pace};
use podium_engine::fixtures::log_to;
use podium_tests::{embedded, plugins, wire::Wire};
use serde_json::json;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// The log of a host at the level trace: each run with its fuel and its host calls.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Log {
    pub(super) fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.0.lock().unwrap()).lines().map(str::to_owned).collect()
    }
}

/// Everything that a host did in a simulation.
struct History {
    /// Runs, host calls and lines of plugins.
    log: Vec<String>,
    /// Requests as the API server received them, with the cluster's time.
    requests: Vec<String>,
    /// Writes as the host sent them, with their bodies.
    writes: Vec<String>,
}

impl History {
    fn runs(&self) -> usize {
        self.log.iter().filter(|line| line.contains(" ran ")).count()
    }

    fn host_calls(&self) -> usize {
        self.log.iter().filter(|line| line.contains(" host call ")).count()
    }
}

/// Returns the history of two simulated minutes.
async fn history(seed: u64, log: Log) -> History {
    let pace = Pace { back_off: Duration::from_secs(1), ..Pace::default() };
    let cluster = Cluster::start(Options { seed, pace, ..Options::default() }).unwrap();
    cluster.faults().delay(Duration::from_millis(2));
    let wire = Wire::new(&cluster);
    let mut specs: Vec<_> = plugins::FIVE.into_iter().map(|name| plugins::sample(name).unwrap()).collect();
    specs.push(plugins::guest("registrar", "registrar", "").unwrap());
    specs.push(plugins::guest("spin", "spin", "").unwrap());
    let app = embedded::host(&cluster, wire.client(), specs).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    for (index, behaviour) in ["", "crash", "oom", "finish", "fail", ""].into_iter().cycle().take(30).enumerate() {
        let workload = format!("cart-{}", index % 6);
        cluster
            .create(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": format!("{workload}-{index}"), "annotations": {BEHAVIOUR: behaviour},
                    "ownerReferences": [{
                        "apiVersion": embedded::UNSERVED, "kind": "ReplicaSet", "name": workload, "uid": workload,
                        "controller": true,
                    }],
                },
                "spec": {"containers": [{"name": "c", "image": "registry.example/c"}]},
            }))
            .unwrap();
    }
    for round in 0..3 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        cluster.faults().disconnect_watches();
        embedded::delete_pod(&cluster, &format!("cart-0-{}", round * 6)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    app.shutdown().await;
    let requests = cluster.requests().all().iter().map(|logged| format!("{logged:?}")).collect();
    let writes = wire.writes().iter().map(|sent| format!("{sent:?}")).collect();
    History { log: log.lines(), requests, writes }
}

fn simulated(seed: u64) -> History {
    let log = Log::default();
    let filter = EnvFilter::new("off,podium=trace");
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .without_time()
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let _logged = log_to(subscriber);
    runtime.block_on(history(seed, log))
}

#[test]
fn a_seed_repeats_its_runs_host_calls_and_requests() {
    let first = simulated(11);
    println!(
        "{} runs, {} host calls, {} requests, {} writes",
        first.runs(),
        first.host_calls(),
        first.requests.len(),
        first.writes.len()
    );
    assert!(first.runs() > 200, "{} runs are not much of a history", first.runs());
    assert!(first.host_calls() > 200, "{} host calls", first.host_calls());
    assert!(first.writes.len() > 50, "{} writes", first.writes.len());
    for _ in 0..2 {
        let again = simulated(11);
        same("log line", &first.log, &again.log);
        same("request", &first.requests, &again.requests);
        same("write", &first.writes, &again.writes);
    }
    assert_ne!(first.requests, simulated(12).requests, "the seed decides nothing, so the comparison shows nothing");
}

fn same(what: &str, first: &[String], again: &[String]) {
    let differs = first.iter().zip(again).position(|(one, other)| one != other);
    let pair = differs.map(|at| (at, &first[at], &again[at]));
    assert_eq!(pair, None, "{what} of {}, as it was and then", first.len());
    assert_eq!(first.len(), again.len(), "numbers of {what}s");
}
