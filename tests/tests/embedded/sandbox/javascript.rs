//! Scripts in JavaScript on the real runner: what only this language has. The others are in `languages`.

use std::{fs, process::Command};

use podium_engine::ports::{FailureKind, Outcome};
use podium_tests::process::workspace_dir;
use podium_vocabulary::Language;

use super::languages::Scripts;

#[tokio::test]
async fn exceptions_are_failures_that_name_the_line() {
    let Some(scripts) = Scripts::in_language(Language::JavaScript).await else { return };
    let failures = [
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
    ];
    scripts.fail(&failures).await;
}

#[test]
fn the_module_podium_and_its_tests_work_without_a_runner() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("podium")).unwrap();
    for (from, to) in [
        ("guest-sdk/javascript/src/podium.js", "podium/podium.js"),
        ("guest-sdk/javascript/testing.js", "podium/testing.js"),
        ("guest-sdk/javascript/podium.test.js", "podium.test.js"),
        ("host/cli/src/new/template/javascript/package.json.txt", "package.json"),
    ] {
        fs::copy(workspace_dir().join(from), folder.path().join(to)).unwrap();
    }
    if let Ok(tested) = Command::new("node").arg("--test").current_dir(folder.path()).output() {
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
    }
}

#[tokio::test]
async fn promises_are_awaited_and_what_is_left_of_them_fails_the_run() {
    let Some(scripts) = Scripts::in_language(Language::JavaScript).await else { return };
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
    let Some(scripts) = Scripts::in_language(Language::JavaScript).await else { return };
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
