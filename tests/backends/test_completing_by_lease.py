"""Results of workers over HTTP: the server knows no more of their tasks than the leases."""

from __future__ import annotations

from typing import TypeVar

import psycopg

from tasklib import Config
from tasklib.backends.postgres.settlements import PostgresSettlements
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingPool
from tasklib.store.settle import Completion, Lease
from tests.flows.rows import Rows

T = TypeVar("T")


class Recorded:
    """Runs queries, and knows their names."""

    def __init__(self, db: ReconnectingPool) -> None:
        self._db = db
        self.names: list[str] = []

    async def run(self, query: Query[T], /) -> T:
        self.names.append(query.name)
        return await self._db.run(query)


async def completed(config: Config, *leases: Lease) -> list[str]:
    """Complete these, wait until gates have counted them, and say which statements that took."""
    pool = ReconnectingPool(config, "tasks", 2)
    db = Recorded(pool)
    settlements = PostgresSettlements(config, db)
    try:
        settled = await settlements.complete("w", [Completion(lease, "1") for lease in leases], again=False)
        assert settled.states == dict.fromkeys((lease.id for lease in leases), "completed")
        await settlements.folds.idle()
    finally:
        pool.drop()
    return db.names


async def test_results_of_plain_tasks_look_at_no_gates(config: Config, db: psycopg.Connection) -> None:
    rows = Rows(db)
    tasks = [rows.task(None, "plain") for _ in range(2)]
    assert await completed(config, *(Lease(str(t), rows.hold(t)) for t in tasks)) == ["complete_reporting"]


async def test_results_of_tasks_in_flows_are_counted_by_their_gates(config: Config, db: psycopg.Connection) -> None:
    rows = Rows(db)
    flow, end = rows.flow(2)
    gate = rows.gate(flow, 1)
    first = rows.task(flow, "first", reports_to=[gate, end])
    then = rows.task(flow, "then", waits_for=gate, reports_to=[end])
    plain = rows.task(None, "plain")
    names = await completed(config, *(Lease(str(t), rows.hold(t)) for t in (first, plain)))
    assert names[0] == "complete_reporting"
    assert "fold" in names
    assert rows.state(then) == "pending"
    assert rows.arrivals(gate) == 0
    names = await completed(config, Lease(str(then), rows.hold(then)))
    assert "fold" in names
    assert rows.arrivals() == 0
