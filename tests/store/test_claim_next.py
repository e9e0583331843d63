"""The claim of one lane's next task, which an idle worker makes when it is notified."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tasklib import Config
from tasklib.store import claim
from tasklib.store.claim import Claimed, Lane, Served
from tests.store.test_claim import TERMS, Claiming, insert, rows_read, scans_of_tasks

LANE = Lane("default", "", "{}", 0)
NAMES = ("work",)


@pytest.fixture
def claiming(config: Config) -> Iterator[Claiming]:
    claiming = Claiming(config)
    yield claiming
    claiming.connection.close()


def _next(claiming: Claiming, lane: Lane = LANE) -> list[Claimed]:
    return claiming.run(claim.claim_next(lane, NAMES, "w", **TERMS))


def test_it_leases_what_a_claim_of_that_lane_would(claiming: Claiming, db: psycopg.Connection) -> None:
    insert(db, 3, name="'work'", kwargs="jsonb_build_object('n', n)", scheduled_at="now() - n * interval '1 s'")
    [first] = _next(claiming)
    [second] = claiming.claim(Served(["work"]), 1)
    [third] = _next(claiming)
    assert [c.kwargs for c in (first, second, third)] == ['{"n": 3}', '{"n": 2}', '{"n": 1}']
    assert third._replace(id="", kwargs="", due="") == second._replace(id="", kwargs="", due="")
    leased = db.execute("SELECT DISTINCT state, worker_id, lease_token, locked_until > now() FROM tasks").fetchall()
    assert leased == [("running", "w", 1, True)]
    assert _next(claiming) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"scheduled_at": "now() + interval '1 h'"},
        {"queue": "'another'"},
        {"name": "'another'"},
        {"required_capabilities": "'{gpu}'"},
        {"priority": "1"},
        {"state": "'completed'", "completed_at": "now()"},
        {"state": "'cancelled'", "completed_at": "now()"},
    ],
    ids=lambda columns: next(iter(columns)),
)
def test_it_takes_nothing_else(claiming: Claiming, db: psycopg.Connection, columns: dict[str, str]) -> None:
    insert(db, 1, **{"name": "'work'", **columns})
    assert _next(claiming) == []


@pytest.mark.parametrize(("kind", "value"), [("queue", "default"), ("name", "work")])
def test_a_pause_holds_for_it_too(claiming: Claiming, db: psycopg.Connection, kind: str, value: str) -> None:
    insert(db, 1, name="'work'")
    db.execute("INSERT INTO pauses (kind, value) VALUES (%s, %s)", [kind, value])
    assert _next(claiming) == []
    db.execute("DELETE FROM pauses")
    db.execute("INSERT INTO pauses (kind, value) VALUES ('queue', 'work'), ('name', 'default')")
    assert len(_next(claiming)) == 1, "others with the same name are paused"


def test_a_task_that_another_claim_takes_is_left_to_it(
    claiming: Claiming, db: psycopg.Connection, config: Config
) -> None:
    insert(db, 1, name="'work'")
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT FROM tasks FOR UPDATE")
        assert _next(claiming) == []


@pytest.mark.parametrize("priority", [-10, -1, 0, 5, 100])
@pytest.mark.parametrize("waited", [0, 599, 601, 1199, 1201, 1799, 1801])
def test_how_high_it_stood_is_what_a_claim_says(
    claiming: Claiming, db: psycopg.Connection, priority: int, waited: int
) -> None:
    insert(db, 2, name="'work'", priority=str(priority), scheduled_at=f"now() - interval '{waited} s'")
    [guessed] = _next(claiming, LANE._replace(priority=priority))
    [looked] = claiming.claim(Served(["work"]), 1)
    assert guessed.effective_priority == looked.effective_priority


def test_it_reads_one_row_whatever_else_is_there(claiming: Claiming, db: psycopg.Connection) -> None:
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    insert(db, 20_000, name="'work'", state="'completed'", completed_at="now()")
    insert(db, 20_000, name="'work'", scheduled_at="now() + interval '1 day'")
    insert(db, 20_000, name="'another'")
    insert(db, 100, name="'work'")
    while claiming.run(claim.set_apart(Served(NAMES))):
        pass
    db.execute("ANALYZE tasks")
    plan = claiming.explain_query(claim.claim_next(LANE, NAMES, "w", **TERMS))
    assert [scan["Node Type"] for scan in scans_of_tasks(plan)] == ["Index Scan", "Index Scan"]
    assert rows_read(plan) == 2, "found, then updated"
