"""Waiting for a place in a limit, for the blocks `with limit(...)` of one worker's tasks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from tasklib.backends.backend import PlaceStore
from tasklib.errors import InvalidOption, LimitNotFound, LimitTimeout, TaskCancelled, WorkerLost
from tasklib.store.limits import PlaceAnswer, PlaceRequest
from tasklib.tasks.limit_blocks import LimitBlock
from tasklib.tasks.limits import Rule
from tasklib.worker.attempt import Attempt, Interruption

T = TypeVar("T")
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_PAUSE_GROWS_BY = 1.5


class _Queue:
    """The blocks of this worker that wait for one limit and key: the first of them asks the database."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.freed = asyncio.Event()


class LimitBlocks:
    """The blocks of all tasks of a worker. Everything here runs on its loop."""

    def __init__(self, store: PlaceStore) -> None:
        self._store = store
        self._queues: WeakValueDictionary[tuple[str, str], _Queue] = WeakValueDictionary()
        self._blocks = count(1)
        self._declared: dict[str, Rule] = {}
        self._in_background: set[asyncio.Task[Any]] = set()

    async def enter(self, attempt: Attempt, wanted: LimitBlock, nested: int) -> int:
        """Wait for room, first come, first served within this worker; what `leave` takes."""
        await self._declare(wanted)
        asked = PlaceRequest(wanted.name, wanted.key, wanted.cost, next(self._blocks), nested)
        attempt.claimed = attempt.claimed.with_places()
        queue = self._queues.get((wanted.name, wanted.key))
        if queue is None:
            queue = self._queues[wanted.name, wanted.key] = _Queue()
        elif wanted.timeout == 0 and queue.turn.locked():
            raise LimitTimeout(wanted.name, wanted.key, 0)
        try:
            async with asyncio.timeout(wanted.timeout or None), queue.turn:
                await self._take(attempt, wanted, asked, queue)
        except TimeoutError:
            if wanted.timeout is None:
                raise
            raise LimitTimeout(wanted.name, wanted.key, wanted.timeout) from None
        return asked.block

    async def leave(self, attempt: Attempt, wanted: LimitBlock, block: int) -> None:
        """Give the room back, even if the block was cancelled."""
        await asyncio.shield(self._start(self._leave(attempt, wanted, block)))

    async def _leave(self, attempt: Attempt, wanted: LimitBlock, block: int) -> None:
        await self._store.leave_place(attempt.worker_id, attempt.claimed, block)
        queue = self._queues.get((wanted.name, wanted.key))
        if queue is not None:  # the next one of this worker needs no poll
            queue.freed.set()

    async def _take(self, attempt: Attempt, wanted: LimitBlock, asked: PlaceRequest, queue: _Queue) -> None:
        pause = _FIRST_PAUSE
        while True:
            _stop_if_interrupted(attempt)
            queue.freed.clear()
            answer = await self._ask(attempt, wanted, asked)
            match answer.outcome:
                case "taken":
                    return
                case "unknown":
                    raise LimitNotFound(wanted.name, await self._store.limit_names())
                case "never":
                    raise InvalidOption(
                        f"{attempt.claimed.name} itself holds all places of the limit {wanted.name!r}, so this block "
                        "would wait for ever. Leave the outer one first, or omit the limit from @task(limits=...)."
                    )
            if wanted.timeout == 0:
                raise TimeoutError
            known = answer.seconds
            wait = pause * random.uniform(0.8, 1.2) if known is None else min(known, _LONGEST_PAUSE)
            pause = min(_LONGEST_PAUSE, pause * _PAUSE_GROWS_BY)
            with suppress(TimeoutError):
                await asyncio.wait_for(queue.freed.wait(), wait)

    async def _ask(self, attempt: Attempt, wanted: LimitBlock, asked: PlaceRequest) -> PlaceAnswer:
        asking = self._start(self._store.take_place(attempt.worker_id, attempt.claimed, asked))
        try:
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._start(self._undo(asking, attempt, wanted, asked.block))
            raise
        if answer is None:
            raise WorkerLost("another attempt holds the task by now, so this one enters no limit")
        return answer

    async def _undo(
        self, asking: asyncio.Task[PlaceAnswer | None], attempt: Attempt, wanted: LimitBlock, block: int
    ) -> None:
        """The block gave up while it asked: what it gets is given back, so wait for the answer."""
        await asyncio.wait([asking])
        await self._leave(attempt, wanted, block)

    async def _declare(self, wanted: LimitBlock) -> None:
        """Store what the code says of a limit, once in this worker."""
        if wanted.rule and self._declared.get(wanted.name) != wanted.rule:
            await self._store.declare_limit(wanted.name, wanted.rule.stored())
            self._declared[wanted.name] = wanted.rule

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        started = asyncio.create_task(work)
        self._in_background.add(started)
        started.add_done_callback(self._in_background.discard)
        return started


def _stop_if_interrupted(attempt: Attempt) -> None:
    """A thread can't be cancelled; here it notices."""
    if attempt.interruption is Interruption.CANCELLED:
        raise TaskCancelled(UUID(attempt.claimed.id), attempt.claimed.name)
    if attempt.interruption is not None:
        raise WorkerLost(f"the attempt was stopped ({attempt.interruption.value}), so it enters no limit")
