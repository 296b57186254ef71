//! The direction of imports: which module of the host and of its two crates may use which, as ARCHITECTURE.md draws it.
//! Cargo enforces that no crate knows one above it.

#![expect(clippy::unwrap_used, reason = "a file of the checkout that cannot be read is how this test fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Module -> (modules it may know, heavy crates it may know). Light crates (std, serde, serde_json, thiserror, tracing,
/// futures' combinators, parking_lot, bytes, rand) are free to all.
const MODULES: &[(&str, &[&str], &[&str])] = &[
    ("sync", &[], &["arc_swap", "tokio::sync"]),
    ("model", &[], &[]),
    ("encoding", &["sync", "model"], &[]),
    ("pod", &["model", "encoding"], &[]),
    ("dump", &["model", "encoding", "pod"], &[]),
    ("cache", &["model", "encoding", "pod", "sync"], &["imbl"]),
    ("wake", &["model", "pod"], &[]),
    ("testing", &["model", "pod", "cache"], &[]),
    ("authz", &["model"], &[]),
    ("fixtures", &["model", "pod", "ports"], &[]),
    ("ports", &["model", "pod", "authz"], &[]),
    ("backoff", &[], &[]),
    ("clock", &[], &["tokio::time"]),
    ("intervals", &[], &["tokio::time"]),
    ("status", &["model", "ports"], &[]),
    ("queue", &["sync"], &["tokio::time", "tokio::select"]),
    ("frames", &[], &[]),
    ("journal", &["model", "pod", "frames"], &["tokio::time", "tokio::sync"]),
    ("memory", &[], &["tokio"]),
    ("dispatch", &["sync", "model", "pod", "ports", "queue", "cache", "status", "clock", "journal"], &["tokio::time"]),
    ("ingest", &["model", "pod", "cache", "wake", "ports", "dispatch", "journal", "memory"], &["tokio"]),
    ("api", &["model"], &["kube", "tokio::time", "http", "http_body_util", "hyper_util", "tower"]),
    ("watch", &["model", "encoding", "pod", "api"], &["tokio", "http"]),
    ("live", &["model", "pod", "ports", "api"], &["http"]),
    ("writeback", &["model", "encoding", "pod", "authz", "ports", "api"], &["tokio", "http"]),
    (
        "runtime",
        &["model", "pod", "authz", "ports"],
        &["wasmtime", "wasmtime_wasi", "wasmparser", "tokio", "seccompiler"],
    ),
    ("checkpoint", &["model", "encoding", "pod", "dump", "frames"], &[]),
    ("config", &["model"], &[]),
    ("telemetry", &["model", "status", "ports"], &["prometheus_client", "tracing_subscriber"]),
    ("admin", &["telemetry"], &["axum", "tokio", "hyper", "hyper_util"]),
];
/// The crates of the host, from the ground up.
const CRATES: [(&str, &str); 3] =
    [("podium_pods", "host/pods/src"), ("podium_engine", "host/engine/src"), ("podium_host", "host/src")];
/// Pure helpers that every module may know.
const FREE: &[&str] = &["backoff", "intervals"];
/// Built by main alone; it may know everything.
const APP: &str = "app";
const HEAVY: &[&str] = &[
    "kube",
    "k8s_openapi",
    "wasmtime",
    "wasmtime_wasi",
    "wasmparser",
    "seccompiler",
    "tokio",
    "axum",
    "http",
    "http_body_util",
    "hyper",
    "hyper_util",
    "tower",
    "prometheus_client",
    "tracing_subscriber",
    "arc_swap",
    "imbl",
    "serde_saphyr",
    "clap",
    "jiff",
    "rustls",
    "anyhow",
];
/// Who may start tasks and threads.
const SPAWNS: &[(&str, &[&str])] = &[
    ("tokio::spawn", &[APP]),
    ("task::spawn", &[APP]),
    ("thread::spawn", &[APP, "runtime"]),
    ("thread::Builder", &[APP, "runtime"]),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources() -> impl Iterator<Item = PathBuf> {
    CRATES.iter().map(|(_, folder)| workspace().join(folder))
}

/// The production files of a module: tests of a module may use what they like.
fn files(module: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        sources().map(|source| source.join(format!("{module}.rs"))).filter(|file| file.exists()).collect();
    let mut folders: Vec<_> = sources().map(|source| source.join(module)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "module {module} has no files");
    files.sort();
    files
}

/// A file that its parent includes under `#[cfg(test)]`, or whose parent is such a file.
fn is_test(path: &Path) -> bool {
    let folder = path.parent().unwrap();
    let is_folder = path.ends_with("mod.rs");
    let module = if is_folder { folder } else { path }.file_stem().unwrap().to_string_lossy().into_owned();
    let around = if is_folder { folder.parent().unwrap() } else { folder };
    let parents = [around.join("mod.rs"), around.with_extension("rs")];
    parents.iter().filter(|parent| *parent != path && parent.is_file()).any(|parent| {
        let text = fs::read_to_string(parent).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let declared = [format!("mod {module};"), format!("pub(super) mod {module};")];
        let is_declared = |line: &str| declared.iter().any(|declared| declared == line);
        lines.windows(2).any(|pair| pair[0] == "#[cfg(test)]" && is_declared(pair[1]))
            || lines.iter().any(|line| is_declared(line)) && is_test(parent)
    })
}

/// The code of a file without comments, strings and code that is compiled only for tests.
fn code(path: &Path) -> String {
    production(&fs::read_to_string(path).unwrap())
}

fn production(text: &str) -> String {
    let mut code = String::new();
    append(TokenStream::from_str(text).unwrap(), &mut code);
    code
}

fn append(tokens: TokenStream, code: &mut String) {
    let mut tokens = tokens.into_iter().peekable();
    // From `#[cfg(test)]` to the end of the item.
    let mut skipping = false;
    while let Some(token) = tokens.next() {
        if matches!((&token, tokens.peek()), (TokenTree::Punct(first), Some(TokenTree::Punct(second)))
            if first.as_char() == '#' && second.as_char() == '!')
        {
            // An attribute of the whole file, and no item begins with it.
            tokens.nth(1);
            continue;
        }
        if let (TokenTree::Punct(mark), Some(TokenTree::Group(attribute))) = (&token, tokens.peek())
            && mark.as_char() == '#'
        {
            let attribute = attribute.stream().to_string();
            skipping |= attribute.replace(' ', "") == "cfg(test)";
            // A doc comment is an attribute too; no attribute names a module.
            tokens.next();
            continue;
        }
        match token {
            TokenTree::Group(group) if skipping => skipping = group.delimiter() != Delimiter::Brace,
            TokenTree::Punct(mark) if skipping => skipping = mark.as_char() != ';',
            _ if skipping => {}
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => (" ", " "),
                };
                code.push_str(open);
                append(group.stream(), code);
                code.push_str(close);
            }
            TokenTree::Punct(mark) => code.push(mark.as_char()),
            TokenTree::Ident(_) | TokenTree::Literal(_) => {
                if code.ends_with(|last: char| last.is_alphanumeric() || last == '_') {
                    code.push(' ');
                }
                match token {
                    TokenTree::Ident(name) => code.push_str(&name.to_string()),
                    _ => code.push('_'),
                }
            }
        }
    }
}

/// Every path that the code names: `a::b::c`, and each leaf of `use a::{b, c::d}`.
fn paths(code: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let is_word = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    for word in code.split(|character: char| !is_word(character)).filter(|word| word.contains("::")) {
        paths.insert(word.trim_start_matches(':').to_owned());
    }
    for statement in code.split(';') {
        // The last `use` before the semicolon that is no end of a word.
        let Some(at) = statement.rfind("use ") else { continue };
        if !statement[..at].ends_with(|last: char| last.is_alphanumeric() || last == '_') {
            leaves("", statement[at + 4..].trim(), &mut paths);
        }
    }
    paths
}

fn leaves(prefix: &str, tree: &str, paths: &mut BTreeSet<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let leaf = tree.split(" as ").next().unwrap_or_default().trim();
        paths.insert(format!("{prefix}{leaf}"));
        return;
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0, 0);
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[start..at].trim().is_empty() {
                    leaves(&prefix, inner[start..at].trim(), paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn breaches(module: &str, modules: &[&str], crates: &[&str], code: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    for path in paths(code) {
        let mut parts = path.split("::");
        let first = parts.next().unwrap_or_default();
        if first == "crate" || CRATES.iter().any(|(name, _)| *name == first) {
            let other = parts.next().unwrap_or_default();
            // The root of a use tree, `crate::`, is judged by its leaves.
            if !other.is_empty() && other != module && !modules.contains(&other) && !FREE.contains(&other) {
                breaches.push(path);
            }
        } else if HEAVY.contains(&first) {
            let second = format!("{first}::{}", parts.next().unwrap_or_default());
            let is_root = path.ends_with("::");
            if !is_root && !crates.contains(&first) && !crates.contains(&second.as_str()) {
                breaches.push(path);
            }
        }
    }
    breaches
}

#[test]
fn no_module_of_the_host_knows_more_than_the_map_allows() {
    let mut found = BTreeMap::new();
    let mut unused = Vec::new();
    for (module, modules, crates) in MODULES {
        let mut used = BTreeSet::new();
        for file in files(module) {
            let code = code(&file);
            used.extend(paths(&code));
            let breaches = breaches(module, modules, crates, &code);
            if !breaches.is_empty() {
                found.insert(file.strip_prefix(workspace()).unwrap().to_owned(), breaches);
            }
        }
        let is_used = |name: &str| {
            used.iter()
                .any(|path| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
        };
        let roots = || CRATES.iter().map(|(name, _)| *name).chain(["crate"]);
        let modules = modules.iter().filter(|other| !roots().any(|root| is_used(&format!("{root}::{other}"))));
        unused.extend(
            modules.chain(crates.iter().filter(|name| !is_used(name))).map(|name| format!("{name} in {module}")),
        );
    }
    assert!(found.is_empty(), "these lines break ARCHITECTURE.md's map: {found:#?}");
    assert!(unused.is_empty(), "the map allows what no line uses: {unused:#?}");
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
fn every_module_is_on_the_map() {
    let libs: String = sources().map(|source| fs::read_to_string(source.join("lib.rs")).unwrap()).collect();
    let declared =
        libs.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let unknown: Vec<_> =
        declared.filter(|module| *module != APP && !MODULES.iter().any(|(known, ..)| known == module)).collect();
    assert!(unknown.is_empty(), "not on the map: {unknown:?}");
}

/// The group of each import before the first item: 0 for std, 1 for other crates and child modules, 2 for the file's
/// own crate.
fn import_groups(text: &str) -> Vec<u8> {
    const ITEMS: [&str; 10] =
        ["fn ", "struct ", "enum ", "trait ", "impl", "const ", "static ", "type ", "async ", "macro_rules"];
    let is_item = |line: &&str| {
        let line = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        ITEMS.iter().any(|item| line.starts_with(item)) || line.starts_with("mod ") && line.ends_with('{')
    };
    let head = text.lines().take_while(|line| !is_item(line));
    let roots = head.filter_map(|line| line.strip_prefix("use ")).map(|path| path.split([':', ';', ' ']).next());
    roots
        .map(|root| match root {
            Some("std" | "core" | "alloc") => 0,
            Some("crate" | "self" | "super") => 2,
            _ => 1,
        })
        .collect()
}

#[test]
fn imports_are_std_then_other_crates_then_this_crate() {
    let mut wrong = Vec::new();
    let mut folders = vec![workspace()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let groups = import_groups(&fs::read_to_string(&path).unwrap());
                let std = groups.iter().filter(|group| **group == 0).count();
                if !groups.is_sorted() || std > 1 {
                    wrong.push(path);
                }
            }
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "one `use std::{{..}}`, then other crates, then crate, self and super: {wrong:#?}");
    let flat = "use std::fs;\nuse std::io;\nuse crate::a;\nuse serde::Serialize;\nfn f() {}\nuse std::path;\n";
    assert_eq!(import_groups(flat), [0, 0, 2, 1]);
}

#[test]
fn tasks_and_threads_are_spawned_through_their_one_door() {
    let modules = MODULES.iter().map(|(module, ..)| *module).chain([APP]);
    for module in modules {
        for file in files(module) {
            let code = code(&file);
            for (call, doors) in SPAWNS {
                assert!(!code.contains(call) || doors.contains(&module), "{call} in {}", file.display());
            }
        }
    }
}

#[test]
fn the_map_is_not_blind() {
    let breach = |module, code: &str| {
        let (_, modules, crates) = MODULES.iter().find(|(known, ..)| *known == module).unwrap();
        breaches(module, modules, crates, &production(code))
    };
    assert_eq!(breach("cache", "use crate::{model::{Change, Page}, queue::Queue};"), ["crate::queue::Queue"]);
    assert_eq!(breach("wake", "fn f() { kube::Client::try_default(); }"), ["kube::Client::try_default"]);
    assert_eq!(breach("queue", "use tokio::{time::Instant, net::TcpListener};"), ["tokio::net::TcpListener"]);
    assert_eq!(breach("dispatch", "use wasmtime as engine;"), ["wasmtime"]);
    assert!(breach("api", "use crate::model::Revision; use kube::Client;").is_empty());
}

#[test]
fn the_map_reads_whole_files_except_for_tests_comments_and_texts() {
    let text = "//! crate::a\n#[cfg(test)]\nmod tests;\n/// crate::b\nfn f() { \"crate::c\"; } // crate::d\n\
                #[cfg(test)]\nmod more { fn g() -> crate::e { x }\n }\n#[cfg(test)]\nuse crate::h;\n\
                use crate::queue::Queue as _;\nfn i() { select! { () = crate::j() => tokio::spawn(k) } }";
    assert_eq!(
        production(text),
        "fn f(){_;}use crate::queue::Queue as _;fn i(){select!{()=crate::j()=>tokio::spawn(k)}}"
    );
    // The first one of these declares its tests at its head, so that a reader of heads sees nothing of it.
    for file in ["src/watch/mod.rs", "src/writeback/mod.rs", "src/checkpoint/mod.rs", "engine/src/journal/mod.rs"] {
        let code = code(&workspace().join("host").join(file));
        assert!(code.len() > 2_000, "{file}: {code}");
    }
}

#[test]
fn test_files_are_those_included_under_cfg_test_and_what_they_include() {
    let host = workspace().join("host");
    for file in ["src/watch/tests/mod.rs", "src/watch/tests/list.rs", "src/writeback/plan/tests.rs"] {
        assert!(is_test(&host.join(file)), "{file}");
    }
    for file in ["src/watch/mod.rs", "src/watch/resume.rs", "src/writeback/plan.rs", "src/lib.rs"] {
        assert!(!is_test(&host.join(file)), "{file}");
    }
}

#[test]
fn the_tests_of_a_module_are_in_its_module_tests() {
    let mut wrong = Vec::new();
    for file in MODULES.iter().flat_map(|(module, ..)| files(module)) {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let name = |line: &str| Some(line.split_once("mod ")?.1.trim_end_matches([';', '{', ' ']).to_owned());
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            let Some(name) = name(pair[1]).filter(|name| name != "tests") else { continue };
            let folder = file.parent().and_then(Path::file_name).unwrap().to_string_lossy();
            wrong.push(format!("{folder}/{}: {name}", file.file_name().unwrap().to_string_lossy()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
