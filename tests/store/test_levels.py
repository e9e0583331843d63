"""Depths and states: right, honest about what was not counted, and never a reason to read the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.db.query import Query
from tasklib.sql import statement
from tasklib.store import behind, fleet, levels, maintenance, stats
from tests.store.test_claim import scans_of_tasks


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


def waiting(db: psycopg.Connection, count: int, *, queue: str = "mail", priority: int = 0, age: str = "1 min") -> None:
    db.execute(
        "INSERT INTO tasks (name, queue, priority, scheduled_at) "
        "SELECT 't' || n %% 3, %s, %s, now() - %s::interval FROM generate_series(1, %s) AS n",
        (queue, priority, age, count),
    )


def take_snapshot(database: Database, most: int = 100_000) -> None:
    term = database.run(fleet.lead("leader", 600))
    assert term is not None
    database.run(maintenance.take_snapshot(term, most))


def found(database: Database) -> dict[tuple[str, str], tuple[int, bool, bool]]:
    return {
        (level.queue, level.level): (level.depth, level.is_estimated, level.is_capped)
        for level in database.run(levels.levels())
    }


def test_few_are_counted_by_queue_and_level_and_what_is_not_due_does_not_wait(
    database: Database, db: psycopg.Connection
) -> None:
    assert database.run(levels.levels()) == []
    waiting(db, 5, priority=100, age="90 s")
    waiting(db, 4, priority=7)
    waiting(db, 3, queue="other", priority=-1)
    waiting(db, 9, age="-1 hour")
    db.execute("INSERT INTO tasks (name, queue, state, next_retry_at) VALUES ('x', 'mail', 'failed', now())")
    assert found(database) == {
        ("mail", "high"): (5, False, False),
        ("mail", "medium"): (5, False, False),
        ("other", "low"): (3, False, False),
    }
    [high] = [level for level in database.run(levels.levels()) if level.level == "high"]
    assert high.p50 is not None
    assert 90 <= high.p50 <= high.oldest_age_seconds < 1000


def test_beyond_the_limit_the_leaders_count_stands_and_the_answer_says_so(
    database: Database, db: psycopg.Connection
) -> None:
    waiting(db, levels.MOST_COUNTED + 500)
    waiting(db, 3, priority=100)
    depth, *flags = found(database)["mail", "medium"]
    assert depth > levels.MOST_COUNTED
    assert flags == [True, True], "nobody leads: it is at least so many"
    take_snapshot(database)
    assert found(database) == {
        ("mail", "high"): (3, False, False),
        ("mail", "medium"): (levels.MOST_COUNTED + 500, True, False),
    }
    db.execute("DELETE FROM tasks WHERE priority = 0")
    assert found(database) == {("mail", "high"): (3, False, False)}, "what is gone is not shown for long"


def test_a_leader_that_stopped_counting_says_so(database: Database, db: psycopg.Connection) -> None:
    waiting(db, levels.MOST_COUNTED + 1000)
    take_snapshot(database, most=900)
    assert found(database)["mail", "medium"][1:] == (True, True)


def test_more_queues_than_can_be_counted_in_one_look_are_all_there(database: Database, db: psycopg.Connection) -> None:
    for number in range(5):
        waiting(db, 1900, queue=f"q{number}")
    depths = found(database)
    assert depths["q0", "medium"] == (1900, False, False)
    assert depths["q4", "medium"][1:] == (True, True)
    take_snapshot(database)
    assert {depth for depth, _, _ in found(database).values()} == {1900}


def test_depths_are_remembered_by_the_minute(database: Database, db: psycopg.Connection) -> None:
    waiting(db, 4, priority=-5)
    waiting(db, 2, queue="other", priority=-5)
    take_snapshot(database)
    take_snapshot(database)
    points = database.run(levels.depth_series(60, 60))
    assert len(points) >= 60
    assert [p.by_level for p in points if p.by_level] == [{"low": 6}]
    assert [p.by_level for p in database.run(levels.depth_series(60, 60, queue="other")) if p.by_level] == [{"low": 2}]
    [each] = [p for p in database.run(levels.depth_series(60, 60, by_queue=True)) if p.by_level]
    assert each.by_level == {"mail": 4, "other": 2}
    db.execute("UPDATE depths SET minute = minute - interval '9 days'")
    take_snapshot(database)
    rows = "SELECT count(*) FROM depths WHERE level <> ''"
    assert db.execute(rows).fetchone() == (2,), "those of nine days ago are forgotten"


def test_a_minute_without_a_count_is_unknown_and_one_in_which_nothing_waited_is_zero(
    database: Database, db: psycopg.Connection
) -> None:
    take_snapshot(database)
    points = database.run(levels.depth_series(60, 60, queue="mail"))
    assert [(p.depth, p.oldest) for p in points if p.is_known] == [(0, 0.0)]
    assert {p.depth for p in points if not p.is_known} == {None}


def test_depths_of_a_name_are_remembered_beside_those_of_its_queue(database: Database, db: psycopg.Connection) -> None:
    waiting(db, 6)
    take_snapshot(database)
    term = database.run(fleet.lead("leader", 600))
    assert term is not None
    database.run(maintenance.remember_names(term, 4, 100))
    [named] = [p for p in database.run(levels.depth_series(60, 60, name="t1")) if p.is_known]
    assert named.is_capped, "four of six tasks were looked at"
    assert 1 <= (named.depth or 0) <= 2
    [queued] = [p for p in database.run(levels.depth_series(60, 60, queue="mail")) if p.is_known]
    assert queued.depth == 6
    [whole] = [p for p in database.run(levels.depth_series(60, 60)) if p.is_known]
    assert whole.depth == 6, "a task isn't counted a second time by its name"


def test_states_of_a_small_table_are_counted_and_of_a_large_one_estimated(
    database: Database, db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, completed_at) SELECT 'x', 'completed', now() FROM generate_series(1, 50)"
    )
    waiting(db, 5)
    exact = {s.state: (s.count, s.is_estimated) for s in database.run(levels.state_counts())}
    assert exact["completed"] == (50, False)
    assert exact["dead_letter"] == (0, False)
    db.execute(
        "INSERT INTO tasks (name, state, completed_at) SELECT 'x', 'completed', now() FROM generate_series(1, 20000)"
    )
    unknown = {s.state: (s.count, s.is_estimated) for s in database.run(levels.state_counts())}
    assert unknown["completed"] == (None, True)
    assert unknown["pending"] == (5, False)
    db.execute("ANALYZE tasks")
    estimated = {s.state: (s.count, s.is_estimated) for s in database.run(levels.state_counts())}
    assert estimated["completed"][1]
    assert 19_000 < (estimated["completed"][0] or 0) < 21_000
    assert estimated["pending"] == (5, False)


def test_the_fleet_in_a_few_numbers(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO workers (id, capacity, current_load) VALUES ('a', 10, 4), ('b', 10, 8)")
    figures = database.run(levels.fleet_figures())
    assert (figures.workers, figures.term, figures.has_leader) == ({"active": (2, 20, 12)}, None, False)
    take_snapshot(database)
    figures = database.run(levels.fleet_figures())
    assert (figures.term, figures.has_leader, figures.slots("active")) == (1, True, (20, 12))
    assert figures.snapshot_age_seconds is not None
    assert not figures.each
    assert database.run(levels.fleet_figures(each=True)).each == {"a": ("active", 10, 4), "b": ("active", 10, 8)}


QUERIES: list[Query[Any]] = [
    levels.levels(),
    levels.state_counts(),
    levels.fleet_figures(),
    levels.depth_series(60, 60),
    levels.depth_series(60, 60, name="t1"),
    behind.looks("queue", ["mail", "other"]),
    stats.totals(),
    stats.series(60, 60),
    stats.series_by("name", 60, 60),
    stats.by_queue(60),
    stats.by_worker(60),
]


def test_no_look_reads_finished_tasks_or_more_waiting_ones_than_it_may(
    database: Database, db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, completed_at) SELECT 'x', 'completed', now() FROM generate_series(1, 60000)"
    )
    waiting(db, 20_000)
    waiting(db, 20_000, queue="other", priority=100)
    db.execute("ANALYZE tasks")
    for query in QUERIES:
        explain = "EXPLAIN (ANALYZE, FORMAT JSON) " + statement(query.name, None)
        row = db.execute(explain.encode(), query.parameters).fetchone()
        assert row is not None
        for scan in scans_of_tasks(row[0][0]["Plan"]):
            read = scan["Actual Rows"] * scan["Actual Loops"]
            if scan["Node Type"] == "Seq Scan":
                assert read == 0, f"{query.name} reads the table"
            else:
                assert read <= 12_000, f"{query.name} reads {read} rows by {scan['Index Name']}"
