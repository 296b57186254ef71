//! `podium`: parses the arguments, reads the clock, calls the library, and turns the result into an exit code.

use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Parser;
use podium_cli::args::Arguments;

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "main reads the wall clock, once")]
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_millis = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    match podium_cli::run(Arguments::parse(), now_millis) {
        Ok(code) => code,
        Err(error) => {
            podium_cli::ui::error(&error);
            ExitCode::FAILURE
        }
    }
}
