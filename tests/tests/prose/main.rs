//! Plain technical English: the words that this project's rules of prose replace, in documentation, comments and
//! messages; and lines over 120 columns.
//!
//! Text from before these rules is being rewritten. Until then each area has a number of places that are left: more of
//! them fail the test, and with fewer the number has to be lowered. `texts` and `rust` find the text, `words` has
//! the rules and `columns` the width of lines.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

mod columns;
mod rust;
mod seeds;
mod texts;
mod words;

use std::{
    cmp::Ordering,
    fs,
    path::{Path, PathBuf},
};

use columns::long_lines;
use words::{BEGINNINGS, REPLACED, places};

/// How many places are left in each area: words that the rules replace, and lines that are too long.
const LEFT: &[(&str, usize, usize)] = &[
    ("host/pods", 1, 39),
    ("host/engine", 42, 5),
    ("host/config", 19, 0),
    ("host/src", 49, 0),
    ("host/cli", 5, 0),
    ("host/devcluster", 0, 0),
    ("host/launcher", 0, 0),
    ("host/toolchain", 0, 0),
    ("host/Cargo.toml", 0, 0),
    ("guest-sdk", 3, 1),
    ("plugins", 15, 0),
    ("wit", 1, 0),
    ("tests", 16, 0),
    ("deploy", 0, 0),
    ("docs", 2, 0),
    ("README.md", 0, 0),
    ("ARCHITECTURE.md", 0, 0),
    ("CHANGELOG.md", 4, 0),
    ("Cargo.toml", 0, 0),
    ("clippy.toml", 0, 0),
    ("deny.toml", 0, 0),
    ("rust-toolchain.toml", 0, 0),
    ("rustfmt.toml", 0, 0),
    ("justfile", 0, 0),
    (".cargo", 0, 0),
    (".ci", 0, 0),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below a path, or the path itself.
fn files(path: &Path) -> Vec<PathBuf> {
    const ENDS: &[&str] = &[".rs", ".rs.txt", ".md", ".wit", ".py", ".toml", ".yaml", ".sh", "justfile", ".ci/run"];
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

/// Compares the places of an area with the number that it may have.
fn verdict(area: &str, left: usize, found: &[String]) -> Option<String> {
    let some = &found[..found.len().min(5)];
    match found.len().cmp(&left) {
        Ordering::Greater => Some(format!("{area} has {} and may have {left}; among them {some:#?}", found.len())),
        Ordering::Less => Some(format!("{area} has {} left; lower its number", found.len())),
        Ordering::Equal => None,
    }
}

/// Finds places in all files of an area, as `file:line: what`.
fn found(area: &str, find: impl Fn(&Path, &str) -> Vec<(usize, String)>) -> Vec<String> {
    let mut found = Vec::new();
    for file in files(&workspace().join(area)) {
        let text = fs::read_to_string(&file).unwrap();
        let shown = file.strip_prefix(workspace()).unwrap().display().to_string();
        found.extend(find(&file, &text).into_iter().map(|(line, what)| format!("{shown}:{line}: {what}")));
    }
    // All places, for those who lower the numbers.
    found.iter().for_each(|place| println!("{place}"));
    found
}

#[test]
fn no_area_has_more_words_that_the_rules_replace_than_before() {
    let wrong: Vec<_> = LEFT.iter().filter_map(|(area, left, _)| verdict(area, *left, &found(area, places))).collect();
    assert!(wrong.is_empty(), "{}\ninstead: {REPLACED:?}\nno beginnings: {BEGINNINGS:?}", wrong.join("\n"));
}

#[test]
fn no_area_has_more_lines_over_120_columns_than_before() {
    let find = |path: &Path, text: &str| {
        let lines = long_lines(path, text).into_iter();
        lines.map(|line| (line, "over 120 columns".to_owned())).collect()
    };
    let wrong: Vec<_> = LEFT.iter().filter_map(|(area, _, left)| verdict(area, *left, &found(area, find))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_area_of_the_project_is_read() {
    let areas: Vec<_> = LEFT.iter().map(|(area, ..)| *area).collect();
    let is_read = |path: &Path| {
        let shown = path.strip_prefix(workspace()).unwrap();
        areas.iter().any(|area| shown.starts_with(area)) || shown.starts_with("target") || shown.starts_with(".git")
    };
    let unread: Vec<_> = files(&workspace()).into_iter().filter(|path| !is_read(path)).collect();
    assert!(unread.is_empty(), "{unread:#?}");
}
