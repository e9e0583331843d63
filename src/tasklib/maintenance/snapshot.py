"""Duty: count waiting tasks and workers, for metrics and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event
from tasklib.store import maintenance
from tasklib.store.fleet import Term

MOST_COUNTED = 100_000
"""Counting stops here in all; many lanes share it, so that a deep backlog costs no more than a middling one."""

MOST_NAMED, MOST_NAMES = 4_000, 200
"""So many waiting tasks are read for the depths by name, and so many names and levels remembered."""


async def take_snapshot(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    await db.run(maintenance.take_snapshot(term, MOST_COUNTED))
    await db.run(maintenance.remember_names(term, MOST_NAMED, MOST_NAMES))
    return []
