//! Where commands compile plugins and runners: in processes of this program, as `podium-host` does, with the code kept
//! in the user's cache directory.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use anyhow::Context;
use podium_host::app::compile::{own_program, user_cache};
use podium_runtime::Compilation;
use podium_vocabulary::text;

use crate::ui;

/// The most bytes of kept code: six versions of the runner of Python, or seventy of that of JavaScript.
const MAX_KEPT_BYTES: u64 = 256 << 20;

/// Returns how a command compiles. A cache directory that cannot be used is reported, and costs only time.
pub(crate) fn compilation() -> anyhow::Result<Compilation> {
    let program = own_program("podium").context("the program of podium, which compiles plugins, is not found")?;
    // Warnings about files that were changed, by commands that have no log of their own.
    let _ = ui::log("off,podium_runtime::compile=warn,podium_engine::private_file=warn");
    let cache = match directory(|name| std::env::var_os(name)) {
        Some(directory) => user_cache(&directory, MAX_KEPT_BYTES)
            .map_err(|error| format!("{} cannot be used: {error}", text::path(&directory))),
        None => Err("neither XDG_CACHE_HOME nor HOME names a directory".to_owned()),
    };
    let cache = cache
        .inspect_err(|error| ui::report(&format!("compiled code is not kept, so each command compiles again: {error}")))
        .ok();
    Ok(Compilation::Jailed { program, cache })
}

/// Returns the directory of compiled code in the user's cache directory. A relative path names none, as the XDG base
/// directory specification has it.
fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_home = Path::new(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" });
    let caches = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(of_home)));
    caches.map(|caches| caches.join("podium"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_that_of_the_environment() {
        let named = |cache: Option<&str>, home: Option<&str>| {
            let named = directory(|name| if name == "HOME" { home } else { cache }.map(OsString::from));
            named.map(|directory| directory.display().to_string())
        };
        assert_eq!(named(Some("/c"), Some("/h")).as_deref(), Some("/c/podium"));
        let of_home = named(None, Some("/h"));
        assert!(of_home.as_deref().is_some_and(|path| path.starts_with("/h/") && path.ends_with("/podium")));
        assert_eq!([named(Some("c"), Some("/h")), named(Some(""), Some("/h"))], [of_home.clone(), of_home]);
        assert_eq!([named(None, None), named(None, Some("h"))], [None, None]);
    }
}
