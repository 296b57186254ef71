//! Spins in its allocator, and so in `cabi_realloc`: before the function that the host calls has begun.

use std::alloc::{GlobalAlloc, Layout};

use bindings::{Failure, Outcome, Request};

struct Spin;

// SAFETY: it never returns memory.
unsafe impl GlobalAlloc for Spin {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        loop {
            std::hint::black_box(());
        }
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Spin = Spin;

bindings::guest!(reconcile);

fn reconcile(_: Request) -> Result<Outcome, Failure> {
    Ok(Outcome::Settled)
}
