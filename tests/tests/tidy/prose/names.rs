//! Names of functions that are too long to be read in a list of failed tests. A test's name is a claim in plain words.

use std::path::Path;

use proc_macro2::{Ident, TokenStream, TokenTree};

const LETTERS: usize = 70;

/// Returns the functions of one file whose names are too long, also those that macros define: line and name.
pub(crate) fn long_names(path: &Path, text: &str) -> Vec<(usize, String)> {
    let is_rust = path.extension().is_some_and(|end| end == "rs");
    let Some(tokens) = text.parse().ok().filter(|_| is_rust) else { return Vec::new() };
    let mut names = Vec::new();
    functions(tokens, &mut names);
    names.retain(|name| name.to_string().len() > LETTERS);
    names.iter().map(|name| (name.span().start().line, name.to_string())).collect()
}

fn functions(tokens: TokenStream, names: &mut Vec<Ident>) {
    let mut is_fn = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => functions(group.stream(), names),
            TokenTree::Ident(name) if is_fn => names.push(name),
            TokenTree::Ident(word) if word == "fn" => {
                is_fn = true;
                continue;
            }
            _ => {}
        }
        is_fn = false;
    }
}
