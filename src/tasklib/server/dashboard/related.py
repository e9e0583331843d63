"""Where a task belongs: tasks that share its flow, schedule, key or trace; and links to traces and logs elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from tasklib.client.search_terms import quoted
from tasklib.models import Task
from tasklib.steps import StepKind
from tasklib.store.durable import RecordedStep
from tasklib.store.search import FoundTask

MOST_CHILDREN = 30
MOST_GATHERS = 5


@dataclass(frozen=True, slots=True)
class Related:
    """A link to tasks, or to one."""

    title: str
    href: str
    note: str = ""


def only(qualifier: str, value: str) -> str:
    """The address of a search with one term."""
    return f"/tasks?{urlencode({'q': f'{qualifier}:{quoted(value)}'})}"


def related(task: Task, parent: UUID | None, key: str | None) -> Iterator[Related]:
    """Tasks that share something with this one. `key` is its idempotency key, as it may be shown."""
    if parent is not None:
        yield Related("The task that waits for its flow", f"/tasks/{parent}", str(parent))
    if task.flow is not None:
        yield Related("Tasks of the same flow", only("flow", str(task.flow)))
        if task.node:
            yield Related(
                "Tasks of the same node", f"/tasks?{urlencode({'q': f'flow:{task.flow} node:{quoted(task.node)}'})}"
            )
    if task.schedule:
        yield Related("Runs of the same schedule", only("schedule", task.schedule))
    if key:
        yield Related("Tasks with the same key", only("key", key), key)
    if task.merge_key:
        yield Related("Tasks with the same merge key", only("key", task.merge_key), task.merge_key)
    yield Related("Tasks of the same name", only("name", task.name))
    yield Related("Tasks of the same trace", only("trace", task.trace_id))
    if isinstance(source := task.tags.get("edited_from"), str):
        yield Related("The task it was edited from", f"/tasks/{quote(source, safe='')}", source)
    yield Related("Tasks edited from this one", only("tag.edited_from", str(task.id)))


def gathered(steps: Sequence[RecordedStep]) -> list[UUID]:
    """The flows that a durable task has submitted by `gather`."""
    found = []
    for step in steps:
        if step.id.kind is StepKind.CHILDREN:
            value = json.loads(step.result).get("value")
            text = value.get("flow") if isinstance(value, dict) else value
            try:
                found.append(UUID(str(text)))
            except ValueError:
                continue
    return found[-MOST_GATHERS:]


async def children_of(client: Any, steps: Sequence[RecordedStep]) -> list[FoundTask]:
    """The tasks of these flows, the oldest first."""
    found: list[FoundTask] = []
    for flow in gathered(steps):
        found += (await client.search_tasks(f"flow:{flow}", limit=MOST_CHILDREN)).tasks
    return sorted(found, key=lambda t: (t.created_at, t.id))[:MOST_CHILDREN]


def outside_links(templates: Sequence[str], task: Task) -> Iterator[tuple[str, str]]:
    """Links to traces and logs: `Title=https://.../{trace_id}`, with this task's values."""
    begin, end = task.started_at or task.created_at, task.completed_at or datetime.now(UTC)
    values = {
        "task_id": str(task.id), "trace_id": task.trace_id, "name": task.name, "queue": task.queue,
        "worker": task.worker_id or "", "from_ms": str(int(begin.timestamp() * 1000)),
        "to_ms": str(int(end.timestamp() * 1000) + 1),
        "from": begin.astimezone(UTC).isoformat(), "to": end.astimezone(UTC).isoformat(),
    }  # fmt: skip
    for template in templates:
        title, _, address = template.partition("=")
        for name, value in values.items():
            address = address.replace("{" + name + "}", quote(value, safe=""))
        yield title.strip(), address
