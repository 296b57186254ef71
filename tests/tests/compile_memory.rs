//! The memory that hostile components take in the process that has them compiled. Its own suite, because the peak
//! of memory is the whole process's.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{fs, io::Write, path::Path};

use podium_runtime::{LoadProblem, Program, Room};
use podium_tests::{bombs::BOMBS, process::host_binary};
use podium_vocabulary::LimitClass;

/// A figure of this process in KiB.
fn memory(figure: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_component_that_takes_gigabytes_to_compile_is_refused() {
    let path = host_binary().unwrap().to_owned();
    let program =
        Program { path, name: "podium-host".into(), arguments: vec!["compile".into()], room: Room::default() };
    for (name, bomb) in BOMBS {
        let wasm = bomb();
        assert!(wasm.len() <= 8 << 20, "{name}: {} bytes", wasm.len());
        // From here on the peak is counted again.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = memory("VmRSS");
        let problem = match program.compile(LimitClass::Native, &wasm, Path::new("bomb.wasm")) {
            Ok(artifact) => panic!("{name}: compiled to {} bytes", artifact.code().len()),
            Err(problem) => problem,
        };
        let grown = memory("VmHWM").saturating_sub(before);
        // The test harness hides what a passing test prints.
        writeln!(std::io::stderr(), "{name}, {} bytes: {problem}; {grown} KiB", wasm.len()).unwrap();
        assert!(grown < 64 << 10, "{name}: {grown} KiB");
        assert!(!problem.is_passing(), "{name}: {problem}");
        assert!(!matches!(problem, LoadProblem::NoProcess(_)), "{name}: {problem}");
    }
}
