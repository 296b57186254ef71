//! Requests per second of plugins and tenants, at the API server.

use std::time::Duration;

use podium_devcluster::{Cluster, Logged, Options, Verb};
use podium_tests::{embedded, plugins, sandbox, wait::until, wire::Wire};
use podium_vocabulary::{LimitClass, PluginSpec, RequestRates};
use serde_json::json;

/// The number of Pods, so large that the loop breaker, which permits 10 values a minute to each field, is not the
/// bound.
const FLOODED: usize = 60;
const GOOD: u32 = 20;
/// Good Pods before the flood.
const BEFORE: u32 = 5;
/// A run uses two writes, two live reads and an Event, so that its writes are the bound.
const RATES: RequestRates = RequestRates { writes: 5, live_reads: 6, events: 4 };
const FOR: Duration = Duration::from_secs(60);

/// A plugin of its own tenant that patches each Pod at every run, reads it live, emits an Event and runs again.
fn flooding() -> PluginSpec {
    let more = "  watch: { selector: { matchLabels: { app: flooded } } }";
    let mut spec = plugins::guest("probe", "flood", more).unwrap();
    // Each commit changes the Pod; the writes that are staged for the end of the run change nothing.
    let script = "live default cart-0\nlabel guests.example/a x\ncommit\nunlabel guests.example/a\ncommit\n\
                  live default cart-0\nevent Probed\nlabel guests.example/b y\nunlabel guests.example/b\nrequeue 100";
    spec.limits.class = LimitClass::Interpreter;
    spec.limits.requests = RATES;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    spec
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_patches_is_bounded_and_delays_no_other_tenant() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    for index in 0..FLOODED {
        embedded::create_pod(&cluster, &format!("cart-{index}"), "flooded").unwrap();
    }
    let good =
        plugins::guest("registrar", "registrar", "  watch: { selector: { matchLabels: { app: good } } }").unwrap();
    let (flood, good_id) = (flooding(), good.id.clone());
    let flood_id = flood.id.clone();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![good]).await.unwrap();
    let (flooding, behaving) = (app.status().plugin(&flood_id), app.status().plugin(&good_id));
    let mut flood = Some(flood);
    let (mut begin, mut alone) = (0, 0);
    // The first ones without the flood.
    for index in 0..BEFORE + GOOD {
        if index == BEFORE {
            begin = cluster.now_millis();
            app.load(flood.take().unwrap()).await.unwrap();
        }
        tokio::time::sleep(FOR / GOOD).await;
        let before = cluster.now_millis();
        embedded::create_pod(&cluster, &format!("good-{index}"), "good").unwrap();
        until("the good plugin's label", Duration::from_secs(1), async || {
            let applied = behaving.writes_applied();
            anyhow::ensure!(applied > u64::from(index), "{applied} labels");
            Ok(())
        })
        .await
        .unwrap();
        let took = cluster.now_millis() - before;
        match index < BEFORE {
            true => alone = took.max(alone),
            false => assert!(10 * took <= 11 * alone, "{took} ms for the good plugin's write, {alone} ms before"),
        }
    }
    let seconds = u64::try_from(cluster.now_millis() - begin).unwrap().div_ceil(1_000);
    let logged = cluster.requests().all();
    let of_flood = |request: &&Logged| request.name.starts_with("cart-");
    let patches = logged.iter().filter(of_flood).filter(|request| request.code == 200 && request.is_write()).count();
    let reads = logged.iter().filter(of_flood).filter(|request| request.verb == Verb::Get).count();
    let budget = |rate: u32| u64::from(rate) * (10 + seconds);
    // A commit may be under way with the last token.
    let most = budget(RATES.writes) + 4;
    assert!((most / 2..=most).contains(&(patches as u64)), "{patches} patches, {most} permitted");
    assert!(reads as u64 <= budget(RATES.live_reads), "{reads} live reads");
    assert!(flooding.failures().is_empty(), "{:?}", flooding.last_failure());
    app.shutdown().await;
}

/// T11: a tenant pays for what its writes cause, except one run of each plugin of the cluster that watches its Pods.
#[tokio::test(start_paused = true)]
async fn a_write_of_one_tenant_causes_one_run_of_a_cluster_plugin() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    for index in 0..FLOODED {
        embedded::create_pod(&cluster, &format!("cart-{index}"), "flooded").unwrap();
    }
    let watching = plugins::guest("registrar", "registrar", "  watch: { sections: [labels] }").unwrap();
    let (flood, watcher) = (flooding(), watching.id.clone());
    let flood_id = flood.id.clone();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![watching, flood]).await.unwrap();
    let (flooding, watching) = (app.status().plugin(&flood_id), app.status().plugin(&watcher));
    tokio::time::sleep(FOR).await;
    let (writes, runs) = (flooding.writes_applied(), watching.runs());
    println!("{writes} writes of the one caused {runs} runs of the other");
    assert!(writes >= 100, "{writes} writes");
    // A first run on each Pod, one after its own write at most, and those after the writes of the other.
    assert!(runs <= 2 * FLOODED as u64 + writes, "{runs} runs after {writes} writes");
    app.shutdown().await;
}
