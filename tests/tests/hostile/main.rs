//! The hostile suite: components that attack the host, each named for its attack. An attack is a row of a table: the
//! component, its terms, and the end that it must have. Each row is tested twice. In the sandbox ([`in_sandbox`]) the
//! cost of the run, the memory of the host, a neighbour beside it and the memory of the next run are checked. In a
//! whole host ([`in_host`]) the record of the run and the writes of a neighbour are checked. All rows beside each other
//! ([`many`]) are plugins of one tenant, or of each of five.
//!
//! Attacks that need the host calls are in one guest, `tests/guests/hostile`, whose configuration names the attack.
//! Attacks that no compiler writes are WebAssembly in text form. Components that are slow to compile have suites of
//! their own, `compile` and `compile_memory`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod attack;
mod components;
mod configurations;
mod guests;
mod in_host;
mod in_sandbox;
mod many;
mod modules;
mod texts;

use attack::Attack;

/// All attacks.
fn attacks() -> Vec<Attack> {
    [guests::attacks(), modules::attacks(), components::attacks()].into_iter().flatten().collect()
}

#[test]
fn there_are_more_than_sixty_attacks_and_no_two_have_one_name() {
    let mut names: Vec<_> = attacks().iter().map(|attack| attack.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(all >= 60, "{all}");
}
