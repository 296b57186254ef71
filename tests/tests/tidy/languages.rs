//! Every function of the contract can be called in each language, and the page of scripts has it.

use std::{fs, path::Path};

use podium_vocabulary::Function;

/// Returns true if the text has this word.
fn has(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|found| found == word)
}

#[test]
fn every_function_can_be_called_in_each_language_and_is_on_the_page() {
    const CAMEL: [&str; 3] =
        ["guest-sdk/javascript/src/podium.js", "guest-sdk/javascript/podium.d.ts", "docs/scripts.md"];
    const SNAKE: [&str; 2] = ["guest-sdk/python/podium.py", "guest-sdk/python/podium.pyi"];
    let read = |file: &&str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)).unwrap();
    let camel = CAMEL.each_ref().map(read);
    let snake = SNAKE.each_ref().map(read);
    let mut missing = Vec::new();
    // A script logs with `console.log` and `print`.
    for function in Function::ALL.into_iter().filter(|function| *function != Function::Log) {
        let name = function.name().trim_end_matches("-pod");
        let parts = name.split('-').enumerate().map(|(at, part)| {
            let (first, rest) = part.split_at(1);
            if at == 0 { part.to_owned() } else { first.to_uppercase() + rest }
        });
        let in_camel: String = parts.collect();
        let in_snake = name.replace('-', "_");
        missing
            .extend(CAMEL.iter().zip(&camel).filter(|(_, text)| !has(text, &in_camel)).map(|(file, _)| (name, *file)));
        missing
            .extend(SNAKE.iter().zip(&snake).filter(|(_, text)| !has(text, &in_snake)).map(|(file, _)| (name, *file)));
    }
    assert!(missing.is_empty(), "{missing:?}");
}
