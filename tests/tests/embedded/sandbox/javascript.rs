//! Scripts in JavaScript on the real runner: the whole API, determinism, and mistakes, which are failures with a place.

use std::{fs, path::Path, sync::Arc, time::Duration};

use podium_engine::ports::{Failure, FailureKind, LogLevel, Outcome, RunReport, Staged, Subject};
use podium_runtime::{Engine, Plugin, Runner};
use podium_tests::{runner, sandbox::*};
use podium_vocabulary::{Function, Grants, Language, LimitClass, PluginSpec};
use tokio::sync::OnceCell;

const IMPORT: &str = r#"import { writes, pods, events, state, log, TerminalError, CallError } from "podium";"#;

/// The compiled runner; `None` without clang.
async fn compiled() -> Option<&'static (Arc<Engine>, Runner)> {
    static COMPILED: OnceCell<Option<(Arc<Engine>, Runner)>> = OnceCell::const_new();
    let compile = || {
        let wasm = fs::read(runner::component().unwrap()?).unwrap();
        let engine = engine();
        let runner = engine.runner(Path::new("javascript-1.wasm"), &wasm).unwrap();
        Some((engine, runner))
    };
    COMPILED.get_or_init(async || tokio::task::spawn_blocking(compile).await.unwrap()).await.as_ref()
}

fn script(grants: Grants) -> PluginSpec {
    let mut spec = PluginSpec { grants, language: Some(Language::JavaScript), ..spec("script") };
    spec.limits.class = LimitClass::Interpreter;
    // Recursion and strings of 100 MB take longer than a run.
    spec.limits.cpu = Duration::from_secs(5);
    spec
}

struct Scripts(&'static (Arc<Engine>, Runner));

impl Scripts {
    async fn prepared(&self, spec: &PluginSpec, source: &str) -> Result<Plugin, String> {
        let (engine, runner) = self.0;
        let prepared = engine.prepare(spec, runner, source.as_bytes(), 1 << 20).await;
        prepared.map_err(|error| error.to_string())
    }

    /// Runs a whole script.
    async fn run(&self, spec: &PluginSpec, source: &str) -> (RunReport<Staged>, Notes) {
        let plugin = self.prepared(spec, source).await.unwrap_or_else(|error| panic!("{error}\n{source}"));
        run_in(&plugin, request(), FakeWorld::default()).await
    }

    /// Runs a function with this body, which begins in line 3 and may do everything.
    async fn body(&self, body: &str) -> (RunReport<Staged>, Notes) {
        let arguments = "{ pod, deleted, key, now, attempt, config, unsettled }";
        let source = format!("{IMPORT}\nexport default async function reconcile({arguments}) {{\n{body}\n}}\n");
        self.run(&script(everything()), &source).await
    }

    /// Runs a body that fails.
    async fn failure(&self, body: &str) -> Failure {
        let (report, _) = self.body(body).await;
        assert!(report.staged.writes.is_empty() && report.staged.events.is_empty(), "{body}");
        report.result.err().unwrap_or_else(|| panic!("settled: {body}"))
    }
}

macro_rules! scripts {
    () => {
        match compiled().await {
            Some(compiled) => Scripts(compiled),
            None => return,
        }
    };
}

/// Calls every function of the API; each logs its answer.
const CALLS: &str = r#"
  const names = (found) => [...found].map((pod) => pod.metadata.name).join();
  const config = { apiVersion: "v1", kind: "ConfigMap", metadata: { namespace: "shop", name: "a" } };
  const calls = {
    get: () => pods.get("shop", "cart-1").metadata.name,
    getLive: () => pods.getLive("shop", "cart-1").metadata.name,
    find: () => names(pods.find({ labels: { app: ["cart"], other: false } })),
    count: () => pods.count({ namespace: "shop" }),
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
"#;

#[tokio::test]
async fn every_call_of_the_api_reaches_the_host_or_its_refusal() {
    let scripts = scripts!();
    let plugin = scripts.prepared(&script(everything()), "export default () => {}").await.unwrap();
    assert_eq!(plugin.imports().len(), Function::ALL.len() + 1, "all, and its program: {:?}", plugin.imports());
    let (report, notes) = scripts.body(CALLS).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    let reads = ["get cart-1", "getLive cart-1", "find cart-0,cart-1", "count 2"];
    assert_eq!(notes.lines()[..4], reads, "{:?}", notes.lines());
    let done: Vec<_> = notes.lines()[4..].iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let ids = (0..12).map(|id| id.to_string()).chain(["none".to_owned()]);
    assert_eq!(done, ids.collect::<Vec<_>>(), "{:?}", notes.lines());
    let described: Vec<_> = report.staged.writes.iter().map(|write| write.get().action.describe()).collect();
    assert_eq!(described[0], "set label guests.example/a=1 on shop/cart-0");
    assert_eq!(described.len(), 12, "{described:?}");
    assert_eq!(report.staged.events.len(), 1);

    let source = format!("{IMPORT}\nexport default ({{ pod, key }}) => {{{CALLS}}}\n");
    let (report, notes) = scripts.run(&script(Grants::default()), &source).await;
    assert!(report.staged.writes.is_empty() && report.staged.events.is_empty(), "{:?}", report.result);
    assert_eq!(notes.live, 0);
    let refused = notes.lines().iter().filter(|line| line.ends_with(" not-granted")).count();
    assert_eq!(refused, 13, "{:?}", notes.lines());
}

#[tokio::test]
async fn state_commit_and_console_are_those_of_the_host() {
    let scripts = scripts!();
    let body = r#"
      writes.setLabel(pod, "guests.example/a", "1");
      const [report] = writes.commit();
      console.warn("committed", report.result, report.settled, { a: [1] }, now, attempt);
      state.put("key", { a: 1 });
      console.log(typeof state.putIf("key", 2, 0), String(state.get("absent")));
      log.debug("fields", { pod: key.name, number: 5 });
      return { afterSeconds: 1.5 };"#;
    let (report, notes) = scripts.body(body).await;
    assert_eq!(report.result, Ok(Outcome::RequeueAfter(Duration::from_millis(1_500))));
    let text = r#"committed applied true {"a":[1]} "2026-01-02T03:04:05.678Z" 1"#;
    assert_eq!(notes.log[0], (LogLevel::Warn, text.to_owned(), Vec::new()));
    assert_eq!(notes.log[1].1, "boolean undefined");
    let fields = [("pod", "cart-0"), ("number", "5")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(notes.log[2], (LogLevel::Debug, "fields".to_owned(), fields.to_vec()));
    assert_eq!(notes.committed, [0]);
    let (report, _) = scripts.body("return { stop: true };").await;
    assert_eq!(report.result, Ok(Outcome::Stop));
}

#[tokio::test]
async fn a_deletion_has_no_pod_and_the_last_state_if_there_is_one() {
    let scripts = scripts!();
    let source = "export default ({ pod, deleted, key }) => console.log(pod, deleted?.metadata.name, key.uid)";
    let plugin = scripts.prepared(&script(everything()), source).await.unwrap();
    for (last, text) in [(None, "undefined undefined uid-of-cart-0"), (Some(()), "undefined cart-0 uid-of-cart-0")] {
        let mut request = request();
        request.subject = Subject::Deleted(last.map(|()| pod("shop", "cart-0")));
        let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
        assert_eq!((report.result, notes.lines()), (Ok(Outcome::Settled), vec![text]));
    }
}

#[tokio::test]
async fn a_run_is_a_function_of_its_request() {
    let scripts = scripts!();
    let body = "console.log(Date.now(), new Date(), performance.now(), Math.random(), Math.random())";
    let source = format!("export default () => {body}");
    let plugin = scripts.prepared(&script(everything()), &source).await.unwrap();
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
    assert!(first.1.starts_with(r#"1767323045678 "2026-01-02T03:04:05.678Z""#), "{}", first.1);
    assert_ne!(first.1, other.1, "another seed");
}

#[tokio::test]
async fn a_mistake_in_the_source_is_reported_with_its_place() {
    let scripts = scripts!();
    let deep = format!("export default () => {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    for (source, expected) in [
        ("export default () => {\n  const x = ;\n}", "line 2, column 13: SyntaxError: unexpected token"),
        ("export default () => {\n  \"abc\n}", "line 2, column 3: SyntaxError: unexpected end of string"),
        ("\nimport _ from \"lodash\";\nexport default () => {}", "line 2, column 16: ReferenceError: could not load"),
        ("import _ from \"./a.js\";\nexport default () => {}", "imports only \"podium\"; bundle other modules into it"),
        (
            "import { write } from \"podium\";\nexport default () => {}",
            "line 1, column 10: SyntaxError: Could not find",
        ),
        ("/* ä */ import _ from \"lodash\";\nexport default () => {}", "line 1, column 24: ReferenceError"),
        ("export function reconcile() {}", "export the plugin's function, `export default function reconcile"),
        ("", "export the plugin's function"),
        (&deep, "RangeError: Maximum call stack size exceeded"),
    ] {
        let error = scripts.prepared(&script(everything()), source).await.expect_err(source);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // Preparation executes nothing.
    assert!(scripts.prepared(&script(everything()), "for (;;) ;\nexport default () => {}").await.is_ok());
}

#[tokio::test]
async fn exceptions_are_failures_that_name_the_line() {
    let scripts = scripts!();
    for (body, kind, message) in [
        ("pod.spec.containers", FailureKind::Retry, "TypeError: cannot read property 'containers' of undefined"),
        ("throw new TerminalError('no')", FailureKind::Terminal, "no (plugin.js:3:"),
        ("throw 'a text'", FailureKind::Retry, "a text"),
        ("throw null", FailureKind::Retry, "out of memory, or null was thrown"),
        (
            "throw { get stack() { throw 1 }, toJSON() { throw 2 }, toString() { throw 'odd' } }",
            FailureKind::Retry,
            "odd",
        ),
        ("return 5", FailureKind::Terminal, "reconcile returned 5: return nothing, {afterSeconds: n} or {stop: true}"),
        ("return { afterSecond: 5 }", FailureKind::Terminal, r#"reconcile returned {"afterSecond":5}"#),
        ("return { afterSeconds: -1 }", FailureKind::Terminal, "reconcile returned"),
        (
            "writes.setLabel(pod, 'guests.example/a', 5)",
            FailureKind::Retry,
            "the value of guests.example/a is no string: 5",
        ),
        (
            "writes.setLabel('cart', 'guests.example/a', 'b')",
            FailureKind::Retry,
            "the target is neither a Pod nor a key",
        ),
        (
            "writes.setLabel(pod, 'other', 'b')",
            FailureKind::Terminal,
            "set label other on shop/cart-0: not granted (plugin.js:3:",
        ),
        (
            "writes.setLabel(pod, 'guests.example/a', '-')",
            FailureKind::Terminal,
            "set label guests.example/a on shop/cart-0: invalid: ",
        ),
        ("writes.delete(pod, NaN)", FailureKind::Retry, "gracePeriodSeconds is no whole number"),
        ("writes.delete(pod, 0.5)", FailureKind::Retry, "gracePeriodSeconds is no whole number: 0.5"),
        ("writes.delete(pod, -1)", FailureKind::Retry, "gracePeriodSeconds is no whole number: -1"),
        ("writes.delete(pod, '5')", FailureKind::Retry, "gracePeriodSeconds is no whole number: 5"),
        ("state.putIf('a', 1)", FailureKind::Retry, "the expected version is no whole number"),
        ("state.removeIf('a', NaN)", FailureKind::Retry, "the expected version is no whole number"),
        ("writes.applyObject({}, pod)", FailureKind::Retry, "the owner is neither {pod} nor {workload}"),
        ("writes.applyObject({}, { Pod: pod })", FailureKind::Retry, "the owner is neither {pod} nor {workload}"),
        ("writes.applyObject({}, { pod: undefined })", FailureKind::Retry, "the target is neither a Pod nor a key"),
        ("writes.applyObject({}, { pod, workload: pod })", FailureKind::Retry, "the owner is neither"),
        (
            "console.log('x'.repeat(1e6), '\\ud800'); throw new TerminalError('z\\ud800'.repeat(1e6))",
            FailureKind::Terminal,
            "z",
        ),
        ("new WeakRef({})", FailureKind::Retry, "WeakRef is not defined"),
        ("new FinalizationRegistry(() => {})", FailureKind::Retry, "FinalizationRegistry is not defined"),
        ("pods.count({ nod: 'a' })", FailureKind::Retry, "a query has no field nod"),
        ("eval('1')", FailureKind::Retry, "TypeError: eval is not supported"),
        ("new Function('1')", FailureKind::Retry, "TypeError: eval is not supported"),
        ("await import('lodash')", FailureKind::Retry, "could not load module 'lodash'"),
        ("fetch('x')", FailureKind::Retry, "ReferenceError: fetch is not defined (plugin.js:3:"),
    ] {
        let failure = scripts.failure(body).await;
        assert_eq!(failure.kind, kind, "{body}: {}", failure.message);
        assert!(failure.message.contains(message), "{body}: {}", failure.message);
    }
    for (source, message) in [
        ("throw new Error('top');\nexport default () => {}", "top (plugin.js:1:"),
        ("export default 5", "the script exports no function"),
        ("import { pods } from 'podium';\npods.count();\nexport default () => {}", "no run is under way"),
    ] {
        let (report, _) = scripts.run(&script(everything()), source).await;
        let failure = report.result.expect_err(source);
        assert!(failure.message.contains(message), "{source}: {}", failure.message);
    }
}

#[tokio::test]
async fn promises_are_awaited_and_what_is_left_of_them_fails_the_run() {
    let scripts = scripts!();
    let label = "writes.setLabel(pod, 'guests.example/a', 'b')";
    let late = format!("for (let i = 0; i < 9; i++) await null; {label};");
    let (report, _) = scripts.body(&format!("await (async () => {{ {late} }})(); return {{ stop: true }};")).await;
    assert_eq!((report.result, report.staged.writes.len()), (Ok(Outcome::Stop), 1));
    let unawaited = scripts.failure(&format!("(async () => {{ {late} }})();")).await;
    assert!(unawaited.message.contains("nothing awaited it: CallError: set label"), "{}", unawaited.message);
    let never = scripts.failure("await new Promise(() => {});").await;
    assert!(never.message.contains("awaits a promise that nothing resolves"), "{}", never.message);
    let nested = "Promise.reject({ toString() { Promise.reject({ toString() { throw 1 } }); return 'outer' } });";
    let nested = scripts.failure(nested).await;
    assert!(nested.message.contains("nothing awaited it: outer"), "{}", nested.message);
    let handled = scripts.body("const p = Promise.reject(1); await null; try { await p } catch {}").await;
    assert_eq!(handled.0.result, Ok(Outcome::Settled), "a rejection that is handled later");
}

#[tokio::test]
async fn recursion_without_end_is_an_exception_wherever_it_is() {
    let scripts = scripts!();
    let nested = "let a = []; for (let i = 0; i < 1e4; i++) a = [a];";
    for body in [
        "const f = () => f() + 1; f()",
        "const f = (a, b, c) => [1].map(() => f(c, a, b)); f()",
        "const o = { get x() { return this.x } }; o.x",
        "const o = { toString() { return `${this}` } }; `${o}`",
        "class A { constructor() { new A() } } new A()",
        "function* g() { yield* g() } [...g()]",
        "const f = async () => { await f() }; await f()",
        "const f = () => [2, 1].sort(f); f()",
        "const f = () => 'a'.replace(/a/, f); f()",
        "const f = () => JSON.parse('[1]', f); f()",
        "const f = () => new Proxy({}, { get: f }).x; f()",
        "let p = {}; for (let i = 0; i < 1e4; i++) p = new Proxy(p, {}); p.x",
        "JSON.parse('['.repeat(1e5))",
        "JSON.parse('{\"a\":'.repeat(1e5))",
        &format!("{nested} JSON.stringify(a)"),
        &format!("{nested} a.flat(Infinity)"),
        &format!("{nested} String(a)"),
        &format!("{nested} return a"),
        // At the end of the stack.
        &format!("{nested} const f = () => {{ try {{ f() }} finally {{ JSON.stringify(a) }} }}; f()"),
        &format!("{nested} const f = () => {{ try {{ [1].map(f) }} finally {{ a.flat(Infinity) }} }}; f()"),
    ] {
        let failure = scripts.failure(body).await;
        assert!(failure.message.contains("RangeError: Maximum call stack size"), "{body}: {}", failure.message);
    }
    for open in ["(?:", "(?=", "[", "(?:a|"] {
        let failure = scripts.failure(&format!("new RegExp('{open}'.repeat(1e5), 'v')")).await;
        assert!(failure.message.contains("SyntaxError"), "{open}: {}", failure.message);
    }
    let (report, _) =
        scripts.body("const f = (n) => n && f(n - 1); f(300); JSON.parse('['.repeat(500) + ']'.repeat(500))").await;
    assert_eq!(report.result, Ok(Outcome::Settled), "what a plugin needs is left");
}

#[tokio::test]
async fn a_script_that_takes_too_much_or_tampers_harms_only_its_run() {
    let scripts = scripts!();
    let strings = scripts.failure("const a = []; for (let i = 0; i < 100; i++) a.push('x'.repeat(1e6) + i)").await;
    assert!(strings.message.contains("memory"), "{}", strings.message);
    let mut short = script(everything());
    short.limits.cpu = Duration::from_millis(20);
    let (report, _) = scripts.run(&short, "export default () => { for (;;) ; }").await;
    failed(report, FailureKind::Cpu);
    let tampers = "Object.prototype.kind = 'stop'; JSON.parse = JSON.stringify = null; Array.isArray = () => true;
      Error.prototype.name = null; writes.setLabel(pod, 'guests.example/a', 'b');";
    let (report, _) = scripts.body(tampers).await;
    assert_eq!((report.result, report.staged.writes.len()), (Ok(Outcome::Settled), 1));
    let (report, _) = scripts.body("return Object.prototype.kind").await;
    assert_eq!(report.result, Ok(Outcome::Settled), "the next run has its own prototypes");
}
