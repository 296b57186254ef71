//! Runs the inputs that fuzzing found, and a few of each kind: tests/fuzz/regressions has a folder for each target. The
//! targets of the sandbox run random changes of these as well.
//!
//! PODIUM_FUZZ_RUNS makes it more, and PODIUM_FUZZ_SEED other ones; `just test-fuzz`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use podium_tests::fuzz::{TARGETS, explore::explore, seeds};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions")
}

/// Returns the entries of a folder by name.
fn entries(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn replay(name: &str) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let inputs = entries(&folder().join(name));
    assert!(!inputs.is_empty(), "nothing is kept of {name}");
    for input in inputs {
        // A panic below does not name its input.
        println!("{}", input.display());
        target(&fs::read(&input).unwrap());
    }
    for seed in seeds::for_target(name, &[]).unwrap() {
        target(&seed);
    }
}

/// Replays the kept inputs, and tries a number of random ones.
fn explored(name: &str, usual: u64) {
    replay(name);
    let number = |variable: &str, usual| env::var(variable).map_or(usual, |asked| asked.parse().unwrap());
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).unwrap();
    let show = env::var_os("PODIUM_FUZZ_SHOW").is_some();
    let seeds = seeds::for_target(name, &[]).unwrap();
    explore(*target, &seeds, number("PODIUM_FUZZ_RUNS", usual), number("PODIUM_FUZZ_SEED", 1), show);
}

#[test]
fn host_calls_with_arbitrary_core_values_hold() {
    explored("abi", 2_000);
}

#[test]
fn host_calls_with_arbitrary_arguments_hold() {
    explored("calls", 1_000);
}

#[test]
fn mutated_components_hold() {
    explored("components", 300);
}

#[test]
fn every_regression_folder_belongs_to_a_target() {
    let names = |folders: BTreeSet<PathBuf>| -> Vec<String> {
        folders.iter().map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
    };
    let known: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(entries(&folder())), known);
    assert_eq!(names(entries(&folder().join("../targets"))), known);
}

#[test]
fn frames_hold() {
    replay("frames");
}

#[test]
fn journals_hold() {
    replay("journal");
}

#[test]
fn pods_hold() {
    replay("pods");
}

#[test]
fn queries_hold() {
    replay("queries");
}

#[test]
fn records_hold() {
    replay("records");
}

#[test]
fn selectors_hold() {
    replay("selectors");
}
