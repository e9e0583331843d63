"""Counting what remote workers do: they have no database to tell, so the server tells it for them all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tasklib.errors import DatabaseUnavailable
from tasklib.server.remote.bodies import ResultBody
from tasklib.server.remote.links import Links
from tasklib.store import settle, tallies
from tasklib.store.claim import Claimed
from tasklib.store.settle import Reported
from tasklib.tally import Tallier, Tally

_TELL_SECONDS = 5.0
_MOST_REMEMBERED = 100_000
"""Tasks that were handed out and not reported on, of which it is known when they began."""


class Tallies:
    """Remembers what was handed out, counts what became of it, and tells every few seconds."""

    def __init__(self, control: Links) -> None:
        self._control = control
        self._tallier = Tallier()
        self._handed_out: dict[str, tuple[Claimed, float]] = {}
        self._on_its_way: Sequence[Tally] = ()
        self._telling: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._telling = asyncio.create_task(self._tell_for_ever())

    async def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling
            await self._tell()

    def handed_out(self, tasks: Sequence[Claimed]) -> None:
        now = time.monotonic()
        self._tallier.claimed(tasks)
        self._handed_out.update({task.id: (task, now) for task in tasks})
        while len(self._handed_out) > _MOST_REMEMBERED:
            del self._handed_out[next(iter(self._handed_out))]

    async def unknown(self, results: Sequence[ResultBody]) -> dict[str, Reported]:
        """Those that another server has handed out, or this one before it was started anew; from the table."""
        ids = [str(r.task_id) for r in results if str(r.task_id) not in self._handed_out]
        return await self._control.run(settle.reported(ids)) if ids else {}

    def settled(
        self, results: Mapping[str, ResultBody], states: Mapping[str, str], unknown: Mapping[str, Reported]
    ) -> None:
        """These were stored, and the tasks are in these states now."""
        now = time.monotonic()
        self._tallier.settled(len(results))
        completed: list[tuple[Claimed, float]] = []
        for id_, state in states.items():
            known = self._handed_out.pop(id_, None)
            if known is not None and state == "completed":
                completed.append(known)
            elif (row := known[0] if known else unknown.get(id_)) is not None:
                outcome = "released" if state == "pending" else state
                reason = results[id_].reason.value if state in ("failed", "dead_letter") else ""
                self._tallier.ended(row, outcome, reason, (known[1], now) if known and outcome != "released" else None)
        self._tallier.completed(completed, now)

    async def _tell_for_ever(self) -> None:
        await self._tell()  # the first time only to learn the database's clock
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            await self._tell()

    async def _tell(self) -> None:
        self._on_its_way = self._on_its_way or self._tallier.take()
        if not self._on_its_way and self._tallier.clock_offset is not None:
            return
        before = time.monotonic()
        try:
            clock = await self._control.run(tallies.add(self._on_its_way))
        except DatabaseUnavailable:
            return  # the next time
        self._on_its_way = ()
        self._tallier.clock_offset = clock - (before + time.monotonic()) / 2
