//! The guard against itself: one seeded line in a file of the host, which has to break the tables, or must not.

use std::fs;

use crate::{
    TREE,
    judge::{dependencies, externs, judge, workspace},
    tables::{EXCEPTIONS, MODULES},
    tree::Tree,
};

/// Returns the breaches in one file with more text at its end.
fn seeded(file: &str, more: &str) -> Vec<String> {
    let text = fs::read_to_string(workspace().join(file)).unwrap();
    let tree = TREE.with(file, &format!("{text}\n{more}\n"));
    judge(&tree, &externs(), Some(file)).breaches.into_iter().collect()
}

const LIVE: &str = "host/src/live.rs";
const LIST: &str = "host/src/watch/list.rs";
const WATCH: &str = "host/src/watch/mod.rs";
const LIB: &str = "host/src/lib.rs";
const MAIN: &str = "host/src/main.rs";
const WAKE: &str = "host/engine/src/wake.rs";
const QUEUE: &str = "host/engine/src/queue/mod.rs";
const STATUS: &str = "host/engine/src/status/mod.rs";
const CONFIG: &str = "host/src/config/mod.rs";
const API: &str = "host/src/api.rs";
const SCHEMA: &str = "guest-sdk/config/src/schema.rs";
const DISPATCH: &str = "host/engine/src/dispatch/mod.rs";
const GATE: &str = "host/engine/src/dispatch/gate.rs";
const WRITEBACK: &str = "podium_host::writeback";
const BUILT: &str = "a name that a macro builds";
const OF_ANOTHER: &str = "a macro that another module can call";

/// Lines that have to be refused: file, text, and a part of the message.
const RED: &[(&str, &str, &str)] = &[
    // Paths from another module of the same crate.
    (LIVE, "use crate::writeback::apply;", WRITEBACK),
    (LIVE, "use super::writeback::apply;", WRITEBACK),
    (LIST, "use super::super::writeback::apply;", WRITEBACK),
    (LIST, "use self::super::super::writeback::apply;", WRITEBACK),
    (LIVE, "fn z() { crate::writeback::apply(); }", WRITEBACK),
    (LIVE, "fn z() -> Vec<crate::writeback::Plan> { vec![] }", WRITEBACK),
    (LIVE, "impl super::writeback::Z for u8 {}", WRITEBACK),
    (LIVE, "fn z(a: u8) { if let super::writeback::A = a {} }", WRITEBACK),
    (LIVE, "mod z { use super::super::writeback::apply; }", WRITEBACK),
    (LIVE, "mod z { fn f() { use crate::writeback::apply; } }", WRITEBACK),
    (WAKE, "use crate::{model::{Change, Page}, queue::Queue};", "podium_pods::queue::Queue"),
    // Other names for a crate or a module.
    (LIVE, "use crate as host; fn z() { host::writeback::apply(); }", WRITEBACK),
    (LIVE, "use crate as host;", "the root of a crate"),
    (LIVE, "use crate::*;", "the root of a crate"),
    (LIVE, "use podium_engine as engine; fn z() { engine::queue::Queue::new(); }", "podium_engine::queue"),
    (LIVE, "extern crate podium_engine as engine; use engine::queue::Queue;", "podium_engine::queue"),
    (LIVE, "extern crate self as host; use host::writeback::apply;", WRITEBACK),
    (LIVE, "extern crate kube as k;", "live may not use kube"),
    (LIVE, "mod z { use super::k; use k::Client; } use kube as k;", "kube::Client"),
    (LIVE, "use podium_engine::{queue::Queue, ports::Cause as Reason};", "podium_engine::queue::Queue"),
    (LIVE, "use {podium_engine::{queue::Queue}};", "podium_engine::queue::Queue"),
    (LIVE, "use ::podium_engine::queue::Queue as _;", "podium_engine::queue::Queue"),
    (LIVE, "type Z = podium_engine::queue::Queue;", "podium_engine::queue::Queue"),
    (STATUS, "pub use podium_pods::pod;", "passes the module"),
    (API, "pub use kube;", "passes kube on"),
    (API, "pub use kube::*;", "passes kube on"),
    (API, "pub(super) use kube;", "passes kube on"),
    (API, "pub(super) use kube::*;", "passes kube on"),
    (API, "pub(in crate) use kube;", "passes kube on"),
    (STATUS, "pub(super) use podium_pods::pod;", "passes the module"),
    (STATUS, "m! { pub use podium_pods::pod; }", "passes the module"),
    (STATUS, "m! { pub(crate) use podium_pods::pod; }", "passes the module"),
    (STATUS, "m! { $vis use podium_pods::pod; }", "passes the module"),
    // Files and macros.
    (WATCH, "#[path = \"../writeback/plan.rs\"] mod z;", "#[path]"),
    (WATCH, "#[cfg_attr(unix, path = \"../writeback/plan.rs\")] mod z;", "#[path]"),
    (LIVE, "include!(\"../writeback/plan.rs\");", "include!"),
    (LIVE, "fn z() { std::include!(\"../writeback/plan.rs\"); }", "include!"),
    (LIVE, "fn z() { vec![include!(\"../writeback/plan.rs\")]; }", "include!"),
    (LIVE, "#[derive(kube::CustomResource)] struct Z;", "kube::CustomResource"),
    (LIVE, "#[cfg_attr(unix, derive(kube::CustomResource))] struct Z;", "kube::CustomResource"),
    (LIVE, "#[kube::z] struct Z;", "kube::z"),
    (LIVE, "#[derive(Serialize)] struct Z(#[serde(with = \"crate::writeback::z\")] u8);", WRITEBACK),
    (LIVE, "fn z() { select! { () = crate::writeback::z() => {} } }", WRITEBACK),
    (LIVE, "macro_rules! z { () => { $crate::writeback::z() } }", WRITEBACK),
    (LIVE, "macro_rules! z { () => { use $crate::{live::A, writeback::z}; } }", WRITEBACK),
    (LIVE, "z! { mod y { use super::super::writeback::z; } }", "a macro declares"),
    (LIVE, "kube::z!();", "kube::z"),
    (LIVE, "z! { use std::thread::*; fn y() { spawn(x); } }", "std::thread::spawn: tasks"),
    (LIVE, "use std::thread::*; fn z() { vec![spawn(y)]; }", "std::thread::spawn: tasks"),
    (LIVE, "z!(std::thread::*); fn z() { spawn(y); }", "std::thread::spawn: tasks"),
    (LIVE, "z!(use std::thread::*); fn z() { spawn(y); }", "std::thread::spawn: tasks"),
    (LIVE, "z!(use std::{thread::{scope as a, spawn as b}});", "std::thread::spawn: tasks"),
    (LIVE, "z!(podium_engine::{ports, queue::*});", "podium_engine::queue"),
    (LIVE, "z!(Vec::<Option<u8>>::new(), std::thread::Builder::<u8>::new());", "std::thread::Builder::new: tasks"),
    (LIVE, "use std::include as z; z!(\"../writeback/plan.rs\");", "include!"),
    (LIVE, "use std::{fmt, include as z};", "include!"),
    (LIVE, "fn z() { use core::include; }", "include!"),
    (LIVE, "z! { use std::include as z; }", "include!"),
    (LIVE, "z! { use std::{include as z}; }", "include!"),
    (LIVE, "z! { type T = std::time::SystemTime; fn z() { T::now(); } }", "the clock"),
    (LIVE, "z! { extern crate tokio as t; fn z() { t::spawn(y); } }", "a crate that a macro names"),
    // Names that a macro puts together where it is called.
    (WATCH, "macro_rules! z { ($a:ident, $b:ident) => { $a::$b(y()) } } z!(tokio, spawn);", BUILT),
    (WATCH, "macro_rules! z { ($b:ident) => { tokio::$b(y()) } } z!(spawn);", BUILT),
    (WATCH, "macro_rules! z { ($a:ident) => { $a::spawn(y()) } } z!(tokio);", BUILT),
    (WATCH, "macro_rules! z { ($($a:ident)::*) => { $($a)::*(y()) } } z!(tokio::spawn);", BUILT),
    (WATCH, "macro_rules! z { ($a:ty) => { <$a>::now() } } z!(std::time::SystemTime);", BUILT),
    (WATCH, "macro_rules! z { ($a:ident) => { $a!(\"a\") } } z!(include);", BUILT),
    (WATCH, "macro_rules! z { ($a:ident) => { y().$a(x()) } } z!(spawn);", BUILT),
    (WATCH, "macro_rules! z { ($a:tt, $b:tt, $c:tt) => { $a $b $c (y()) } } z!(tokio, ::, spawn);", BUILT),
    (WATCH, "macro_rules! z { ($($a:tt)*) => { $($a)* spawn(y()) } } z!(tokio::);", BUILT),
    (WATCH, "macro_rules! z { ($a:ident) => { use $a as b; b::spawn(y()) } } z!(tokio);", BUILT),
    (WATCH, "macro_rules! z { ($a:ident) => { use std::{$a}; } } z!(thread);", BUILT),
    (WATCH, "macro_rules! z { ($a:ident) => { mod $a {} } }", BUILT),
    (WATCH, "z! { macro_rules! y { () => {} } }", "a macro that a macro declares"),
    // Macros that expand to paths where they are called.
    (LIB, "#[macro_use] mod z;", "`#[macro_use]`"),
    (LIB, "#[cfg_attr(unix, macro_use)] mod z;", "`#[macro_use]`"),
    (LIB, "#[macro_use] extern crate tokio;", "`#[macro_use]`"),
    (WATCH, "#[macro_export] macro_rules! z { () => { super::writeback::z() } }", "`#[macro_export]`"),
    (WATCH, "macro_rules! z { () => { super::writeback::z() } } mod y { fn x() { z!(); } }", OF_ANOTHER),
    (WATCH, "macro_rules! z { () => { super::writeback::z() } } mod y { w!(z); }", OF_ANOTHER),
    (WATCH, "macro_rules! z { () => { t::spawn(x()) } } pub(crate) use z;", OF_ANOTHER),
    (WATCH, "macro_rules! z { () => { t::spawn(x()) } } use z as y;", OF_ANOTHER),
    (LIB, "macro_rules! z { () => { t::spawn(x()) } } mod live { z!(); }", OF_ANOTHER),
    // Modules, imports and items of the name of a crate, or of an imported name.
    (WATCH, "fn z() { use std::fmt as tokio; } fn y() { tokio::spawn(x()); }", "tokio::spawn: tasks"),
    (WATCH, "fn z() { mod tokio {} } fn y() { tokio::spawn(x()); }", "tokio::spawn: tasks"),
    (WATCH, "mod tokio { pub fn spawn() {} } fn y() { tokio::spawn(x()); }", "tokio::spawn: tasks"),
    (WATCH, "fn z() { type std = u8; } fn y() { std::thread::spawn(x); }", "std::thread::spawn: tasks"),
    (WATCH, "mod z {} fn y() { use tokio as z; z::spawn(x()); }", "tokio::spawn: tasks"),
    (WATCH, "use std::thread::*; fn z() { fn spawn() {} } fn y() { spawn(x); }", "std::thread::spawn: tasks"),
    (WATCH, "use std::thread::*; #[cfg(windows)] fn spawn() {} fn y() { spawn(x); }", "std::thread::spawn: tasks"),
    (WATCH, "use std::thread::*; fn z() { use fmt::spawn; } fn y() { spawn(x); }", "std::thread::spawn: tasks"),
    (LIVE, "mod kube { pub struct A; } fn z() { kube::A; }", "live may not use kube::A"),
    // Beside code that is compiled only for tests.
    (LIVE, "enum Z { #[cfg(test)] A, B(crate::writeback::Plan) }", WRITEBACK),
    (LIVE, "struct Z { #[cfg(test)] a: u8, b: crate::writeback::Plan }", WRITEBACK),
    (LIVE, "#[cfg(not(test))] use crate::writeback::Plan;", WRITEBACK),
    (LIVE, "#[cfg(any(test, unix))] use crate::writeback::Plan;", WRITEBACK),
    (LIVE, "#[cfg(test)] use crate::a; fn z() { crate::writeback::z() }", WRITEBACK),
    // Tasks and threads.
    (WATCH, "use tokio::{spawn, time}; fn z() { spawn(y()); }", "tokio::spawn: tasks"),
    (WATCH, "use std::thread::{Builder, spawn};", "std::thread::spawn: tasks"),
    (WATCH, "use std::thread as t; fn z() { t::spawn(y); }", "std::thread::spawn: tasks"),
    (WATCH, "use std::thread::*; fn z() { spawn(y); }", "std::thread::spawn: tasks"),
    (WATCH, "use tokio::task::{spawn_blocking, JoinSet};", "tokio::task::JoinSet: tasks"),
    (WATCH, "use tokio::task::{spawn_blocking, JoinSet};", "tokio::task::spawn_blocking: tasks"),
    (WATCH, "fn z() { tokio::runtime::Handle::current().spawn(y()); }", ".spawn: tasks"),
    (WATCH, "fn z(a: A) { a.spawn_blocking(y); }", ".spawn_blocking: tasks"),
    (WATCH, "fn z(a: A) { vec![a.spawn(y)]; }", ".spawn: tasks"),
    (WATCH, "fn z() { std::thread::scope(y); }", "std::thread::scope: tasks"),
    (WATCH, "fn z() { rayon::spawn(y); }", "rayon::spawn: tasks"),
    // The other calls that only `app` may make.
    (LIVE, "fn z() { std::time::SystemTime::now(); }", "the clock"),
    (LIVE, "use std::time::*; fn z() { SystemTime::now(); }", "the clock"),
    (LIVE, "type T = std::time::SystemTime; fn z() { <T>::now(); }", "the clock"),
    (LIVE, "use std::time::SystemTime as T; const Z: fn() -> T = T::now;", "the clock"),
    (LIVE, "use std::time::UNIX_EPOCH; fn z() { UNIX_EPOCH.elapsed(); }", "the clock"),
    (LIVE, "fn z() { std::time::UNIX_EPOCH.elapsed(); }", "the clock"),
    (LIVE, "fn z() { std::time::SystemTime::UNIX_EPOCH.elapsed(); }", "the clock"),
    (LIVE, "use std::time::*; fn z() { vec![UNIX_EPOCH.elapsed()]; }", "the clock"),
    (LIVE, "fn z(at: std::time::SystemTime) { at.elapsed(); }", "the clock"),
    (LIVE, "fn z(file: A) { file.modified()?.elapsed(); }", "the clock"),
    (LIVE, "fn z(a: A) { a.map(std::time::SystemTime::elapsed); }", "the clock"),
    (WAKE, "fn z() { std::env::var(\"A\"); }", "the environment"),
    (WAKE, "use std::env as e; fn z() { e::var(\"A\"); }", "the environment"),
    (WAKE, "fn z() { rand::rng(); }", "randomness"),
    (WAKE, "use rand::rngs::SmallRng; fn z() { SmallRng::from_os_rng(); }", "randomness"),
    (WAKE, "use std::hash::RandomState;", "randomness"),
    (WAKE, "fn z() { rand::random_range(0..9); }", "randomness"),
    (WAKE, "use rand::{fill, random_bool as b};", "randomness"),
    (WAKE, "use rand::prelude::*; fn z() { rng(); }", "randomness"),
    (WAKE, "use rand::rngs::SmallRng; fn z() { SmallRng::try_from_os_rng(); }", "randomness"),
    (GATE, "fn z() { std::collections::HashMap::new(); }", "randomness"),
    (GATE, "use std::collections::HashMap as M; fn z() { M::<u8, u8>::with_capacity(9); }", "randomness"),
    (GATE, "use std::collections as c; struct Z(c::HashMap<u8, Vec<u8>>);", "randomness"),
    (GATE, "use std::collections as c; fn z() { a.collect::<c::HashSet<_>>(); }", "randomness"),
    (GATE, "use std::collections::*; fn z() -> Vec<HashSet<u8>> { vec![] }", "randomness"),
    (GATE, "z! { static Z: Vec<std::collections::HashMap<u8, fn(u8) -> u8>> = a; }", "randomness"),
    (GATE, "fn z() { imbl::HashMap::new(); }", "randomness"),
    (GATE, "fn z() { lru::LruCache::unbounded(); }", "randomness"),
    (QUEUE, "use std::process::Command;", "processes"),
    (QUEUE, "fn z() { core::net::A; std::net::TcpStream::connect(y); }", "the network"),
    (QUEUE, "use std::fs;", "files"),
    (QUEUE, "fn z(path: &std::path::Path) -> bool { path.exists() }", "files"),
    (QUEUE, "fn z(path: A) { path.metadata()?.is_file(); }", "files"),
    (QUEUE, "fn z(path: A) { path.join(\"a\").canonicalize(); }", "files"),
    (QUEUE, "fn z(path: A) { vec![path.read_dir()]; }", "files"),
    (QUEUE, "use std::path::Path; fn z(paths: A) { paths.map(Path::is_dir); }", "files"),
    (QUEUE, "fn z() { std::path::Path::new(\"a\").try_exists(); }", "files"),
    (QUEUE, "use std::path::Path as P; fn z(path: &P) { P::read_link(path); }", "files"),
    (QUEUE, "use tempfile::File; fn z() { tokio::io::File::open(\"a\"); }", "files"),
    // Crates that are neither light nor in the row.
    (WAKE, "fn z() { kube::Client::try_default(); }", "wake may not use kube::Client::try_default"),
    (QUEUE, "use tokio::{time::Instant, sync::Notify};", "queue may not use tokio::sync::Notify"),
    (QUEUE, "use tokio::*;", "queue may not use tokio"),
    (LIVE, "use wasmtime as engine;", "live may not use wasmtime"),
    (WATCH, "use podium_config::Plugin;", "watch may not use podium_config::Plugin"),
    (CONFIG, "use tokio_util::sync::CancellationToken;", "config may not use tokio_util"),
    (SCHEMA, "use serde_saphyr as s; use rustls::A;", "podium_config may not use rustls::A"),
    // Roots.
    (MAIN, "use podium_host::writeback::apply;", WRITEBACK),
    (MAIN, "fn z() { std::env::args(); }", "the environment"),
    (LIB, "use crate::writeback::apply;", WRITEBACK),
    (LIB, "fn z() { std::thread::spawn(y); }", "tasks"),
    (LIB, "mod z { use crate::writeback::apply; }", "z is not in the table"),
    (LIB, "macro_rules! z { () => { $crate::writeback::z() } }", WRITEBACK),
    (LIVE, "#[cfg(unix)] mod z { use crate::writeback::apply; } #[cfg(not(unix))] mod z {}", WRITEBACK),
];

/// Lines that must not be refused.
const GREEN: &[(&str, &str)] = &[
    (LIVE, "#[cfg(test)] mod z { use crate::writeback::apply; }"),
    (LIVE, "#[cfg(test)] use crate::writeback::apply;"),
    (LIVE, "enum Z { #[cfg(test)] A(crate::writeback::Plan), B }"),
    (LIVE, "impl Z { #[cfg(test)] fn z() { std::env::var(\"A\"); } }"),
    (LIVE, "/// crate::writeback::apply\nfn z() { \"crate::writeback\"; } // crate::writeback"),
    (LIVE, "#[doc = \"crate::writeback\"] fn z() {}"),
    (LIVE, "pub(crate) fn z() {} pub(in crate::live) fn y() {}"),
    (LIVE, "use podium_vocabulary::Revision as R; use http::Method;"),
    (LIVE, "use super::api as a; fn z(a: a::Client) {}"),
    (LIVE, "fn z(kube: u8) -> u8 { kube + kube }"),
    (LIVE, "fn z(at: std::time::SystemTime, of: std::net::SocketAddr) {}"),
    (WATCH, "fn z(began: tokio::time::Instant) { began.elapsed(); }"),
    (QUEUE, "fn z(a: A) { a.metadata(1); a.exists; metadata(); }"),
    (GATE, "use std::collections::HashMap as M; struct Z(M<u8, u8, H>); fn z() { M::default(); M::with_hasher(h); }"),
    (GATE, "fn z() -> bool { if a < 1 && b > 2 { c::<u8>() } else { assert!(a < b, \"{}\", c > d); } }"),
    (GATE, "pub(super) use crate::status::Histogram;"),
    (LIVE, "fn z() { include_str!(\"a\"); env!(\"A\"); std::env::consts::OS; }"),
    (LIST, "use super::*; use super::super::api::Client;"),
    (LIVE, "fn z() { tracing::info!(target: \"podium_host::writeback\", \"a\"); }"),
    (QUEUE, "fn z() { tokio::select! { () = tokio::time::sleep(a) => {} } }"),
    (WATCH, "use tokio::task::yield_now;"),
    (API, "pub use kube::Client; use kube::{self, Config};"),
    (LIB, "fn z() -> u8 { 1 }"),
    (LIVE, "macro_rules! z { ($a:ident: $b:ty) => { $crate::live::y::<$b>(x.$a, $a, $b) } } z!(a: u8);"),
    (LIVE, "macro_rules! z { ($a:ident $($b:tt)*) => { fn $a(a: Vec<$a>) { a != $a } } } z!(a b c);"),
];

#[test]
fn a_line_that_uses_too_much_is_refused_however_it_is_written() {
    let missed =
        RED.iter().filter(|(file, more, expected)| !seeded(file, more).iter().any(|breach| breach.contains(expected)));
    let missed: Vec<_> = missed.collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn a_line_that_the_table_allows_is_not_refused() {
    for (file, more) in GREEN {
        let breaches = seeded(file, more);
        assert!(breaches.is_empty(), "{file}, {more}: {breaches:#?}");
    }
}

#[test]
fn an_item_that_another_row_passes_on_is_of_its_own_row() {
    for more in [
        "pub use crate::queue::Queue as Z;",
        "pub(crate) use crate::queue::{Queue as Z};",
        "pub type Z = crate::queue::Queue;",
        "mod z { pub use crate::queue::*; } pub use z::Queue as Z;",
        "pub mod z { pub use crate::queue::Queue; } pub use z::*; use z::Queue as Z;",
    ] {
        let text = |file: &str| fs::read_to_string(workspace().join(file)).unwrap();
        let tree = TREE.with(DISPATCH, &format!("{}\n{more}\n", text(DISPATCH)));
        for (file, row) in [("host/engine/src/journal/mod.rs", "journal"), (STATUS, "status")] {
            let tree = tree.with(file, &format!("{}\nuse crate::dispatch::Z;\n", text(file)));
            let breaches = judge(&tree, &externs(), Some(file)).breaches;
            let expected = format!("{row} may not use podium_engine::queue::Queue");
            assert!(breaches.iter().any(|breach| breach.contains(&expected)), "{file}, {more}: {breaches:#?}");
        }
    }
}

#[test]
fn a_dependency_is_known_in_each_form_of_a_manifest() {
    for manifest in [
        "[dependencies]\ntokio-util = \"1\"\n",
        "[dependencies] # a\n  tokio-util.workspace = true\n",
        "[dependencies]\n\"tokio-util\" = { version = \"1\" }\n",
        "[dependencies.tokio-util]\nversion = \"1\"\nfeatures = []\n",
        "[target.'cfg(unix)'.dependencies]\ntokio-util = \"1\"\n",
        "[target.'cfg(unix)'.dependencies.tokio-util]\nversion = \"1\"\n",
        "[ dependencies.\"tokio-util\" ]\nversion = \"1\"\n",
        "dependencies.tokio-util = \"1\"\n[features]\na = []\n",
    ] {
        assert_eq!(dependencies(manifest), ["tokio_util"], "{manifest}");
    }
    let others = "[dev-dependencies]\na = \"1\"\n[build-dependencies.b]\nversion = \"1\"\n[features]\nc = []\n";
    assert!(dependencies(others).is_empty());
}

#[test]
fn a_breach_names_file_and_line() {
    let text = "//! A file.\n\nuse super::writeback::apply;\n";
    let tree = TREE.with(LIVE, text);
    let breaches = judge(&tree, &externs(), Some(LIVE)).breaches;
    let expected = format!("{LIVE}:3: live may not use {WRITEBACK}::apply");
    assert_eq!(breaches.into_iter().collect::<Vec<_>>(), [expected]);
}

#[test]
fn an_entry_that_no_line_uses_is_found() {
    // Without its code, a module uses nothing of its row.
    let tree = TREE.with(WAKE, "");
    let used = judge(&tree, &externs(), None).used;
    let (row, modules, _) = MODULES.iter().find(|(row, ..)| *row == "wake").unwrap();
    assert!(modules.iter().all(|module| !used.contains(&((*row).to_owned(), (*module).to_owned()))));
    let (row, path, _) = EXCEPTIONS[0];
    assert!(used.contains(&(row.to_owned(), path.to_owned())));
}

#[test]
fn a_crate_is_read_along_its_declarations() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write("src/lib.rs", "mod a;\nmod missing;\nmod b { mod c; }\n#[cfg(test)]\nmod tests;\n");
    write("src/a.rs", "mod d;\n#[cfg(test)]\nmod more;\n");
    write("src/a/d.rs", "");
    write("src/a/more.rs", "");
    write("src/b/c/mod.rs", "");
    write("src/tests/mod.rs", "mod e;\n");
    write("src/tests/e.rs", "");
    write("src/forgotten.rs", "");
    let tree = Tree::read(folder.path(), &[("z", "src/lib.rs")]);
    let places: Vec<_> = tree.modules.keys().map(|place| place.names.join("::")).collect();
    assert_eq!(places, ["", "a", "a::d", "b", "b::c"]);
    let tests: Vec<_> = tree.test_modules.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(tests, ["more", "tests"]);
    assert_eq!(tree.refused, ["src/lib.rs: no file of the module missing"]);
    assert_eq!(tree.unreached("src"), [std::path::Path::new("src/forgotten.rs")]);
}
