"""Room in limits for the code of running tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklib.db.reconnecting import ReconnectingPool
from tasklib.store import limits
from tasklib.store.limits import PlaceAnswer, PlaceRequest
from tasklib.store.settle import Leased


class PostgresPlaces:
    """Every write is guarded by the lease, as outcomes are."""

    def __init__(self, db: ReconnectingPool) -> None:
        self._db = db

    async def take_place(self, worker_id: str, lease: Leased, asked: PlaceRequest) -> PlaceAnswer | None:
        return await self._db.run_until_answered(limits.take_place(lease, worker_id, asked))

    async def leave_place(self, worker_id: str, lease: Leased, block: int) -> None:
        await self._db.run_until_answered(limits.leave_place(lease, worker_id, block))

    async def declare_limit(self, name: str, rule: Mapping[str, Any]) -> None:
        await self._db.run_until_answered(limits.sync({name: rule}, {}, []))

    async def limit_names(self) -> list[str]:
        return [limit.name for limit in await self._db.run_until_answered(limits.limits())]
