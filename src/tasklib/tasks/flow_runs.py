"""Submitting a flow, and what that returns. The graph itself is in `flows.py`."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, overload
from uuid import UUID

from typing_extensions import TypeVar

from tasklib.errors import InvalidOption
from tasklib.tasks import default_client
from tasklib.tasks.submitter import Awaited, returns_awaited
from tasklib.tasks.task_id import KnownId

if TYPE_CHECKING:
    from tasklib.tasks.flows import Ends, Flow
    from tasklib.tasks.submitter import AsynchronousConnection, SyncConnection

R_co = TypeVar("R_co", covariant=True, default=Any)


class FlowRun(Generic[R_co]):
    """A flow that was submitted."""

    def __init__(
        self,
        id: UUID,
        name: str,
        tasks: dict[str, list[KnownId[Any]]],
        last: KnownId[Any] | None,
        ends: Sequence[str] = (),
    ) -> None:
        self.id = id
        self.name = name
        self.tasks = tasks
        """The ids of its tasks, by node."""
        self.last: Any = last
        """The id of the task whose result is that of the flow; None if it ends with several."""
        self.ends = tuple(ends)
        """The nodes that the flow ends with."""
        self._client: Any = None

    def __repr__(self) -> str:
        return f"<flow {self.name} {self.id}>"

    def _end(self) -> Any:
        if self.last is None:
            raise InvalidOption(
                f"the flow {self.name} ends with several tasks, and has no single result. "
                "Ask for all of them, run.results(), or of one node: run.results('node')."
            )
        return self.last

    @returns_awaited
    def result(self, timeout: float | None = None) -> Coroutine[Any, Any, R_co]:
        """Wait for the last task of the flow and return its result."""
        awaited: Coroutine[Any, Any, R_co] = self._end().result(timeout)
        return awaited

    @returns_awaited
    def results(self, node: str | None = None, timeout: float | None = None) -> Coroutine[Any, Any, list[Any]]:
        """Wait for the tasks of a node, or of what the flow ends with, and return their results in order."""
        return Awaited(self._results(self._ids(node), timeout), "run.results")

    @returns_awaited
    def get(self) -> Coroutine[Any, Any, Any]:
        """The flow as it is now: `info` with its progress, `nodes`, `gates` and `edges`."""
        return Awaited(self._perform("get_flow"), "run.get")

    @returns_awaited
    def cancel(self) -> Coroutine[Any, Any, Any]:
        """Cancel all tasks of the flow that have not ended: how many were `cancelled`, or run and were `asked`."""
        return Awaited(self._perform("cancel_flow"), "run.cancel")

    @returns_awaited
    def replay(self) -> Coroutine[Any, Any, int]:
        """Let the flow go on where it failed or was cancelled; how many tasks start afresh."""
        return Awaited(self._perform("replay_flow"), "run.replay")

    def _ids(self, node: str | None) -> list[Any]:
        if node is None:
            return [id_ for name in self.ends for id_ in self.tasks[name]]
        if node not in self.tasks:
            raise InvalidOption(f"the flow {self.name} has no node {node!r}; it has {', '.join(self.tasks)}.")
        return self.tasks[node]

    def _by(self, client: Any) -> Self:
        """The same run, which asks this client from now on."""
        self._client = client
        for ids in self.tasks.values():
            for id_ in ids:
                id_._by(client)
        return self

    async def _results(self, ids: list[Any], timeout: float | None) -> list[Any]:
        async with asyncio.timeout(timeout):
            return [await id_.result() for id_ in ids]

    async def _perform(self, call: str) -> Any:
        client = self._client or default_client.async_client()
        return await client.perform(getattr(client.calls, call)(self.id))


class SyncFlowRun(FlowRun[R_co]):
    """`FlowRun` for synchronous code."""

    def results(self, node: str | None = None, timeout: float | None = None) -> list[Any]:  # type: ignore[override]  # it blocks instead
        """Wait for the tasks of a node, or of what the flow ends with, and return their results in order."""
        deadline = None if timeout is None else time.monotonic() + timeout
        return [
            id_.result(None if deadline is None else max(0.0, deadline - time.monotonic())) for id_ in self._ids(node)
        ]

    def get(self) -> Any:
        """The flow as it is now: `info` with its progress, `nodes`, `gates` and `edges`."""
        return self._perform_blocking("get_flow")

    def cancel(self) -> Any:
        """Cancel all tasks of the flow that have not ended: how many were `cancelled`, or run and were `asked`."""
        return self._perform_blocking("cancel_flow")

    def replay(self) -> int:  # type: ignore[override]  # as above
        """Let the flow go on where it failed or was cancelled; how many tasks start afresh."""
        count: int = self._perform_blocking("replay_flow")
        return count

    def _perform_blocking(self, call: str) -> Any:
        client = self._client or default_client.sync_client()
        return client.perform(getattr(client.calls, call)(self.id))

    def result(self, timeout: float | None = None) -> R_co:  # type: ignore[override]  # it blocks instead
        """Wait for the last task of the flow and return its result."""
        value: R_co = self._end().result(timeout)
        return value


class Attachable(ABC):
    """A part of a flow that is more than one task."""

    @abstractmethod
    def attach_to(self, flow: Flow[Any], before: Ends | None) -> Ends:
        """Add its tasks to a flow behind what came before; what it ends with."""


class Submittable(Attachable, Generic[R_co]):
    """A flow, or a part that is a flow of its own."""

    _what: ClassVar[str]

    @abstractmethod
    def as_flow(self) -> Flow[R_co]:
        """The graph."""

    @returns_awaited
    def submit(self) -> Coroutine[Any, Any, FlowRun[R_co]]:
        """Submit all its tasks at once, or none."""
        return Awaited(self._submit(None), f"{self._what}.submit", f"{self._what}.submit_sync")

    def submit_sync(self) -> SyncFlowRun[R_co]:
        """`submit` for synchronous code."""
        client = default_client.sync_client()
        run: SyncFlowRun[R_co] = client.perform(client.calls.submit_flow(self))
        return run

    @overload
    def on(self, connection: SyncConnection, /) -> FlowInTransaction[R_co]: ...
    @overload
    def on(self, connection: AsynchronousConnection, /) -> AsyncFlowInTransaction[R_co]: ...
    def on(self, connection: Any, /) -> Any:
        """Submit on this connection, in its transaction: the flow exists if and only if the transaction commits."""
        kind = AsyncFlowInTransaction if default_client.is_async_connection(connection) else FlowInTransaction
        return kind(self, connection)

    async def _submit(self, connection: Any) -> FlowRun[R_co]:
        client = default_client.async_client()
        run: FlowRun[R_co] = await client.perform(client.calls.submit_flow(self, connection=connection))
        return run


@dataclass(frozen=True)
class FlowInTransaction(Generic[R_co]):
    """A flow that is submitted in the transaction of a synchronous connection."""

    flow: Submittable[R_co]
    connection: Any

    def submit(self) -> SyncFlowRun[R_co]:
        """Submit all its tasks. They exist once the transaction commits."""
        client = default_client.sync_client()
        run: SyncFlowRun[R_co] = client.perform(client.calls.submit_flow(self.flow, connection=self.connection))
        return run


@dataclass(frozen=True)
class AsyncFlowInTransaction(Generic[R_co]):
    """A flow that is submitted in the transaction of an asynchronous connection."""

    flow: Submittable[R_co]
    connection: Any

    @returns_awaited
    def submit(self) -> Coroutine[Any, Any, FlowRun[R_co]]:
        """Submit all its tasks. They exist once the transaction commits."""
        return Awaited(self.flow._submit(self.connection), "flow.on(connection).submit")
