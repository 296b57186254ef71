//! Hostile configurations: files that are none, YAML that expands, and values that lie. Each is read beside a good
//! file, which loads in any case. Each has one bounded error or a few, of one line each, that name the file.

use std::{
    fs::{self, File},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    process::Command,
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podium_host::config::{self, Configurations};
use podium_tests::sandbox;
use podium_vocabulary::Source;

use super::attack::{ALONE, cut, is_one_line};

/// Far above the time that reading takes, and far below the time to read a file without an end.
const WITHIN: Duration = Duration::from_secs(60);
/// The bound of an error: its file, its field and its message have their own bounds.
const ERROR_BYTES: usize = 4 << 10;

/// A hostile file `bad.yaml`.
struct Row {
    name: &'static str,
    make: fn(&Path),
    /// A text that one of its errors contains. Empty for a harmless file, which has no error.
    error: &'static str,
}

const HEAD: &str = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\n";

fn plugin(name: &str, spec: &str) -> String {
    format!("{HEAD}metadata: {{ name: {name} }}\nspec:\n  source: {{ file: a.wasm }}\n{spec}\n")
}

/// Rows whose file has this text.
macro_rules! text {
    ($name:expr, $error:expr, $text:expr) => {
        Row { name: $name, make: |path| fs::write(path, $text).unwrap(), error: $error }
    };
}

const ROWS: &[Row] = &[
    // Files.
    Row {
        name: "a link to a device without an end",
        make: |path| symlink("/dev/zero", path).unwrap(),
        error: "is not a regular file",
    },
    Row { name: "a link to a terminal", make: |path| symlink("/dev/tty", path).unwrap(), error: ": " },
    Row {
        name: "a pipe",
        make: |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        error: "is not a regular file",
    },
    Row { name: "a socket", make: |path| drop(UnixListener::bind(path).unwrap()), error: "cannot be read: " },
    Row { name: "a folder", make: |path| fs::create_dir(path).unwrap(), error: "is not a regular file" },
    Row { name: "a link to a folder", make: |path| symlink("/", path).unwrap(), error: "is not a regular file" },
    Row { name: "a link to itself", make: |path| symlink(path, path).unwrap(), error: "cannot be read: " },
    Row { name: "a link to nothing", make: |path| symlink("nowhere", path).unwrap(), error: "cannot be read: " },
    Row { name: "a link out of the folder", make: |path| symlink("/etc/passwd", path).unwrap(), error: ": " },
    Row {
        name: "a file whose reads fail",
        make: |path| symlink("/proc/self/mem", path).unwrap(),
        error: "cannot be read: ",
    },
    Row {
        name: "a file that must not be read",
        make: |path| {
            fs::write(path, "a: [").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
        },
        // The superuser may, and finds no YAML.
        error: ": ",
    },
    Row {
        name: "a sparse file of 8 TiB",
        make: |path| File::create(path).unwrap().set_len(8 << 40).unwrap(),
        error: "at most 1048576 are read",
    },
    text!("a file of 2 MB", "at most 1048576 are read", "#".repeat(2 << 20)),
    // Bytes.
    text!("invalid UTF-8", "is not UTF-8", b"a: \xff\xfe"),
    text!("UTF-16", "is not UTF-8", b"\xff\xfea\0:\0 \0b\0"),
    text!("a NUL", "is not valid YAML", format!("{}\0", plugin("a", ""))),
    text!("a byte order mark inside", "is not valid YAML", plugin("a", "").replace("spec:", "\u{feff}spec:")),
    text!("tabs", "is not valid YAML", plugin("a", "\tphase: main")),
    text!("lines that end in CR LF", "", plugin("a", "").replace('\n', "\r\n")),
    text!("escapes of terminals", ": ", plugin("a", "  \"\\e[2J\\n2026 ERROR forged\": 1")),
    text!("bidirectional controls", ": ", plugin("a", "  \u{202e}esahp: main")),
    // YAML.
    text!("aliases that multiply", ": ", {
        let level = |at: u32| format!("    a{at}: &a{at} [{}]\n", vec![format!("*a{}", at - 1); 10].join(", "));
        let levels: String = (1..12).map(level).collect();
        plugin("a", &format!("  config:\n    a0: &a0 [x, x, x]\n{levels}"))
    }),
    text!("an alias of itself", "an alias inside of its own anchor", plugin("a", "  config: &a { b: *a }")),
    text!("an alias of nothing", ": ", plugin("a", "  config: { b: *nothing }")),
    text!("20,000 anchors", ": ", {
        let anchors: String = (0..20_000).map(|at| format!("    k{at}: &a{at} v\n")).collect();
        plugin("a", &format!("  config:\n{anchors}"))
    }),
    text!("100,000 nested lists", "is not valid YAML", {
        plugin("a", &format!("  config: {{ a: {}1{} }}", "[".repeat(100_000), "]".repeat(100_000)))
    }),
    text!("1,000 nested mappings", "more than 32 deep", {
        let levels: String = (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth + 4))).collect();
        plugin("a", &format!("  config:\n{levels}"))
    }),
    text!("20,000 unknown fields", "is not a known field", {
        plugin("a", &(0..20_000).map(|at| format!("  f{at}: 1\n")).collect::<String>())
    }),
    text!("200,000 values", "has more than 100000 values", {
        plugin("a", &format!("  config: {{ a: [{}] }}", vec!["1"; 200_000].join(",")))
    }),
    text!("a scalar of 900 KB", "metadata.name", plugin(&"x".repeat(900_000), "")),
    text!("a key of 900 KB", "is not a known field", plugin("a", &format!("  ? {}\n  : 1", "x".repeat(900_000)))),
    text!("a tag of another type", ": ", plugin("a", "  phase: !!int main")),
    text!("a tag of a program", ": ", plugin("a", "  phase: !!python/object/apply:os.system [\"true\"]")),
    text!("a key that is there twice", "is there twice", plugin("a", "  phase: main\n  phase: main")),
    text!("a key that is there twice, escaped", "is there twice", plugin("a", "  phase: main\n  \"ph\\x61se\": main")),
    text!("a merge key", "has a merge key", plugin("a", "  grants: { write: { <<: { delete: true } } }")),
    text!("a key that is a list", ": ", plugin("a", "  config: { ? [a] : b }")),
    text!("a number that is none", "infinite or no number", plugin("a", "  config: { a: .nan }")),
    text!("a quote without an end", "is not valid YAML", plugin("a", "  config: { a: 'x }")),
    text!("2,000 documents", ": ", format!("{}---\n", plugin("a", "")).repeat(2_000)),
    // Values.
    text!("a name with a path", "metadata.name", plugin("../a", "")),
    text!("a name with a line's end", "metadata.name", plugin("\"a\\nERROR forged\"", "")),
    text!("a name in capitals", "metadata.name", plugin("Good", "")),
    text!("a name that looks like another", "metadata.name", plugin("g\u{43e}od", "")),
    text!("a name of 300 characters", "metadata.name", plugin(&"a".repeat(300), "")),
    text!("an empty name", "metadata.name", plugin("\"\"", "")),
    text!("a namespace with a path", "metadata.namespace", {
        plugin("a, namespace: ../kube-system", "").replace("Cluster", "")
    }),
    text!("the name of another plugin", "is already defined in", plugin("good", "")),
    text!("another version", "apiVersion", plugin("a", "").replace("v1alpha1", "v2")),
    text!("a policy", "kind", "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {}\n"),
    text!("after itself", "spec.after", plugin("a", "  after: [a]")),
    text!("a cycle", "spec.after", format!("{}---\n{}", plugin("a", "  after: [b]"), plugin("b", "  after: [a]"))),
    text!("a negative limit", "must be a whole number from", plugin("a", "  limits: { memoryMiB: -1 }")),
    text!("a limit of zero", "must be a whole number from", plugin("a", "  limits: { cpuMillis: 0 }")),
    text!("a limit of 2^64", "must be a whole number from", {
        plugin("a", "  limits: { hostCalls: 18446744073709551616 }")
    }),
    text!("a limit that is no whole number", "must be a whole number from", plugin("a", "  limits: { writes: 1.5 }")),
    text!("a limit that is text", "must be a whole number from", plugin("a", "  limits: { logKiB: '16' }")),
    text!(
        "a grant of everything",
        "spec.grants.write.labels[0]",
        plugin("a", "  grants: { write: { labels: ['*'] } }")
    ),
    text!("a grant of keys of Kubernetes", "keys are granted one by one", {
        plugin("a", "  grants: { write: { labels: ['kubernetes.io/*'] } }")
    }),
    text!("a grant of Pods as objects", "spec.grants.write.objects[0]", {
        plugin("a", "  grants: { write: { objects: [{ apiVersion: v1, kind: Pod, resource: pods }] } }")
    }),
    text!("a grant of a resource with a path", "spec.grants.write.objects[0]", {
        plugin("a", "  grants: { write: { objects: [{ apiVersion: v1, kind: A, resource: 'pods/exec' }] } }")
    }),
    text!("a configuration of 100 KB", "spec.config", {
        plugin("a", &format!("  config: {{ a: {} }}", "x".repeat(100_000)))
    }),
    text!("a selector of 10,000 requirements", "spec.watch.selector", {
        let labels: String = (0..10_000).map(|at| format!("k{at}: v, ")).collect();
        plugin("a", &format!("  watch: {{ selector: {{ matchLabels: {{ {labels} }} }} }}"))
    }),
];

/// Reads a folder in its own thread, because reading a file without an end never returns.
fn load(folder: &Path) -> Result<Configurations> {
    let (sender, loaded) = mpsc::channel();
    let folder = folder.to_owned();
    thread::spawn(move || sender.send(config::load(&[folder])));
    loaded.recv_timeout(WITHIN).context("it was not read in time")
}

fn judge(row: &Row) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a.wasm"), b"")?;
    // Read first, so that its name is taken.
    fs::write(folder.path().join("aaa.yaml"), plugin("good", ""))?;
    let bad = folder.path().join("bad.yaml");
    (row.make)(&bad);
    let Configurations { plugins, errors, .. } = load(folder.path())?;
    ensure!(plugins.iter().any(|plugin| &*plugin.spec.id.name == "good"), "the good plugin: {errors:?}");
    if row.error.is_empty() {
        ensure!(errors.is_empty(), "{errors:?}");
        return Ok(());
    }
    let is_named = errors.iter().any(|error| error.to_string().contains(row.error));
    ensure!(is_named, "{}", errors.first().map_or("no error".to_owned(), |error| cut(&error.to_string()).to_owned()));
    ensure!(errors.len() <= 2_000, "{} errors", errors.len());
    for error in &errors {
        ensure!(error.file == bad, "about {}", error.file.display());
        is_one_line(&error.to_string(), ERROR_BYTES)?;
    }
    Ok(())
}

#[test]
fn each_hostile_configuration_has_a_bounded_error_of_its_own() {
    let _alone = ALONE.blocking_lock();
    assert!(ROWS.len() >= 30);
    let escaped: Vec<_> =
        ROWS.iter().filter_map(|row| Some(format!("{}: {:#}", row.name, judge(row).err()?))).collect();
    assert!(escaped.is_empty(), "{} of {}:\n{}", escaped.len(), ROWS.len(), escaped.join("\n"));
}

/// Paths of components, and the errors with which a host refuses them.
const COMPONENTS: &[(&str, &str)] = &[
    ("/dev/zero", "is not a regular file"),
    ("../../../../../../../../../../../../dev/zero", "is not a regular file"),
    ("/", "is not a regular file"),
    ("pipe", "is not a regular file"),
    ("loop", "cannot be read"),
    ("/etc/passwd", "not a WebAssembly component"),
    ("sparse", "the component has 8796093022208 bytes"),
    ("nowhere.wasm", "cannot be read"),
];

#[tokio::test(start_paused = true)]
async fn a_component_that_is_no_file_is_refused_without_its_bytes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    ensure!(Command::new("mkfifo").arg(path("pipe")).status()?.success());
    symlink(path("loop"), path("loop"))?;
    File::create(path("sparse"))?.set_len(8 << 40)?;
    let rig = super::in_host::HostRig::new().await?;
    for (source, text) in COMPONENTS {
        let mut spec = sandbox::spec("hostile");
        spec.source = Source::File(path(source));
        let error = rig.app.load(spec).await.err().with_context(|| format!("{source} was loaded"))?.to_string();
        ensure!(error.contains(text), "{source}: {}", cut(&error));
        ensure!(!error.contains("root:"), "{source}: {}", cut(&error));
        is_one_line(&error, ERROR_BYTES)?;
    }
    rig.app.shutdown().await;
    Ok(())
}
