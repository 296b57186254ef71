//! Three functions, of which `hot` takes most of a run, which takes less than 100 us.

use std::hint::black_box;

use bindings::{Failure, Outcome, Request};

bindings::guest!(reconcile);

fn reconcile(_: Request) -> Result<Outcome, Failure> {
    black_box(cold(1_500) + hot(60_000) + warm(1_500));
    Ok(Outcome::Settled)
}

#[inline(never)]
fn hot(turns: u64) -> u64 {
    spun(turns)
}

#[inline(never)]
fn warm(turns: u64) -> u64 {
    spun(turns) ^ 1
}

#[inline(never)]
fn cold(turns: u64) -> u64 {
    spun(turns) ^ 2
}

#[inline(always)]
fn spun(turns: u64) -> u64 {
    (0..turns).fold(0, |sum, turn| black_box(sum ^ turn))
}
