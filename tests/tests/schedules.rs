//! Runs `tests/schedules`: podium-pods and podium-engine under the model checkers loom and shuttle, in many orders of
//! their threads' steps. Each checker's build has its own target directory, because its flag reaches all crates.
//!
//! Runs a bounded number of orders; `PODIUM_SCHEDULES` increases it, see `tests/schedules/tests/common`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{env, io::Write, process::Command};

use podium_tests::process::{target_dir, workspace_dir};

fn run(checker: &str, suites: &[&str]) {
    // Written directly, because the test harness hides the output of a passing test.
    let line = format!("schedules: building and running {} under {checker}\n", suites.join(", "));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--quiet", "--locked", "--package", "podium-schedules", "--profile", "schedules"]);
    for suite in suites {
        cargo.args(["--test", suite]);
    }
    cargo.arg("--target-dir").arg(target_dir().unwrap().join("schedules").join(checker)).current_dir(workspace_dir());
    cargo.env("RUSTFLAGS", format!("--cfg podium_model=\"{checker}\""));
    // The variables of an outer cargo about this test's own package.
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    let output = cargo.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    assert!(!text(&output.stdout).contains("running 0 tests"), "{}", text(&output.stdout));
}

#[test]
fn cache_queue_encoding_and_tombstones_hold_in_many_orders() {
    run("shuttle", &["cache", "queue", "encoding", "tombstones"]);
}

#[test]
fn the_publish_path_holds_with_three_interruptions() {
    run("loom", &["publish"]);
}
