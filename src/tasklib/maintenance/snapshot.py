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


async def take_snapshot(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    await db.run(maintenance.take_snapshot(term, MOST_COUNTED))
    return []
