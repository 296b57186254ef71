//! The commands of `podium`, as a library for its tests and the harness.
//!
//! Exit codes: 0 done, 1 failed, 2 called wrongly. Output that a program may read is on stdout, everything else on
//! stderr.

pub mod args;
pub mod build;
pub mod check;
mod cluster;
mod compilation;
pub mod demo;
mod deploy;
pub mod dev;
pub mod hostile;
pub mod inspect;
pub mod new;
mod offline;
mod plugin;
mod profile;
mod publish;
mod replicas;
mod run;
mod run_report;
pub mod runners;
mod runs;
mod script;
mod suggestion;
mod test;
mod top;
pub mod ui;
mod uninstall;

use std::process::ExitCode;

use clap::CommandFactory;

use args::{Arguments, Command, Document, Output};

/// Does what the arguments ask for, at `now_millis` since the epoch. With `--output json` an error is printed to stdout
/// as well, as JSON.
///
/// # Errors
/// Returns an error if the command failed; the error is for the person at the terminal.
pub fn run(arguments: Arguments, now_millis: u64) -> anyhow::Result<ExitCode> {
    let output = arguments.command.output();
    let is_of_files = matches!(arguments.command, Command::Run(_) | Command::Test(_));
    let done = execute(arguments.command, now_millis);
    if let (Output::Json, Err(error)) = (output, &done) {
        ui::print(&format!("{}\n", ui::error_json(error)))?;
    }
    // Their exit code 1 is that of a run or a case that failed.
    if let (true, Err(error)) = (is_of_files, &done) {
        ui::error(error);
        return Ok(ExitCode::from(2));
    }
    done
}

fn execute(command: Command, now_millis: u64) -> anyhow::Result<ExitCode> {
    match command {
        Command::Build(arguments) => build::command::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Deploy(arguments) => deploy::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::New(arguments) => new::run(&arguments),
        Command::Schema { document } => {
            ui::print(&match document {
                Document::Plugin => format!("{:#}\n", podium_config::plugin_schema()),
                Document::Case => format!("{:#}\n", podium_config::case_schema()),
                Document::Policy => format!("{:#}\n", podium_config::policy_schema()),
                Document::Crds => ui::yaml_documents(&podium_config::definitions())?,
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Push(arguments) => ui::block_on(publish::push::run(&arguments)),
        Command::Pull(arguments) => ui::block_on(publish::pull::run(&arguments)),
        Command::Uninstall(arguments) => ui::block_on(uninstall::run(&arguments)),
        Command::Runs(arguments) => ui::block_on(runs::runs(&arguments)),
        Command::Profile(arguments) => ui::block_on(profile::run(&arguments)),
        Command::Top(arguments) => ui::block_on(top::run(arguments)),
        Command::Why(arguments) => ui::block_on(runs::why(&arguments)),
        Command::Run(arguments) => run::run(&arguments, now_millis),
        Command::Test(arguments) => test::run(&arguments),
        Command::Dev(arguments) => ui::block_on(dev::run(arguments, now_millis)),
        Command::Demo(arguments) => ui::block_on(demo::run(arguments, now_millis)),
        Command::Compile(arguments) => Ok(arguments.run()),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "podium", &mut script);
            ui::print(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
