"""`tasklib shard move`: every row arrives, nothing is written meanwhile, and a crash at any step is mended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import errors as pg
from typer.testing import CliRunner

from tasklib import Client, Config, Shard, current_task, task
from tasklib.cli import shard as command
from tasklib.cli import shard_move, shards_file
from tasklib.cli.app import app
from tasklib.cli.report import CommandError
from tasklib.cli.shards_file import changing
from tasklib.errors import DatabaseUnavailable, SchemaError, TaskLibError
from tasklib.events import TaskEnded, WorkerStopped
from tasklib.migrations import expected, moving
from tasklib.shards import NewAddress, read_shards
from tasklib.tasks.ids import shard_of
from tests.worker.watching import working

Run = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path, shards: tuple[Shard, ...], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names the first two shards."""
    monkeypatch.setattr(command, "NOTICE_SECONDS", 0.0)
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    file = tmp_path / "shards.toml"
    with changing(file) as named:
        named += shards[:2]
    monkeypatch.setenv("TASKLIB_SHARDS_FILE", str(file))
    return file


@pytest.fixture
def run(file: Path) -> Run:
    return lambda *args: CliRunner().invoke(app, ["shard", *args], catch_exceptions=True)


@pytest.fixture
def full(file: Path) -> Iterator[Client]:
    """A client over both shards, which have rows in most tables."""

    @task
    def work(n: int, text: str) -> None: ...

    with Client(Config(shards_file=str(file))) as client:
        one = client.on_shard(1)
        for n in range(20):
            one.submit_task("work", n=n, text='"\\\n\t\x01ü, (1)', tags={"k": "v"}, registered_elsewhere=True)
        one.submit_task("work", n=1, text="", idempotency_key="order 1", serial_key="a", registered_elsewhere=True)
        one.pause(queue="mail")
        one.set_limit("stripe", max_running=1)
        one.create_token("ops", roles=["admin"])
        one.cancel_task(one.list_tasks()[0].id)
        one.signal(one.list_tasks(state="pending")[0].id, "go", {"a": 1.5})
        yield client


def there(server: Shard, schema: str = "moved") -> NewAddress:
    """A schema in the other database, which has none of our tables yet."""
    return shard_move.new_address(server.database_url, schema, None)


def move(file: Path, to: NewAddress | None = None, **options: Any) -> list[str]:
    said: list[str] = []
    shard_move.move(file, 1, to, **{"notice": 0.0, "timeout": 5.0, "say": said.append, **options})
    return said


def rows(url: str, schema: str) -> dict[str, list[Any]]:
    """All rows of all tables, and where their sequences are."""
    with psycopg.connect(url) as connection:
        found = {
            table: sorted(connection.execute(f"SELECT t::text FROM {schema}.{table} AS t").fetchall())
            for table in expected.tables()
        }
        found["sequences"] = sorted(
            connection.execute(
                "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = %s", [schema]
            ).fetchall()
        )
        return found


def writes(url: str, schema: str) -> bool:
    """Whether a schema takes writes: either every table of it does, or none."""
    taken = set()
    with psycopg.connect(url, autocommit=True) as connection:
        for table in expected.tables():
            if table == "audit":
                continue
            try:
                connection.execute(f"DELETE FROM {schema}.{table} WHERE false")
                taken.add(True)
            except pg.ReadOnlySqlTransaction:
                taken.add(False)
    assert len(taken) == 1
    return taken.pop()


def test_every_row_and_sequence_arrives_and_the_file_names_the_new_place(
    run: Run, full: Client, file: Path, shards: tuple[Shard, ...]
) -> None:
    old, target = shards[1], shards[2]
    with psycopg.connect(old.database_url) as connection:
        connection.execute(f"CREATE INDEX added ON {old.schema}.tasks USING gin (kwargs jsonb_path_ops)")
    before = rows(old.database_url, "two")
    first = full.list_tasks()
    options = ("move", "1", "--database-url", target.database_url, "--schema", "moved")
    dry = run(*options, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "21 tasks to copy" in dry.output
    assert read_shards(file) == shards[:2]
    done = run(*options)
    assert done.exit_code == 0, done.output
    assert "shard 1 is at " in done.output
    moved = read_shards(file)[1]
    assert (moved.database_url, moved.schema, moved.moving_to) == (target.database_url, "moved", None)
    assert rows(target.database_url, "moved") == before == rows(old.database_url, "two")
    assert (writes(old.database_url, "two"), writes(target.database_url, "moved")) == (False, True)
    with psycopg.connect(target.database_url) as connection:
        found = connection.execute("SELECT indexdef FROM pg_indexes WHERE schemaname = 'moved' AND indexname = 'added'")
        assert len(found.fetchall()) == 1
        assert connection.execute("SELECT to_regprocedure('moved.tasklib_frozen()')").fetchone() == (None,)
    full.database.shards.look()  # type: ignore[attr-defined]
    assert full.list_tasks() == first
    again = full.on_shard(1).submit_task("work", n=1, text="", idempotency_key="order 1", registered_elsewhere=True)
    assert again in {each.id for each in first}
    assert shard_of(full.on_shard(1).submit_task("other", registered_elsewhere=True)) == 1


def test_what_a_move_of_a_schema_copies_is_all_that_the_migrations_make(shards: tuple[Shard, ...]) -> None:
    with psycopg.connect(shards[1].database_url) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'two'::regnamespace AND relkind IN ('r', 'p')"
        ).fetchall()
    assert {name for (name,) in found} == {*expected.tables(), "tasklib_version"}


def test_a_program_that_knows_only_the_old_place_is_refused_there(
    file: Path, full: Client, shards: tuple[Shard, ...]
) -> None:
    move(file, there(shards[2]))
    with Client(Config(shards=shards[:2])) as late:
        with pytest.raises(
            DatabaseUnavailable, match=r"shard 1 moves to .*, or has moved, and this copy takes no writes"
        ):
            late.on_shard(1).submit_task("other", registered_elsewhere=True)
        with pytest.raises(DatabaseUnavailable, match="takes no writes"):
            late.on_shard(1).submit_many("other", [{"n": n} for n in range(500)], registered_elsewhere=True)


def test_submissions_without_a_key_go_to_other_shards_while_one_moves(file: Path, shards: tuple[Shard, ...]) -> None:
    with changing(file) as named:
        named[1] = Shard(1, named[1].database_url, "two", moving_to=there(shards[2]))
    with Client(Config(shards_file=str(file))) as client:
        assert {shard_of(client.submit_task("other", registered_elsewhere=True)) for _ in range(20)} == {0}
        keyed = [client.submit_task("work", idempotency_key=f"{n}", registered_elsewhere=True) for n in range(20)]
        assert {shard_of(id_) for id_ in keyed} == {0, 1}, "keys stay where they are"


def test_a_move_waits_for_running_tasks_and_is_given_up_after_its_time(
    file: Path, full: Client, shards: tuple[Shard, ...]
) -> None:
    url = shards[1].database_url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "UPDATE two.tasks SET state = 'running', worker_id = 'w1', lease_token = 1, started_at = now(), "
            "locked_until = now() + interval '1 hour' WHERE id = (SELECT max(id::text)::uuid FROM two.tasks "
            "WHERE state = 'pending')"
        )
    with pytest.raises(CommandError, match=r"could not be frozen within 0 s: 1 task runs, such as .* on w1"):
        move(file, there(shards[2]), timeout=0.0)
    assert read_shards(file) == shards[:2]
    assert writes(url, "two")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE two.tasks SET locked_until = now() WHERE state = 'running'")
    move(file, there(shards[2]))  # its worker is gone: the row travels with its lease, and is rescued there
    with psycopg.connect(shards[2].database_url) as connection:
        assert connection.execute("SELECT lease_token FROM moved.tasks WHERE state = 'running'").fetchall() == [(1,)]


def test_a_move_waits_for_open_transactions_and_what_they_submit_arrives(
    file: Path, full: Client, shards: tuple[Shard, ...]
) -> None:
    with psycopg.connect(shards[1].database_url) as connection:
        connection.execute("SET search_path TO two")
        id_ = full.on_shard(1).submit_task("other", connection=connection, registered_elsewhere=True)
        waits = threading.Event()
        said: list[str] = []

        def say(text: str) -> None:
            said.append(text)
            if text.startswith("waiting: transactions that write are open: "):
                waits.set()

        mover = threading.Thread(target=lambda: move(file, there(shards[2]), say=say, timeout=60.0))
        mover.start()
        assert waits.wait(60.0), said
        connection.commit()
        mover.join()
    full.database.shards.look()  # type: ignore[attr-defined]
    assert read_shards(file)[1].schema == "moved"
    assert full.get_task(id_) is not None


def test_a_schema_in_use_is_refused_and_nothing_is_changed(run: Run, file: Path, shards: tuple[Shard, ...]) -> None:
    with psycopg.connect(shards[2].database_url) as connection:
        connection.execute("SELECT 1")
    with Client(Config(shards=shards)) as client:
        client.on_shard(2).submit_task("other", registered_elsewhere=True)
    target = shards[2]
    for options in ([], ["--dry-run"]):
        found = run("move", "1", "--database-url", target.database_url, "--schema", target.schema, *options)
        assert found.exit_code == 1
    assert read_shards(file) == shards[:2]
    here = run("move", "1", "--database-url", shards[1].database_url, "--schema", "two")
    assert "is at" in here.stderr
    assert writes(shards[1].database_url, "two")


async def test_while_a_shard_moves_its_tasks_end_once_and_no_task_is_lost(
    file: Path, shards: tuple[Shard, ...]
) -> None:
    """A worker serves both shards, and a program submits, before, while and after one of them moves there and back."""
    ran: list[UUID] = []
    submitted: list[UUID] = []
    over = threading.Event()

    @task
    async def work(n: int) -> None:
        ran.append(UUID(str(current_task().id)))

    def submit() -> None:
        with Client(Config(shards_file=str(file))) as client:
            for n in count():
                if over.is_set():
                    return
                with suppress(DatabaseUnavailable):  # its shard takes no writes just then
                    submitted.append(client.submit(work.options(idempotency_key=f"{n % 20}").bind(n)))
                    submitted.append(client.submit(work.bind(n)))

    async with working(Config(shards_file=str(file), retry_jitter=0.0)) as watched:
        submitting = asyncio.create_task(asyncio.to_thread(submit))
        try:
            await watched.until(TaskEnded, lambda e: shard_of(UUID(e.id)) == 1)
            await asyncio.to_thread(move, file, there(shards[2]), timeout=60.0, notice=2.0)
            await watched.until(TaskEnded, count=len(watched.all(TaskEnded)) + 20)
            await asyncio.to_thread(move, file, NewAddress("back", shards[1].database_url, "two"), timeout=60.0)
        finally:
            over.set()
            await submitting
        for id_ in set(submitted):
            await watched.ended(id_, "completed")
        assert not watched.all(WorkerStopped)
    assert len(ran) == len(set(ran)) == len(set(submitted)), "each ran once"
    stored = []
    for each in read_shards(file):
        with psycopg.connect(each.database_url) as connection:
            stored += connection.execute(f"SELECT id, state FROM {each.schema}.tasks").fetchall()
    assert sorted(stored) == sorted((id_, "completed") for id_ in ran)


STEPS = (
    (moving, "freeze", 1),  # nothing is done yet
    (shards_file, "_replace", 1),  # the new schema is made, and frozen
    (moving, "freeze", 2),  # the file says so
    (moving, "copy", 1),  # the old schema is frozen
    (moving, "thaw", 1),  # all rows are copied
    (shards_file, "_replace", 2),  # the new schema is opened
    (moving, "thaw", 2),  # the file has the new address
)
"""At which call of which function the command dies."""
UNBEGUN = ("freeze 1", "_replace 1")


class Killed(BaseException):
    """As by SIGKILL: nothing catches it."""


@pytest.fixture(params=STEPS, ids=[f"{name} {call}" for _, name, call in STEPS])
def dies(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, file: Path, shards: tuple[Shard, ...]) -> str:
    """A move that was killed at one of its steps."""
    module, name, call = request.param
    calls, true = [0], getattr(module, name)

    def killed(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return true(*args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(module, name, killed)
        with pytest.raises(Killed):
            move(file, there(shards[2]))
    return f"{name} {call}"


def both_write(file: Path, shards: tuple[Shard, ...]) -> bool:
    with psycopg.connect(shards[2].database_url) as connection:
        found = connection.execute("SELECT to_regclass('moved.tasks') IS NOT NULL").fetchone()
    return found == (True,) and writes(shards[2].database_url, "moved") and writes(shards[1].database_url, "two")


def test_a_move_that_died_goes_on(file: Path, full: Client, dies: str, shards: tuple[Shard, ...]) -> None:
    before = rows(shards[1].database_url, "two")
    assert dies == "freeze 1" or not both_write(file, shards)
    if dies == "thaw 2":
        assert read_shards(file)[1].schema == "moved"
    else:
        move(file, there(shards[2]) if dies in UNBEGUN else None)
    assert read_shards(file)[1] == Shard(1, shards[2].database_url, "moved")
    assert rows(shards[2].database_url, "moved") == before
    assert (writes(shards[1].database_url, "two"), writes(shards[2].database_url, "moved")) == (False, True)
    back = NewAddress("back", shards[1].database_url, "two")
    move(file, back)  # where it was is a copy of it that may be replaced
    assert rows(shards[1].database_url, "two") == before
    assert (writes(shards[1].database_url, "two"), writes(shards[2].database_url, "moved")) == (True, False)


def test_a_move_that_died_can_be_given_up_and_begun_again(
    file: Path, full: Client, dies: str, shards: tuple[Shard, ...]
) -> None:
    said: list[str] = []
    if dies in (*UNBEGUN, "thaw 2"):
        with pytest.raises(CommandError, match="does not move"):
            shard_move.abort(file, 1, said.append)
        return
    shard_move.abort(file, 1, said.append)
    assert read_shards(file) == shards[:2]
    assert (writes(shards[1].database_url, "two"), writes(shards[2].database_url, "moved")) == (True, False)
    full.on_shard(1).submit_task("other", registered_elsewhere=True)
    before = rows(shards[1].database_url, "two")
    move(file, there(shards[2]))
    assert rows(shards[2].database_url, "moved") == before


def test_a_move_whose_copy_fails_is_given_up(
    file: Path, full: Client, shards: tuple[Shard, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(*args: object) -> moving.CopiedTable:
        raise SchemaError("tasks is not the same at both ends")

    monkeypatch.setattr(moving, "_compared", differs)
    with pytest.raises(SchemaError):
        move(file, there(shards[2]))
    assert read_shards(file) == shards[:2]
    assert (writes(shards[1].database_url, "two"), writes(shards[2].database_url, "moved")) == (True, False)


def test_a_move_that_was_given_up_meanwhile_changes_nothing_more(
    file: Path, full: Client, shards: tuple[Shard, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command gives it up, and a task is submitted, while this one copies."""
    true = moving._copy_indexes

    def meanwhile(*args: Any) -> None:
        monkeypatch.setattr(shard_move, "_refreeze", lambda *args: None)  # it would wait for the copy
        shard_move.abort(file, 1, lambda text: None)
        full.on_shard(1).submit_task("other", registered_elsewhere=True)
        true(*args)

    monkeypatch.setattr(moving, "_copy_indexes", meanwhile)
    with pytest.raises(TaskLibError, match="the move was given up"):
        move(file, there(shards[2]))
    assert read_shards(file) == shards[:2]
    assert (writes(shards[1].database_url, "two"), writes(shards[2].database_url, "moved")) == (True, False)


def test_a_file_from_before_a_move_moves_nothing(file: Path, full: Client, shards: tuple[Shard, ...]) -> None:
    old = file.read_text()
    move(file, there(shards[2]))
    file.write_text(old)
    with pytest.raises(CommandError, match="Is this file older than that move"):
        move(file, there(shards[3], "elsewhere"))
    with pytest.raises(CommandError, match="Is this file older than that move"):
        move(file, there(shards[2]))
    assert writes(shards[2].database_url, "moved")
    found = CliRunner().invoke(app, ["shard", "list"])
    assert found.exit_code == 1
    assert "takes no writes" in found.output
