//! `podium run` and `podium test` as processes, with components that need no build: results, exit codes, and input that
//! is wrong. The effects of plugins are tested in the suite `embedded`.

#![expect(clippy::unwrap_used, reason = "a test whose set-up fails has failed")]

use std::{fs, path::PathBuf, process::Command};

use podium_cli::hostile::Module;
use serde_json::Value;
use tempfile::TempDir;

const PLUGIN: &str = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\n\
    metadata: { name: hello, namespace: shop }\nspec:\n  source: { file: hello.wasm }\n  \
    watch: { sections: [labels], selector: { matchLabels: { app: web } } }\n  \
    grants: { read: { pods: { sections: [labels] } } }\n";
const QUIET: &str = "name: quiet\npods:\n- metadata: { name: a, labels: { app: web } }\nexpect:\n  writes: []\n";

/// A folder with the plugin `hello`, which settles at once.
struct Folder(TempDir);

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("hello/plugin.yaml", PLUGIN);
        fs::write(folder.path("hello/hello.wasm"), Module::DEFAULT.component().unwrap()).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn podium(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podium"));
        let output = command.current_dir(self.0.path()).args(arguments).env_remove("PODIUM_RUNNERS").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Tests one file of cases.
    fn test(&self, cases: &str) -> Ended {
        self.write("hello/tests/a.yaml", cases);
        self.podium(&["test", "hello"])
    }

    /// Runs on a Pod.
    fn run(&self, pod: &str) -> Ended {
        self.write("pod.yaml", pod);
        self.podium(&["run", "hello", "--pod", "pod.yaml"])
    }
}

impl Ended {
    /// Checks the exit code and that the output has each part.
    #[track_caller]
    fn says(&self, code: i32, parts: &[&str]) {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert_eq!(self.code, Some(code), "{all}");
        for part in parts {
            assert!(all.contains(part), "{part:?} in {all}");
        }
    }
}

#[test]
fn a_case_passes_fails_with_its_difference_and_is_updated() {
    let folder = Folder::new();
    folder.test(QUIET).says(0, &["ok      quiet\n", "1 passed, 0 failed"]);
    let wrong = "# Cases.\nname: loud\npods: [../pod.json]\nexpect:\n  writes: [set label a=b on shop/a]\n\n---\n";
    folder.write("hello/pod.json", r#"{ "metadata": { "name": "a", "labels": { "app": "web" } } }"#);
    let failed = folder.test(&format!("{wrong}{QUIET}"));
    let parts = [
        "FAILED  loud\n        hello/tests/a.yaml:2\n",
        "- writes:\n        - - set label a=b on shop/a\n        + writes: []\n",
        "1 passed, 1 failed",
    ];
    failed.says(1, &parts);
    folder.podium(&["test", "hello", "--name", "qui"]).says(0, &["1 passed, 0 failed"]);
    folder.podium(&["test", "hello", "--name", "other"]).says(2, &["--name other: is in the name of none of the 2"]);
    let json = folder.podium(&["test", "hello", "--output", "json"]);
    let printed: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &printed["ok"], &printed["cases"][0]["line"]), (Some(1), &false.into(), &2.into()));

    folder.podium(&["test", "hello", "--update"]).says(0, &["hello/tests/a.yaml updated"]);
    let updated = fs::read_to_string(folder.path("hello/tests/a.yaml")).unwrap();
    let head = "# Cases.\nname: loud\npods: [../pod.json]\nexpect:\n  writes: []\n\n---\n";
    assert_eq!(updated, format!("{head}{QUIET}"));
    folder.podium(&["test", "hello"]).says(0, &["2 passed, 0 failed"]);
    // A folder that cannot be written to again is not changed.
    assert!(!folder.podium(&["test", "hello", "--update"]).stderr.contains("updated"));
}

#[test]
fn a_case_without_a_result_prints_what_was_observed() {
    let folder = Folder::new();
    let parts = ["expect is missing; podium test --update writes", "+ writes: []"];
    folder.test("name: a\npods:\n- metadata: { name: a, labels: { app: web } }\n").says(1, &parts);
    let elsewhere = "name: a\npods:\n- metadata: { name: a }\nexpect: { writes: [] }\n";
    folder.test(elsewhere).says(1, &["+ result: not run", "not run on shop/a: SelectorDoesNotMatch"]);
    folder.test(&elsewhere.replace("[]", "[], result: not run")).says(0, &[]);
}

#[test]
fn a_case_with_a_mistake_is_refused_with_file_line_and_field() {
    let folder = Folder::new();
    folder.podium(&["test", "hello"]).says(2, &["no case in hello/tests", "podium test --help"]);
    folder.podium(&["test", "nowhere"]).says(2, &["error: ", "nowhere"]);
    let pods = |pod: &str| format!("name: a\npods: [{pod}]\nexpect: {{}}\n");
    let one = "{ metadata: { name: a } }";
    for (cases, part) in [
        ("name: a\npods: [x\n".to_owned(), "hello/tests/a.yaml:"),
        (format!("name: a\npod: [{one}]\n"), "hello/tests/a.yaml:2: pod: is not a known field; did you mean pods?"),
        (format!("pods: [{one}]\n"), "hello/tests/a.yaml:1: name: is missing"),
        (pods("1"), "hello/tests/a.yaml:2: pods[0]: must be a Pod"),
        (pods("{ metadata: {} }"), "hello/tests/a.yaml:2: pods[0]: metadata.name: is missing"),
        (pods("{ kind: Secret, metadata: { name: a } }"), "pods[0]: kind: is Secret, and must be Pod"),
        (pods(&format!("{one}, {one}")), "hello/tests/a.yaml:2: pods[1]: is a second Pod shop/a; rename one"),
        (pods("none.yaml"), "hello/tests/a.yaml:2: pods[0]: cannot read hello/tests/none.yaml"),
        (pods("{ metadata: { name: A } }"), "hello/tests/a.yaml:2: pods[0]: Pod \"A\" is invalid: metadata.name"),
        (
            pods("{ metadata: { name: a }, spec: { nodename: b } }"),
            "pods[0]: strict decoding error: unknown field \"spec.nodename\"",
        ),
        (format!("{}on: [b]\n", pods(one)), "hello/tests/a.yaml:1: on: shop/b is not one of the Pods"),
        (format!("{}now: soon\n", pods(one)), "hello/tests/a.yaml:4: now: must be a time"),
        (format!("{0}---\n{0}", pods(one)), "hello/tests/a.yaml:5: name: is also the name of a case in hello/tests/a"),
        (format!("{}secrets: []\n", pods(one)), "hello/tests/a.yaml:4: secrets: is not a known field"),
    ] {
        folder.test(&cases).says(2, &["error: ", part]);
    }
    folder.write("hello/tests/a.yaml", QUIET);
    folder.write("hello/plugin.yaml", &PLUGIN.replace("sections: [labels]", "sections: [lables]"));
    folder.podium(&["test", "hello"]).says(2, &["hello/plugin.yaml:6", "lables"]);
    folder.write("hello/plugin.yaml", &format!("{PLUGIN}  suspend: true\n"));
    folder.podium(&["test", "hello"]).says(2, &["hello/plugin.yaml: spec.suspend: is true"]);
    folder.write("hello/plugin.yaml", &PLUGIN.replace("hello.wasm", "other.wasm"));
    folder.podium(&["test", "hello"]).says(2, &["spec.source.file: ", "is not a file; build it by podium build"]);
    folder.podium(&["test", "hello", "--component", "hello/hello.wasm"]).says(0, &["1 passed"]);
    folder.podium(&["test", "--other"]).says(2, &["--other"]);
}

#[test]
fn a_pod_of_on_that_does_not_run_is_reported_beside_one_that_runs() {
    let folder = Folder::new();
    let pods =
        "pods:\n- metadata: { name: a, labels: { app: web } }\n- metadata: { name: b }\nexpect: { writes: [] }\n";
    let parts = ["shop/a: done", "shop/b: not run", "not run on shop/b: SelectorDoesNotMatch"];
    folder.test(&format!("name: both\non: [a, b]\n{pods}")).says(1, &parts);
    folder.test(&format!("name: all that it watches\n{pods}")).says(0, &[]);
}

#[test]
fn a_file_of_pods_that_a_case_names_is_no_case() {
    let folder = Folder::new();
    folder.write("hello/tests/pod.yaml", "metadata: { name: a, labels: { app: web } }\n");
    folder.test("name: a\npods: [pod.yaml]\nexpect: { writes: [] }\n").says(0, &["1 passed, 0 failed"]);
    folder.test(QUIET).says(2, &["hello/tests/pod.yaml:1: name: is missing"]);
}

#[test]
fn a_state_or_a_configuration_that_the_host_refuses_is_an_error() {
    let folder = Folder::new();
    let large = "x".repeat(1 << 20);
    let state = folder.test(&format!("{QUIET}state: {{ notes: {large} }}\n"));
    state.says(2, &["hello/tests/a.yaml:1: state.notes: invalid: over 1048576 bytes"]);
    let config = folder.test(&format!("{QUIET}config: {{ notes: {large} }}\n"));
    config.says(2, &["hello/tests/a.yaml:6: config: has 1048588 bytes as JSON"]);
}

#[test]
fn the_most_runs_of_a_case_are_a_reason_of_their_own() {
    let folder = Folder::new();
    // The result `requeue-after-millis(2_000)`.
    let reconcile = "(i32.store8 (i32.const 1032) (i32.const 1)) (i64.store (i32.const 1040) (i64.const 2000))";
    let component = Module { reconcile, ..Module::DEFAULT }.component().unwrap();
    fs::write(folder.path("hello/hello.wasm"), component).unwrap();
    let case = format!("{QUIET}  result: requeue after 2s\n");
    folder.test(&format!("{case}thenSeconds: 5\n")).says(0, &["1 passed"]);
    let ended = folder.test(&format!("{case}thenSeconds: 2100\n"));
    ended.says(1, &["is cut off: 1000 runs are the most of a case; lower thenSeconds"]);
    assert!(!ended.stdout.contains("settle"), "{}", ended.stdout);
}

#[test]
fn a_pod_as_clients_print_it_is_run_on() {
    let folder = Folder::new();
    // Of `kubectl run --dry-run=client -o yaml`.
    let null = "metadata: { name: a, uid: null, creationTimestamp: null, labels: { app: web } }\n";
    folder.run(null).says(0, &["shop/a: done"]);
    let of_node = "metadata:\n  name: a\n  labels: { app: web }\n  ownerReferences:\n  - { apiVersion: v1, kind: Node, \
        name: node-1, uid: 0c8b1f1e-6b52-4d6e-8f8e-2f1c7a0f4a55 }\n";
    folder.run(of_node).says(0, &["shop/a: done"]);
}

#[test]
fn a_run_prints_only_requests_on_standard_output() {
    let folder = Folder::new();
    let done = folder.run("metadata: { name: a, labels: { app: web } }\n");
    done.says(0, &["note: pod.yaml: metadata.namespace: shop is filled in", "shop/a: done"]);
    assert_eq!(done.stdout, "", "it writes nothing");
    let json = folder.podium(&["run", "hello", "--pod", "pod.yaml", "-o", "json"]);
    let printed: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&printed["ok"], &printed["result"]), (&true.into(), &"done".into()));

    fs::write(
        folder.path("hello/hello.wasm"),
        Module { reconcile: "unreachable", ..Module::DEFAULT }.component().unwrap(),
    )
    .unwrap();
    folder.podium(&["run", "hello", "--pod", "pod.yaml"]).says(1, &["shop/a: failed: ", "unreachable"]);
}

#[test]
fn a_pod_that_is_none_or_is_not_watched_is_refused_with_the_reason() {
    let folder = Folder::new();
    folder.run("metadata: { name: a }\n").says(1, &["not run on shop/a: SelectorDoesNotMatch"]);
    let other = "metadata: { name: a, namespace: bank, labels: { app: web } }\n";
    folder.run(other).says(1, &["not run on bank/a: OtherNamespace"]);
    for (pod, part) in [
        ("- 1\n", "pod.yaml: must be a Pod"),
        ("a: [\n", "pod.yaml: is neither YAML nor JSON"),
        ("", "pod.yaml: has no Pod"),
        ("metadata: { name: a }\n---\nmetadata: { name: b }\n", "--pod pod.yaml: has 2 Pods, and must have one"),
        ("metadata: { name: a }\nspec: { containers: [] }\n", "pod.yaml: Pod \"a\" is invalid: spec.containers"),
        ("metadata: { name: a }\nspec: { containers: 5 }\n", "pod.yaml: "),
    ] {
        folder.run(pod).says(2, &["error: ", part]);
    }
    folder.podium(&["run", "hello"]).says(2, &["--pod"]);
    let json = folder.podium(&["run", "hello", "--pod", "none.yaml", "-o", "json"]);
    let printed: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((json.code, &printed["ok"]), (Some(2), &false.into()));
}
