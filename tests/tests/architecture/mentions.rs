//! The paths that the production code of one module mentions, as the compiler parses them: in imports, expressions,
//! types, patterns and attributes, and in the tokens of macros. `resolve` finds the target of a path.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::{
    Attribute, Expr, ExprMethodCall, ExprPath, ImplItem, Item, ItemMod, Lit, Meta, Path, QSelf, TraitItem, Type,
    UseTree, Visibility,
    spanned::Spanned,
    visit::{self, Visit},
};

/// The form in which code mentions a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An expression, a type, a pattern, an attribute, a part of a macro.
    Path,
    /// An import that only this module and its children see.
    Import,
    /// An import that other modules see.
    ReExport,
    /// All names of the path are imported.
    Glob,
    /// As `Glob`, and other modules see them.
    ReExportedGlob,
    /// The name of a method that is called; its type is unknown.
    Method,
}

/// A path as it is written. The first name is empty if the path begins with `::`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

/// The mentions in the production code of one module, without the modules inside it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mentions {
    pub(crate) mentions: Vec<Mention>,
    /// Names that imports and type aliases give to paths.
    pub(crate) names: BTreeMap<String, Vec<Vec<String>>>,
    /// Names of the module's own items.
    pub(crate) defined: BTreeSet<String>,
    /// Paths all of whose names are imported.
    pub(crate) globs: Vec<Vec<String>>,
    /// Code that this reader cannot follow and that is therefore refused, with its line.
    pub(crate) refused: Vec<(usize, &'static str)>,
}

impl Mentions {
    /// Adds those of another module of the same name: for another system, only one of the two is compiled.
    pub(crate) fn extend(&mut self, other: Self) {
        let Self { mentions, names, defined, globs, refused } = other;
        self.mentions.extend(mentions);
        for (name, paths) in names {
            self.names.entry(name).or_default().extend(paths);
        }
        self.defined.extend(defined);
        self.globs.extend(globs);
        self.refused.extend(refused);
    }
}

/// Returns what the items of a module mention, without those that are compiled only for tests; and all modules that it
/// declares.
pub(crate) fn of(attributes: &[Attribute], items: &[Item]) -> (Mentions, Vec<ItemMod>) {
    let mut reader = Reader::default();
    attributes.iter().for_each(|attribute| reader.visit_attribute(attribute));
    items.iter().for_each(|item| reader.visit_item(item));
    (reader.found, reader.mods)
}

const FILE_OF_ANOTHER_NAME: &str = "`#[path]`: a module whose file is not where its name says";

#[derive(Default)]
struct Reader {
    found: Mentions,
    mods: Vec<ItemMod>,
    in_attribute: bool,
}

/// Returns whether one of the attributes is exactly `#[cfg(test)]`.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        Meta::Path(_) | Meta::NameValue(_) => false,
    })
}

/// Returns the attributes of an item, and its name if it has one.
fn parts(item: &Item) -> (&[Attribute], Option<&Ident>) {
    match item {
        Item::Const(item) => (&item.attrs, Some(&item.ident)),
        Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        Item::Static(item) => (&item.attrs, Some(&item.ident)),
        Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        Item::TraitAlias(item) => (&item.attrs, Some(&item.ident)),
        Item::Type(item) => (&item.attrs, Some(&item.ident)),
        Item::Union(item) => (&item.attrs, Some(&item.ident)),
        Item::Mod(item) => (&item.attrs, Some(&item.ident)),
        Item::ExternCrate(item) => (&item.attrs, None),
        Item::ForeignMod(item) => (&item.attrs, None),
        Item::Impl(item) => (&item.attrs, None),
        Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        Item::Use(item) => (&item.attrs, None),
        _ => (&[], None),
    }
}

fn segments(path: &Path) -> Vec<String> {
    let root = path.leading_colon.map(|_| String::new());
    root.into_iter().chain(path.segments.iter().map(|segment| name(&segment.ident))).collect()
}

fn name(ident: &Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

fn is(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    if let Some(TokenTree::Ident(ident)) = token { Some(name(ident)) } else { None }
}

fn is_block(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace)
}

impl Reader {
    fn add(&mut self, path: Vec<String>, kind: Kind, line: usize) {
        if path.last().is_some_and(|last| last == "include") && kind == Kind::Path {
            self.found.refused.push((line, "`include!`: code from a file that no `mod` names"));
        }
        self.found.mentions.push(Mention { path, kind, line });
    }

    fn import(&mut self, mut prefix: Vec<String>, tree: &UseTree, seen_by_others: bool) {
        let line = tree.span().start().line;
        let (kind, glob) =
            if seen_by_others { (Kind::ReExport, Kind::ReExportedGlob) } else { (Kind::Import, Kind::Glob) };
        match tree {
            UseTree::Path(path) => {
                prefix.push(name(&path.ident));
                self.import(prefix, &path.tree, seen_by_others);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(prefix.clone(), tree, seen_by_others));
            }
            UseTree::Glob(_) => {
                self.found.globs.push(prefix.clone());
                self.add(prefix, glob, line);
            }
            UseTree::Name(leaf) => self.leaf(prefix, &name(&leaf.ident), None, kind, line),
            UseTree::Rename(leaf) => {
                self.leaf(prefix, &name(&leaf.ident), Some(name(&leaf.rename)), kind, line);
            }
        }
    }

    fn leaf(&mut self, mut path: Vec<String>, last: &str, renamed: Option<String>, kind: Kind, line: usize) {
        if last != "self" || path.is_empty() {
            path.push(last.to_owned());
        }
        if let Some(name) = renamed.or_else(|| path.last().cloned()) {
            self.found.names.entry(name).or_default().push(path.clone());
        }
        self.add(path, kind, line);
    }

    /// Reads the path that begins at a token; returns it with the index behind it.
    fn path_at(tokens: &[TokenTree], at: usize) -> (Vec<String>, usize) {
        let mut path: Vec<String> = ident(tokens.get(at)).into_iter().collect();
        let before = |back: usize| at.checked_sub(back).and_then(|at| tokens.get(at));
        let follows_type = ident(before(3)).is_some() || is(before(3), '>');
        if is(before(1), ':') && is(before(2), ':') && !follows_type {
            path.insert(0, String::new());
        }
        let mut end = at + 1;
        while is(tokens.get(end), ':') && is(tokens.get(end + 1), ':') {
            let Some(next) = ident(tokens.get(end + 2)) else { break };
            path.push(next);
            end += 3;
        }
        (path, end)
    }

    /// Reads an import inside a macro; returns the index of its semicolon.
    fn import_at(&mut self, tokens: &[TokenTree], at: usize) -> Option<usize> {
        let length = tokens[at..].iter().position(|token| is(Some(token), ';'))?;
        let is_dollar = |token: &&TokenTree| is(Some(token), '$');
        let tree: TokenStream = tokens[at + 1..at + length].iter().filter(|token| !is_dollar(token)).cloned().collect();
        let import: syn::ItemUse = syn::parse2(quoted_use(tree)).ok()?;
        self.import(import.leading_colon.map(|_| String::new()).into_iter().collect(), &import.tree, false);
        Some(at + length)
    }

    /// Reads the tokens of a macro or an attribute.
    fn scan(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Group(group) => self.visit_token_stream(&group.stream()),
                TokenTree::Literal(literal) if self.in_attribute => self.text(&Lit::new(literal.clone())),
                TokenTree::Literal(_) | TokenTree::Punct(_) => {}
                TokenTree::Ident(_) => {
                    at = self.word(tokens, at);
                    continue;
                }
            }
            at += 1;
        }
    }

    /// Reads what begins with a word: a module, an import, or a path. Returns the index behind it.
    fn word(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let line = tokens[at].span().start().line;
        let (path, end) = Self::path_at(tokens, at);
        let next = tokens.get(at + 1);
        match path[0].as_str() {
            "mod" if ident(next).is_some() && (is(tokens.get(at + 2), ';') || is_block(tokens.get(at + 2))) => {
                self.found.refused.push((line, "a module that a macro declares"));
            }
            "path" if self.in_attribute && is(next, '=') => self.found.refused.push((line, FILE_OF_ANOTHER_NAME)),
            "use" => {
                if let Some(end) = self.import_at(tokens, at) {
                    return end;
                }
            }
            _ => {}
        }
        let follows_dot = |at: usize| at.checked_sub(1).is_some_and(|before| is(tokens.get(before), '.'));
        let is_method = follows_dot(at) && !follows_dot(at - 1);
        if is_method {
            self.add(path, Kind::Method, line);
        } else if path.len() > 1 || path[0] == "include" && is(tokens.get(end), '!') {
            self.add(path, Kind::Path, line);
        }
        end
    }

    /// A text in an attribute may be a path, as in serde's `with = "a::b"`.
    fn text(&mut self, literal: &Lit) {
        if let Lit::Str(text) = literal
            && let Ok(path) = text.parse::<Path>()
            && path.segments.len() > 1
        {
            self.visit_path(&path);
        }
    }

    /// Adds `<a::B>::c` as `a::B::c`.
    fn of_type(&mut self, qualified: Option<&QSelf>, path: &Path) {
        if let Some(QSelf { ty, as_token: None, .. }) = qualified
            && let Type::Path(owner) = &**ty
        {
            let whole =
                segments(&owner.path).into_iter().chain(path.segments.iter().map(|segment| name(&segment.ident)));
            self.add(whole.collect(), Kind::Path, path.span().start().line);
        }
    }
}

fn quoted_use(tree: TokenStream) -> TokenStream {
    let word = |text: &str| TokenTree::Ident(Ident::new(text, proc_macro2::Span::call_site()));
    let end = TokenTree::Punct(proc_macro2::Punct::new(';', proc_macro2::Spacing::Alone));
    [word("use")].into_iter().chain(tree).chain([end]).collect()
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, own_name) = parts(item);
        if is_test(attributes) {
            if let Item::Mod(module) = item {
                self.mods.push(module.clone());
            }
            return;
        }
        self.found.defined.extend(own_name.map(name));
        match item {
            Item::Mod(module) => {
                module.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
                self.mods.push(module.clone());
                return;
            }
            Item::Use(import) => {
                let root = import.leading_colon.map(|_| String::new()).into_iter().collect();
                let seen_by_others = match &import.vis {
                    Visibility::Inherited => false,
                    Visibility::Restricted(limits) => !limits.path.is_ident("self") && !limits.path.is_ident("super"),
                    Visibility::Public(_) => true,
                };
                self.import(root, &import.tree, seen_by_others);
            }
            Item::ExternCrate(import) => {
                let path = vec![String::new(), name(&import.ident)];
                let path = if import.ident == "self" { vec!["crate".to_owned()] } else { path };
                let known_as = import.rename.as_ref().map_or_else(|| name(&import.ident), |(_, rename)| name(rename));
                self.found.names.entry(known_as).or_default().push(path.clone());
                self.add(path, Kind::Path, import.ident.span().start().line);
            }
            Item::Type(alias) => {
                if let Type::Path(target) = &*alias.ty {
                    self.found.names.entry(name(&alias.ident)).or_default().push(segments(&target.path));
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes: &[Attribute] = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes: &[Attribute] = match item {
            TraitItem::Const(item) => &item.attrs,
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_test(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_test(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_test(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_test(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        if attribute.path().is_ident("path") {
            let line = attribute.span().start().line;
            self.found.refused.push((line, FILE_OF_ANOTHER_NAME));
        }
        if let Meta::NameValue(pair) = &attribute.meta
            && let Expr::Lit(value) = &pair.value
        {
            self.text(&value.lit);
        }
        self.in_attribute = true;
        visit::visit_attribute(self, attribute);
        self.in_attribute = false;
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast Path) {
        self.add(segments(path), Kind::Path, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        self.of_type(path.qself.as_ref(), &path.path);
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.add(vec![name(&call.method)], Kind::Method, call.method.span().start().line);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.scan(&tokens.clone().into_iter().collect::<Vec<_>>());
    }
}
