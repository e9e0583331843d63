"""Counting arrivals into gates right after the commit that brought them: one session at a time for each gate.

A fold that finds a gate locked leaves it to the session that holds the lock, which looks again after its commit. If
this process dies in between, the leader's sweep does the rest (`maintenance/gates.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tasklib.db.query import Runs
from tasklib.errors import DatabaseUnavailable
from tasklib.store import flows


class GateFolds:
    """Folds gates in the background: those that tasks arrived at while a fold was under way share the next one."""

    def __init__(self, db: Runs) -> None:
        self._db = db
        self._wanted: set[str] = set()
        self._any = False
        self._folding: asyncio.Task[None] | None = None

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

    def close(self) -> None:
        """Leave the rest to the leader."""
        if self._folding is not None:
            self._folding.cancel()

    async def _fold(self) -> None:
        while self._wanted or self._any:
            gates = None if self._any and not self._wanted else sorted(self._wanted)
            self._any = self._any and gates is not None
            self._wanted.clear()
            try:
                again = await self._db.run(flows.fold(gates))
            except DatabaseUnavailable:
                return  # the leader's sweep finds what is left
            self._wanted.update(again)

    def _folded(self, folding: asyncio.Task[None]) -> None:
        self._folding = None
        if not folding.cancelled():
            folding.exception()  # an error of the database; the sweep meets it again and reports it
            if self._any or self._wanted:
                self.arrived(())
