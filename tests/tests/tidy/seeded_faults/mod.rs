//! Faults that are put into the code on purpose: each must turn a test red. They show that a rewriting of the code has
//! not taken the last test of a promise with it.
//!
//! `table` has the faults, each a piece of code and what it becomes. `runner` builds all of them into one copy of the
//! workspace, where a variable selects the one that is active, and runs the tests that have to find it. A fault whose
//! piece of code is gone has to be written again for the code that took its place.

mod runner;
mod table;

use std::{collections::BTreeSet, env, fs, path::Path};

use runner::{Found, workspace};
use table::{Fault, all};

#[test]
fn each_fault_is_of_one_place_that_exists() {
    let wrong = |fault: &&Fault| {
        let text = fs::read_to_string(workspace().join(fault.file)).unwrap_or_default();
        fault.parts().1 == fault.to || text.matches(&fault.code()).count() != 1
    };
    let faults = all();
    let wrong: Vec<_> = faults.iter().filter(wrong).map(|fault| (fault.file, fault.name)).collect();
    assert!(wrong.is_empty(), "pieces of code that are not in their file exactly once: {wrong:#?}");
    let names: BTreeSet<_> = faults.iter().map(|fault| fault.name).collect();
    assert_eq!(names.len(), faults.len(), "two faults have one name");
    let is_product = |fault: &Fault| ["host", "guest-sdk"].iter().any(|root| Path::new(fault.file).starts_with(root));
    assert!(faults.iter().all(is_product), "faults of the product");
}

#[tokio::test]
#[ignore = "builds the workspace again; `just test-seeded-faults` runs it"]
async fn each_fault_turns_a_test_red() {
    let part = env::var("PODIUM_SEEDED_FAULTS_IN").unwrap_or_default();
    let mut faults = all();
    faults.retain(|fault| fault.file.contains(&part));
    let results = runner::run(&faults).await.unwrap();
    let mut wrong = Vec::new();
    for (fault, found) in faults.iter().zip(results) {
        println!("{:10} {}", found.name(), fault.name);
        if (found == Found::No) != fault.survives.is_some() {
            wrong.push(fault.name);
        }
    }
    println!("{} faults", faults.len());
    assert!(wrong.is_empty(), "found although marked as surviving, or not found: {wrong:#?}");
}
