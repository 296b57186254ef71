//! Compares what modules mention with the tables.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    macros,
    mentions::{Kind, Mention},
    resolve::{self, Target},
    tables::{
        APP, CRATES, EXCEPTIONS, FORBIDDEN, FREE, LIGHT, MODULES, PASSED_ON, ROOT, Row, SYSTEM_TIMES, WHOLE, row,
    },
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

/// Returns the names of a manifest's dependencies, in each form of a table.
pub(crate) fn dependencies(manifest: &str) -> Vec<String> {
    const TABLE: &str = "dependencies";
    let plain = |name: &str| name.trim().trim_matches(['"', '\'']).replace('-', "_");
    let first = |line: &str| plain(line.split(['.', ' ', '=']).next().unwrap_or_default());
    let is_end = |before: &str| before.is_empty() || before.ends_with('.');
    let mut names = Vec::new();
    let (mut in_table, mut is_top) = (false, true);
    for line in manifest.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.split(']').next().unwrap_or_default().trim();
            in_table = table.strip_suffix(TABLE).is_some_and(is_end);
            let one = table.rsplit_once(&format!("{TABLE}.")).filter(|(before, _)| is_end(before));
            names.extend(one.map(|(_, name)| plain(name)));
            is_top = false;
        } else if in_table {
            names.push(first(line));
        } else if is_top && let Some(rest) = line.strip_prefix(TABLE) {
            let name = rest.trim_start().strip_prefix('.');
            names.push(first(name.unwrap_or_else(|| panic!("write a table instead of {line}")).trim_start()));
        }
    }
    names
}

/// Judges the modules of a tree, or those in one file.
pub(crate) fn judge(tree: &Tree, externs: &BTreeSet<String>, only: Option<&str>) -> Verdict {
    let mut verdict = Verdict { breaches: tree.refused.iter().cloned().collect(), ..Verdict::default() };
    let is_read = |module: &Module| only.is_none_or(|file| module.file == Path::new(file));
    for (place, module) in tree.modules.iter().filter(|(_, module)| is_read(module)) {
        for (of, line) in macros::escapes(tree, place, module) {
            let at = format!("{}:{line}", of.file.display());
            verdict.breaches.insert(format!("{at}: a macro that another module can call"));
        }
        let has_system_time = has_system_time(tree, externs, place, module);
        for mention in &module.mentions.mentions {
            let at = format!("{}:{}", module.file.display(), mention.line);
            verdict.mention(tree, externs, place, mention, &at);
            if has_system_time && mention.kind == Kind::Method && mention.path == ["elapsed()"] && row(place) != APP {
                verdict.action(row(place), "std::time::SystemTime::elapsed", &at);
            }
        }
    }
    verdict
}

/// Returns whether a module has values of `SystemTime`, by the type, its constant or a file's times. In such a module
/// any call of `elapsed` may read the clock.
fn has_system_time(tree: &Tree, externs: &BTreeSet<String>, place: &Place, module: &Module) -> bool {
    module.mentions.mentions.iter().any(|mention| {
        if mention.kind == Kind::Method {
            return SYSTEM_TIMES.contains(&mention.path.concat().as_str());
        }
        let is_named = mention.path.iter().any(|name| name == "SystemTime" || name == "UNIX_EPOCH");
        is_named
            && resolve::targets(tree, externs, place, mention)
                .iter()
                .any(|target| matches!(target, Target::Other(path) if path.starts_with(&["std".into(), "time".into()])))
    })
}

/// The names that a mention passes on to modules outside of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passes {
    Nothing,
    Item,
    All,
}

fn passes(place: &Place, kind: Kind) -> Passes {
    // The parent of a row is the root of its crate, which shows everything to the other rows.
    let is_top = place.names.len() <= 1;
    match kind {
        Kind::ReExport => Passes::Item,
        Kind::ReExportedGlob => Passes::All,
        Kind::ForParent if is_top => Passes::Item,
        Kind::GlobForParent if is_top => Passes::All,
        _ => Passes::Nothing,
    }
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
        let passes = passes(place, mention.kind);
        for target in resolve::targets(tree, externs, place, mention) {
            match target {
                Target::Other(path) if mention.kind == Kind::Generic => self.action(own, &path.join("::"), at),
                Target::Own(_) if mention.kind == Kind::Generic => {}
                Target::Own(to) => self.module(tree, &permitted, &to, passes, at),
                Target::Other(path) => self.other(&permitted, &path.join("::"), passes, at),
            }
        }
    }

    fn module(&mut self, tree: &Tree, (own, modules, _): &Row, to: &Place, passes: Passes, at: &str) {
        let other = row(to);
        let path = || [to.root].into_iter().chain(to.names.iter().map(String::as_str)).collect::<Vec<_>>().join("::");
        if other == *own {
            return;
        }
        if to.names.is_empty() {
            self.breaches.insert(format!("{at}: {}: the root of a crate instead of a module", path()));
        } else if !modules.contains(&other) && !FREE.contains(&other) {
            self.breaches.insert(format!("{at}: {own} may not use {}", path()));
        } else if passes != Passes::Nothing && tree.modules.contains_key(to) {
            self.breaches.insert(format!("{at}: {own} passes the module {} on", path()));
        }
        self.used.insert(((*own).to_owned(), other.to_owned()));
    }

    fn other(&mut self, (own, _, crates): &Row, path: &str, passes: Passes, at: &str) {
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
        } else if passes == Passes::All || passes == Passes::Item && is_module {
            self.breaches.insert(format!("{at}: {own} passes {path} on"));
        }
        self.used.extend(permitted.into_iter().map(|entry| ((*own).to_owned(), (*entry).to_owned())));
    }

    /// Checks a path against what only `app` does.
    fn action(&mut self, own: &str, path: &str, at: &str) {
        let is = |forbidden: &str| match forbidden.strip_prefix('*') {
            Some(end) => path.ends_with(end),
            None if forbidden.ends_with("()") => path == forbidden,
            None if forbidden.starts_with('.') => path.starts_with(forbidden),
            None => begins(path, forbidden),
        };
        for (what, paths) in FORBIDDEN {
            if !paths.iter().any(|forbidden| is(forbidden)) {
                continue;
            }
            // A module that may use files may use all methods of paths and files.
            let is_of_files = path.ends_with("()") || path.starts_with("std::path::");
            let permits = |permitted: &str| {
                begins(path.trim_end_matches("()"), permitted)
                    || is_of_files && *what == "files" && permitted == "std::fs"
            };
            match EXCEPTIONS.iter().find(|(module, permitted, _)| *module == own && permits(permitted)) {
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
