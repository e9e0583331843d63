"""One timer for many deadlines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


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
