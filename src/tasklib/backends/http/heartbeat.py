"""A worker's heartbeat over HTTP: from a thread, on a connection of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasklib.errors import DatabaseUnavailable
from tasklib.http.connection import Address, HeartbeatThreadConnection, Refused
from tasklib.store.settle import Kept, Leased


class HttpHeartbeatConnection:
    """The heartbeat's own connection to the server."""

    def __init__(self, address: Address, max_batch: int) -> None:
        self._db = HeartbeatThreadConnection(address)
        self._max_batch = max_batch

    def beat(self, worker_id: str, *, load: int, draining: bool, names: Sequence[str] | None) -> bool | None:
        body = {
            "current_load": load,
            "status": "draining" if draining else "active",
            "task_types": list(names) if names else None,
        }
        answer = self._ask(worker_id, body)
        return None if answer is None else bool(answer["drain"])

    def extend(self, worker_id: str, leases: Sequence[Leased], seconds: float) -> Kept:
        kept: set[str] = set()
        locked: set[str] = set()
        for start in range(0, len(leases), self._max_batch):
            batch = leases[start : start + self._max_batch]
            running = [{"task_id": lease.id, "lease_token": lease.token} for lease in batch]
            answer = self._ask(worker_id, {"running": running})
            if answer is not None:
                kept |= {lease.id for lease in batch} - {lost["task_id"] for lost in answer["lost"]}
                locked |= {lease["task_id"] for lease in answer.get("locked", ())}
        return Kept(kept - locked, locked)

    def drop(self) -> None:
        self._db.drop()

    def _ask(self, worker_id: str, body: dict[str, Any]) -> Any:
        """The answer, or None if we were declared dead."""
        try:
            return self._db.ask("POST", f"/{worker_id}/heartbeat", body)
        except Refused as e:
            if e.status == 404:
                return None
            raise DatabaseUnavailable(str(e)) from e
