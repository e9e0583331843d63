"""What running tasks ask of their worker, on its loop and over its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from tasklib.backends.backend import StepStore
from tasklib.client.flow_plans import spawned_rows
from tasklib.client.submissions import Defaults
from tasklib.errors import TaskCancelled, WorkerLost
from tasklib.tasks.context import WorkerCalls
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.limit_blocks import LimitBlock
from tasklib.tasks.sealed_results import opened_value
from tasklib.worker.attempt import Attempt
from tasklib.worker.limit_blocks import LimitBlocks

T = TypeVar("T")
_MOST_AT_ONCE = 10_000


class BlockCalls:
    """The calls of one attempt whose worker has no database; made on demand, because most tasks make none."""

    def __init__(self, limits: LimitBlocks, loop: asyncio.AbstractEventLoop, attempt: Attempt) -> None:
        self._limits = limits
        self._loop = loop
        self._attempt = attempt

    @property
    def of_database(self) -> WorkerCalls | None:
        return None

    async def enter_limit(self, wanted: LimitBlock, nested: int) -> int:
        """Wait for room in a limit."""
        return await self._on_loop(self._limits.enter(self._attempt, wanted, nested))

    async def leave_limit(self, wanted: LimitBlock, block: int) -> None:
        """Give it back."""
        await self._on_loop(self._limits.leave(self._attempt, wanted, block))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """For sync functions, in their threads."""
        if _running_loop() is self._loop:
            work.close()
            raise RuntimeError(
                "this would block the worker's loop for ever. In an async function, write `async for`, `async with`, "
                "`await`."
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        # A sync function may run a loop of its own.
        if _running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


class AttemptCalls(BlockCalls):
    """The calls of one attempt of a worker with a database."""

    def __init__(
        self,
        store: StepStore,
        limits: LimitBlocks,
        defaults: Defaults,
        loop: asyncio.AbstractEventLoop,
        attempt: Attempt,
    ) -> None:
        super().__init__(limits, loop, attempt)
        self._store = store
        self._defaults = defaults

    @property
    def of_database(self) -> WorkerCalls:
        return self

    async def node_results(self, source: Mapping[str, Any], after: str | None, limit: int) -> list[tuple[str, Any]]:
        """One page of the results of a group."""
        seal = self._attempt.seal
        page = await self._on_loop(self._store.node_results(source, after, limit))
        return [(id_, opened_value(None if seal is None else seal.ring, value)) for id_, value in page]

    async def spawn(self, children: Sequence[tuple[UUID, Signature[Any]]]) -> None:
        """Add tasks to the one that runs."""
        rows = [
            spawned_rows(children[n : n + _MOST_AT_ONCE], self._defaults)
            for n in range(0, len(children), _MOST_AT_ONCE)
        ]
        await self._on_loop(self._spawn(rows))

    async def _spawn(self, pages: Sequence[str]) -> None:
        attempt = self._attempt
        for tasks in pages:
            spawned = await self._store.spawn(attempt.worker_id, attempt.claimed, tasks)
            if spawned is None:
                raise WorkerLost("another attempt holds the task by now, so nothing is spawned")
            if spawned.is_cancelled:
                raise TaskCancelled(UUID(attempt.claimed.id), attempt.claimed.name)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
