//! Plain technical English in documentation: the words that this project's rules of prose replace, and lines over 120
//! columns.
//!
//! Text from before these rules is being rewritten. Until then each area has a number of places that are left; more of
//! them fail the test, and fewer ask for the number to be lowered. Code, names, strings and tests' bodies are not read.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

use std::{
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
    ("host/pods", 51),
    ("host/engine", 0),
    ("host/src", 27),
    ("host/cli", 31),
    ("host/devcluster", 38),
    ("host/launcher", 0),
    ("host/toolchain", 0),
    ("guest-sdk", 0),
    ("plugins", 0),
    ("wit", 0),
    ("tests", 102),
    ("docs", 48),
    ("README.md", 0),
    ("ARCHITECTURE.md", 0),
    ("CHANGELOG.md", 2),
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

fn is_long(line: &str) -> bool {
    line.chars().count() > COLUMNS
}

#[test]
fn no_area_has_more_words_that_the_rules_replace_than_before() {
    let mut wrong = Vec::new();
    for (area, left) in LEFT {
        let mut found = Vec::new();
        for file in files(&workspace().join(area)) {
            let text = fs::read_to_string(&file).unwrap();
            for (at, line) in prose(&file, &text) {
                found.extend(replaced(&line).into_iter().map(|words| format!("{}:{at}: {words}", file.display())));
            }
        }
        if found.len() > *left {
            wrong.push(format!(
                "{area} has {} and may have {left}; among them {:#?}",
                found.len(),
                &found[..found.len().min(5)]
            ));
        } else if found.len() < *left {
            wrong.push(format!("{area} has {} left; lower its number", found.len()));
        }
    }
    assert!(wrong.is_empty(), "{}\ninstead: {REPLACED:?}", wrong.join("\n"));
}

#[test]
fn no_comment_and_no_line_of_the_changelog_is_over_120_columns() {
    let mut long = Vec::new();
    for (area, _) in LEFT.iter().filter(|(area, _)| !["docs", "README.md", "ARCHITECTURE.md"].contains(area)) {
        for file in files(&workspace().join(area)) {
            let text = fs::read_to_string(&file).unwrap();
            let is_changelog = file.ends_with("CHANGELOG.md");
            let is_code = file.extension().is_some_and(|end| end != "md");
            // Tables cannot be wrapped.
            let is_text =
                |line: &&str| is_changelog || is_code && line.trim_start().starts_with("//") && !line.contains(" | ");
            let over = text.lines().enumerate().filter(|(_, line)| is_long(line) && is_text(line));
            long.extend(over.map(|(at, _)| format!("{}:{}", file.display(), at + 1)));
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
    assert!(is_long(&"x".repeat(121)) && !is_long(&"x".repeat(120)));
}
