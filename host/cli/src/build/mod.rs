//! From a crate to a component: cargo builds the core module, wit-component encodes it, and the component's imports
//! are read function by function, because this list is exactly what the plugin can do.
//!
//! The host's own check of imports against grants decides whether a plugin may do so; [`command`] calls it.

mod cargo;
pub mod command;
mod component;

use std::path::PathBuf;

use anyhow::Context;
use serde::Serialize;

pub use component::Import;
pub(crate) use component::shown;
pub use podium_toolchain::Install;

/// The options of a build.
#[derive(Debug, Clone)]
pub struct Options {
    /// The crate's directory, or its `Cargo.toml`.
    pub path: PathBuf,
    /// Cargo's output directory; `None` for the target directory of the crate's workspace.
    pub target_dir: Option<PathBuf>,
    pub target: Target,
    /// Whether a missing compilation target is installed.
    pub install: Install,
    /// Whether cargo prints nothing unless it fails.
    pub quiet: bool,
}

impl Options {
    /// Returns options with the default target, which is installed if it is missing, the workspace's target
    /// directory, and cargo's own progress.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let target = Target::default();
        let install = Install::default();
        Self { path: path.into(), target_dir: None, target, install, quiet: false }
    }
}

/// The compilation target of a plugin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// A core module without any system interface, which is encoded as a component here.
    #[default]
    #[value(name = "wasm32-unknown-unknown")]
    UnknownUnknown,
    /// The linker makes the component; it imports WASI interfaces such as io and cli.
    #[value(name = "wasm32-wasip2")]
    Wasip2,
}

impl Target {
    /// Returns the name of the target in rustc and rustup.
    #[must_use]
    pub fn triple(self) -> &'static str {
        match self {
            Self::UnknownUnknown => "wasm32-unknown-unknown",
            Self::Wasip2 => "wasm32-wasip2",
        }
    }
}

/// A component that was written and validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Built {
    /// The package's name.
    pub name: String,
    /// `<target directory>/podium/<library's name>.wasm`, as in `podium/pod_ttl.wasm` for the package `pod-ttl`.
    pub component: PathBuf,
    /// The component's size.
    pub bytes: u64,
    /// Imports in the order of their interfaces' names. Interfaces with only types are left out.
    pub imports: Vec<Import>,
    /// Names of the exported interfaces and functions. That a plugin exports a reconciler is not checked here.
    pub exports: Vec<String>,
}

impl Built {
    /// Returns true if the component exports one of the contract's two reconcilers, so that it can run for Pods.
    #[must_use]
    pub fn is_plugin(&self) -> bool {
        self.exports.iter().any(|name| {
            name.starts_with("podium:reconcile/reconciler@") || name.starts_with("podium:reconcile/reconciler-json@")
        })
    }
}

/// Builds one crate and waits for it.
///
/// # Errors
/// Returns an error with a remedy: no crate, no `cdylib`, a target that is not installed, cargo's own errors, or a
/// module that is not a valid component.
pub fn build(options: &Options) -> anyhow::Result<Built> {
    build_with(options, &mut |_| {})
}

/// Builds like [`build`], and reports the name of each crate that cargo has completed.
///
/// # Errors
/// See [`build`].
pub fn build_with(options: &Options, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Built> {
    let package = cargo::package(&options.path)?;
    cargo::require_target(&package, options.target, options.install)?;
    let target_dir = match &options.target_dir {
        Some(directory) => std::path::absolute(directory)?,
        None => package.target_directory.clone(),
    };
    let module = cargo::compile(&package, options, &target_dir, progress)?;
    let bytes = std::fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let component =
        component::encode(&bytes).with_context(|| format!("cannot convert {} to a component", module.display()))?;
    let interface = podium_runtime::inspect(&component)?;

    let directory = target_dir.join("podium");
    let file = module.file_name().context("cargo reported no file")?;
    let path = directory.join(file);
    write_whole(&path, &component).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Built {
        name: package.name,
        component: path,
        bytes: component.len() as u64,
        imports: shown(interface.imports),
        exports: interface.exports,
    })
}

/// Returns cargo's target directory for this crate if no other one is set.
///
/// # Errors
/// Returns an error if there is no crate that could become a component.
pub fn target_directory(path: &std::path::Path) -> anyhow::Result<PathBuf> {
    Ok(cargo::package(path)?.target_directory)
}

/// Writes a file and renames it, so that a host that reads it meanwhile sees the old component or the new one.
pub(crate) fn write_whole(path: &std::path::Path, bytes: &[u8]) -> anyhow::Result<()> {
    let directory = path.parent().context("a file has a directory")?;
    std::fs::create_dir_all(directory)?;
    // The usual mode of a compiler's output: a temporary file is only readable by its owner, and so would be every
    // copy.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(directory)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.persist(path)?;
    Ok(())
}
