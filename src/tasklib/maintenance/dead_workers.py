"""Duty: workers that have missed their heartbeats are declared dead, and forgotten a day later."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event, WorkersDied
from tasklib.store import fleet
from tasklib.store.fleet import Term

FORGET_AFTER_SECONDS = 86400.0


async def bury_dead_workers(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    died = await db.run(fleet.bury_workers(term, forget_after=FORGET_AFTER_SECONDS))
    return [WorkersDied(tuple(died))] if died else []
