"""Duty: open circuit breakers after too many failures, let them probe, close them."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import BreakerMoved, Event
from tasklib.store import breakers
from tasklib.store.fleet import Term

EVERY_SECONDS = 2.0


async def move_breakers(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    moves = await db.run(breakers.judge(term))
    if any(move.state == "probing" for move in moves):
        await db.run(breakers.probe(term))
    return [
        BreakerMoved(move.name, move.state, move.attempts, move.failures, move.until)
        for move in moves
        if move.state != move.previous
    ]
