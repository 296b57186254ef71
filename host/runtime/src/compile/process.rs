//! The host's side of a compilation: starts the compiler's process, writes the component to it, reads a bounded answer,
//! and maps its exit status to a problem.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "starts the compiler's process, whose program comes from the application"
)]

use std::{
    ffi::OsString,
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::AsFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{self, Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use podium_vocabulary::{LimitClass, text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::Instant;

use super::{
    super::{LoadProblem, limits},
    Artifact, Room, child, code_bytes, memory_bytes,
    room::Share,
};

/// How often the elapsed time is checked while the pipes are silent.
const LOOK: Duration = Duration::from_millis(100);
/// How often a process that has closed its pipes is asked for its exit status.
const END_LOOK: Duration = Duration::from_millis(2);
/// A compilation that takes longer is logged.
const LONG: Duration = Duration::from_secs(2);
/// The most time on the clock, as a multiple of the class's processor time. The
/// process of a compilation that takes longer does not run, and is killed.
const WALL_FACTOR: u32 = 60;
/// The bytes of stderr that are stored; the rest is read and dropped.
const MAX_STDERR: usize = 4 << 10;
/// Bytes read or written at once.
const CHUNK: usize = 64 << 10;
/// The beginning of std's message about a failed allocation, before it aborts.
const NO_MEMORY: &str = "memory allocation of ";

/// The program that is started to compile, with the arguments before `--class`. It calls
/// [`compile_stdin`](super::compile_stdin).
#[derive(Debug, Clone)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// The process's name, as `ps` shows it.
    pub name: OsString,
    /// Its subcommand.
    pub arguments: Vec<OsString>,
    /// The memory that its processes may have together.
    pub room: Room,
}

impl Program {
    /// Compiles a component in its own process. `file` is for the log. Blocks for as long as the class permits.
    ///
    /// Does not check the component: it is compiled even if [`check`](super::super::check) would refuse it.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started, exceeds its limits, or refuses the component.
    pub fn compile(&self, class: LimitClass, wasm: &[u8], file: &Path) -> Result<Artifact, LoadProblem> {
        self.compile_within(limits::of_class(class).compile * WALL_FACTOR, class, wasm, file)
    }

    /// Compiles a component within a time on the clock.
    fn compile_within(
        &self,
        most: Duration,
        class: LimitClass,
        wasm: &[u8],
        file: &Path,
    ) -> Result<Artifact, LoadProblem> {
        let share = self.room.take(class)?;
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.arguments);
        command.args(["--class", class.name(), "--parent", &process::id().to_string()]);
        // Ctrl-C in a terminal is for the host.
        command.env_clear().current_dir("/").process_group(0);
        if share.is_short {
            command.args(["--memory-bytes", &share.bytes.to_string()]);
            // An arena of each thread would keep free memory to itself.
            command.env("MALLOC_ARENA_MAX", "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| LoadProblem::NoProcess(error.to_string()))?;
        let compilation = RunningCompilation {
            child: Ending(child),
            class,
            share,
            file,
            most,
            started: Instant::now(),
            logged: false,
        };
        compilation.run(wasm)
    }
}

/// A process that does not outlive its owner.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // Neither fails for a child that has not been waited for. After that, both do nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A compilation in a child process.
struct RunningCompilation<'a> {
    child: Ending,
    class: LimitClass,
    share: Share<'a>,
    file: &'a Path,
    /// The most time on the clock.
    most: Duration,
    started: Instant,
    logged: bool,
}

impl RunningCompilation<'_> {
    fn run(mut self, wasm: &[u8]) -> Result<Artifact, LoadProblem> {
        let (code, stderr) = self.exchange(wasm)?;
        let status = self.end()?;
        if status.success() {
            return Ok(Artifact::compiled(code));
        }
        Err(problem(status, &stderr, self.class, &self.share))
    }

    /// Writes the component and reads until the process has closed both of its pipes.
    fn exchange(&mut self, wasm: &[u8]) -> Result<(Vec<u8>, Vec<u8>), LoadProblem> {
        let no_pipes = || LoadProblem::NoProcess("it has no pipes".to_owned());
        let child = &mut self.child.0;
        let mut stdin = child.stdin.take();
        let mut stdout = Some(child.stdout.take().ok_or_else(no_pipes)?);
        let mut stderr = Some(child.stderr.take().ok_or_else(no_pipes)?);
        let pipes =
            [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), stderr.as_ref().map(AsFd::as_fd)];
        for pipe in pipes.into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true).map_err(|error| LoadProblem::NoProcess(error.to_string()))?;
        }
        let mut rest = wasm;
        let mut code = Vec::new();
        let mut message = Vec::new();
        while stdout.is_some() || stderr.is_some() {
            self.wait([
                stdin.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)),
                stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)),
                stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)),
            ])?;
            if stdin.as_mut().is_some_and(|pipe| is_written(pipe, &mut rest)) {
                stdin = None;
            }
            let mut over = false;
            let limit = code_bytes(self.class);
            if stdout.as_mut().is_some_and(|pipe| {
                is_read(pipe, |bytes| {
                    over |= code.len() + bytes.len() > limit;
                    if !over {
                        code.extend_from_slice(bytes);
                    }
                })
            }) {
                stdout = None;
            }
            if over {
                return Err(LoadProblem::CodeTooLarge { limit });
            }
            let keep = |bytes: &[u8]| {
                let room = MAX_STDERR - message.len();
                message.extend_from_slice(&bytes[..bytes.len().min(room)]);
            };
            if stderr.as_mut().is_some_and(|pipe| is_read(pipe, keep)) {
                stderr = None;
            }
        }
        Ok((code, message))
    }

    /// Waits until a pipe is ready or a moment has passed.
    fn wait(&mut self, pipes: [Option<PollFd<'_>>; 3]) -> Result<(), LoadProblem> {
        let mut pipes: Vec<_> = pipes.into_iter().flatten().collect();
        pause(&mut pipes, LOOK);
        self.look()
    }

    /// Logs a slow compilation, and fails for a stopped one.
    fn look(&mut self) -> Result<(), LoadProblem> {
        let waited = self.started.elapsed();
        if waited > LONG && !self.logged {
            self.logged = true;
            let limit_seconds = limits::of_class(self.class).compile.as_secs();
            tracing::info!(file = %text::path(self.file), limit_seconds, "still compiling after {} s", LONG.as_secs());
        }
        if waited > self.most { Err(LoadProblem::Stalled { waited: self.most }) } else { Ok(()) }
    }

    fn end(&mut self) -> Result<ExitStatus, LoadProblem> {
        loop {
            match self.child.0.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => pause(&mut [], END_LOOK),
                Err(error) => return Err(LoadProblem::NoProcess(error.to_string())),
            }
            self.look()?;
        }
    }
}

/// Waits until a pipe is ready or the time is over. An error, such as an interruption by a signal, ends the pause
/// early.
fn pause(pipes: &mut [PollFd<'_>], time: Duration) {
    let _ = poll(pipes, Timespec::try_from(time).ok().as_ref());
}

/// Writes as much as the pipe accepts. Returns true when everything is written, or the process no longer reads; its
/// exit status then has the reason.
fn is_written(pipe: &mut impl Write, rest: &mut &[u8]) -> bool {
    while !rest.is_empty() {
        match pipe.write(&rest[..rest.len().min(CHUNK)]) {
            Ok(written) => *rest = &rest[written..],
            Err(error) => return !is_passing(&error),
        }
    }
    true
}

/// Reads from the pipe once. Returns true when it is closed.
fn is_read(pipe: &mut impl Read, mut take: impl FnMut(&[u8])) -> bool {
    let mut bytes = [0; CHUNK];
    match pipe.read(&mut bytes) {
        Ok(0) => true,
        Ok(read) => {
            take(&bytes[..read]);
            false
        }
        Err(error) => !is_passing(&error),
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Returns the problem behind an exit status.
fn problem(status: ExitStatus, stderr: &[u8], class: LimitClass, share: &Share<'_>) -> LoadProblem {
    let message = String::from_utf8_lossy(stderr);
    let message = message.trim_end();
    let too_much = match share.is_short {
        true => LoadProblem::TooLittleMemory { left: share.bytes, class },
        false => LoadProblem::TooMuchMemory { limit: memory_bytes(class) },
    };
    match (status.signal(), status.code()) {
        (Some(libc::SIGXCPU), _) => LoadProblem::TooSlow { limit: limits::of_class(class).compile },
        (Some(libc::SIGABRT), _) if message.contains(NO_MEMORY) => too_much,
        (_, Some(code)) if code == i32::from(child::NO_MEMORY) => too_much,
        (Some(libc::SIGKILL), _) => LoadProblem::Killed,
        (_, Some(code)) if code == i32::from(child::REFUSED) => LoadProblem::Compile(message.to_owned()),
        (_, Some(code)) if code == i32::from(child::UNPREPARED) => LoadProblem::NoProcess(message.to_owned()),
        _ if message.is_empty() => LoadProblem::Compile(format!("the compiler's process ended with {status}")),
        _ => LoadProblem::Compile(format!("the compiler's process ended with {status}: {message}")),
    }
}

#[cfg(test)]
mod tests;
