"""What a test expects of a submitted task, and where a task differs from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from tasklib.config import Config
from tasklib.errors import InvalidOption, TaskExecutionError
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import priority_of, require_aware
from tasklib.tasks.payload import dump
from tasklib.tasks.unstorable import UnstorableValue

if TYPE_CHECKING:
    from tasklib.models import Task

_LONGEST_SHOWN = 300
_MISSING = object()
# Shown of a task even if the expectation doesn't name it, unless it has its default value.
_USUAL = {"queue": "default", "priority": 0, "tags": {}, "required_capabilities": [], "idempotency_key": None}


class Expected(TypedDict, total=False):
    """Conditions on a submitted task; fields that are not named may have any value."""

    kwargs: Mapping[str, Any]
    """Some or all arguments, as Python values."""
    tags: Mapping[str, Any]
    """Some or all tags."""
    trace_context: Mapping[str, str]
    queue: str
    priority: int | str
    """A number or the name of a level."""
    state: str
    max_retries: int
    timeout_seconds: int | None
    required_capabilities: Iterable[str]
    idempotency_key: str | None
    delay_seconds: float
    """The wait it was submitted with."""
    scheduled_at: datetime
    scheduled_after: datetime
    scheduled_before: datetime


_PARTS = ("kwargs", "tags", "trace_context")
_LABELS = {"scheduled_after": "scheduled_at", "scheduled_before": "scheduled_at"}


@dataclass(frozen=True)
class Expectation:
    """Expected values, ready to be compared with rows."""

    expected: Mapping[str, Any]
    function: TaskFunction[Any, Any] | None

    @classmethod
    def of(cls, expected: Expected, function: TaskFunction[Any, Any] | None, config: Config) -> Expectation:
        values: dict[str, Any] = dict(expected)
        for name in values:
            if name not in Expected.__annotations__:
                raise InvalidOption(
                    f"{name!r} is not a condition for tasks; arguments go in kwargs={{{name!r}: ...}}. "
                    f"Known: {', '.join(Expected.__annotations__)}."
                )
        for name in ("scheduled_at", "scheduled_after", "scheduled_before"):
            if name in values:
                require_aware(name, values[name])
        if "priority" in values:
            values["priority"] = priority_of(values["priority"], config)[0]
        if "required_capabilities" in values:
            values["required_capabilities"] = sorted(set(values["required_capabilities"]))
        return cls(values, function)

    def mismatches(self, task: Task) -> list[str]:
        """One sentence for each way in which the task differs."""
        problems: list[str] = []
        for name, wanted in self.expected.items():
            if name in _PARTS:
                problems += self._different_parts(name, wanted, task)
            elif not _fits(name, wanted, task):
                wish = {"scheduled_after": "not before ", "scheduled_before": "not after "}.get(name, "")
                problems.append(
                    f"{_LABELS.get(name, name)} is {_shown(_actual(name, task))}, expected {wish}{_shown(wanted)}"
                )
        return problems

    def described(self) -> str:
        """` with queue='mail'`, or nothing."""
        values = ", ".join(f"{name}={_shown(value)}" for name, value in self.expected.items())
        return f" with {values}" if values else ""

    def shown(self, task: Task) -> str:
        """The task on one line: its arguments, what was asked for, and what is unusual about it."""
        unusual = [name for name, usual in _USUAL.items() if getattr(task, name) != usual]
        named = dict.fromkeys(["kwargs", *self.expected, *unusual, "state"])
        return ", ".join(dict.fromkeys(f"{_LABELS.get(n, n)}={_shown(_actual(n, task))}" for n in named))

    def _different_parts(self, column: str, wanted: Mapping[str, Any], task: Task) -> list[str]:
        stored: Mapping[str, Any] = getattr(task, column) or {}
        typed = self._typed(task) if column == "kwargs" else {}
        problems = []
        for key, value in wanted.items():
            if key not in stored:
                problems.append(f"{column}[{key!r}] was not given, expected {_shown(value)}")
            elif not _equal(value, typed.get(key, _MISSING), stored[key]):
                problems.append(f"{column}[{key!r}] is {_shown(stored[key])}, expected {_shown(value)}")
        return problems

    def _typed(self, task: Task) -> Mapping[str, Any]:
        """The arguments as the function would receive them."""
        if self.function is None:
            return {}
        try:
            return self.function.arguments.from_json(json.dumps(task.kwargs))
        except TaskExecutionError:
            return {}


def _equal(wanted: Any, typed: Any, stored: Any) -> bool:
    # `wanted` first: it may be a matcher such as unittest.mock.ANY or pytest.approx.
    if wanted == stored or (typed is not _MISSING and wanted == typed):
        return True
    try:
        return bool(json.loads(dump(wanted)) == stored)
    except UnstorableValue:
        return False


def _fits(name: str, wanted: Any, task: Task) -> bool:
    actual = _actual(name, task)
    match name:
        case "scheduled_after":
            return bool(actual >= wanted)
        case "scheduled_before":
            return bool(actual <= wanted)
        case "delay_seconds":
            return bool(abs(actual - wanted) < 0.001)  # times have microseconds
    return bool(wanted == actual)


def _actual(name: str, task: Task) -> Any:
    match name:
        case "scheduled_after" | "scheduled_before":
            return task.scheduled_at
        case "delay_seconds":
            return (task.scheduled_at - task.created_at).total_seconds()
    return getattr(task, name)


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, datetime) else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text):,} characters)"
