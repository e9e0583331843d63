"""Duty: records of skipped slots are deleted after 90 days."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event
from tasklib.store import firing
from tasklib.store.fleet import Term

BATCH = 1000
KEPT_SECONDS = 90 * 86400.0


async def forget_skips(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    while await db.run(firing.forget_skips(term, KEPT_SECONDS, BATCH)) == BATCH:
        pass
    return []
