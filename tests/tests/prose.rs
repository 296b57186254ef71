//! Plain technical English in documentation: the words that this project's rules of prose replace, and lines over 120
//! columns.
//!
//! Text from before these rules is being rewritten. Until then each area has a number of places that are left: more of
//! them fail the test, and with fewer the number has to be lowered. Code, names, strings and tests' bodies are not
//! read.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

use std::{
    cmp::Ordering,
    fs,
    path::{Path, PathBuf},
};

/// Words and phrases, in lower case, and what to write instead.
const REPLACED: &[(&str, &str)] = &[
    ("gives", "returns"),
    ("tells", "reports"),
    ("told", "reported, notified"),
    ("hears", "receives"),
    ("anew", "again"),
    ("but for", "except"),
    ("what is", "a term of the glossary as the subject"),
    ("who waits", "a term of the glossary as the subject"),
    ("nobody", "no caller, no reader, ..."),
    ("none where", "`None` if"),
    ("stands in", "is in"),
];
/// How many places are left in each area.
const LEFT: &[(&str, usize)] = &[
    ("host/pods", 0),
    ("host/engine", 0),
    ("host/config", 0),
    ("host/src", 0),
    ("host/cli", 0),
    ("host/devcluster", 0),
    ("host/launcher", 0),
    ("host/toolchain", 0),
    ("guest-sdk", 0),
    ("plugins", 0),
    ("wit", 0),
    ("tests", 0),
    ("docs", 0),
    ("README.md", 0),
    ("ARCHITECTURE.md", 0),
    ("CHANGELOG.md", 0),
];
const COLUMNS: usize = 120;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files below a path, or the path itself.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() && !entry.ends_with("target") {
            files.extend(self::files(&entry));
        } else if entry.extension().is_some_and(|end| end == "rs" || end == "md" || end == "wit") {
            files.push(entry);
        }
    }
    files.sort();
    files
}

/// The lines of a file that people read as text, with their numbers: doc comments of code, and Markdown outside of code
/// blocks.
fn prose(path: &Path, text: &str) -> Vec<(usize, String)> {
    let is_markdown = path.extension().is_some_and(|end| end == "md");
    let mut in_code = false;
    let lines = text.lines().enumerate().filter_map(|(at, line)| {
        let shown = line.trim_start();
        let shown =
            if is_markdown { shown } else { shown.strip_prefix("//!").or_else(|| shown.strip_prefix("///"))? };
        let fence = shown.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then(|| (at + 1, shown.to_owned()))
    });
    lines.collect()
}

/// The places in one file where the rules replace a word: line and word.
fn places(path: &Path, text: &str) -> Vec<(usize, &'static str)> {
    let lines = prose(path, text).into_iter();
    lines.flat_map(|(at, line)| replaced(&line).into_iter().map(move |words| (at, words))).collect()
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

/// Words that the rules replace. Quoted words are output or names of something else.
fn replaced(line: &str) -> Vec<&'static str> {
    let outside = |(at, part): (usize, &str)| if at % 2 == 0 { part.to_lowercase() } else { " _ ".to_owned() };
    let line: String = line.split('`').enumerate().map(outside).collect();
    let is_word = |character: char| character.is_alphanumeric() || character == '\'';
    let found = REPLACED.iter().filter(|(words, _)| {
        line.match_indices(words)
            .any(|(at, _)| !line[..at].ends_with(is_word) && !line[at + words.len()..].starts_with(is_word))
    });
    found.map(|(words, _)| *words).collect()
}

/// The lines of one file that are too long: comments, and everything in a changelog. Tables cannot be wrapped.
fn long_lines(path: &Path, text: &str) -> Vec<usize> {
    let is_changelog = path.ends_with("CHANGELOG.md");
    let is_code = path.extension().is_some_and(|end| end != "md");
    let is_text = |line: &str| is_changelog || is_code && line.trim_start().starts_with("//") && !line.contains(" | ");
    let over = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS && is_text(line));
    over.map(|(at, _)| at + 1).collect()
}

#[test]
fn no_area_has_more_words_that_the_rules_replace_than_before() {
    let mut wrong = Vec::new();
    for (area, left) in LEFT {
        let mut found = Vec::new();
        for file in files(&workspace().join(area)) {
            let text = fs::read_to_string(&file).unwrap();
            let places = places(&file, &text).into_iter();
            found.extend(places.map(|(at, words)| format!("{}:{at}: {words}", file.display())));
        }
        wrong.extend(verdict(area, *left, &found));
    }
    assert!(wrong.is_empty(), "{}\ninstead: {REPLACED:?}", wrong.join("\n"));
}

#[test]
fn no_comment_and_no_line_of_the_changelog_is_over_120_columns() {
    let mut long = Vec::new();
    for (area, _) in LEFT.iter().filter(|(area, _)| !["docs", "README.md", "ARCHITECTURE.md"].contains(area)) {
        for file in files(&workspace().join(area)) {
            let text = fs::read_to_string(&file).unwrap();
            long.extend(long_lines(&file, &text).into_iter().map(|at| format!("{}:{at}", file.display())));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn the_rules_see_words_in_prose_and_not_in_code_or_quotes() {
    let rust = Path::new("a.rs");
    assert_eq!(prose(rust, "fn gives() {}\n/// Gives one.\n// gives\n//! ```\n//! gives\n//! ```\n").len(), 1);
    assert_eq!(replaced("Gives the next one."), ["gives"]);
    assert_eq!(replaced("What is kept of a Pod"), ["what is"]);
    assert!(replaced("forgives; `gives`; somewhat isolated").is_empty());
}

#[test]
fn an_area_without_places_refuses_the_first_one() {
    let rust = Path::new("a.rs");
    let seeded = "/// Gives the next key.\nfn next() {}\n//! The notes, and what is kept of them.\n";
    assert_eq!(places(rust, seeded), [(1, "gives"), (3, "what is")]);
    assert_eq!(places(Path::new("a.md"), "It tells the plugin.\n\n    gives\n"), [(1, "tells"), (3, "gives")]);
    let found = |number: usize| vec!["a.rs:1: gives".to_owned(); number];
    assert!(verdict("docs", 0, &found(1)).is_some_and(|wrong| wrong.contains("a.rs:1: gives")));
    assert!(verdict("docs", 2, &found(1)).is_some_and(|wrong| wrong.contains("lower its number")));
    assert_eq!(verdict("docs", 1, &found(1)), None);
}

#[test]
fn a_comment_of_121_columns_is_too_long() {
    let line = |columns: usize| format!("// {}\n", "x".repeat(columns - 3));
    assert_eq!(long_lines(Path::new("a.rs"), &(line(120) + &line(121))), [2]);
    assert_eq!(long_lines(Path::new("CHANGELOG.md"), &"x".repeat(121)), [1]);
    assert!(long_lines(Path::new("docs/a.md"), &line(121)).is_empty(), "Markdown is wrapped by whatever shows it");
    assert!(long_lines(Path::new("a.rs"), &format!("let x = \"{}\";\n", "x".repeat(121))).is_empty());
}
