//! Calls itself until the stack is full.

use bindings::{Failure, Outcome, Request};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    // Never reached, and the compiler cannot know.
    let bottom = request.now_millis << 16;
    let sum = if request.config.contains("own") { deeper_in_memory(1, bottom) } else { deeper_on_the_stack(1, bottom) };
    if sum == 0 { Ok(Outcome::Stop) } else { Ok(Outcome::Settled) }
}

/// Each frame has an array that must have an address, so it lies in the guest's memory.
#[inline(never)]
fn deeper_in_memory(depth: u64, bottom: u64) -> u64 {
    let frame = std::hint::black_box([depth; 16]);
    if depth == bottom { frame[5] } else { deeper_in_memory(frame[3] + 1, bottom) + frame[7] }
}

/// Each frame has a number or two, which the engine keeps on its own stack.
#[inline(never)]
fn deeper_on_the_stack(depth: u64, bottom: u64) -> u64 {
    if depth == bottom { depth } else { (deeper_on_the_stack(depth + 1, bottom) ^ depth).rotate_left(3) }
}
