"""Migrations: fresh, again, all at once, in any schema, and never in anybody else's way."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy import create_engine, inspect

from tasklib import Client, Config, Task
from tasklib.addresses import MAX_SCHEMA_BYTES
from tasklib.columns import TASK_COLUMNS
from tasklib.errors import SchemaError
from tasklib.migrations import check, migrate, pending, revisions, script
from tasklib.tasks.ids import shard_of
from tests.migrations.catalogue import SNAPSHOT, catalogue, everything

ODD_NAMES = ['Weird "schema"', "100%", "a:b", "a.b", "{due}", "sélect ünion", "select", " ", "x" * MAX_SCHEMA_BYTES]


@pytest.fixture
def config(empty_database_url: str) -> Config:
    return Config(empty_database_url)


@pytest.fixture
def db(empty_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection


# ---- fresh, and again ----


def test_a_fresh_database_gets_every_revision_once(config: Config) -> None:
    assert pending(config) == revisions.known()
    assert migrate(config) == revisions.known()
    assert pending(config) == ()
    check(config)


def test_migrating_again_changes_nothing(config: Config, db: Any) -> None:
    migrate(config)
    with Client(config) as client:
        client.submit_task("a", registered_elsewhere=True)
    before = catalogue(db), everything(db), db.execute("SELECT tasks::text FROM tasks").fetchall()
    assert migrate(config) == ()
    assert (catalogue(db), everything(db), db.execute("SELECT tasks::text FROM tasks").fetchall()) == before


def test_looking_changes_nothing(config: Config, db: Any) -> None:
    before = everything(db)
    assert pending(config) == revisions.known()
    with pytest.raises(SchemaError, match=r"^TaskLib's tables are not in this database\. Create them with: tasklib"):
        check(config)
    assert everything(db) == before


def test_the_schema_is_the_committed_snapshot(config: Config, db: Any) -> None:
    migrate(config)
    assert catalogue(db) == SNAPSHOT.read_text(), "see tests/migrations/catalogue.py for how to regenerate it"


def test_revisions_are_numbered_without_gaps_and_follow_each_other() -> None:
    start = int(revisions.REVISIONS_0_1[-1]) + 1
    assert revisions.known() == tuple(f"{i:04}" for i in range(start, start + len(revisions.known())))
    assert revisions.head() == revisions.known()[-1]
    assert revisions.missing_after(None) == revisions.known()
    assert revisions.missing_after(revisions.head()) == ()


def test_a_database_that_lacks_a_revision_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revisions, "known", lambda: ("0007", "0008", "0009"))
    with pytest.raises(
        SchemaError,
        match=r"^schema 'jobs' is at revision 0007 and lacks 0008, 0009\. Bring it up to date with: tasklib migrate$",
    ):
        revisions.require_current("0007", "jobs")
    revisions.require_current("0009", "jobs")


def test_every_table_has_a_primary_key(config: Config, db: Any) -> None:
    migrate(config)
    without = """
        SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
          AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)"""
    assert db.execute(without).fetchall() == []


# ---- all at once ----


def test_ten_threads_at_once_migrate_once(config: Config, db: Any) -> None:
    start = threading.Barrier(10)

    def run(_: int) -> tuple[str, ...]:
        start.wait()
        return migrate(config)

    with ThreadPoolExecutor(10) as threads:
        ran = list(threads.map(run, range(10)))
    assert sorted(ran) == [()] * 9 + [revisions.known()]
    assert catalogue(db) == SNAPSHOT.read_text()


def test_ten_threads_at_once_in_ten_schemas_dont_disturb_each_other(config: Config, db: Any) -> None:
    names = [f"jobs{i}" for i in range(10)]
    start = threading.Barrier(10)

    def run(name: str) -> tuple[str, ...]:
        start.wait()
        return migrate(config.with_changes(schema=name))

    with ThreadPoolExecutor(10) as threads:
        assert list(threads.map(run, names)) == [revisions.known()] * 10
    assert {catalogue(db, name) for name in names} == {SNAPSHOT.read_text()}


def _migrate_together(config: Config, start: Any, said: Any) -> None:
    start.wait()
    try:
        said.put((migrate(config), ""))
    except BaseException as e:
        said.put(((), repr(e)))


def test_ten_processes_at_once_migrate_once(config: Config, db: Any) -> None:
    fork = multiprocessing.get_context("fork")  # a fresh interpreter would take a second each to start
    start, said = fork.Barrier(10), fork.SimpleQueue()
    there = config.with_changes(schema="jobs")
    processes = [fork.Process(target=_migrate_together, args=(there, start, said)) for _ in range(10)]
    for process in processes:
        process.start()
    answers = [said.get() for _ in processes]
    for process in processes:
        process.join(120)
    assert sorted(answers) == [((), "")] * 9 + [(revisions.known(), "")]
    assert catalogue(db, "jobs") == SNAPSHOT.read_text()


def test_a_migration_that_another_process_finishes_meanwhile_doesnt_look_foreign(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Between the two looks of this process, at the version table and at `tasks`, another one migrates.
    from tasklib import migrations

    looks = migrations.exists
    others = iter([None, config])

    def look(connection: Any, query: str, **names: str) -> bool:
        found = looks(connection, query, **names)
        if other := next(others, None):
            monkeypatch.setattr(migrations, "exists", looks)
            migrate(other)
        return found

    monkeypatch.setattr(migrations, "exists", look)
    assert migrate(config) == ()


# ---- in a schema of its own ----


@pytest.mark.parametrize("schema", ODD_NAMES)
def test_a_schema_may_have_any_name(schema: str, config: Config, db: Any) -> None:
    there = config.with_changes(schema=schema)
    assert pending(there) == revisions.known()
    assert migrate(there) == revisions.known()
    assert (migrate(there), pending(there)) == ((), ())
    check(there)
    assert catalogue(db, schema) == SNAPSHOT.read_text()

    heard = there.channel
    assert heard is not None
    db.execute(sql.SQL("LISTEN {}").format(sql.Identifier(heard)))
    sleeper = sql.SQL("INSERT INTO {}.workers (id, names, asleep) VALUES ('sleeper', NULL, true)")
    db.execute(sleeper.format(sql.Identifier(schema)))  # else there is no worker to notify
    with Client(there) as client:
        first = client.submit_task("a", idempotency_key="k", registered_elsewhere=True)
        assert client.submit_task("a", idempotency_key="k", registered_elsewhere=True) == first
        ids = client.submit_many("a", [{}] * 150, registered_elsewhere=True)
        assert {t.id for t in client.list_tasks(limit=200)} == {first, *ids}
    assert {n.channel for n in db.notifies(timeout=120, stop_after=1)} == {heard}


def test_nothing_is_created_outside_the_schema(config: Config, db: Any) -> None:
    before = everything(db)
    migrate(config.with_changes(schema="jobs"))
    with Client(config.with_changes(schema="jobs")) as client:
        client.submit_task("a", idempotency_key="k", registered_elsewhere=True)
    created = everything(db) - before
    assert {schema for _, schema, _ in created} == {"jobs"}
    assert ("schema", "jobs", "") in created


def test_dropping_the_schema_leaves_nothing(config: Config, db: Any) -> None:
    before = everything(db)
    migrate(config.with_changes(schema="jobs"))
    db.execute("DROP SCHEMA jobs CASCADE")
    assert everything(db) == before


def test_two_schemas_are_two_queues(config: Config) -> None:
    migrate(config)
    migrate(config.with_changes(schema="jobs"))
    with Client(config) as here, Client(config.with_changes(schema="jobs")) as there:
        one = here.submit_task("a", idempotency_key="k", registered_elsewhere=True)
        other = there.submit_task("a", idempotency_key="k", registered_elsewhere=True)
        assert [t.id for t in here.list_tasks()] == [one]
        assert [t.id for t in there.list_tasks()] == [other]


@pytest.mark.direct(reason="PgBouncer takes no options in a URL")
def test_without_a_schema_the_search_path_decides(config: Config, db: Any) -> None:
    db.execute("CREATE SCHEMA app")
    there = Config(make_conninfo(config.database_url, options="-c search_path=app"))
    assert migrate(there) == revisions.known()
    assert catalogue(db, "app") == SNAPSHOT.read_text()
    assert pending(there) == ()
    assert pending(config) == revisions.known()


@pytest.mark.direct(reason="PgBouncer takes no options in a URL")
def test_a_search_path_without_a_schema_is_explained(config: Config) -> None:
    nowhere = Config(make_conninfo(config.database_url, options="-c search_path=nowhere"))
    with pytest.raises(
        SchemaError,
        match=r"^there is no schema in the search_path to create TaskLib's tables in: .*Name one: schema='tasklib' in",
    ):
        migrate(nowhere)


@pytest.mark.direct(reason="PgBouncer takes no options in a URL")
def test_a_user_without_the_right_to_create_is_told_whom_to_ask(config: Config, db: Any) -> None:
    role = sql.Identifier(f"tasklib_{uuid.uuid4().hex[:10]}")
    db.execute("CREATE SCHEMA jobs")
    db.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        db.execute(sql.SQL("GRANT USAGE ON SCHEMA jobs TO {}").format(role))
        as_role = make_conninfo(config.database_url, options=f"-c role={role.as_string(db).strip(chr(34))}")
        with pytest.raises(
            SchemaError,
            match=r"^this user may not create TaskLib's tables in schema jobs: permission denied for schema jobs\. "
            r"Have an administrator grant CREATE on it, or run the script of: tasklib migrate --sql",
        ):
            migrate(Config(as_role, schema="jobs"))
    finally:
        db.execute(sql.SQL("DROP OWNED BY {}").format(role))
        db.execute(sql.SQL("DROP ROLE {}").format(role))


# ---- what isn't ours ----


@pytest.mark.parametrize("kind", ["TABLE tasks (id int, note text)", "VIEW tasks AS SELECT 1 AS id"])
def test_a_foreign_tasks_table_is_refused_and_untouched(kind: str, config: Config, db: Any) -> None:
    db.execute(f"CREATE {kind}")
    before = everything(db), catalogue(db)
    expected = (
        r"^a table named tasks that TaskLib did not create is already in the search_path\. It was not touched\. "
        r"Give TaskLib a schema of its own: schema='tasklib' in Config, TASKLIB_SCHEMA=tasklib, "
        r"or tasklib migrate --schema tasklib$"
    )
    with pytest.raises(SchemaError, match=expected):
        migrate(config)
    with pytest.raises(SchemaError, match=expected):
        pending(config)
    with pytest.raises(SchemaError, match=expected):
        check(config)
    assert (everything(db), catalogue(db)) == before


def test_the_hint_about_a_foreign_table_helps(config: Config, db: Any) -> None:
    db.execute("CREATE TABLE tasks (id int, note text)")
    db.execute("INSERT INTO tasks VALUES (1, 'mine')")
    there = config.with_changes(schema="tasklib")
    migrate(there)
    with Client(there) as client:
        client.submit_task("a", registered_elsewhere=True)
    assert db.execute("SELECT * FROM tasks").fetchall() == [(1, "mine")]


def test_a_foreign_table_in_the_named_schema_is_refused(config: Config, db: Any) -> None:
    db.execute("CREATE SCHEMA app")
    db.execute("CREATE TABLE app.tasks (id int)")
    with pytest.raises(SchemaError, match="that TaskLib did not create is already in schema app"):
        migrate(config.with_changes(schema="app"))
    assert db.execute("SELECT to_regclass('app.tasklib_version')").fetchone() == (None,)


def test_a_newer_revision_is_refused_and_untouched(config: Config, db: Any) -> None:
    migrate(config)
    db.execute("UPDATE tasklib_version SET version_num = '9999'")
    before = catalogue(db)
    for look in (migrate, pending, check):
        with pytest.raises(SchemaError, match=r"is at revision 9999, newer than this TaskLib .*nothing was changed"):
            look(config)
    assert catalogue(db) == before
    assert db.execute("SELECT version_num FROM tasklib_version").fetchall() == [("9999",)]


def test_a_migration_that_fails_leaves_nothing_half_done(
    config: Config, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("CREATE FUNCTION tasklib_wake() RETURNS int LANGUAGE sql AS 'SELECT 1'")  # in the way, near the end
    with pytest.raises(Exception, match="tasklib_wake"):
        migrate(config)
    assert db.execute("SELECT to_regclass('tasks')").fetchone() == (None,)
    db.execute("DROP FUNCTION tasklib_wake()")
    assert migrate(config) == revisions.known()
    assert catalogue(db) == SNAPSHOT.read_text()


# ---- the script ----


@pytest.mark.parametrize("schema", [None, "jobs", 'We%ird "sch:ema"'])
def test_the_script_through_psycopg_gives_the_very_same_schema(schema: str | None, config: Config, db: Any) -> None:
    db.execute(script(schema))
    assert catalogue(db, schema or "public") == SNAPSHOT.read_text()
    there = config.with_changes(schema=schema)
    assert (pending(there), migrate(there)) == ((), ())
    check(there)


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_script_through_psql_gives_the_very_same_schema(config: Config, db: Any) -> None:
    schema = 'We%ird "sch:ema"'
    done = subprocess.run(
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", config.database_url],
        input=script(schema),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert catalogue(db, schema) == SNAPSHOT.read_text()
    assert migrate(config.with_changes(schema=schema)) == ()


def test_the_script_needs_no_database() -> None:
    text = script("jobs")
    assert text.startswith('CREATE SCHEMA IF NOT EXISTS "jobs";\n')
    assert "BEGIN;" in text
    assert text.rstrip().endswith("COMMIT;")
    assert "%%" not in text


# ---- the model ----


def test_the_models_columns_are_the_tables(config: Config) -> None:
    migrate(config)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(config.database_url))
    table = {column["name"]: column for column in inspect(engine).get_columns("tasks")}
    engine.dispose()
    model = Task.__table__.columns  # type: ignore[attr-defined]
    assert tuple(c.name for c in model) == TASK_COLUMNS
    assert table.keys() == set(TASK_COLUMNS)

    def kind(column_type: Any) -> str:
        return str(column_type.compile(dialect=engine.dialect))

    for mapped in model:
        stored = table[mapped.name]
        behind = getattr(stored["type"], "data_type", stored["type"])  # the type of a domain
        assert kind(behind) == kind(mapped.type), mapped.name
        assert stored["nullable"] == mapped.nullable, mapped.name
        assert getattr(behind, "timezone", None) == getattr(mapped.type, "timezone", None), mapped.name


def test_the_models_defaults_are_the_tables(config: Config, db: Any) -> None:
    migrate(config)
    db.execute("INSERT INTO tasks (name) VALUES ('a')")
    with Client(config) as client:
        (stored,) = client.list_tasks()
    fresh = Task(id=stored.id, name="a", scheduled_at=stored.scheduled_at, created_at=stored.created_at)
    assert fresh.model_dump() == stored.model_dump()


# ---- shards ----


def test_the_migration_of_a_shard_writes_its_number_into_the_schema(config: Config, db: Any) -> None:
    migrate(config.with_changes(schema="jobs", shard=682))
    db.execute("SET search_path = pg_catalog")  # what inserts may have any
    (made,) = db.execute("INSERT INTO jobs.tasks (name) VALUES ('a') RETURNING id").fetchone()
    assert shard_of(made) == 682
    with Client(config.with_changes(schema="jobs", shard=682)) as client:
        assert shard_of(client.submit_task("a", registered_elsewhere=True)) == 682


def test_a_schema_without_tasks_becomes_a_shard_and_no_other_one_later(config: Config) -> None:
    migrate(config)
    migrate(config.with_changes(shard=4))
    assert migrate(config.with_changes(shard=4)) == ()
    assert migrate(config) == (), "a program that says nothing of shards may migrate any"
    with pytest.raises(SchemaError, match="is shard 4, and this program takes it for shard 5"):
        migrate(config.with_changes(shard=5))


def test_a_schema_with_tasks_keeps_its_number(config: Config) -> None:
    migrate(config)
    with Client(config) as client:
        client.submit_task("a", registered_elsewhere=True)
    with pytest.raises(SchemaError, match="is shard 0, and this program takes it for shard 4"):
        migrate(config.with_changes(shard=4))
