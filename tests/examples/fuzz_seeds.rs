//! Writes the seeds of a fuzz target into a folder: `cargo run --example fuzz_seeds -- TARGET FOLDER`.
//!
//! The Pods are a small one in several states, and some of the benchmark's, which are large and realistic.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use podium_bench::generate::{Options, Population};
use podium_tests::fuzz::seeds;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(folder)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: fuzz_seeds TARGET FOLDER")
    };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    for (at, seed) in seeds::for_target(&target, &generated()?)?.into_iter().enumerate() {
        let path = folder.join(format!("seed-{at}"));
        fs::write(&path, seed).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns a Pod of each of a few workloads.
fn generated() -> Result<Vec<Vec<String>>> {
    const PODS: usize = 4;
    let population = Population::generate(&Options { pods: PODS, pods_per_workload: 2, ..Options::default() })?;
    Ok((0..PODS).map(|at| vec![population.json(at)]).collect())
}
