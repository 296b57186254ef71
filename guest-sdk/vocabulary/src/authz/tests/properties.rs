//! `authorize` against the second writing of its rules in `reference`.

use std::{collections::HashMap, env, mem, thread};

use crate::{Refused, Write};

use super::{
    cases::{Asked, Case, Cases},
    reference::{self, Verdict},
};
use crate::authz::{ObjectRead, authorize};

/// The number of generated cases, which take some seconds without optimisation.
const CASES: u64 = 1_000_000;
const THREADS: u64 = 2;
/// Cases of one seed, so that a difference is found again soon.
const OF_A_SEED: u64 = 1_000;

fn by_the_host(case: Case) -> Verdict {
    let verdict = match case.asked {
        Asked::Write(action) => authorize(&case.scope, &case.grants, Write { id: 0, action }).err(),
        Asked::Event(event) => authorize(&case.scope, &case.grants, event).err(),
        Asked::Read(object) => authorize(&case.scope, &case.grants, ObjectRead(object)).err(),
    };
    match verdict {
        None => Verdict::Allowed,
        Some(Refused::NotGranted) => Verdict::NotGranted,
        Some(Refused::Invalid(_)) => Verdict::Invalid,
        Some(other) => panic!("authorize never answers {other:?}"),
    }
}

fn by_the_reference(case: &Case) -> Verdict {
    match &case.asked {
        Asked::Write(action) => reference::write(&case.scope, &case.grants, action),
        Asked::Event(event) => reference::event(&case.scope, &case.grants, event),
        Asked::Read(object) => reference::read(&case.scope, &case.grants, object),
    }
}

/// PODIUM_AUTHZ_CASES makes it more; `just test-authz`.
#[test]
fn authorize_agrees_with_an_independent_writing_of_the_rules() {
    let cases: u64 = env::var("PODIUM_AUTHZ_CASES").map_or(CASES, |cases| cases.parse().unwrap());
    let seeds = cases.div_ceil(OF_A_SEED);
    let of_thread = |thread: u64| {
        let mut seen = HashMap::new();
        for seed in (thread..seeds).step_by(usize::try_from(THREADS).unwrap()) {
            let mut made = Cases::new(seed);
            for number in 0..OF_A_SEED {
                let case = made.next();
                let asked = mem::discriminant(&case.asked);
                let action = match &case.asked {
                    Asked::Write(action) => Some(mem::discriminant(action)),
                    Asked::Event(_) | Asked::Read(_) => None,
                };
                let expected = by_the_reference(&case);
                let verdict = by_the_host(case);
                if verdict != expected {
                    let mut again = Cases::new(seed);
                    let case = (0..=number).map(|_| again.next()).last().unwrap();
                    panic!("seed {seed}: {verdict:?} by the host, {expected:?} by the reference: {case:#?}");
                }
                *seen.entry((asked, action, verdict)).or_insert(0_u64) += 1;
            }
        }
        seen
    };
    let mut seen = HashMap::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        for thread in threads {
            for (what, count) in thread.join().unwrap() {
                *seen.entry(what).or_insert(0) += count;
            }
        }
    });
    // 13 actions, Events and reads of objects, each with all three verdicts, and none of them rare.
    assert_eq!(seen.len(), 15 * 3, "{seen:?}");
    assert!(seen.values().all(|count| *count > cases / 1_000), "{seen:?}");
}
