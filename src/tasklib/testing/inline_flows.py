"""Flows in inline mode: their tasks run one after the other, each after those that it waits for."""

from __future__ import annotations

import json
import math
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tasklib.client.flow_graphs import FlowGraph, GraphNode, Reference, graph_of
from tasklib.client.flow_plans import FlowPlan, planned
from tasklib.client.submissions import Defaults
from tasklib.config import Config
from tasklib.states import TERMINAL, TaskState
from tasklib.store.submit import NewTask
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.gathering import ChildFlow
from tasklib.tasks.limit_blocks import LimitBlock
from tasklib.tasks.submitter import Submission
from tasklib.testing.inline_task import InlineTask
from tasklib.testing.loops import run_blocking

if TYPE_CHECKING:
    from tasklib.testing.inline_mode import Inline

T = TypeVar("T")


class InlineFlow:
    """The tasks of a flow, by node. Decides which of them run, as gates do."""

    def __init__(self, graph: FlowGraph, plan: FlowPlan, inline: Inline) -> None:
        self._graph = graph
        self._id = plan.flow.id
        self.nodes: dict[str, list[InlineTask]] = {name: [] for name in graph.nodes}
        self.tasks: list[InlineTask] = []
        rest = iter(plan.tasks)
        for node in graph.nodes.values():
            for task in node.tasks:
                made, _ = inline.accept(next(rest), Submission(task.target, {}, task.options))
                made.flow, made.node, made.results = self, node.name, task.results
                self.nodes[node.name].append(made)
                self.tasks.append(made)
        inline.flows[str(plan.flow.id)] = self

    def is_ready(self, task: InlineTask) -> bool:
        """Whether a task runs now; with its arguments then. One whose gate fails is cancelled."""
        node = self._graph.nodes.get(task.node)
        if node is None or node.spawner is not None:  # spawned: it waits for nothing
            return True
        verdict = self._verdict(node)
        if verdict is False:
            task.cancel()
        if not verdict:
            return False
        if task.results:
            values = {name: self._value(node, reference) for name, reference in task.results.items()}
            task.kwargs = {**task.kwargs, **values}
            task.new = task.new._replace(kwargs=json.dumps(task.kwargs))
        return True

    def ends(self, nodes: Sequence[str], *, settled: bool) -> list[Any]:
        """What the tasks of some nodes returned; or how they ended."""
        tasks = [task for name in nodes for task in self.nodes[name] if task.state in TERMINAL]
        if settled:
            return [ended(task) for task in tasks]
        return [task.result for task in tasks if task.state is TaskState.COMPLETED]

    def _verdict(self, node: GraphNode) -> bool | None:
        """Whether the gate of a node opens; None: it stays shut, because only another program could run a task."""
        reporters = self._graph.reporters(node) if node.parents else []
        tasks = [(name.name, task) for name in reporters for task in self.nodes[name.name]]
        if any(task.state not in TERMINAL for _, task in tasks):
            return None
        failed = [name for name, task in tasks if task.state is not TaskState.COMPLETED]
        if (n := node.policy.at_least) is not None:
            return len(tasks) - len(failed) >= (math.ceil(n * len(tasks)) if isinstance(n, float) else n)
        return node.policy.when == "settled" or all(name in node.optional for name in failed)

    def _value(self, node: GraphNode, reference: Reference) -> Any:
        settled = node.policy.when == "settled"
        if reference.pages:
            return {"flow": str(self._id), "nodes": list(reference.nodes), "settled": settled}
        found = self.ends(reference.nodes, settled=settled)
        return found if reference.is_list else next(iter(found), None)


def ended(task: InlineTask) -> dict[str, Any]:
    """How a task ended, as a row would say it."""
    return {"id": str(task.id), "state": task.state.value, "result": task.result, "error": task.traceback}


class InlineCallsOfTask:
    """What a task in inline mode asks of its worker: spawned tasks run at once."""

    def __init__(self, inline: Inline, task: InlineTask, config: Config) -> None:
        self._inline, self._task, self._config = inline, task, config

    async def node_results(self, source: Mapping[str, Any], after: str | None, limit: int) -> list[tuple[str, Any]]:
        results = self._inline.flows[source["flow"]].ends(source["nodes"], settled=source["settled"])
        page = [(str(place), value) for place, value in enumerate(results)]
        return page[int(after) + 1 if after else 0 :][:limit]

    async def spawn(self, children: Sequence[tuple[UUID, Signature[Any]]]) -> None:
        defaults, parent = Defaults(self._config, seals=False), self._task
        for id_, signature in children:
            if self._inline.find(id_) is not None:
                continue
            kwargs = signature.task.arguments.to_json(signature.arguments())
            new = NewTask(id_, kwargs, defaults.terms(signature.task, signature.options))
            task, _ = self._inline.accept(new, Submission(signature.task, {}, signature.options))
            if parent.flow is not None:
                task.flow, task.node = parent.flow, parent.node.removesuffix(":spawned") + ":spawned"
                parent.flow.nodes.setdefault(task.node, []).append(task)
            await self._inline.run_async(task, self._config)

    @property
    def of_database(self) -> InlineCallsOfTask:
        return self

    async def enter_limit(self, wanted: LimitBlock, nested: int) -> int:
        """There is always room: no other task runs."""
        return 0

    async def leave_limit(self, wanted: LimitBlock, block: int) -> None:
        """Nothing was taken."""

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return run_blocking(lambda: work)


class InlineChildren:
    """Runs what a durable function gathers. Errors are for the function, not for the test."""

    def __init__(self, inline: Inline, config: Config) -> None:
        self._inline, self._config = inline, config

    def submit(self, children: ChildFlow) -> InlineFlow:
        graph = graph_of(children.flow)
        return InlineFlow(graph, planned(graph, Defaults(self._config, seals=False), UUID, None), self._inline)

    async def run_async(self, children: ChildFlow) -> list[list[Any]]:
        flow = self.submit(children)
        for task in flow.tasks:
            await self._inline.run_async(task, self._config, raise_errors=False)
        return self._ends(flow, children)

    def run(self, children: ChildFlow) -> list[list[Any]]:
        flow = self.submit(children)
        for task in flow.tasks:
            self._inline.run(task, self._config, raise_errors=False)
        return self._ends(flow, children)

    def _ends(self, flow: InlineFlow, children: ChildFlow) -> list[list[Any]]:
        return [flow.ends(nodes, settled=True) for nodes in children.places]
