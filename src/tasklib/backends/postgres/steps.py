"""What durable tasks have on record, in the database."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.backends.backend import Kept
from tasklib.db.query import Runs
from tasklib.store import durable, settle
from tasklib.store.durable import Consumed, NewStep, Recorded, Written
from tasklib.store.settle import Leased


class PostgresSteps:
    """Every write is guarded by the lease, as outcomes are."""

    def __init__(self, db: Runs) -> None:
        self._db = db

    async def steps_of(self, lease: Leased) -> Recorded:
        return await self._db.run(durable.steps_of(lease.id))

    async def record(self, worker_id: str, steps: Sequence[NewStep]) -> tuple[dict[int, Written], Kept]:
        written = await self._db.run(durable.record_steps(steps, worker_id))
        ours = {steps[place].lease.id for place in written}
        return written, await self._kept(worker_id, [step.lease for step in steps], ours)

    async def consume(
        self, worker_id: str, lease: Leased, signal: str, *, step: str, expired: bool
    ) -> tuple[Consumed | None, Kept]:
        query = durable.consume_signal(lease, worker_id, signal, step=step, expired=expired)
        consumed = await self._db.run(query)
        return consumed, await self._kept(worker_id, [lease], {lease.id} if consumed else set())

    async def _kept(self, worker_id: str, leases: Sequence[Leased], ours: set[str]) -> Kept:
        missing = [lease for lease in leases if lease.id not in ours]
        locked = await self._db.run(settle.still_held(missing, worker_id)) if missing else set()
        return Kept(ours, locked)
