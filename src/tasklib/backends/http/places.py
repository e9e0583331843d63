"""Room in limits for the code of running tasks, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.http.connection import Refused, WorkerConnection
from tasklib.store.limits import PlaceAnswer, PlaceRequest
from tasklib.store.settle import Leased

_GONE = (404, 409)
"""The worker was declared dead, or the task is another attempt's."""


class HttpPlaces:
    """Asks the server until it answers: a block that asks again takes nothing twice."""

    def __init__(self, db: WorkerConnection) -> None:
        self._db = db

    async def take_place(self, worker_id: str, lease: Leased, asked: PlaceRequest) -> PlaceAnswer | None:
        answer = await self._ask(f"/{worker_id}/place", {**_lease(lease), **asdict(asked)})
        return None if answer is None else PlaceAnswer(answer["outcome"], answer["retry_in_seconds"])

    async def leave_place(self, worker_id: str, lease: Leased, block: int) -> None:
        await self._ask(f"/{worker_id}/place/leave", {**_lease(lease), "block": block})

    async def declare_limit(self, name: str, rule: Mapping[str, Any]) -> None:
        """The token of a worker changes no limits: an operator stores them."""

    async def limit_names(self) -> list[str]:
        """It reads none, either."""
        return []

    async def _ask(self, path: str, body: dict[str, Any]) -> Any:
        failures = 0
        while True:
            try:
                return await self._db.ask("POST", path, body)
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1
            except Refused as e:
                if e.status in _GONE:
                    return None
                raise


def _lease(lease: Leased) -> dict[str, Any]:
    return {"task_id": lease.id, "lease_token": lease.token}
