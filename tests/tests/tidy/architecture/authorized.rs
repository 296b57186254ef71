//! No build has a way around the authorization of writes: `authorize` is the only maker of authorized values, and no
//! cfg or feature changes what the host's crates check.

use std::{collections::BTreeSet, fs};

use syn::{Expr, ItemImpl, ItemType, Type, UseRename, visit::Visit};

use crate::architecture::{APP, BELOW_APP, sources, workspace};

/// The conditions of code of the host: the system that it is built for, and whether it is a test.
const CONDITIONS: [&str; 8] = ["all", "any", "not", "test", "target_arch", "target_env", "target_os", "unix"];
/// Also compiled for the model checkers, which replaces cells and locks and nothing else.
const MODELLED: &str = "host/sync/src";

/// Returns the names in all cfg predicates of a text.
fn conditions(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for opening in ["cfg(", "cfg_attr(", "cfg!("] {
        let is_begin = |at: &usize| !text[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        for at in text.match_indices(opening).map(|(at, _)| at).filter(is_begin) {
            let rest = &text[at + opening.len()..];
            let mut depth = 1;
            let end = rest.find(|character| {
                depth += match character {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                depth == 0
            });
            let mut predicate = &rest[..end.unwrap_or(rest.len())];
            if opening == "cfg_attr(" {
                predicate = predicate.split(',').next().unwrap_or_default();
            }
            let outside_of_quotes = predicate.split('"').step_by(2);
            let words = outside_of_quotes
                .flat_map(|part| part.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
            names.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
    names
}

/// The places of a file that make an authorized value or name its constructor, and other names of the type, by which
/// one could be made.
#[derive(Default)]
struct Makers {
    within_impl: bool,
    found: Vec<&'static str>,
}

fn is_authorized(path: &syn::Path) -> bool {
    path.segments.last().is_some_and(|last| last.ident == "Authorized")
}

impl Makers {
    fn in_text(text: &str) -> Vec<&'static str> {
        let mut makers = Self::default();
        makers.visit_file(&syn::parse_file(text).unwrap());
        makers.found
    }

    fn is_constructor(&self, path: &syn::Path) -> bool {
        is_authorized(path) || (self.within_impl && path.is_ident("Self"))
    }
}

impl<'ast> Visit<'ast> for Makers {
    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let is_of_it = matches!(&*item.self_ty, Type::Path(path) if is_authorized(&path.path));
        let before = std::mem::replace(&mut self.within_impl, is_of_it);
        syn::visit::visit_item_impl(self, item);
        self.within_impl = before;
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::Path(path) if self.is_constructor(&path.path) => self.found.push("constructor"),
            Expr::Struct(literal) if self.is_constructor(&literal.path) => self.found.push("literal"),
            _ => {}
        }
        syn::visit::visit_expr(self, expression);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        if matches!(&*item.ty, Type::Path(path) if is_authorized(&path.path)) {
            self.found.push("alias");
        }
        syn::visit::visit_item_type(self, item);
    }

    fn visit_use_rename(&mut self, rename: &'ast UseRename) {
        if rename.ident == "Authorized" {
            self.found.push("other name");
        }
    }
}

#[test]
fn every_way_to_make_an_authorized_value_is_found() {
    let within = |item: &str| Makers::in_text(&format!("impl<T> Authorized<T> {{ {item} }}"));
    assert_eq!(within("pub fn forge(value: T) -> Self { Self(value) }"), ["constructor"]);
    assert_eq!(within("pub fn forge(value: T) -> Self { Self { 0: value } }"), ["literal"]);
    assert_eq!(within("pub fn value(&self) -> &T { &self.0 }"), [""; 0]);
    assert_eq!(Makers::in_text("fn forge(value: u8) -> Authorized<u8> { Authorized { 0: value } }"), ["literal"]);
    assert_eq!(
        Makers::in_text("fn forge(value: Option<u8>) -> Option<Authorized<u8>> { value.map(Authorized) }"),
        ["constructor"]
    );
    assert_eq!(Makers::in_text("type Open<T> = super::Authorized<T>;"), ["alias"]);
    assert_eq!(Makers::in_text("use super::Authorized as Open;"), ["other name"]);
    assert_eq!(Makers::in_text("struct Other(u8); impl Other { fn new() -> Self { Self(1) } }"), [""; 0]);
}

#[test]
fn authorize_is_the_only_maker_of_an_authorized_value() {
    let files = sources(&workspace().join("guest-sdk/vocabulary/src/authz"));
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let all = texts.concat();
    assert!(all.contains("pub struct Authorized<T>(T);"), "its field is private");
    assert!(all.contains("Ok(Authorized(value))"), "at the end of authorize");
    let makers: Vec<_> = texts.iter().flat_map(|text| Makers::in_text(text)).collect();
    assert_eq!(makers, ["constructor"]);
    let by_trait = ["for Authorized", "Default for", "transmute", "unsafe", "macro_rules"];
    assert!(by_trait.iter().all(|way| !all.contains(way)), "another way to make one");
    let derived = all.split("pub struct Authorized").next().and_then(|before| before.rsplit("#[derive(").next());
    assert_eq!(derived.map(str::trim), Some("Debug, Clone, PartialEq)]"));
}

#[test]
fn no_cfg_and_no_feature_changes_what_the_host_checks() {
    // The Pod record leaves JSON out of components, and holds no check.
    for folder in BELOW_APP.iter().chain([&APP]).filter(|folder| **folder != "guest-sdk/wire") {
        for file in sources(&workspace().join(folder).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("cfg_select"), "{}: its conditions are not read", file.display());
            let mut names = conditions(&text);
            if file.starts_with(workspace().join(MODELLED)) {
                names.remove("podium_model");
            }
            names.retain(|name| !CONDITIONS.contains(&&**name));
            assert!(names.is_empty(), "{}: {names:?}", file.display());
        }
        let manifest = workspace().join(folder).join("Cargo.toml");
        let features = fs::read_to_string(&manifest).unwrap().lines().any(|line| line.replace(' ', "") == "[features]");
        assert!(!features, "{}", manifest.display());
    }
}

#[test]
fn a_condition_is_found_however_it_is_written() {
    let found = |text| conditions(text).into_iter().collect::<Vec<_>>();
    assert_eq!(found("#[cfg(podium_unguarded)] fn f() {}"), ["podium_unguarded"]);
    assert_eq!(found("if cfg!(all(test, not(feature = \"open\"))) {}"), ["all", "feature", "not", "test"]);
    assert_eq!(found("#[cfg_attr(target_os = \"linux\", expect(unsafe_code))]"), ["target_os"]);
}
