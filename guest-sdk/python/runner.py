"""The runner of scripts in Python: a component of the world `script` that executes any script.

`prepare` compiles a script once, and a run executes the marshalled code that `program.code` returns. A run is a
function of its request and of the host's answers: the clock stands still at the request's time, and the seed of
`random` comes from the request.

All that runs before the last line runs once, when the component is built: its memory is then part of the component, so
no module is imported later. The component has no WASI, and a call of it is a trap, so what would reach it is replaced
here; that is for clear errors, the sandbox does not depend on it.
"""

import builtins
import dis
import gc
import importlib
import io
import json
import linecache
import logging
import marshal
import os
import posix
import re
import sys
import warnings

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.preparation import ScriptError
from wit_world.exports.reconciler_json import Subject_Present
from wit_world.imports import events, log, objects, pods_json, program, state, types, writes
from wit_world.imports.log import Level
from wit_world.imports.state import PutError_Conflict, PutError_Other

import clock
import podium

SCRIPT = "plugin.py"
"""The name of every script in tracebacks and messages."""

MODULES = """
    __future__ abc array base64 binascii bisect calendar cmath collections collections.abc contextlib copy csv
    dataclasses datetime decimal difflib enum fnmatch fractions functools graphlib hashlib heapq hmac html ipaddress
    io itertools json keyword logging math numbers operator pprint random re reprlib shlex statistics string
    string.templatelib struct textwrap time tomllib traceback types typing unicodedata urllib.parse uuid zlib
"""
"""The modules of the standard library that scripts may import."""

LATER = (
    "_strptime", "encodings.ascii", "encodings.cp1252", "encodings.idna", "encodings.latin_1",
    "encodings.unicode_escape", "encodings.utf_16", "encodings.utf_16_be", "encodings.utf_16_le", "encodings.utf_32",
    "encodings.utf_8_sig", "urllib",
)
"""Modules that those import at their first use, some in the name of the script."""

AVAILABLE = {"podium", *MODULES.split(), *LATER}
RECURSION = 300
"""The most nested calls. The stack of the sandbox, which Python cannot see, holds as many also where each of them goes
through a function in C."""

LEVELS = 1000
"""The most levels of JSON."""

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[][{}]', re.DOTALL)
STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}

UNSUPPORTED = ("breakpoint", "compile", "eval", "exec", "exit", "help", "input", "open", "quit")
"""Functions of Python that a script does not have."""

PURE = {
    "_path_normpath", "_path_splitroot", "_path_splitroot_ex", "fspath", "putenv", "register_at_fork", "strerror",
    "unsetenv",
}
"""Functions of the operating system that ask it nothing. componentize-py calls some of them at the end of the build."""


# The host's functions

def query(selected):
    labels = [
        types.LabelRequirement(key, types.LabelOperator[operator], values)
        for key, operator, values in selected["labels"]
    ]
    return types.PodQuery(**{**selected, "labels": labels})


def find(selected, limit, after):
    page = pods_json.find(query(selected), limit, after)
    return page.pods, page.next


def set_condition(target, kind, status, reason, message):
    return writes.set_condition(target, kind, types.ConditionStatus[status.upper()], reason, message)


def apply_object(document, kind, of):
    owner = {"pod": types.ObjectOwner_Pod, "workload": types.ObjectOwner_Workload}.get(kind)
    return writes.apply_object(document, owner and owner(of))


def delete_object(api_version, kind, namespace, name, uid):
    return writes.delete_object(types.ObjectRef(api_version, kind, namespace, name), uid)


def get_object(*names):
    return objects.get(types.ObjectRef(*names))


def report(of):
    """A report as the fields of one for scripts."""
    name = type(of.result).__name__.removeprefix("WriteResult_")
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
    settled = name in ("applied", "unchanged", "gone")
    return of.id, of.description, name, getattr(of.result, "value", None), settled


def emit(target, warning, *texts):
    events.emit(target, types.EventType.WARNING if warning else types.EventType.NORMAL, *texts)


def state_get(key):
    entry = state.get(key)
    try:
        return entry and (entry.value.decode(), entry.version)
    except UnicodeDecodeError:
        # A value that is no text is none of a script.
        return None, entry.version


def swapped(change, *arguments):
    """Returns whether the expected version was there."""
    try:
        change(*arguments)
    except Err as error:
        if isinstance(error.value, PutError_Conflict):
            return False
        raise
    return True


FUNCTIONS = {
    "pods_get": pods_json.get,
    "pods_get_live": pods_json.get_live,
    "pods_find": find,
    "pods_count": lambda selected: pods_json.count(query(selected)),
    "set_label": writes.set_label,
    "remove_label": writes.remove_label,
    "set_annotation": writes.set_annotation,
    "remove_annotation": writes.remove_annotation,
    "add_finalizer": writes.add_finalizer,
    "remove_finalizer": writes.remove_finalizer,
    "set_condition": set_condition,
    "remove_condition": writes.remove_condition,
    "delete": writes.delete_pod,
    "evict": writes.evict_pod,
    "apply_object": apply_object,
    "delete_object": delete_object,
    "objects_get": get_object,
    "scale": lambda *arguments: objects.scale(types.ObjectRef(*arguments[:-1]), arguments[-1]),
    "commit": lambda: map(report, writes.commit()),
    "emit": emit,
    "state_get": state_get,
    "state_put": lambda key, value, expected: swapped(state.put, key, value.encode(), expected),
    "state_remove": lambda key, expected: swapped(state.remove, key, expected),
}


def refusal(error):
    match error.value if not isinstance(error.value, PutError_Other) else error.value.value:
        case types.CallError_NotGranted():
            return podium._Refused("not-granted", "not granted")
        case types.CallError_OverBudget():
            return podium._Refused("over-budget", "the run's budget is used up")
        case types.CallError_Invalid(text):
            return podium._Refused("invalid", f"invalid: {text}")
        case types.CallError_Unavailable(text):
            return podium._Refused("unavailable", f"unavailable: {text}")


class Host:
    is_open = False
    """Whether a run is under way. Code at a module's top level calls nothing."""

    def __call__(self, function, *arguments):
        if function == "log":
            level, message, fields = arguments
            return log.write(Level[level.upper()], message, fields)
        if not self.is_open:
            raise podium._Refused("invalid", "no run is under way: call the host from reconcile")
        try:
            return FUNCTIONS[function](*arguments)
        except Err as error:
            refused = refusal(error)
        raise refused


# Python without an operating system

class Output:
    """Appends printed text to the log, line by line."""

    def __init__(self, level):
        self.level, self.line = level, ""

    def write(self, text):
        *lines, self.line = (self.line + text).split("\n")
        for line in lines:
            podium._log(self.level, line, {})
        return len(text)

    def flush(self):
        """Does nothing, because a line is not at its end."""

    def finish(self):
        if self.line:
            self.write("\n")


class Lines(logging.Handler):
    """Appends the records of the module logging to the log."""

    def emit(self, record):
        level = "error" if record.levelno >= 40 else "warn" if record.levelno >= 30 else "info"
        try:
            message = record.getMessage()
        except Exception:
            # Arguments that do not fit the text.
            message = f"{podium._show(record.msg)} {podium._show(record.args)}"
        if record.exc_info and record.exc_info[1]:
            message += f": {podium._failure(record.exc_info[1])[1]}"
        podium._log(level if record.levelno >= 20 else "debug", message, {})


def raw_decode(self, text, idx=0):
    """Decodes JSON whose levels the stack of the sandbox holds: the decoder in C does not count them."""
    if text.count("[") + text.count("{") > LEVELS:
        level = 0
        for token in TOKEN.finditer(text):
            level += STEPS.get(token[0], 0)
            if level > LEVELS:
                raise RecursionError(f"the JSON has more than {LEVELS} levels")
    return whole_raw_decode(self, text, idx)


class HostJson(json.JSONDecoder):
    """Decodes the host's own JSON, which is not checked."""

    raw_decode = json.JSONDecoder.raw_decode


def unsupported(name):
    def function(*_, **__):
        raise RuntimeError(f"{name} is not supported in a script")

    return function


def imported(name, globals=None, locals=None, fromlist=(), level=0):
    if level or name not in AVAILABLE:
        raise ModuleNotFoundError(no_module("." * level + name))
    return importing(name, globals, locals, fromlist, level)


def no_module(name):
    return (
        f"no module {name}: a script is one file, and imports only podium and modules of the standard library "
        "without I/O, such as json, re and datetime"
    )


# Compiling and running

def no_file(event, _):
    if event == "open":
        raise OSError("there are no files")


class Mistake(Exception):
    """A mistake in a script, with its line and column."""


def prepare(source):
    # The parser would read the line of a mistake from a file.
    sys.addaudithook(no_file)
    source = source.removeprefix("\ufeff")
    try:
        code = compile(source, SCRIPT, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise Mistake(f"{type(error).__name__}: {error.msg}", error.lineno or 0, max(error.offset or 0, 0)) from None
    check(code)
    lines = re.split("\r\n|\r|\n", source)
    return marshal.dumps((code, {at for at, line in enumerate(lines, 1) if not line.isascii()}))


def check(code):
    """Fails for a module that does not exist, for a name that is not in one, and without a function reconcile. An
    indented import may never be executed, or its error be caught: the run judges it."""
    module, names, is_entry = "", None, False
    for offset, _, operation, argument in dis._unpack_opargs(code.co_code):
        match dis.opname[operation]:
            case "LOAD_CONST":
                names = code.co_consts[argument]
            case "IMPORT_NAME":
                name = code.co_names[argument]
                line, _, column, _ = [*code.co_positions()][offset // 2]
                if column == 0 and name not in AVAILABLE:
                    raise Mistake(f"ModuleNotFoundError: {no_module(name or '.')}", line, 1)
                # `import a.b as c` binds b of a.
                module = None if column else name if names else name.partition(".")[0]
            case "IMPORT_FROM":
                name = code.co_names[argument]
                if module and not hasattr(sys.modules[module], name):
                    raise Mistake(f"ImportError: cannot import name {name!r} from {module!r}", line, 1)
            case "STORE_NAME" | "STORE_GLOBAL":
                is_entry = is_entry or code.co_names[argument] == "reconcile"
    if not is_entry:
        raise Mistake("the script has no function reconcile: `def reconcile(request): ..`", 0, 0)


class Runner:
    """A loaded script. An instance that the host uses again keeps it, unless a run failed."""

    reconcile = None

    def load(self):
        module = type(sys)("plugin")
        vars(module).update(__builtins__=BUILTINS, __file__=SCRIPT)
        sys.modules["plugin"] = module
        code, podium._wide = marshal.loads(program.code())
        exec(code, vars(module))
        entry = vars(module).get("reconcile")
        if not callable(entry):
            raise podium.TerminalError("the script's reconcile is no function: `def reconcile(request): ..`")
        return entry

    def run(self, request):
        clock.start(request.key.uid, request.now_millis)
        reconcile = self.reconcile or self.load()
        self.reconcile = None
        is_present = isinstance(request.subject, Subject_Present)
        pod, deleted = (request.subject.value, None) if is_present else (None, request.subject.value)
        key = request.key.namespace, request.key.name, request.key.uid
        host.is_open = True
        try:
            outcome = podium._run(
                reconcile, pod, deleted, key, request.now_millis, request.attempt, request.config,
                map(report, request.unsettled_writes),
            )
        finally:
            host.is_open = False
        self.reconcile = reconcile
        return outcome


class Preparation(exports.Preparation):
    def prepare(self, source):
        try:
            return prepare(source)
        except Mistake as mistake:
            failed = ScriptError(*mistake.args)
        except MemoryError as error:
            memory = "out of memory: raise spec.limits.memoryMiB, or shorten the script"
            # The parser's word for too many levels.
            failed = ScriptError("the source is nested too deeply" if "too complex" in str(error) else memory, 0, 0)
        except BaseException as error:
            failed = ScriptError(podium._failure(error)[1], 0, 0)
        raise Err(failed)


def failure(error):
    try:
        is_terminal, text = podium._failure(error)
    except BaseException:
        # A script may change every module.
        is_terminal, text = False, "an exception that cannot be shown"
    return (types.Failure_Terminal if is_terminal else types.Failure_Retry)(text)


class ReconcilerJson(exports.ReconcilerJson):
    def reconcile(self, request):
        # A run before this one may have left others there.
        sys.stdout, sys.stderr = OUTPUTS
        try:
            try:
                outcome = runner.run(request)
            finally:
                for output in OUTPUTS:
                    output.finish()
        except BaseException as error:
            outcome = failure(error)
        match outcome:
            case "settled":
                return types.Outcome_Settled()
            case "stop":
                return types.Outcome_Stop()
            case int():
                return types.Outcome_RequeueAfterMillis(outcome)
        raise Err(outcome)


host = podium._host = Host()
runner = Runner()
for name in sorted(AVAILABLE):
    importlib.import_module(name)
importing = builtins.__import__
BUILTINS = {**vars(builtins), "__import__": imported, **{name: unsupported(name) for name in UNSUPPORTED}}
for module in (posix, os):
    for name, function in vars(module).items():
        if type(function) is type(len) and name not in PURE:
            setattr(module, name, unsupported(name))
for name in ("open", "open_code", "FileIO"):
    setattr(io, name, unsupported(name))
builtins.open = io.open
whole_raw_decode = json.JSONDecoder.raw_decode
json.JSONDecoder.raw_decode = raw_decode
podium._loads = HostJson().decode
linecache.getlines = linecache.updatecache = lambda *_: []
sys.meta_path.clear()
sys.path.clear()
OUTPUTS = Output("info"), Output("error")
sys.stdout, sys.stderr = OUTPUTS
logging.logProcesses = logging.logThreads = False
logging.basicConfig(handlers=[Lines()], level=logging.DEBUG)
warnings.simplefilter("ignore")
sys.setrecursionlimit(RECURSION)
gc.collect()
gc.freeze()
