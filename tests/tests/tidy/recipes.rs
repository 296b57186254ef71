//! The recipes of the justfile and the steps of `.ci/run` that run tests: each package and each suite that they name
//! exists, and each filter matches a test of the targets that the command selects.
//!
//! Tests are found by parsing the sources, so that nothing has to be built. Tests that a macro names are not found.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::LazyLock,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The parts of one `cargo test` command that select tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Command {
    /// Empty for the whole workspace.
    packages: Vec<String>,
    lib: bool,
    suites: Vec<String>,
    filters: Vec<String>,
}

impl Command {
    /// Parses a line of a recipe or of a shell script; `None` if it does not run `cargo test`. Arguments that just or
    /// the shell replaces are skipped.
    fn parse(line: &str) -> Option<Result<Self, String>> {
        let (_, arguments) = line.split_once("cargo test")?;
        Some(Self::arguments(arguments.split_whitespace().filter(|word| !word.contains(['{', '}', '$', '"']))))
    }

    fn arguments<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut command = Self::default();
        let mut is_workspace = false;
        while let Some(word) = words.next() {
            let mut value = || words.next().map(str::to_owned).ok_or(format!("{word} has no value"));
            match word {
                "--workspace" => is_workspace = true,
                "-p" | "--package" => command.packages.push(value()?),
                "--lib" => command.lib = true,
                "--test" => command.suites.push(value()?),
                "--" | "--no-run" | "--quiet" | "--release" | "--locked" | "--offline" | "--no-fail-fast" => {}
                "--ignored" | "--include-ignored" | "--nocapture" | "--test-threads=1" => {}
                flag if flag.starts_with('-') => return Err(format!("{flag} is not known here")),
                filter => command.filters.push(filter.to_owned()),
            }
        }
        if is_workspace == command.packages.is_empty() {
            Ok(command)
        } else {
            Err("name packages with -p, or --workspace, so that a member is never missed".to_owned())
        }
    }

    /// Returns the mistakes in the command.
    fn mistakes(&self, workspace: &Workspace) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut tests = Vec::new();
        let unknown = self.packages.iter().filter(|name| !workspace.0.contains_key(*name));
        mistakes.extend(unknown.map(|name| format!("no package {name}")));
        let packages: Vec<&Package> = (workspace.0.iter())
            .filter(|(name, _)| self.packages.is_empty() || self.packages.contains(name))
            .map(|(_, package)| package)
            .collect();
        for suite in &self.suites {
            let files: Vec<_> = packages.iter().filter_map(|package| package.suites.get(suite)).collect();
            if files.is_empty() {
                mistakes.push(format!("no suite {suite} in these packages"));
            }
            tests.extend(files.into_iter().flatten());
        }
        let is_all = self.suites.is_empty() && !self.lib;
        for package in &packages {
            if self.lib || is_all {
                tests.extend(&package.unit);
            }
            if is_all {
                tests.extend(package.suites.values().flatten());
            }
        }
        let unmatched = self.filters.iter().filter(|filter| !tests.iter().any(|test| test.contains(*filter)));
        mistakes.extend(unmatched.map(|filter| format!("no test matches {filter}")));
        if tests.is_empty() && self.filters.is_empty() {
            mistakes.push("no tests".to_owned());
        }
        mistakes
    }
}

/// The paths of a package's tests, as libtest prints them.
#[derive(Debug, Default)]
struct Package {
    unit: BTreeSet<String>,
    suites: BTreeMap<String, BTreeSet<String>>,
}

impl Package {
    fn read(folder: &Path) -> Self {
        let mut package = Self { unit: tests_below(&folder.join("src")), ..Self::default() };
        for entry in fs::read_dir(folder.join("tests")).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if path.join("main.rs").is_file() {
                package.suites.insert(name, tests_below(&path));
            } else if path.extension().is_some_and(|end| end == "rs") {
                let mut tests = tests_in(&path, &[]);
                tests.extend(tests_below(&path.with_extension("")).into_iter().map(|test| format!("{name}::{test}")));
                package.suites.insert(name, tests);
            }
        }
        package
    }
}

#[derive(Debug)]
struct Workspace(BTreeMap<String, Package>);

impl Workspace {
    fn read() -> Self {
        let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let list = text.split("members = [").nth(1).unwrap().split(']').next().unwrap();
        let mut packages = BTreeMap::new();
        let members = list.split(',').map(|member| member.trim().trim_matches('"'));
        for member in members.filter(|member| !member.is_empty()) {
            let folders = match member.strip_suffix("/*") {
                Some(parent) => fs::read_dir(root().join(parent)).unwrap().map(|entry| entry.unwrap().path()).collect(),
                None => vec![root().join(member)],
            };
            for folder in folders {
                let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
                let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"');
                packages.insert(name.to_owned(), Package::read(&folder));
            }
        }
        Self(packages)
    }
}

/// Read once for all tests of this file, because it parses every source of the workspace.
static WORKSPACE: LazyLock<Workspace> = LazyLock::new(Workspace::read);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the tests of all files below the root folder of a crate.
fn tests_below(folder: &Path) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let mut folders = vec![(folder.to_owned(), Vec::new())];
    while let Some((folder, modules)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let mut modules = modules.clone();
            if path.is_dir() {
                modules.push(name);
                folders.push((path, modules));
            } else if path.extension().is_some_and(|end| end == "rs") {
                if !["mod", "lib", "main"].contains(&&*name) {
                    modules.push(name);
                }
                tests.extend(tests_in(&path, &modules));
            }
        }
    }
    tests
}

fn tests_in(path: &Path, modules: &[String]) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let text = fs::read_to_string(path).unwrap();
    collect(TokenStream::from_str(&text).unwrap(), &mut modules.to_vec(), &mut tests);
    tests
}

/// Collects the functions with an attribute such as `#[test]` or `#[tokio::test(..)]`, also within macros.
fn collect(tokens: TokenStream, modules: &mut Vec<String>, tests: &mut BTreeSet<String>) {
    let mut is_test = false;
    let mut previous: Vec<String> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && previous.ends_with(&["#".into()]) => {
                let attribute = group.stream().to_string().replace(' ', "");
                let name = attribute.split('(').next().unwrap_or_default();
                is_test |= name == "test" || name.ends_with("::test");
            }
            TokenTree::Group(group) => {
                let module = previous.len() >= 2 && previous[previous.len() - 2] == "mod";
                if module && group.delimiter() == Delimiter::Brace {
                    modules.push(previous[previous.len() - 1].clone());
                    collect(group.stream(), modules, tests);
                    modules.pop();
                } else {
                    collect(group.stream(), modules, tests);
                }
            }
            TokenTree::Ident(name) => {
                if is_test && previous.ends_with(&["fn".into()]) {
                    tests.insert(
                        modules.iter().map(|module| format!("{module}::")).collect::<String>() + &name.to_string(),
                    );
                    is_test = false;
                }
                previous.push(name.to_string());
                continue;
            }
            TokenTree::Punct(mark) => {
                previous.push(mark.to_string());
                continue;
            }
            TokenTree::Literal(_) => {}
        }
        previous.push("_".to_owned());
    }
}

#[test]
fn every_test_command_of_a_recipe_or_of_ci_runs_tests() {
    let mut commands = 0;
    let mut wrong = Vec::new();
    for file in ["justfile", ".ci/run"] {
        for line in fs::read_to_string(root().join(file)).unwrap().lines().filter(|line| !line.trim().starts_with('#'))
        {
            let Some(command) = Command::parse(line) else { continue };
            commands += 1;
            let mistakes = command.map_or_else(|mistake| vec![mistake], |command| command.mistakes(&WORKSPACE));
            wrong.extend(mistakes.into_iter().map(|mistake| format!("{file}: {}: {mistake}", line.trim())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands >= 5, "only {commands} commands found");
}

#[test]
fn a_command_that_runs_no_tests_is_a_mistake() {
    let mistakes = |line: &str| match Command::parse(line).unwrap() {
        Ok(command) => command.mistakes(&WORKSPACE),
        Err(mistake) => vec![mistake],
    };
    assert!(mistakes("A=1 cargo test --workspace --lib -- queue:: {{ARGS}}").is_empty());
    assert_eq!(mistakes("cargo test --workspace --lib -- no_such_test queue::"), ["no test matches no_such_test"]);
    assert_eq!(mistakes("cargo test -p podium-pods --lib -- queue::"), ["no test matches queue::"]);
    assert_eq!(
        mistakes("cargo test --workspace --test no-such-suite"),
        ["no suite no-such-suite in these packages", "no tests"]
    );
    assert_eq!(
        mistakes("cargo test -p podium-pods --test embedded"),
        ["no suite embedded in these packages", "no tests"]
    );
    assert_eq!(mistakes("cargo test -p no-such-package"), ["no package no-such-package", "no tests"]);
    assert!(mistakes("cargo test --test embedded")[0].starts_with("name packages"));
    assert!(Command::parse("cargo bench").is_none());
}

#[test]
fn tests_are_found_by_their_paths() {
    let text = "#[test] fn a() {} mod b { #[tokio::test(start_paused = true)] async fn c() {} fn d() {} }
        proptest! { #![proptest_config(x)] #[test] fn e(x in 0..1) {} } #[cfg(test)] fn f() {}";
    let mut tests = BTreeSet::new();
    collect(TokenStream::from_str(text).unwrap(), &mut vec!["m".into()], &mut tests);
    assert_eq!(tests.into_iter().collect::<Vec<_>>(), ["m::a", "m::b::c", "m::e"]);
    assert!(WORKSPACE.0["podium-tests"].suites["tidy"].contains("recipes::tests_are_found_by_their_paths"));
    assert!(WORKSPACE.0["podium-engine"].unit.iter().any(|test| test.starts_with("queue::tests::")));
}
