"""Flows that a durable task waits for, at the worst moments of that task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import psycopg
import pytest

from tasklib import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.maintenance.gates import sweep_gates
from tasklib.store import fleet, settle
from tasklib.store.settle import Completion, Lease
from tests.flows.rows import Rows


@pytest.fixture
def rows(db: psycopg.Connection) -> Rows:
    return Rows(db)


@pytest.fixture
async def leader(config: Config) -> AsyncIterator[ReconnectingConnection]:
    connection = ReconnectingConnection(config, "test")
    yield connection
    connection.drop()


class Family:
    """A suspended durable task, and the only child it waits for, which has just completed."""

    def __init__(self, rows: Rows) -> None:
        self.flow, self.end = rows.flow(1)
        self.parent = rows.task(None, "parent")
        rows.db.execute(
            "UPDATE tasks SET awaited_signals = '{:children}', scheduled_at = '9999-12-29' WHERE id = %s", [self.parent]
        )
        rows.db.execute("UPDATE flows SET parent = %s WHERE id = %s", [self.parent, self.flow])
        self.child = rows.task(self.flow, "child", reports_to=[self.end])
        lease = Lease(str(self.child), rows.hold(self.child))
        rows.run(settle.complete([Completion(lease, "1")], "w"))


def _is_due(rows: Rows, task: UUID) -> bool:
    return rows.db.execute("SELECT scheduled_at <= now() FROM tasks WHERE id = %s", [task]).fetchall() == [(True,)]


async def test_a_parent_that_another_transaction_has_locked_holds_up_no_other_flow_and_is_woken_later(
    rows: Rows, config: Config, leader: ReconnectingConnection
) -> None:
    locked, other = Family(rows), Family(rows)
    rows.db.execute("SET lock_timeout = '10s'")  # a fold that waits is an error then
    with psycopg.connect(config.database_url) as sender:
        sender.execute("SELECT tasklib_signal(%s, 'approved')", [locked.parent])  # and its transaction stays open
        rows.fold(locked.end, other.end)
        assert rows.finished(other.flow)
        assert _is_due(rows, other.parent)
        assert not rows.finished(locked.flow)
    term = await leader.run(fleet.lead("leader", 60))
    assert term is not None
    await sweep_gates(leader, config, term)
    assert rows.finished(locked.flow)
    assert _is_due(rows, locked.parent)
