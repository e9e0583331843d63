"""Duty: add new deltas to the minutes and the total; merge old minutes into longer spans; count submissions."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event
from tasklib.store import stats
from tasklib.store.fleet import Term

MOST_AT_ONCE = 10_000


async def fold_stats(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    while await db.run(stats.fold(term, MOST_AT_ONCE)) == MOST_AT_ONCE:
        pass
    for span, age, into in stats.KEPT:
        await db.run(stats.coarsen(term, span, age, into))
    await db.run(stats.count_arrivals(term))
    return []
