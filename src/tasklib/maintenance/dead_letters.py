"""Duty: delete dead letters that were not replayed in time."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event, TasksDeleted
from tasklib.store import maintenance
from tasklib.store.fleet import Term

BATCH = 500


async def expire_dead_letters(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    if config.dead_letter_days is None:
        return []
    deleted = 0
    while True:
        batch = await db.run(maintenance.expire_dead_letters(term, config.dead_letter_days * 86400.0, BATCH))
        deleted += len(batch)
        if len(batch) < BATCH:
            return [TasksDeleted("dead_letter", deleted)] if deleted else []
