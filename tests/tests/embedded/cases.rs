//! `podium run` and `podium test` as an author uses them: scripts and a crate in the host itself.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use podium_tests::{
    process::{podium_command, target_dir, workspace_dir},
    runner,
};
use podium_vocabulary::Language;
use serde_json::Value;
use tempfile::TempDir;

/// A script that uses the whole API, by the annotation `do` of its Pod.
const SCRIPT: &str = r#"import { writes, events, state, log, pods } from "podium";
export default function reconcile({ pod, now, config }) {
  const act = pod.metadata.annotations?.["example.com/do"];
  switch (act) {
    case "annotate": return void writes.setAnnotation(pod, "example.com/at", now.toISOString());
    case "once": {
      if (!pod.metadata.labels?.team) writes.setLabel(pod, "team", `second-${now.getSeconds()}`);
      return;
    }
    case "count": {
      const count = (state.get("count") ?? 0) + 1;
      state.put("count", count);
      log.info("counted", { count });
      return void writes.setLabel(pod, "team", `${config.prefix}-${count}`);
    }
    case "event": return void events.emit(pod, { type: "Warning", reason: "Crowded", note: "too many" });
    case "neighbours": return void writes.setLabel(pod, "team", `of-${pods.count({ labels: { app: "web" } })}`);
    case "apply": return void writes.applyObject({
      apiVersion: "v1", kind: "ConfigMap", metadata: { name: "summary", namespace: "shop" }, data: { a: "b" },
    }, { pod });
    case "list": return void writes.setLabel(pod, "team", config.inputs.prices.map((one) => one.metadata.name)
      .join("-"));
    case "price": return void writes.setLabel(pod, "team", String(config.inputs.prices?.spec.cart ?? "none"));
    case "later": return { afterSeconds: 60 };
    case "other": return void writes.setLabel(pod, "other", "x");
    case "again": {
      if (pod.metadata.labels?.team) return;
      const runs = (state.get("runs") ?? 0) + 1;
      state.put("runs", runs);
      if (runs === 1) throw new Error("not yet");
      return void writes.setLabel(pod, "team", `run-${runs}`);
    }
    case "throw": throw new Error("no team");
    case "loop": for (;;) {}
  }
}
"#;
const PLUGIN: &str = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\n\
    metadata: { name: hello, namespace: shop }\nspec:\n  serviceAccountName: own\n  config: { prefix: web }\n  \
    watch: { sections: [labels, annotations] }\n  \
    grants:\n    read: { pods: { sections: [labels, annotations] } }\n    write:\n      labels: [team]\n      \
    annotations: [example.com/at]\n      events: true\n      \
    objects: [{ apiVersion: v1, kind: ConfigMap, resource: configmaps }]\n  \
    source: { script: { language: javascript, inline: \"export default () => {};\" } }\n";

struct Author {
    folder: TempDir,
    language: Option<Language>,
}

impl Author {
    /// Returns an author of a script, or of a crate; `None` if the runner of the language cannot be built.
    fn new(language: Option<Language>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let languages = language.as_slice();
        let author = runner::install(folder.path(), languages).unwrap() == languages;
        author.then_some(Self { folder, language })
    }

    /// Returns an author of the plugin above.
    fn of_script() -> Option<Self> {
        let author = Self::new(Some(Language::JavaScript))?;
        author.write("hello/plugin.yaml", PLUGIN);
        author.write("hello/plugin.js", SCRIPT);
        Some(author)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn podium(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = podium_command().unwrap();
        command.current_dir(self.folder.path()).args(arguments);
        if self.language.is_some() && arguments[0] != "new" {
            command.args(["--runners", "."]);
        }
        command
    }

    /// Checks the exit code of a command, and that its output has each part. Returns standard output.
    #[track_caller]
    fn says(&self, arguments: &[&str], code: i32, parts: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.podium(arguments);
        let stdout = String::from_utf8_lossy(&stdout).into_owned();
        let all = format!("{stdout}{}", String::from_utf8_lossy(&stderr));
        assert_eq!(status.code(), Some(code), "{all}");
        for part in parts {
            assert!(all.contains(part), "{part:?} in {all}");
        }
        stdout
    }
}

/// Returns a case about one Pod.
fn case(act: &str, rest: &str) -> String {
    let pod = format!("{{ metadata: {{ name: a, annotations: {{ example.com/do: {act} }} }} }}");
    format!("name: {act}\npods:\n- {pod}\n{rest}---\n")
}

#[test]
fn the_cases_of_a_new_script_pass_and_a_run_prints_its_request() {
    for (language, flag, mistake) in [
        (Language::JavaScript, "js", ["export default", "export defalt"]),
        (Language::Python, "python", ["def reconcile", "def reconcile !"]),
    ] {
        a_new_script_passes(language, flag, mistake);
    }
}

fn a_new_script_passes(language: Language, flag: &str, [right, wrong]: [&str; 2]) {
    let Some(author) = Author::new(Some(language)) else { return };
    author.says(&["new", "hello", "--lang", flag], 0, &["podium test hello"]);
    author.says(&["test", "hello"], 0, &["ok      a Pod without a team is marked once", "2 passed, 0 failed"]);
    author.write("pod.json", r#"{ "metadata": { "name": "cart-0", "uid": "0c8b1f1e-6b52-4d6e-8f8e-2f1c7a0f4a55" } }"#);
    let printed = author.says(&["run", "hello", "--pod", "pod.json"], 0, &["shop/cart-0: done"]);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&printed).unwrap();
    let [request] = &documents[..] else { unreachable!("{printed}") };
    assert_eq!(request["request"], "PATCH /api/v1/namespaces/shop/pods/cart-0");
    assert_eq!(request["body"]["metadata"]["labels"]["team"], "unowned");
    assert_eq!(request["body"]["metadata"]["uid"], "0c8b1f1e-6b52-4d6e-8f8e-2f1c7a0f4a55", "the Pod's own");

    // The file beside plugin.yaml is the plugin, and plugin.yaml is not changed.
    let yaml = fs::read_to_string(author.path("hello/plugin.yaml")).unwrap();
    let file = format!("hello/{}", language.file());
    let script = fs::read_to_string(author.path(&file)).unwrap();
    author.write(&file, &script.replace("unowned", "none"));
    let parts = ["FAILED", "hello/tests/team.yaml:3\n", "- - set label team=unowned", "+ - set label team=none"];
    author.says(&["test", "hello"], 1, &parts);
    assert!(script.contains(right), "{script}");
    author.write(&file, &script.replace(right, wrong));
    author.says(&["test", "hello"], 2, &["line ", ", column "]);
    assert_eq!(fs::read_to_string(author.path("hello/plugin.yaml")).unwrap(), yaml);
}

#[test]
fn each_kind_of_call_is_observed_with_its_content() {
    let Some(author) = Author::of_script() else { return };
    let cases = [
        case("annotate", "now: 2026-05-01T12:00:00Z\n"),
        case("count", "config: { prefix: own }\nstate: { count: 6 }\nruns: 1\n"),
        case("event", ""),
        case("apply", ""),
        case("later", ""),
        case("other", ""),
        case("throw", ""),
        case("loop", ""),
        "name: neighbours\non: [a]\npods:\n- metadata: { name: a, labels: { app: web }, annotations: { example.com/do: \
         neighbours } }\n- metadata: { name: b, labels: { app: web }, annotations: { example.com/do: annotate } }\n"
            .to_owned(),
    ];
    author.write("hello/tests/all.yaml", &cases.concat());
    let failed = author.says(&["test", "hello"], 1, &["0 passed, 9 failed"]);
    for part in [
        "+   - set annotation example.com/at on shop/a: \"2026-05-01T12:00:00.000Z\"",
        "+   - set label team=own-7 on shop/a",
        "log: info counted count=7",
        "does not settle: after 1 runs on shop/a",
        "+   - Warning Crowded on shop/a: too many",
        "apply v1 ConfigMap shop/summary",
        "owner: Pod shop/a",
        "requeue after 60s",
        "grants: add other to spec.grants.write.labels, which has [team]",
        "no team (plugin.js:",
        "+   - set label team=of-2 on shop/a",
    ] {
        let part = part.trim_start_matches("+   - ");
        assert!(failed.contains(part), "{part:?} in {failed}");
    }
    assert_eq!(failed.matches("set annotation").count(), 1, "the second run changes nothing: {failed}");
    // The effects are accepted, except of the plugin that does not settle, and are the same again.
    author.says(&["test", "hello", "--update"], 1, &["hello/tests/all.yaml updated"]);
    author.says(&["test", "hello"], 1, &["8 passed, 1 failed"]);
    author.says(&["test", "hello", "--name", "later"], 0, &[]);
    let text = fs::read_to_string(author.path("hello/tests/all.yaml")).unwrap();
    author.write("hello/tests/all.yaml", &text.replacen("name: later\n", "name: later\nthenSeconds: 150\n", 1));
    author.says(&["test", "hello", "--name", "later"], 0, &[]);
}

#[test]
fn a_run_that_failed_is_repeated_in_the_time_afterwards_only() {
    let Some(author) = Author::of_script() else { return };
    author.write("hello/tests/all.yaml", &case("again", "thenSeconds: 60\nruns: 2\n"));
    author.says(&["test", "hello"], 1, &["set label team=run-2 on shop/a"]);
    author.says(&["test", "hello", "--update"], 0, &[]);
    author.says(&["test", "hello"], 0, &["1 passed"]);
    author.write("hello/tests/all.yaml", &case("again", ""));
    author.says(&["test", "hello"], 1, &["+ writes: []", "+ result: \"failed: not yet"]);
}

#[test]
fn a_plugin_of_a_file_with_two_scripts_is_its_own_script() {
    let Some(author) = Author::of_script() else { return };
    let other = PLUGIN.replace("name: hello", "name: other").replace("() => {}", "() => ({ afterSeconds: 5 })");
    author.write("hello/plugin.yaml", &format!("{PLUGIN}---\n{other}"));
    author.write("hello/tests/all.yaml", &case("throw", "expect: { writes: [], result: requeue after 5s }\n"));
    author.says(&["test", "hello", "--plugin", "shop/other"], 0, &["1 passed"]);
}

#[test]
fn a_run_reports_missing_grants_and_failures_with_their_line() {
    let Some(author) = Author::of_script() else { return };
    let run = |act: &str, code, parts: &[&str]| {
        let pod = format!("metadata: {{ name: a, annotations: {{ example.com/do: {act} }} }}\n");
        author.write("pod.yaml", &pod);
        author.says(&["run", "hello", "--pod", "pod.yaml"], code, parts)
    };
    let grant = "grants: add other to spec.grants.write.labels, which has [team]";
    assert_eq!(run("other", 1, &[grant, "shop/a: failed: ", "(plugin.js:"]), "");
    assert_eq!(run("throw", 1, &["shop/a: failed: no team (plugin.js:"]), "");
    let twice = ["event", "event"].map(|act| run(act, 0, &["shop/a: done"]));
    assert!(twice[0].contains("POST /apis/events.k8s.io/v1/namespaces/shop/events"), "{}", twice[0]);
    let counted = run("count", 0, &["log: info counted count=1", "shop/a: done"]);
    assert_eq!(counted.matches("request: ").count(), 1, "one run only: {counted}");

    author.write(
        "others/b.yaml",
        "metadata: { name: b, labels: { app: web }, annotations: { example.com/do: count } }\n",
    );
    author.write("pod.yaml", "metadata: { name: a, annotations: { example.com/do: neighbours } }\n");
    let printed = author.says(&["run", "hello", "--pod", "pod.yaml", "--pods", "others", "-o", "json"], 0, &["of-1"]);
    let json: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["ok"], json["requests"].as_array().unwrap().len()), (&true.into(), 1));
}

#[test]
fn a_run_on_a_pod_of_a_group_is_the_one_for_the_group() {
    let Some(author) = Author::of_script() else { return };
    author.write("hello/plugin.yaml", &PLUGIN.replace("watch: {", "watch: { related: { by: label, label: app },"));
    let pod = |name: &str, labels: &str, act: &str| {
        format!("{{ metadata: {{ name: {name}, labels: {labels}, annotations: {{ example.com/do: {act} }} }} }}\n")
    };
    author.write("others/a.yaml", &pod("a", "{ app: web }", "neighbours"));
    author.write("others/c.yaml", &pod("c", "{ app: api }", "throw"));
    author.write("pod.yaml", &pod("b", "{ app: web }", "throw"));
    let run = ["run", "hello", "--pod", "pod.yaml", "--pods", "others"];
    author.says(&run, 0, &["shop/a: done", "of-2"]);
    author.write("pod.yaml", &pod("b", "{}", "annotate"));
    author.says(&run, 1, &["not run on shop/b: NoGroup: the Pod has no label app, so it is in no group"]);
    let pods = [pod("a", "{ app: web }", "neighbours"), pod("b", "{ app: web }", "throw"), pod("c", "{}", "throw")];
    author.write("hello/tests/group.yaml", &format!("name: group\non: [b]\npods:\n- {}", pods.join("- ")));
    author.says(&["test", "hello"], 1, &["set label team=of-2 on shop/a", "0 passed, 1 failed"]);
}

#[test]
fn a_run_receives_the_objects_of_inputs() {
    let Some(author) = Author::of_script() else { return };
    let input =
        "  inputs:\n  - { id: prices, apiVersion: shop.example/v1, kind: PriceList, resource: pricelists, name: a }\n";
    author.write("hello/plugin.yaml", &PLUGIN.replace("  watch: {", &format!("{input}  watch: {{")));
    let cases = |price: &str, inputs: &str| case("price", &format!("{inputs}expect: {{ writes: [{price}] }}\n"));
    let priced = cases("set label team=3 on shop/a", "inputs: { prices: { spec: { cart: 3 }, status: {} } }\n");
    let without = cases("set label team=none on shop/a", "").replacen("name: price", "name: without", 1);
    author.write("hello/tests/all.yaml", &format!("{priced}{without}"));
    author.says(&["test", "hello"], 0, &["2 passed"]);
    author.write("hello/tests/all.yaml", &cases("", "inputs: { price: { spec: {} } }\n"));
    author.says(&["test", "hello"], 2, &["input price: spec.inputs has none of this id; it has [\"prices\"]"]);
    author.write("pod.yaml", "metadata: { name: a, annotations: { example.com/do: price } }\n");
    author.write("prices.yaml", "spec: { cart: 4 }\n");
    let run = |input: &str, code: i32, parts: &[&str]| {
        author.says(&["run", "hello", "--pod", "pod.yaml", "--input", input], code, parts);
    };
    run("prices=prices.yaml", 0, &["team: \"4\""]);
    run("prices=missing.yaml", 2, &["missing.yaml: cannot be read"]);
    author.write("prices.yaml", "- 1\n");
    run("prices=prices.yaml", 2, &["prices.yaml: is no object"]);
    author.write("prices.yaml", "- spec: { cart: 4 }\n");
    run("prices=prices.yaml", 2, &["input prices: is no object"]);
    run("prices", 2, &["such as prices=prices.yaml"]);
}

#[test]
fn an_input_with_a_selector_has_the_objects_that_it_selects() {
    let Some(author) = Author::of_script() else { return };
    let input = "  inputs:\n  - { id: prices, apiVersion: v1, kind: ConfigMap, resource: configmaps, selector: { \
                 matchLabels: { tier: a } } }\n";
    author.write("hello/plugin.yaml", &PLUGIN.replace("  watch: {", &format!("{input}  watch: {{")));
    let object = |name: &str, tier: &str| format!("{{ metadata: {{ name: {name}, labels: {{ tier: {tier} }} }} }}");
    let objects = [object("q", "a"), object("p", "a"), object("r", "b")].join(", ");
    let listed = case(
        "list",
        &format!("inputs: {{ prices: [{objects}] }}\nexpect: {{ writes: [set label team=p-q on shop/a] }}\n"),
    );
    let none =
        case("list", "expect: { writes: [set label team= on shop/a] }\n").replacen("name: list", "name: none", 1);
    author.write("hello/tests/all.yaml", &format!("{listed}{none}"));
    author.says(&["test", "hello"], 0, &["2 passed"]);
    author.write("hello/tests/all.yaml", &case("list", "inputs: { prices: { data: {} } }\n"));
    author.says(&["test", "hello"], 2, &["input prices: has a selector; write a list of objects"]);
}

#[test]
fn a_policy_refuses_and_bounds_a_plugin_as_the_host_does() {
    let Some(author) = Author::of_script() else { return };
    let pod = |name: String| format!("- metadata: {{ name: {name}, annotations: {{ example.com/do: once }} }}\n");
    let pods = |count: usize| (0..count).map(|at| pod(format!("a{at}"))).collect::<String>();
    author.write("pod.yaml", pods(1).trim_start_matches("- "));
    // Ten writes may be sent at once, and an eleventh a second later.
    author.write("hello/tests/all.yaml", &format!("name: rate\npods:\n{}", pods(11)));
    let policy = |rules: &str| {
        let head = "apiVersion: podium.dev/v1alpha1\nkind: Policy\n";
        author.write("policy.yaml", &format!("{head}spec:\n  defaults:\n    {rules}\n"));
    };
    let commands = [
        &["test", "hello", "--policy", "policy.yaml"][..],
        &["run", "hello", "--pod", "pod.yaml", "--policy", "policy.yaml"],
    ];
    for (rules, parts) in [
        (
            "limits: { writes: 5 }",
            [
                "hello/plugin.yaml:4: spec.limits.writes: of plugin shop/hello: is 20",
                "policy.yaml: spec.defaults.limits.writes",
            ],
        ),
        (
            "scripts: { languages: [python] }",
            ["hello/plugin.yaml:15: spec.source.script.language", "shop may have no script in it"],
        ),
        ("limits: { wites: 5 }", ["--policy policy.yaml:5: spec.defaults.limits.wites", "writes"]),
    ] {
        policy(rules);
        commands.iter().for_each(|command| drop(author.says(command, 2, &parts)));
    }
    for (rate, later) in [(1, true), (200, false)] {
        policy(&format!("requests: {{ writesPerSecond: {rate} }}"));
        let printed = author.says(commands[0], 1, &["team=second-0 on shop/a0"]);
        assert_eq!(printed.contains("team=second-1 on "), later, "{printed}");
    }
    author.says(commands[1], 0, &["shop/a0: done"]);
}

#[test]
fn one_command_compiles_the_runner_and_loads_no_changed_code() {
    const COMPILED: &str = "compiled the runner of scripts in JavaScript: ";
    let Some(author) = Author::of_script() else { return };
    author.write("pod.yaml", "metadata: { name: a }\n");
    author.write("hello/tests/all.yaml", &case("once", "expect: { writes: [set label team=second-0 on shop/a] }\n"));
    let caches = author.path("caches");
    let mut arguments = [&["check", "hello"][..], &["run", "hello", "--pod", "pod.yaml"], &["test", "hello"]];
    // Returns what the command says on standard error.
    let podium = |caches: &Path, arguments: &[&str]| {
        let output = author.command(arguments).env("XDG_CACHE_HOME", caches).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        said
    };
    let compiled = |said: String, changed: bool| {
        assert_eq!((said.matches(COMPILED).count(), said.contains("removed, compiling again")), (1, changed), "{said}");
    };
    compiled(podium(&caches, arguments[0]), false);
    let own = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let code = fs::read_dir(caches.join("podium/compiled")).unwrap().next().unwrap().unwrap().path();
    assert_eq!([own(&caches.join("podium")), own(code.parent().unwrap()), own(&code)], [0o700, 0o700, 0o600]);
    for arguments in arguments {
        assert!(!podium(&caches, arguments).contains(COMPILED), "{arguments:?}");
    }

    // Another user's code, of the same runner and for the same engine.
    let other = author.path("other");
    compiled(podium(&other, arguments[0]), false);
    let foreign = fs::read(other.join("podium/compiled").join(code.file_name().unwrap())).unwrap();
    let right = fs::read(&code).unwrap();
    let mut flipped = right.clone();
    flipped[right.len() / 2] ^= 1;
    for bytes in [flipped, right[..right.len() - 1].to_vec(), foreign] {
        fs::write(&code, bytes).unwrap();
        compiled(podium(&caches, arguments[0]), true);
        arguments.rotate_left(1);
        assert!(!podium(&caches, arguments[0]).contains(COMPILED), "{arguments:?}");
    }
    fs::set_permissions(&code, Permissions::from_mode(0o666)).unwrap();
    compiled(podium(&caches, arguments[0]), true);

    let said = podium(&author.path("pod.yaml"), arguments[0]);
    assert!(said.contains("compiled code is not kept, so each command compiles again: "), "{said}");
    compiled(said, false);
}

#[test]
fn the_cases_of_a_new_crate_pass() {
    let Some(author) = Author::new(None) else { return };
    let settings = format!("[build]\ntarget-dir = {:?}\n", target_dir().unwrap().join("guests"));
    author.write(".cargo/config.toml", &settings);
    author.says(&["new", "hello"], 0, &[]);
    fs::copy(workspace_dir().join("Cargo.lock"), author.path("hello/Cargo.lock")).unwrap();
    author.says(&["test", "hello"], 0, &["2 passed, 0 failed"]);
    author.write("pod.yaml", "metadata: { name: cart-0 }\n");
    let printed = author.says(&["run", "hello", "--pod", "pod.yaml"], 0, &["shop/cart-0: done"]);
    assert!(printed.contains("team: unowned"), "{printed}");
}
