//! Cost of determining which plugins a change concerns, by the number of plugins: `cargo bench -p podium-tests
//! --bench wake`.
//!
//! Each plugin watches all sections of the Pods of one application; the change concerns one plugin. Plugins of other
//! applications should cost nothing.

#![expect(clippy::unwrap_used, reason = "a panic is how a bench fails")]

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use podium_engine::wake::Wake;
use podium_pods::{
    pod::{CachedPod, Change},
    testing,
};
use podium_vocabulary::{PluginSpec, WatchSpec};
use podium_wire::{Pod, SectionSet};

fn plugin(app: usize) -> PluginSpec {
    let selector = testing::selector("app", &format!("app-{app}"));
    let watch = WatchSpec { selector, sections: SectionSet::ALL, ..WatchSpec::default() };
    PluginSpec { watch, ..testing::plugin(None, &format!("plugin-{app}")) }
}

fn state(phase: &str) -> Arc<CachedPod> {
    let mut pod = Pod::default();
    (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), "cart-0".into(), "u1".into());
    pod.header.resource_version = "1".into();
    pod.labels.insert("app".into(), "app-0".into());
    pod.labels.insert("team".into(), "shop".into());
    pod.status.phase = phase.into();
    Arc::new(CachedPod::new(&pod).unwrap())
}

fn concerned(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("whom a change concerns, by plugins");
    let change = Change::between(Some(state("Pending")), Some(state("Running"))).unwrap();
    for plugins in [1, 10, 100, 1_000] {
        let specs: Vec<_> = (0..plugins).map(plugin).collect();
        let wake = Wake::new(specs.iter().enumerate());
        assert_eq!(wake.concerned(&change).pods, [0]);
        group.bench_with_input(BenchmarkId::from_parameter(plugins), &wake, |bencher, wake| {
            bencher.iter(|| wake.concerned(black_box(&change)));
        });
    }
}

criterion_group!(benches, concerned);
criterion_main!(benches);
