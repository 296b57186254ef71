//! Plain technical English: the words that this project's rules of prose replace, in documentation, comments and
//! messages; and lines over 120 columns.
//!
//! `texts` and `rust` find the text, `words` has the rules and `columns` the width of lines.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

mod columns;
mod rust;
mod seeds;
mod texts;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

use columns::long_lines;
use words::{BEGINNINGS, REPLACED, places};

/// The files and folders of the project.
const AREAS: &[&str] = &[
    "host",
    "guest-sdk",
    "plugins",
    "wit",
    "tests",
    "deploy",
    "docs",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "justfile",
    ".cargo",
    ".ci",
];
/// Folders that are being rewritten, with the most places that they may have until then: words, and long lines.
const LEFT: &[(&str, usize, usize)] = &[("host/pods/src/encoding", 3, 25)];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below a path, or the path itself.
fn files(path: &Path) -> Vec<PathBuf> {
    const ENDS: &[&str] = &[
        ".rs",
        ".rs.txt",
        ".md",
        ".wit",
        ".py",
        ".toml",
        ".toml.txt",
        ".yaml",
        ".yaml.txt",
        ".sh",
        "justfile",
        ".ci/run",
    ];
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        let is_built = ["target", "__pycache__"].iter().any(|folder| entry.ends_with(folder));
        if entry.is_dir() && !is_built {
            files.extend(self::files(&entry));
        } else if ENDS.iter().any(|end| entry.to_string_lossy().ends_with(end)) {
            files.push(entry);
        }
    }
    files.sort();
    files
}

/// Finds places in all files of an area, as `file:line: what`.
fn found(area: &str, find: impl Fn(&Path, &str) -> Vec<(usize, String)>) -> Vec<String> {
    let mut found = Vec::new();
    for file in files(&workspace().join(area)) {
        let text = fs::read_to_string(&file).unwrap();
        let shown = file.strip_prefix(workspace()).unwrap().display().to_string();
        found.extend(find(&file, &text).into_iter().map(|(line, what)| format!("{shown}:{line}: {what}")));
    }
    found
}

/// Finds places in the whole project, without those that `left` permits in the folders of [`LEFT`].
fn all(
    find: impl Fn(&Path, &str) -> Vec<(usize, String)>,
    left: impl Fn(&(&str, usize, usize)) -> usize,
) -> Vec<String> {
    let mut all: Vec<_> = AREAS.iter().flat_map(|area| found(area, &find)).collect();
    for row in LEFT {
        let is_in = |place: &String| place.starts_with(row.0);
        if all.iter().filter(|place| is_in(place)).count() <= left(row) {
            all.retain(|place| !is_in(place));
        }
    }
    all
}

#[test]
fn no_text_has_words_that_the_rules_replace() {
    let wrong = all(places, |(_, words, _)| *words);
    assert!(wrong.is_empty(), "{wrong:#?}\ninstead: {REPLACED:?}\nno beginnings: {BEGINNINGS:?}");
}

#[test]
fn no_line_has_more_than_120_columns() {
    let find = |path: &Path, text: &str| {
        let lines = long_lines(path, text).into_iter();
        lines.map(|line| (line, "over 120 columns".to_owned())).collect()
    };
    let wrong = all(find, |(.., lines)| *lines);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_area_of_the_project_is_read() {
    let is_read = |path: &Path| {
        let shown = path.strip_prefix(workspace()).unwrap();
        AREAS.iter().any(|area| shown.starts_with(area)) || shown.starts_with("target") || shown.starts_with(".git")
    };
    let unread: Vec<_> = files(&workspace()).into_iter().filter(|path| !is_read(path)).collect();
    assert!(unread.is_empty(), "{unread:#?}");
}
