"""The clients behind the module-level calls in inline mode: the real calls, with a list in place of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tasklib import tracing
from tasklib.client.async_clients import AsyncClient
from tasklib.client.call_arguments import Alike
from tasklib.client.calls import Calls
from tasklib.client.clients import Client
from tasklib.client.effects import Call, Effect
from tasklib.client.flow_graphs import FlowGraph
from tasklib.client.flow_plans import FlowPlan, planned
from tasklib.client.submissions import Defaults, new_tasks
from tasklib.config import Config
from tasklib.db.query import Query
from tasklib.errors import TaskLibError, TaskNotFound
from tasklib.states import TaskState
from tasklib.store.lookup import Outcome
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.submitter import Submission
from tasklib.tasks.task_id import KnownId, SyncTaskId, TaskId
from tasklib.testing.inline_flows import InlineFlow
from tasklib.testing.inline_task import InlineTask

if TYPE_CHECKING:
    from tasklib.testing.inline_mode import Inline

T = TypeVar("T")


class InlineCalls(Calls):
    """Validates submissions like any client, then keeps them for the caller to run."""

    def __init__(self, config: Config, inline: Inline, *, id_type: type[KnownId[Any]] = TaskId) -> None:
        super().__init__(config, id_type=id_type)
        self.defaults = Defaults(config, self.identity, seals=False)  # nothing is stored
        self._inline = inline
        self._to_run: list[InlineTask] = []

    def take(self) -> list[InlineTask]:
        """The tasks submitted since the last time."""
        # One list, shared by the clients of `on_behalf_of`.
        taken = self._to_run.copy()
        self._to_run.clear()
        return taken

    def _insert(self, items: Alike | Sequence[Submission], connection: Any) -> Call[list[UUID]]:
        # All are checked before the first is recorded: submit_many takes all or none.
        tasks = new_tasks(items, self.defaults)
        tasks.carry(tracing.current())
        for item in items:
            if isinstance(item.target, TaskFunction):
                self._inline.injected(item.target)
        ids: list[UUID] = []
        for new, item in zip(tasks, items, strict=True):
            task, is_new = self._inline.accept(new, item)
            ids.append(self.id_type(task.id))
            if is_new:
                self._to_run.append(task)
        return ids
        yield  # never reached: a call is a generator, and this one needs nothing done

    def _submit_graph(self, graph: FlowGraph, flow_id: UUID | None, connection: Any) -> Call[FlowPlan]:
        plan = planned(graph, self.defaults, self.id_type, self.identity.submitted_by, flow_id)
        for node in graph.nodes.values():
            for task in node.tasks:
                if isinstance(task.target, TaskFunction):
                    self._inline.injected(task.target)
        self._to_run += InlineFlow(graph, plan, self._inline).tasks
        return plan
        yield  # never reached, as above


class InlineClient(Client):
    """Runs what is submitted before it returns."""

    def __init__(self, config: Config, inline: Inline) -> None:
        super().__init__(config)
        self.inline = inline
        self.calls: InlineCalls = InlineCalls(config, inline, id_type=SyncTaskId)

    def perform(self, call: Call[T]) -> T:
        __tracebackhide__ = True
        value = super().perform(call)
        for task in self.calls.take():
            self.inline.run(task, self.config)
        return value

    def _do(self, effect: Effect) -> Any:
        return _answer(self.inline, effect) if isinstance(effect, Query) else super()._do(effect)


class InlineAsyncClient(AsyncClient):
    """Awaits what is submitted before it returns."""

    def __init__(self, config: Config, inline: Inline) -> None:
        super().__init__(config)
        self.inline = inline
        self.calls: InlineCalls = InlineCalls(config, inline)

    async def perform(self, call: Call[T]) -> T:
        __tracebackhide__ = True
        value = await super().perform(call)
        for task in self.calls.take():
            await self.inline.run_async(task, self.config)
        return value

    async def _do(self, effect: Effect) -> Any:
        return _answer(self.inline, effect) if isinstance(effect, Query) else await super()._do(effect)


def _answer(inline: Inline, query: Query[Any]) -> Any:
    """Answer what a list can answer. The rest needs PostgreSQL; an imitation of it would only pretend to test."""
    task = inline.find(UUID(query.parameters["id"])) if "id" in query.parameters else None
    owner = query.parameters.get("owner")
    if task is not None and owner is not None and owner != task.new.terms.submitted_by:
        task = None
    match query.name:
        case "get":
            return task and task.as_row()
        case "outcome":
            return task and _outcome(task)
        case "cancel":
            return task and task.cancel()
    raise TaskLibError(
        f"inline mode has no database, so it can't do {query.name!r}. "
        "Test this on a real one: the fixture tasklib_app, with tasklib.testing.drain()."
    )


def _outcome(task: InlineTask) -> Outcome:
    if task.state is TaskState.PENDING:
        raise TaskNotFound(
            f"task {task.name} ({task.id}) has no result: inline mode has recorded it but not run it.",
            name=task.name,
            task_id=task.id,
        )
    row = task.as_row()
    return Outcome(row.name, row.state, row.result, row.error)
