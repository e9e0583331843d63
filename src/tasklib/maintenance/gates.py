"""Duty: count arrivals and move waiting tasks that a process left behind when it died between two commits."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event
from tasklib.store import flows
from tasklib.store.fleet import Term

MOST_ROUNDS = 1000
"""Folds in one round of the duty; the rest waits for the next one."""


async def sweep_gates(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    """Fold until nothing is left. Any process may fold, so this needs no term."""
    again: Sequence[str] | None = None
    for _ in range(MOST_ROUNDS):
        found = await db.run(flows.fold(again))
        if not found and again is None:
            break
        again = found or None  # what the last fold names; and in the end whatever there is
    return []
