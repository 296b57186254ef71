//! The files of the project, by whether people read their text. A file of another kind is refused, so that none is left
//! out by its name.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Whether the rules of prose apply to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Data, or text that this project did not write or generates from other text.
    Unread,
}

/// How names of files with text end.
const TEXT: &[&str] = &[
    ".gitignore",
    ".helmignore",
    ".d.ts",
    ".js",
    ".js.txt",
    ".go",
    ".md",
    ".py",
    ".py.txt",
    ".pyi",
    ".rs",
    ".rs.txt",
    ".sh",
    ".toml",
    ".toml.txt",
    ".tpl",
    ".wit",
    ".yaml",
    ".yaml.txt",
    "/Containerfile",
    "/NOTES.txt",
    "/justfile",
    ".ci/run",
];
/// Folders all of whose files are text.
const TEXT_FOLDERS: &[&str] = &["host/toolchain/tests/fake"];
/// How names of files end that are not read: locks and checksums of dependencies, JSON (Pods of other projects, and
/// schemas that are generated from doc comments), components, and the license.
const UNREAD: &[&str] =
    &[".json", ".json.txt", ".lock", ".pyc", ".wasm", "/go.mod", "/go.sum", "/LICENSE", "/types/table.txt"];
/// Folders with inputs of fuzzing and of property tests.
const UNREAD_FOLDERS: &[&str] = &[
    "tests/fuzz/dictionaries",
    "tests/fuzz/regressions",
    "host/api/proptest-regressions",
    "host/engine/proptest-regressions",
];
/// Folders that builds create, and `.git`, which is a file in a worktree. They are not part of the project.
const BUILT: &[&str] = &["target", "__pycache__", ".git"];

/// Returns the kind of a file by its path in the project.
pub(crate) fn kind_of(path: &Path) -> Option<Kind> {
    let name = format!("/{}", path.display());
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    let is_in = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    if ends(TEXT) || is_in(TEXT_FOLDERS) {
        return Some(Kind::Text);
    }
    (ends(UNREAD) || is_in(UNREAD_FOLDERS)).then_some(Kind::Unread)
}

/// Returns all files of a folder, in order, without the folders that builds create.
pub(crate) fn all(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap().path();
        if BUILT.iter().any(|built| entry.ends_with(built)) {
            continue;
        }
        if entry.is_dir() {
            files.extend(all(&entry));
        } else {
            files.push(entry);
        }
    }
    files.sort();
    files
}
