"""Duty: idempotency keys whose window has passed. A submission frees its own key; this keeps the index small."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event
from tasklib.store import maintenance
from tasklib.store.fleet import Term

BATCH = 1000


async def expire_keys(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    while True:
        expired = await db.run(maintenance.expire_keys(term, BATCH))
        if len(expired) < BATCH:
            return []
