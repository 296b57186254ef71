//! The benchmark program with the system's allocator.

use std::process::ExitCode;

fn main() -> ExitCode {
    podium_bench::commands::main()
}
