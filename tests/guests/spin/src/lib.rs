//! Never returns.

use bindings::{Failure, Outcome, Request, writes};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let _staged_and_never_sent = writes::set_label(&request.key, "guests.example/seen", "yes");
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
