"""A host for tests without a build: it executes runs and returns their effects. It has no grants and no limits;
`podium dev` has both. The clock is that of the machine: a reconciler that reads `request.now` can be tested."""

import random
from copy import deepcopy
from datetime import datetime, timezone
from json import dumps, loads
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

import podium
from podium import Pod, Request, WriteReport


class Run(NamedTuple):
    """The effects of one run. With an error nothing is written except by `commit`."""

    outcome: Optional[Dict[str, Any]]
    error: Optional[str]
    writes: List[tuple]
    """Such as ("set_label", "shop/cart-0", "team", "unowned")."""
    events: List[Tuple[str, str, str, str]]
    """Type, Pod, reason and note."""
    log: List[Tuple[str, str, Dict[str, str]]]
    """Level, message and fields. Printed text is not in it."""


def pod(namespace: str, name: str, labels: Optional[Dict[str, str]] = None) -> Pod:
    """Returns a Pod with these labels; change it as the test needs."""
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-of-{name}", "labels": dict(labels or {})},
        "spec": {"containers": [{"name": "main", "image": "nginx:1.29"}]},
        "status": {"phase": "Running"},
    }


def run(
    reconcile: Callable[[Request], Any],
    pod: Optional[Pod] = None,
    *,
    deleted: Optional[Pod] = None,
    others: Iterable[Pod] = (),
    objects: Iterable[Dict[str, Any]] = (),
    state: Optional[dict] = None,
    config: Any = None,
    now: datetime = datetime(1970, 1, 1, tzinfo=timezone.utc),
    attempt: int = 1,
    unsettled: Iterable[WriteReport] = (),
) -> Run:
    """Executes one run of `reconcile`. `others` are the Pods that it finds besides `pod`, `objects` the objects that
    `objects.get` reads, and `state` is a dict to keep between runs."""
    host = _Host([*filter(None, [pod]), *others], [*objects], {} if state is None else state)
    metadata = (pod or deleted or {"metadata": {"namespace": "shop", "name": "gone", "uid": "gone"}})["metadata"]
    key = [metadata[field] for field in ("namespace", "name", "uid")]
    random.seed(1)
    before, podium._host = podium._host, host
    try:
        outcome = podium._run(
            reconcile, pod and dumps(pod), deleted and dumps(deleted), key, round(now.timestamp() * 1000), attempt,
            dumps({} if config is None else config), unsettled,
        )
    except (Exception, SystemExit) as error:
        return Run(None, podium._failure(error)[1], host.writes[:host.committed], [], host.log)
    finally:
        podium._host = before
    outcome = {"settled": None, "stop": {"stop": True}}.get(outcome, {"after_seconds": outcome})
    if outcome and "after_seconds" in outcome:
        outcome["after_seconds"] /= 1000
    return Run(outcome, None, host.writes, host.events, host.log)


class Settled(NamedTuple):
    """The effects of all runs."""

    pods: List[Pod]
    """The Pods that are left."""
    runs: List[Tuple[str, Run]]
    """In their order, each with `namespace/name` of its Pod."""


def settle(reconcile: Callable[[Request], Any], pods: Iterable[Pod], **request: Any) -> Settled:
    """Runs `reconcile` on each of the Pods, executes its writes, and runs it again on each Pod that they changed, until
    nothing changes. `request` has the arguments of `run` without Pods. Every change of a Pod wakes the plugin, whatever
    `spec.watch` says. A run that failed or asked for a later one is not repeated, because no time passes. A Pod that
    was deleted is gone when it has no finalizer."""
    present = {"/".join(_name(pod)): deepcopy(pod) for pod in pods}
    request.setdefault("state", {})
    gone, runs, woken = {}, [], [*present]
    while woken:
        name = woken.pop(0)
        if sum(other == name for other, _ in runs) == _MOST_RUNS:
            raise RuntimeError(f"{name} does not settle: the plugin woke itself with its writes {_MOST_RUNS} times")
        others = [pod for other, pod in present.items() if other != name]
        done = run(reconcile, present.get(name), deleted=gone.get(name), others=others, **request)
        runs.append((name, done))
        for write, target, *values in done.writes:
            changed = present.get(target) if isinstance(target, str) else None
            before = deepcopy(changed)
            if changed is not None:
                _change(changed, write, *values)
            if before == changed:
                continue
            if target not in woken:
                woken.append(target)
            if "deletionTimestamp" in changed["metadata"] and not changed["metadata"].get("finalizers"):
                gone[target] = present.pop(target)
    return Settled([*present.values()], runs)


_MOST_RUNS = 100
"""The most runs on one Pod until it must be settled."""


def _change(pod, write, *values):
    """Executes a write."""
    metadata = pod["metadata"]
    if write in ("delete", "evict"):
        metadata.setdefault("deletionTimestamp", "1970-01-01T00:00:00Z")
        return
    verb, _, kind = write.partition("_")
    if kind in ("label", "annotation"):
        if verb == "remove" and f"{kind}s" not in metadata:
            return
        values_of = metadata.setdefault(f"{kind}s", {})
        values_of.update([values]) if verb == "set" else values_of.pop(*values, None)
        return
    of, name, item = (
        (metadata, "finalizers", values[0])
        if kind == "finalizer"
        else (pod.setdefault("status", {}), "conditions", dict(zip(("type", "status", "reason", "message"), values)))
    )
    if verb == "remove" and name not in of:
        return
    is_same = [one == item or kind == "condition" and one["type"] == item["type"] for one in of.get(name, [])]
    if verb == "remove":
        of[name] = [one for one, same in zip(of.get(name, []), is_same) if not same]
    elif any(is_same):
        of[name] = [item if same else one for one, same in zip(of[name], is_same)]
    else:
        of[name] = [*of.get(name, []), item]


class _Host:
    def __init__(self, pods, objects, state):
        self.pods, self.objects, self.state = sorted(pods, key=_name), objects, state
        self.writes, self.events, self.log = [], [], []
        self.committed = 0

    def __call__(self, function, *arguments):
        own = getattr(self, f"_{function}", None)
        return own(*arguments) if own else self._write(function, *arguments)

    def _write(self, name, target, *values):
        self.writes.append((name, f"{target.namespace}/{target.name}", *values))
        return len(self.writes) - 1

    def _apply_object(self, document, *_):
        self.writes.append(("apply_object", loads(document)))
        return len(self.writes) - 1

    def _delete_object(self, api_version, kind, namespace, name, _):
        of = {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}
        self.writes.append(("delete_object", of))
        return len(self.writes) - 1

    def _objects_get(self, *names):
        found = (dumps(one) for one in self.objects if _object_names(one) == names)
        return next(found, None)

    def _scale(self, api_version, kind, namespace, name, replicas):
        of = {"apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name}
        self.writes.append(("scale", of, replicas))
        return len(self.writes) - 1

    def _commit(self):
        staged = range(self.committed, len(self.writes))
        self.committed = len(self.writes)
        return [(id, self.writes[id][0], "applied", None, True) for id in staged]

    def _emit(self, target, warning, reason, action, note):
        kind = "Warning" if warning else "Normal"
        self.events.append((kind, f"{target.namespace}/{target.name}", reason, note))

    def _log(self, level, message, fields):
        self.log.append((level, message, dict(fields)))

    def _pods_get(self, namespace, name):
        return next((dumps(pod) for pod in self.pods if _name(pod) == (namespace, name)), None)

    _pods_get_live = _pods_get

    def _pods_find(self, query, _limit, _after):
        return dumps([pod for pod in self.pods if _matches(pod, **query)]), None

    def _pods_count(self, query):
        return sum(_matches(pod, **query) for pod in self.pods)

    def _state_get(self, key):
        return self.state.get(key)

    def _state_put(self, key, value, expected):
        version = self.state.get(key, (None, 0))[1]
        if expected in (None, version):
            self.state[key] = value, version + 1
        return expected in (None, version)

    def _state_remove(self, key, expected):
        is_expected = expected in (None, self.state.get(key, (None, 0))[1])
        if is_expected:
            self.state.pop(key, None)
        return is_expected


def _name(pod):
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _object_names(object):
    metadata = object["metadata"]
    return object["apiVersion"], object["kind"], metadata.get("namespace"), metadata["name"]


def _matches(pod, namespace, node, owner_uid, phase, labels):
    metadata = pod["metadata"]
    return (
        namespace in (None, metadata["namespace"])
        and node in (None, pod.get("spec", {}).get("nodeName"))
        and (owner_uid is None or _owns(pod, owner_uid))
        and phase in (None, pod.get("status", {}).get("phase", ""))
        and all(_label_matches(metadata.get("labels", {}), *label) for label in labels)
    )


def _owns(pod, owner):
    """`owner` is a uid, or the kind and name of a workload."""
    if "/" not in owner:
        return any(reference["uid"] == owner for reference in pod["metadata"].get("ownerReferences", []))
    found = podium.workload(pod)
    return found is not None and f"{found.kind}/{found.name}" == owner


def _label_matches(labels, key, operator, values):
    if operator in ("EXISTS", "DOES_NOT_EXIST"):
        return (key in labels) == (operator == "EXISTS")
    return (labels.get(key) in values) == (operator == "IN")
