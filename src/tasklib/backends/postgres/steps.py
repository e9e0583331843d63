"""What running tasks ask of the database: results of other tasks, and what durable tasks have on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tasklib.db.reconnecting import ReconnectingPool
from tasklib.store import durable, flows, settle
from tasklib.store.durable import Consumed, NewStep, Recorded, Written
from tasklib.store.flows import ChildrenLook, SpawnOutcome
from tasklib.store.settle import Kept, Leased


class PostgresSteps:
    """Every write is guarded by the lease, as outcomes are."""

    def __init__(self, db: ReconnectingPool) -> None:
        self._db = db

    async def node_results(self, source: Mapping[str, Any], after: str | None, limit: int) -> list[tuple[str, Any]]:
        query = flows.node_results(source["flow"], source["nodes"], source["settled"], after, limit)
        return await self._db.run_until_answered(query)

    async def spawn(self, worker_id: str, lease: Leased, tasks: str) -> SpawnOutcome | None:
        return await self._db.run_until_answered(flows.spawn(lease, worker_id, tasks))

    async def children_look(self, lease: Leased, flow: str) -> ChildrenLook:
        return await self._db.run(flows.children_look(lease.id, flow))

    async def steps_of(self, lease: Leased) -> Recorded:
        return await self._db.run(durable.steps_of(lease.id))

    async def record(self, worker_id: str, steps: Sequence[NewStep]) -> tuple[dict[int, Written], Kept]:
        written = await self._db.run(durable.record_steps(steps, worker_id))
        ours = {steps[place].lease.id for place in written}
        return written, await self._kept(worker_id, [step.lease for step in steps], ours)

    async def consume(
        self, worker_id: str, lease: Leased, signal: str, *, step: str, expired: bool, approval: str | None = None
    ) -> tuple[Consumed | None, Kept]:
        query = durable.consume_signal(lease, worker_id, signal, step=step, expired=expired, approval=approval)
        consumed = await self._db.run(query)
        return consumed, await self._kept(worker_id, [lease], {lease.id} if consumed else set())

    async def _kept(self, worker_id: str, leases: Sequence[Leased], ours: set[str]) -> Kept:
        missing = [lease for lease in leases if lease.id not in ours]
        locked = await self._db.run(settle.still_held(missing, worker_id)) if missing else set()
        return Kept(ours, locked)
