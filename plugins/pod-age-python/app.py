"""The plugin as the host calls it: JSON in, staged writes out. The decision is made in age.py."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.reconciler_json import Request, Subject_Present
from wit_world.imports import writes
from wit_world.imports.types import (
    Failure_Retry,
    Failure_Terminal,
    Outcome,
    Outcome_RequeueAfterMillis,
    Outcome_Settled,
    PodKey,
    CallError_Invalid,
    CallError_NotGranted,
)

import age


class ReconcilerJson(exports.ReconcilerJson):
    def reconcile(self, request: Request) -> Outcome:
        try:
            return self.decide(request)
        except Err:
            raise
        except Exception as error:
            # Otherwise the run ends by a trap that says nothing of the exception.
            raise Err(Failure_Retry(described(error))) from error

    def decide(self, request: Request) -> Outcome:
        if not isinstance(request.subject, Subject_Present):
            return Outcome_Settled()
        try:
            decision = age.decide(json.loads(request.subject.value), request.now_millis, json.loads(request.config))
        except age.ConfigError as error:
            raise Err(Failure_Terminal(str(error))) from error
        if decision is None:
            return Outcome_Settled()
        if decision.changes:
            set_label(request.key, decision.label)
        if decision.next_millis is None:
            return Outcome_Settled()
        return Outcome_RequeueAfterMillis(decision.next_millis)


def described(error: Exception) -> str:
    """Returns the exception with the file and line that raised it."""
    at = error.__traceback__
    while at.tb_next is not None:
        at = at.tb_next
    file = at.tb_frame.f_code.co_filename.rsplit("/", 1)[-1]
    return f"{type(error).__name__}: {error} ({file}:{at.tb_lineno})"


def set_label(key: PodKey, value: str | None) -> None:
    """Stages the label, or with None its removal. A refusal becomes a failure of the run instead of a trap."""
    try:
        if value is None:
            writes.remove_label(key, age.LABEL)
        else:
            writes.set_label(key, age.LABEL, value)
    except Err as error:
        message = f"label {age.LABEL} on {key.namespace}/{key.name}: {error.value}"
        if isinstance(error.value, (CallError_NotGranted, CallError_Invalid)):
            raise Err(Failure_Terminal(message)) from error
        raise Err(Failure_Retry(message)) from error
