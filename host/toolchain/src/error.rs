//! Why a compilation target is not installed. Each message ends with the command to run.

use std::{fmt, io, path::PathBuf};

/// Why a target is missing and could not be installed.
#[derive(Debug)]
pub enum Error {
    /// rustc cannot be started.
    NoRustc(io::Error),
    /// The target is missing, and [`Install::Never`](crate::Install::Never) forbids its installation.
    Forbidden { triple: String, command: String },
    /// The target is missing, and there is no rustup to install it.
    NoRustup { triple: String, command: String },
    /// rustup cannot be started.
    Rustup(io::Error),
    /// rustup failed at every attempt.
    Failed { triple: String, command: String, attempts: usize, output: String },
    /// rustup installed the target, but into another toolchain than the one that compiles.
    OtherToolchain { triple: String, sysroot: PathBuf },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRustc(error) => {
                write!(formatter, "cannot run rustc ({error}): is Rust installed? see https://rustup.rs")
            }
            Self::Rustup(error) => write!(formatter, "cannot run rustup: {error}"),
            Self::Forbidden { triple, command } => write!(
                formatter,
                "the compilation target {triple} is not installed, and {} or {} says never to install one; run\n\n    \
                 {command}\n",
                crate::Install::FLAG,
                crate::Install::VARIABLE
            ),
            Self::NoRustup { triple, command } => write!(
                formatter,
                "the compilation target {triple} is not installed, and there is no rustup on the PATH to install it; \
                 get rustup from https://rustup.rs and run\n\n    {command}\n"
            ),
            Self::Failed { triple, command, attempts, output } => write!(
                formatter,
                "the compilation target {triple} is not installed, and rustup failed {attempts} times to install it:\n\
                \n{output}\n\nWhen the cause is mended, run\n\n    {command}\n"
            ),
            Self::OtherToolchain { triple, sysroot } => write!(
                formatter,
                "rustup installed the compilation target {triple}, but not for the rustc on the PATH, which is that of \
                 {}; put rustup's rustc first on the PATH and run\n\n    rustup target add {triple}\n",
                sysroot.display()
            ),
        }
    }
}

impl std::error::Error for Error {}
