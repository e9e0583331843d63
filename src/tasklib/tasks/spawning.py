"""`current_task().spawn(...)`: tasks that a running task adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from uuid import UUID

from tasklib.errors import InvalidOption
from tasklib.tasks.context import TaskContext, WorkerCalls
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flows import nodes_of, signature_of
from tasklib.tasks.ids import spawned_id
from tasklib.tasks.options import MAX_NAME_BYTES, is_name

K = TypeVar("K", bound=str | int)


def prepared(
    context: TaskContext, children: Mapping[K, Any]
) -> tuple[WorkerCalls, dict[K, tuple[UUID, Signature[Any]]]]:
    """Whom to ask, and the children with their ids."""
    calls = context._calls
    if calls is None:
        raise InvalidOption(
            f"{context.name} can't spawn tasks here: that takes a worker with a database, and a function that runs on "
            "its loop or in a thread. In a child process and over HTTP, submit tasks with an idempotency_key instead."
        )
    if not isinstance(children, Mapping):
        raise InvalidOption("spawn_many takes a dictionary: {key: task_function.s(...), ...}.")
    return calls, {key: (_id(context, key), _child(context, child)) for key, child in children.items()}


def _id(context: TaskContext, key: str | int) -> UUID:
    if isinstance(key, bool) or not (isinstance(key, int) or is_name(key)):
        raise InvalidOption(
            f"the key of a spawned task is a number, or a string of 1 to {MAX_NAME_BYTES} bytes, not {key!r}. It "
            f"tells apart the tasks that one run of {context.name} spawns."
        )
    return spawned_id(context.id, key)


def _child(context: TaskContext, child: Any) -> Signature[Any]:
    signature = signature_of(child)
    if any(nodes_of(value) for value in signature.arguments().values()):
        raise InvalidOption(
            f"an argument of {signature.task.name} is a node of a flow. What {context.name} spawns gets plain values."
        )
    return signature
