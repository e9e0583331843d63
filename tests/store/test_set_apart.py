"""Setting tasks apart that a worker doesn't serve: it changes nothing but the lane in which they wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.store import claim
from tasklib.store.claim import CROWD, Served
from tests.store.test_claim import Claiming, insert, rows_read

MINE, THEIRS = Served(["mine"]), Served(["theirs"])


@pytest.fixture
def claiming(config: Config) -> Iterator[Claiming]:
    claiming = Claiming(config)
    yield claiming
    claiming.connection.close()


def _rows(db: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    """Everything but the lane."""
    return db.execute("SELECT (to_jsonb(tasks) - 'lane')::text FROM tasks ORDER BY id").fetchall()


def test_a_claim_reads_nothing_of_what_was_set_apart(claiming: Claiming, db: psycopg.Connection) -> None:
    insert(db, 3_000, name="'theirs'", scheduled_at="now() - interval '1 min'")
    insert(db, 20, name="'mine'")
    assert claiming.run(claim.set_apart(MINE)) == 3_000
    plan = claiming.explain(MINE, 10)
    assert plan["Actual Rows"] == 10
    assert rows_read(plan) <= 2 * 10 + 15
    assert {c.name for c in claiming.claim(MINE, 100)} == {"mine"}
    assert len(claiming.claim(THEIRS, 5_000)) == 3_000


def test_nothing_else_of_a_task_changes(claiming: Claiming, db: psycopg.Connection) -> None:
    insert(
        db, 3, name="'theirs'", lease_token="4", retry_count="n", history="jsonb_build_array(n)", tags="'{\"a\": 1}'"
    )
    insert(db, 2, name="'theirs'", state="'failed'", next_retry_at="now() - interval '1 s'", error="'boom'")
    before = _rows(db)
    assert claiming.run(claim.set_apart(MINE)) == 5
    assert _rows(db) == before


@pytest.mark.parametrize(
    "columns",
    [
        {"name": "'mine'"},
        {"scheduled_at": "now() + interval '1 h'"},
        {"queue": "'elsewhere'"},
        {"required_capabilities": "'{gpu}'"},
        {"state": "'running'", "worker_id": "'w'", "locked_until": "now() + interval '1 h'"},
        {"state": "'completed'", "completed_at": "now()"},
        {"lane": "'theirs'"},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_only_due_tasks_in_lanes_that_the_worker_reads_are_moved(
    claiming: Claiming, db: psycopg.Connection, columns: dict[str, str]
) -> None:
    insert(db, 3, **{"name": "'theirs'", **columns})
    assert claiming.run(claim.set_apart(Served(["mine"], queues=["default"]))) == 0


def test_a_task_that_another_transaction_holds_stays_where_it_is(
    claiming: Claiming, config: Config, db: psycopg.Connection
) -> None:
    insert(db, 5, name="'theirs'")
    other = Claiming(config)
    with other.connection.transaction():
        assert len(other.claim(THEIRS, 3)) == 3
        assert claiming.run(claim.set_apart(MINE)) == 2
    other.connection.close()
    states = db.execute("SELECT state, lane, count(*) FROM tasks GROUP BY 1, 2 ORDER BY 1").fetchall()
    assert states == [("pending", "theirs", 2), ("running", "", 3)]


def test_a_paused_name_is_set_apart_and_found_once_it_is_resumed(claiming: Claiming, db: psycopg.Connection) -> None:
    insert(db, 10, name="'mine'")
    db.execute("INSERT INTO pauses (kind, value) VALUES ('name', 'mine')")
    assert claiming.run(claim.set_apart(Served(None))) == 10
    assert claiming.claim(MINE, 20) == []
    db.execute("DELETE FROM pauses")
    assert len(claiming.claim(MINE, 20)) == 10


def test_an_idle_worker_learns_of_a_crowd_and_of_its_own_next_task(claiming: Claiming, db: psycopg.Connection) -> None:
    insert(db, CROWD - 1, name="'theirs'", scheduled_at="now() - interval '1 min'")
    insert(db, 1, name="'mine'", scheduled_at="now() + interval '100 s'")
    next_due, _, is_crowded, *_ = claiming.run(claim.outlook(MINE))
    assert next_due is not None
    assert 50 < next_due <= 100
    assert not is_crowded
    insert(db, 1, name="'theirs'", scheduled_at="now() - interval '1 min'")
    next_due, _, is_crowded, *_ = claiming.run(claim.outlook(MINE))
    assert next_due is None, "not looked for behind a crowd"
    assert is_crowded
    claiming.run(claim.set_apart(MINE))
    next_due, _, is_crowded, *_ = claiming.run(claim.outlook(MINE))
    assert next_due is not None
    assert not is_crowded


def test_a_crowd_that_is_not_due_yet_is_left_alone_until_it_is(claiming: Claiming, db: psycopg.Connection) -> None:
    insert(db, CROWD, name="'theirs'", scheduled_at="now() + interval '100 s'")
    insert(db, 1, name="'mine'", scheduled_at="now() + interval '200 s'")
    next_due, _, is_crowded, *_ = claiming.run(claim.outlook(MINE))
    assert next_due is not None
    assert 50 < next_due <= 100, "time to look again"
    assert not is_crowded


def test_a_plain_claim_passes_all_lanes_behind_limits_of_a_queue_with_one_look(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    insert(db, 20, name="'mine'")
    insert(db, 3_000, name="'mine'", lane="E'\\x01' || n", scheduled_at="now() - interval '1 min'")
    for served in (MINE, Served(None)):
        plan = claiming.explain(served, 10)
        assert plan["Actual Rows"] == 10
        assert rows_read(plan) <= 2 * 10 + 15
    insert(db, 20, name="'mine'", lane="'mine'")
    assert {c.lane_name for c in claiming.claim(MINE, 5_000)} == {"", "mine"}


def test_a_name_that_looks_like_a_lane_behind_limits_is_never_set_apart(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    insert(db, 3, name="E'\\x01theirs'")
    assert claiming.run(claim.set_apart(MINE)) == 0
    assert len(claiming.claim(Served(["\x01theirs"]), 10)) == 3
