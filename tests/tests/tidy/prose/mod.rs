//! Plain technical English: the words that this project's rules of prose replace, in documentation, comments and
//! messages; lines over 120 columns; and names of functions over 70 letters.
//!
//! `files` lists the files, `texts` and `rust` find the text in them, `words` has the rules, `columns` the width of
//! lines and `names` the length of names. `deployed` compares commands with the manifests.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

mod columns;
mod deployed;
mod files;
mod names;
mod rust;
mod seeds;
mod texts;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

use columns::long_lines;
use files::Kind;
use names::long_names;
use words::{BEGINNINGS, REPLACED, places};

/// A file whose strings are texts that the rules refuse.
const SEEDS: &str = "tests/tests/tidy/prose/seeds.rs";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the files of the project, by their paths in it.
fn paths() -> Vec<PathBuf> {
    let all = files::all(&workspace()).into_iter();
    all.map(|file| file.strip_prefix(workspace()).unwrap().to_owned()).collect()
}

/// Finds places in all texts of the project, as `file:line: what`.
fn found(find: impl Fn(&Path, &str) -> Vec<(usize, String)>) -> Vec<String> {
    let texts = paths().into_iter().filter(|path| files::kind_of(path) == Some(Kind::Text));
    let places = texts.flat_map(|path| {
        let text = fs::read_to_string(workspace().join(&path)).unwrap();
        let places = find(&path, &text).into_iter();
        places.map(|(line, what)| format!("{}:{line}: {what}", path.display())).collect::<Vec<_>>()
    });
    places.collect()
}

#[test]
fn no_text_has_words_that_the_rules_replace() {
    let mut wrong = found(places);
    wrong.retain(|place| !place.starts_with(SEEDS));
    assert!(wrong.is_empty(), "{wrong:#?}\ninstead: {REPLACED:?}\nno beginnings: {BEGINNINGS:?}");
}

#[test]
fn no_line_has_more_than_120_columns() {
    let find = |path: &Path, text: &str| {
        let lines = long_lines(path, text).into_iter();
        lines.map(|line| (line, "over 120 columns".to_owned())).collect()
    };
    let wrong = found(find);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_function_has_a_name_of_more_than_70_letters() {
    let wrong = found(long_names);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_is_of_a_known_kind() {
    let unknown: Vec<_> = paths().into_iter().filter(|path| files::kind_of(path).is_none()).collect();
    assert!(unknown.is_empty(), "list these in `files`: {unknown:#?}");
}
