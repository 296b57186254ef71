"""Which class of age a Pod is in, and when it enters the next. Knows no host: a Pod is Kubernetes JSON, as a dict."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

LABEL = "podium.dev/age"
"""The label: the oldest class that the Pod has reached."""

DEFAULT_CLASSES = {"week": 7 * 86_400, "month": 30 * 86_400}
"""Class to age in seconds, where the configuration names none."""


class ConfigError(Exception):
    """The configuration is wrong; running again does not help."""


@dataclass(frozen=True)
class Decision:
    """The write and the next run that a Pod needs."""

    label: str | None
    """The value to set; None removes the label."""
    changes: bool
    """Whether the Pod says otherwise now."""
    next_millis: int | None
    """Milliseconds from now until the Pod enters its next class, or None if it is in the oldest."""


def classes(config: dict[str, Any]) -> list[tuple[int, str]]:
    """The classes of a configuration as (age in milliseconds, name), the youngest first."""
    unknown = sorted(set(config) - {"classes"})
    if unknown:
        raise ConfigError(f"spec.config.{unknown[0]}: unknown field, expected classes")
    named = config.get("classes", DEFAULT_CLASSES)
    if not isinstance(named, dict):
        raise ConfigError("spec.config.classes: expected a map of names to seconds")
    for name, seconds in named.items():
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds <= 0:
            raise ConfigError(f"spec.config.classes.{name}: expected a number of seconds above 0, got {seconds!r}")
    return sorted((seconds * 1000, name) for name, seconds in named.items())


def decide(pod: dict[str, Any], now_millis: int, config: dict[str, Any]) -> Decision | None:
    """Returns the decision about a Pod, or None if the Pod is terminating or its age is not known."""
    boundaries = classes(config)
    metadata = pod["metadata"]
    created = metadata.get("creationTimestamp")
    if created is None or "deletionTimestamp" in metadata:
        return None
    age = now_millis - round(datetime.fromisoformat(created).timestamp() * 1000)
    reached = [name for boundary, name in boundaries if boundary <= age]
    ahead = [boundary - age for boundary, _ in boundaries if boundary > age]
    label = reached[-1] if reached else None
    return Decision(label, metadata.get("labels", {}).get(LABEL) != label, ahead[0] if ahead else None)
