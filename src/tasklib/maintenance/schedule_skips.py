"""Part of the duty of retention: records of skipped slots are deleted after 90 days."""

from __future__ import annotations

from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.store import firing
from tasklib.store.fleet import Term

BATCH = 1000
KEPT_SECONDS = 90 * 86400.0


async def forget_skips(db: ReconnectingConnection, term: Term) -> None:
    while await db.run(firing.forget_skips(term, KEPT_SECONDS, BATCH)) == BATCH:
        pass
