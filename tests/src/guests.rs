//! The misbehaving guests of `tests/guests` as components: each is built on first use, into their own target
//! directory, one build at a time over all test processes. The first build installs a missing compilation target,
//! unless `PODIUM_INSTALL_TARGETS=never`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use anyhow::{Context, Error};
use podium_cli::build::{self, Install, Options, Target};

/// Returns the component of one guest, by the name of its crate.
///
/// # Errors
/// Returns an error if there is no such guest or it does not build.
pub fn component(name: &str) -> anyhow::Result<Arc<[u8]>> {
    static BUILT: OnceLock<Mutex<BTreeMap<String, Arc<[u8]>>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(component) = built.get(name) {
        return Ok(Arc::clone(component));
    }
    let path = path(name)?;
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let component: Arc<[u8]> = bytes.into();
    built.insert(name.to_owned(), Arc::clone(&component));
    Ok(component)
}

/// Builds one guest, and returns the path of its component.
///
/// # Errors
/// See [`component`].
pub fn path(name: &str) -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut options = Options::new(here.join("guests").join(name));
    options.target_dir = Some(here.join("../target/guests"));
    options.target = if name.starts_with("wasi") { Target::Wasip2 } else { Target::UnknownUnknown };
    build_once(options)
}

/// Builds a crate at its first use in this process, and returns the path of its component.
pub(crate) fn build_once(mut options: Options) -> anyhow::Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(component) = built.get(&options.path) {
        return Ok(component.clone());
    }
    let locks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/guests");
    std::fs::create_dir_all(&locks)?;
    // The kernel releases the lock when the file is closed.
    let lock = File::create(locks.join("podium.lock"))?;
    lock.lock()?;
    // Written directly, because the test harness hides the output of a passing test.
    writeln!(std::io::stderr(), "building {}", options.path.display())?;
    options.quiet = true;
    options.install = Install::from_variable(std::env::var(Install::VARIABLE).ok().as_deref()).map_err(Error::msg)?;
    let path = options.path.clone();
    let component = build::build(&options).with_context(|| format!("guest {}", path.display()))?.component;
    built.insert(path, component.clone());
    Ok(component)
}
