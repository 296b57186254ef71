//! Texts in Rust code, as the compiler reads it: doc comments in each of their forms, and the strings that operators
//! and users read: log lines, errors, and the help of the command line and of metrics.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::Lit;

/// Macros whose strings are log lines or errors.
const MESSAGES: &[&str] =
    &["trace", "debug", "info", "warn", "error", "event", "anyhow", "bail", "ensure", "eprintln", "println"];
/// Methods whose strings are errors, or the help of metrics.
const METHODS: &[&str] = &["context", "with_context", "register", "register_with_unit"];
/// Keys in attributes and struct literals whose strings are help.
const HELP: &[&str] = &["help", "long_help", "about", "long_about", "after_help", "after_long_help"];

/// The texts of one file.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Doc comments: line and text of each line.
    pub(crate) docs: Vec<Vec<(usize, String)>>,
    /// Strings that people read: line and text.
    pub(crate) messages: Vec<(usize, String)>,
    /// String literals outside of doc comments: where they are.
    pub(crate) literals: Vec<Span>,
}

/// Reads a file. A file that is no Rust has no texts.
pub(crate) fn read(code: &str) -> Option<Texts> {
    let mut texts = Texts::default();
    texts.read(&code.parse().ok()?, false);
    Some(texts)
}

fn text(token: Option<&TokenTree>) -> Option<(usize, String)> {
    let Some(TokenTree::Literal(literal)) = token else { return None };
    let Lit::Str(text) = Lit::new(literal.clone()) else { return None };
    Some((literal.span().start().line, text.value()))
}

fn is(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

impl Texts {
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
                    let is_message = is(before(1), '!') && MESSAGES.contains(&word(before(2)).as_str());
                    let is_method = is(before(2), '.') && METHODS.contains(&word(before(1)).as_str());
                    self.read(&group.stream(), in_message || is_message || is_method);
                }
                TokenTree::Literal(_) => {
                    if let Some(message) = text(Some(token)) {
                        self.literals.push(token.span());
                        let is_help = at > 1
                            && is(tokens.get(at - 1), '=')
                            && HELP.contains(&tokens[at - 2].to_string().as_str());
                        if in_message || is_help {
                            self.messages.push(message);
                        }
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
