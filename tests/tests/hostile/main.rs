//! The hostile suite: components that attack the host, each named for its crime. A crime is a row of a table: the
//! component, its terms, and the end that it must have. Each row is judged twice. In the sandbox ([`cell`]) the cost of
//! the run, the memory of the host, a neighbour beside it and the memory of the next run are checked. In a whole host
//! ([`court`]) the record of the run and the writes of a neighbour are checked.
//!
//! Crimes that need the host calls are in one guest, `tests/guests/hostile`, whose configuration names the crime.
//! Crimes that no compiler writes are WebAssembly in text form. Components that are slow to compile have suites of
//! their own, `compile` and `compile_memory`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cell;
mod components;
mod configurations;
mod court;
mod crime;
mod guests;
mod modules;
mod texts;

use crime::Crime;

/// All crimes.
fn crimes() -> Vec<Crime> {
    [guests::crimes(), modules::crimes(), components::crimes()].into_iter().flatten().collect()
}

#[test]
fn there_are_more_than_sixty_crimes_and_no_two_have_one_name() {
    let mut names: Vec<_> = crimes().iter().map(|crime| crime.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(all >= 60, "{all}");
}
