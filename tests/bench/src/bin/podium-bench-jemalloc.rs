//! The benchmark program with jemalloc, for the subjects that are tuned; only built with the feature of that name.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    podium_bench::commands::main()
}
