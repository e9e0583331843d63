"""Tasks that a worker doesn't serve, in front of those that it does.

A claim reads past them, which is exact, and takes about a microsecond for each. Where there are many, they are set
apart once, for all workers: into lanes of their names (`set_apart.sql`), where those that serve them find them.
"""

from __future__ import annotations

from tasklib.db.query import Runs
from tasklib.store import claim
from tasklib.store.claim import Served

_SLOW_SECONDS = 0.02
"""A claim that takes longer may have read past many."""


class Crowd:
    """Sets them apart before they cost much: before the first claim, and after one that took long."""

    def __init__(self, db: Runs) -> None:
        self._db = db
        self._is_suspected = True

    def suspect(self) -> None:
        """There may be many: look before the next claim."""
        self._is_suspected = True

    def looked(self, seconds: float) -> None:
        """A claim from the beginning took so long."""
        if seconds > _SLOW_SECONDS:
            self.suspect()

    async def pass_by(self, served: Served) -> None:
        """Before a claim from the beginning."""
        while self._is_suspected:
            outlook = await self._db.run(claim.outlook(served))
            self._is_suspected = outlook.is_crowded and await set_apart(self._db, served)


async def set_apart(db: Runs, served: Served) -> bool:
    """Whether there was something to set apart; not if other transactions hold all of it."""
    return await db.run(claim.set_apart(served)) > 0
