//! Compilation: one at a time, on its own threads, limited by the processor time of these threads. A host that gets
//! little processor time compiles slowly and refuses nothing.
//!
//! The compiler cannot be interrupted. A compilation beyond its limit continues on its threads without a waiter; the
//! next compilation waits for its end, so that there are never two.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rayon::{ThreadPool, ThreadPoolBuilder};
use wasmtime::component::Component;

use super::LoadProblem;

/// Threads that compile functions of one component. Each holds what its function takes.
const MAX_THREADS: usize = 4;
/// How often the time spent is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a compilation waits for one that was left to finish.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets one compilation at a time begin.
#[derive(Debug, Clone, Default)]
pub(super) struct Compiler(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    busy: Mutex<bool>,
    ended: Condvar,
}

impl Compiler {
    /// Compiles a component that [`validate`](super::validate) let through.
    ///
    /// # Errors
    /// When the compiler refuses it, or takes more than `limit` of processor time.
    pub(super) fn compile(
        &self,
        engine: &wasmtime::Engine,
        wasm: &[u8],
        limit: Duration,
    ) -> Result<Component, LoadProblem> {
        let (engine, wasm) = (engine.clone(), wasm.to_vec());
        let compiled = self.within(limit, PATIENCE, move || Component::new(&engine, &wasm))?;
        compiled.map_err(|error| LoadProblem::Compile(format!("{error:#}")))
    }

    /// Does work in a pool of threads. `limit` is of their time on the processor, `patience` for the turn.
    fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        patience: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LoadProblem> {
        let turn = self.turn(patience)?;
        let clocks = Arc::<Clocks>::default();
        let pool = pool(&clocks)?;
        let (done, result) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("podium-compile".into())
            .spawn(move || {
                let worked = pool.install(work);
                drop((pool, turn));
                // The receiver may have given up.
                let _ = done.send(worked);
            })
            .map_err(|error| LoadProblem::NoThread(error.to_string()))?;
        let mut waited = Duration::ZERO;
        loop {
            match result.recv_timeout(LOOK) {
                Ok(worked) => return Ok(worked),
                Err(mpsc::RecvTimeoutError::Timeout) => waited += LOOK,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(LoadProblem::Compile("the compiler panicked".to_owned()));
                }
            }
            if clocks.spent(waited) > limit {
                return Err(LoadProblem::TooSlow { limit });
            }
        }
    }

    fn turn(&self, patience: Duration) -> Result<Turn, LoadProblem> {
        let mut busy = self.0.busy.lock();
        if self.0.ended.wait_while_for(&mut busy, |busy| *busy, patience).timed_out() {
            return Err(LoadProblem::Busy { waited: patience });
        }
        *busy = true;
        drop(busy);
        Ok(Turn(self.0.clone()))
    }
}

/// Held by a compilation until its last thread has ended its work.
struct Turn(Arc<Shared>);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.busy.lock() = false;
        self.0.ended.notify_one();
    }
}

fn pool(clocks: &Arc<Clocks>) -> Result<ThreadPool, LoadProblem> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let clocks = clocks.clone();
    let builder = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|at| format!("podium-compile-{at}"))
        .start_handler(move |_| clocks.add_this_thread());
    builder.build().map_err(|error| LoadProblem::NoThread(error.to_string()))
}

/// The processor clocks of the threads of a pool.
#[derive(Debug, Default)]
struct Clocks(Mutex<Vec<Clock>>);

impl Clocks {
    fn add_this_thread(&self) {
        self.0.lock().extend(Clock::of_this_thread());
    }

    /// Processor time of all threads. Where the system has no clock for a thread, the time that passed stands for it.
    fn spent(&self, waited: Duration) -> Duration {
        let clocks = self.0.lock();
        if clocks.is_empty() {
            return waited;
        }
        clocks.iter().map(Clock::read).sum()
    }
}

#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy)]
struct Clock(libc::clockid_t);

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "rustix has no clock of another thread")]
impl Clock {
    fn of_this_thread() -> Option<Self> {
        let mut clock = 0;
        // SAFETY: the thread that is asked about is this one, which lives; the result is written to a local variable.
        let failed = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        (failed == 0).then_some(Self(clock))
    }

    /// Zero for a thread that has ended, which the kernel reports as an invalid clock.
    fn read(&self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: any number may be given for a clock; the result is written to a local variable.
        if unsafe { libc::clock_gettime(self.0, &raw mut time) } != 0 {
            return Duration::ZERO;
        }
        let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Duration::new(seconds.unwrap_or_default(), nanoseconds.unwrap_or_default())
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
struct Clock;

#[cfg(not(target_os = "linux"))]
impl Clock {
    fn of_this_thread() -> Option<Self> {
        None
    }

    fn read(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn time_in_which_the_compiler_is_kept_from_the_processor_does_not_count() {
        let (_held, never) = mpsc::channel::<()>();
        let limit = 2 * LOOK;
        // Off the processor for several times the limit.
        let work = move || never.recv_timeout(6 * limit).unwrap_err();
        assert_eq!(Compiler::default().within(limit, LONG, work).unwrap(), mpsc::RecvTimeoutError::Timeout);
    }

    #[test]
    fn processor_time_of_all_threads_counts_and_a_compilation_over_its_limit_keeps_its_turn_until_it_ends() {
        let (compiler, stop) = (Compiler::default(), Arc::new(AtomicBool::new(false)));
        let spin = |stop: &AtomicBool| {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let (one, other) = (stop.clone(), stop.clone());
        let work = move || rayon::join(|| spin(&one), || spin(&other));
        let refused = compiler.within(LOOK, LONG, work).unwrap_err();
        assert!(matches!(refused, LoadProblem::TooSlow { .. }), "{refused}");
        let refused = compiler.within(LOOK, LOOK, || ()).unwrap_err();
        assert!(matches!(refused, LoadProblem::Busy { .. }), "{refused}");
        stop.store(true, Ordering::Relaxed);
        compiler.within(LONG, LONG, || ()).unwrap();
    }
}
