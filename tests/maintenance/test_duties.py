"""The leader's duties, one by one, on real rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import psycopg
import pytest

from tasklib import Config
from tasklib.config import Retention
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import ConfigError
from tasklib.events import LeasesRescued, OverdueFailed, TasksDeleted, WorkersDied
from tasklib.maintenance.dead_letters import expire_dead_letters
from tasklib.maintenance.dead_workers import bury_dead_workers
from tasklib.maintenance.idempotency import expire_keys
from tasklib.maintenance.orphans import rescue_orphans
from tasklib.maintenance.overdue import fail_overdue
from tasklib.maintenance.retention import delete_expired
from tasklib.maintenance.snapshot import take_snapshot
from tasklib.store import fleet
from tasklib.store.fleet import Term

T = TypeVar("T")


@pytest.fixture
async def leader_db(config: Config) -> ReconnectingConnection:
    return ReconnectingConnection(config, "maintenance")


@pytest.fixture
async def term(leader_db: ReconnectingConnection) -> Term:
    term = await leader_db.run(fleet.lead("leader", 60))
    assert term is not None
    return term


async def test_silent_worker_is_dead_and_one_that_beats_is_not(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute(
        "INSERT INTO workers (id, last_heartbeat, current_load) VALUES "
        "('silent', now() - interval '91 s', 3), ('late', now() - interval '80 s', 3)"
    )
    seen = [("late", "active"), ("silent", "dead")]
    assert await bury_dead_workers(leader_db, config, term) == [WorkersDied(("silent",))]
    assert db.execute("SELECT id, status FROM workers ORDER BY id").fetchall() == seen
    assert await bury_dead_workers(leader_db, config, term) == []
    assert db.execute("SELECT id, status FROM workers ORDER BY id").fetchall() == seen, "the dead are remembered"


async def test_a_worker_that_has_been_silent_for_days_is_declared_dead_before_it_is_forgotten(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute("INSERT INTO workers (id, last_heartbeat) VALUES ('away', now() - interval '3 days')")
    assert await bury_dead_workers(leader_db, config, term) == [WorkersDied(("away",))]
    assert db.execute("SELECT id, status FROM workers").fetchall() == [("away", "dead")]


async def test_dead_worker_is_forgotten_once_nothing_is_left_of_it(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute(
        "INSERT INTO workers (id, reported_status, last_heartbeat) VALUES ('old', 'dead', now() - interval '2 days'), "
        "('owner', 'dead', now() - interval '2 days')"
    )
    db.execute("INSERT INTO tasks (name, state, worker_id, locked_until) VALUES ('t', 'running', 'owner', now())")
    await bury_dead_workers(leader_db, config, term)
    assert db.execute("SELECT id FROM workers").fetchall() == [("owner",)], "its task has not been rescued yet"


async def test_tasks_of_a_dead_worker_are_rescued_before_their_lease_ends_and_those_of_a_live_one_never(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute("INSERT INTO workers (id, reported_status) VALUES ('dead', 'dead'), ('alive', 'active')")
    db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until, started_at) VALUES "
        "('lost', 'running', 'dead', now() + interval '10 min', now()), "
        "('long', 'running', 'alive', now() + interval '1 s', now() - interval '9 days')"
    )
    [event] = await rescue_orphans(leader_db, config, term)
    assert isinstance(event, LeasesRescued)
    assert [(name, state) for _, name, state in event.tasks] == [("lost", "failed")]
    row = db.execute("SELECT retry_count, crash_count, error FROM tasks WHERE name = 'lost'").fetchone()
    assert row is not None
    assert row[:2] == (0, 1), "it uses no retry"
    assert "worker dead was lost in attempt 1" in row[2]
    assert db.execute("SELECT state FROM tasks WHERE name = 'long'").fetchone() == ("running",)


async def test_more_orphans_than_one_batch_are_all_rescued(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until) "
        "SELECT 'lost', 'running', 'gone', now() - interval '1 s' FROM generate_series(1, 1234)"
    )
    [event] = await rescue_orphans(leader_db, config, term)
    assert isinstance(event, LeasesRescued)
    assert len(event.tasks) == 1234


class CountedRuns(ReconnectingConnection):
    """Counts its statements."""

    statements = 0

    async def run(self, query: Query[T], then: Callable[[T], None] | None = None) -> T:
        self.statements += 1
        return await super().run(query, then)


async def test_the_batches_of_a_rescue_grow_so_that_ten_thousand_lost_tasks_take_few_statements(
    config: Config, db: psycopg.Connection, term: Term
) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until) "
        "SELECT 'lost', 'running', 'gone', now() - interval '1 s' FROM generate_series(1, 10000)"
    )
    leader_db = CountedRuns(config, "maintenance")
    [event] = await rescue_orphans(leader_db, config, term)
    assert isinstance(event, LeasesRescued)
    assert len(event.tasks) == 10_000
    assert leader_db.statements == 5, "500, 1,000, 2,000, 4,000 and the rest"


async def test_more_overdue_attempts_than_one_batch_are_all_failed_in_one_round(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute("INSERT INTO workers (id) VALUES ('wedged')")
    db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until, started_at, timeout_seconds, begun_token) "
        "SELECT 'over', 'running', 'wedged', now() + interval '1 h', now() - interval '1 h', 10, 0 "
        "FROM generate_series(1, 1234)"
    )
    [event] = await fail_overdue(leader_db, config, term)
    assert isinstance(event, OverdueFailed)
    assert len(event.tasks) == 1234


async def test_attempt_on_record_past_its_timeout_whose_worker_does_not_act_is_failed(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute("INSERT INTO workers (id) VALUES ('wedged')")
    db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until, started_at, timeout_seconds, begun_token) VALUES "
        "('over', 'running', 'wedged', now() + interval '1 h', now() - interval '41 s', 10, 0), "
        "('within grace', 'running', 'wedged', now() + interval '1 h', now() - interval '39 s', 10, 0), "
        "('no timeout', 'running', 'wedged', now() + interval '1 h', now() - interval '9 h', NULL, 0)"
    )
    db.execute(
        "INSERT INTO tasks (name, state, started_at, timeout_seconds, completed_at, next_retry_at) VALUES "
        "('ended in time', 'completed', now() - interval '9 h', 10, now() - interval '8 h', NULL), "
        "('waits again', 'failed', now() - interval '9 h', 10, NULL, now() + interval '1 h')"
    )
    [event] = await fail_overdue(leader_db, config, term)
    assert isinstance(event, OverdueFailed)
    assert [(name, state) for _, name, state in event.tasks] == [("over", "failed")]
    row = db.execute(
        "SELECT retry_count, crash_count, timeout_seconds, error FROM tasks WHERE name = 'over'"
    ).fetchone()
    assert row is not None
    assert row[:3] == (1, 0, 15)
    assert "longer than its timeout of 10 s, and worker wedged did not end it" in row[3]


async def test_expired_keys_are_freed_and_others_stay(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute(
        "INSERT INTO tasks (name, idempotency_key, idempotency_expires_at) "
        "SELECT 't', 'old' || n, now() - interval '1 s' FROM generate_series(1, 2100) n"
    )
    db.execute("INSERT INTO tasks (name, idempotency_key) VALUES ('t', 'new')")
    await expire_keys(leader_db, config, term)
    assert db.execute("SELECT idempotency_key FROM tasks WHERE idempotency_key IS NOT NULL").fetchall() == [("new",)]


async def test_dead_letters_are_deleted_after_their_days_unless_kept(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, completed_at) VALUES "
        "('old', 'dead_letter', now() - interval '31 days'), ('new', 'dead_letter', now() - interval '29 days'), "
        "('done', 'completed', now() - interval '300 days')"
    )
    assert await expire_dead_letters(leader_db, config.with_changes(dead_letter_days=None), term) == []
    assert await expire_dead_letters(leader_db, config, term) == [TasksDeleted("dead_letter", 1)]
    assert {r[0] for r in db.execute("SELECT name FROM tasks").fetchall()} == {"new", "done"}


def _finished(db: psycopg.Connection, name: str, state: str, age: timedelta, count: int = 1) -> None:
    """Finished tasks whose id was made when they were submitted, as ids are."""
    db.execute(
        """INSERT INTO tasks (id, name, state, completed_at, created_at)
        SELECT (lpad(to_hex((extract(epoch FROM now() - %(age)s) * 1000)::bigint), 12, '0') || '7000'
                || right(gen_random_uuid()::text, 17))::uuid, %(name)s, %(state)s, now() - %(age)s, now() - %(age)s
        FROM generate_series(1, %(count)s)""",
        {"name": name, "state": state, "age": age, "count": count},
    )


async def test_finished_tasks_stay_unless_retention_is_configured(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    _finished(db, "a", "completed", timedelta(days=1000), 5)
    assert await delete_expired(leader_db, config, term) == []
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (5,)


async def test_retention_is_per_state_and_name_and_its_pages_pass_over_what_stays(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    _finished(db, "kept", "cancelled", timedelta(days=99), 1500)
    _finished(db, "a", "completed", timedelta(days=9), 2500)
    _finished(db, "a", "completed", timedelta(days=6), 3)
    _finished(db, "ping", "completed", timedelta(days=2), 4)
    _finished(db, "ping", "completed", timedelta(hours=2), 5)
    rules = (Retention("completed", days=7), Retention("completed", days=1, name="ping"))
    events = await delete_expired(leader_db, config.with_changes(retention=rules), term)
    assert events == [TasksDeleted("completed", 2500), TasksDeleted("completed", 4)]
    left = db.execute("SELECT name, count(*) FROM tasks GROUP BY name ORDER BY name").fetchall()
    assert left == [("a", 3), ("kept", 1500), ("ping", 5)]


async def test_a_name_with_a_rule_of_its_own_is_kept_as_long_as_that_says(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    _finished(db, "invoice", "completed", timedelta(days=30), 2)
    rules = (Retention("completed", days=7), Retention("completed", days=99, name="invoice"))
    assert await delete_expired(leader_db, config.with_changes(retention=rules), term) == []
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (2,)


def test_retention_of_what_is_not_finished_is_refused() -> None:
    with pytest.raises(ConfigError, match="retention is for finished tasks"):
        Retention("running", days=1)


async def test_snapshot_counts_what_waits_by_level(
    config: Config, db: psycopg.Connection, leader_db: ReconnectingConnection, term: Term
) -> None:
    db.execute(
        "INSERT INTO tasks (name, priority, scheduled_at) SELECT 't', p, now() - interval '60 s' "
        "FROM (VALUES (100), (100), (50), (0), (-5)) v(p)"
    )
    db.execute("INSERT INTO tasks (name, scheduled_at) VALUES ('later', now() + interval '1 h')")
    db.execute("INSERT INTO workers (id, capacity, current_load) VALUES ('w', 10, 4)")
    await take_snapshot(leader_db, config, term)
    row = db.execute("SELECT figures FROM snapshots").fetchone()
    assert row is not None
    figures = row[0]
    assert {level: q["depth"] for level, q in figures["queues"].items()} == {"high": 2, "medium": 2, "low": 1}
    assert 59 < figures["queues"]["high"]["oldest_age_seconds"] < 1000
    assert figures["workers"]["active"] == {"count": 1, "capacity": 10, "load": 4}
