//! Nothing of other tenants' Pods reaches a plugin, or anything that its tenant can see.
//!
//! Canaries are texts that only other tenants' objects contain: names, labels, annotations, environments, nodes,
//! owners, uids, images and messages. Plugins make random host calls, and log all that they read. [`runs`] and [`host`]
//! look for canaries in every output; they also compare each output, its order and the fuel used with those of the same
//! program in a cluster where the other tenants have other Pods, or none. [`probes`] asks for what exists elsewhere and
//! for what exists nowhere, and [`timing`] measures the time of both.
//!
//! PODIUM_TAINT_CASES makes it more; `just test-taint`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod host;
mod population;
mod probes;
mod runs;
mod sinks;
mod timing;

use std::{env, sync::Arc};

use podium_runtime::{Engine, EngineOptions, Plugin};
use podium_tests::{guests, sandbox};
use podium_vocabulary::{LimitClass, PluginSpec};

/// The beginning of every canary.
const CANARY: &str = "cnry";
/// The namespace of the plugin.
const OWN: &str = "shop";
const THREADS: u64 = 2;

/// Returns the number of cases: `usual`, or as many times more as PODIUM_TAINT_CASES is more than 1,000.
fn cases(usual: u64) -> u64 {
    let asked: u64 = env::var("PODIUM_TAINT_CASES").map_or(1_000, |cases| cases.parse().unwrap());
    (usual.saturating_mul(asked) / 1_000).max(1)
}

/// Runs `case` with each seed below the number of cases, on several threads.
fn on_threads(usual: u64, case: impl Fn(u64) + Sync) {
    let cases = cases(usual);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let case = &case;
            scope.spawn(move || (thread..cases).step_by(THREADS as usize).for_each(case));
        }
    });
}

/// An engine that reads no clock: fuel is exact.
fn engine() -> Arc<Engine> {
    let concurrent_runs = u32::try_from(THREADS).unwrap();
    Engine::new(EngineOptions { concurrent_runs, tick: None, ..EngineOptions::default() }).unwrap()
}

/// The guest `caller` with grants of everything within its namespace, and a log for all that it reads.
fn caller() -> PluginSpec {
    let mut spec = sandbox::spec("caller");
    spec.grants = sandbox::everything();
    spec.limits.class = LimitClass::Interpreter;
    spec.limits.log_bytes = 64 << 20;
    spec.limits.cpu = std::time::Duration::from_secs(1);
    spec.limits.wall = std::time::Duration::from_secs(3_600);
    spec
}

fn load(engine: &Engine, spec: &PluginSpec) -> Plugin {
    engine.compile(spec, &guests::component("caller").unwrap()).unwrap()
}
