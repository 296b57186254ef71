//! `podium`: parses, calls the library, and turns the result into an exit code.

use std::process::ExitCode;

use clap::Parser;
use podium_cli::args::Arguments;

fn main() -> ExitCode {
    match podium_cli::run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            podium_cli::ui::error(&error);
            ExitCode::FAILURE
        }
    }
}
