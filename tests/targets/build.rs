//! Warns at the start of a build, and not minutes later, if a compilation target of plugins is missing. It installs
//! nothing: the tests install missing targets when they build their first plugin.

use std::{env, error::Error};

use podium_toolchain::{Install, Toolchain};

/// The tests build plugins for both.
const TARGETS: [&str; 2] = ["wasm32-unknown-unknown", "wasm32-wasip2"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={}", Install::VARIABLE);
    println!("cargo::rerun-if-env-changed=RUSTUP_TOOLCHAIN");
    let toolchain = Toolchain::new(".", env::var("RUSTUP_TOOLCHAIN").ok())
        .with_rustc(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let mut missing = Vec::new();
    for target in TARGETS {
        let Some((libraries, installed)) = toolchain.libraries(target)? else { continue };
        // While this directory is missing, cargo runs this script at every build.
        println!("cargo::rerun-if-changed={}", libraries.display());
        if !installed {
            missing.push(target);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let (targets, command) = (missing.join(" and "), toolchain.command(&missing.join(" ")));
    // The tests report an invalid value.
    let install = Install::from_variable(env::var(Install::VARIABLE).ok().as_deref()).unwrap_or_default();
    let next = if install == Install::Never {
        format!("tests that build plugins will fail; run `{command}`")
    } else if toolchain.has_rustup()? {
        format!("tests that build plugins run `{command}`, which needs a network")
    } else {
        format!("tests that build plugins will fail; get rustup from https://rustup.rs and run `{command}`")
    };
    println!("cargo::warning={targets} not installed: {next}");
    Ok(())
}
