"""What operators ask of the fleet: workers, pauses, settings, and cancelling many tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.client import operations
from tasklib.db.database import Database
from tasklib.errors import ConfigError, InvalidOption, WorkerNotFound
from tasklib.sql import statement
from tasklib.store import claim, control
from tasklib.store.claim import Served
from tasklib.store.control import CancelCounts
from tasklib.store.filters import TaskFilter
from tests.client.conftest import Either
from tests.store.test_claim import nodes

TERMS: dict[str, Any] = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}


@pytest.fixture(autouse=True)
def _nothing_left_behind(database_url: str) -> Iterator[None]:
    yield
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM workers")
        connection.execute("DELETE FROM pauses")
        connection.execute("DELETE FROM leadership")
        connection.execute("DELETE FROM settings")
        connection.execute("INSERT INTO settings DEFAULT VALUES")


def claimed(config: Config, *names: str) -> list[str]:
    """The names of what a worker that knows these gets now."""
    database = Database(config)
    found = database.run(claim.claim(Served(names), 100, "w", **TERMS))
    database.close()
    return [c.name for c in found]


def states(db: psycopg.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT name, state FROM tasks").fetchall())


# ---- workers ----


async def test_workers_are_listed_in_the_order_of_their_starts_and_the_leader_is_marked(
    either: Either, db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO workers (id, started_at, last_heartbeat, queues, capabilities, capacity, current_load, host, pid) "
        "VALUES ('second', now(), now() - interval '5 s', '{mail}', '{gpu}', 4, 3, 'h', 7), "
        "('first', now() - interval '1 h', now(), NULL, '{}', 1, 0, 'h', 8)"
    )
    db.execute("INSERT INTO leadership (holder, expires_at) VALUES ('second', now() + interval '1 min')")
    first, second = await either.workers()
    assert (first.id, first.is_leader, first.queues) == ("first", False, None)
    assert (second.id, second.is_leader, second.queues, second.capabilities) == ("second", True, ["mail"], ["gpu"])
    assert (second.current_load, second.capacity) == (3, 4)
    assert 5 <= second.seconds_since_heartbeat < 1000


async def test_drain_is_stored_and_told_and_may_be_asked_twice(either: Either, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO workers (id) VALUES ('w-1')")
    db.execute("LISTEN tasklib_public")
    await either.drain_worker("w-1")
    asked = db.execute("SELECT drain_requested_at FROM workers").fetchone()
    await either.drain_worker("w-1")
    assert asked is not None
    assert asked[0] is not None
    assert db.execute("SELECT drain_requested_at FROM workers").fetchone() == asked
    assert {n.payload for n in db.notifies(timeout=120, stop_after=1)} == {"drain"}


async def test_drain_of_a_worker_that_is_not_there_says_so_and_who_may_be_meant(
    either: Either, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO workers (id, reported_status) VALUES ('web-1-abcd', 'active'), ('gone', 'dead')")
    with pytest.raises(WorkerNotFound, match=r"no live worker has the id web-1-abce; .* Did you mean web-1-abcd\?"):
        await either.drain_worker("web-1-abce")
    with pytest.raises(WorkerNotFound, match="worker gone is dead; other workers run its tasks") as caught:
        await either.drain_worker("gone")
    assert caught.value.worker_id == "gone"


# ---- pauses ----


async def test_paused_queue_or_name_is_not_claimed_until_it_is_resumed(
    either: Either, config: Config, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, queue) VALUES ('a', 'mail'), ('b', 'default'), ('c', 'default')")
    assert await either.pause(queue="mail")
    assert await either.pause(name="b")
    assert claimed(config, "a", "b", "c") == ["c"]
    assert [(p.kind, p.value) for p in await either.pauses()] == [("name", "b"), ("queue", "mail")]
    assert await either.resume(queue="mail")
    assert claimed(config, "a", "b") == ["a"]
    assert await either.resume(name="b")
    assert claimed(config, "a", "b") == ["b"]
    assert await either.pauses() == []


async def test_pause_and_resume_say_whether_something_changed(either: Either) -> None:
    assert await either.pause(queue="mail") is True
    assert await either.pause(queue="mail") is False
    assert await either.resume(queue="mail") is True
    assert await either.resume(queue="mail") is False


async def test_resume_wakes_sleeping_workers(either: Either, db: psycopg.Connection) -> None:
    await either.pause(name="a")
    db.execute("LISTEN tasklib_public")
    await either.resume(name="a")
    assert [n.payload for n in db.notifies(timeout=120, stop_after=1)] == [""]


@pytest.mark.parametrize("what", [{}, {"queue": "a", "name": "b"}, {"queue": ""}, {"name": ""}])
async def test_pause_takes_one_queue_or_one_name(either: Either, what: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        await either.pause(**what)
    with pytest.raises(InvalidOption):
        await either.resume(**what)


# ---- settings ----


async def test_settings_come_from_the_configuration_until_they_are_changed(either: Either) -> None:
    found = await either.settings()
    assert (found.promote_to_medium_after_seconds, found.promote_to_high_after_seconds) == (600, 1200)
    assert found.changed == ()
    changed = await either.change_settings(promote_to_high_after_seconds=300)
    assert changed == await either.settings()
    assert (changed.promote_to_medium_after_seconds, changed.promote_to_high_after_seconds) == (600, 300)
    assert changed.changed == ("promote_to_high_after_seconds",)
    await either.change_settings(promote_to_medium_after_seconds=20.5)
    assert (await either.settings()).changed == ("promote_to_medium_after_seconds", "promote_to_high_after_seconds")
    await either.change_settings(promote_to_medium_after_seconds=None, promote_to_high_after_seconds=None)
    assert await either.settings() == found


async def test_changed_settings_count_from_the_next_claim_on(
    either: Either, config: Config, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name, priority, scheduled_at) VALUES ('old', -10, now() - interval '60 s')")
    db.execute("INSERT INTO tasks (name, priority) VALUES ('new', 0)")
    await either.change_settings(promote_to_medium_after_seconds=10)
    assert claimed(config, "old", "new") == ["old", "new"]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "600", True])
async def test_settings_that_make_no_sense_are_refused(either: Either, value: Any) -> None:
    with pytest.raises(ConfigError, match="promote_to_medium_after_seconds"):
        await either.change_settings(promote_to_medium_after_seconds=value)
    assert (await either.settings()).changed == ()


# ---- cancelling many ----

RUNNING = "state, worker_id, locked_until) VALUES"


@pytest.fixture
def some_of_each(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, queue, tags) VALUES ('a', 'mail', '{\"n\": 1}'), ('b', 'default', '{}')")
    db.execute(f"INSERT INTO tasks (name, {RUNNING} ('c', 'running', 'w', now() + interval '1 h')")
    db.execute("INSERT INTO tasks (name, state, next_retry_at) VALUES ('d', 'failed', now() + interval '1 h')")
    db.execute("INSERT INTO tasks (name, state, completed_at) VALUES ('e', 'completed', now())")


@pytest.mark.usefixtures("some_of_each")
@pytest.mark.parametrize(
    ("filters", "gone", "counts"),
    [
        ({"name": "a"}, {"a"}, (1, 0)),
        ({"queue": "mail"}, {"a"}, (1, 0)),
        ({"tags": {"n": 1}}, {"a"}, (1, 0)),
        ({"state": "failed"}, {"d"}, (1, 0)),
        ({"state": ["pending", "running"]}, {"a", "b"}, (2, 1)),
        ({"everything": True}, {"a", "b", "d"}, (3, 1)),
        ({"created_after": datetime(2020, 1, 1, tzinfo=UTC)}, {"a", "b", "d"}, (3, 1)),
        ({"created_before": datetime(2020, 1, 1, tzinfo=UTC)}, set(), (0, 0)),
        ({"name": "nobody"}, set(), (0, 0)),
    ],
)
async def test_cancel_takes_what_fits_and_counts_it(
    either: Either, db: psycopg.Connection, filters: dict[str, Any], gone: set[str], counts: tuple[int, int]
) -> None:
    before = states(db)
    assert await either.cancel_tasks(**filters, dry_run=True) == CancelCounts(*counts)
    assert states(db) == before
    assert await either.cancel_tasks(**filters) == CancelCounts(*counts)
    assert states(db) == {name: "cancelled" if name in gone else state for name, state in before.items()}
    asked = db.execute("SELECT count(*) FROM tasks WHERE state = 'running' AND cancel_requested_at IS NOT NULL")
    assert asked.fetchone() == (counts[1],)
    assert await either.cancel_tasks(**filters) == CancelCounts(0, 0), "a second time there is nothing left to do"


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({}, "would cancel every task"),
        ({"tags": {}}, "would cancel every task"),
        ({"state": "completed"}, "completed is finished"),
        ({"state": "done"}, "a state is one of"),
        ({"created_after": datetime(2020, 1, 1)}, "time zone"),
        ({"name": ""}, "name must be"),
    ],
)
async def test_cancel_without_a_condition_or_with_nonsense_is_refused(
    either: Either, filters: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidOption, match=words):
        await either.cancel_tasks(**filters)


async def test_cancel_goes_through_more_than_one_batch(
    either: Either, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CANCEL_BATCH", 10)
    db.execute("INSERT INTO tasks (name) SELECT 'w' FROM generate_series(1, 95)")
    db.execute(
        f"INSERT INTO tasks (name, {RUNNING.removesuffix(' VALUES')} "
        "SELECT 'r', 'running', 'w', now() + interval '1 h' FROM generate_series(1, 120)"
    )
    assert await either.cancel_tasks(everything=True) == CancelCounts(95, 120)


def test_cancel_never_waits_while_it_holds_a_row_and_misses_none_that_was_locked(
    client: Client, database_url: str, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO tasks (name) SELECT 'w' FROM generate_series(1, 20)")
    found: list[CancelCounts] = []
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM tasks ORDER BY id LIMIT 3 FOR UPDATE")
        cancelling = threading.Thread(target=lambda: found.append(client.cancel_tasks(name="w")))
        cancelling.start()
        until(db, "SELECT count(*) = 17 FROM tasks WHERE state = 'cancelled'")
        until(db, "SELECT count(*) = 1 FROM pg_locks WHERE NOT granted")
        # Everything but the locked rows is done and committed: no session can be waiting for this cancel.
        other.execute("SELECT FROM tasks FOR UPDATE")
    cancelling.join(120)
    assert found == [CancelCounts(20, 0)]


def until(db: psycopg.Connection, question: str) -> None:
    """Look until the answer is yes; the server's own clock ends it."""
    deadline = datetime.now(UTC) + timedelta(seconds=120)
    while not db.execute(question).fetchall()[0][0]:
        assert datetime.now(UTC) < deadline, question


def test_cancel_reads_no_finished_rows(config: Config, db: psycopg.Connection) -> None:
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    try:
        db.execute(
            "INSERT INTO tasks (name, state, completed_at) "
            "SELECT 'w', 'completed', now() FROM generate_series(1, 50000)"
        )
        db.execute("INSERT INTO tasks (name) SELECT 'w' FROM generate_series(1, 50)")
        db.execute("ANALYZE tasks")
        query = control.cancel_batch(TaskFilter(state=["failed", "pending", "running"], name="w"), 1000, by="test")
        explained = db.execute(("EXPLAIN (FORMAT JSON) " + statement(query.name, None)).encode(), query.parameters)
        scans = [n for n in nodes(explained.fetchall()[0][0][0]["Plan"]) if n.get("Relation Name") == "tasks"]
        assert {n.get("Index Name") for n in scans} >= {"tasks_claimable", "tasks_running"}
        assert "Seq Scan" not in {n["Node Type"] for n in scans}
    finally:
        db.execute("ALTER TABLE tasks ENABLE TRIGGER tasks_wake")
