"""The claim: right rows, right order, and a cost that depends on what is claimed, not on what else is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import sql

from tasklib import Config
from tasklib.db.connect import TASKS, conninfo
from tasklib.db.fast_path import exchange, in_text, is_before_18
from tasklib.db.query import Query
from tasklib.sql import numbered, statement
from tasklib.store import claim
from tasklib.store.claim import Claimed, Served

T = TypeVar("T")
TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}


class Claiming:
    """A worker's connection, as a worker opens it."""

    def __init__(self, config: Config) -> None:
        self.connection = psycopg.connect(conninfo(config, role=TASKS), autocommit=True)

    def claim(self, served: Served, limit: int, worker: str = "w") -> list[Claimed]:
        return self.run(claim.claim(served, limit, worker, **TERMS))

    def run(self, query: Query[T]) -> T:
        return self.connection.wait(exchange(self.connection, query, None))

    def explain(self, served: Served, limit: int) -> dict[str, Any]:
        """The plan a worker gets: the one for any parameters, with the settings of its connection."""
        return self.explain_query(claim.claim(served, limit, "w", **TERMS))

    def explain_query(self, query: Query[Any]) -> dict[str, Any]:
        text, names = numbered(query.name, None, before_18=is_before_18(self.connection))
        values = [in_text(query.parameters[name]) for name in names]
        given = [sql.Literal(None if value is None else value.decode()) for value in values]
        with self.connection.transaction(force_rollback=True):
            self.connection.execute(f"PREPARE explained AS {text}".encode())
            explain = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained ({})")
            row = self.connection.execute(explain.format(sql.SQL(", ").join(given))).fetchone()
            self.connection.execute("DEALLOCATE explained")
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


def pages_to_find(plan: dict[str, Any]) -> int:
    """What it takes to find the rows. Writing them back costs what the free space happens to be like."""
    [found] = [child for child in plan["Plans"] if child["Parent Relationship"] == "Outer"]
    return pages_read(found)


def insert(db: psycopg.Connection, count: int, **columns: str) -> None:
    names = ", ".join(columns)
    values = ", ".join(columns.values())
    db.execute(f"INSERT INTO tasks ({names}) SELECT {values} FROM generate_series(1, {count}) AS n".encode())


@pytest.mark.long
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
    while claiming.run(claim.set_apart(served)):
        pass
    db.execute("VACUUM ANALYZE tasks")  # the entries of what was set apart, which the first claim would read past

    large = claiming.explain(served, 100)
    for scan in scans_of_tasks(large):
        assert scan["Node Type"] in ("Index Scan", "Tid Scan"), json.dumps(scan, indent=1)
    assert large["Actual Rows"] == 100
    # The claimed rows twice (found, then updated) and one look per lane.
    assert rows_read(large) <= 2 * 100 + 15
    assert pages_read(large) <= 2 * pages_read(small)


@pytest.mark.direct(reason="a plan is kept by a session, and behind a pooler there is none")
def test_claim_is_planned_once_however_often_it_runs(claiming: Claiming, db: psycopg.Connection) -> None:
    """Planning a claim takes longer than the claim itself."""
    served = Served(["work"])
    insert(db, 50, name="'work'")
    for _ in range(12):
        claiming.claim(served, 3)
    plans = claiming.connection.execute("SELECT generic_plans, custom_plans FROM pg_prepared_statements").fetchall()
    assert len(plans) == 1
    assert plans[0][1] == 0


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


def test_going_on_reads_only_what_it_claims_however_much_was_claimed_before(
    claiming: Claiming, config: Config, db: psycopg.Connection
) -> None:
    """A snapshot held elsewhere keeps everything claimed in the index: going on starts behind it."""
    served = Served(["work", "play"])
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    insert(db, 20_000, name="'work'")
    insert(db, 20_000, name="'play'")
    db.execute("ANALYZE tasks")
    with psycopg.connect(config.database_url) as report:
        report.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT count(*) FROM tasks")
        first = claiming.claim(served, 100)
        fresh = claiming.explain_query(_going_on(served, first, 100))
        last = [claiming.claim(served, 1000) for _ in range(30)][-1]
        on = claiming.explain_query(_going_on(served, last, 100))
        from_the_beginning = claiming.explain(served, 100)
    assert on["Actual Rows"] == 100
    assert {scan["Node Type"] for scan in scans_of_tasks(on)} == {"Index Scan", "Tid Scan"}
    assert rows_read(on) <= 2 * 100 + 15
    assert pages_to_find(on) <= 2 * pages_to_find(fresh)
    assert pages_to_find(from_the_beginning) > 3 * pages_to_find(on), "else this test shows nothing"


def test_going_on_finds_what_a_claim_from_the_beginning_would(claiming: Claiming, db: psycopg.Connection) -> None:
    insert(
        db,
        400,
        name="CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END",
        priority="(n % 3) * 55 - 10",
        required_capabilities="CASE n % 5 WHEN 0 THEN '{\"odd,one\"}' ELSE '{}' END::text[]",
        scheduled_at="now() - n * interval '7 s'",
    )
    served = Served(["a", "b"], capabilities=["odd,one"])
    seen = claiming.claim(served, 100)
    while batch := claiming.run(_going_on(served, seen, 50)):
        seen += batch
    assert len({c.id for c in seen}) == 400, "in lanes where nothing was claimed yet, too"
    order = [(-c.effective_priority, c.due, c.id) for c in seen]
    assert order == sorted(order)


@pytest.mark.parametrize("pause", [("name", "work"), ("queue", "default")], ids=["name", "queue"])
def test_going_on_leaves_paused_tasks_alone(pause: tuple[str, str], claiming: Claiming, db: psycopg.Connection) -> None:
    insert(db, 20, name="'work'")
    first = claiming.claim(Served(["work"]), 5)
    db.execute("INSERT INTO pauses (kind, value) VALUES (%s, %s)", pause)
    assert claiming.run(_going_on(Served(["work"]), first, 5)) == []
    db.execute("DELETE FROM pauses")
    assert len(claiming.run(_going_on(Served(["work"]), first, 5))) == 5


def _going_on(served: Served, claimed: list[Claimed], limit: int) -> Query[list[Claimed]]:
    return claim.claim(served, limit, "w", {c.lane: c.place for c in claimed}, **TERMS)
