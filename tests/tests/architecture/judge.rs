//! Compares what modules mention with the tables.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    mentions::{Kind, Mention},
    resolve::{self, Target},
    tables::{APP, CRATES, EXCEPTIONS, FORBIDDEN, FREE, LIGHT, MODULES, PASSED_ON, ROOT, Row, WHOLE, row},
    tree::{Module, Place, Tree},
};

/// Lines that break the tables, and the entries of the tables that some line uses.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) breaches: BTreeSet<String>,
    pub(crate) used: BTreeSet<(String, String)>,
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the names by which code calls the dependencies of the crates.
pub(crate) fn externs() -> BTreeSet<String> {
    let manifests = CRATES.iter().chain(&WHOLE).map(|(_, root)| {
        let folder = Path::new(root).parent().and_then(Path::parent).unwrap();
        fs::read_to_string(workspace().join(folder).join("Cargo.toml")).unwrap()
    });
    manifests.flat_map(|manifest| dependencies(&manifest)).collect()
}

fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_dependencies = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_dependencies = line == "[dependencies]" || line.ends_with(".dependencies]");
        } else if is_dependencies && line.starts_with(|first: char| first.is_ascii_alphabetic()) {
            names.extend(line.split(['.', ' ', '=']).next().map(|name| name.replace('-', "_")));
        }
    }
    names
}

/// Judges the modules of a tree, or those in one file.
pub(crate) fn judge(tree: &Tree, externs: &BTreeSet<String>, only: Option<&str>) -> Verdict {
    let mut verdict = Verdict { breaches: tree.refused.iter().cloned().collect(), ..Verdict::default() };
    let is_read = |module: &Module| only.is_none_or(|file| module.file == Path::new(file));
    for (place, module) in tree.modules.iter().filter(|(_, module)| is_read(module)) {
        for mention in &module.mentions.mentions {
            let at = format!("{}:{}", module.file.display(), mention.line);
            verdict.mention(tree, externs, place, mention, &at);
        }
    }
    verdict
}

/// Returns whether a path is another one or begins with it.
fn begins(path: &str, start: &str) -> bool {
    path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

impl Verdict {
    fn mention(&mut self, tree: &Tree, externs: &BTreeSet<String>, place: &Place, mention: &Mention, at: &str) {
        let own = row(place);
        if own == APP {
            return;
        }
        let permitted = MODULES.iter().find(|(module, ..)| *module == own).copied();
        let Some(permitted) = permitted.or((own == ROOT).then_some((ROOT, &[], &[]))) else {
            let file = at.split(':').next().unwrap_or_default();
            self.breaches.insert(format!("{file}: the module {own} is not in the table"));
            return;
        };
        if mention.kind == Kind::Method {
            self.action(own, &format!(".{}", mention.path.join("::")), at);
            return;
        }
        for target in resolve::targets(tree, externs, place, mention) {
            match target {
                Target::Own(to) => self.module(tree, &permitted, &to, mention, at),
                Target::Other(path) => self.other(&permitted, &path.join("::"), mention, at),
            }
        }
    }

    fn module(&mut self, tree: &Tree, (own, modules, _): &Row, to: &Place, mention: &Mention, at: &str) {
        let other = row(to);
        let path = || [to.root].into_iter().chain(to.names.iter().map(String::as_str)).collect::<Vec<_>>().join("::");
        if other == *own {
            return;
        }
        let shows = matches!(mention.kind, Kind::ReExport | Kind::ReExportedGlob);
        if to.names.is_empty() {
            self.breaches.insert(format!("{at}: {}: the root of a crate instead of a module", path()));
        } else if !modules.contains(&other) && !FREE.contains(&other) {
            self.breaches.insert(format!("{at}: {own} may not use {}", path()));
        } else if shows && tree.modules.contains_key(to) {
            self.breaches.insert(format!("{at}: {own} passes the module {} on", path()));
        }
        self.used.insert(((*own).to_owned(), other.to_owned()));
    }

    fn other(&mut self, (own, _, crates): &Row, path: &str, mention: &Mention, at: &str) {
        self.action(own, path, at);
        let name = path.split("::").next().unwrap_or_default();
        if LIGHT.contains(&name) {
            return;
        }
        let permitted: Vec<_> = crates.iter().filter(|permitted| begins(path, permitted)).collect();
        if permitted.is_empty() {
            self.breaches.insert(format!("{at}: {own} may not use {path}"));
        }
        let last = path.rsplit("::").next().unwrap_or_default();
        let is_module = last.starts_with(|first: char| first.is_lowercase());
        if let Some((row, entry, _)) = PASSED_ON.iter().find(|(row, entry, _)| row == own && *entry == path) {
            self.used.insert(((*row).to_owned(), format!("pub use {entry}")));
        } else if mention.kind == Kind::ReExportedGlob || mention.kind == Kind::ReExport && is_module {
            self.breaches.insert(format!("{at}: {own} passes {path} on"));
        }
        self.used.extend(permitted.into_iter().map(|entry| ((*own).to_owned(), (*entry).to_owned())));
    }

    /// Checks a path against what only `app` does.
    fn action(&mut self, own: &str, path: &str, at: &str) {
        let is = |forbidden: &str| match forbidden.strip_prefix('*') {
            Some(end) => path.ends_with(end),
            None if forbidden.starts_with('.') => path.starts_with(forbidden),
            None => begins(path, forbidden),
        };
        for (what, paths) in FORBIDDEN {
            if !paths.iter().any(|forbidden| is(forbidden)) {
                continue;
            }
            match EXCEPTIONS.iter().find(|(module, permitted, _)| *module == own && begins(path, permitted)) {
                Some((module, permitted, _)) => {
                    self.used.insert(((*module).to_owned(), (*permitted).to_owned()));
                }
                None => {
                    self.breaches.insert(format!("{at}: {own} may not use {path}: {what}"));
                }
            }
        }
    }
}
