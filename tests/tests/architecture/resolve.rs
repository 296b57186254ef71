//! The target of a path: a module of the host's crates, or a name in another crate.

use std::collections::BTreeSet;

use crate::{
    mentions::{Kind, Mention, Mentions},
    tables::{CRATES, row},
    tree::{Module, Place, Tree},
};

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A place in a crate of the host: the module, or an item by its name.
    Own(Place),
    /// A path that begins with the name of another crate; `core` and `alloc` are `std`.
    Other(Vec<String>),
}

/// Names that begin a path for one place, to stop at imports that lead to themselves.
type Seen = BTreeSet<(Place, String)>;

/// Returns the targets of a mention in a place: more than one if the name is imported more than once, or if another
/// row passes an item on; none if it is a name of the module itself.
pub(crate) fn targets(tree: &Tree, externs: &BTreeSet<String>, place: &Place, mention: &Mention) -> BTreeSet<Target> {
    let near = Resolver { tree, externs, row: Some(row(place)) };
    let far = Resolver { tree, externs, row: None };
    // An item of another crate that a row passes on belongs to this row's interface.
    let passed_on = far.targets(place, mention).into_iter().filter(|target| matches!(target, Target::Own(_)));
    near.targets(place, mention).into_iter().chain(passed_on).collect()
}

struct Resolver<'a> {
    /// The row of the module with the mention, if only imports in this row are followed.
    row: Option<&'a str>,
    tree: &'a Tree,
    externs: &'a BTreeSet<String>,
}

impl Resolver<'_> {
    fn targets(&self, place: &Place, mention: &Mention) -> Vec<Target> {
        match (&*mention.path, mention.kind) {
            // A path of one name can be the name of a crate only in an import.
            ([name], Kind::Path) => {
                let mut found = self.member(place, name, &mut Seen::new());
                found.extend(self.of_globs(place, name, &mut Seen::new()));
                found
            }
            (path, _) => self.path(place, path, &mut Seen::new()),
        }
    }

    fn path(&self, place: &Place, path: &[String], seen: &mut Seen) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        match first.as_str() {
            "" => match rest.split_first() {
                Some((name, rest)) => {
                    self.external(name).into_iter().flat_map(|to| self.walk(to, rest, seen)).collect()
                }
                None => Vec::new(),
            },
            "crate" => self.walk(Target::Own(Place::new(place.root, &[])), rest, seen),
            "self" | "super" => {
                let from = if first == "super" { place.parent() } else { None };
                let from = from.unwrap_or_else(|| place.clone());
                match rest.first().map(String::as_str) {
                    Some("self" | "super") => self.path(&from, rest, seen),
                    _ => self.walk(Target::Own(from), rest, seen),
                }
            }
            name => self.name(place, name, seen).into_iter().flat_map(|to| self.walk(to, rest, seen)).collect(),
        }
    }

    /// Returns all that the first name of a path may be: an item or import of the module may be in the scope of another
    /// block only, so it hides neither a crate of its name nor another import.
    fn name(&self, place: &Place, name: &str, seen: &mut Seen) -> Vec<Target> {
        let mut found = self.member(place, name, seen);
        found.extend(self.external(name));
        found.extend(self.of_globs(place, name, seen));
        found
    }

    /// Returns the module of a place, if its imports count.
    fn module(&self, place: &Place) -> Option<&Mentions> {
        let is_followed = self.row.is_none_or(|own| row(place) == own);
        self.tree.modules.get(place).filter(|_| is_followed).map(|module| &module.mentions)
    }

    /// Returns the targets of a name in a module: a child, and imports of that name.
    fn member(&self, place: &Place, name: &str, seen: &mut Seen) -> Vec<Target> {
        let child = place.child(name);
        let mut found: Vec<_> =
            self.tree.modules.contains_key(&child).then_some(Target::Own(child)).into_iter().collect();
        let visit = (place.clone(), name.to_owned());
        if let Some(module) = self.module(place)
            && seen.insert(visit.clone())
        {
            let imports = module.names.get(name).into_iter().flatten();
            found.extend(imports.flat_map(|path| self.path(place, path, seen)));
            seen.remove(&visit);
        }
        found
    }

    /// Returns the same name in each module of which a module imports all names.
    fn of_globs(&self, place: &Place, name: &str, seen: &mut Seen) -> Vec<Target> {
        let Some(module) = self.module(place) else { return Vec::new() };
        let visit = (place.clone(), format!("{name}::*"));
        if !seen.insert(visit.clone()) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for glob in &module.globs {
            for target in self.path(place, glob, seen) {
                match target {
                    Target::Own(of) => {
                        found.extend(self.member(&of, name, seen));
                        found.extend(self.of_globs(&of, name, seen));
                        let defines = |module: &&Module| module.mentions.defined.contains(name);
                        found.extend(self.tree.modules.get(&of).filter(defines).map(|_| Target::Own(of.child(name))));
                    }
                    Target::Other(mut path) => {
                        path.push(name.to_owned());
                        found.push(Target::Other(path));
                    }
                }
            }
        }
        seen.remove(&visit);
        found
    }

    fn external(&self, name: &str) -> Option<Target> {
        if let Some((root, _)) = CRATES.iter().find(|(root, _)| *root == name) {
            return Some(Target::Own(Place::new(root, &[])));
        }
        match name {
            "std" | "core" | "alloc" => Some(Target::Other(vec!["std".to_owned()])),
            _ => self.externs.contains(name).then(|| Target::Other(vec![name.to_owned()])),
        }
    }

    /// Follows the rest of a path.
    fn walk(&self, from: Target, rest: &[String], seen: &mut Seen) -> Vec<Target> {
        let Some((next, others)) = rest.split_first() else { return vec![from] };
        let place = match from {
            Target::Other(path) => {
                return vec![Target::Other(path.into_iter().chain(rest.iter().cloned()).collect())];
            }
            Target::Own(place) => place,
        };
        let mut members = self.member(&place, next, seen);
        members.extend(self.of_globs(&place, next, seen));
        if members.is_empty() {
            let names = place.names.iter().chain(rest).cloned().collect();
            return vec![Target::Own(Place { root: place.root, names })];
        }
        members.into_iter().flat_map(|to| self.walk(to, others, seen)).collect()
    }
}
