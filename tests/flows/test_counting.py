"""When arrivals are counted: with the task that may decide the gate, and not at each batch of a large group."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.backends.postgres.gates import GateFolds
from tasklib.db.query import Query
from tasklib.store import flows
from tests.flows.rows import ALL, SETTLED, Rows
from tests.flows.test_gates import Group, counts


@pytest.fixture
def rows(db: psycopg.Connection) -> Rows:
    return Rows(db)


@pytest.mark.parametrize("policy", [ALL, SETTLED], ids=["all", "settled"])
def test_a_join_counts_its_members_together_with_the_last_one(rows: Rows, policy: dict[str, Any]) -> None:
    group = Group(rows, 3, policy)
    for member in (0, 1):
        group.complete(member)
        assert rows.run(flows.fold([str(group.gate)])) == []
        assert rows.run(flows.with_arrivals([str(group.gate)])) == []
    assert counts(rows, group.gate) == (0, 0)
    group.complete(2)
    assert rows.run(flows.with_arrivals([str(group.gate)])) == [str(group.gate)]
    rows.fold(group.gate)
    assert counts(rows, group.gate) == (3, 0)
    assert group.join == "pending"
    assert rows.arrivals(group.gate) == 0


def test_members_that_were_counted_before_count_for_the_last_one(rows: Rows) -> None:
    group = Group(rows, 3)
    group.complete(0, 1)
    rows.fold()  # as the leader's sweep does
    assert counts(rows, group.gate) == (2, 0)
    group.complete(2)
    rows.fold(group.gate)
    assert group.join == "pending"


def test_a_failure_is_counted_at_once(rows: Rows) -> None:
    group = Group(rows, 3)
    group.complete(0)
    group.fail(1, retriable=False)
    rows.fold(group.gate)
    assert counts(rows, group.gate) == (1, 1)
    assert group.join == "cancelled"


def test_a_policy_that_needs_only_some_counts_each_at_once(rows: Rows) -> None:
    group = Group(rows, 3, {"kind": "at_least", "count": 1})
    group.complete(0)
    rows.fold(group.gate)
    assert group.join == "pending"


def test_a_large_group_is_counted_before_its_arrivals_are_very_many(rows: Rows) -> None:
    flow, _ = rows.flow(1000)
    gate = rows.gate(flow, 1000)
    rows.db.execute("INSERT INTO arrivals (gate, completed) SELECT %s, 1 FROM generate_series(1, 99)", [gate])
    rows.fold(gate)
    assert counts(rows, gate) == (0, 0)
    rows.db.execute("INSERT INTO arrivals (gate, completed) VALUES (%s, 1)", [gate])
    rows.fold(gate)
    assert counts(rows, gate) == (100, 0)


def test_members_that_are_not_counted_yet_are_shown(rows: Rows, config: Config) -> None:
    group = Group(rows, 3)
    group.complete(0, 1)
    rows.db.execute("INSERT INTO arrivals (gate, expected) VALUES (%s, 1)", [group.gate])
    assert counts(rows, group.gate) == (0, 0)
    [gate] = rows.run(flows.gates_of(group.flow))
    assert (gate.completed, gate.failed, gate.expected) == (2, 0, 4)
    with Client(config) as client:
        [reason] = [r for r in client.explain_task(group.joins[0]).reasons if r.code == "waits_for_gate"]
    assert "2 completed and 0 failed" in reason.sentence


class Statements:
    """A database that answers each statement with the next of these, and remembers which they were."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.ran: list[str] = []

    async def run(self, query: Query[Any], /) -> Any:
        self.ran.append(query.name)
        return self.answers.pop(0)


async def test_a_worker_looks_at_the_gate_of_a_large_group_before_it_folds() -> None:
    db = Statements([], [], ["gate"], ["gate"], [], ["gate"])
    folds = GateFolds(db)
    ran = []
    for _ in range(3):
        folds.arrived(["gate"])
        await asyncio.wait_for(folds.idle(), 120)
        ran.append(db.ran)
        db.ran = []
    assert ran == [["fold"], ["gates_with_arrivals"], ["gates_with_arrivals", "fold", "gates_with_arrivals"]]


async def test_a_worker_folds_a_gate_at_once_that_it_does_not_know() -> None:
    db = Statements([], ["other"], [])
    folds = GateFolds(db)
    folds.arrived(["gate"])
    await asyncio.wait_for(folds.idle(), 120)
    folds.arrived(["gate", "other"])
    await asyncio.wait_for(folds.idle(), 120)
    assert db.ran == ["fold", "fold", "gates_with_arrivals"]
