//! The runner of scripts in JavaScript, built by its recipe at the first use in a process.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use podium_cli::{build::Options, script};

use crate::{
    guests,
    process::{in_ci, workspace_dir},
};

/// Returns the component of the runner; `None` without clang.
///
/// # Errors
/// Returns an error if it does not build, and without clang in CI.
pub fn component() -> Result<Option<PathBuf>> {
    if !script::compiles_c() {
        ensure!(!in_ci(), "no clang, and in CI no suite is skipped");
        // Directly, because libtest hides the output of a passing test.
        let _ = writeln!(io::stderr(), "podium-tests: SKIPPED: no clang compiles for wasm32, see docs/scripts.md");
        return Ok(None);
    }
    let mut options = Options::new(workspace_dir().join("guest-sdk/javascript"));
    // Beside the guests, so that it neither waits for a build of the host nor delays one.
    options.target_dir = Some(workspace_dir().join("target/guests"));
    guests::build_once(options).map(Some)
}

/// Returns the runner for the script that builds the image.
///
/// # Errors
/// See [`component`].
pub fn for_image() -> Result<PathBuf> {
    Ok(component()?.unwrap_or_else(|| "none".into()))
}

/// Writes the runner into a directory as `--runners` has it. Returns false without clang.
///
/// # Errors
/// See [`component`]. Also returns an error if the directory cannot be written.
pub fn install(directory: &Path) -> Result<bool> {
    let Some(component) = component()? else { return Ok(false) };
    fs::copy(component, directory.join("javascript-1.wasm"))?;
    Ok(true)
}
