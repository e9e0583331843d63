"""What has to be on one shard: tasks that share a limit, a serial key, a share, a merge key or an idempotency key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasklib.client.call_arguments import Alike, Target
from tasklib.client.flow_graphs import FlowGraph
from tasklib.client.submissions import Defaults, parts_of, writer_of
from tasklib.store.submit import SharedKey
from tasklib.tasks import limits, registry
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import Options
from tasklib.tasks.submitter import Submission


@dataclass(slots=True)
class Together:
    """What some tasks have in common with others, which then have to be on the same shard."""

    key: str
    """What is hashed to find the shard."""
    shared: list[tuple[str, SharedKey]] = field(default_factory=list)
    """Idempotency and merge keys, each with the task's name: of each there is one task, so it is looked for first."""
    window: float | None = 0.0
    """For how many seconds these hold; None: until their task is finished."""


def together(items: Alike | Sequence[Submission], defaults: Defaults) -> list[Together]:
    """What these submissions have in common with others, by their keys; empty if any shard will do."""
    found: dict[str, Together] = {}
    for target, arguments, options in parts_of(items):
        terms = defaults.terms(target, options)
        if not isinstance(target, str) and terms.needs_key:
            terms = defaults.keyed(terms, target, writer_of(target)(arguments))
        elif terms.needs_key:
            terms = defaults.keyed(terms, target, json.dumps(dict(arguments)))
        shared = terms.shared_key
        key = _of_limits(target, arguments, options, terms.queue)
        if key is None and shared is not None:
            key = f"{shared[0]} {terms.name} {shared[1]}"
        if key is None:
            continue
        common = found.setdefault(key, Together(key))
        if shared is not None:
            common.shared.append((terms.name, shared))
            window = terms.idempotency_window if shared[0] == "idempotency" else None
            common.window = None if window is None or common.window is None else max(common.window, window)
    return list(found.values())


def together_in_flow(graph: FlowGraph, defaults: Defaults) -> list[Together]:
    """The same of the tasks of a flow, which are all on one shard: limits inside a flow are counted there."""
    found: dict[str, Together] = {}
    for node in graph.nodes.values():
        for task in node.tasks:
            queue = defaults.terms(task.target, task.options).queue
            key = _of_limits(task.target, json.loads(task.kwargs), task.options, queue)
            if key is not None:
                found[key] = Together(key)
    return list(found.values())


def _of_limits(target: Target, arguments: Mapping[str, Any], options: Options, queue: str) -> str | None:
    """What decides where a task behind limits goes: the one that most others may share comes first."""
    if queue in limits.queues:
        return f"limit queue:{queue}"
    function = None if isinstance(target, str) else target
    if function is not None and (names := _unkeyed(function)):
        return f"limit {_group_of(names)}"
    serial, share = options.serial_key, options.share
    if function is not None:
        serial = arguments.get(function.serial_key) if serial is None and function.serial_key else serial
        share = arguments.get(function.share) if share is None and function.share else share
    if serial is not None:
        return f"serial {_text(serial)}"
    for limit in function.limits if function is not None else ():
        if limit.key is not None and (value := arguments.get(limit.key)) is not None:
            return f"limit {limit.name or f'name:{function.name}'} {_text(value)}" if function is not None else None
    return None if share is None else f"share {_text(share)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _unkeyed(function: TaskFunction[Any, Any]) -> list[str]:
    return [limit.name or f"name:{function.name}" for limit in function.limits if limit.key is None]


def _group_of(names: Iterable[str]) -> str:
    """The first name of all limits that are connected by functions of this program with several of them."""
    group = set(names)
    others = [set(_unkeyed(function)) for function in registry.distinct() if len(function.limits) > 1]
    grown = True
    while grown:
        grown = False
        for other in others:
            if other & group and not other <= group:
                group |= other
                grown = True
    return min(group)
