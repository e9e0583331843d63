"""A database of TaskLib 0.1.0: refused by name, and carried over once with every row in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tasklib import Client, Config, Worker, migrations, task
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import SchemaError
from tasklib.maintenance.orphans import rescue_orphans
from tasklib.migrations import carry_over, check, from_0_1, migrate, pending
from tasklib.migrations.revisions import head
from tasklib.sql import DUE, quoted
from tasklib.store import fleet
from tests.migrations.catalogue import SCHEMA_0_1_0, SNAPSHOT, catalogue, everything

ODD = 'We%ird "sch:ema"'

FILL = """
INSERT INTO workers (id, status, last_heartbeat, names) VALUES
    ('gone', 'active', now() - interval '10 minutes', '{old.add}'), ('buried', 'dead', now(), '{old.add}');
INSERT INTO tasks (name, kwargs, priority) SELECT 'old.add', jsonb_build_object('a', n), n FROM generate_series(0, 4) n;
INSERT INTO tasks (name, scheduled_at, tags) VALUES ('old.add', now() + interval '1 day', '{"due": "later"}');
INSERT INTO tasks (name, state, next_retry_at, retry_count, error, history) VALUES
    ('old.add', 'failed', now() - interval '1 minute', 1, 'ValueError: no', '[{"attempt": 1}]');
INSERT INTO tasks (name, state, worker_id, locked_until, started_at, lease_token) VALUES
    ('old.add', 'running', 'gone', now() - interval '5 minutes', now() - interval '6 minutes', 1),
    ('old.add', 'running', 'buried', now() + interval '5 minutes', now(), 3);
INSERT INTO tasks (name, state, completed_at, result) VALUES ('old.add', 'completed', now(), '{"value": 12}');
INSERT INTO tasks (name, state, completed_at, cancel_requested_at) VALUES ('old.add', 'cancelled', now(), now());
INSERT INTO tasks (name, state, completed_at, retry_count, error) VALUES
    ('old.add', 'dead_letter', now(), 3, 'ValueError: no');
INSERT INTO tasks (name, idempotency_key, idempotency_expires_at, scheduled_at) VALUES
    ('old.key', 'held', now() + interval '1 hour', now() + interval '1 day'),
    ('old.key', 'over', now() - interval '1 hour', now() + interval '1 day');
-- What 0.1.0 let in by hand and the new constraints don't.
INSERT INTO tasks (name, scheduled_at, lease_token, retry_count, required_capabilities) VALUES
    ('old.odd', 'infinity', -5, 2000000000, '{{a,b},{c,d}}');
UPDATE settings SET promote_to_high_after_seconds = 'infinity';
INSERT INTO pauses (kind, value) VALUES ('queue', 'mail');
INSERT INTO leadership (holder, term, expires_at) VALUES ('gone', 41, now());
INSERT INTO snapshots (taken_at, figures) VALUES (now(), '{}');
INSERT INTO api_tokens (name, prefix, hash, roles, created_by) VALUES ('ci', 'tl_1', sha256('x'), '{admin}', 'me');
INSERT INTO audit (actor, action, target) SELECT 'me', 'pause', 'queue:' || n FROM generate_series(1, 3) n;
INSERT INTO tally_deltas (outcome, count) VALUES ('completed', 5), ('completed', 5);
INSERT INTO tallies VALUES (0, to_timestamp(0), '', '', '', 'completed', '', 7, 0, 0, '{}', '{}');
INSERT INTO depths VALUES (now(), 'default', 'medium', 3, false, 1);
"""
ROWS = {
    "tasks": 15,
    "worker_registrations": 2,
    "leadership": 1,
    "pauses": 1,
    "settings": 1,
    "stats_deltas": 2,
    "stats": 1,
    "depths": 1,
    "api_tokens": 1,
    "audit": 3,
}


@pytest.fixture
def config(empty_database_url: str) -> Config:
    return Config(empty_database_url)


@pytest.fixture
def db(empty_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def make_0_1(db: psycopg.Connection) -> Callable[..., None]:
    """`make_0_1()`: the tables of 0.1.0 in a schema, as far as a revision, filled if it is the last."""

    def make(schema: str = "public", revision: str = "0006") -> None:
        prefix = quoted(schema)
        parts = re.split(r"^-- ==== (\d{4}) ====\n", SCHEMA_0_1_0.read_text(), flags=re.MULTILINE)[1:]
        text = "".join(t for r, t in zip(parts[::2], parts[1::2], strict=True) if r <= revision)
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {prefix}; SET search_path = {prefix}".encode())
        db.execute(
            "CREATE TABLE tasklib_version (version_num varchar(32) NOT NULL, "
            "CONSTRAINT tasklib_version_pkc PRIMARY KEY (version_num))"
        )
        db.execute(text.replace("{due}", DUE).replace("{schema.}", f"{prefix}.").encode())
        db.execute("INSERT INTO tasklib_version VALUES (%s)", [revision])
        db.execute(FILL if revision == "0006" else "INSERT INTO tasks (name) VALUES ('old.add')")

    return make


def contents(db: psycopg.Connection, *tables: str) -> dict[str, Any]:
    """Every row of these tables by its columns' names."""
    return {t: db.execute(f"SELECT to_jsonb(t) FROM {t} t ORDER BY t::text".encode()).fetchall() for t in tables}


# ---- refused ----


@pytest.mark.parametrize(("schema", "revision"), [(None, "0001"), (None, "0006"), ("jobs", "0006")])
def test_tables_of_0_1_0_are_refused_untouched_with_the_command_to_run(
    schema: str | None, revision: str, config: Config, db: Any, make_0_1: Callable[..., None]
) -> None:
    make_0_1(schema or "public", revision)
    before = everything(db), catalogue(db, schema or "public"), contents(db, "tasks")
    option = r" --schema jobs" if schema else ""
    for look in (migrate, pending, check):
        with pytest.raises(
            SchemaError,
            match=rf"^TaskLib 0\.1\.0 made the tables in .* \(revision {revision}\)\. Nothing was changed\. "
            rf"Stop its workers and servers, then carry its tasks over with: tasklib migrate --from-0\.1{option}$",
        ):
            look(config.with_changes(schema=schema))
    assert (everything(db), catalogue(db, schema or "public"), contents(db, "tasks")) == before


def test_only_tables_of_0_1_0_are_carried_over(config: Config, db: Any) -> None:
    before = everything(db)
    with pytest.raises(SchemaError, match=r"^there is nothing to carry over: .*none of TaskLib at all\)"):
        carry_over(config.with_changes(schema="jobs"))
    assert everything(db) == before
    migrate(config)
    with pytest.raises(SchemaError, match=rf"^there is nothing to carry over: .*it is at revision {head()}\)"):
        carry_over(config)


def test_a_live_worker_of_0_1_0_stops_the_carrying_over(config: Config, db: Any, make_0_1: Callable[..., None]) -> None:
    make_0_1()
    db.execute("INSERT INTO workers (id) VALUES ('web-1')")
    before = catalogue(db), contents(db, "tasks", "workers", "tasklib_version")
    with pytest.raises(SchemaError, match=r"^1 workers of TaskLib 0\.1\.0 were alive .*: web-1\. Nothing was changed"):
        carry_over(config)
    assert (catalogue(db), contents(db, "tasks", "workers", "tasklib_version")) == before


def test_a_view_of_another_program_on_the_old_tables_stops_the_carrying_over(
    config: Config, db: Any, make_0_1: Callable[..., None]
) -> None:
    make_0_1()
    db.execute("CREATE VIEW my_report AS SELECT name, count(*) FROM tasks GROUP BY name")
    before = catalogue(db), contents(db, "tasks")
    with pytest.raises(SchemaError, match=r"depend on its old tables: view .*my_report.* Nothing was changed"):
        carry_over(config)
    assert (catalogue(db), contents(db, "tasks")) == before


def test_a_carrying_over_that_breaks_off_at_its_end_changes_nothing(
    config: Config, db: Any, make_0_1: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_0_1()
    before = catalogue(db), everything(db), contents(db, "tasks", "audit", "tasklib_version")

    def copy_and_break(*args: Any) -> None:
        real(*args)
        raise RuntimeError("the power failed")

    real = from_0_1.copy
    monkeypatch.setattr(from_0_1, "copy", copy_and_break)
    with pytest.raises(RuntimeError, match="the power failed"):
        carry_over(config)
    assert (catalogue(db), everything(db), contents(db, "tasks", "audit", "tasklib_version")) == before


# ---- carried over ----


@pytest.mark.parametrize("schema", [None, "jobs", ODD])
def test_after_the_carrying_over_the_schema_is_the_same_as_a_fresh_one(
    schema: str | None, config: Config, db: Any, make_0_1: Callable[..., None]
) -> None:
    make_0_1(schema or "public")
    there = config.with_changes(schema=schema)
    assert carry_over(there) == ROWS
    assert catalogue(db, schema or "public") == SNAPSHOT.read_text()
    check(there)
    assert migrate(there) == ()


@pytest.mark.parametrize("revision", ["0001", "0002", "0004"])
def test_a_database_that_0_1_0_had_not_finished_migrating_is_carried_over_too(
    revision: str, config: Config, db: Any, make_0_1: Callable[..., None]
) -> None:
    make_0_1(revision=revision)
    ids = db.execute("SELECT id FROM tasks").fetchall()
    assert carry_over(config)["tasks"] == 1
    assert catalogue(db) == SNAPSHOT.read_text()
    assert db.execute("SELECT id FROM tasks").fetchall() == ids
    assert db.execute("SELECT count(*) FROM settings").fetchone() == (1,)


def test_every_row_is_carried_over_as_it_was(config: Config, db: Any, make_0_1: Callable[..., None]) -> None:
    make_0_1()
    same = ("tasks", "leadership", "pauses", "depths", "api_tokens", "audit")
    before = contents(db, *same, "workers", "tallies", "tally_deltas")
    carry_over(config)
    after = contents(db, *same, "worker_registrations", "stats", "stats_deltas")

    def rows(found: list[tuple[dict[str, Any]]], like: list[tuple[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The rows with the columns that 0.1.0 knew, in one order, but for the one that had to change."""
        known = {column for (row,) in like for column in row}
        kept = ({k: v for k, v in row.items() if k in known} for (row,) in found if row.get("name") != "old.odd")
        return sorted(kept, key=lambda row: sorted((k, str(v)) for k, v in row.items()))

    renamed = {"status": "reported_status", "tallied": "counted"}
    before["workers"] = [({renamed.get(k, k): v for k, v in row.items()},) for (row,) in before["workers"]]
    names = {"worker_registrations": "workers", "stats": "tallies", "stats_deltas": "tally_deltas"}
    for table, found in after.items():
        old = before[names.get(table, table)]
        assert rows(found, old) == rows(old, old), table


def test_values_that_are_out_of_bounds_now_become_the_nearest_within(
    config: Config, db: Any, make_0_1: Callable[..., None]
) -> None:
    make_0_1()
    carry_over(config)
    (odd,) = Client(config).list_tasks(name="old.odd")
    assert (odd.scheduled_at.year, odd.lease_token, odd.retry_count) == (9999, 0, 1_000_000_000)
    assert odd.required_capabilities == ["a", "b", "c", "d"]
    assert db.execute("SELECT promote_to_high_after_seconds FROM settings").fetchone() == (31_536_000_000,)


def test_carried_tasks_are_listed_run_rescued_and_replayed(
    config: Config, db: Any, make_0_1: Callable[..., None]
) -> None:
    @task(name="old.add")
    async def add(a: int = 40, b: int = 2) -> int:
        return a + b

    make_0_1()
    due = "SELECT id FROM tasks WHERE name = 'old.add' AND scheduled_at <= now() AND state = %s ORDER BY id"
    states = ("pending", "failed", "running", "dead_letter", "completed")
    ids = {state: [found for (found,) in db.execute(due, [state])] for state in states}
    carry_over(config)

    async def rescue() -> None:
        connection = ReconnectingConnection(config, "control")
        term = await connection.run(fleet.lead("the test", 60))
        assert term is not None
        assert term.number == 42  # the terms go on
        await rescue_orphans(connection, config, term)
        await connection.run(fleet.resign("the test"))
        connection.drop()

    asyncio.run(rescue())
    with Client(config) as client:
        assert len(client.list_tasks()) == ROWS["tasks"]
        assert client.wait_for(ids["completed"][0]) == 12
        assert [letter.id for letter in client.dead_letters()] == ids["dead_letter"]
        client.replay_task(ids["dead_letter"][0])
        Worker(config, burst=True).run_sync()
        assert [client.wait_for(i) for i in ids["pending"]] == [2, 3, 4, 5, 6]
        for state in ("failed", "running", "dead_letter"):
            assert [client.wait_for(i) for i in ids[state]] == [42] * len(ids[state]), state
        assert [p.value for p in client.pauses()] == ["mail"]
        assert [t.name for t in client.tokens()] == ["ci"]


def test_carried_keys_still_hold_and_still_expire(config: Config, db: Any, make_0_1: Callable[..., None]) -> None:
    make_0_1()
    (held,) = db.execute("SELECT id FROM tasks WHERE idempotency_key = 'held'").fetchone()
    (over,) = db.execute("SELECT id FROM tasks WHERE idempotency_key = 'over'").fetchone()
    carry_over(config)
    with Client(config) as client:
        assert client.submit_task("old.key", idempotency_key="held", registered_elsewhere=True) == held
        assert client.submit_task("old.key", idempotency_key="over", registered_elsewhere=True) != over


def test_the_audit_counts_on_and_stays_protected(config: Config, db: Any, make_0_1: Callable[..., None]) -> None:
    make_0_1()
    carry_over(config)
    with Client(config) as client:
        client.pause(queue="later")
        assert [record.id for record in client.audit()] == [4, 3, 2, 1]
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        db.execute("DELETE FROM audit")


@pytest.mark.direct(reason="PgBouncer takes no options in a URL")
def test_the_new_tables_are_made_where_the_old_ones_are(config: Config, db: Any, make_0_1: Callable[..., None]) -> None:
    make_0_1("app")
    db.execute("CREATE SCHEMA first")
    there = Config(psycopg.conninfo.make_conninfo(config.database_url, options="-c search_path=first,app"))
    assert carry_over(there) == ROWS
    assert catalogue(db, "app") == SNAPSHOT.read_text()
    assert db.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'first'::regnamespace").fetchone() == (0,)


def test_two_processes_at_once_carry_over_once(
    config: Config, db: Any, make_0_1: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Between this process's first look and its lock, another one carries everything over.
    make_0_1()
    prepare = migrations._prepare

    def prepare_late(*args: Any) -> None:
        monkeypatch.setattr(migrations, "_prepare", prepare)
        args[0].rollback()
        carry_over(config)
        prepare(*args)

    monkeypatch.setattr(migrations, "_prepare", prepare_late)
    with pytest.raises(SchemaError, match="nothing to carry over"):
        carry_over(config)
    assert catalogue(db) == SNAPSHOT.read_text()
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (ROWS["tasks"],)
