"""Duty: release tasks whose worker is dead or whose lease expired; poison tasks become dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event, LeasesRescued
from tasklib.maintenance.batches import in_batches
from tasklib.store import maintenance
from tasklib.store.fleet import Term


async def rescue_orphans(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    """End all lost attempts, in batches. Needs no task's code."""
    rescued = await in_batches(lambda limit: db.run(maintenance.rescue(term, config.crash_limit, limit)))
    return [LeasesRescued(tuple(rescued))] if rescued else []
