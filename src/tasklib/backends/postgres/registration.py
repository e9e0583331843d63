"""A worker's place in the fleet: how it joins, and how it leaves holding nothing."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from tasklib.backends.backend import Registration
from tasklib.config import Config
from tasklib.db.query import Query, Runs
from tasklib.schedules.zones import TZDATA_VERSION
from tasklib.store import claim, fleet, settle
from tasklib.store.claim import Claimed
from tasklib.store.settle import Lease


def registered(id_: str, me: Registration, config: Config, token_id: UUID | None = None) -> Query[None]:
    """Join the fleet under this id; over HTTP, with the id of the token it came with."""
    return fleet.register(
        id_,
        queues=me.served.queues,
        names=me.served.names,
        capabilities=me.served.capabilities,
        capacity=me.capacity,
        version=me.version,
        host=me.host,
        pid=me.pid,
        heartbeat_timeout=config.heartbeat_timeout_seconds,
        token_id=token_id,
        tzdata=TZDATA_VERSION if token_id is None else None,
        deployed_at=me.deployed_at,
    )


async def undelivered(db: Runs, worker_id: str, known: Collection[Lease]) -> list[Claimed]:
    """Tasks leased to a worker that it doesn't know of, because the answer to a claim was lost."""
    return [c for c in await db.run(claim.leases_of(worker_id)) if Lease(c.id, c.token) not in known]


async def give_back(db: Runs, worker_id: str, tasks: Collection[Claimed]) -> None:
    """Release what no attempt will run."""
    if tasks:
        # One lock order for all who write many rows.
        await db.run(settle.release(sorted(Lease(c.id, c.token) for c in tasks), worker_id))


async def leave(db: Runs, worker_id: str) -> None:
    """The worker leaves. Tasks still leased to it were never received: release them."""
    await give_back(db, worker_id, await undelivered(db, worker_id, ()))
    await db.run(fleet.deregister(worker_id))
