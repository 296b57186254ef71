//! Cargo as a child process: finding the package, checking the target, compiling. It knows nothing of components.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use podium_toolchain::{Install, Toolchain, forget_build_settings, forget_package};
use serde::Deserialize;

use super::{Options, Target};

/// A package in cargo's metadata.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) directory: PathBuf,
    pub(super) workspace_root: PathBuf,
    pub(super) target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
}

#[derive(Deserialize)]
struct MetadataTarget {
    crate_types: Vec<String>,
}

/// One line of cargo's `--message-format json`.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<MessageTarget>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct MessageTarget {
    name: String,
    crate_types: Vec<String>,
}

/// The compiler settings of a guest whose workspace has no profile `guest`: small, quick to compile to machine
/// code, and with the names of functions, for profiles and traps.
const PROFILE: [&str; 6] = [
    "profile.guest.inherits=\"release\"",
    "profile.guest.opt-level=\"s\"",
    "profile.guest.lto=true",
    "profile.guest.codegen-units=1",
    "profile.guest.panic=\"abort\"",
    "profile.guest.strip=\"debuginfo\"",
];

/// Finds the package of a directory or manifest, and checks that its crate type is `cdylib`.
pub(super) fn package(path: &Path) -> anyhow::Result<Package> {
    let manifest = if path.is_dir() { path.join("Cargo.toml") } else { path.to_owned() };
    if !manifest.is_file() {
        bail!("no crate at {}: Cargo.toml not found", path.display());
    }
    let manifest = manifest.canonicalize()?;
    let directory = manifest.parent().context("a file has a directory")?.to_owned();
    let output = command("cargo", &directory)
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(&manifest)
        .output()
        .context("cannot run cargo: is Rust installed? see https://rustup.rs")?;
    if !output.status.success() {
        bail!("cargo rejects {}:\n{}", manifest.display(), String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("cannot parse the output of cargo metadata")?;
    let Some(package) = metadata.packages.iter().find(|package| package.manifest_path == manifest) else {
        let names: Vec<_> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
        bail!("{} is a workspace, not a crate; pass the folder of one of: {}", path.display(), names.join(", "));
    };
    let makes_module = |target: &MetadataTarget| target.crate_types.iter().any(|kind| kind == "cdylib");
    if !package.targets.iter().any(makes_module) {
        bail!(
            "{} makes no WebAssembly module; add to {}:\n\n    [lib]\n    crate-type = [\"cdylib\", \"rlib\"]\n",
            package.name,
            manifest.display()
        );
    }
    Ok(Package {
        name: package.name.clone(),
        directory,
        workspace_root: metadata.workspace_root,
        target_directory: metadata.target_directory,
    })
}

/// Returns when the toolchain that compiles the package has the target, and installs a missing one if `install` allows
/// it. Without this check cargo compiles first and then names a missing crate `core`.
pub(super) fn require_target(package: &Package, target: Target, install: Install) -> anyhow::Result<()> {
    let toolchain = Toolchain::new(&package.directory, std::env::var("RUSTUP_TOOLCHAIN").ok());
    // Written directly, because the test harness captures printed output.
    let mut report = |line: &str| drop(writeln!(std::io::stderr(), "{line}"));
    Ok(toolchain.require(target.triple(), install, &mut report)?)
}

/// Runs cargo and returns the path of the module (for wasip2, the component) that it built.
pub(super) fn compile(
    package: &Package,
    options: &Options,
    target_dir: &Path,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<PathBuf> {
    let manifest = package.directory.join("Cargo.toml");
    let mut cargo = command("cargo", &package.directory);
    cargo
        .args(["build", "--lib", "--profile", "guest", "--message-format", "json-render-diagnostics"])
        .args(["--target", options.target.triple()])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(target_dir);
    if !has_guest_profile(&package.workspace_root) {
        for setting in PROFILE {
            cargo.args(["--config", setting]);
        }
    }
    cargo.stdout(Stdio::piped()).stderr(if options.quiet { Stdio::piped() } else { Stdio::inherit() });
    let mut child = cargo.spawn().context("cannot run cargo: is Rust installed? see https://rustup.rs")?;
    // Read concurrently with stdout: a full pipe of diagnostics would block cargo.
    let diagnostics = child.stderr.take().map(|mut stderr| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // Shows the bytes that could be read.
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let mut module = None;
    let stdout = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(stdout).lines() {
        // Build scripts and macros may print other lines, which are skipped.
        let Ok(message) = serde_json::from_str::<Message>(&line?) else { continue };
        let Some(target) = message.target.filter(|_| message.reason == "compiler-artifact") else { continue };
        progress(&target.name);
        if message.manifest_path.as_deref() == Some(&manifest) && target.crate_types.iter().any(|kind| kind == "cdylib")
        {
            module = message.filenames.into_iter().find(|file| file.extension().is_some_and(|end| end == "wasm"));
        }
    }
    let status = child.wait()?;
    let diagnostics = diagnostics.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if !status.success() {
        let shown = if options.quiet { format!(":\n{}", diagnostics.trim_end()) } else { String::new() };
        bail!("{} does not compile{shown}", package.name);
    }
    module.with_context(|| format!("cargo built {} and reported no WebAssembly module", package.name))
}

/// Returns true if the workspace has its own profile, which is then used.
fn has_guest_profile(workspace_root: &Path) -> bool {
    std::fs::read_to_string(workspace_root.join("Cargo.toml"))
        .is_ok_and(|manifest| manifest.lines().any(|line| line.trim() == "[profile.guest]"))
}

/// Returns a child process without the variables that an outer `cargo run` or `cargo test` sets for its own build:
/// flags and targets of the machine's own architecture break a guest, and package variables cause build scripts to
/// run again.
fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory);
    forget_package(&mut command);
    forget_build_settings(&mut command);
    command
}
