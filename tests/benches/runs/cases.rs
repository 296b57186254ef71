//! Runs of Podium's sandbox, each with a new instance, and with an instance that is reused.

use std::{sync::Arc, time::Duration};

use podium_engine::ports::Reconcile;
use podium_pods::{cache, pod::PodEvent, testing};
use podium_tests::{guests, modules::Module, sandbox::*};
use podium_vocabulary::PluginSpec;

use super::Case;

/// The import of `pods.get`: two texts, and where the result is written.
pub(super) const GET: &str = r#"(import "podium:reconcile/pods@0.1.0" "get" (func $get (param i32 i32 i32 i32 i32)))"#;
/// Two texts for it.
pub(super) const NAMES: &str = r#"(data (i32.const 2048) "shopcart-0")"#;

/// Reads a Pod so often, and forgets it.
pub(super) fn reads(times: u32) -> String {
    format!(
        "(local.set $end (i32.const {times}))
        (loop $again
            (global.set $heap (i32.const 4096))
            (call $get (i32.const 2048) (i32.const 4) (i32.const 2052) (i32.const 6) (i32.const 2064))
            (local.set $end (i32.sub (local.get $end) (i32.const 1)))
            (br_if $again (local.get $end)))"
    )
}

/// Without the request's memory the allocator of a reused instance would run out.
pub(super) const EMPTY: &str = "(global.set $heap (i32.const 4096))";

pub(super) fn reader(times: u32) -> Vec<u8> {
    let reads = reads(times);
    Module { imports: GET, fields: NAMES, reconcile: &reads, ..Module::default() }.component().unwrap()
}

pub(super) fn all() -> Vec<Case> {
    let empty = Module { reconcile: EMPTY, ..Module::default() }.component().unwrap();
    let good = guests::component("good").unwrap();
    let mut cases = Vec::new();
    for (kind, reuse) in [("fresh", 1), ("reused", 1_000)] {
        cases.push(case(format!("{kind}: nothing"), 1, reuse, &empty));
        cases.push(case(format!("{kind}: one read"), 1, reuse, &reader(1)));
        cases.push(case(format!("{kind}: a hundred reads"), 100, reuse, &reader(100)));
        cases.push(case(format!("{kind}: one read, one label, in Rust"), 1, reuse, &good));
    }
    cases
}

fn spec_of(reuse: u32) -> PluginSpec {
    let mut spec = spec("good");
    spec.limits.cpu = Duration::from_secs(1);
    spec.limits.reuse = reuse;
    spec
}

fn case(name: String, parts: u32, reuse: u32, component: &[u8]) -> Case {
    let plugin = engine().compile(&spec_of(reuse), component).unwrap();
    let request = request();
    let (mut writer, reader) = cache::new(1);
    let pods = (0..1_000).map(|at| testing::pod(&format!("cart-{at}"), &format!("u{at}"), at + 1, "web"));
    writer.apply(pods.map(|pod| PodEvent::applied(testing::cached(&pod))).collect()).publish();
    let snapshot = reader.snapshot();
    let run = move |runtime: &tokio::runtime::Runtime| {
        let mut world = FakeWorld::with_pods(Vec::new());
        world.snapshot = Some(Arc::clone(&snapshot));
        let report = runtime.block_on(plugin.reconcile(request.clone(), Box::new(world)));
        assert!(report.result.is_ok(), "{:?}", report.result);
    };
    Case { name, parts, run: Box::new(run) }
}
