//! Counts the allocated bytes while counting is on, so that the memory of a design is known exactly.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed},
};

struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static BYTES: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    if COUNTS.load(Relaxed) {
        BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call is forwarded to the system's allocator with the same arguments; counting allocates nothing.
#[expect(unsafe_code, reason = "an allocator is unsafe to implement")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's guarantees are those that the callee requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the pointer came from `alloc` above with this layout, and so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns the result of `make`, and the bytes that are still allocated after it.
pub(crate) fn measure<T>(make: impl FnOnce() -> T) -> (T, usize) {
    BYTES.store(0, Relaxed);
    COUNTS.store(true, Relaxed);
    let made = make();
    COUNTS.store(false, Relaxed);
    (made, usize::try_from(BYTES.load(Relaxed)).unwrap_or_default())
}
