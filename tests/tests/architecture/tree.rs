//! The modules of a crate, found as the compiler finds them: from its root along the `mod` declarations.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Item, ItemMod};

use crate::mentions::{self, Mentions, is_test};

/// The place of a module: its crate and the names of the modules from the crate's root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) root: &'static str,
    pub(crate) names: Vec<String>,
}

impl Place {
    pub(crate) fn new(root: &'static str, names: &[&str]) -> Self {
        Self { root, names: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    pub(crate) fn child(&self, name: &str) -> Self {
        Self { root: self.root, names: self.names.iter().cloned().chain([name.to_owned()]).collect() }
    }

    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, names) = self.names.split_last()?;
        Some(Self { root: self.root, names: names.to_vec() })
    }
}

/// The production code of one module.
#[derive(Debug, Clone)]
pub(crate) struct Module {
    pub(crate) file: PathBuf,
    pub(crate) mentions: Mentions,
}

/// All modules of the crates.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) modules: BTreeMap<Place, Module>,
    /// Files that a `mod` declaration names, those of tests included.
    reached: BTreeSet<PathBuf>,
    /// Modules that are compiled only for tests: file of the declaration and name.
    pub(crate) test_modules: Vec<(PathBuf, String)>,
    /// Code that this reader refuses to follow: file, line and reason.
    pub(crate) refused: Vec<String>,
    /// Where files are; empty while one file is read again with other text.
    workspace: PathBuf,
}

/// A file or an inline module that is being read.
struct Unit<'a> {
    place: Place,
    file: &'a Path,
    /// The folder in which the files of its child modules are.
    folder: PathBuf,
}

impl Tree {
    /// Reads the crates with these roots: name, and file of the root in the workspace.
    pub(crate) fn read(workspace: &Path, roots: &[(&'static str, &str)]) -> Self {
        let mut tree = Self { workspace: workspace.to_owned(), ..Self::default() };
        for (name, file) in roots {
            let file = Path::new(file);
            let folder = file.parent().unwrap().to_owned();
            tree.file(&Unit { place: Place::new(name, &[]), file, folder }, false);
        }
        tree
    }

    /// Returns this tree with another text in one file. Modules that the text declares have to exist already.
    pub(crate) fn with(&self, file: &str, text: &str) -> Self {
        let mut tree = Self { refused: Vec::new(), workspace: PathBuf::new(), ..self.clone() };
        let of_file = self.modules.iter().filter(|(_, module)| module.file == Path::new(file));
        let place = of_file.map(|(place, _)| place).min_by_key(|place| place.names.len()).unwrap().clone();
        let parsed = syn::parse_file(text).unwrap();
        tree.modules.retain(|_, module| module.file != Path::new(file));
        tree.unit(&Unit { place, file: Path::new(file), folder: PathBuf::new() }, &parsed.attrs, &parsed.items, false);
        tree
    }

    /// Returns the Rust files of a folder that no `mod` declaration names.
    pub(crate) fn unreached(&self, folder: &str) -> Vec<PathBuf> {
        let mut folders = vec![PathBuf::from(folder)];
        let mut unreached = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.workspace.join(&folder)).unwrap() {
                let path = folder.join(entry.unwrap().file_name());
                if self.workspace.join(&path).is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "rs") && !self.reached.contains(&path) {
                    unreached.push(path);
                }
            }
        }
        unreached
    }

    fn file(&mut self, unit: &Unit<'_>, for_tests: bool) {
        self.reached.insert(unit.file.to_owned());
        let text = fs::read_to_string(self.workspace.join(unit.file)).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", unit.file.display()));
        self.unit(unit, &parsed.attrs, &parsed.items, for_tests);
    }

    fn unit(&mut self, unit: &Unit<'_>, attributes: &[Attribute], items: &[Item], for_tests: bool) {
        let (mentions, declared) = mentions::read(attributes, items);
        for module in &declared {
            self.module(unit, module, for_tests || is_test(&module.attrs));
        }
        if !for_tests {
            let file = unit.file.display();
            self.refused.extend(mentions.refused.iter().map(|(line, what)| format!("{file}:{line}: {what}")));
            let empty = || Module { file: unit.file.to_owned(), mentions: Mentions::default() };
            self.modules.entry(unit.place.clone()).or_insert_with(empty).mentions.extend(mentions);
        }
    }

    fn module(&mut self, parent: &Unit<'_>, module: &ItemMod, for_tests: bool) {
        let name = module.ident.to_string().trim_start_matches("r#").to_owned();
        if is_test(&module.attrs) {
            self.test_modules.push((parent.file.to_owned(), name.clone()));
        }
        let folder = parent.folder.join(&name);
        let place = parent.place.child(&name);
        if let Some((_, items)) = &module.content {
            self.unit(&Unit { place, file: parent.file, folder }, &[], items, for_tests);
            return;
        }
        if self.workspace.as_os_str().is_empty() {
            return;
        }
        let files = [folder.with_extension("rs"), folder.join("mod.rs")];
        let exists = |file: &&PathBuf| self.workspace.join(file).is_file();
        match files.iter().find(exists) {
            Some(file) => self.file(&Unit { place, file, folder }, for_tests),
            None => self.refused.push(format!("{}: no file of the module {name}", parent.file.display())),
        }
    }
}
