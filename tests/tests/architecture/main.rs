//! The direction of imports: which module of the host's crates may use which, as ARCHITECTURE.md draws it, and what
//! only `app` may do. Cargo enforces that no crate uses one above it.
//!
//! `mentions` reads the paths of one module, `macros` finds those that cannot be followed, `tree` finds the modules,
//! `resolve` finds what a path means, and `judge` compares this with `tables`. `seeds` tests the guard itself.
//! `imports` has the order of imports in a file, and `authorized` the only way to an authorized write.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]
#![expect(clippy::panic, reason = "a file of the checkout that cannot be parsed is how this test fails")]

mod authorized;
mod imports;
mod judge;
mod macros;
mod mentions;
mod resolve;
mod seeds;
mod tables;
mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use judge::workspace;
use tables::{APP, CRATES, EXCEPTIONS, FORBIDDEN, LIGHT, MODULES, PASSED_ON, WHOLE};
use tree::Tree;

/// All crates of the host as they are.
static TREE: LazyLock<Tree> = LazyLock::new(|| {
    let roots: Vec<_> = CRATES.into_iter().chain(WHOLE).collect();
    Tree::read(&workspace(), &roots)
});

#[test]
fn no_module_uses_more_or_less_than_the_table_allows() {
    let verdict = judge::judge(&TREE, &judge::externs(), None);
    let list: Vec<_> = verdict.breaches.iter().collect();
    assert!(list.is_empty(), "these lines break ARCHITECTURE.md's map: {list:#?}");

    let is_used = |row: &str, entry: &str| verdict.used.contains(&(row.to_owned(), entry.to_owned()));
    let rows = MODULES.iter().flat_map(|(row, modules, crates)| {
        modules.iter().chain(*crates).filter(|entry| !is_used(row, entry)).map(move |entry| (*row, *entry))
    });
    let exceptions = EXCEPTIONS.iter().map(|(row, path, _)| (*row, *path)).filter(|(row, path)| !is_used(row, path));
    let passed = PASSED_ON.iter().map(|(row, path, _)| (*row, *path));
    let passed = passed.filter(|(row, path)| !is_used(row, &format!("pub use {path}")));
    let unused: Vec<_> = rows.chain(exceptions).chain(passed).collect();
    assert!(unused.is_empty(), "the tables allow what no line uses: {unused:#?}");
}

/// The rows of ARCHITECTURE.md's table of modules: their names, and the columns with modules and crates.
fn table() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let text = fs::read_to_string(workspace().join("ARCHITECTURE.md")).unwrap();
    let is_row =
        |line: &&str| line.starts_with("| ") && line.split('|').count() == 6 && !line.starts_with("| module |");
    let rows = text.lines().skip_while(|line| !line.starts_with("| module |")).filter(is_row);
    let list = |cell: &str| {
        let names = cell.split(',').map(|name| name.trim().trim_matches('`').to_owned());
        names.filter(|name| name != "-").collect()
    };
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').collect();
        (cells[1].trim().to_owned(), (list(cells[3]), list(cells[4])))
    })
    .collect()
}

#[test]
fn the_table_of_the_document_says_what_is_enforced() {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let enforced =
        MODULES.iter().map(|(module, modules, crates)| ((*module).to_owned(), (owned(modules), owned(crates))));
    let mut table = table();
    assert!(table.remove(APP).is_some(), "no row for {APP}");
    assert_eq!(table, enforced.collect());
}

#[test]
fn every_module_is_on_the_map_and_every_row_is_a_module() {
    let rows: BTreeSet<_> = TREE.modules.keys().map(tables::row).filter(|row| *row != tables::ROOT).collect();
    assert_eq!(rows, MODULES.iter().map(|(row, ..)| *row).chain([APP]).collect());
}

#[test]
fn every_file_is_included_by_a_module() {
    let folders = CRATES.iter().chain(&WHOLE).map(|(_, root)| Path::new(root).parent().unwrap().to_str().unwrap());
    let unreached: BTreeSet<_> = folders.flat_map(|folder| TREE.unreached(folder)).collect();
    assert!(unreached.is_empty(), "no `mod` declares {unreached:#?}");
}

#[test]
fn light_crates_are_dependencies_and_in_no_row() {
    let externs = judge::externs();
    for name in LIGHT {
        assert!(*name == "std" || externs.contains(*name), "{name} is no dependency");
        let heavy = MODULES.iter().find(|(_, _, crates)| crates.contains(name));
        assert_eq!(heavy, None, "{name} is free to all");
    }
}

#[test]
fn an_exception_is_of_something_forbidden_and_has_a_reason() {
    for (row, path, reason) in EXCEPTIONS {
        let is_forbidden = |forbidden: &&str| path.starts_with(forbidden.trim_start_matches('*'));
        assert!(FORBIDDEN.iter().any(|(_, paths)| paths.iter().any(is_forbidden)), "{path} in {row}");
        assert!(reason.split(' ').count() > 3, "{path} in {row}: {reason:?}");
    }
}

#[test]
fn the_tests_of_a_module_are_in_its_module_tests() {
    let config = Path::new(WHOLE[1].1).parent().unwrap();
    let modules = TREE.test_modules.iter().filter(|(file, name)| !file.starts_with(config) && name != "tests");
    let wrong: Vec<_> = modules.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
