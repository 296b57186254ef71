//! Simulations of many seeds, on all processors.

use std::{collections::BTreeMap, env, thread};

/// How often something has happened, by its name.
pub(super) type Counts = BTreeMap<&'static str, u64>;

/// Returns the number in a variable of the environment.
pub(super) fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Runs the simulations of the first seeds, and returns and prints the sum of what happened.
pub(super) fn run_all(seeds: u64, run: impl Fn(u64) -> Counts + Sync) -> Counts {
    let threads = thread::available_parallelism().unwrap();
    let part = |first: usize| (first as u64..seeds).step_by(threads.get()).flat_map(&run).collect::<Vec<_>>();
    let parts = thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..threads.get()).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect::<Vec<_>>()
    });
    let mut counts = Counts::new();
    for (name, count) in parts {
        *counts.entry(name).or_default() += count;
    }
    println!("{counts:#?}");
    counts
}
