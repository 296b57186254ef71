"""The module "podium": the calls of a plugin in Python. Editors and type checkers read this file; the module itself is
part of the host.

Writes are staged, and sent after `reconcile` returned. A run that raises an exception sends none of them. A call that
the host refuses raises a `CallError`.
"""

from datetime import datetime, timedelta
from typing import Any, Callable, Dict, Iterator, List, Literal, NamedTuple, Optional, TypedDict, TypeVar, Union

Pod = Dict[str, Any]
"""A Pod as `kubectl get pod -o json` prints it, with the granted sections only."""


class PodKey(NamedTuple):
    """One incarnation of a Pod. A Pod deleted and created again has another uid."""

    namespace: str
    name: str
    uid: str


Target = Union[Pod, PodKey]
"""The target of a write: a Pod or its key."""


class WriteReport(NamedTuple):
    """The result of one write."""

    id: int
    description: str
    """Such as "set label team=web on shop/cart-0"."""
    result: Literal[
        "applied", "unchanged", "conflict", "owned_by_other", "blocked", "gone", "forbidden", "invalid", "not_sent",
        "unknown",
    ]
    message: Optional[str]
    """The API server's message, if there is one."""
    settled: bool
    """Whether the object has the requested state or is gone."""


class Request(NamedTuple):
    """The argument of `reconcile`: the present state of one Pod, and never the change that caused the run."""

    pod: Optional[Pod]
    """The present Pod; None if it is gone."""
    deleted: Optional[Pod]
    """The last known state of a Pod that is gone, if there is one."""
    key: PodKey
    """The incarnation of the Pod that the run is for."""
    now: datetime
    """The host's time at the start of the run, in UTC. `datetime.now(timezone.utc)` returns the same."""
    attempt: int
    """1 for the first attempt, and one more for each consecutive failure."""
    config: Any
    """`spec.config` of the plugin; {} by default."""
    unsettled: List[WriteReport]
    """Writes of the previous run that neither succeeded nor became unnecessary."""


class _After(TypedDict):
    after_seconds: float


class _Stop(TypedDict):
    stop: Literal[True]


Outcome = Union[None, _After, _Stop]
"""The result of a run: None to wait for the next change, `{"after_seconds": n}` to run again after that time or earlier
after a change, `{"stop": True}` to have the plugins after this one skip this revision of the Pod."""


class CallError(Exception):
    """A refused call. A run that ends with `not-granted` or `invalid` is not retried before the Pod changes."""

    code: Literal["not-granted", "over-budget", "invalid", "unavailable"]


class TerminalError(Exception):
    """An error after which the run waits for a change, because a retry on the same data cannot succeed."""


class writes:
    """Each function stages one write and returns its number within the run."""

    @staticmethod
    def set_label(target: Target, key: str, value: str) -> int:
        """Sets one label and leaves the others unchanged. Grant: `write.labels`."""

    @staticmethod
    def remove_label(target: Target, key: str) -> int:
        """Removes one label. Grant: `write.labels`."""

    @staticmethod
    def label_to(target: Target, key: str, value: Optional[str]) -> int:
        """Sets one label, or removes it if there is no value. Grant: `write.labels`."""

    @staticmethod
    def set_annotation(target: Target, key: str, value: str) -> int:
        """Sets one annotation. Grant: `write.annotations`."""

    @staticmethod
    def remove_annotation(target: Target, key: str) -> int:
        """Removes one annotation. Grant: `write.annotations`."""

    @staticmethod
    def annotation_to(target: Target, key: str, value: Optional[str]) -> int:
        """Sets one annotation, or removes it if there is no value. Grant: `write.annotations`."""

    @staticmethod
    def add_finalizer(target: Target, name: str) -> int:
        """Adds a finalizer. Grant: `write.finalizers`."""

    @staticmethod
    def remove_finalizer(target: Target, name: str) -> int:
        """Removes a finalizer. Grant: `write.finalizers`."""

    @staticmethod
    def set_condition(
        target: Target, type: str, status: Literal["True", "False", "Unknown"], reason: str = "", message: str = ""
    ) -> int:
        """Sets one condition in the Pod's status; the host sets its transition time. Grant: `write.conditions`."""

    @staticmethod
    def report(pod: Pod, condition: Dict[str, str], event: Dict[str, str]) -> None:
        """Sets one condition, and stages an Event about it unless the Pod has the condition already: an Event for each
        change, also after a restart of the host. The dicts have the arguments of `set_condition` and `events.emit`.
        Grants: `write.conditions` and `write.events`; needs the section `status`."""

    @staticmethod
    def remove_condition(target: Target, type: str) -> int:
        """Removes one condition. Grant: `write.conditions`."""

    @staticmethod
    def delete(target: Target, grace_period_seconds: Optional[int] = None) -> int:
        """Deletes the Pod with its own grace period, or with this one. Grant: `write.delete`."""

    @staticmethod
    def evict(target: Target) -> int:
        """Evicts the Pod, respecting disruption budgets. Grant: `write.evict`."""

    @staticmethod
    def apply_object(object: Dict[str, Any], *, pod: Target = ..., workload: Target = ...) -> int:
        """Applies (server-side) the complete object of a granted kind. With `pod` it is deleted with the Pod, and with
        `workload` with the Pod's top workload. Grant: `write.objects`."""

    @staticmethod
    def delete_object(object: Dict[str, Any], uid: Optional[str] = None) -> int:
        """Deletes an object of a granted kind: a dict with apiVersion, kind, and namespace and name, in `metadata` or
        beside it. With `uid`, only that incarnation. Grant: `write.objects`."""

    @staticmethod
    def commit() -> List[WriteReport]:
        """Sends the writes that are staged now, waits for the responses, and returns the results in staging order."""


LabelValue = Union[str, List[str], bool, Dict[Literal["not"], List[str]]]
"""The value that a label must have: a string, a list of which one must match, `{"not": [..]}` for none of them, True if
the label must exist, and False if it must not."""


class Workload(NamedTuple):
    """The object that a user made and whose replica a Pod is. A rollout does not change it. `uid` is None for a
    Deployment and a Rollout, which are derived from the ReplicaSet's name."""

    kind: str
    name: str
    uid: Optional[str] = None


def workload(pod: Pod) -> Optional[Workload]:
    """Returns the workload of a Pod: its controller, or the Deployment or Rollout above its ReplicaSet; None without a
    controller. Needs the sections `owners` and `labels`."""


class Quantity:
    """An amount of a resource, exact to a billionth: a finer one is rounded up. `str` returns a decimal number without
    a suffix, which Kubernetes accepts for each resource. Quantities can be added and compared; one of 0 is false. In
    JSON, as in `state`, write its `str`."""

    def __init__(self, nanos: int) -> None: ...
    @property
    def nanos(self) -> int:
        """The amount in billionths."""

    def __add__(self, other: Quantity) -> Quantity: ...
    def __lt__(self, other: Quantity) -> bool: ...
    def __le__(self, other: Quantity) -> bool: ...
    def __gt__(self, other: Quantity) -> bool: ...
    def __ge__(self, other: Quantity) -> bool: ...
    def __hash__(self) -> int: ...
    def __bool__(self) -> bool: ...

    def value(self) -> int:
        """Returns the amount in whole units, rounded up: bytes of memory, processors."""

    def millis(self) -> int:
        """Returns the amount in thousandths, rounded up: millicores of `cpu`."""


def quantity(text: str) -> Quantity:
    """Parses a quantity of Kubernetes, such as "500m" or "1.5Gi"; raises a `TerminalError` for other values. The sum of
    several is `sum(quantities, quantity("0"))`."""


def duration(text: str) -> timedelta:
    """Parses a duration as Go and `kubectl` write it, such as "90s", "1h30m" or "1.5h", and days such as "7d"; raises a
    `TerminalError` for other values. `after_seconds` takes its `total_seconds()`."""


class pods:
    """Reads of Pods in the cache. All conditions that are set must match. Grant: `read.pods`. Pods that the plugin may
    not see do not exist for it."""

    @staticmethod
    def get(namespace: str, name: str) -> Optional[Pod]: ...

    @staticmethod
    def get_live(namespace: str, name: str) -> Optional[Pod]:
        """Reads from the API server instead of the cache, with a budget of its own. Grant: `read.pods.live`."""

    @staticmethod
    def find(
        *,
        namespace: Optional[str] = None,
        node: Optional[str] = None,
        owner_uid: Optional[str] = None,
        workload: Workload = ...,
        phase: Optional[str] = None,
        labels: Optional[Dict[str, LabelValue]] = None,
    ) -> Iterator[Pod]:
        """Returns the Pods that match, ordered by namespace and name, and reads them page by page."""

    @staticmethod
    def count(
        *,
        namespace: Optional[str] = None,
        node: Optional[str] = None,
        owner_uid: Optional[str] = None,
        workload: Workload = ...,
        phase: Optional[str] = None,
        labels: Optional[Dict[str, LabelValue]] = None,
    ) -> int:
        """Returns the number of Pods that match, without reading them."""

    @staticmethod
    def siblings(pod: Pod) -> Iterator[Pod]:
        """Returns the Pods of the same workload, this one among them, through a rollout those of both ReplicaSets; none
        without a controller. Needs the sections `owners` and `labels`."""

    @staticmethod
    def requests(pod: Pod, resource: str) -> Quantity:
        """Returns the amount of a resource, such as `cpu`, that a Pod requests, as the scheduler computes it from its
        containers: the sum of the containers and sidecars, or what an init container needs beside the sidecars before
        it, if that is more. Needs the section `spec`."""

    @staticmethod
    def is_ready(pod: Pod) -> bool:
        """Returns True if the condition `Ready` is true. Needs the section `status`."""

    @staticmethod
    def finished_at(pod: Pod) -> Optional[datetime]:
        """Returns the time at which a Pod in the phase `Succeeded` or `Failed` finished: the end of its last container.
        Without one, it is the last transition of its conditions, and without any the creation. Needs the section
        `status`."""


class objects:
    """Reads and replicas of objects that are not Pods."""

    @staticmethod
    def get(object: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Reads an object of a granted kind from the API server, with the rights of the plugin's ServiceAccount; None
        if there is none. The argument is a dict with apiVersion, kind, and namespace and name, in `metadata` or beside
        it. Shares the budget of `pods.get_live`. Grant: `read.objects`."""

    @staticmethod
    def scale(object: Dict[str, Any], replicas: int) -> int:
        """Stages the replicas of an object of a granted kind, such as a Deployment. Grant: `write.scale`."""


class events:
    @staticmethod
    def emit(
        target: Target, reason: str, note: str, type: Literal["Normal", "Warning"] = "Normal", action: str = "Reconcile"
    ) -> None:
        """Stages a Kubernetes Event about a Pod. `reason` and `action` are one UpperCamelCase word each. Grant:
        `write.events`."""


class Entry(NamedTuple):
    value: Any
    version: int


_T = TypeVar("_T")


class state:
    """A small store that all runs of the plugin share; its values are stored as JSON and may be lost. Data that must
    last belongs on the object. A put takes effect at once, even if the run fails later."""

    @staticmethod
    def get(key: str, default: Any = None) -> Any: ...

    @staticmethod
    def entry(key: str) -> Optional[Entry]:
        """Returns the value with its version, for `put_if`."""

    @staticmethod
    def put(key: str, value: Any) -> None: ...

    @staticmethod
    def put_if(key: str, value: Any, expected: int) -> bool:
        """Stores the value if the present version is `expected`, 0 for an absent key; returns whether it was."""

    @staticmethod
    def update(key: str, change: Callable[[Optional[_T]], _T]) -> _T:
        """Stores what `change` returns for the present value, and returns it. `change` may be called more than once."""

    @staticmethod
    def remove(key: str) -> None: ...

    @staticmethod
    def remove_if(key: str, expected: int) -> bool:
        """Removes the key if the present version is `expected`; returns whether it was."""


class log:
    """The plugin's log. `print` and the module `logging` write to it too."""

    @staticmethod
    def debug(message: str, /, **fields: Any) -> None: ...

    @staticmethod
    def info(message: str, /, **fields: Any) -> None: ...

    @staticmethod
    def warn(message: str, /, **fields: Any) -> None: ...

    @staticmethod
    def error(message: str, /, **fields: Any) -> None: ...
