//! Finds the crates and scripts of `podium dev`'s paths.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use podium_vocabulary::Language;

use crate::script;

/// A plugin's crate, or the folder of its script.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Crate {
    /// An absolute path, so that a changed path can be compared with it.
    pub(super) directory: PathBuf,
}

impl Crate {
    /// Returns the path of the plugin's configuration, which may not exist.
    pub(super) fn config(&self) -> PathBuf {
        self.directory.join("plugin.yaml")
    }

    /// Returns the language of a script, which is not built.
    pub(super) fn script(&self) -> Option<Language> {
        script::language_in(&self.directory)
    }

    /// Returns true if the file belongs to the plugin, and is not written by cargo or an editor.
    pub(super) fn concerns(&self, changed: &Path) -> bool {
        let Ok(inside) = changed.strip_prefix(&self.directory) else { return false };
        inside.starts_with("src")
            || ["Cargo.toml", "plugin.yaml", "build.rs"].iter().any(|file| inside == Path::new(file))
            || Language::ALL.iter().any(|language| inside == Path::new(language.file()))
    }
}

/// Returns the crates. A folder with a package is a crate; any other folder is searched for crates.
pub(super) fn find(paths: &[PathBuf]) -> anyhow::Result<Vec<Crate>> {
    let mut crates = Vec::new();
    for path in paths {
        let directory = path.canonicalize().with_context(|| format!("cannot open {}", path.display()))?;
        if let Some(one) = at(&directory) {
            crates.push(one);
            continue;
        }
        let before = crates.len();
        let entries = std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", path.display()))?;
        for entry in entries {
            crates.extend(at(&entry?.path()));
        }
        if crates.len() == before {
            bail!(
                "no plugin at {}: neither it nor its folders contain a Cargo.toml of a package, a plugin.js or a \
                plugin.py; `podium new NAME` creates one",
                path.display()
            );
        }
    }
    crates.sort();
    crates.dedup();
    Ok(crates)
}

fn at(directory: &Path) -> Option<Crate> {
    if script::language_in(directory).is_some() {
        return Some(Crate { directory: directory.to_owned() });
    }
    let manifest = std::fs::read_to_string(directory.join("Cargo.toml")).ok()?;
    let package = manifest.lines().any(|line| line.trim() == "[package]");
    package.then(|| Crate { directory: directory.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(directory: &Path) {
        std::fs::create_dir_all(directory.join("src")).unwrap();
        std::fs::write(directory.join("Cargo.toml"), "[package]\nname = \"x\"\n").unwrap();
    }

    #[test]
    fn a_folder_of_crates_yields_each_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            package(&folder.path().join(name));
        }
        std::fs::create_dir(folder.path().join("python")).unwrap();
        let names: Vec<_> = find(&[folder.path().to_owned()])
            .unwrap()
            .iter()
            .map(|found| found.directory.file_name().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_lone_crate_is_found_once_however_often_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        package(folder.path());
        let path = folder.path().to_owned();
        assert_eq!(find(&[path.clone(), path]).unwrap().len(), 1);
    }

    #[test]
    fn a_folder_without_any_is_an_error_that_says_how_to_begin() {
        let folder = tempfile::tempdir().unwrap();
        let error = find(&[folder.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("podium new"), "{error}");
    }

    #[test]
    fn files_that_cargo_writes_do_not_change_the_plugin() {
        let one = Crate { directory: "/plugins/a".into() };
        for file in ["src/lib.rs", "src/deep/mod.rs", "Cargo.toml", "plugin.yaml", "plugin.js", "plugin.py"] {
            assert!(one.concerns(&Path::new("/plugins/a").join(file)), "{file}");
        }
        for file in ["target/x", "Cargo.lock", ".git/index", "../ab/src/lib.rs"] {
            assert!(!one.concerns(&Path::new("/plugins/a").join(file)), "{file}");
        }
    }
}
