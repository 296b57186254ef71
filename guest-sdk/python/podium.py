"""The module "podium", which every script may import. podium.pyi has its types and its documentation."""

import re as _re
from datetime import datetime, timedelta as _timedelta, timezone
from functools import total_ordering as _total_ordering
from json import dumps as _dumps, loads as _loads
from math import ceil as _ceil, isfinite as _isfinite
from typing import Any, Dict, List, Literal, NamedTuple, Optional, Union

Pod = Dict[str, Any]
Outcome = Optional[Dict[str, Any]]


class PodKey(NamedTuple):
    namespace: str
    name: str
    uid: str


Target = Union[Pod, PodKey]
LabelValue = Union[str, List[str], bool, Dict[Literal["not"], List[str]]]


class WriteReport(NamedTuple):
    id: int
    description: str
    result: str
    message: Optional[str]
    settled: bool


class Entry(NamedTuple):
    value: Any
    version: int


class Request(NamedTuple):
    pod: Optional[Pod]
    deleted: Optional[Pod]
    key: PodKey
    now: datetime
    attempt: int
    config: Any
    unsettled: list


class TerminalError(Exception):
    pass


class CallError(Exception):
    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class _Refused(Exception):
    """A refusal of the host: the code and the text."""


def _host(function, *arguments):
    """Calls the host. The runner and the tests replace it."""
    raise _Refused("unavailable", "unavailable: there is no host; test with podium.testing")


def _call(name, function, *arguments):
    """Calls the host; a refusal is an exception that names the call."""
    try:
        return _host(function, *arguments)
    except _Refused as refused:
        code, text = refused.args
    raise CallError(f"{name}: {text}", code)


def _text(value, name):
    if not isinstance(value, str):
        raise TypeError(f"{name} is no string: {value!r}")
    if not _well_formed(value):
        raise ValueError(f"{name} has no form in UTF-8: {value!r}")
    return value


def _well_formed(value):
    # A class of the script may have its own methods.
    try:
        return str.isascii(value) or bool(str.encode(value))
    except UnicodeEncodeError:
        return False


def _cut(value, length):
    """Returns text of a bounded length, in which a lone surrogate is written as an escape: the host ends a run that
    passes too much at once."""
    value = str.__getitem__(value, slice(length))
    return value if _well_formed(value) else value.encode("utf-8", "backslashreplace").decode()[:length]


def _show(value):
    try:
        return value if isinstance(value, str) else str(value)
    except BaseException:
        return object.__repr__(value)


def _count(value, name):
    number = -1 if isinstance(value, bool) or not isinstance(value, int) else int.__index__(value)
    if not 0 <= number < 1 << 63:
        raise TypeError(f"{name} is no whole number: {value!r}")
    return number


def _optional(value, name):
    return None if value is None else _text(value, name)


def _key(target):
    if isinstance(target, PodKey):
        fields = target
    else:
        of = target.get("metadata", target) if isinstance(target, dict) else {}
        fields = [of.get(name) for name in PodKey._fields] if isinstance(of, dict) else [None]
        if not isinstance(fields[-1], str):
            raise TypeError(f"the target is neither a Pod nor a PodKey: {target!r}")
    return PodKey(*(_text(value, name) for value, name in zip(fields, PodKey._fields)))


def _json(value):
    try:
        text = _dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # A lone surrogate is an error here.
        text.encode()
        return text
    except (TypeError, ValueError) as error:
        raise TypeError(f"the value has no form in JSON: {error}") from None


def _write(verb, what, function, target, *values):
    """Stages a write of one Pod, described as "set label team on shop/cart-0"."""
    of = _key(target)
    return _call(f"{verb} {what} on {of.namespace}/{of.name}", function, of, *values)


def _on_object(verb, function, object, *values):
    """Calls the host about an object that is not a Pod, described as "delete v1 ConfigMap shop/summary"."""
    if not isinstance(object, dict):
        raise TypeError(f"the object is no dict: {object!r}")
    of = {**object, **object.get("metadata", {})}
    api_version, kind, name = (_text(of.get(field), field) for field in ("apiVersion", "kind", "name"))
    namespace = _optional(of.get("namespace"), "namespace")
    described = f"{verb} {api_version} {kind} {namespace or ''}/{name}"
    return _call(described, function, api_version, kind, namespace, name, *values)


class writes:
    @staticmethod
    def set_label(target, key, value):
        key, value = _text(key, "the label's key"), _text(value, f"the value of {key}")
        return _write("set label", key, "set_label", target, key, value)

    @staticmethod
    def remove_label(target, key):
        return _write("remove label", _text(key, "the label's key"), "remove_label", target, key)

    @staticmethod
    def label_to(target, key, value):
        return writes.remove_label(target, key) if value is None else writes.set_label(target, key, value)

    @staticmethod
    def set_annotation(target, key, value):
        key, value = _text(key, "the annotation's key"), _text(value, f"the value of {key}")
        return _write("set annotation", key, "set_annotation", target, key, value)

    @staticmethod
    def remove_annotation(target, key):
        return _write("remove annotation", _text(key, "the annotation's key"), "remove_annotation", target, key)

    @staticmethod
    def annotation_to(target, key, value):
        return writes.remove_annotation(target, key) if value is None else writes.set_annotation(target, key, value)

    @staticmethod
    def add_finalizer(target, name):
        return _write("add finalizer", _text(name, "the finalizer"), "add_finalizer", target, name)

    @staticmethod
    def remove_finalizer(target, name):
        return _write("remove finalizer", _text(name, "the finalizer"), "remove_finalizer", target, name)

    @staticmethod
    def set_condition(target, type, status, reason="", message=""):
        if status not in ("True", "False", "Unknown"):
            raise TypeError(f'status is not "True", "False" or "Unknown": {status!r}')
        texts = _text(type, "type"), status, _text(reason, "reason"), _text(message, "message")
        return _write("set condition", type, "set_condition", target, *texts)

    @staticmethod
    def report(pod, condition, event):
        conditions = _section(pod, "status").get("conditions", [])
        here = next((one for one in conditions if one["type"] == condition["type"]), None)
        texts = condition["status"], condition.get("reason", ""), condition.get("message", "")
        if here and (here.get("status"), here.get("reason", ""), here.get("message", "")) == texts:
            return
        writes.set_condition(pod, **condition)
        events.emit(pod, **event)

    @staticmethod
    def remove_condition(target, type):
        return _write("remove condition", _text(type, "type"), "remove_condition", target, type)

    @staticmethod
    def delete(target, grace_period_seconds=None):
        if grace_period_seconds is not None:
            grace_period_seconds = min(_count(grace_period_seconds, "grace_period_seconds"), (1 << 31) - 1)
        return _write("delete", "pod", "delete", target, grace_period_seconds)

    @staticmethod
    def evict(target):
        return _write("evict", "pod", "evict", target)

    @staticmethod
    def apply_object(object, **owner):
        if owner.keys() not in ({"pod"}, {"workload"}, set()):
            raise TypeError(f"the owner is neither pod= nor workload=: {owner!r}")
        kind, of = next(((kind, _key(target)) for kind, target in owner.items()), (None, None))
        return _call("apply object", "apply_object", _json(object), kind, of)

    @staticmethod
    def delete_object(object, uid=None):
        return _on_object("delete", "delete_object", object, _optional(uid, "uid"))

    @staticmethod
    def commit():
        return [WriteReport(*report) for report in _call("commit", "commit")]


def _requirement(label, value):
    _text(label, "a label's key")
    if value is True:
        return label, "EXISTS", []
    if value is False:
        return label, "DOES_NOT_EXIST", []
    if isinstance(value, str):
        operator, values = "IN", [value]
    elif isinstance(value, dict) and value.keys() == {"not"} and isinstance(value["not"], (list, tuple)):
        operator, values = "NOT_IN", value["not"]
    elif isinstance(value, (list, tuple)):
        operator, values = "IN", value
    else:
        raise TypeError(f'labels: {label} is no string, list of strings, bool or {{"not": [..]}}: {value!r}')
    return label, operator, [_text(one, f"a value of {label}") for one in values]


def _select(namespace=None, node=None, owner_uid=None, workload=..., phase=None, labels=None):
    if workload is not ...:
        if not isinstance(workload, Workload):
            why = "it has no controller, or the sections owners and labels are not granted"
            raise TypeError(f"workload is none of a Pod: {_show(workload)}; if workload(pod) is None, {why}")
        if owner_uid is not None:
            raise TypeError("a query has one of owner_uid and workload")
        owner_uid = f"{workload.kind}/{workload.name}"
    fields = {"namespace": namespace, "node": node, "owner_uid": owner_uid, "phase": phase}
    selected = {name: _optional(value, name) for name, value in fields.items()}
    selected["labels"] = [_requirement(*label) for label in (labels or {}).items()]
    return selected


# The labels of a ReplicaSet's Pods with the end of its name, and what made it.
_HASHES = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}


class Workload(NamedTuple):
    kind: str
    name: str
    uid: object = None


def workload(pod):
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences", [])
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller is None or controller["kind"] == "Node":
        return None
    kind, name = controller["kind"], controller["name"]
    for label, above in _HASHES.items() if kind == "ReplicaSet" else ():
        end = "-" + metadata.get("labels", {}).get(label, "")
        if len(end) > 1 and len(name) > len(end) and name.endswith(end):
            return Workload(above, name[: -len(end)])
    return Workload(kind, name, controller["uid"])


def _none(value, what):
    shown = _dumps(value[:64], ensure_ascii=False) if isinstance(value, str) else _cut(_show(value), 64)
    return TerminalError(f"{shown} is no {what}")


_UNIT = 10**9
# The largest amount that Kubernetes stores.
_MOST = ((1 << 63) - 1) * _UNIT
_AMOUNT = _re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]?)|([KMGTPE])i|[eE]([+-]?[0-9]{1,9}))"
)


@_total_ordering
class Quantity:
    __slots__ = ("_nanos",)

    def __init__(self, nanos):
        self._nanos = nanos

    @property
    def nanos(self):
        return self._nanos

    def __add__(self, other):
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(max(min(self.nanos + other.nanos, _MOST), -_MOST))

    def __eq__(self, other):
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other):
        return self.nanos < other.nanos if isinstance(other, Quantity) else NotImplemented

    def __hash__(self):
        return hash(self.nanos)

    def __bool__(self):
        return self.nanos != 0

    def __repr__(self):
        return f"Quantity(nanos={self.nanos})"

    def __str__(self):
        whole, fraction = divmod(abs(self.nanos), _UNIT)
        return f"{'-' * (self.nanos < 0)}{whole}.{fraction:09}".rstrip("0").rstrip(".")

    def value(self):
        return -(-self.nanos // _UNIT)

    def millis(self):
        return -(-self.nanos // (_UNIT // 1000))


def quantity(text):
    return _quantity(text, "")


def _quantity(text, context):
    found = _AMOUNT.fullmatch(text) if isinstance(text, str) else None
    power = 99
    if found:
        sign, whole, fraction, decimal, binary, exponent = found.groups("")
        power = int(exponent) if exponent else ("num kMGTPE".index(decimal or " ") - 3) * 3
    if abs(power) > 18:
        raise TerminalError(f"{context}{_none(text, 'quantity, such as 500m, 2, 1.5Gi or 1e3')}")
    times = 1024 ** ("KMGTPE".index(binary) + 1) if binary else 10 ** max(power, 0)
    # A fraction of 18 digits, in billionths of a billionth; the others only round up.
    digits = int(whole.lstrip("0")[:40] + fraction[:18].ljust(18, "0")) * times
    nanos, rest = divmod(digits, _UNIT * 10 ** max(-power, 0))
    nanos = min(nanos + (rest > 0 or bool(fraction[18:].strip("0"))), _MOST)
    return Quantity(-nanos if sign == "-" else nanos)


_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LENGTH = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|ms|s|m|h|d)"


def duration(text):
    if isinstance(text, str) and (text == "0" or _re.fullmatch(f"(?:{_LENGTH})+", text)):
        parts = _re.findall(_LENGTH, text)
        try:
            return _timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
        except OverflowError:
            pass
    raise _none(text, "duration, such as 90s, 1h30m or 7d")


def _section(pod, name):
    """Returns a section; without its grant the Pod has none."""
    if pod.get(name) is None:
        raise TerminalError(f"the Pod has no {name}: the section {name} is not granted")
    return pod[name]


def _pod(json):
    return None if json is None else _loads(json)


class pods:
    @staticmethod
    def get(namespace, name):
        return _pod(_call("pods.get", "pods_get", _text(namespace, "namespace"), _text(name, "name")))

    @staticmethod
    def get_live(namespace, name):
        return _pod(_call("pods.get_live", "pods_get_live", _text(namespace, "namespace"), _text(name, "name")))

    @staticmethod
    def find(**query):
        return _pages(_select(**query))

    @staticmethod
    def count(**query):
        return _call("pods.count", "pods_count", _select(**query))

    @staticmethod
    def siblings(pod):
        of = workload(pod)
        return pods.find(namespace=pod["metadata"]["namespace"], workload=of) if of else iter(())

    @staticmethod
    def requests(pod, resource):
        def of(container):
            text = container.get("resources", {}).get("requests", {}).get(resource, "0")
            return _quantity(text, f"container {container['name']}: requests.{resource}: ")

        spec = _section(pod, "spec")
        sidecars = starting = Quantity(0)
        for container in spec.get("initContainers", []):
            needed = sidecars + of(container)
            starting = max(starting, needed)
            if container.get("restartPolicy") == "Always":
                sidecars = needed
        return max(starting, sum(map(of, spec.get("containers", [])), sidecars))

    @staticmethod
    def is_ready(pod):
        conditions = _section(pod, "status").get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    @staticmethod
    def finished_at(pod):
        status = _section(pod, "status")
        if status.get("phase") not in ("Succeeded", "Failed"):
            return None
        statuses = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
        ended = [one.get("state", {}).get("terminated", {}).get("finishedAt") for one in statuses]
        moved = [one.get("lastTransitionTime") for one in status.get("conditions", [])]
        times = next(filter(any, (ended, moved, [pod["metadata"].get("creationTimestamp")])), ())
        return max((datetime.fromisoformat(time.replace("Z", "+00:00")) for time in times if time), default=None)


def _pages(selected):
    after = None
    while True:
        page, after = _call("pods.find", "pods_find", selected, 100, after)
        yield from _loads(page)
        if after is None:
            return


class objects:
    @staticmethod
    def get(object):
        return _pod(_on_object("get", "objects_get", object))

    @staticmethod
    def scale(object, replicas):
        return _on_object("scale", "scale", object, min(_count(replicas, "replicas"), (1 << 32) - 1))


class events:
    @staticmethod
    def emit(target, reason, note, type="Normal", action="Reconcile"):
        if type not in ("Normal", "Warning"):
            raise TypeError(f'type is not "Normal" or "Warning": {type!r}')
        texts = _text(reason, "reason"), _text(action, "action"), _text(note, "note")
        _write("emit", reason, "emit", target, type == "Warning", *texts)


def _put(key, value, expected):
    return _call(f"state.put {key}", "state_put", _text(key, "the key"), _json(value), expected)


def _remove(key, expected):
    return _call(f"state.remove {key}", "state_remove", _text(key, "the key"), expected)


def _entry(key):
    """Returns the value and the version; a value that is not JSON counts as lost."""
    value, version = _call(f"state.get {key}", "state_get", _text(key, "the key")) or (None, 0)
    try:
        return _pod(value), version
    except ValueError:
        return None, version


class state:
    @staticmethod
    def get(key, default=None):
        value = _entry(key)[0]
        return default if value is None else value

    @staticmethod
    def entry(key):
        value, version = _entry(key)
        return None if value is None else Entry(value, version)

    @staticmethod
    def put(key, value):
        _put(key, value, None)

    @staticmethod
    def put_if(key, value, expected):
        return _put(key, value, _count(expected, "the expected version"))

    @staticmethod
    def update(key, change):
        for _ in range(16):
            present, version = _entry(key)
            value = change(present)
            if _put(key, value, version):
                return value
        raise RuntimeError(f"state.update {key}: other runs were faster 16 times")

    @staticmethod
    def remove(key):
        _remove(key, None)

    @staticmethod
    def remove_if(key, expected):
        return _remove(key, _count(expected, "the expected version"))


def _line(level):
    def line(message, /, **fields):
        _log(level, message, fields)

    return staticmethod(line)


def _log(level, message, fields):
    shown = [(_cut(name, 256), _cut(_show(value), 4096)) for name, value in fields.items()]
    _host("log", level, _cut(_show(message), 16384), shown)


class log:
    debug = _line("debug")
    info = _line("info")
    warn = _line("warn")
    error = _line("error")


_wide = frozenset()
"""The lines of the script whose columns Python does not count in characters. The runner sets it."""


def _place(error):
    """Returns `plugin.py:line:column` of the script's innermost frame."""
    place, traceback = "", error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename.rpartition("/")[2] == "plugin.py":
            place, position = f"plugin.py:{traceback.tb_lineno}", traceback
        traceback = traceback.tb_next
    if place and hasattr(code, "co_positions"):
        line, _, column, _ = [*position.tb_frame.f_code.co_positions()][position.tb_lasti // 2]
        place += "" if column is None or line in _wide else f":{column + 1}"
    return place


def _failure(error):
    """Returns whether a retry is of no use, and the text."""
    named = type(error) not in (Exception, CallError, TerminalError)
    message = _show(error) or ("out of memory" if isinstance(error, MemoryError) else "")
    if named:
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    place = _place(error)
    is_terminal = isinstance(error, TerminalError) or (
        isinstance(error, CallError) and error.code in ("not-granted", "invalid")
    )
    return is_terminal, _cut(message, 4096) + (f" ({place})" if place else "")


def _outcome(value):
    """Returns "settled", "stop" or the milliseconds until the next run."""
    if value is None:
        return "settled"
    if isinstance(value, dict) and len(value) == 1:
        seconds = value.get("after_seconds")
        if value.get("stop") is True:
            return "stop"
        if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and _isfinite(seconds) and seconds >= 0:
            return min(_ceil(seconds * 1000), 1 << 62)
    if hasattr(value, "cr_code"):
        value.close()
        raise TerminalError("reconcile is async, and nothing awaits it: define it with def only")
    hint = 'return nothing, {"after_seconds": n} or {"stop": True}'
    raise TerminalError(f"reconcile returned {_show(value)}: {hint}")


def _run(reconcile, pod, deleted, key, now_millis, attempt, config, unsettled):
    """Executes one run whose Pods and configuration are JSON. Returns the outcome; exceptions are the script's."""
    now = datetime.fromtimestamp(now_millis / 1000, timezone.utc)
    reports = [WriteReport(*report) for report in unsettled]
    request = Request(_pod(pod), _pod(deleted), PodKey(*key), now, attempt, _loads(config), reports)
    return _outcome(reconcile(request))
