//! Texts in Rust code, as the compiler reads it: doc comments in each of their forms, other comments, and the strings
//! that operators, users and developers read: log lines, errors, panics, reasons, the help of the command line and of
//! metrics, and all others that are sentences.

use std::ops::Range;

use proc_macro2::{Delimiter, Group, LineColumn, Span, TokenStream, TokenTree};
use syn::Lit;

/// Macros whose strings are log lines, errors or panics, with the number of their arguments before the text.
const MESSAGES: &[(&str, usize)] = &[
    ("trace", 0),
    ("debug", 0),
    ("info", 0),
    ("warn", 0),
    ("error", 0),
    ("event", 0),
    ("anyhow", 0),
    ("bail", 0),
    ("ensure", 1),
    ("format", 0),
    ("format_args", 0),
    ("write", 1),
    ("writeln", 1),
    ("print", 0),
    ("println", 0),
    ("eprint", 0),
    ("eprintln", 0),
    ("panic", 0),
    ("unreachable", 0),
    ("todo", 0),
    ("unimplemented", 0),
    ("assert", 1),
    ("assert_eq", 2),
    ("assert_ne", 2),
    ("debug_assert", 1),
    ("debug_assert_eq", 2),
    ("debug_assert_ne", 2),
    ("prop_assert", 1),
    ("prop_assert_eq", 2),
    ("prop_assert_ne", 2),
];
/// Methods whose strings are errors or panics.
const METHODS: &[&str] = &["context", "with_context", "expect", "expect_err"];
/// Functions and methods whose strings are the help of metrics.
const METRICS: &[&str] = &["register", "register_with_unit", "counter", "gauge", "histogram", "encode_descriptor"];
/// Keys in attributes, names of variables, fields and constants whose strings are help.
const HELP: &[&str] =
    &["help", "long_help", "about", "long_about", "after_help", "after_long_help", "reason", "note", "message"];

/// The texts of one file.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Doc comments: line and text of each line.
    pub(crate) docs: Vec<Vec<(usize, String)>>,
    /// Other comments: line and text of each line. A comment beside code is a block of its own.
    pub(crate) comments: Vec<Vec<(usize, String)>>,
    /// Strings that people read: line and text.
    pub(crate) messages: Vec<(usize, String)>,
}

/// Reads a file. A file that is no Rust has no texts.
pub(crate) fn read(code: &str) -> Option<Texts> {
    let mut texts = Texts::default();
    let tokens: TokenStream = code.parse().ok()?;
    texts.read(&tokens, false);
    let lines = Lines::new(code);
    let mut found = Vec::new();
    ranges(&tokens, &lines, &mut found);
    texts.comments = comments(&lines, &found);
    Some(texts)
}

/// Collects where all tokens begin and end; doc comments are tokens too.
fn ranges(tokens: &TokenStream, lines: &Lines<'_>, found: &mut Vec<Range<usize>>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => {
                found.push(lines.bytes(group.span_open()));
                ranges(&group.stream(), lines, found);
                found.push(lines.bytes(group.span_close()));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => found.push(lines.bytes(token.span())),
        }
    }
}

/// Where the lines of a file begin.
struct Lines<'a> {
    code: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(code: &'a str) -> Self {
        let starts = code.match_indices('\n').map(|(at, _)| at + 1);
        Self { code, starts: [0].into_iter().chain(starts).collect() }
    }

    fn byte(&self, at: LineColumn) -> usize {
        let start = self.starts[at.line - 1];
        self.code[start..].char_indices().nth(at.column).map_or(self.code.len(), |(offset, _)| start + offset)
    }

    fn bytes(&self, span: Span) -> Range<usize> {
        self.byte(span.start())..self.byte(span.end())
    }

    fn line(&self, byte: usize) -> usize {
        self.starts.partition_point(|start| *start <= byte)
    }
}

/// Returns the comments between the tokens. Lines of `//` that follow each other are one block.
fn comments(code: &Lines<'_>, tokens: &[Range<usize>]) -> Vec<Vec<(usize, String)>> {
    let mut blocks: Vec<Vec<(usize, String)>> = Vec::new();
    let end = code.code.len();
    let starts = [0].into_iter().chain(tokens.iter().map(|token| token.end));
    for (from, to) in starts.zip(tokens.iter().map(|token| token.start).chain([end])) {
        let Some(gap) = code.code.get(from..to) else { continue };
        let mut at = 0;
        while let Some(start) = gap[at..].find("//").into_iter().chain(gap[at..].find("/*")).min() {
            let start = at + start;
            let is_line = gap[start..].starts_with("//");
            let is_beside_code = from > 0 && !gap[..start].contains('\n');
            let length = gap[start..].find(if is_line { "\n" } else { "*/" }).unwrap_or(gap.len() - start);
            let line = code.line(from + start);
            let shown = |text: &str| text.trim_start().trim_start_matches(['/', '*', '!']).trim().to_owned();
            let lines = gap[start..start + length].lines().enumerate();
            let lines = lines.map(|(offset, text)| (line + offset, shown(text)));
            match blocks.last_mut() {
                Some(block) if is_line && !is_beside_code && block.last().is_some_and(|last| last.0 + 1 == line) => {
                    block.extend(lines);
                }
                _ => blocks.push(lines.collect()),
            }
            at = start + length;
        }
    }
    blocks
}

fn text(token: Option<&TokenTree>) -> Option<(usize, String)> {
    let Some(TokenTree::Literal(literal)) = token else { return None };
    let Lit::Str(text) = Lit::new(literal.clone()) else { return None };
    Some((literal.span().start().line, text.value()))
}

fn is(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

/// Returns whether a string has enough words in a row that people read it, wherever it is.
fn is_sentence(text: &str) -> bool {
    const WORDS: usize = 3;
    let is_word = |word: &str| {
        let word = word.trim_end_matches(['.', ',', ':', ';', '?', '!', ')']).trim_start_matches('(');
        word.starts_with(char::is_alphabetic) && word.chars().all(|c| c.is_alphabetic() || c == '\'' || c == '-')
    };
    let words: Vec<bool> = text.split_whitespace().map(is_word).collect();
    words.windows(WORDS).any(|words| words.iter().all(|is_word| *is_word))
}

/// Returns whether the tokens before a string make it help: `help = ..`, `help: ..` or `let help: &str = ..`.
fn is_help(before: &[TokenTree]) -> bool {
    let is_name = |token: &TokenTree| HELP.contains(&token.to_string().to_ascii_lowercase().as_str());
    let Some((mark, before)) = before.split_last() else { return false };
    match before.last() {
        Some(name) if is(Some(mark), ':') => is_name(name),
        Some(name) if is(Some(mark), '=') => {
            let statement = before.rsplit(|token| is(Some(token), ';') || is(Some(token), ',')).next();
            let typed = |two: &[TokenTree]| is_name(&two[0]) && is(two.get(1), ':');
            is_name(name) || statement.is_some_and(|tokens| tokens.windows(2).any(typed))
        }
        _ => false,
    }
}

impl Texts {
    /// Reads the tokens of a macro's arguments, of which the first ones are no text.
    fn arguments(&mut self, tokens: &TokenStream, before_text: usize, in_message: bool) {
        let mut argument = 0;
        let mut rest = Vec::new();
        for token in tokens.clone() {
            let is_end = is(Some(&token), ',') && argument < before_text;
            rest.push(token);
            if is_end {
                self.read(&rest.drain(..).collect(), in_message);
                argument += 1;
            }
        }
        self.read(&rest.into_iter().collect(), in_message || argument == before_text);
    }

    /// Reads tokens; all strings in them are messages if they are in a message.
    fn read(&mut self, tokens: &TokenStream, in_message: bool) {
        let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let inner = usize::from(is(tokens.get(at + 1), '!'));
                    if let Some(TokenTree::Group(group)) = tokens.get(at + 1 + inner)
                        && group.delimiter() == Delimiter::Bracket
                    {
                        self.attribute(group, in_message);
                        at += 1 + inner;
                    }
                }
                TokenTree::Group(group) => {
                    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
                    let word = |token: Option<&TokenTree>| token.map(ToString::to_string).unwrap_or_default();
                    let name = word(before(1));
                    let message =
                        MESSAGES.iter().find(|(message, _)| is(before(1), '!') && word(before(2)) == *message);
                    let is_method = is(before(2), '.') && METHODS.contains(&name.as_str());
                    let is_text = METRICS.contains(&name.as_str()) || name == "Err";
                    match message {
                        Some((_, before_text)) => self.arguments(&group.stream(), *before_text, in_message),
                        None => self.read(&group.stream(), in_message || is_method || is_text),
                    }
                }
                TokenTree::Literal(_) => {
                    if let Some(message) = text(Some(token))
                        && (in_message || is_help(&tokens[..at]) || is_sentence(&message.1))
                    {
                        self.messages.push(message);
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
            at += 1;
        }
    }

    fn attribute(&mut self, attribute: &Group, in_message: bool) {
        let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
        let name = tokens.first().map(ToString::to_string).unwrap_or_default();
        match text(tokens.get(2)) {
            Some((line, doc)) if name == "doc" => self.doc(line, &doc),
            _ => self.read(&attribute.stream(), in_message || name == "error"),
        }
    }

    fn doc(&mut self, first: usize, doc: &str) {
        let is_next = |last: &(usize, String)| last.0 + 1 == first;
        if !self.docs.last().and_then(|block| block.last()).is_some_and(is_next) {
            self.docs.push(Vec::new());
        }
        if let Some(block) = self.docs.last_mut() {
            let shown = |line: &str| line.trim_start().trim_start_matches("* ").trim_start_matches('*').to_owned();
            block.extend(doc.lines().enumerate().map(|(at, line)| (first + at, shown(line))));
            if doc.is_empty() {
                block.push((first, String::new()));
            }
        }
    }
}
