//! Time from a Pod's event to the applied write: `cargo bench -p podium-tests --bench event_to_write`.
//!
//! The whole host on the embedded cluster in one process, in real time: a Pod is created, its event arrives over the
//! watch, the plugin runs in a fresh sandbox and labels it, and the API server answers the patch. Criterion prints
//! the median with its interval; the host's own histogram, printed at the end, has the tail.

#![expect(clippy::unwrap_used, reason = "a panic is how a bench fails")]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use podium_devcluster::{Cluster, Options};
use podium_host::app::App;
use podium_pods::pod::PodView;
use podium_tests::{embedded, plugins};

fn latency(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (cluster, app, status) = runtime.block_on(async {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let client = kube::Client::new(cluster.service(), "default");
        let app = App::start(embedded::options(&cluster, client)).await.unwrap();
        let spec = plugins::guest("registrar", "registrar", "").unwrap();
        let status = app.status().plugin(&spec.id);
        app.load(spec).await.unwrap();
        embedded::at_rest(&cluster, &app).await.unwrap();
        (cluster, app, status)
    });
    let mut number = 0_u64;
    let mut once = async || {
        number += 1;
        let name = format!("cart-{number}");
        let mut reader = app.reader();
        #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
        let begun = Instant::now();
        let uid = embedded::create_pod(&cluster, &name, "cart").unwrap();
        // The response is in the cache before any other client sees the write.
        let labelled = |pod: &podium_pods::pod::CachedPod| pod.labels().unwrap().contains_key("guests.example/seen");
        reader.wait_for(|snapshot| snapshot.by_uid(&uid).is_some_and(|pod| labelled(&pod))).await.unwrap();
        let took = begun.elapsed();
        embedded::delete_pod(&cluster, &name).await.unwrap();
        took
    };
    criterion.bench_function("event to write, one Pod at a time", |bencher| {
        bencher.iter_custom(|times| {
            runtime.block_on(async {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    total += once().await;
                }
                total
            })
        });
    });
    runtime.block_on(app.shutdown());
    let quantile = |share| status.event_to_write.quantile(share);
    println!("the host's own figures: p50 {:?}, p99 {:?}", quantile(0.5), quantile(0.99));
}

criterion_group!(benches, latency);
criterion_main!(benches);
