"""What `gather` in a durable function waits for: a flow of its own, and how its results are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal
from uuid import UUID

from tasklib.errors import InvalidOption, ResultNotStorable, TaskCancelled, TaskFailed
from tasklib.tasks.durable_run import MAX_STEP_BYTES
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_results import SettledTask
from tasklib.tasks.flow_runs import Attachable
from tasklib.tasks.flow_shapes import Group
from tasklib.tasks.flows import Ends, Flow, signature_of

IfCancelled = Literal["cancel", "abandon"]
MOST_CHILDREN = 10_000


@dataclass(frozen=True)
class ChildFlow:
    """The flow of a `gather`."""

    flow: Flow[Any]
    ends: Sequence[Ends]
    """What each part ends with; or one for all, if they are plain tasks."""
    are_plain: bool
    settled: bool
    if_cancelled: IfCancelled

    @classmethod
    def of(cls, parts: Iterable[Any], *, settled: bool, if_cancelled: IfCancelled) -> ChildFlow:
        """Of parts as those of a group: tasks, chains, groups, flows."""
        if if_cancelled not in ("cancel", "abandon"):
            raise InvalidOption(f'if_cancelled= is "cancel" or "abandon", not {if_cancelled!r}.')
        each = list(parts)
        are_plain = not any(isinstance(part, Attachable) for part in each)
        flow: Flow[Any] = Flow("gather")
        if are_plain and len(each) > MOST_CHILDREN:
            raise InvalidOption(
                f"gather was given {len(each):,} tasks, and {MOST_CHILDREN:,} is the most. Gather several groups."
            )
        if are_plain:
            ends = [flow.attach(Group(tuple(map(signature_of, each))), None)]
        else:
            ends = [flow.attach(part, None) for part in each]
        return cls(flow, ends, are_plain, settled, if_cancelled)

    @property
    def places(self) -> list[list[str]]:
        """The nodes that have the results of each part."""
        return [[node.name for node in end.nodes] for end in self.ends]

    def is_covered(self, ends: Sequence[Sequence[Mapping[str, Any]]]) -> bool:
        """Whether each task has an end: one that is replayed meanwhile has none."""
        return all(len(tasks) >= len(functions) for functions, tasks in zip(self._functions(), ends, strict=False))

    def outcome(self, name: str, ends: Sequence[Sequence[Mapping[str, Any]]]) -> str:
        """What is recorded, as JSON text. TaskFailed or TaskCancelled if one didn't complete, unless all may end."""
        if not self.settled:
            for functions, tasks in zip_longest(self._functions(), ends, fillvalue=()):
                for function, task in zip_longest(functions, tasks):
                    if task is not None and task["state"] != "completed":
                        raise _failure(task, "" if function is None else function.task.name)
        values = [[task if self.settled else task["result"] for task in tasks] for tasks in ends]
        text = json.dumps({"value": values})
        if (size := len(text.encode())) > MAX_STEP_BYTES:
            raise ResultNotStorable(
                f"the results of {name!r} take {size:,} bytes as JSON; the limit is {MAX_STEP_BYTES:,}. Let the tasks "
                "store large data elsewhere and return references to it, or gather fewer at a time."
            )
        return text

    def read(self, text: str) -> list[Any]:
        """The results in the order of the parts, in the types that the functions declare."""
        stored: list[list[Any]] = json.loads(text)["value"]
        read = [
            [self._value(function, value) for function, value in zip_longest(functions[: len(values)], values)]
            for functions, values in zip_longest(self._functions()[: len(stored)], stored, fillvalue=())
        ]
        if self.are_plain:
            return read[0]
        lists = [len(end.nodes) > 1 or end.nodes[0].is_group for end in self.ends]
        return [each if is_list else each[0] for is_list, each in zip(lists, read, strict=False)]

    def _value(self, function: Signature[Any] | None, value: Any) -> Any:
        if self.settled:
            result = None if value["result"] is None else _typed(function, value["result"])
            return SettledTask(UUID(value["id"]), value["state"], result, value["error"])
        return _typed(function, value)

    def _functions(self) -> list[list[Signature[Any]]]:
        return [[signature for node in end.nodes for signature, _ in node.members] for end in self.ends]


def _typed(function: Signature[Any] | None, value: Any) -> Any:
    return value if function is None else function.task.results.from_json(value)


def _failure(task: Mapping[str, Any], name: str) -> TaskFailed | TaskCancelled:
    if task["state"] == "dead_letter":
        return TaskFailed(UUID(task["id"]), name, task["error"])
    error = TaskCancelled(UUID(task["id"]), name)
    if task["error"]:
        error.add_note(task["error"])
    return error
