//! Environment variables that cargo sets for the programs it runs, and that must not reach a nested cargo.

use std::process::Command;

/// Variables that describe the package that an outer `cargo run` or `cargo test` runs. Build scripts of the inner build
/// would see them change and run again.
const PACKAGE: [&str; 6] =
    ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"];
const PACKAGE_PREFIXES: [&str; 4] = ["CARGO_PKG_", "CARGO_BIN_", "CARGO_CFG_", "CARGO_FEATURE_"];

/// Variables with compiler settings for the machine's own architecture.
const SETTINGS: [&str; 6] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_RUSTFLAGS",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
];
const SETTINGS_PREFIXES: [&str; 1] = ["CARGO_PROFILE_"];

/// Removes from `command` the variables about an outer cargo's package. Settings such as `RUSTFLAGS` stay, so that
/// the inner build equals the user's own `cargo build`.
pub fn forget_package(command: &mut Command) {
    remove(command, &PACKAGE, &PACKAGE_PREFIXES);
}

/// Removes from `command` the flags, target and profile settings of an outer build, which are for another
/// architecture than a plugin's.
pub fn forget_build_settings(command: &mut Command) {
    remove(command, &SETTINGS, &SETTINGS_PREFIXES);
}

fn remove(command: &mut Command, names: &[&str], prefixes: &[&str]) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if names.contains(&&*text) || prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
}
