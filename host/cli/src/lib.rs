//! What `podium` does, as a library for its tests and the harness.
//!
//! Exit codes: 0 done, 1 failed, 2 called wrongly. What a program may read goes to stdout, all else to stderr.

pub mod args;
pub mod build;
mod cluster;
pub mod demo;
pub mod dev;
pub mod new;
mod plugin;
pub mod ui;

use std::process::ExitCode;

use clap::CommandFactory;

use args::{Arguments, Command};

/// Does what the arguments ask for, at `now_millis` since the epoch.
///
/// # Errors
/// What went wrong, in words for the person at the terminal.
pub fn run(arguments: Arguments, now_millis: u64) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Build(arguments) => build::command::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Dev(arguments) => ui::block_on(dev::run(arguments, now_millis)),
        Command::Demo(arguments) => ui::block_on(demo::run(arguments, now_millis)),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "podium", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}
