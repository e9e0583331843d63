"""Flows at their worst moments: rows that are locked, processes that die between two statements, replays meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.config import Retention
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.maintenance.gates import sweep_gates
from tasklib.maintenance.retention import delete_expired
from tasklib.store import durable, fleet, flows
from tasklib.store.durable import Suspension
from tasklib.store.fleet import Term
from tasklib.store.settle import Lease
from tests.flows.rows import Rows


@pytest.fixture
def rows(db: psycopg.Connection) -> Rows:
    return Rows(db)


class Pair:
    """A task, and one that waits for it."""

    def __init__(self, rows: Rows) -> None:
        self.flow, self.end = rows.flow(2)
        self.gate = rows.gate(self.flow, 1)
        self.first = rows.task(self.flow, "first", reports_to=[self.gate, self.end])
        self.second = rows.task(self.flow, "second", waits_for=self.gate, reports_to=[self.end])

    def states(self, rows: Rows) -> tuple[str, str]:
        return rows.state(self.first), rows.state(self.second)


class Leader:
    """The duties of a leader, performed when the test says so."""

    def __init__(self, config: Config) -> None:
        self._config = config.with_changes(retention=(Retention("completed", days=1),), dead_letter_days=1)
        self._db = ReconnectingConnection(config, "test")

    async def _term(self) -> Term:
        term = await self._db.run(fleet.lead("leader", 60))
        assert term is not None
        return term

    async def sweep(self) -> None:
        await sweep_gates(self._db, self._config, await self._term())

    async def retain(self) -> None:
        await delete_expired(self._db, self._config, await self._term())

    def close(self) -> None:
        self._db.drop()


@pytest.fixture
async def leader(config: Config) -> AsyncIterator[Leader]:
    made = Leader(config)
    yield made
    made.close()


def test_a_durable_task_that_is_cancelled_while_it_suspends_arrives_at_its_gates(rows: Rows) -> None:
    pair = Pair(rows)
    lease = Lease(str(pair.first), rows.hold(pair.first))
    rows.db.execute("UPDATE tasks SET cancel_requested_at = now() WHERE id = %s", [pair.first])
    rows.run(durable.suspend([Suspension(lease, None, ["go"])], "w"))
    rows.fold()
    assert pair.states(rows) == ("cancelled", "cancelled")
    assert rows.finished(pair.flow)


def _old(rows: Rows, flow: UUID) -> None:
    rows.db.execute("UPDATE tasks SET completed_at = now() - interval '9 days' WHERE flow = %s", [flow])
    rows.db.execute("UPDATE flows SET finished_at = now() - interval '9 days' WHERE id = %s", [flow])


async def test_retention_leaves_a_flow_whose_replay_is_not_counted_yet(
    rows: Rows, config: Config, leader: Leader
) -> None:
    pair = Pair(rows)
    with Client(config) as client:
        client.cancel_flow(pair.flow)
        _old(rows, pair.flow)
        client.replay_task(pair.first)
    await leader.retain()
    assert rows.state(pair.first) == "pending"
    assert rows.db.execute("SELECT count(*) FROM tasks WHERE flow = %s", [pair.flow]).fetchall() == [(2,)]


async def test_retention_leaves_a_flow_whose_replay_is_under_way(rows: Rows, config: Config, leader: Leader) -> None:
    pair = Pair(rows)
    with Client(config) as client:
        client.cancel_flow(pair.flow)
    _old(rows, pair.flow)
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [pair.first])
        await leader.retain()
    assert rows.db.execute("SELECT count(*) FROM tasks WHERE flow = %s", [pair.flow]).fetchall() == [(2,)]
    await leader.retain()
    assert rows.db.execute("SELECT count(*) FROM tasks").fetchall() == [(0,)]
    assert rows.db.execute("SELECT count(*) FROM gates").fetchall() == [(0,)]


async def test_a_flow_that_is_larger_than_a_page_is_deleted_page_by_page_and_can_t_be_replayed_meanwhile(
    rows: Rows, config: Config, leader: Leader
) -> None:
    pair = Pair(rows)
    with Client(config) as client:
        client.cancel_flow(pair.flow)
        _old(rows, pair.flow)
        term = rows.run(fleet.lead("leader", 60))
        assert rows.run(flows.forget(term, 86400, 1)) == (1, 0)
        assert client.replay_flow(pair.flow) == 0
    await leader.retain()
    assert rows.db.execute("SELECT count(*) FROM tasks").fetchall() == [(0,)]
    assert rows.db.execute("SELECT count(*) FROM flows").fetchall() == [(0,)]


async def test_retention_takes_flows_whole_however_small_its_pages_are(
    rows: Rows, config: Config, leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.maintenance.retention.BATCH", 3)
    pairs = [Pair(rows) for _ in range(4)]
    with Client(config) as client:
        for pair in pairs:
            client.cancel_flow(pair.flow)
            _old(rows, pair.flow)
    await leader.retain()
    assert rows.db.execute("SELECT count(*) FROM tasks").fetchall() == [(0,)]
    assert rows.db.execute("SELECT count(*) FROM flows").fetchall() == [(0,)]


def test_a_purge_of_dead_letters_takes_no_part_of_a_flow(rows: Rows, config: Config) -> None:
    pair = Pair(rows)
    alone = rows.task(None, "alone")
    rows.db.execute("UPDATE tasks SET state = 'dead_letter', completed_at = now() WHERE waits_for IS NULL")
    with Client(config) as client:
        assert client.purge_dead_letters(everything=True) == [alone]
    assert rows.state(pair.first) == "dead_letter"
    assert rows.db.execute("SELECT FROM tasks WHERE id = %s", [alone]).fetchall() == []


async def test_the_leader_cancels_what_was_locked_when_the_client_that_cancelled_died(
    rows: Rows, config: Config, leader: Leader
) -> None:
    pair = Pair(rows)
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [pair.first])  # it is being claimed
        assert rows.run(flows.cancel(pair.flow, by="a", owner=None))
        assert rows.run(flows.cancel_tasks(pair.flow, 100)).states == ["cancelled"]
    assert pair.states(rows) == ("pending", "cancelled")
    await leader.sweep()
    assert pair.states(rows) == ("cancelled", "cancelled")
    assert rows.finished(pair.flow)


async def test_the_leader_goes_on_cancelling_where_a_client_died(rows: Rows, leader: Leader) -> None:
    pair, other = Pair(rows), Pair(rows)
    rows.hold(pair.first)
    assert rows.run(flows.cancel(pair.flow, by="a", owner=None))  # and here the client dies
    await leader.sweep()
    assert pair.states(rows) == ("running", "cancelled")
    asked = "SELECT cancel_requested_at IS NOT NULL FROM tasks WHERE id = %s"
    assert rows.db.execute(asked, [pair.first]).fetchall() == [(True,)]
    assert other.states(rows) == ("pending", "waiting")


async def test_a_cancel_that_a_replay_overtook_cancels_no_more(rows: Rows, config: Config, leader: Leader) -> None:
    pair = Pair(rows)
    with Client(config) as client:
        client.cancel_flow(pair.flow)
        client.replay_flow(pair.flow)
    assert rows.run(flows.cancel_tasks(pair.flow, 100)) == ([], None)  # a page of the client that cancels
    await leader.sweep()
    assert pair.states(rows) == ("pending", "waiting")


async def test_a_task_of_a_cancelled_flow_that_is_replayed_by_itself_is_not_cancelled_again(
    rows: Rows, config: Config, leader: Leader
) -> None:
    pair = Pair(rows)
    with Client(config) as client:
        client.cancel_flow(pair.flow)
        client.replay_task(pair.first)
    await leader.sweep()
    await leader.sweep()
    assert rows.state(pair.first) == "pending"
    assert not rows.finished(pair.flow)
