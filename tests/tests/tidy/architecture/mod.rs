//! The map of ARCHITECTURE.md is true: the crates and what each uses, the modules, and the exceptions from what crates
//! below the application may do. Cargo enforces the direction of crates, and clippy what they may call.
//!
//! `imports` has the order of imports in a file, and `authorized` the only way to an authorized write.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

mod authorized;
mod exceptions;
mod imports;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The crates below the application, which may do neither IO nor anything that a simulation cannot repeat.
const BELOW_APP: [&str; 14] = [
    "guest-sdk/wire",
    "guest-sdk/workloads",
    "guest-sdk/vocabulary",
    "guest-sdk/config",
    "host/registry",
    "host/sync",
    "host/encoding",
    "host/pods",
    "host/engine",
    "host/api",
    "host/runtime",
    "host/writeback",
    "host/life",
    "host/lease",
];
/// Those that decide by one function of a state and an event, without waiting for anything.
const AUTOMATA: [&str; 3] = ["host/life", "host/lease", "guest-sdk/workloads"];
/// The application.
const APP: &str = "host";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: impl AsRef<Path>) -> String {
    fs::read_to_string(workspace().join(file)).unwrap()
}

/// Returns all Rust files below a folder.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let nested = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(nested).filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// Returns the rows of all tables of ARCHITECTURE.md with this first column.
fn rows(first: &str) -> Vec<Vec<String>> {
    let text = read("ARCHITECTURE.md");
    let mut rows = Vec::new();
    for table in text.split("\n\n").filter(|table| table.starts_with(&format!("| {first} |"))) {
        for line in table.lines().skip(2) {
            rows.push(line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect());
        }
    }
    rows
}

/// Returns Podium's crates among the dependencies of a crate.
fn used_by(folder: &str) -> BTreeSet<String> {
    let manifest = read(format!("{folder}/Cargo.toml"));
    let dependencies = manifest.split("\n[").find(|table| table.starts_with("dependencies]")).unwrap();
    let names = dependencies.lines().map(|line| line.split(['.', ' ']).next().unwrap());
    names.filter(|name| name.starts_with("podium-")).map(str::to_owned).collect()
}

#[test]
fn the_table_of_crates_says_what_each_uses() {
    let mut table = BTreeMap::new();
    for row in rows("crate") {
        let [name, folder, _, uses] = &row[..] else { panic!("{row:?}") };
        assert!(read(format!("{folder}/Cargo.toml")).contains(&format!("name = \"{name}\"")), "{name} is in {folder}");
        let uses = uses.split(", ").filter(|used| *used != "-").map(|used| format!("podium-{used}"));
        table.insert(folder.clone(), uses.collect::<BTreeSet<_>>());
    }
    let manifests = BELOW_APP.iter().chain([&APP]).map(|folder| ((*folder).to_owned(), used_by(folder)));
    assert_eq!(table, manifests.collect());
}

/// A plugin's own tests build all of these crates: the vocabulary and the reader of configurations, and nothing of the
/// host's network, tasks or sandbox.
#[test]
fn the_sdk_needs_few_crates_and_no_runtime() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["tree", "--offline", "--locked", "-p", "podium-sdk", "-e", "normal", "--prefix", "none"];
    let tree = Command::new(cargo).args(arguments).current_dir(workspace()).output().unwrap();
    let text = String::from_utf8(tree.stdout).unwrap();
    let crates: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains("podium-vocabulary"), "{}", String::from_utf8_lossy(&tree.stderr));
    assert!(crates.len() <= 47, "{}: {crates:?}", crates.len());
    assert!(!["tokio", "kube", "wasmtime", "hyper"].iter().any(|heavy| crates.contains(heavy)), "{crates:?}");
}

#[test]
fn every_module_has_a_row_and_every_row_is_a_module() {
    let named: BTreeSet<String> = rows("module").into_iter().map(|row| row[0].clone()).collect();
    let mut declared = BTreeSet::new();
    for folder in ["host/pods", "host/engine", APP] {
        for line in read(format!("{folder}/src/lib.rs")).lines() {
            let module = line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|name| name.strip_suffix(';'));
            declared.extend(module.map(str::to_owned));
        }
    }
    assert_eq!(named, declared);
}

#[test]
fn every_file_is_included_by_a_module() {
    let mut unreached = Vec::new();
    for folder in BELOW_APP.iter().chain([&APP]) {
        let root = workspace().join(folder).join("src");
        for file in sources(&root) {
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let module = if stem == "mod" { file.parent().unwrap() } else { &file };
            if ["lib", "main"].contains(&stem) {
                continue;
            }
            let name = module.file_stem().unwrap().to_str().unwrap();
            let above = module.parent().unwrap();
            let parents =
                [above.join("lib.rs"), above.join("main.rs"), above.join("mod.rs"), above.with_extension("rs")];
            let is_declared = |parent: &PathBuf| {
                let text = fs::read_to_string(parent).unwrap_or_default();
                text.lines().any(|line| line.trim().ends_with(&format!("mod {name};")))
            };
            if !parents.iter().any(is_declared) {
                unreached.push(file);
            }
        }
    }
    assert!(unreached.is_empty(), "no `mod` declares {unreached:#?}");
}

#[test]
fn the_automata_neither_wait_nor_lock() {
    const WAITS: [&str; 6] = ["async ", ".await", "Mutex", "RwLock", "Condvar", "block_on"];
    let mut files = 0;
    for folder in AUTOMATA {
        for file in sources(&workspace().join(folder).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let found: Vec<_> = code.filter(|line| WAITS.iter().any(|word| line.contains(word))).collect();
            assert!(found.is_empty(), "{}: {found:?}", file.display());
            files += 1;
        }
    }
    assert!(files > 30, "{files} files");
}

/// Returns the variants of `State` in the life of a plugin.
fn states() -> BTreeSet<String> {
    let text = read("host/life/src/plugin.rs");
    let body = text.split_once("enum State<P: Parts> {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    let is_variant =
        |line: &&str| line.starts_with("    ") && line.as_bytes().get(4).is_some_and(u8::is_ascii_uppercase);
    let name = |line: &str| line.trim_start().split([',', ' ']).next().unwrap_or_default().to_owned();
    body.lines().filter(is_variant).map(name).collect()
}

#[test]
fn the_diagram_has_the_states_of_a_plugins_life_and_no_others() {
    let text = read("ARCHITECTURE.md");
    let diagram = text.split_once("stateDiagram-v2\n").unwrap().1.split_once("```").unwrap().0;
    let mut drawn = BTreeSet::new();
    for (from, rest) in diagram.lines().filter_map(|line| line.split_once(" --> ")) {
        drawn.extend([from.trim(), rest.split(':').next().unwrap().trim()].map(str::to_owned));
    }
    // Where a life begins and ends, and the name of all of them.
    assert!(drawn.remove("[*]") && drawn.remove("Any"), "{drawn:?}");
    let mut states = states();
    assert!(states.remove("Gone"), "{states:?}");
    assert_eq!(drawn, states);
}
