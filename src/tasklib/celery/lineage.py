"""Which task comes before and after which: `result.children`, `request.parent_id` and `request.root_id`.

A task that was submitted by another names it in its row. In a canvas, the gates of the flow tell: they are read when a
program asks, so nothing is stored for those that never do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tasklib.celery.binding import HEADER
from tasklib.celery.builtin_tasks import ERRBACK
from tasklib.celery.request import running_request
from tasklib.client.default import default_client
from tasklib.client.effects import Call
from tasklib.store import flows

PARENT, ROOT = "parent_id", "root_id"


@dataclass(frozen=True)
class Lineage:
    """The task that caused this one, and the first of all."""

    parent_id: str | None
    root_id: str


@dataclass(frozen=True)
class CanvasGraph:
    """A flow: the tasks of each node, and which node waits for which. Calls of error callbacks are left out."""

    tasks: dict[str, list[str]]
    edges: list[tuple[str, str]]

    def node_of(self, task_id: str) -> str | None:
        """Where a task is."""
        return next((node for node, ids in self.tasks.items() if task_id in ids), None)

    def before(self, node: str) -> str | None:
        """The last task of the node that this one waits for; None for a first one."""
        found = [self.tasks[before][-1] for before, after in self.edges if after == node and self.tasks.get(before)]
        return max(found, default=None)

    def after(self, node: str) -> list[str]:
        """The nodes that wait for this one, in the order of submission."""
        return [name for name in self.tasks if (node, name) in self.edges]


def submitted_by_this_task() -> dict[str, str]:
    """What a row says of the task that is running here; empty outside of one."""
    now = running_request()
    return {} if now is None or now.id is None else {PARENT: now.id, ROOT: now.root_id or now.id}


def lineage_of(task_id: str, header: dict[str, Any], flow: str | UUID | None) -> Lineage:
    """Of a task with this header in its row, and of this flow."""
    if flow is None:
        return Lineage(header.get(PARENT), header.get(ROOT) or task_id)
    graph = _graph_of(flow)
    first, node = task_id, graph.node_of(task_id)
    parent = None if node is None else graph.before(node)
    while node is not None and (earlier := graph.before(node)) is not None:
        first, node = earlier, graph.node_of(earlier)
    if first != task_id and (row := default_client().get_task(first)) is not None:
        header = row.kwargs.get(HEADER) or {}
    return Lineage(parent or header.get(PARENT), header.get(ROOT) or first)


def children_of(task_id: str, flow: str | UUID | None) -> list[tuple[str | None, list[str]]]:
    """The tasks that wait for this one: each alone, or a group with the id of its flow."""
    if flow is None:
        return []
    graph = _graph_of(flow)
    node = graph.node_of(task_id)
    found = [] if node is None else [graph.tasks[name] for name in graph.after(node)]
    return [(None, ids) if len(ids) == 1 else (str(flow), ids) for ids in found]


def _graph_of(flow: str | UUID) -> CanvasGraph:
    client = default_client()
    graph: CanvasGraph = client.perform(_read(client.calls, flow))
    return graph


def _read(calls: Any, flow: str | UUID) -> Call[CanvasGraph]:
    details = yield from calls.get_flow(flow)
    ids: dict[str, list[UUID]] = yield flows.task_ids(details.info.id)
    tasks: dict[str, list[str]] = defaultdict(list)
    for node in details.nodes:  # in the order of submission
        if node.task != ERRBACK:
            tasks[node.name] = [str(id_) for id_ in ids.get(node.name, ())]
    return CanvasGraph(dict(tasks), details.edges)
