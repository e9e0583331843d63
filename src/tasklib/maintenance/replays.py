"""Duty: replays under way take their next dead letters, and what became of those they took is counted."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event
from tasklib.store import replays
from tasklib.store.fleet import Term
from tasklib.store.replays import OpenReplay

INTERVAL_SECONDS = 5.0
"""A replay takes what its rate allows this often. It is short, because the first one is a canary."""
BATCH = 500
LOOK = 2_000
"""Dead letters that one statement reads: each costs a fingerprint."""
PAGE = 1_000
MOST_STATEMENTS = 20
"""For one replay in one round; the rest waits for the next one."""
MOST_REPLAYS = 100
KEPT_SECONDS = 30 * 86400.0
"""How long a replay is kept after its end."""


async def work_replays(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    for replay in await db.run(replays.open_(MOST_REPLAYS)):
        await _count(db, term, replay)  # first: the canary may have ended
        await _take(db, term, replay)
    for _ in range(MOST_STATEMENTS):
        if not await db.run(replays.forget(term, KEPT_SECONDS, PAGE)):
            break
    return []


async def _count(db: ReconnectingConnection, term: Term, replay: OpenReplay) -> None:
    for _ in range(MOST_STATEMENTS):
        if not await db.run(replays.outcomes(term, replay.id, PAGE)):
            return


async def _take(db: ReconnectingConnection, term: Term, replay: OpenReplay) -> None:
    for _ in range(MOST_STATEMENTS):
        done = await db.run(replays.advance(term, replay, BATCH, LOOK, 2 * INTERVAL_SECONDS))
        if done is None or not done.more:
            return
