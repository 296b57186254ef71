//! The paths that the production code of one module mentions, as the compiler parses them: in imports, expressions,
//! types, patterns and attributes, and in the tokens of macros. `resolve` finds the target of a path.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::{
    Attribute, Expr, ExprMethodCall, ExprPath, GenericArgument, ImplItem, Item, ItemMod, Lit, Meta, Path,
    PathArguments, QSelf, TraitItem, Type, UseTree, Visibility,
    spanned::Spanned,
    visit::{self, Visit},
};

use crate::macros;

/// The form in which code mentions a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An expression, a type, a pattern, an attribute, a part of a macro.
    Path,
    /// An import that only this module and its children see.
    Import,
    /// An import that the parent of this module sees: `pub(super)`.
    ForParent,
    /// An import that other modules see.
    ReExport,
    /// All names of the path are imported.
    Glob,
    /// As `Glob`, and the parent of this module sees them.
    GlobForParent,
    /// As `Glob`, and other modules see them.
    ReExportedGlob,
    /// The name of a method that is called, with `()` if it has no arguments; its type is unknown.
    Method,
    /// A type with the number of its arguments that are types as the last name: `HashMap`, `<2>`.
    Generic,
}

/// The modules that see an import.
#[derive(Debug, Clone, Copy)]
enum Reach {
    Module,
    Parent,
    Others,
}

impl Reach {
    fn of(visibility: &Visibility) -> Self {
        match visibility {
            Visibility::Inherited => Self::Module,
            Visibility::Restricted(limits) if limits.path.is_ident("self") => Self::Module,
            Visibility::Restricted(limits) if limits.path.is_ident("super") => Self::Parent,
            Visibility::Restricted(_) | Visibility::Public(_) => Self::Others,
        }
    }

    /// Returns the reach of an import in a macro by the tokens before its `use`.
    fn of_tokens(before: &[TokenTree]) -> Self {
        match before {
            [.., TokenTree::Ident(word)] if word == "pub" => Self::Others,
            // `$vis`: any visibility.
            [.., TokenTree::Punct(mark), TokenTree::Ident(_)] if mark.as_char() == '$' => Self::Others,
            [.., TokenTree::Ident(word), TokenTree::Group(limits)] if word == "pub" => {
                match limits.stream().to_string().as_str() {
                    "self" => Self::Module,
                    "super" => Self::Parent,
                    _ => Self::Others,
                }
            }
            _ => Self::Module,
        }
    }

    fn import(self) -> Kind {
        match self {
            Self::Module => Kind::Import,
            Self::Parent => Kind::ForParent,
            Self::Others => Kind::ReExport,
        }
    }

    fn glob(self) -> Kind {
        match self {
            Self::Module => Kind::Glob,
            Self::Parent => Kind::GlobForParent,
            Self::Others => Kind::ReExportedGlob,
        }
    }
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
    /// The names of imports and type aliases, with their paths.
    pub(crate) names: BTreeMap<String, Vec<Vec<String>>>,
    /// Names of the module's own items.
    pub(crate) defined: BTreeSet<String>,
    /// Names of the macros that it declares.
    pub(crate) macros: BTreeSet<String>,
    /// Paths all of whose names are imported.
    pub(crate) globs: Vec<Vec<String>>,
    /// Code that this reader cannot follow and that is therefore refused, with its line.
    pub(crate) refused: Vec<(usize, &'static str)>,
}

impl Mentions {
    /// Adds those of another module of the same name: for another system, only one of the two is compiled.
    pub(crate) fn extend(&mut self, other: Self) {
        let Self { mentions, names, defined, macros, globs, refused } = other;
        self.mentions.extend(mentions);
        for (name, paths) in names {
            self.names.entry(name).or_default().extend(paths);
        }
        self.defined.extend(defined);
        self.macros.extend(macros);
        self.globs.extend(globs);
        self.refused.extend(refused);
    }
}

/// Returns what the items of a module mention, without those that are compiled only for tests; and all modules that it
/// declares.
pub(crate) fn read(attributes: &[Attribute], items: &[Item]) -> (Mentions, Vec<ItemMod>) {
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
    /// The variables of the macro that is being read that may be any tokens.
    any_tokens: BTreeSet<String>,
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

pub(crate) fn is(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

pub(crate) fn ident(token: Option<&TokenTree>) -> Option<String> {
    if let Some(TokenTree::Ident(ident)) = token { Some(name(ident)) } else { None }
}

/// Returns the arguments between `<` at this index and its `>`, as the number of those that are no lifetimes, and the
/// index behind the `>`.
fn generics(tokens: &[TokenTree], at: usize) -> Option<(usize, usize)> {
    let (mut depth, mut count, mut is_empty) = (0_usize, 0_usize, true);
    for (index, token) in tokens.iter().enumerate().skip(at) {
        let is_arrow = index > 0 && is(tokens.get(index - 1), '-');
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '<' => {
                is_empty &= depth == 0;
                depth += 1;
            }
            TokenTree::Punct(mark) if mark.as_char() == '>' && !is_arrow => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((count + usize::from(!is_empty), index + 1));
                }
            }
            TokenTree::Punct(mark) if mark.as_char() == ',' && depth == 1 => {
                count += usize::from(!is_empty);
                is_empty = true;
            }
            TokenTree::Punct(mark) if mark.as_char() == ';' => return None,
            _ => is_empty &= is(Some(token), '\'') || index > 0 && is(tokens.get(index - 1), '\''),
        }
    }
    None
}

fn is_block(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace)
}

impl Reader {
    fn add(&mut self, path: Vec<String>, kind: Kind, line: usize) {
        if path.last().is_some_and(|last| last == "include") && kind != Kind::Method {
            self.found.refused.push((line, "`include!`: code from a file that no `mod` names"));
        }
        self.found.mentions.push(Mention { path, kind, line });
    }

    fn import(&mut self, mut prefix: Vec<String>, tree: &UseTree, reach: Reach) {
        let line = tree.span().start().line;
        match tree {
            UseTree::Path(path) => {
                prefix.push(name(&path.ident));
                self.import(prefix, &path.tree, reach);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(prefix.clone(), tree, reach));
            }
            UseTree::Glob(_) => {
                self.found.globs.push(prefix.clone());
                self.add(prefix, reach.glob(), line);
            }
            UseTree::Name(leaf) => self.leaf(prefix, &name(&leaf.ident), None, reach.import(), line),
            UseTree::Rename(leaf) => {
                self.leaf(prefix, &name(&leaf.ident), Some(name(&leaf.rename)), reach.import(), line);
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
            if let Some(next) = ident(tokens.get(end + 2)) {
                path.push(next);
                end += 3;
                continue;
            }
            // Arguments of a type, and more of the path after them.
            let after = is(tokens.get(end + 2), '<').then(|| generics(tokens, end + 2)).flatten();
            match after.filter(|(_, after)| is(tokens.get(*after), ':') && ident(tokens.get(after + 2)).is_some()) {
                Some((_, after)) => end = after,
                None => break,
            }
        }
        (path, end)
    }

    /// Reads an import inside a macro; returns the index of its semicolon.
    fn import_at(&mut self, tokens: &[TokenTree], at: usize) -> Option<usize> {
        let length = tokens[at..].iter().position(|token| is(Some(token), ';'))?;
        if macros::has_variable(&tokens[at..at + length]) {
            self.found.refused.push((tokens[at].span().start().line, macros::BUILT));
        }
        let is_dollar = |token: &&TokenTree| is(Some(token), '$');
        let tree: TokenStream = tokens[at + 1..at + length].iter().filter(|token| !is_dollar(token)).cloned().collect();
        let import: syn::ItemUse = syn::parse2(quoted_use(tree)).ok()?;
        let root = import.leading_colon.map(|_| String::new()).into_iter().collect();
        self.import(root, &import.tree, Reach::of_tokens(&tokens[..at]));
        Some(at + length)
    }

    /// Reads the name of a type alias inside a macro.
    fn alias_at(&mut self, tokens: &[TokenTree], at: usize) {
        if let Some(name) = ident(tokens.get(at + 1))
            && is(tokens.get(at + 2), '=')
        {
            let (path, _) = Self::path_at(tokens, at + if is(tokens.get(at + 3), ':') { 5 } else { 3 });
            self.found.names.entry(name).or_default().push(path);
        }
    }

    /// Reads the names that follow a path in a macro: `::*` or `::{a, b}`. Without them this is no import.
    fn names_at(&mut self, path: &[String], tokens: &[TokenTree], end: usize) {
        if !is(tokens.get(end), ':') || !is(tokens.get(end + 1), ':') {
            return;
        }
        let Some(names) = tokens.get(end + 2).filter(|token| is(Some(token), '*') || is_block(Some(token))) else {
            return;
        };
        if let Ok(tree) = syn::parse2::<UseTree>(names.clone().into()) {
            self.import(path.to_vec(), &tree, Reach::Others);
        }
    }

    /// Reads the arguments of a type in a macro.
    fn generics_at(&mut self, path: &[String], tokens: &[TokenTree], end: usize) {
        let at = if is(tokens.get(end), ':') && is(tokens.get(end + 1), ':') { end + 2 } else { end };
        if is(tokens.get(at), '<')
            && let Some((count, _)) = generics(tokens, at)
        {
            let line = tokens[at].span().start().line;
            let path = path.iter().cloned().chain([format!("<{count}>")]).collect();
            self.add(path, Kind::Generic, line);
        }
    }

    /// Reads the tokens of a macro or an attribute.
    fn scan(&mut self, tokens: &[TokenTree]) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            match token {
                TokenTree::Group(group) => self.visit_token_stream(&group.stream()),
                TokenTree::Literal(literal) if self.in_attribute => self.text(&Lit::new(literal.clone())),
                TokenTree::Punct(mark)
                    if mark.as_char() == '$' && macros::builds_name(tokens, at, &self.any_tokens) =>
                {
                    self.found.refused.push((mark.span().start().line, macros::BUILT));
                }
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
            "macro_rules" if is(next, '!') => self.found.refused.push((line, macros::DECLARED)),
            "macro_use" if self.in_attribute => self.found.refused.push((line, macros::USED)),
            "macro_export" if self.in_attribute => self.found.refused.push((line, macros::EXPORTED)),
            "extern" if ident(next).is_some_and(|word| word == "crate") => {
                self.found.refused.push((line, macros::NAMED));
            }
            "type" => self.alias_at(tokens, at),
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
            let called = [method(&path.concat(), tokens.get(end))];
            self.add(called.to_vec(), Kind::Method, line);
            return end;
        }
        self.generics_at(&path, tokens, end);
        self.names_at(&path, tokens, end);
        if is(tokens.get(end), '.')
            && let (Some(called), Some(TokenTree::Group(_))) = (ident(tokens.get(end + 1)), tokens.get(end + 2))
        {
            let called = path.iter().cloned().chain([called]).collect();
            self.add(called, Kind::Path, line);
        }
        if path[0] != "include" || path.len() > 1 || is(tokens.get(end), '!') {
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

/// Returns the name of a method as it is mentioned, by its arguments.
fn method(name: &str, arguments: Option<&TokenTree>) -> String {
    let is_empty = matches!(arguments, Some(TokenTree::Group(group)) if group.stream().is_empty());
    if is_empty { format!("{name}()") } else { name.to_owned() }
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
                self.import(root, &import.tree, Reach::of(&import.vis));
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
            Item::Macro(item) => {
                self.any_tokens = macros::any_tokens(&item.mac.tokens);
                self.found.macros.extend(item.ident.iter().map(name));
            }
            _ => {}
        }
        visit::visit_item(self, item);
        self.any_tokens.clear();
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
        if attribute.path().is_ident("path") || attribute.path().is_ident("r#path") {
            let line = attribute.span().start().line;
            self.found.refused.push((line, FILE_OF_ANOTHER_NAME));
        }
        for (name, refused) in [("macro_use", macros::USED), ("macro_export", macros::EXPORTED)] {
            if attribute.path().is_ident(name) {
                self.found.refused.push((attribute.span().start().line, refused));
            }
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
        let line = path.span().start().line;
        self.add(segments(path), Kind::Path, line);
        let root = path.leading_colon.map(|_| String::new());
        let mut owner: Vec<String> = root.into_iter().collect();
        for segment in &path.segments {
            owner.push(name(&segment.ident));
            if let PathArguments::AngleBracketed(arguments) = &segment.arguments {
                let count =
                    arguments.args.iter().filter(|argument| matches!(argument, GenericArgument::Type(_))).count();
                let generic = owner.iter().cloned().chain([format!("<{count}>")]).collect();
                self.add(generic, Kind::Generic, line);
            }
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        self.of_type(path.qself.as_ref(), &path.path);
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        let line = call.method.span().start().line;
        let called = name(&call.method);
        if let Expr::Path(receiver) = &*call.receiver {
            let path = segments(&receiver.path).into_iter().chain([called.clone()]).collect();
            self.add(path, Kind::Path, line);
        }
        let called = if call.args.is_empty() { format!("{called}()") } else { called };
        self.add(vec![called], Kind::Method, line);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.scan(&tokens.clone().into_iter().collect::<Vec<_>>());
    }
}
