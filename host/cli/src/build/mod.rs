//! From a crate to a component: cargo builds the core module, wit-component wraps it, and what the component imports is
//! read back function by function, because that list is exactly what the plugin can do.
//!
//! Whether a plugin may do so is decided by the host's own check of imports against grants, which [`command`] asks.

mod cargo;
pub mod command;
mod component;

use std::path::PathBuf;

use anyhow::Context;
use podium_host::runtime;
use serde::Serialize;

pub use component::Import;
pub(crate) use component::shown;
pub use podium_toolchain::Install;

/// What to build, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The crate's directory, or its `Cargo.toml`.
    pub path: PathBuf,
    /// Where cargo puts what it makes; none: the target directory of the crate's workspace.
    pub target_dir: Option<PathBuf>,
    pub target: Target,
    /// Whether a target that the toolchain lacks is installed.
    pub install: Install,
    /// Cargo says nothing unless it fails.
    pub quiet: bool,
}

impl Options {
    /// The default target, installed where it is missing, into the workspace's target directory, with cargo's own
    /// progress.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (target, install) = (Target::default(), Install::default());
        Self { path: path.into(), target_dir: None, target, install, quiet: false }
    }
}

/// What cargo compiles a plugin for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// A core module without any system interface, made a component here.
    #[default]
    #[value(name = "wasm32-unknown-unknown")]
    UnknownUnknown,
    /// The linker makes the component; it imports WASI's io, cli and the like.
    #[value(name = "wasm32-wasip2")]
    Wasip2,
}

impl Target {
    /// As rustc and rustup name it.
    #[must_use]
    pub fn triple(self) -> &'static str {
        match self {
            Self::UnknownUnknown => "wasm32-unknown-unknown",
            Self::Wasip2 => "wasm32-wasip2",
        }
    }
}

/// A component, written and validated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Built {
    /// The package's name.
    pub name: String,
    /// `<target directory>/podium/<library's name>.wasm`, as in `podium/pod_ttl.wasm` for the package `pod-ttl`.
    pub component: PathBuf,
    /// The component's size.
    pub bytes: u64,
    /// By interface, in the order of their names. Interfaces with types alone are not among them.
    pub imports: Vec<Import>,
    /// Names of the interfaces and functions that it exports. A plugin exports a reconciler; this does not check it.
    pub exports: Vec<String>,
}

impl Built {
    /// Whether it can be run for Pods: it exports one of the contract's two reconcilers.
    #[must_use]
    pub fn is_plugin(&self) -> bool {
        self.exports.iter().any(|name| {
            name.starts_with("podium:reconcile/reconciler@") || name.starts_with("podium:reconcile/reconciler-json@")
        })
    }
}

/// Builds one crate, and waits for it.
///
/// # Errors
/// Each with what to do about it: no crate there, no `cdylib`, a target that is not installed, cargo's own complaints,
/// a module that does not become a component.
pub fn build(options: &Options) -> anyhow::Result<Built> {
    build_with(options, &mut |_| {})
}

/// Builds like [`build`], and reports the name of each crate that cargo has completed.
///
/// # Errors
/// As [`build`].
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
    let interface = runtime::inspect(&component)?;

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

/// Returns cargo's target directory of this crate, for a build without another setting.
///
/// # Errors
/// When there is no crate that could become a component.
pub fn target_directory(path: &std::path::Path) -> anyhow::Result<PathBuf> {
    Ok(cargo::package(path)?.target_directory)
}

/// Writes beside and renames, so that a host that reads the file meanwhile sees the old component or the new one.
fn write_whole(path: &std::path::Path, bytes: &[u8]) -> anyhow::Result<()> {
    let directory = path.parent().context("a file has a directory")?;
    std::fs::create_dir_all(directory)?;
    // As any file that a compiler writes: a temporary file would be for its owner only, and so would every copy of it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    let mut file = tempfile::Builder::new().permissions(mode).tempfile_in(directory)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.persist(path)?;
    Ok(())
}
