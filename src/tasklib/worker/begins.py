"""Putting on record that attempts begin, before their functions are called.

Only where it matters: a task that runs at most once must not begin a second time, whatever becomes of this worker; and
of a task that has crashed before, it must be known whether it had begun when its worker was lost. All others begin
without a statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tasklib.backends.backend import Settlements
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.worker.attempt import Attempt


class Begins:
    """Collects attempts that are about to begin and records them, many in one statement."""

    def __init__(self, backend: Settlements) -> None:
        self._backend = backend
        self._waiting: list[tuple[Attempt, asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def record(self, attempt: Attempt) -> bool:
        """Whether the beginning is on record now. If not, the task is another worker's by now."""
        recorded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((attempt, recorded))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await recorded

    def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            for worker_id in {attempt.worker_id for attempt, _ in batch}:
                await self._write_of(worker_id, [item for item in batch if item[0].worker_id == worker_id])

    async def _write_of(self, worker_id: str, batch: list[tuple[Attempt, asyncio.Future[bool]]]) -> None:
        # One lock order for all who write many rows.
        batch.sort(key=lambda item: item[0].claimed.id)
        try:
            ours = await self._until_answered(worker_id, [attempt for attempt, _ in batch])
        except Exception as e:
            for _, recorded in batch:
                if not recorded.done():
                    recorded.set_exception(e)
            return
        for attempt, recorded in batch:
            if not recorded.done():
                recorded.set_result(attempt.claimed.id in ours)

    async def _until_answered(self, worker_id: str, attempts: Sequence[Attempt]) -> set[str]:
        """Recording twice is no different from once, so after a lost answer it is asked for again."""
        failures = 0
        while any(not attempt.settled for attempt in attempts):
            try:
                return await self._backend.begin(worker_id, [(a.claimed, a.function.at_most_once) for a in attempts])
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1
        return set()  # all of them were interrupted meanwhile
