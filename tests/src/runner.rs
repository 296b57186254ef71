//! The runners of scripts, each built by its recipe at the first use in a process.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::{Error, Result, ensure};
use podium_cli::{build::Options, runners};
use podium_vocabulary::Language;
use tempfile::TempDir;

use crate::{
    guests,
    process::{in_ci, workspace_dir},
};

/// Returns the component of the runner; `None` without clang, or without componentize-py.
///
/// # Errors
/// Returns an error if it does not build, and in CI also where it cannot be built.
pub fn component(language: Language) -> Result<Option<PathBuf>> {
    let (component, missing) = match language {
        Language::JavaScript => (javascript()?, "no clang compiles for wasm32, see docs/scripts.md"),
        Language::Python => (python()?, "there is no componentize-py, see CONTRIBUTING.md"),
    };
    if component.is_none() {
        ensure!(!in_ci(), "{missing}; in CI no suite is skipped");
        // Directly, because libtest hides the output of a passing test.
        let _ = writeln!(io::stderr(), "podium-tests: SKIPPED: {missing}");
    }
    Ok(component)
}

fn javascript() -> Result<Option<PathBuf>> {
    if !runners::compiles_c() {
        return Ok(None);
    }
    let mut options = Options::new(workspace_dir().join("guest-sdk/javascript"));
    // Beside the guests, so that it neither waits for a build of the host nor delays one.
    options.target_dir = Some(workspace_dir().join("target/guests"));
    guests::build_once(options).map(Some)
}

/// Builds at most once in this process, also if it fails; several processes build each in a directory of its own.
fn python() -> Result<Option<PathBuf>> {
    static BUILT: OnceLock<Result<Option<PathBuf>, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| runners::python().map_err(|error| format!("{error:#}")));
    built.clone().map_err(Error::msg)
}

/// Returns a directory with the runners for the script that builds the image.
///
/// # Errors
/// See [`install`].
pub fn for_image() -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    install(directory.path(), &Language::ALL)?;
    Ok(directory)
}

/// Writes all runners that can be built into a directory as `--runners` has it, and returns their languages.
///
/// # Errors
/// See [`component`]. Also returns an error if the directory cannot be written.
pub fn install(directory: &Path, languages: &[Language]) -> Result<Vec<Language>> {
    let mut installed = Vec::new();
    for language in languages {
        if let Some(component) = component(*language)? {
            fs::copy(component, directory.join(format!("{}.wasm", language.runner())))?;
            installed.push(*language);
        }
    }
    Ok(installed)
}
