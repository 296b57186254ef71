//! The signal that interrupts the process while it uses the processor. Its handler copies registers and the top of the
//! stack, and nothing else: it takes no lock and allocates nothing, so it cannot wait for the thread that it
//! interrupted. Unwinding and names come later, from the copies, on an ordinary thread.

#![expect(unsafe_code, reason = "signal handlers are unsafe to install, and read what they interrupted")]

use std::{
    cell::UnsafeCell,
    io,
    ptr::{self, null_mut},
    sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::SeqCst},
    thread,
};

use libc::{c_int, c_void, iovec, siginfo_t, ucontext_t};

/// The most bytes of a stack that are copied: dozens of frames of a release build.
const STACK_BYTES: usize = 64 << 10;
const PAGE_BYTES: usize = 4 << 10;
/// Copies that wait until they are read. 4 MiB, while a profile is taken.
const SLOTS: usize = 64;

/// The samples of the profile under way; null if there is none.
static RING: AtomicPtr<Ring> = AtomicPtr::new(null_mut());
/// Handlers under way, which may have read `RING`.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// Registers and stack of a thread at one moment.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) fp: u64,
    /// The link register of aarch64.
    pub(super) lr: u64,
    len: usize,
    stack: [u8; STACK_BYTES],
}

impl Sample {
    /// Returns the word of the stack at an address.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.sp)?).ok()?;
        let bytes = self.stack.get(..self.len)?.get(at..at.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    }
}

const FREE: u8 = 0;
const BUSY: u8 = 1;
const FULL: u8 = 2;

struct Slot {
    /// Whoever has set it to `BUSY` has the sample to itself.
    state: AtomicU8,
    sample: UnsafeCell<Sample>,
}

struct Ring {
    slots: Box<[Slot]>,
    next: AtomicUsize,
    dropped: AtomicU64,
}

// SAFETY: by `state` one thread at a time has the sample.
unsafe impl Sync for Slot {}

impl Slot {
    fn new(_: usize) -> Self {
        let sample = Sample { pc: 0, sp: 0, fp: 0, lr: 0, len: 0, stack: [0; STACK_BYTES] };
        Self { state: AtomicU8::new(FREE), sample: UnsafeCell::new(sample) }
    }

    /// Calls a function with the sample if the slot is in state `from`, and leaves it in state `to`.
    fn with(&self, from: u8, to: u8, act: impl FnOnce(&mut Sample)) -> bool {
        let taken = self.state.compare_exchange(from, BUSY, SeqCst, SeqCst).is_ok();
        if taken {
            // SAFETY: this thread has set the state to `BUSY`, so that no other one touches the sample.
            act(unsafe { &mut *self.sample.get() });
            self.state.store(to, SeqCst);
        }
        taken
    }
}

/// The signal is on while it lives.
#[must_use]
pub(super) struct Sampling(*mut Ring);

// SAFETY: the pointer is that of a `Box`, and `Ring` is `Sync`.
unsafe impl Send for Sampling {}
// SAFETY: as above.
unsafe impl Sync for Sampling {}

impl Sampling {
    /// Starts sampling this often in a second of processor time.
    ///
    /// # Errors
    /// Returns an error if the process is sampled already, or if the kernel refuses the signal.
    pub(super) fn start(hertz: u32) -> io::Result<Self> {
        let slots = (0..SLOTS).map(Slot::new).collect();
        let ring = Box::into_raw(Box::new(Ring { slots, next: AtomicUsize::new(0), dropped: AtomicU64::new(0) }));
        if RING.compare_exchange(null_mut(), ring, SeqCst, SeqCst).is_err() {
            // SAFETY: of the `Box` above, which was not published.
            drop(unsafe { Box::from_raw(ring) });
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let sampling = Self(ring);
        // The handler stays: without one, a signal that is still on its way would end the process.
        // SAFETY: zero is a valid action, and the handler does only what a signal handler may.
        let handled = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_signal;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(libc::SIGPROF, &raw const action, null_mut())
        };
        if handled != 0 || !set_timer(1_000_000 / i64::from(hertz.max(1))) {
            return Err(io::Error::last_os_error());
        }
        Ok(sampling)
    }

    /// Calls a function with each sample since the last call.
    pub(super) fn drain(&self, mut each: impl FnMut(&Sample)) {
        for slot in &self.ring().slots {
            slot.with(FULL, FREE, |sample| each(sample));
        }
    }

    /// Returns how many samples were lost because none of the copies was free.
    pub(super) fn dropped(&self) -> u64 {
        self.ring().dropped.load(SeqCst)
    }

    fn ring(&self) -> &Ring {
        // SAFETY: only `drop` frees it.
        unsafe { &*self.0 }
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        set_timer(0);
        RING.store(null_mut(), SeqCst);
        // A handler takes microseconds and waits for nothing.
        while HANDLERS.load(SeqCst) > 0 {
            thread::yield_now();
        }
        // SAFETY: of the `Box` in `start`. Each handler that has read the pointer has ended, later ones read null.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Sets the timer of the process's processor time to this interval; 0 stops it.
fn set_timer(micros: i64) -> bool {
    let interval = libc::timeval { tv_sec: micros / 1_000_000, tv_usec: micros % 1_000_000 };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: a valid timer, and none is returned.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, null_mut()) == 0 }
}

extern "C" fn on_signal(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: this thread's own. The interrupted code may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    HANDLERS.fetch_add(1, SeqCst);
    // SAFETY: who frees it has set the pointer to null before, and then waits for this handler.
    if let Some(ring) = unsafe { RING.load(SeqCst).as_ref() } {
        // SAFETY: the kernel passes a context to a handler with SA_SIGINFO.
        ring.record(unsafe { &*context.cast::<ucontext_t>() });
    }
    HANDLERS.fetch_sub(1, SeqCst);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

impl Ring {
    fn record(&self, context: &ucontext_t) {
        let at = self.next.fetch_add(1, SeqCst) % SLOTS;
        let is_free = self.slots.get(at).is_some_and(|slot| slot.with(FREE, FULL, |sample| sample.copy(context)));
        if !is_free {
            self.dropped.fetch_add(1, SeqCst);
        }
    }
}

impl Sample {
    fn copy(&mut self, context: &ucontext_t) {
        [self.pc, self.sp, self.fp, self.lr] = registers(context);
        let sp = usize::try_from(self.sp).unwrap_or_default();
        let to = iovec { iov_base: self.stack.as_mut_ptr().cast(), iov_len: STACK_BYTES };
        // In pages, because the kernel copies each part or none of it: above the stack nothing may be mapped.
        let mut from = [iovec { iov_base: null_mut(), iov_len: 0 }; STACK_BYTES / PAGE_BYTES];
        let mut address = sp;
        for part in &mut from {
            let len = PAGE_BYTES - address % PAGE_BYTES;
            *part = iovec { iov_base: ptr::without_provenance_mut(address), iov_len: len };
            address = address.saturating_add(len);
        }
        // SAFETY: the kernel checks each page that it reads, and writes into the buffer of this length only. Without
        // the right to this call the sample has one frame.
        let copied = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const to, 1, from.as_ptr(), from.len() as libc::c_ulong, 0)
        };
        self.len = usize::try_from(copied).unwrap_or_default();
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &ucontext_t) -> [u64; 4] {
    let of = |register: c_int| context.uc_mcontext.gregs[register as usize].cast_unsigned();
    [of(libc::REG_RIP), of(libc::REG_RSP), of(libc::REG_RBP), 0]
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &ucontext_t) -> [u64; 4] {
    let machine = &context.uc_mcontext;
    [machine.pc, machine.sp, machine.regs[29], machine.regs[30]]
}
