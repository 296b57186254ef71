//! The compiler's process: reads a component from stdin, and writes its machine code to stdout.
//!
//! Before it reads the first byte it has closed all other descriptors, built its engine, started its threads and locked
//! itself in ([`jail`](super::jail)). The component is not checked here; the host has checked it.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the compiler's own process: its input, its threads and its open files"
)]

use std::{
    fs,
    io::{self, Read, Write},
    process::ExitCode,
    thread,
};

use podium_vocabulary::LimitClass;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{
    super::{engine, limits},
    jail,
};

/// Exit code when the compiler refuses the component, with the reason on stderr.
pub(super) const REFUSED: u8 = 3;
/// Exit code when the process could not be prepared or locked in; no byte was read.
pub(super) const UNPREPARED: u8 = 4;
/// Exit code when the compiler reports that memory cannot be allocated.
pub(super) const NO_MEMORY: u8 = 5;
/// Threads that compile functions of one component. Each has the memory of the function that it compiles.
const MAX_THREADS: usize = 4;

/// Compiles the component on stdin under the limits of its class, and writes the machine code to stdout. The process
/// does nothing else: the caller has started no threads, and returns the exit code from `main`.
///
/// `parent` is the process id of the host. The process ends when the host does. `memory_bytes` is less memory than the
/// class permits.
#[must_use]
pub fn compile_stdin(class: LimitClass, parent: u32, memory_bytes: Option<u64>) -> ExitCode {
    match compile(class, parent, memory_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, reason)) => {
            // Without a reader there is no host that could use the reason.
            let _ = writeln!(io::stderr(), "{reason}");
            ExitCode::from(code)
        }
    }
}

fn compile(class: LimitClass, parent: u32, data_bytes: Option<u64>) -> Result<(), (u8, String)> {
    let unprepared = |error: String| (UNPREPARED, error);
    close_inherited().map_err(|error| unprepared(format!("descriptors cannot be closed: {error}")))?;
    end_with(parent).map_err(unprepared)?;
    die_by_sigxcpu();
    // Where memory is short, the kernel should end this process and not the host. Not every system lets it.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let engine = wasmtime::Engine::new(&engine::compiler_config()).map_err(|error| unprepared(format!("{error:#}")))?;
    let threads = threads(data_bytes.is_some()).map_err(unprepared)?;
    let limits = limits::of_class(class);
    let bounds = jail::Bounds { cpu: limits.compile, memory_bytes: super::memory_bytes(class), data_bytes };
    jail::enter(bounds).map_err(unprepared)?;

    let refused = |error: io::Error| (REFUSED, error.to_string());
    let mut wasm = Vec::new();
    io::stdin().take(limits.component_bytes as u64).read_to_end(&mut wasm).map_err(refused)?;
    let code = threads.install(|| engine.precompile_component(&wasm)).map_err(|error| {
        let code = if error.is::<wasmtime::error::OutOfMemory>() { NO_MEMORY } else { REFUSED };
        (code, format!("{error:#}"))
    })?;
    io::stdout().write_all(&code).and_then(|()| io::stdout().flush()).map_err(refused)
}

/// Starts the threads, and waits until each of them runs. Where memory is short there is one.
fn threads(is_short: bool) -> Result<ThreadPool, String> {
    let most = if is_short { 1 } else { MAX_THREADS };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(most);
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|at| format!("podium-compile-{at}"));
    let threads = builder.build().map_err(|error| error.to_string())?;
    threads.broadcast(|_| ());
    Ok(threads)
}

/// The first descriptor after stdin, stdout and stderr.
const FIRST_OTHER: i32 = 3;

/// Closes every descriptor except stdin, stdout and stderr. The host's own are closed at `exec`; those that the host
/// inherited from its parent are not, and the limit of open files does not apply to open ones.
#[expect(unsafe_code, reason = "std closes only what it owns")]
fn close_inherited() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: nothing in this process owns one of these descriptors: `main` has started no thread, and has opened
        // nothing. The call takes three integers.
        if unsafe { libc::syscall(libc::SYS_close_range, FIRST_OTHER, u32::MAX, 0) } == 0 {
            return Ok(());
        }
    }
    // Other systems and Linux before 5.9 do not have this call. The entries include the descriptor of the directory
    // itself, which is closed after the listing.
    let entries = fs::read_dir("/dev/fd")?.collect::<io::Result<Vec<_>>>()?;
    let open = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for descriptor in open.filter(|descriptor| *descriptor >= FIRST_OTHER) {
        // SAFETY: as above. For the descriptor of the directory, which is closed already, the call only fails.
        unsafe { libc::close(descriptor) };
    }
    Ok(())
}

/// Makes the kernel end this process when its parent ends.
#[cfg(target_os = "linux")]
fn end_with(parent: u32) -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| error.to_string())?;
    // The parent may have ended before the call.
    let is_parent = rustix::process::getppid()
        .is_some_and(|pid| u32::try_from(rustix::process::Pid::as_raw(Some(pid))) == Ok(parent));
    if is_parent {
        Ok(())
    } else {
        Err(format!("process {parent} is not the parent: only the host starts this command"))
    }
}

/// Elsewhere its limit of processor time ends it, or writing to the closed pipe.
#[cfg(not(target_os = "linux"))]
fn end_with(_parent: u32) -> Result<(), String> {
    Ok(())
}

/// Restores the default action of SIGXCPU, because this process inherits an ignored signal from the host. The host
/// recognises by this signal that the processor time was used up.
#[expect(unsafe_code, reason = "std and rustix cannot reset a signal's action")]
fn die_by_sigxcpu() {
    // SAFETY: restores the default action; no handler is installed, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGXCPU, libc::SIG_DFL) };
}
