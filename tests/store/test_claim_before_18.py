"""The claim on a server before PostgreSQL 18, where a scan stops at fewer bounds."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tasklib import Config
from tasklib.embedded import EmbeddedPostgres
from tasklib.store import claim
from tasklib.store.claim import Lane, Served
from tasklib.testing import databases
from tests.store.test_claim import TERMS, Claiming, insert, pages_to_find, rows_read

BACKLOG = 5000
SERVED = Served(["work"], queues=["default", "mail"], capabilities=["cpu", "gpu"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedPostgres(version=16) as postgres, databases.template(postgres.url()) as name:
        yield postgres.url(name)


@pytest.fixture
def claiming(url: str) -> Iterator[Claiming]:
    claiming = Claiming(Config(url))
    claiming.connection.execute("TRUNCATE tasks")
    yield claiming
    claiming.connection.close()


@pytest.fixture
def db(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def test_a_claim_that_resumes_reads_nothing_of_the_lanes_that_it_knows(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    for columns in (
        {},
        {"priority": "50"},
        {"required_capabilities": "'{gpu}'"},
        {"lane": "'work'"},
        {"queue": "'mail'"},
    ):
        insert(db, BACKLOG, name="'work'", scheduled_at="now() - interval '1 hour' + n * interval '1 ms'", **columns)
    db.execute("VACUUM ANALYZE tasks")
    behind: dict[Lane, claim.Place] = {}
    for _ in range(5):  # each of the five lanes has been claimed from
        for task in claiming.run(claim.claim(SERVED, BACKLOG, "w", behind, **TERMS)):
            behind[task.lane] = task.place
    assert len(behind) == 5
    insert(db, 10, name="'work'")
    insert(db, 10, name="'work'", priority="30")
    plan = claiming.explain_query(claim.claim(SERVED, 20, "w", behind, **TERMS))
    assert plan["Actual Rows"] == 20
    assert rows_read(plan) < 100
    assert pages_to_find(plan) < 300  # of some 200 in each lane's part of the index alone


def test_lanes_between_those_that_a_worker_knows_are_found(claiming: Claiming, db: psycopg.Connection) -> None:
    known = [("default", "", "{}", 0), ("default", "", "{gpu}", 10), ("mail", "work", "{cpu}", 50)]
    between = [
        ("default", "", "{}", -5),
        ("default", "", "{}", 20),
        ("default", "", "{cpu}", 0),
        ("default", "", "{gpu}", 0),
        ("default", "", "{gpu}", 20),
        ("default", "work", "{}", 0),
        ("mail", "", "{}", 0),
        ("mail", "", "{gpu}", 100),
        ("mail", "work", "{}", 100),
        ("mail", "work", "{cpu}", 0),
        ("mail", "work", "{cpu}", 100),
        ("mail", "work", "{gpu}", 0),
    ]
    for queue, lane, capabilities, priority in (*known, *between):
        columns = {"queue": queue, "lane": lane, "required_capabilities": capabilities, "priority": str(priority)}
        insert(db, 1, name="'work'", **{name: f"'{value}'" for name, value in columns.items()})
    last = claim.Place("2100-01-01 00:00:00+00", "ffffffff-ffff-ffff-ffff-ffffffffffff")
    behind = {Lane(*lane): last for lane in known}
    found = claiming.run(claim.claim(SERVED, 100, "w", behind, **TERMS))
    assert {(t.queue, t.lane_name, t.required_capabilities, t.priority) for t in found} == set(between)
