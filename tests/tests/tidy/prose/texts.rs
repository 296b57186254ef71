//! The paragraphs of a file that people read as text.
//!
//! These are Markdown outside of code blocks, comments and messages of Rust code, and the comments of other files.
//! Names and other strings are not read.

use std::{mem, path::Path};

use crate::prose::rust;

/// The part of a file that a paragraph is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The beginning of a doc comment.
    Doc,
    Heading,
    Other,
}

/// Lines that are read as one text, with their numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Paragraph {
    pub(crate) kind: Kind,
    pub(crate) lines: Vec<(usize, String)>,
}

/// Returns the paragraphs of a file, and the lines of code fences that nothing closes.
pub(crate) fn read(path: &Path, text: &str) -> (Vec<Paragraph>, Vec<usize>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let all = |keep: &dyn Fn(&str) -> Option<String>| blocks(text.lines().map(keep));
    let hashes = |line: &str| {
        let at = if line.trim_start().starts_with('#') { line.find('#') } else { line.find(" # ").map(|at| at + 1) };
        Some(line[at?..].trim_start_matches(['#', '!']).to_owned())
    };
    let (docs, others) = if is_rust(path) {
        let texts = rust::read(text).unwrap_or_default();
        let messages = texts.messages.into_iter().map(|(line, text)| vec![(line, without_values(&text))]);
        (texts.docs, messages.chain(texts.comments).collect())
    } else if name.ends_with(".md") {
        (Vec::new(), all(&|line| Some(line.to_owned())))
    } else if name.ends_with(".wit") || name.ends_with(".go") {
        let docs = all(&|line| line.trim_start().strip_prefix("///").map(str::to_owned));
        let comment =
            |line: &str| line.trim_start().strip_prefix("//").filter(|rest| !rest.starts_with('/')).map(str::to_owned);
        (docs, all(&comment))
    } else if [".js", ".js.txt", ".d.ts"].iter().any(|end| name.ends_with(end)) {
        let begins = ["///", "//", "/**", "*/", "*"];
        let comment =
            |line: &str| begins.iter().find_map(|begin| line.trim_start().strip_prefix(begin)).map(str::to_owned);
        (Vec::new(), all(&|line| comment(line).map(|text| text.trim_end_matches("*/").to_owned())))
    } else if [".py", ".py.txt", ".pyi"].iter().any(|end| name.ends_with(end)) {
        (docstrings(text), all(&hashes))
    } else {
        (Vec::new(), all(&hashes))
    };
    let mut found = Vec::new();
    let mut unclosed = Vec::new();
    for (is_doc, block) in docs.iter().map(|block| (true, block)).chain(others.iter().map(|block| (false, block))) {
        paragraphs(is_doc, block, &mut found, &mut unclosed);
    }
    (found, unclosed)
}

/// Rust code, templates of new crates among it.
pub(crate) fn is_rust(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".rs") || name.ends_with(".rs.txt")
}

/// Joins lines that follow each other.
fn blocks(lines: impl Iterator<Item = Option<String>>) -> Vec<Vec<(usize, String)>> {
    let mut blocks = vec![Vec::new()];
    for (at, line) in lines.enumerate() {
        match (line, blocks.last_mut()) {
            (Some(line), Some(block)) => block.push((at + 1, line)),
            (None, Some(block)) if block.is_empty() => {}
            _ => blocks.push(Vec::new()),
        }
    }
    blocks
}

/// The texts between three quotes of a Python file.
fn docstrings(text: &str) -> Vec<Vec<(usize, String)>> {
    let mut inside = false;
    blocks(text.lines().map(move |line| {
        let quotes = line.matches("\"\"\"").count();
        let is_text = inside || quotes > 0;
        inside ^= quotes % 2 == 1;
        is_text.then(|| line.replace("\"\"\"", ""))
    }))
}

/// A message with its placeholders as one word.
fn without_values(text: &str) -> String {
    let mut shown = String::new();
    let mut depth = 0_usize;
    for character in text.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => shown.push(character),
            _ => {}
        }
        if character == '{' && depth == 1 {
            shown.push('_');
        }
    }
    shown
}

/// Splits a block at empty lines, items of lists, rows of tables and code. A fence without an end hides nothing.
fn paragraphs(is_doc: bool, block: &[(usize, String)], found: &mut Vec<Paragraph>, unclosed: &mut Vec<usize>) {
    let is_fence = |line: &str| line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
    let fences = block.iter().enumerate().filter(|(_, (_, line))| is_fence(line));
    let mut fences: Vec<usize> = fences.map(|(at, _)| at).collect();
    if fences.len() % 2 == 1 {
        unclosed.extend(fences.pop().map(|at| block[at].0));
    }
    let is_code = |at: usize| fences.chunks(2).any(|fence| fence[0] <= at && at <= fence[1]);
    let mut kind = if is_doc { Kind::Doc } else { Kind::Other };
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (at, (number, line)) in block.iter().enumerate() {
        let line = line.trim();
        let is_heading = line.starts_with('#');
        let begins_item = line.starts_with("- ") || line.starts_with("* ") || line.starts_with('|');
        if (line.is_empty() || is_code(at) || begins_item || is_heading) && !lines.is_empty() {
            found.push(Paragraph { kind, lines: mem::take(&mut lines) });
            kind = Kind::Other;
        }
        if is_heading && !is_code(at) {
            found.push(Paragraph { kind: Kind::Heading, lines: vec![(*number, line.to_owned())] });
        } else if !line.is_empty() && !is_code(at) && !is_fence(line) {
            let shown = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line);
            lines.push((*number, shown.to_owned()));
        }
    }
    if !lines.is_empty() {
        found.push(Paragraph { kind, lines });
    }
}
