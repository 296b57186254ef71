//! Cost of determining which plugins a change concerns, by the number of plugins: `cargo bench -p podium-tests
//! --bench wake`.
//!
//! Each plugin watches all sections of the Pods of one application; the change concerns one plugin. Plugins of other
//! applications should cost nothing. Then 20 plugins that the change concerns all: each runs for the Pod, or for a
//! group of it (`watch.related`), of which there are three kinds.

#![expect(clippy::unwrap_used, reason = "a panic is how a bench fails")]

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use podium_engine::wake::Wake;
use podium_pods::{
    pod::{CachedPod, Change},
    testing,
};
use podium_vocabulary::{PluginSpec, Related, Relation, WatchSpec};
use podium_wire::{Owner, Pod, SectionSet};

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
    pod.labels.insert("pod-template-hash".into(), "5d9c7b8f".into());
    pod.spec.node_name = Some("node-0".into());
    let owner = Owner { kind: "ReplicaSet".into(), name: "cart-5d9c7b8f".into(), controller: true, ..Owner::default() };
    pod.owners.push(owner);
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
    let relations = [Relation::Workload, Relation::Node, Relation::Label("team".into())];
    for (name, related) in [("20 that run for the Pod", false), ("20 that run for a group", true)] {
        let specs = (0..20).map(|at| {
            let mut spec = plugin(0);
            let by = relations[at % relations.len()].clone();
            spec.watch.related = related.then_some(Related { by, debounce: Duration::from_secs(1) });
            spec
        });
        let specs: Vec<_> = specs.collect();
        let wake = Wake::new(specs.iter().enumerate());
        group.bench_with_input(BenchmarkId::from_parameter(name), &wake, |bencher, wake| {
            bencher.iter(|| wake.concerned(black_box(&change)));
        });
    }
}

criterion_group!(benches, concerned);
criterion_main!(benches);
