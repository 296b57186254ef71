//! Scripts of each language on the real runners: the whole API, determinism, mistakes with their place, and what a
//! script may take. The properties of one language are in `javascript` and `python`.

use std::{fs, path::Path, sync::Arc, time::Duration};

use podium_engine::ports::{Failure, FailureKind, LogLevel, Outcome, Request, RunReport, Staged, Subject};
use podium_runtime::{Engine, Plugin, Runner};
use podium_tests::{process::workspace_dir, runner, sandbox::*};
use podium_vocabulary::{Function, Grants, Language, LimitClass, PluginSpec};
use serde_json::Value;
use tokio::sync::OnceCell;

/// The names that bodies of scripts use.
const IMPORTS: [&str; 2] = [
    "import { writes, pods, objects, events, state, log, quantity, duration, TerminalError, CallError } \
     from \"podium\";\n",
    "from podium import writes, pods, objects, events, state, log, quantity, duration, TerminalError, CallError, \
     PodKey\n",
];

/// The scripts of one language.
pub(super) struct Scripts {
    language: Language,
    engine: Arc<Engine>,
    runner: Runner,
}

impl Scripts {
    /// Compiles the runner at the first use; `None` where it cannot be built.
    pub(super) async fn in_language(language: Language) -> Option<&'static Self> {
        static COMPILED: [OnceCell<Option<Scripts>>; 2] = [const { OnceCell::const_new() }; 2];
        let compile = move || {
            let wasm = fs::read(runner::component(language).unwrap()?).unwrap();
            let engine = engine();
            let runner = engine.runner(Path::new(language.runner()), &wasm).unwrap();
            Some(Scripts { language, engine, runner })
        };
        let cell = &COMPILED[language as usize];
        cell.get_or_init(async || tokio::task::spawn_blocking(compile).await.unwrap()).await.as_ref()
    }

    pub(super) fn spec(&self, grants: Grants) -> PluginSpec {
        let mut spec = PluginSpec { grants, language: Some(self.language), ..spec("script") };
        spec.limits.class = LimitClass::Interpreter;
        // Recursion and strings of 100 MB take longer than a run.
        spec.limits.cpu = Duration::from_secs(5);
        spec
    }

    pub(super) async fn prepared(&self, spec: &PluginSpec, source: &str) -> Result<Plugin, String> {
        let prepared = self.engine.prepare(spec, &self.runner, source.as_bytes(), 8 << 20).await;
        prepared.map_err(|error| error.to_string())
    }

    /// Prepares a script that may do everything.
    pub(super) async fn plugin(&self, source: &str) -> Plugin {
        let prepared = self.prepared(&self.spec(everything()), source).await;
        prepared.unwrap_or_else(|error| panic!("{error}\n{source}"))
    }

    /// Runs a whole script.
    pub(super) async fn run(&self, spec: &PluginSpec, source: &str) -> (RunReport<Staged>, Notes) {
        let plugin = self.prepared(spec, source).await.unwrap_or_else(|error| panic!("{error}\n{source}"));
        run_in(&plugin, request(), FakeWorld::default()).await
    }

    /// Returns the script whose function has this body, which begins in line 3.
    pub(super) fn script(&self, body: &str) -> String {
        let imports = IMPORTS[self.language as usize];
        match self.language {
            Language::JavaScript => {
                let arguments = "{ pod, deleted, key, now, attempt, config, unsettled }";
                format!("{imports}export default async function reconcile({arguments}) {{\n{body}\n}}\n")
            }
            Language::Python => {
                let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
                format!("{imports}def reconcile(request):\n{body}")
            }
        }
    }

    /// Runs a function with this body, which may do everything.
    pub(super) async fn body(&self, body: &str) -> (RunReport<Staged>, Notes) {
        self.run(&self.spec(everything()), &self.script(body)).await
    }

    /// Runs a body that fails.
    pub(super) async fn failure(&self, body: &str) -> Failure {
        let (report, _) = self.body(body).await;
        assert!(report.staged.writes.is_empty() && report.staged.events.is_empty(), "{body}");
        report.result.err().unwrap_or_else(|| panic!("settled: {body}"))
    }

    /// Runs bodies that fail with this kind and a message with this part.
    pub(super) async fn fail(&self, failures: &[(&str, FailureKind, &str)]) {
        for (body, kind, message) in failures {
            let failure = self.failure(body).await;
            assert_eq!(failure.kind, *kind, "{body}: {}", failure.message);
            assert!(failure.message.contains(message), "{body}: {}", failure.message);
        }
    }
}

/// The languages whose runners can be built, each with its own of two texts.
pub(super) async fn each<T>(texts: [T; 2]) -> Vec<(&'static Scripts, T)> {
    let mut scripts = Vec::new();
    for (language, text) in Language::ALL.into_iter().zip(texts) {
        scripts.extend(Scripts::in_language(language).await.map(|of| (of, text)));
    }
    scripts
}

/// Calls every function of the API; each logs its answer.
const CALLS: [&str; 2] = [
    r#"
  const names = (found) => [...found].map((pod) => pod.metadata.name).join();
  const config = { apiVersion: "v1", kind: "ConfigMap", metadata: { namespace: "shop", name: "a" } };
  const calls = {
    get: () => pods.get("shop", "cart-1").metadata.name,
    getLive: () => pods.getLive("shop", "cart-1").metadata.name,
    find: () => names(pods.find({ labels: { app: ["cart"], other: false } })),
    count: () => pods.count({ namespace: "shop" }),
    getObject: () => objects.get({ ...config.metadata, ...config })?.data.a,
    getAbsent: () => objects.get({ ...config.metadata, ...config, name: "absent" }) ?? "none",
    setLabel: () => writes.setLabel(pod, "guests.example/a", "1"),
    removeLabel: () => writes.removeLabel(key, "guests.example/b"),
    setAnnotation: () => writes.setAnnotation(pod, "guests.example/a", "1"),
    removeAnnotation: () => writes.removeAnnotation(pod, "guests.example/b"),
    addFinalizer: () => writes.addFinalizer(pod, "guests.example/a"),
    removeFinalizer: () => writes.removeFinalizer(pod, "guests.example/b"),
    setCondition: () => writes.setCondition(pod, { type: "guests.example/a", status: "True", reason: "A" }),
    removeCondition: () => writes.removeCondition(pod, "guests.example/b"),
    applyObject: () => writes.applyObject({ ...config, data: { a: "b" } }, { workload: pod }),
    deleteObject: () => writes.deleteObject({ ...config.metadata, ...config }),
    scale: () => objects.scale({ ...config.metadata, ...config }, 3),
    evict: () => writes.evict(pod),
    delete: () => writes.delete(pod, 5),
    emit: () => events.emit(pod, { type: "Warning", reason: "Called", note: "a" }) ?? "none",
  };
  for (const name in calls) {
    try {
      log.info(`${name} ${calls[name]()}`);
    } catch (error) {
      log.info(`${name} ${error.code}`);
    }
  }
"#,
    r#"
pod, key = request.pod, request.key
names = lambda found: ",".join(pod["metadata"]["name"] for pod in found)
config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "a"}}
calls = {
    "get": lambda: pods.get("shop", "cart-1")["metadata"]["name"],
    "get_live": lambda: pods.get_live("shop", "cart-1")["metadata"]["name"],
    "find": lambda: names(pods.find(labels={"app": ["cart"], "other": False})),
    "count": lambda: pods.count(namespace="shop"),
    "get_object": lambda: objects.get(config)["data"]["a"],
    "get_absent": lambda: objects.get({**config, "metadata": {"namespace": "shop", "name": "absent"}}) or "none",
    "set_label": lambda: writes.set_label(pod, "guests.example/a", "1"),
    "remove_label": lambda: writes.remove_label(key, "guests.example/b"),
    "set_annotation": lambda: writes.set_annotation(pod, "guests.example/a", "1"),
    "remove_annotation": lambda: writes.remove_annotation(pod, "guests.example/b"),
    "add_finalizer": lambda: writes.add_finalizer(pod, "guests.example/a"),
    "remove_finalizer": lambda: writes.remove_finalizer(pod, "guests.example/b"),
    "set_condition": lambda: writes.set_condition(pod, "guests.example/a", "True", reason="A"),
    "remove_condition": lambda: writes.remove_condition(pod, "guests.example/b"),
    "apply_object": lambda: writes.apply_object({**config, "data": {"a": "b"}}, workload=pod),
    "delete_object": lambda: writes.delete_object(config),
    "scale": lambda: objects.scale(config, 3),
    "evict": lambda: writes.evict(pod),
    "delete": lambda: writes.delete(pod, 5),
    "emit": lambda: events.emit(pod, "Called", "a", type="Warning") or "none",
}
for name, one in calls.items():
    try:
        log.info(f"{name} {one()}")
    except Exception as error:
        log.info(f"{name} {getattr(error, 'code', None)}")
"#,
];

#[tokio::test]
async fn every_call_of_the_api_reaches_the_host_or_its_refusal() {
    let mut staged = Vec::new();
    for (scripts, calls) in each(CALLS).await {
        let script = scripts.script(calls);
        let imports = scripts.plugin(&script).await.imports();
        assert_eq!(imports.len(), Function::ALL.len() + 1, "all, and its program: {imports:?}");
        let (report, notes) = scripts.body(calls).await;
        assert_eq!(report.result, Ok(Outcome::Settled));
        let answers: Vec<_> = notes.lines().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
        assert_eq!(answers[..6], ["cart-1", "cart-1", "cart-0,cart-1", "2", "b", "none"], "{:?}", notes.lines());
        let ids = (0..13).map(|id| id.to_string()).chain(["none".to_owned()]);
        assert_eq!(answers[6..], ids.collect::<Vec<_>>(), "{:?}", notes.lines());
        let described: Vec<_> = report.staged.writes.iter().map(|write| write.get().action.describe()).collect();
        assert_eq!(described[0], "set label guests.example/a=1 on shop/cart-0");
        assert_eq!(described.len(), 13, "{described:?}");
        assert_eq!(report.staged.events.len(), 1);
        staged.push(format!("{:?} {:?}", report.staged.writes, report.staged.events));

        let (report, notes) = scripts.run(&scripts.spec(Grants::default()), &script).await;
        assert!(report.staged.writes.is_empty() && report.staged.events.is_empty(), "{:?}", report.result);
        assert_eq!(notes.live, 0);
        let refused = notes.lines().iter().filter(|line| line.ends_with(" not-granted")).count();
        assert_eq!(refused, 16, "{:?}", notes.lines());
    }
    assert!(staged.iter().all(|of| *of == staged[0]), "{staged:#?}");
}

/// One reconciler.
const SAME: [&str; 2] = [
    r#"
  const { labels } = pod.metadata;
  const peers = pods.count({ labels: { app: labels.app } });
  const others = [...pods.find({ labels: { app: { not: [labels.app] } } })].map(({ metadata }) => metadata.name);
  const kin = [...pods.siblings(pod)].length;
  if (labels.app.length > 2) writes.setLabel(pod, "guests.example/team", `team-of-${labels.app}`);
  else writes.removeLabel(pod, "guests.example/team");
  writes.setAnnotation(pod, "guests.example/seen", JSON.stringify({ peers, others, kin, at: Math.floor(now / 1000) }));
  if (peers > 1) {
    writes.setCondition(pod, { type: "guests.example/crowded", status: "True", reason: "Peers", message: "ä…" });
    events.emit(pod, { reason: "Crowded", note: `${peers} Pods of ${labels.app}` });
  }
  const data = { peers: String(peers) };
  const metadata = { namespace: "shop", name: `of-${labels.app}` };
  writes.applyObject({ apiVersion: "v1", kind: "ConfigMap", metadata, data }, { pod });
  return { afterSeconds: peers + 0.5 };
"#,
    r#"
import json
pod, now = request.pod, request.now
labels = pod["metadata"]["labels"]
app = labels["app"]
peers = pods.count(labels={"app": app})
others = [other["metadata"]["name"] for other in pods.find(labels={"app": {"not": [app]}})]
if len(app) > 2:
    writes.set_label(pod, "guests.example/team", f"team-of-{app}")
else:
    writes.remove_label(pod, "guests.example/team")
seen = {"peers": peers, "others": others, "kin": len([*pods.siblings(pod)]), "at": int(now.timestamp())}
writes.set_annotation(pod, "guests.example/seen", json.dumps(seen, separators=(",", ":")))
if peers > 1:
    writes.set_condition(pod, "guests.example/crowded", "True", reason="Peers", message="ä…")
    events.emit(pod, "Crowded", f"{peers} Pods of {app}")
metadata = {"namespace": "shop", "name": f"of-{app}"}
data = {"peers": str(peers)}
writes.apply_object({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, pod=pod)
return {"after_seconds": peers + 0.5}
"#,
];

#[tokio::test]
async fn one_reconciler_writes_the_same_in_each_language() {
    let apps = ["cart", "web", "db", "a", "cart", "db", "queue", "web-2"];
    let pods =
        || (0..).zip(apps).map(|(at, app)| pod_with_label("shop", &format!("pod-{at}"), app)).collect::<Vec<_>>();
    let mut outcomes = Vec::new();
    for (scripts, body) in each(SAME).await {
        let plugin = scripts.plugin(&scripts.script(body)).await;
        let mut of_language = Vec::new();
        for pod in pods() {
            let mut request = request();
            request.key = pod.key.clone();
            request.subject = Subject::Present(pod);
            let (report, _) = run_in(&plugin, request, FakeWorld::with_pods(pods())).await;
            of_language.push(format!("{:?} {:?} {:?}", report.result, report.staged.writes, report.staged.events));
        }
        assert!(of_language[0].contains("team-of-cart") && of_language[2].contains("crowded"), "{of_language:#?}");
        outcomes.push(of_language);
    }
    assert!(outcomes.iter().all(|of| *of == outcomes[0]), "{outcomes:#?}");
}

/// Derives the values of a table of cases, and prints them as one list.
const DERIVED: [&str; 2] = [
    r#"
  const lines = [];
  const add = (derive) => { try { lines.push(`${derive()}`); } catch (error) { lines.push(error.message); } };
  for (const [text] of config.quantities) {
    add(() => [quantity(text), quantity(text).value(), quantity(text).millis()].join(" "));
  }
  for (const text of [...config.saturated, ...config.noQuantities]) add(() => quantity(text));
  for (const [text] of config.durations) add(() => duration(text));
  for (const text of config.noDurations) add(() => duration(text));
  for (const one of config.pods) {
    one.metadata = { creationTimestamp: "1970-01-01T00:00:00Z" };
    const finished = pods.finishedAt(one);
    add(() => `${pods.requests(one, "cpu")} ${pods.isReady(one)} ${finished ? finished / 1000 : "none"}`);
  }
  const larger = quantity("1Gi") > quantity("1G") && quantity("0.5").plus(quantity("500m")).value() === 1;
  console.log(JSON.stringify([...lines, `${larger}`]));
"#,
    r#"
import json
lines = []
def add(derive):
    try:
        lines.append(str(derive()))
    except TerminalError as error:
        lines.append(str(error))
def amounts(amount):
    return f"{amount} {amount.value()} {amount.millis()}"
def derived(one):
    finished, ready = pods.finished_at(one), "true" if pods.is_ready(one) else "false"
    return f"{pods.requests(one, 'cpu')} {ready} {round(finished.timestamp()) if finished else 'none'}"
config = request.config
for text, _ in config["quantities"]:
    add(lambda: amounts(quantity(text)))
for text in config["saturated"] + config["noQuantities"]:
    add(lambda: quantity(text))
for text, _ in config["durations"]:
    add(lambda: f"{duration(text).total_seconds():g}")
for text in config["noDurations"]:
    add(lambda: duration(text))
for one in config["pods"]:
    one["metadata"] = {"creationTimestamp": "1970-01-01T00:00:00Z"}
    add(lambda: derived(one))
larger = quantity("1Gi") > quantity("1G") and (quantity("0.5") + quantity("500m")).value() == 1
print(json.dumps([*lines, "true" if larger else "false"], ensure_ascii=False))
"#,
];

#[tokio::test]
async fn scripts_derive_the_values_that_rust_does() {
    let text = fs::read_to_string(workspace_dir().join("guest-sdk/tests/derived.json")).unwrap();
    let table: Value = serde_json::from_str(&text).unwrap();
    let rows = |name: &str| table[name].as_array().unwrap().iter();
    let second = |row: &Value| row[1].as_str().map_or_else(|| row[1].to_string(), str::to_owned);
    let quantities = rows("quantities").map(second);
    let saturated = rows("saturated").map(|_| i64::MAX.to_string());
    let no_quantities =
        rows("noQuantities").map(|text| format!("{text} is no quantity, such as 500m, 2, 1.5Gi or 1e3"));
    let no_durations = rows("noDurations").map(|text| format!("{text} is no duration, such as 90s, 1h30m or 7d"));
    let pods = rows("pods").map(|row| row["derived"].as_str().unwrap().to_owned());
    let amounts = quantities.chain(saturated).chain(no_quantities);
    let times = rows("durations").map(second).chain(no_durations);
    let expected: Vec<_> = amounts.chain(times).chain(pods).chain(["true".to_owned()]).collect();
    for (scripts, body) in each(DERIVED).await {
        let mut spec = scripts.spec(everything());
        spec.config = text.clone().into();
        let (report, notes) = scripts.run(&spec, &scripts.script(body)).await;
        assert_eq!(report.result, Ok(Outcome::Settled));
        assert_eq!(serde_json::from_str::<Vec<String>>(&notes.log[0].1).unwrap(), expected);
    }
}

#[tokio::test]
async fn state_commit_and_console_are_those_of_the_host() {
    let bodies = [
        r#"
      writes.setLabel(pod, "guests.example/a", "1");
      const [report] = writes.commit();
      console.log("committed", report.result, report.settled, { a: [1] }, now, attempt);
      state.put("key", { a: 1 });
      console.log(typeof state.putIf("key", 2, 0), String(state.get("absent")));
      log.debug("fields", { pod: key.name, number: 5 });
      return { afterSeconds: 1.5 };"#,
        r#"
writes.set_label(request.pod, "guests.example/a", "1")
[report] = writes.commit()
print("committed", report.result, report.settled, {"a": [1]}, request.now, request.attempt)
state.put("key", {"a": 1})
print(type(state.put_if("key", 2, 0)).__name__, state.get("absent"))
log.debug("fields", pod=request.key.name, number=5)
return {"after_seconds": 1.5}"#,
    ];
    let printed = [
        [r#"committed applied true {"a":[1]} "2026-01-02T03:04:05.678Z" 1"#, "boolean undefined"],
        ["committed applied True {'a': [1]} 2026-01-02 03:04:05.678000+00:00 1", "bool None"],
    ];
    for (scripts, (body, printed)) in each([(bodies[0], printed[0]), (bodies[1], printed[1])]).await {
        let (report, notes) = scripts.body(body).await;
        assert_eq!(report.result, Ok(Outcome::RequeueAfter(Duration::from_millis(1_500))));
        assert_eq!(notes.log[0], (LogLevel::Info, printed[0].to_owned(), Vec::new()));
        assert_eq!(notes.log[1].1, printed[1]);
        let fields = [("pod", "cart-0"), ("number", "5")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(notes.log[2], (LogLevel::Debug, "fields".to_owned(), fields.to_vec()));
        assert_eq!(notes.committed, [0]);
    }
    for (scripts, body) in each(["return { stop: true };", "return {\"stop\": True}"]).await {
        assert_eq!(scripts.body(body).await.0.result, Ok(Outcome::Stop));
    }
}

#[tokio::test]
async fn a_deletion_has_no_pod_and_the_last_state_if_there_is_one() {
    let sources = [
        "export default ({ pod, deleted, key }) => console.log(pod === undefined, deleted?.metadata.name, key.uid)",
        "def reconcile(r):\n  print(r.pod is None, r.deleted and r.deleted['metadata']['name'], r.key.uid)",
    ];
    for (scripts, source) in each(sources).await {
        let plugin = scripts.plugin(source).await;
        for last in [None, Some(())] {
            let mut request = request();
            request.subject = Subject::Deleted(last.map(|()| pod("shop", "cart-0")));
            let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
            assert_eq!(report.result, Ok(Outcome::Settled));
            let text = notes.lines().concat().to_lowercase();
            let expected = if last.is_some() { "true cart-0 uid-of-cart-0" } else { "uid-of-cart-0" };
            assert!(text.starts_with("true ") && text.ends_with(expected), "{text}");
        }
    }
}

#[tokio::test]
async fn a_run_is_a_function_of_its_request() {
    let sources = [
        "export default () => console.log(Date.now(), new Date(), performance.now(), Math.random(), Math.random())",
        "import datetime, random, time, uuid\ndef reconcile(r):\n  print(time.time_ns() // 10**6, \
         datetime.datetime.now(), datetime.date.today(), time.monotonic(), time.strftime('%S'), random.random(), \
         random.Random().random(), uuid.uuid4(), id(r), {'a', 'b', 'c'})",
    ];
    for (scripts, source) in each(sources).await {
        let plugin = scripts.plugin(source).await;
        let run = async |uid: &str| {
            let mut request = request();
            request.key.uid = uid.into();
            let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
            (report.usage.fuel, notes.lines().concat())
        };
        let first = run("a").await;
        let again = run("a").await;
        let other = run("b").await;
        assert_eq!(first, again, "also in its cost");
        assert!(first.1.starts_with("1767323045678 ") && first.1.contains("2026-01-02"), "{}", first.1);
        assert_ne!(first.1, other.1, "another seed");
    }
}

#[tokio::test]
async fn a_mistake_in_the_source_is_reported_with_its_place() {
    let deep = format!("export default () => {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let javascript = [
        ("export default () => {\n  const x = ;\n}", "line 2, column 13: SyntaxError: unexpected token"),
        ("export default () => {\n  \"abc\n}", "line 2, column 3: SyntaxError: unexpected end of string"),
        ("\nimport _ from \"lodash\";\nexport default () => {}", "line 2, column 16: ReferenceError: could not load"),
        ("import _ from \"./a.js\";\nexport default () => {}", "imports only \"podium\"; bundle other modules into it"),
        ("import { write } from \"podium\";\nexport default () => {}", "line 1, column 10: SyntaxError: Could not"),
        ("/* ä */ import _ from \"lodash\";\nexport default () => {}", "line 1, column 24: ReferenceError"),
        ("export function reconcile() {}", "export the plugin's function, `export default function reconcile"),
        ("", "export the plugin's function"),
        (&*deep, "RangeError: Maximum call stack size exceeded"),
    ];
    let entry = "\ndef reconcile(request):\n  pass\n";
    let deep = format!("x = {}1{}{entry}", "(".repeat(100_000), ")".repeat(100_000));
    let [lodash, lines, relative, name, second] = [
        "\nimport lodash",
        "\u{feff}'ä'\r\r\nimport lodash",
        "from . import a",
        "from podium import write",
        "import json, os",
    ]
    .map(|line| format!("{line}{entry}"));
    let python = [
        ("def reconcile(request):\n  x = ;\n", "line 2, column 7: SyntaxError: invalid syntax"),
        ("def reconcile(request):\n  'abc\n", "line 2, column 3: SyntaxError: unterminated string literal"),
        ("def reconcile(request):\n  pass\n    pass\n", "line 3, column 4: IndentationError: unexpected indent"),
        ("def reconcile(request", "line 1, column 14: SyntaxError: '(' was never closed"),
        (&lodash, "line 2, column 1: ModuleNotFoundError: no module lodash: a script is one file"),
        (&relative, "line 1, column 1: ModuleNotFoundError: no module .: a script is one file"),
        (&name, "line 1, column 1: ImportError: cannot import name 'write' from 'podium'"),
        (&lines, "line 3, column 1: ModuleNotFoundError: no module lodash"),
        (&second, "line 1, column 1: ModuleNotFoundError: no module os"),
        ("def recon(request):\n  pass\n", "the script has no function reconcile: `def reconcile(request): ..`"),
        ("", "the script has no function reconcile"),
        ("\0", "SyntaxError: source code string cannot contain null bytes"),
        (&deep, "the source is nested too deeply"),
    ];
    for (scripts, mistakes) in each([&javascript[..], &python]).await {
        for (source, expected) in mistakes {
            let error = scripts.prepared(&scripts.spec(everything()), source).await.expect_err(source);
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
    // Preparation executes nothing.
    let endless = ["for (;;) ;\nexport default () => {}".to_owned(), format!("x = 1\nwhile x: pass{entry}")];
    for (scripts, source) in each(endless).await {
        assert!(scripts.prepared(&scripts.spec(everything()), &source).await.is_ok());
    }
}

#[tokio::test]
async fn code_at_the_top_level_calls_nothing() {
    let sources = [
        [
            ("throw new Error('top');\nexport default () => {}", "top (plugin.js:1:"),
            ("export default 5", "the script exports no function"),
            ("import { pods } from 'podium';\npods.count();\nexport default () => {}", "no run is under way"),
        ],
        [
            ("[].top\ndef reconcile(request): pass", "object has no attribute 'top' (plugin.py:1:1)"),
            ("reconcile = 5", "reconcile is no function"),
            ("from podium import pods\npods.count()\ndef reconcile(request): pass", "no run is under way"),
        ],
    ];
    for (scripts, sources) in each(sources).await {
        for (source, message) in sources {
            let (report, _) = scripts.run(&scripts.spec(everything()), source).await;
            let failure = report.result.expect_err(source);
            assert!(failure.message.contains(message), "{source}: {}", failure.message);
        }
    }
}

#[tokio::test]
async fn a_script_that_takes_too_much_harms_only_its_run() {
    let strings = [
        "const a = []; for (let i = 0; i < 100; i++) a.push('x'.repeat(1e6) + i)",
        "a = [str(i) * 1_000_000 for i in range(100)]",
    ];
    for (scripts, body) in each(strings).await {
        let failure = scripts.failure(body).await;
        assert!(failure.message.contains("memory"), "{}", failure.message);
    }
    let endless = ["export default () => { for (;;) ; }", "def reconcile(request):\n  while True: pass\n"];
    for (scripts, source) in each(endless).await {
        let mut short = scripts.spec(everything());
        short.limits.cpu = Duration::from_millis(20);
        let (report, _) = scripts.run(&short, source).await;
        failed(report, FailureKind::Cpu);
    }
    // The next run of the same plugin has its own prototypes and modules.
    let tampers = [
        "if (attempt === 2) return Object.prototype.kind;
      Object.prototype.kind = 'stop'; JSON.parse = JSON.stringify = null; Array.isArray = () => true;
      Error.prototype.name = null; writes.setLabel(pod, 'guests.example/a', 'b');",
        "import json, podium\nif request.attempt == 2: return None if json.loads('5') == 5 else 5\n\
         json.loads = json.dumps = podium.Request = None\n\
         writes.set_label(request.pod, 'guests.example/a', 'b')",
    ];
    for (scripts, body) in each(tampers).await {
        let plugin = scripts.plugin(&scripts.script(body)).await;
        for (attempt, writes) in [(1, 1), (2, 0)] {
            let (report, _) = run_in(&plugin, Request { attempt, ..request() }, FakeWorld::default()).await;
            assert_eq!((report.result, report.staged.writes.len()), (Ok(Outcome::Settled), writes), "{attempt}");
        }
    }
}

#[tokio::test]
async fn a_script_of_512_kib_is_prepared_or_refused_by_name() {
    let functions = |entry: &str, line: fn(usize) -> String, most: usize| {
        let mut source = entry.to_owned();
        for line in (0..).map(line) {
            if source.len() + line.len() > most {
                break;
            }
            source.push_str(&line);
        }
        format!("{source}{}", "\n".repeat(most - source.len()))
    };
    let javascript: fn(usize) -> String = |at| format!("function f{at}(a, b) {{ return a + b * {at}; }}\n");
    let python: fn(usize) -> String = |at| format!("def f{at}(a, b): return a + b * {at}\n");
    // With the refusals of 512 KiB of functions, with 32 and with 256 MiB.
    let languages = [
        ("const data = (text) => text;\nexport default () => {};\n", javascript, [None, None]),
        (
            "data = len\ndef reconcile(request): pass\n",
            python,
            [Some("spec.limits.memoryMiB is 32"), Some("used up its limit of processor time")],
        ),
    ];
    for (scripts, (entry, line, refused)) in each(languages).await {
        let mut spec = scripts.spec(everything());
        let small = functions(entry, line, 64 << 10);
        assert!(scripts.prepared(&spec, &small).await.is_ok(), "64 KiB of functions");
        let quotes = format!("{entry}data(\"\");");
        let data = quotes.replace("\"\"", &format!("\"{}\"", "x".repeat(Language::MOST_BYTES - quotes.len())));
        assert_eq!(data.len(), 512 << 10);
        let (report, _) = scripts.run(&spec, &data).await;
        assert_eq!(report.result, Ok(Outcome::Settled));
        let source = functions(entry, line, Language::MOST_BYTES);
        for (memory_bytes, refused) in [32 << 20, 256 << 20].into_iter().zip(refused) {
            spec.limits.memory_bytes = memory_bytes;
            let error = scripts.prepared(&spec, &source).await.err().unwrap_or_default();
            assert_eq!(error.is_empty(), refused.is_none(), "{error}");
            assert!(error.contains(refused.unwrap_or_default()), "{error}");
        }
    }
}
