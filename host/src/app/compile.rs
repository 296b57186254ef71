//! The compiler's process as a subcommand of this program, the path of this program, and the cache of compiled code.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use podium_engine::private_file;
use podium_runtime::{Cache, Program, Room, compile_stdin};
use podium_vocabulary::{LimitClass, text};
use ring::rand::{SecureRandom, SystemRandom};

use super::memory_limit;

/// The name of the subcommand, in `podium-host` and in `podium`.
const SUBCOMMAND: &str = "compile";

/// Compile the component on stdin to machine code on stdout. The host starts this itself, once for each component, with
/// limits of processor time and memory and without files, network and processes; it is of no use in a shell.
#[derive(Debug, Args)]
#[command(name = SUBCOMMAND, hide = true)]
pub struct Compile {
    /// The class of limits
    #[arg(long, value_name = "CLASS", value_parser = class)]
    class: LimitClass,
    /// Process id of the host
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// Bytes of memory, where they are fewer than the class permits
    #[arg(long, value_name = "BYTES")]
    memory_bytes: Option<u64>,
}

impl Compile {
    /// Runs the subcommand. The caller must not have started any thread.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        compile_stdin(self.class, self.parent, self.memory_bytes)
    }
}

fn class(name: &str) -> Result<LimitClass, String> {
    let classes = [LimitClass::Native, LimitClass::Interpreter];
    let found = classes.into_iter().find(|class| class.name() == name);
    found.ok_or_else(|| format!("there are {}", classes.map(LimitClass::name).join(" and ")))
}

/// Returns the program of this process, which must have the subcommand [`Compile`]. `name` is its name in a list of
/// processes.
///
/// # Errors
/// Returns an error if the system does not report the path of the program.
pub fn own_program(name: &str) -> io::Result<Program> {
    Ok(Program {
        path: own_path()?,
        name: name.into(),
        arguments: vec![SUBCOMMAND.into()],
        room: Room::within(memory_limit::unused),
    })
}

/// Returns the directory `runners` beside this program, if it exists.
#[must_use]
pub fn own_runners() -> Option<PathBuf> {
    let directory = std::env::current_exe().ok()?.parent()?.join("runners");
    directory.is_dir().then_some(directory)
}

/// Returns a path to the running program, which stays right when an upgrade replaces the file.
#[cfg(target_os = "linux")]
fn own_path() -> io::Result<PathBuf> {
    let path = PathBuf::from("/proc/self/exe");
    path.read_link().map(|_| path)
}

#[cfg(not(target_os = "linux"))]
fn own_path() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Opens the cache of compiled code in a state directory. Logs a failure; the host then compiles all plugins at each
/// start.
pub(super) fn cache(state: &Path, now_millis: u64) -> Option<Arc<Cache>> {
    match Cache::open(state, random, now_millis) {
        Ok(cache) => Some(Arc::new(cache)),
        Err(error) => {
            let directory = text::path(state);
            tracing::warn!(directory, %error, "compiled code is not cached; each start compiles all plugins");
            None
        }
    }
}

/// Opens the cache of compiled code of one user's commands, of at most `max_bytes`. Makes the directory if it is not
/// there, and closes it to others. Several processes may use it.
///
/// # Errors
/// Those of the disk; and when the directory is a symbolic link or belongs to another user.
pub fn user_cache(directory: &Path, max_bytes: u64) -> io::Result<Arc<Cache>> {
    directory.parent().map_or(Ok(()), fs::create_dir_all)?;
    private_file::directory(directory)?;
    // No file is too old, because their bytes are bounded.
    let cache = Cache::open(directory, random, 0)?;
    Ok(Arc::new(cache.with_one_owner(max_bytes)))
}

fn random(key: &mut [u8]) -> io::Result<()> {
    SystemRandom::new().fill(key).map_err(|_| io::Error::other("the system has no random numbers"))
}
