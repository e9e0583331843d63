"""The claim: right rows, right order, and a cost that depends on what is claimed, not on what else is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.connect import conninfo
from tasklib.sql import statement
from tasklib.store import claim
from tasklib.store.claim import Claimed, Served

TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}


class Claiming:
    """A worker's connection, as a worker opens it."""

    def __init__(self, config: Config) -> None:
        self.connection = psycopg.connect(conninfo(config, role="worker claim"), autocommit=True)

    def claim(self, served: Served, limit: int, worker: str = "w") -> list[Claimed]:
        query = claim.claim(served, limit, worker, **TERMS)
        cursor = self.connection.execute(statement(query.name, None).encode(), query.parameters)
        return query.read(cursor.fetchall())

    def explain(self, served: Served, limit: int) -> dict[str, Any]:
        """The plan a worker gets: for these very parameters, with the settings of its connection."""
        query = claim.claim(served, limit, "w", **TERMS)
        text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement(query.name, None)
        with self.connection.transaction(force_rollback=True):
            row = self.connection.execute(text.encode(), query.parameters).fetchone()
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return plan


@pytest.fixture
def claiming(config: Config) -> Iterator[Claiming]:
    claiming = Claiming(config)
    yield claiming
    claiming.connection.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scans_of_tasks(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [n for n in nodes(plan) if n.get("Relation Name") == "tasks" and "Scan" in n["Node Type"]]


def rows_read(plan: dict[str, Any]) -> float:
    """Rows that scans of the table delivered or threw away."""
    return sum(
        n["Actual Loops"] * (n["Actual Rows"] + n.get("Rows Removed by Filter", 0)) for n in scans_of_tasks(plan)
    )


def pages_read(plan: dict[str, Any]) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def insert(db: psycopg.Connection, count: int, **columns: str) -> None:
    names = ", ".join(columns)
    values = ", ".join(columns.values())
    db.execute(f"INSERT INTO tasks ({names}) SELECT {values} FROM generate_series(1, {count}) AS n".encode())


@pytest.mark.timeout(300)
def test_claim_reads_only_what_it_claims_beside_millions_of_other_rows(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    served = Served(["work"], queues=["default"], capabilities=["cpu"])
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    insert(db, 200, name="'work'")
    db.execute("ANALYZE tasks")
    small = claiming.explain(served, 100)

    insert(db, 1_000_000, name="'work'", state="'completed'", completed_at="now()")
    insert(db, 500_000, name="'work'", priority="100", scheduled_at="now() + interval '1 day' + n * interval '1 ms'")
    insert(db, 40_000, name="'unknown'", scheduled_at="now() - interval '1 hour'", priority="100")
    insert(db, 40_000, name="'work'", required_capabilities="'{gpu}'", scheduled_at="now() - interval '1 hour'")
    insert(db, 20_000, name="'work'", queue="'another'", scheduled_at="now() - interval '1 hour'")
    db.execute("ANALYZE tasks")

    large = claiming.explain(served, 100)
    for scan in scans_of_tasks(large):
        assert scan["Node Type"] == "Index Scan", json.dumps(scan, indent=1)
    assert large["Actual Rows"] == 100
    # The claimed rows twice (found, then updated) and one look per lane.
    assert rows_read(large) <= 2 * 100 + 15
    assert pages_read(large) <= 2 * pages_read(small)


def test_claim_is_planned_for_what_it_serves_however_often_it_has_run(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    """PostgreSQL may swap a prepared statement's plan for one that fits any parameters: not on this connection."""
    served = Served(["work"])
    insert(db, 50, name="'work'")
    for _ in range(12):
        claiming.claim(served, 3)
    plans = claiming.connection.execute("SELECT generic_plans, custom_plans FROM pg_prepared_statements").fetchall()
    assert [generic for generic, _ in plans] == [0]
    assert plans[0][1] > 5


def test_order_is_by_effective_priority_then_first_come_first_served(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    insert(db, 30, name="'work'", priority="(n % 3) * 50 - 10 * (n % 2)", scheduled_at="now() - n * interval '100 s'")
    claimed = []
    while batch := claiming.claim(Served(["work"]), 1):
        claimed += batch
    assert len(claimed) == 30
    keys = [(-c.effective_priority, c.due) for c in claimed]
    assert keys == sorted(keys)
    assert {c.effective_priority for c in claimed if c.priority < 100} > {100}, "some were raised"


def test_claims_in_batches_never_put_a_lower_effective_priority_first(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    insert(db, 300, name="'work'", priority="(n % 12) * 10 - 10", scheduled_at="now() - n * interval '8 s'")
    seen: list[int] = []
    while batch := claiming.claim(Served(["work"]), 17):
        seen += [c.effective_priority for c in batch]
    assert len(seen) == 300
    assert seen == sorted(seen, reverse=True)


def test_two_claimers_share_without_waiting_or_overlapping(
    claiming: Claiming, config: Config, db: psycopg.Connection
) -> None:
    insert(db, 100, name="'work'")
    other = Claiming(config)
    with claiming.connection.transaction():
        mine = {c.id for c in claiming.claim(Served(["work"]), 30, "one")}
        theirs = {c.id for c in other.claim(Served(["work"]), 100, "two")}
    assert len(mine) == 30
    assert len(theirs) == 70
    assert not mine & theirs
    other.connection.close()


def test_next_due_speaks_of_this_workers_lanes_only(claiming: Claiming, db: psycopg.Connection) -> None:
    def next_due(served: Served) -> float | None:
        query = claim.next_due(served)
        return query.read(
            claiming.connection.execute(statement(query.name, None).encode(), query.parameters).fetchall()
        )

    assert next_due(Served(["work"])) is None
    insert(db, 1, name="'other'")
    insert(db, 1, name="'work'", scheduled_at="now() + interval '100 s'")
    insert(db, 1, name="'work'", priority="5", scheduled_at="now() + interval '50 s'")
    insert(db, 1, name="'work'", queue="'elsewhere'", scheduled_at="now() + interval '10 s'")
    due = next_due(Served(["work"], queues=["default"]))
    assert due is not None
    assert 40 < due <= 50


def test_hop_skips_every_kind_of_lane_that_is_not_ours(claiming: Claiming, db: psycopg.Connection) -> None:
    """Names and queues that are prefixes of one another, and capabilities in any combination."""
    for queue in ("a", "a\x01", "ab", "b"):
        for name in ("w", "w\x01", "wa", "x"):
            for capabilities in ("{}", "{c}", "{c,d}", "{d}", '{""}'):
                for priority in (-10, 0, 100):
                    db.execute(
                        "INSERT INTO tasks (queue, name, required_capabilities, priority) VALUES (%s, %s, %s, %s)",
                        (queue, name, capabilities, priority),
                    )
    served = Served(["w", "x", "nobody"], queues=["a", "b"], capabilities=["c"])
    claimed = claiming.claim(served, 1000)
    rest = db.execute(
        "SELECT count(*) FROM tasks WHERE state = 'pending' AND queue IN ('a', 'b') AND name IN ('w', 'x') "
        "AND required_capabilities <@ '{c}'"
    ).fetchone()
    assert rest == (0,)
    assert len(claimed) == 2 * 2 * 2 * 3
    assert {(c.queue, c.name) for c in claimed} == {("a", "w"), ("a", "x"), ("b", "w"), ("b", "x")}
