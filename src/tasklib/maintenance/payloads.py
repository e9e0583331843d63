"""Duty: payloads in the payload store whose tasks were deleted, or never stored: their transaction was rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tasklib.config import Config, PayloadStore
from tasklib.db.query import Runs
from tasklib.events import Event
from tasklib.store import maintenance
from tasklib.store.fleet import Term
from tasklib.tasks.ids import shard_of
from tasklib.tasks.payload_stores import is_key, store_of

PAGE = 1000
MOST_PAGES = 20
"""In one round; the next one goes on from there."""
YOUNG = timedelta(days=7)
"""A payload is put before its row is committed. No transaction is open for so long."""

_reached: dict[int, str] = {}
"""How far the last round got, by store."""


async def sweep_payloads(db: Runs, config: Config, term: Term) -> Sequence[Event]:
    """Delete the payloads of tasks that are not in the table. Keys are in the order of their tasks' ids: old first."""
    store = store_of(config)
    assert store is not None, "without a store there is no such duty"
    after, newest = _reached.get(id(store), ""), str(_id_of(datetime.now(UTC) - YOUNG))
    for _ in range(MOST_PAGES):
        page = [key for key in await asyncio.to_thread(store.keys, after, PAGE) if is_key(key)]
        old = [key for key in page if key < newest or UUID(key.partition("/")[0]).version != 7]
        # Shards may have one store, and this is the leader of one of them.
        own = [key for key in old if shard_of(UUID(key.partition("/")[0])) == config.shard]
        if own:
            await _delete_orphans(db, store, own, term)
        if len(old) < len(page) or len(page) < PAGE:
            after = ""  # those that are young: from the beginning next time
            break
        after = page[-1]
    _reached[id(store)] = after
    return []


async def _delete_orphans(db: Runs, store: PayloadStore, keys: Sequence[str], term: Term) -> None:
    owners = sorted({key.partition("/")[0] for key in keys})
    found: list[str] = await db.run(maintenance.without_tasks(term, owners))
    gone = set(found)
    for key in keys:
        if key.partition("/")[0] in gone:
            await asyncio.to_thread(store.delete, key)


def _id_of(moment: datetime) -> UUID:
    """The smallest UUID of version 7 from this moment."""
    return UUID(int=(int(moment.timestamp() * 1000) << 80) | (7 << 76) | (2 << 62))
