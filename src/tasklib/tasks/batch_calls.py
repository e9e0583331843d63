"""Gathering the tasks of a batch: those that wait on one loop at the same time share a call of their function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any
from weakref import WeakKeyDictionary

from tasklib.tasks.batches import Batch, alone


class Gathering:
    """Tasks that will share a call."""

    def __init__(self, context: Context) -> None:
        self.items: dict[asyncio.Future[Any], Any] = {}
        self.context = context
        """That of its first task."""
        self.timer: asyncio.TimerHandle | None = None
        self.call: asyncio.Task[None] | None = None

    def leave(self, place: asyncio.Future[Any]) -> None:
        """Its task was stopped. If that is so of all, the call is of no use."""
        if self.call is None:
            self.items.pop(place, None)
        elif all(each.done() for each in self.items):
            self.call.cancel()


class Gatherer:
    """Gathers the tasks of one function, on each loop by itself."""

    def __init__(self, function: Callable[..., Any], batch: Batch, name: str) -> None:
        self._function = function
        self._batch = batch
        self._name = name
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, Gathering] = WeakKeyDictionary()

    async def add(self, item: Any) -> Any:
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Any] = loop.create_future()
        gathering = self._open.get(loop)
        if gathering is None:
            gathering = self._open[loop] = Gathering(copy_context())
            wait = 0.0 if alone.get() else self._batch.wait
            gathering.timer = loop.call_later(wait, self._close, loop, gathering)
        gathering.items[place] = item
        if len(gathering.items) >= self._batch.max:
            self._close(loop, gathering)
        try:
            return await place
        except asyncio.CancelledError:
            gathering.leave(place)
            raise

    def _close(self, loop: asyncio.AbstractEventLoop, gathering: Gathering) -> None:
        if self._open.get(loop) is gathering:
            del self._open[loop]
        if gathering.timer is not None:
            gathering.timer.cancel()
        if gathering.items:
            gathering.call = loop.create_task(self._run(gathering), context=gathering.context)

    async def _run(self, gathering: Gathering) -> None:
        places, items = list(gathering.items), list(gathering.items.values())
        try:
            if inspect.iscoroutinefunction(self._function):
                returned = await self._function(items)
            else:
                returned = await asyncio.to_thread(self._function, items)
            outcomes = self._checked(returned, len(items))
        except asyncio.CancelledError:
            for place in places:
                place.cancel()
            raise
        except BaseException as e:
            outcomes = [e] * len(items)
        for place, outcome in zip(places, outcomes, strict=True):
            if not place.done():
                _settle(place, outcome)

    def _checked(self, returned: object, count: int) -> list[Any]:
        if returned is None:
            return [None] * count
        if not isinstance(returned, list | tuple):
            raise TypeError(
                f"{self._name} returned a {type(returned).__name__}: the function of a batch returns None, or a list "
                "with a result or an exception for each item."
            )
        if len(returned) != count:
            raise ValueError(
                f"{self._name} returned {len(returned)} results for {count} tasks: return one for each, in their "
                "order; an exception for one that failed."
            )
        return list(returned)


def _settle(place: asyncio.Future[Any], outcome: object) -> None:
    if isinstance(outcome, StopIteration):  # which no future can hold
        outcome = RuntimeError(f"the function of the batch raised {outcome!r}")
    if isinstance(outcome, BaseException):
        place.set_exception(outcome)
    else:
        place.set_result(outcome)
