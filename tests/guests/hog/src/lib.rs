//! Allocates memory until there is none.

use bindings::{Failure, Outcome, Request};

bindings::guest!(reconcile);

fn reconcile(_: Request) -> Result<Outcome, Failure> {
    let mut taken = Vec::new();
    loop {
        taken.push(std::hint::black_box(Vec::<u8>::with_capacity(1 << 20)));
    }
}
