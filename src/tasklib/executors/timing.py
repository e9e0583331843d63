"""Two ways to spend less on each attempt: one timer for many deadlines, and tasks that start at once."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any


class RepeatedLook:
    """Calls `look` at the earliest of the times it was given, and then at the time that `look` returns, if any.

    A timer for each attempt would cost more than a short task itself.
    """

    def __init__(self, look: Callable[[], float | None]) -> None:
        self._look = look
        self.next = math.inf
        """When it will look, unless it is told to look earlier."""
        self._timer: asyncio.TimerHandle | None = None

    def at(self, moment: float) -> None:
        """Look at this time (monotonic) at the latest."""
        if moment < self.next:
            self.stop()
            self.next = moment
            self._timer = asyncio.get_running_loop().call_at(moment, self._now)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.next, self._timer = math.inf, None

    def _now(self) -> None:
        self.next, self._timer = math.inf, None
        if (moment := self._look()) is not None:
            self.at(moment)


if sys.version_info >= (3, 12):

    def eager_task(
        coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine as a task that starts now: one that never waits is over when this returns."""
        return asyncio.Task(coroutine, loop=loop, context=context, eager_start=True)

else:

    def eager_task(
        coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop, context: Context | None = None
    ) -> asyncio.Task[None]:
        """Run a coroutine as a task."""
        return asyncio.Task(coroutine, loop=loop, context=context)
