"""Counting arrivals into gates right after the commit that brought them: one session at a time for each gate.

A fold that finds a gate locked leaves it to the session that holds the lock, which looks again after its commit. If
this process dies in between, the leader's sweep does the rest (`maintenance/gates.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from tasklib.db.failures import conflict_pause
from tasklib.db.query import Runs
from tasklib.errors import DatabaseUnavailable
from tasklib.store import flows

_MOST_LOOKS = 60
"""So often a burst looks again at gates that another session has locked; then they are left to the leader."""
_MOST_UNMOVED = 1000
"""Gates that are remembered as waiting for more."""


class GateFolds:
    """Folds gates in the background: those that tasks arrived at while a fold was under way share the next one."""

    def __init__(self, db: Runs) -> None:
        self._db = db
        self._wanted: set[str] = set()
        self._any = False
        self._again: set[str] = set()
        self._unmoved: set[str] = set()
        """Gates of large groups: at the last look there was nothing to count yet."""
        self._folding: asyncio.Task[None] | None = None
        self._folded_gates: set[str] | None = None
        """For `counted()`: those that may have been locked."""

    def remember(self) -> None:
        """For a worker that wants to know when all is counted."""
        self._folded_gates = set()

    def arrived(self, gates: Iterable[str] | None) -> None:
        """Tasks have arrived at these gates, or at gates that are not known here."""
        if gates is None:
            self._any = True
        else:
            self._wanted.update(gates)
        if self._folding is None and (self._wanted or self._any):
            self._folding = asyncio.get_running_loop().create_task(self._fold())
            self._folding.add_done_callback(self._folded)

    async def idle(self) -> None:
        """Wait until all is counted."""
        while self._folding is not None:
            await asyncio.wait({self._folding})

    async def counted(self) -> None:
        """Wait until all is counted, also at gates that another session had locked."""
        for tries in range(_MOST_LOOKS):
            await self.idle()
            if not self._folded_gates:
                return
            left = await self._db.run(flows.with_arrivals(sorted(self._folded_gates)))
            self._folded_gates.clear()
            if not left:
                return
            await asyncio.sleep(conflict_pause(tries))
            self.arrived(left)

    def close(self) -> None:
        """Leave the rest to the leader."""
        if self._folding is not None:
            self._folding.cancel()

    async def _fold(self) -> None:
        try:
            while self._wanted or self._any or self._again:
                if self._wanted or self._any:
                    await self._count()
                else:  # the second look
                    again, self._again = sorted(self._again), set()
                    self._wanted.update(await self._look(again))
        except DatabaseUnavailable:
            return  # the leader's sweep finds what is left

    async def _count(self) -> None:
        """Fold gates that tasks arrived at, some at a time."""
        gates = sorted(self._wanted)[: flows.MOST_GATES] if self._wanted else None
        self._any = self._any and gates is not None
        self._wanted.difference_update(gates or ())
        # A look takes a twentieth of the time of a fold, but one more round trip: only where it may save the fold.
        if gates and self._unmoved.issuperset(gates) and not (gates := await self._look(gates)):
            return
        again = await self._db.run(flows.fold(gates))
        self._again.update(again)
        self._note_unmoved(gates or (), again)
        if self._folded_gates is not None:
            self._folded_gates.update(gates or (), again)

    async def _look(self, gates: Sequence[str]) -> list[str]:
        """Those of these gates that have arrivals which have to be counted."""
        found = await self._db.run(flows.with_arrivals(gates))
        self._note_unmoved(gates, found)
        return found

    def _note_unmoved(self, gates: Iterable[str], moved: Iterable[str]) -> None:
        if len(self._unmoved) > _MOST_UNMOVED:
            self._unmoved.clear()
        self._unmoved.update(gates)
        self._unmoved.difference_update(moved)

    def _folded(self, folding: asyncio.Task[None]) -> None:
        self._folding = None
        if not folding.cancelled():
            folding.exception()  # an error of the database; the sweep meets it again and reports it
            if self._any or self._wanted:
                self.arrived(())
