//! Cost of a run on one thread: `cargo bench -p podium-tests --bench runtime`.
//!
//! Every run has a fresh sandbox, whose cost is included: without calls, with one read and one label, and with a
//! hundred reads. The difference of the last two, divided by a hundred, is the cost of a call in an existing sandbox.

#![expect(clippy::unwrap_used, reason = "a panic is how a bench fails")]

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use podium_engine::ports::Reconcile;
use podium_pods::model::PluginSpec;
use podium_tests::sandbox::{FakeWorld, engine, load, probe, request, spec};

fn runs(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let engine = engine();
    let mut bench = |name: &str, mut spec: PluginSpec| {
        spec.limits.cpu = Duration::from_secs(1);
        spec.limits.log_bytes = 1 << 20;
        let plugin = load(&engine, &spec).unwrap();
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let report = runtime.block_on(plugin.reconcile(request(), Box::new(FakeWorld::default())));
                assert!(black_box(report).result.is_ok());
            });
        });
    };
    bench("fresh sandbox, nothing done", probe(&[]));
    bench("fresh sandbox, one read and one label", spec("good"));
    bench("fresh sandbox, a hundred reads", probe(&["get shop cart-0"; 100]));
}

criterion_group!(benches, runs);
criterion_main!(benches);
