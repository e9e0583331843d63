"""Each guard of the statements about workers on its own: the dead stay dead, and the living are left alone."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.store import fleet

SILENT = "last_heartbeat = now() - interval '1 hour'"


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


@pytest.fixture(autouse=True)
def worker(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO worker_registrations (id, current_load) VALUES ('w', 2)")


def _is(db: psycopg.Connection, columns: str) -> None:
    db.execute(f"UPDATE worker_registrations SET {columns}".encode())


def test_a_worker_that_was_declared_dead_can_not_say_that_it_lives(database: Database, db: psycopg.Connection) -> None:
    assert database.run(fleet.heartbeat("w", load=1, draining=False)) is False
    _is(db, "reported_status = 'dead'")
    assert database.run(fleet.heartbeat("w", load=1, draining=False)) is None
    assert db.execute("SELECT reported_status FROM worker_registrations").fetchone() == ("dead",)


@pytest.mark.parametrize("dead", ["reported_status = 'dead'", SILENT])
def test_only_a_worker_that_lives_is_asked_to_drain(database: Database, db: psycopg.Connection, dead: str) -> None:
    _is(db, dead)
    assert not database.run(fleet.drain("w", by="me"))
    _is(db, "reported_status = 'active', last_heartbeat = now()")
    assert database.run(fleet.drain("w", by="me"))
    assert not database.run(fleet.drain("w", by="me")), "once is enough"


def test_a_silent_worker_is_declared_dead_once_and_one_that_lives_is_not(
    database: Database, db: psycopg.Connection
) -> None:
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    assert database.run(fleet.bury_workers(term, forget_after=86400)) == []
    assert db.execute("SELECT reported_status, current_load FROM worker_registrations").fetchone() == ("active", 2)
    _is(db, SILENT)
    assert database.run(fleet.bury_workers(term, forget_after=86400)) == ["w"]
    assert database.run(fleet.bury_workers(term, forget_after=86400)) == []
