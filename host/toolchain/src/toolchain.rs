//! The toolchain of the rustc in one directory.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{Error, Install};

/// Waits before the second and later attempts. rustup retries single downloads by itself; these waits are for a
/// network or proxy that is unavailable for several seconds.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// The toolchain that compiles the crates of one directory. rustup selects it by `RUSTUP_TOOLCHAIN`, which its
/// proxies set for the programs they run, or else by the directory's `rust-toolchain.toml`.
#[derive(Debug, Clone)]
pub struct Toolchain {
    directory: PathBuf,
    /// The value of `RUSTUP_TOOLCHAIN`.
    name: Option<String>,
    rustc: OsString,
    rustup: OsString,
    pauses: Vec<Duration>,
}

/// The location of a target's standard library.
struct Location {
    sysroot: PathBuf,
    /// `None` if rustc does not know the target.
    libraries: Option<PathBuf>,
}

impl Toolchain {
    /// Returns the toolchain of a directory, with the `rustc` and `rustup` of the PATH. `name` is the value of
    /// `RUSTUP_TOOLCHAIN`.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>, name: Option<String>) -> Self {
        let rustc = "rustc".into();
        let rustup = "rustup".into();
        Self { directory: directory.into(), name, rustc, rustup, pauses: PAUSES.into() }
    }

    /// Uses another rustc, such as the one that cargo names to a build script.
    #[must_use]
    pub fn with_rustc(self, rustc: impl Into<OsString>) -> Self {
        Self { rustc: rustc.into(), ..self }
    }

    /// Returns the command with which a user would install a target.
    #[must_use]
    pub fn command(&self, triple: &str) -> String {
        format!("rustup {}", self.arguments(triple).join(" "))
    }

    /// Returns true if there is a rustup on the PATH.
    ///
    /// # Errors
    /// Returns an error if it exists and cannot be started.
    pub fn has_rustup(&self) -> Result<bool, Error> {
        match self.run(&self.rustup, &["--version".to_owned()]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::Rustup(error)),
        }
    }

    /// Returns the directory of a target's standard library, and whether it is installed there, or `None` if rustc
    /// does not know the target.
    ///
    /// # Errors
    /// Returns an error if there is no rustc.
    pub fn libraries(&self, triple: &str) -> Result<Option<(PathBuf, bool)>, Error> {
        let libraries = self.locate(triple)?.libraries;
        Ok(libraries.map(|libraries| {
            let installed = has_standard_library(&libraries);
            (libraries, installed)
        }))
    }

    /// Returns when the target is installed. Installs a missing one with `rustup target add`, and passes one line
    /// about it to `report` first. Of several processes one installs and the others wait.
    ///
    /// # Errors
    /// Returns an error with the command to run if the target is missing and cannot or must not be installed.
    pub fn require(&self, triple: &str, install: Install, report: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let location = self.locate(triple)?;
        // While another process installs the target, its directory exists and is incomplete.
        let shared = lock(&location.sysroot, File::lock_shared);
        if location.has_standard_library() {
            return Ok(());
        }
        drop(shared);
        let triple_text = triple.to_owned();
        let command = self.command(triple);
        if install == Install::Never {
            return Err(Error::Forbidden { triple: triple_text, command });
        }
        let _exclusive = lock(&location.sysroot, File::lock);
        if self.locate(triple)?.has_standard_library() {
            return Ok(());
        }
        self.install(triple, report)?;
        if self.locate(triple)?.has_standard_library() {
            Ok(())
        } else {
            Err(Error::OtherToolchain { triple: triple_text, sysroot: location.sysroot })
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the build waits for the network, and nothing else is under way")]
    fn install(&self, triple: &str, report: &mut dyn FnMut(&str)) -> Result<(), Error> {
        let triple_text = triple.to_owned();
        let command = self.command(triple);
        if !self.has_rustup()? {
            return Err(Error::NoRustup { triple: triple_text, command });
        }
        report(&format!("installing the compilation target {triple}, once: {command}"));
        let attempts = self.pauses.len() + 1;
        let mut pauses = self.pauses.iter();
        loop {
            let output = self.run(&self.rustup, &self.arguments(triple)).map_err(Error::Rustup)?;
            if output.status.success() {
                return Ok(());
            }
            let output = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            let Some(pause) = pauses.next() else {
                return Err(Error::Failed { triple: triple_text, command, attempts, output });
            };
            let cause = output.lines().find(|line| line.starts_with("error")).unwrap_or("no error was printed");
            report(&format!("{command} failed ({cause}); next attempt in {} s", pause.as_secs()));
            thread::sleep(*pause);
        }
    }

    fn arguments(&self, triple: &str) -> Vec<String> {
        let mut arguments = vec!["target".to_owned(), "add".to_owned(), triple.to_owned()];
        if let Some(name) = &self.name {
            arguments.extend(["--toolchain".to_owned(), name.clone()]);
        }
        arguments
    }

    fn locate(&self, triple: &str) -> Result<Location, Error> {
        let print = |what: &str, more: &[&str]| {
            let arguments: Vec<_> = ["--print", what].iter().chain(more).map(|&text| text.to_owned()).collect();
            let output = self.run(&self.rustc, &arguments).map_err(Error::NoRustc)?;
            let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
            Ok((output.status.success() && !path.as_os_str().is_empty()).then_some(path))
        };
        let libraries = print("target-libdir", &["--target", triple])?;
        // `<sysroot>/lib/rustlib/<triple>/lib`; if rustc does not know the target, it is asked for the sysroot.
        let sysroot = match libraries.as_deref().and_then(|libraries| libraries.ancestors().nth(4)) {
            Some(sysroot) => sysroot.to_owned(),
            None => print("sysroot", &[])?.unwrap_or_default(),
        };
        Ok(Location { sysroot, libraries })
    }

    fn run(&self, program: &OsString, arguments: &[String]) -> io::Result<std::process::Output> {
        Command::new(program).args(arguments).current_dir(&self.directory).stdin(Stdio::null()).output()
    }
}

impl Location {
    fn has_standard_library(&self) -> bool {
        self.libraries.as_deref().is_some_and(has_standard_library)
    }
}

/// Returns true if the directory contains the library. rustup may leave the directory of a target that it removed.
fn has_standard_library(libraries: &Path) -> bool {
    let is_standard_library = |name: OsString| name.to_string_lossy().starts_with("libstd-");
    fs::read_dir(libraries).is_ok_and(|entries| entries.flatten().any(|entry| is_standard_library(entry.file_name())))
}

/// Locks the toolchain against other processes of Podium, until the file is dropped. On a file system without locks two
/// processes may run rustup at the same time; the one that fails tries again after a pause.
fn lock(sysroot: &Path, lock: fn(&File) -> io::Result<()>) -> Option<File> {
    let directory = File::open(sysroot).ok()?;
    lock(&directory).ok()?;
    Some(directory)
}

#[cfg(test)]
mod tests;
