//! The tables of modules, crates and calls that each module may use. ARCHITECTURE.md has the first one as text.

use crate::tree::Place;

/// A module, the modules that it may use, and the crates beside the light ones, or parts of them, that it may use.
pub(crate) type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The modules of the host's crates, and as one module each the host's `main.rs`, `podium-config` and
/// `podium-registry`.
pub(crate) const MODULES: &[Row] = &[
    ("sync", &[], &["arc_swap", "loom", "shuttle", "tokio::sync"]),
    ("encoding", &["sync"], &["lz4_flex", "triomphe"]),
    ("pod", &["encoding"], &[]),
    ("dump", &["encoding", "pod"], &[]),
    ("cache", &["encoding", "pod", "sync"], &["imbl"]),
    ("wake", &["pod"], &[]),
    ("testing", &["pod", "cache"], &[]),
    ("fixtures", &["pod", "ports"], &[]),
    ("ports", &["pod"], &[]),
    ("backoff", &[], &[]),
    ("clock", &[], &["tokio::time"]),
    ("intervals", &[], &["tokio::time"]),
    ("status", &["ports"], &["tokio::time"]),
    ("queue", &["sync"], &["tokio::time", "tokio::select"]),
    ("frames", &[], &[]),
    ("journal", &["pod", "frames"], &["tokio::time", "tokio::sync", "libc"]),
    ("memory", &[], &["libc", "tokio"]),
    ("dispatch", &["sync", "pod", "ports", "queue", "cache", "status", "clock", "journal"], &["tokio::time"]),
    ("ingest", &["pod", "cache", "wake", "ports", "queue", "dispatch", "journal", "memory"], &["tokio"]),
    ("api", &[], &["kube", "tokio::time", "http", "http_body_util", "hyper_util", "rustls", "tower"]),
    ("watch", &["encoding", "pod", "api"], &["tokio", "http"]),
    ("live", &["pod", "ports", "api"], &["http"]),
    ("writeback", &["encoding", "pod", "ports", "api"], &["tokio", "http"]),
    ("private_file", &[], &["libc", "rustix"]),
    (
        "runtime",
        &["pod", "ports", "private_file"],
        &["wasmtime", "wasmtime_wasi", "wasmparser", "tokio", "rayon", "libc", "seccompiler", "ring", "rustix"],
    ),
    ("checkpoint", &["encoding", "pod", "dump", "frames", "private_file"], &["rustix"]),
    ("config", &[], &[CONFIG, REGISTRY, "libc"]),
    ("objects", &["ports", "api", "watch", "config"], &[CONFIG, "k8s_openapi", "tokio", "http"]),
    ("images", &["ports", "api", "objects", "private_file"], &[LIFE, REGISTRY, "k8s_openapi", "http"]),
    ("telemetry", &["status", "ports"], &["prometheus_client", "tracing_subscriber", "rustix"]),
    ("admin", &["api", "telemetry"], &["axum", "tokio", "tokio_rustls", "tokio_util", "hyper", "hyper_util"]),
    (MAIN, &[APP], &[]),
    (CONFIG, &[], &["schemars", "serde_saphyr"]),
    (LIFE, &[], &[]),
    (
        REGISTRY,
        &[],
        &[
            "base64",
            "http",
            "http_body_util",
            "httpdate",
            "hyper",
            "hyper_util",
            "ring",
            "rustls",
            "tokio",
            "tokio_rustls",
        ],
    ),
];
/// The crates of the host, from the ground up, with the files of their roots. A module of these is a row.
pub(crate) const CRATES: [(&str, &str); 3] = [
    ("podium_pods", "host/pods/src/lib.rs"),
    ("podium_engine", "host/engine/src/lib.rs"),
    ("podium_host", "host/src/lib.rs"),
];
/// Crates that are one row each: the host's binary, the schema of the configuration, the life of a
/// plugin, and the client of registries.
pub(crate) const WHOLE: [(&str, &str); 4] = [
    (MAIN, "host/src/main.rs"),
    (CONFIG, "guest-sdk/config/src/lib.rs"),
    (LIFE, "host/life/src/lib.rs"),
    (REGISTRY, "host/registry/src/lib.rs"),
];
const MAIN: &str = "main";
const CONFIG: &str = "podium_config";
const LIFE: &str = "podium_life";
const REGISTRY: &str = "podium_registry";
/// Code in the root of a crate with modules. It may use nothing.
pub(crate) const ROOT: &str = "lib";
/// Pure helpers that every module may use.
pub(crate) const FREE: &[&str] = &["backoff", "intervals"];
/// Builds everything, and may use everything.
pub(crate) const APP: &str = "app";
/// Crates that every module may use: they compute, and do neither IO nor anything of `FORBIDDEN` except where it names
/// them.
pub(crate) const LIGHT: &[&str] = &[
    "std",
    "bytes",
    "crc32fast",
    "foldhash",
    "futures",
    "lru",
    "memchr",
    "parking_lot",
    "percent_encoding",
    "podium_vocabulary",
    "podium_wire",
    "rand",
    "semver",
    "serde",
    "serde_json",
    "serde_path_to_error",
    "sha2",
    "smallvec",
    "thiserror",
    "tracing",
];

/// Methods that return a `SystemTime`.
pub(crate) const SYSTEM_TIMES: &[&str] = &["accessed()", "created()", "modified()"];
/// Calls that only `app` may make, by the thing that they read or start. A path means everything that begins with it,
/// `*::name` every path that ends with the name, `.name` calls of a method whose name begins so, and `.name()` calls of
/// a method without arguments. `Type::<2>` is a type with two arguments, such as a map without its own hasher.
pub(crate) const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "the clock",
        &[
            "std::time::Instant",
            "std::time::SystemTime::UNIX_EPOCH::elapsed",
            "std::time::SystemTime::elapsed",
            "std::time::SystemTime::now",
            "std::time::UNIX_EPOCH::elapsed",
            "rustix::time",
        ],
    ),
    (
        "the environment",
        &[
            "std::env::args",
            "std::env::args_os",
            "std::env::current_dir",
            "std::env::current_exe",
            "std::env::home_dir",
            "std::env::remove_var",
            "std::env::set_current_dir",
            "std::env::set_var",
            "std::env::temp_dir",
            "std::env::var",
            "std::env::var_os",
            "std::env::vars",
            "std::env::vars_os",
            "std::io::stdin",
            "std::thread::available_parallelism",
            "std::path::absolute",
            "tokio::io::stdin",
            "kube::Config::infer",
        ],
    ),
    (
        "randomness",
        &[
            "std::collections::hash_map::RandomState",
            "std::hash::RandomState",
            "foldhash::fast::RandomState",
            "foldhash::quality::RandomState",
            "foldhash::fast::SeedableRandomState::random",
            "foldhash::quality::SeedableRandomState::random",
            // Maps and sets whose hasher has a random seed.
            "std::collections::HashMap::<2>",
            "std::collections::HashMap::from",
            "std::collections::HashMap::new",
            "std::collections::HashMap::with_capacity",
            "std::collections::HashSet::<1>",
            "std::collections::HashSet::from",
            "std::collections::HashSet::new",
            "std::collections::HashSet::with_capacity",
            "std::collections::hash_map::HashMap",
            "std::collections::hash_set::HashSet",
            "imbl::HashMap",
            "imbl::HashSet",
            "lru::LruCache::new",
            "lru::LruCache::sparse",
            "lru::LruCache::unbounded",
            "rand::fill",
            "rand::make_rng",
            "rand::prelude",
            "rand::random",
            "rand::random_bool",
            "rand::random_iter",
            "rand::random_range",
            "rand::random_ratio",
            "rand::rng",
            "rand::thread_rng",
            "rand::rngs::OsRng",
            "rand::rngs::ReseedingRng",
            "rand::rngs::SysRng",
            "rand::rngs::ThreadRng",
            "ring::rand",
            "*::from_os_rng",
            "*::from_entropy",
            "*::try_from_os_rng",
        ],
    ),
    (
        "the network",
        &[
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::ToSocketAddrs",
            "std::net::UdpSocket",
            "std::os::unix::net",
            "hyper_util::client::legacy::connect::HttpConnector",
            "tokio::net",
        ],
    ),
    (
        "files",
        &[
            "std::fs",
            "std::os::unix::fs",
            "tokio::fs",
            "std::path::Path::canonicalize",
            "std::path::Path::exists",
            "std::path::Path::is_dir",
            "std::path::Path::is_file",
            "std::path::Path::is_symlink",
            "std::path::Path::metadata",
            "std::path::Path::read_dir",
            "std::path::Path::read_link",
            "std::path::Path::symlink_metadata",
            "std::path::Path::try_exists",
            ".canonicalize()",
            ".exists()",
            ".is_dir()",
            ".is_file()",
            ".is_symlink()",
            ".metadata()",
            ".read_dir()",
            ".read_link()",
            ".symlink_metadata()",
            ".try_exists()",
            "*::File::create",
            "*::File::create_new",
            "*::File::open",
            "*::OpenOptions::new",
        ],
    ),
    (
        "processes",
        &[
            "std::process::Command",
            "std::process::abort",
            "std::process::exit",
            "std::process::id",
            "std::os::unix::process",
            "tokio::process",
            "tokio::signal",
        ],
    ),
    (
        "tasks and threads",
        &[
            "std::thread::Builder",
            "std::thread::scope",
            "std::thread::sleep",
            "std::thread::spawn",
            "futures::executor",
            "rayon",
            "tower::buffer",
            "wasmtime_wasi::runtime::spawn",
            "wasmtime_wasi::runtime::spawn_blocking",
            "tokio::main",
            "tokio::runtime",
            "tokio::spawn",
            "tokio::task::Builder",
            "tokio::task::JoinSet",
            "tokio::task::LocalSet",
            "tokio::task::block_in_place",
            "tokio::task::spawn",
            "tokio::task::spawn_blocking",
            "tokio::task::spawn_local",
            "tokio_util::task",
            ".spawn",
        ],
    ),
];
/// Modules of other crates that a module passes on by `pub use`: module, path, and the reason.
pub(crate) const PASSED_ON: &[(&str, &str, &str)] =
    &[("sync", "tokio::sync::watch", "the signal of an ordinary build, in place of a model checker's")];
/// Modules that may make such a call: module, path, and the reason.
pub(crate) const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("testing", "std::fs", "reads Pods of a real API server that a developer has saved; only tests call it"),
    ("journal", "std::fs", "writes and reads the journal's file; its path comes from `app`"),
    ("journal", "std::os::unix::fs", "reads the journal's file at an offset, and creates it for its owner only"),
    ("checkpoint", "std::fs", "writes and reads the checkpoint's file; its path comes from `app`"),
    ("config", "std::fs", "reads the files of the configuration; their paths come from `app`"),
    ("config", "std::os::unix::fs", "opens a named pipe without waiting, to refuse it"),
    ("runtime", "rustix::time", "the meter of processor time; a simulation has none"),
    ("runtime", "std::thread::Builder", "the thread that advances the epoch"),
    ("runtime", ".spawn", "starts this thread, and the compiler's process"),
    ("runtime", "rayon", "the threads of wasmtime's parallel compilation, which the compiler's process starts"),
    ("runtime", "std::thread::available_parallelism", "how many of these threads are of use"),
    ("runtime", "std::process::Command", "the compiler's process; its program comes from `app`"),
    ("runtime", "std::process::id", "the parent's number, by which the compiler's process notices its end"),
    ("runtime", "std::os::unix::process", "the state in which the compiler's process ended"),
    ("runtime", "std::io::stdin", "the component, in the compiler's process"),
    ("runtime", "std::fs", "writes and reads the cache of compiled code; its path comes from `app`"),
    ("private_file", "std::fs", "opens and creates files for the host's user only; their paths come from `app`"),
    ("private_file", "std::os::unix::fs", "creates these files with their mode, and reads their owner"),
    ("images", "std::fs", "writes and reads components of registries; their directory comes from `app`"),
    (
        "writeback",
        "lru::LruCache::sparse",
        "tenants choose the keys, so their hashes must not be known; the order of iteration is the order of use",
    ),
    ("telemetry", "std::fs", "reads the process's own figures in /proc when metrics are collected"),
    (
        "api",
        "hyper_util::client::legacy::connect::HttpConnector",
        "connections to the API server, whose address comes from `app`",
    ),
    ("admin", "tokio::net", "the listener of the ports of probes and metrics"),
    (
        "admin",
        "tokio::task::JoinSet",
        "one task for each connection; their number is bounded, and the server joins them",
    ),
    ("admin", ".spawn", "starts these tasks, which belong to the set"),
    (REGISTRY, "tokio::net", "connections to registries that the platform lists, at addresses that were checked"),
];

/// Returns the row that a module belongs to.
pub(crate) fn row(place: &Place) -> &str {
    if WHOLE.iter().any(|(root, _)| *root == place.root) {
        return place.root;
    }
    place.names.first().map_or(ROOT, String::as_str)
}
