//! Scripts in Python on the real runner: what only this language has. The others are in `languages`.

use std::process::Command;

use podium_engine::ports::{FailureKind, LogLevel, Outcome, Request};
use podium_tests::{process::workspace_dir, sandbox::*};
use podium_vocabulary::Language;

use super::languages::Scripts;

#[tokio::test]
async fn exceptions_of_python_are_failures_that_name_the_line() {
    let Some(scripts) = Scripts::in_language(Language::Python).await else { return };
    let failures = [
        ("request.pod['spec']['containers']", FailureKind::Retry, "KeyError: 'spec' (plugin.py:3:5)"),
        ("request.pods", FailureKind::Retry, "AttributeError: 'Request' object has no attribute 'pods'"),
        ("raise TerminalError('no')", FailureKind::Terminal, "no (plugin.py:3:5)"),
        ("raise Exception('a text')", FailureKind::Retry, "a text (plugin.py:3:5)"),
        ("raise SystemExit(4)", FailureKind::Retry, "SystemExit: 4"),
        ("raise KeyboardInterrupt", FailureKind::Retry, "KeyboardInterrupt (plugin.py:3:5)"),
        ("class E(Exception):\n  def __str__(self): raise self\nraise E", FailureKind::Retry, "E: <"),
        ("1 / 0", FailureKind::Retry, "ZeroDivisionError: division by zero (plugin.py:3:5)"),
        ("return 5", FailureKind::Terminal, "reconcile returned 5: return nothing, {\"after_seconds\": n} or"),
        ("return {'after_second': 5}", FailureKind::Terminal, "reconcile returned {'after_second': 5}"),
        ("return {'after_seconds': -1}", FailureKind::Terminal, "reconcile returned"),
        ("return {'after_seconds': float('nan')}", FailureKind::Terminal, "reconcile returned"),
        (
            "writes.set_label(request.pod, 'guests.example/a', 5)",
            FailureKind::Retry,
            "the value of guests.example/a is no string: 5",
        ),
        (
            "writes.set_label(request.pod, 'guests.example/a', '\\ud800')",
            FailureKind::Retry,
            "the value of guests.example/a has no form in UTF-8",
        ),
        (
            "writes.set_label('cart', 'guests.example/a', 'b')",
            FailureKind::Retry,
            "the target is neither a Pod nor a PodKey: 'cart'",
        ),
        (
            "writes.set_label(request.pod, 'other', 'b')",
            FailureKind::Terminal,
            "set label other on shop/cart-0: not granted (plugin.py:3:5)",
        ),
        (
            "writes.set_label(request.pod, 'guests.example/a', '-')",
            FailureKind::Terminal,
            "set label guests.example/a on shop/cart-0: invalid: ",
        ),
        ("writes.delete(request.pod, 0.5)", FailureKind::Retry, "grace_period_seconds is no whole number: 0.5"),
        ("writes.delete(request.pod, -1)", FailureKind::Retry, "grace_period_seconds is no whole number: -1"),
        ("writes.delete(request.pod, True)", FailureKind::Retry, "grace_period_seconds is no whole number: True"),
        ("state.put_if('a', 1, None)", FailureKind::Retry, "the expected version is no whole number"),
        ("state.remove_if('a', 1 << 64)", FailureKind::Retry, "the expected version is no whole number"),
        ("state.put('a', {1, 2})", FailureKind::Retry, "the value has no form in JSON"),
        ("state.put('a', float('inf'))", FailureKind::Retry, "the value has no form in JSON"),
        ("a = []\na.append(a)\nstate.put('a', a)", FailureKind::Retry, "the value has no form in JSON"),
        ("writes.apply_object({}, pod=None)", FailureKind::Retry, "the target is neither a Pod nor a PodKey: None"),
        ("writes.apply_object({}, owner=request.pod)", FailureKind::Retry, "the owner is neither pod= nor workload="),
        ("writes.delete_object({'kind': 'A'})", FailureKind::Retry, "apiVersion is no string: None"),
        ("print('x' * 10**6, '\\ud800')\nraise TerminalError('z\\ud800' * 10**6)", FailureKind::Terminal, "z"),
        ("pods.count(nod='a')", FailureKind::Retry, "unexpected keyword argument 'nod'"),
        ("pods.count(labels={'a': 5})", FailureKind::Retry, "labels: a is no string, list of strings, bool"),
        ("eval('1')", FailureKind::Retry, "RuntimeError: eval is not supported in a script (plugin.py:3:5)"),
        ("exec('1')", FailureKind::Retry, "RuntimeError: exec is not supported"),
        ("open('/etc/passwd')", FailureKind::Retry, "RuntimeError: open is not supported"),
        ("import lodash", FailureKind::Retry, "ModuleNotFoundError: no module lodash"),
        ("import socket", FailureKind::Retry, "ModuleNotFoundError: no module socket"),
        ("import json.tool", FailureKind::Retry, "ModuleNotFoundError: no module json.tool"),
        ("import time\ntime.sleep(1)", FailureKind::Retry, "a run cannot wait: return {\"after_seconds\": n}"),
        ("import logging\nlogging.FileHandler('a')", FailureKind::Retry, "is not supported in a script"),
        ("import logging\nlogging.os.listdir('/')", FailureKind::Retry, "RuntimeError: listdir is not supported"),
        (
            "import logging\nlogging.threading.Thread(target=print).start()",
            FailureKind::Retry,
            "RuntimeError: can't start new thread",
        ),
        ("async def f(): pass\nf().send(None)", FailureKind::Retry, "StopIteration"),
    ];
    scripts.fail(&failures).await;
    let source = "async def reconcile(request):\n  pass\n";
    let (report, _) = scripts.run(&scripts.spec(everything()), source).await;
    assert!(report.result.unwrap_err().message.contains("reconcile is async"));
}

#[tokio::test]
async fn a_script_that_changes_the_modules_of_python_fails_and_does_not_trap() {
    let Some(scripts) = Scripts::in_language(Language::Python).await else { return };
    let failures = [
        ("class E(Exception):\n  def __str__(self): raise SystemExit\nraise E", FailureKind::Retry, "E: <"),
        (
            "import contextlib, io\ncontextlib.redirect_stdout(io.StringIO()).__enter__()\nprint('x')\n1 / 0",
            FailureKind::Retry,
            "division by zero (plugin.py:6:5)",
        ),
        ("import logging\nlogging.sys.stdout.line = 5", FailureKind::Retry, "TypeError: unsupported operand"),
        ("import podium\npodium._failure = None\n1 / 0", FailureKind::Retry, "an exception that cannot be shown"),
        (
            "class S(str):\n  def __getitem__(self, at): return 5\nraise Exception(S('a text'))",
            FailureKind::Retry,
            "a text (plugin.py:5:5)",
        ),
        (
            "class S(str):\n  def isascii(self): return True\nwrites.set_label(request.pod, S('\\ud800'), '')",
            FailureKind::Retry,
            "the label's key has no form in UTF-8",
        ),
        (
            "class I(int):\n  def __lt__(self, _): return True\nstate.put_if('a', 1, I(1 << 70))",
            FailureKind::Retry,
            "the expected version is no whole number",
        ),
        ("import io\nio.FileIO('a')", FailureKind::Retry, "FileIO is not supported in a script"),
        ("import io\nio.open_code('a')", FailureKind::Retry, "open_code is not supported in a script"),
        ("state.put('a', '\\ud800')", FailureKind::Retry, "the value has no form in JSON: 'utf-8' codec can't encode"),
        ("'ä'; 1 / 0", FailureKind::Retry, "division by zero (plugin.py:3)"),
    ];
    scripts.fail(&failures).await;
}

#[tokio::test]
async fn an_import_that_may_not_be_executed_is_judged_by_the_run() {
    let Some(scripts) = Scripts::in_language(Language::Python).await else { return };
    let entry = "def reconcile(request): pass\n";
    for import in [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import lodash\n  from podium import Lodash\n",
        "try:\n  import yaml\nexcept ImportError:\n  yaml = None\nelse:\n  import yaml.nodes\n",
        "if __name__ == '__main__':\n  import unittest\n  unittest.main()\n",
    ] {
        let (report, _) = scripts.run(&scripts.spec(everything()), &format!("{import}{entry}")).await;
        assert_eq!(report.result, Ok(Outcome::Settled), "{import}");
    }
}

#[tokio::test]
async fn an_instance_that_is_used_again_has_the_clock_and_the_seed_of_its_run() {
    let Some(scripts) = Scripts::in_language(Language::Python).await else { return };
    let source = r#"
import contextlib, io, random, time
runs = 0
def reconcile(request):
    global runs
    runs += 1
    print(runs, time.time_ns() // 10**6, random.random())
    if request.attempt == 2: 1 / 0
    contextlib.redirect_stdout(io.StringIO()).__enter__()
"#;
    let mut spec = scripts.spec(everything());
    spec.limits.reuse = 100;
    let plugin = scripts.prepared(&spec, source).await.unwrap();
    let mut printed = Vec::new();
    // The run of attempt 2 fails, and its instance with it.
    for (attempt, now_millis) in [(1, 1), (1, 2), (1, 1), (2, 1), (1, 1)] {
        let request = Request { attempt, now_millis, ..request() };
        let (report, notes) = run_in(&plugin, request, FakeWorld::default()).await;
        assert_eq!(report.result.is_ok(), attempt == 1, "{:?}", report.result);
        printed.push(notes.lines().concat());
    }
    let (counts, rest): (Vec<_>, Vec<_>) = printed.iter().map(|line| line.split_once(' ').unwrap()).unzip();
    assert_eq!(counts, ["1", "2", "3", "4", "1"]);
    assert!(rest[1].starts_with("2 ") && rest[0].starts_with("1 "), "{rest:?}");
    assert!([2, 3, 4].iter().all(|at| rest[*at] == rest[0]), "{rest:?}");
}

#[test]
fn the_module_podium_and_its_tests_work_without_a_runner() {
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "tests"]).current_dir(workspace_dir().join("guest-sdk/python"));
    if let Ok(tested) = python.output() {
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
    }
}

#[tokio::test]
async fn recursion_of_python_is_an_exception() {
    let Some(scripts) = Scripts::in_language(Language::Python).await else { return };
    for body in [
        "f = lambda: f() + 1\nf()",
        "f = lambda *a: max([1, 2], key=f)\nf()",
        "f = lambda *a: sorted([1, 2], key=f)\nf()",
        "import functools\nf = lambda *a: sorted([1, 2], key=functools.cmp_to_key(f))\nf()",
        "class A:\n  def __init__(self): A()\nA()",
        "class A:\n  def __new__(cls): return A()\nA()",
        "class A:\n  def __str__(self): return str(self)\nstr(A())",
        "class A:\n  def __repr__(self): return repr([self])\nrepr(A())",
        "class A:\n  def __getattr__(self, name): return getattr(self, name + 'a')\nA().x",
        "class A:\n  def __eq__(self, other): return [self] == [other]\nA() == A()",
        "class A:\n  def __hash__(self): return hash((self,))\nhash(A())",
        "import re\nf = lambda m: re.sub('a', f, 'a')\nf(0)",
        "import json\nf = lambda o: json.loads('{}', object_hook=f)\nf(0)",
        "import functools\nf = lambda *a: functools.reduce(f, [0, 1])\nf()",
        "def g():\n  yield from g()\nlist(g())",
        "import re\nre.compile('(' * 50_000)",
        "import json\njson.loads('[' * 100_000)",
        "import json\njson.loads('{\"a\":' * 100_000)",
        "import json\njson.JSONDecoder().raw_decode('[' * 100_000)",
        "import copy\na = []\nfor i in range(400): a = [a]\ncopy.deepcopy(a)",
    ] {
        let failure = scripts.failure(body).await;
        assert!(failure.message.contains("RecursionError: "), "{body}: {}", failure.message);
    }
    // Nested data that only functions in C walk through: the sandbox ends the run.
    let nested = scripts.failure("a = []\nfor i in range(100_000): a = [a]\nrepr(a)").await;
    assert!(nested.message.contains("stack"), "{}", nested.message);
    let enough = "f = lambda n: n and f(n - 1)\nf(250)\nimport json, copy\nnested = lambda n: json.loads('[' * n + \
        ']' * n)\ncopy.deepcopy(nested(90))\njson.dumps(nested(900))";
    assert_eq!(scripts.body(enough).await.0.result, Ok(Outcome::Settled), "what a plugin needs is left");
}

#[tokio::test]
async fn the_standard_library_without_io_is_there() {
    let Some(scripts) = Scripts::in_language(Language::Python).await else { return };
    let body = r#"
import collections.abc as abc, dataclasses, datetime, decimal, enum, hashlib, logging, pprint, re, statistics, typing
import io, time, traceback, urllib.parse
from datetime import datetime as moment, timedelta, timezone

@dataclasses.dataclass(order=True)
class Age:
    days: int

class Level(enum.Enum):
    OLD = 1

created = moment.fromisoformat("2026-01-01T03:04:05Z")
age = request.now - created
print(Age(age.days) < Age(2), Level.OLD.name, isinstance({}, abc.Mapping), isinstance(request.now, moment))
print(hashlib.sha256(b"a").hexdigest()[:8], decimal.Decimal("0.1") * 3, statistics.mean([1, 2]))
print(urllib.parse.urlsplit("https://a.example/b").path, re.findall(r"\d+", "a1b22"), end="")
pprint.pprint({"a": 1})
logging.getLogger("shop").warning("%d Pods", 5)
print(request.now.astimezone(timezone(timedelta(hours=2))).isoformat())
print(moment.strptime("2026", "%Y").year, "ä".encode("latin-1"), [f"{x:.1f}" for x in (1.25,)])
try:
    request.pod["absent"]
except KeyError:
    logging.exception("caught")
    print(traceback.format_exc().splitlines()[-1])
logging.warning("%d Pods", "x")
print(time.gmtime(None).tm_year, time.localtime(None).tm_year, time.ctime(None), io.StringIO("ä").read())
print("ä€".encode("cp1252"), "a".encode("utf-16-le"), "a".encode("utf-32"))
print("a\nb")
"#;
    let (report, notes) = scripts.body(body).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
    let expected = [
        "True OLD True True",
        "ca978112 0.3 1.5",
        "/b ['1', '22']{'a': 1}",
        "5 Pods",
        "2026-01-02T05:04:05.678000+02:00",
        "2026 b'\\xe4' ['1.2']",
        "caught: KeyError: 'absent' (plugin.py:25:9)",
        "KeyError: 'absent'",
        "%d Pods ('x',)",
        "2026 2026 Fri Jan  2 03:04:05 2026 ä",
        "b'\\xe4\\x80' b'a\\x00' b'\\xff\\xfe\\x00\\x00a\\x00\\x00\\x00'",
        "a",
        "b",
    ];
    assert_eq!(notes.lines(), expected);
    assert_eq!(notes.log[3].0, LogLevel::Warn);
}
