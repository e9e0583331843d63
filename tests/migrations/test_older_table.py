"""A table of tasks that an earlier library made: refused by name, and its tasks taken over with none of them lost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from tasklib import Client, Config, Task, Worker, migrations, task
from tasklib.errors import SchemaError
from tasklib.migrations import check, migrate, older_table, take_over
from tests.migrations.catalogue import SNAPSHOT, catalogue, everything

TABLE = """
CREATE TABLE tasks (
    id UUID NOT NULL PRIMARY KEY, name VARCHAR NOT NULL, state VARCHAR NOT NULL, scheduled_at TIMESTAMP NOT NULL,
    started_at TIMESTAMP, completed_at TIMESTAMP, created_at TIMESTAMP NOT NULL, args JSONB NOT NULL DEFAULT '{}',
    kwargs JSONB NOT NULL, result JSONB, error TEXT, retry_count INTEGER NOT NULL DEFAULT 0,
    max_retries INTEGER NOT NULL, next_retry_at TIMESTAMP, worker_id VARCHAR, locked_until TIMESTAMP,
    timeout_seconds INTEGER, priority INTEGER NOT NULL DEFAULT 0, tags JSONB NOT NULL DEFAULT '{}');
CREATE INDEX ix_tasks_state ON tasks (state);
CREATE INDEX ix_tasks_name ON tasks (name);
"""
ROW = (
    "INSERT INTO tasks (id, name, state, scheduled_at, created_at, max_retries, kwargs) "
    "VALUES ('550e8400-e29b-41d4-a716-4466554400%s', 'old.double', %s, '2025-10-25 18:00', '2025-10-25 17:00', 3, %s)"
)
TASKS: dict[str, tuple[str, str]] = {
    # The state before and what else a row had; the state after.
    "waits": ("pending", 'priority = 5, timeout_seconds = 30, tags = \'{"batch": "daily"}\''),
    "ran": ("running", "worker_id = 'w', locked_until = '2025-10-25 18:15', started_at = '2025-10-25 18:05'"),
    "done": ("completed", "completed_at = '2025-10-25 18:06', result = '{\"value\": true}'"),
    "bare": ("completed", "completed_at = '2025-10-25 18:06', result = '[1]'"),
    "none": ("completed", "started_at = '2025-10-25 18:05'"),
    "retries": ("failed", "retry_count = 1, error = 'SMTPException', next_retry_at = '2025-10-25 18:10'"),
    "left": ("failed", "retry_count = 1, error = 'SMTPException'"),
    "over": ("failed", "retry_count = 3, error = 'ValidationError', completed_at = '2025-10-25 18:21'"),
    "odd": ("pending", "priority = 5000, timeout_seconds = 0, max_retries = -1, scheduled_at = 'infinity'"),
}
AFTER = {"completed": 3, "dead_letter": 1, "failed": 2, "pending": 3}


@pytest.fixture
def config(empty_database_url: str) -> Config:
    return Config(empty_database_url, dead_letter_days=None)


@pytest.fixture
def db(empty_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def ids(db: psycopg.Connection) -> dict[str, str]:
    """The table, filled; and the id of each row by its name in TASKS."""
    db.execute(TABLE)
    made = {}
    for number, (what, (state, others)) in enumerate(TASKS.items(), 10):
        made[what] = f"550e8400-e29b-41d4-a716-4466554400{number}"
        db.execute(ROW.replace("%s", str(number), 1).encode(), [state, f'{{"n": {number}}}'])
        db.execute(f"UPDATE tasks SET {others} WHERE id = '{made[what]}'".encode())
    return made


def rows_of(db: psycopg.Connection, table: str) -> list[Any]:
    return db.execute(f"SELECT to_jsonb(t) FROM {table} t ORDER BY t::text".encode()).fetchall()


def found(config: Config, id_: str) -> Task:
    with Client(config) as client:
        task = client.get_task(id_)
    assert task is not None
    return task


# ---- refused ----


@pytest.mark.parametrize("schema", [None, "public"])
def test_migrate_refuses_the_table_untouched_and_names_the_command_that_takes_its_tasks(
    schema: str | None, config: Config, db: psycopg.Connection, ids: dict[str, str]
) -> None:
    before = everything(db), catalogue(db), rows_of(db, "tasks")
    named = r"--take-over public\.tasks --schema public" if schema else r"--take-over public\.tasks"
    for look in (migrate, check):
        with pytest.raises(
            SchemaError, match=rf"not touched\. .*To run the tasks that are in it: tasklib migrate {named}$"
        ):
            look(config.with_changes(schema=schema))
    assert (everything(db), catalogue(db), rows_of(db, "tasks")) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("ALTER TABLE tasks DROP max_retries, DROP kwargs", r"is no table of tasks: it has no kwargs, max_retries\."),
        ("UPDATE tasks SET state = 'asleep' WHERE state = 'completed'", "in states that TaskLib doesn't know: asleep"),
        ("UPDATE tasks SET args = '[1, 2]' WHERE state = 'completed'", "has 3 tasks with something in args"),
        (
            "ALTER TABLE tasks DROP CONSTRAINT tasks_pkey; INSERT INTO tasks TABLE tasks LIMIT 2",
            "has 2 rows without an",
        ),
        ("UPDATE tasks SET kwargs = '[]' WHERE state = 'running'", "can't be a task of TaskLib: .*kwargs_is_object"),
        ("ALTER TABLE tasks ALTER created_at TYPE text", "created_at of the old table is of type text, not timestamp"),
        (
            "UPDATE tasks SET locked_until = timezone('UTC', now()) + interval '5 minutes' WHERE state = 'running'",
            r"1 tasks of public\.tasks are running under leases that have not ended.* SET locked_until = NULL",
        ),
        ("CREATE TABLE before_tasklib_tasks ()", "would become public.before_tasklib_tasks, and that is there already"),
    ],
)
def test_what_cannot_be_taken_over_whole_is_refused_and_nothing_is_changed(
    change: str, said: str, config: Config, db: psycopg.Connection, ids: dict[str, str]
) -> None:
    db.execute(change.encode())
    before = everything(db), catalogue(db), rows_of(db, "tasks")
    with pytest.raises(SchemaError, match=said):
        take_over(config, "tasks")
    assert (everything(db), catalogue(db), rows_of(db, "tasks")) == before


def test_a_table_that_is_not_there_and_one_of_tasklib_are_refused(config: Config, db: psycopg.Connection) -> None:
    with pytest.raises(SchemaError, match=r"there is no table 'public\.tasks' to take tasks over from"):
        take_over(config, "public.tasks")
    migrate(config)
    with pytest.raises(SchemaError, match=r"public\.tasks is a table of TaskLib itself"):
        take_over(config, "public.tasks")


def test_a_time_zone_that_there_is_not_is_refused(config: Config, db: psycopg.Connection, ids: dict[str, str]) -> None:
    with pytest.raises(SchemaError, match="knows no time zone 'Middle/Earth'"):
        take_over(config, "tasks", time_zone="Middle/Earth")
    assert len(rows_of(db, "tasks")) == len(TASKS)


# ---- taken over ----


def test_a_table_with_the_name_of_ours_is_renamed_and_stays_with_every_row(
    config: Config, db: psycopg.Connection, ids: dict[str, str]
) -> None:
    before = rows_of(db, "tasks")
    assert take_over(config, "tasks") == older_table.TakenOver(AFTER, "public.before_tasklib_tasks")
    assert rows_of(db, "before_tasklib_tasks") == before
    db.execute("DROP TABLE before_tasklib_tasks")
    assert catalogue(db) == SNAPSHOT.read_text()
    assert migrate(config) == ()


@pytest.mark.parametrize("migrated", [False, True])
def test_a_table_elsewhere_stays_as_it_is_and_can_be_taken_over_again(
    migrated: bool, config: Config, db: psycopg.Connection, ids: dict[str, str]
) -> None:
    inside = config.with_changes(schema="jobs")
    if migrated:
        migrate(inside)
    before = rows_of(db, "tasks")
    assert take_over(inside, "public.tasks") == older_table.TakenOver(AFTER, "public.tasks")
    db.execute("UPDATE jobs.tasks SET priority = 7")
    db.execute(ROW.replace("%s", "99", 1).encode(), ["pending", "{}"])
    assert take_over(inside, "public.tasks").states == {"pending": 1}
    db.execute("DELETE FROM tasks WHERE id = '550e8400-e29b-41d4-a716-446655440099'")
    assert rows_of(db, "tasks") == before
    assert db.execute("SELECT count(*) FILTER (WHERE priority = 7), count(*) FROM jobs.tasks").fetchone() == (
        len(TASKS),
        len(TASKS) + 1,
    )
    check(inside)


def test_tasks_that_were_taken_over_run_are_retried_and_replayed_with_what_they_had(
    config: Config, db: psycopg.Connection, ids: dict[str, str]
) -> None:
    @task(name="old.double")
    async def double(n: int) -> int:
        return 2 * n

    take_over(config, "tasks")
    with Client(config) as client:
        waits = found(config, ids["waits"])
        assert (waits.priority, waits.timeout_seconds, waits.tags) == (5, 30, {"batch": "daily"})
        assert waits.created_at == datetime(2025, 10, 25, 17, tzinfo=UTC)
        assert [found(config, ids[each]).result for each in ("done", "bare", "none")] == [True, [1], None]
        odd = found(config, ids["odd"])
        assert (odd.priority, odd.timeout_seconds, odd.max_retries, odd.scheduled_at.year) == (100, None, 0, 9999)
        assert [str(letter.id) for letter in client.dead_letters()] == [ids["over"]]
        client.replay_task(ids["over"])
        Worker(config, burst=True).run_sync()
        for number, what in enumerate(TASKS, 10):
            if what in ("waits", "ran", "retries", "left", "over"):
                assert client.wait_for(ids[what]) == 2 * number, what


def test_times_without_a_zone_are_read_in_the_one_that_was_named(
    config: Config, db: psycopg.Connection, ids: dict[str, str]
) -> None:
    take_over(config, "tasks", time_zone="Asia/Tokyo")
    assert found(config, ids["waits"]).created_at == datetime(2025, 10, 25, 8, tzinfo=UTC)


def test_a_table_with_fewer_columns_and_others_of_its_own_is_taken_over_and_says_what_is_left(
    config: Config, db: psycopg.Connection, ids: dict[str, str]
) -> None:
    db.execute("ALTER TABLE tasks DROP tags, DROP priority, DROP worker_id, DROP locked_until, DROP args")
    db.execute("ALTER TABLE tasks ADD customer text, ALTER kwargs TYPE json, ALTER id TYPE text")
    db.execute("ALTER TABLE tasks ALTER created_at TYPE timestamptz USING created_at AT TIME ZONE 'UTC'")
    taken = take_over(config, "tasks", time_zone="Asia/Tokyo")
    assert (taken.states, taken.left) == (AFTER, ("customer",))
    waits = found(config, ids["waits"])
    assert (waits.tags, waits.priority, waits.created_at.hour, waits.scheduled_at.hour) == ({}, 0, 17, 9)


def test_a_taking_over_that_breaks_off_at_its_end_changes_nothing(
    config: Config, db: psycopg.Connection, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_and_break(*args: Any) -> None:
        real(*args)
        raise RuntimeError("the power failed")

    before = catalogue(db), everything(db), rows_of(db, "tasks")
    real = older_table.copy
    monkeypatch.setattr(older_table, "copy", copy_and_break)
    with pytest.raises(RuntimeError, match="the power failed"):
        take_over(config, "tasks")
    assert (catalogue(db), everything(db), rows_of(db, "tasks")) == before


def test_of_two_who_take_over_at_once_one_does(
    config: Config, db: psycopg.Connection, ids: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = older_table.lock

    def lock_late(*args: Any) -> None:
        monkeypatch.setattr(older_table, "lock", lock)
        args[0].rollback()
        migrations.take_over(config, "tasks")
        lock(*args)

    monkeypatch.setattr(older_table, "lock", lock_late)
    with pytest.raises(SchemaError, match="is a table of TaskLib itself"):
        take_over(config, "tasks")
    assert len(rows_of(db, "tasks")) == len(TASKS)
