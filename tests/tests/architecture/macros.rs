//! Macros whose expansion the guard cannot follow, because it depends on the place of the call. They are refused, since
//! the host's code needs none of them: a macro has whole paths, and only the module that declares it calls it.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};

use crate::{
    mentions::{Kind, ident, is},
    tree::{Module, Place, Tree},
};

pub(crate) const BUILT: &str = "a name that a macro builds from its arguments";
pub(crate) const DECLARED: &str = "a macro that a macro declares";
pub(crate) const NAMED: &str = "a crate that a macro names";
pub(crate) const USED: &str = "`#[macro_use]`: a macro that modules call without a path";
pub(crate) const EXPORTED: &str = "`#[macro_export]`: a macro that other modules call";

/// Returns the variables that a macro declares as `$x:tt`, which may be `::`.
pub(crate) fn any_tokens(tokens: &TokenStream) -> BTreeSet<String> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut found = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => found.extend(any_tokens(&group.stream())),
            _ if is(Some(token), '$') && is_tokens(&tokens, at) => found.extend(ident(tokens.get(at + 1))),
            _ => {}
        }
    }
    found
}

/// Returns whether the variable at a `$` is declared here as `$x:tt`.
fn is_tokens(tokens: &[TokenTree], at: usize) -> bool {
    is(tokens.get(at + 2), ':') && ident(tokens.get(at + 3)).is_some_and(|kind| kind == "tt")
}

/// Returns whether the tokens have a variable other than `$crate`.
pub(crate) fn has_variable(tokens: &[TokenTree]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Group(group) => has_variable(&group.stream().into_iter().collect::<Vec<_>>()),
        _ => is(Some(token), '$') && ident(tokens.get(at + 1)).is_none_or(|name| name != "crate"),
    })
}

/// Returns whether the variable or repetition at a `$` becomes part of a path, the name of a macro, of a method or of a
/// module, or arbitrary tokens.
pub(crate) fn builds_name(tokens: &[TokenTree], at: usize, any_tokens: &BTreeSet<String>) -> bool {
    let name = ident(tokens.get(at + 1));
    if name.as_deref() == Some("crate") {
        return false;
    }
    let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
    let is_path = |at: usize| is(tokens.get(at), ':') && is(tokens.get(at + 1), ':');
    let is_group = |at: usize| matches!(tokens.get(at), Some(TokenTree::Group(_)));
    let in_path = is_path(at + 2) || is(before(1), ':') && is(before(2), ':');
    let of_type = is(before(1), '<') && is(tokens.get(at + 2), '>') && is_path(at + 3);
    let is_macro = is(tokens.get(at + 2), '!') && is_group(at + 3);
    let is_method = is(before(1), '.') && !is(before(2), '.') && is_group(at + 2);
    let is_module = ident(before(1)).is_some_and(|word| word == "mod");
    let is_any = name.is_some_and(|name| any_tokens.contains(&name)) && !is_tokens(tokens, at);
    in_path || of_type || is_macro || is_method || is_module || is_any
}

/// Returns the lines that let another module call a macro of a module: calls in the modules inside it, and imports.
pub(crate) fn escapes<'a>(tree: &'a Tree, place: &Place, module: &'a Module) -> Vec<(&'a Module, usize)> {
    let macros = &module.mentions.macros;
    let is_named = |path: &[String]| path.last().is_some_and(|name| macros.contains(name));
    let is_inside = |of: &Place| of.root == place.root && of != place && of.names.starts_with(&place.names);
    let imports = module.mentions.mentions.iter();
    let imports = imports.filter(|mention| mention.kind != Kind::Path && mention.kind != Kind::Method);
    let imports = imports.filter(|mention| is_named(&mention.path)).map(|mention| (module, mention.line));
    let inner = tree.modules.iter().filter(|(of, _)| !macros.is_empty() && is_inside(of));
    let calls = inner.flat_map(|(_, inner)| inner.mentions.mentions.iter().map(move |mention| (inner, mention)));
    let calls = calls.filter(|(_, mention)| mention.path.len() == 1 && is_named(&mention.path));
    imports.chain(calls.map(|(inner, mention)| (inner, mention.line))).collect()
}
