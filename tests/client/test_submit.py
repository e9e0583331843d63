"""Submitting: what ends up in the row, from which default, and that nothing is lost, doubled or half done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

import tasklib
from tasklib import AsyncClient, Client, Config, Task, TaskFunction, task
from tasklib.client.calls import COPY_FROM
from tasklib.client.effects import Effect, Together
from tasklib.config import Level
from tasklib.db.query import Query
from tasklib.errors import DatabaseUnavailable, InvalidOption, TaskExecutionError
from tests.client.conftest import Either
from tests.client.proxy import Proxy, proxy


@pytest.fixture
def greet() -> TaskFunction[Any, Any]:
    @task
    def greet(name: str, times: int = 1) -> None: ...

    return greet


def rows(db: psycopg.Connection) -> list[dict[str, Any]]:
    with db.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM tasks ORDER BY id").fetchall()


def row(db: psycopg.Connection, task_id: UUID) -> dict[str, Any]:
    return next(r for r in rows(db) if r["id"] == task_id)


def count(db: psycopg.Connection) -> int:
    found = db.execute("SELECT count(*) FROM tasks").fetchone()
    assert found is not None
    return int(found[0])


# ---- the forms of a call ----


async def test_a_function_its_task_and_its_name_are_the_same_task(either: Either, greet: Any, db: Any) -> None:
    for target in (greet, greet.function, "greet"):
        task_id = await either.submit_task(target, name="a", times=2)
        assert row(db, task_id)["name"] == "greet"
        assert row(db, task_id)["kwargs"] == {"name": "a", "times": 2}
        assert row(db, task_id)["state"] == "pending"


async def test_the_methods_of_a_task_function_submit_with_its_own_parameters(
    greet: Any, database_url: str, db: Any
) -> None:
    tasklib.init(database_url)
    ids = [
        await greet.submit("a", times=2),
        greet.submit_sync(name="a", times=2),
        await greet.options(queue="mail").submit(name="a", times=2),
        greet.options(queue="mail").submit_sync("a", 2),
    ]
    assert [row(db, i)["kwargs"] for i in ids] == [{"name": "a", "times": 2}] * 4
    assert [row(db, i)["queue"] for i in ids] == ["default", "default", "mail", "mail"]


async def test_the_module_level_functions_submit_in_both_colours(greet: Any, database_url: str, db: Any) -> None:
    tasklib.init(database_url)
    ids = [await tasklib.submit_task(greet, name="a"), tasklib.submit_task_sync(greet, name="b")]
    ids += await tasklib.submit_many(greet, [{"name": "c"}])
    ids += tasklib.submit_many_sync([greet.bind(name="d")])
    assert [r["kwargs"]["name"] for r in rows(db)] == ["a", "b", "c", "d"]
    assert [r["id"] for r in rows(db)] == ids


async def test_a_name_only_another_program_knows_is_submitted_unchecked(either: Either, db: Any) -> None:
    task_id = await either.submit_task("elsewhere.work", registered_elsewhere=True, anything=[1, {"a": None}])
    assert row(db, task_id)["kwargs"] == {"anything": [1, {"a": None}]}
    ids = await either.submit_many("elsewhere.work", [{"n": 1}, {"n": 2}], registered_elsewhere=True)
    assert [row(db, i)["kwargs"]["n"] for i in ids] == [1, 2]


def test_calling_a_task_function_just_calls_it(db: Any) -> None:
    @task
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, b=2) == 3
    assert count(db) == 0


async def test_a_default_stays_out_of_the_row_so_that_the_one_of_the_day_it_runs_applies(
    either: Either, greet: Any, db: Any
) -> None:
    task_id = await either.submit_task(greet, name="a")
    assert row(db, task_id)["kwargs"] == {"name": "a"}


async def test_open_keywords_are_arguments_too(either: Either, db: Any) -> None:
    @task
    def anything(a: int, **rest: Any) -> None: ...

    task_id = await either.submit_task(anything, a="1", b=[2], c=None)
    assert row(db, task_id)["kwargs"] == {"a": 1, "b": [2], "c": None}


def test_arguments_may_have_any_name_python_allows(client: Client, db: Any) -> None:
    @task
    def odd(self: int, cls: int, args: int, task: int, _private: int, model_config: int, copy: int) -> None: ...

    given: dict[str, Any] = {"self": 1, "cls": 2, "args": 3, "task": 4, "_private": 5, "model_config": 6, "copy": 7}
    assert row(db, client.submit_task(odd, **given))["kwargs"] == given


# ---- options and where they come from ----


@pytest.mark.parametrize(
    ("call", "decorator", "expected"),
    [
        ({"max_retries": 9, "priority": "high"}, {"max_retries": 8, "priority": "low"}, 9),
        ({"priority": "high"}, {"max_retries": 8, "priority": "low"}, 8),
        ({"priority": "high"}, {"priority": "low"}, 5),
        ({}, {"priority": "low"}, 2),
        ({"priority": 7}, {"priority": "low"}, 4),
        ({}, {}, 4),
        ({"max_retries": 0}, {"max_retries": 8}, 0),
        ({}, {"max_retries": 0, "priority": "high"}, 0),
    ],
    ids=["call", "decorator", "level of the call", "level", "integer brings none", "config", "zero", "zero decorated"],
)
def test_retries_come_from_the_call_then_the_decorator_then_the_level_then_the_config(
    call: dict[str, Any], decorator: dict[str, Any], expected: int, config: Config, db: Any
) -> None:
    @task(**decorator)
    def work() -> None: ...

    with Client(config.with_changes(max_retries=4)) as client:
        assert row(db, client.submit_task(work, **call))["max_retries"] == expected


@pytest.mark.parametrize(
    ("call", "decorator", "expected"),
    [
        ({"timeout_seconds": 9, "priority": "high"}, {"timeout_seconds": 8}, 9),
        ({"priority": "high"}, {"timeout_seconds": 8}, 8),
        ({"priority": "high"}, {}, 300),
        ({}, {"priority": "medium"}, 600),
        ({"priority": "low"}, {}, 900),
        ({"priority": -10}, {}, 77),
        ({}, {}, 77),
    ],
    ids=["call", "decorator", "high", "medium", "low", "integer brings none", "config"],
)
def test_the_timeout_comes_from_the_call_then_the_decorator_then_the_level_then_the_config(
    call: dict[str, Any], decorator: dict[str, Any], expected: int, config: Config, db: Any
) -> None:
    @task(**decorator)
    def work() -> None: ...

    with Client(config.with_changes(default_task_timeout_seconds=77)) as client:
        assert row(db, client.submit_task(work, **call))["timeout_seconds"] == expected


@pytest.mark.parametrize(
    ("level", "policy"), [("high", (100, 5, 300)), ("medium", (0, 3, 600)), ("low", (-10, 2, 900))]
)
async def test_a_level_brings_its_priority_retries_and_timeout(
    level: str, policy: tuple[int, int, int], either: Either, greet: Any, db: Any
) -> None:
    r = row(db, await either.submit_task(greet, name="a", priority=level))
    assert (r["priority"], r["max_retries"], r["timeout_seconds"]) == policy


def test_levels_are_configuration(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(levels={"urgent": Level(50, 1, 5)})) as client:
        r = row(db, client.submit_task(greet, name="a", priority="urgent"))
        assert (r["priority"], r["max_retries"], r["timeout_seconds"]) == (50, 1, 5)
        with pytest.raises(InvalidOption, match="one of urgent, not 'high'"):
            client.submit_task(greet, name="a", priority="high")


async def test_without_options_a_task_is_due_at_once_in_the_default_queue(either: Either, greet: Any, db: Any) -> None:
    r = row(db, await either.submit_task(greet, name="a"))
    assert r["scheduled_at"] == r["created_at"]
    assert (r["queue"], r["priority"], r["max_retries"], r["timeout_seconds"]) == ("default", 0, 3, None)
    assert (r["tags"], r["required_capabilities"], r["trace_context"]) == ({}, [], None)
    assert (r["idempotency_key"], r["retry_count"], r["crash_count"], r["lease_token"]) == (None, 0, 0, 0)


async def test_every_option_reaches_its_column(either: Either, db: Any) -> None:
    @task(queue="slow", required_capabilities=["gpu"], tags={"a": 1})
    def work() -> None: ...

    r = row(db, await either.submit_task(work))
    assert (r["queue"], r["required_capabilities"], r["tags"]) == ("slow", ["gpu"], {"a": 1})

    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    options = {"queue": "q", "required_capabilities": [], "tags": {"b": [2]}, "trace_context": trace, "priority": -3}
    r = row(db, await either.submit_task(work, **options))
    assert {name: r[name] for name in options} == options


@pytest.mark.parametrize("spelling", [["b", "a"], ("a", "b", "a"), {"a", "b"}, iter(["b", "a", "b"])])
def test_capabilities_are_a_set_with_one_spelling(spelling: Any, client: Client, greet: Any, db: Any) -> None:
    task_id = client.submit_task(greet, name="a", required_capabilities=spelling)
    assert row(db, task_id)["required_capabilities"] == ["a", "b"]


# ---- time ----


@pytest.fixture
def _clock_of_2001(monkeypatch: pytest.MonkeyPatch) -> None:
    """This client's clock is wrong."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000 * 10**9)


@pytest.mark.usefixtures("_clock_of_2001")
async def test_a_delay_counts_on_the_clock_of_the_database(either: Either, greet: Any, db: Any) -> None:
    before = db.execute("SELECT now()").fetchone()[0]
    r = row(db, await either.submit_task(greet, name="a", delay_seconds=90.5))
    after = db.execute("SELECT now()").fetchone()[0]
    assert r["scheduled_at"] - r["created_at"] == timedelta(seconds=90.5)
    assert before <= r["created_at"] <= after


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
        datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=-23, seconds=-1))),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    ids=["utc", "offset", "offset that PostgreSQL doesn't read", "first", "last"],
)
async def test_scheduled_at_is_the_moment_that_was_given(moment: datetime, either: Either, greet: Any, db: Any) -> None:
    task_id = await either.submit_task(greet, name="a", scheduled_at=moment)
    difference = "SELECT scheduled_at = %s::timestamptz FROM tasks WHERE id = %s"
    assert db.execute(difference, [moment.astimezone(UTC).isoformat(), task_id]).fetchone() == (True,)


async def test_a_delay_of_zero_is_no_delay(either: Either, greet: Any, db: Any) -> None:
    r = row(db, await either.submit_task(greet, name="a", delay_seconds=0))
    assert r["scheduled_at"] == r["created_at"]


async def test_the_longest_delay_is_stored(either: Either, greet: Any, db: Any) -> None:
    r = row(db, await either.submit_task(greet, name="a", delay_seconds=1000 * 365 * 86400))
    assert r["scheduled_at"] - r["created_at"] == timedelta(days=1000 * 365)


async def test_a_time_said_by_the_call_replaces_the_time_of_the_batch(either: Either, greet: Any, db: Any) -> None:
    at = datetime(2031, 1, 1, tzinfo=UTC)
    ids = await either.submit_many(
        [greet.options(scheduled_at=at).bind(name="a"), greet.bind(name="b")], delay_seconds=60
    )
    assert row(db, ids[0])["scheduled_at"] == at
    assert row(db, ids[1])["scheduled_at"] - row(db, ids[1])["created_at"] == timedelta(seconds=60)


# ---- many at once ----


class Recording(Client):
    """A client that remembers what it asked of the database."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.effects: list[Effect] = []

    def _do(self, effect: Effect) -> Any:
        self.effects.append(effect)
        return super()._do(effect)


@pytest.fixture
def recording(config: Config) -> Iterator[Recording]:
    with Recording(config) as client:
        yield client


@pytest.mark.parametrize("size", [1, 2, COPY_FROM - 1, COPY_FROM, COPY_FROM + 1])
async def test_a_batch_in_both_forms_keeps_its_order(size: int, either: Either, greet: Any, db: Any) -> None:
    names = [f"n{i}" for i in range(size)]
    first = await either.submit_many(greet, [{"name": n} for n in names], queue="x")
    second = await either.submit_many([greet.bind(name=n) for n in names], queue="x")
    assert [r["id"] for r in rows(db)] == first + second
    assert [r["kwargs"]["name"] for r in rows(db)] == names * 2
    assert {r["queue"] for r in rows(db)} == {"x"}


async def test_a_batch_may_be_any_iterable(either: Either, greet: Any, db: Any) -> None:
    ids = await either.submit_many(greet, ({"name": n} for n in "abc"))
    ids += await either.submit_many(greet.bind(name=n) for n in "de")
    assert [r["id"] for r in rows(db)] == ids


@pytest.mark.parametrize("nothing", [[], (), iter(())])
def test_an_empty_batch_asks_nothing_of_the_database(nothing: Any, recording: Recording, greet: Any) -> None:
    assert recording.submit_many(greet, nothing) == []
    assert recording.submit_many([]) == []
    assert recording.effects == []


def test_ten_thousand_tasks_are_one_copy_in_one_transaction(recording: Recording, greet: Any, db: Any) -> None:
    ids = recording.submit_many(greet, [{"name": "a", "times": i} for i in range(10_000)])
    (effect,) = recording.effects
    assert isinstance(effect, Together)
    assert (len(effect.copied), list(effect.queries)) == (10_000, [])
    assert db.execute("SELECT count(*), count(DISTINCT xmin::text) FROM tasks").fetchone() == (10_000, 1)
    in_order = db.execute("SELECT array_agg((kwargs -> 'times')::int ORDER BY id) FROM tasks").fetchone()[0]
    assert in_order == list(range(10_000))
    assert ids == sorted(ids)


def test_thousands_of_keyed_tasks_are_one_statement(recording: Recording, greet: Any, db: Any) -> None:
    batch = [greet.options(idempotency_key=f"k{i}").bind(name="a") for i in range(2_000)]
    ids = recording.submit_many(batch)
    assert recording.submit_many(batch) == ids
    assert [type(effect) for effect in recording.effects] == [Query, Query]
    assert count(db) == 2_000


STRANGE = ["\\.", "\\N", "tab\there", "line\nbreak", "return\r", "quote\"'", "a\\b", "{}", "😀é", "\x01\x7f", "", " "]


async def test_copy_writes_the_row_that_insert_writes(either: Either, db: Any) -> None:
    @task
    def work(text: str, nothing: None = None) -> None: ...

    options: dict[str, Any] = {
        "queue": "q\\N\t",
        "tags": {"t": STRANGE},
        "required_capabilities": ['a"b', "c,d", "{e}", "\\f"],
        "trace_context": {"a": "\\N"},
        "timeout_seconds": 5,
        "priority": "low",
    }
    arguments = [{"text": text, "nothing": None} for text in STRANGE]
    inserted = await either.submit_many(work, arguments, **options)
    copied = (await either.submit_many(work, arguments + [{"text": ""}] * COPY_FROM, **options))[: len(STRANGE)]
    stored = {r.pop("id"): r for r in rows(db)}
    for r in stored.values():
        assert r.pop("created_at") == r.pop("scheduled_at")
    assert [stored[i] for i in inserted] == [stored[i] for i in copied]


def test_plain_delayed_and_keyed_tasks_share_one_transaction(recording: Recording, greet: Any, db: Any) -> None:
    stored = recording.submit_task(greet, name="stored", idempotency_key="old")
    at = datetime(2031, 1, 1, tzinfo=UTC)
    batch = [greet.bind(name=f"plain{i}") for i in range(COPY_FROM)]
    batch[10:10] = [greet.options(delay_seconds=60).bind(name="delayed")]
    batch[20:20] = [greet.options(idempotency_key="new").bind(name="keyed")]
    batch[30:30] = [greet.options(idempotency_key="old").bind(name="known")]
    batch[40:40] = [greet.options(idempotency_key="new").bind(name="repeated")]
    batch[50:50] = [greet.options(scheduled_at=at).bind(name="scheduled")]
    recording.effects.clear()
    ids = recording.submit_many(batch)

    (effect,) = recording.effects
    assert isinstance(effect, Together)
    assert (len(effect.copied), len(effect.queries)) == (COPY_FROM, 2)
    names = {r["id"]: r["kwargs"]["name"] for r in rows(db)}
    expected = [item.kwargs["name"] for item in batch]
    expected[30], expected[40] = "stored", "keyed"
    assert [names[i] for i in ids] == expected
    assert (ids[30], ids[40]) == (stored, ids[20])
    assert row(db, ids[50])["scheduled_at"] == at
    assert db.execute("SELECT count(DISTINCT xmin::text) FROM tasks WHERE id <> %s", [stored]).fetchone() == (1,)


async def test_a_bad_item_leaves_none_of_the_batch_and_is_named(either: Either, greet: Any, db: Any) -> None:
    batch = [{"name": "a"}] * 150
    with pytest.raises(TaskExecutionError, match="times: Input should be a valid integer") as caught:
        await either.submit_many(greet, [*batch, {"name": "b", "times": "many"}, *batch])
    assert caught.value.__notes__ == ["This was item 150 of 301; none of them was submitted."]
    assert count(db) == 0


@pytest.mark.parametrize("size", [3, COPY_FROM + 3])
async def test_an_item_that_the_database_refuses_leaves_none_of_the_batch(
    size: int, either: Either, greet: Any, db: Any
) -> None:
    db.execute("ALTER TABLE tasks ADD CONSTRAINT no_bob CHECK (kwargs ->> 'name' <> 'bob')")
    try:
        with pytest.raises(psycopg.errors.CheckViolation, match="no_bob"):
            await either.submit_many(greet, [{"name": "a"}] * size + [{"name": "bob"}])
        with pytest.raises(psycopg.errors.CheckViolation, match="no_bob"):
            await either.submit_many(
                [*[greet.bind(name="a")] * size, greet.options(idempotency_key="k").bind(name="bob")]
            )
    finally:
        db.execute("ALTER TABLE tasks DROP CONSTRAINT no_bob")
    assert count(db) == 0
    assert await either.submit_task(greet, name="a") == rows(db)[0]["id"], "the client still works"


async def test_ids_grow_from_call_to_call(either: Either, greet: Any) -> None:
    ids: list[UUID] = []
    for _ in range(5):
        ids.append(await either.submit_task(greet, name="a"))
        ids += await either.submit_many(greet, [{"name": "b"}] * 3)
    assert ids == sorted(ids)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, fn: c.submit_many(fn), "submit_many needs a list"),
        (lambda c, fn: c.submit_many("greet"), "submit_many needs a list"),
        (lambda c, fn: c.submit_many(5), "submit_many needs a list"),
        (lambda c, fn: c.submit_many([fn]), r"takes what task_function\.bind\(\.\.\.\) returns, not <task greet>"),
        (lambda c, fn: c.submit_many([{"name": "a"}]), r"takes what task_function\.bind"),
        (lambda c, fn: c.submit_many(fn, {"name": "a"}), r"takes a list with the arguments of each task, not \{'name'"),
        (lambda c, fn: c.submit_many(fn, 5), "takes a list with the arguments of each task, not 5"),
        (lambda c, fn: c.submit_many(fn, ["a"]), "takes a mapping of arguments for each task, not 'a'"),
        (lambda c, fn: c.submit_many(fn, [{"name": "a"}], name="b"), "there is no option 'name'; the options are"),
        (
            lambda c, fn: c.submit_many(fn, [{"name": "a"}, {"name": "b"}], idempotency_key="k"),
            "one idempotency_key for 2 tasks would leave only the first",
        ),
        (
            lambda c, fn: c.submit_many([fn.bind(name="a"), fn.bind(name="b")], idempotency_key="k"),
            "one idempotency_key for 2 tasks would leave only the first",
        ),
    ],
)
def test_a_batch_of_the_wrong_shape_is_explained(call: Any, message: str, client: Client, greet: Any, db: Any) -> None:
    with pytest.raises(InvalidOption, match=message):
        call(client, greet)
    assert count(db) == 0


# ---- idempotency ----


async def test_a_key_belongs_to_a_name(either: Either, greet: Any, db: Any) -> None:
    @task
    def other(name: str) -> None: ...

    first = await either.submit_task(greet, name="a", idempotency_key="k")
    assert await either.submit_task(greet, name="b", idempotency_key="k") == first
    assert await either.submit_task(other, name="a", idempotency_key="k") != first
    assert await either.submit_task(greet, name="a", idempotency_key="K") != first
    assert count(db) == 3


@pytest.mark.parametrize(
    "ended",
    [
        "state = 'completed', completed_at = now()",
        "state = 'dead_letter', completed_at = now()",
        "state = 'cancelled', completed_at = now()",
        "state = 'running', worker_id = 'w', locked_until = now()",
        "state = 'failed', next_retry_at = now()",
    ],
)
def test_a_key_holds_whatever_became_of_the_task(ended: str, client: Client, greet: Any, db: Any) -> None:
    first = client.submit_task(greet, name="a", idempotency_key="k")
    db.execute(f"UPDATE tasks SET {ended}")
    assert client.submit_task(greet, name="b", idempotency_key="k") == first
    assert count(db) == 1


async def test_a_key_is_free_again_after_its_window(either: Either, greet: Any, db: Any) -> None:
    first = await either.submit_task(greet, name="a", idempotency_key="k")
    db.execute("UPDATE tasks SET idempotency_expires_at = now() - interval '1 second'")
    second = await either.submit_task(greet, name="b", idempotency_key="k")
    assert second != first
    assert await either.submit_task(greet, name="c", idempotency_key="k") == second
    assert [r["idempotency_key"] for r in rows(db)] == [None, "k"]


def test_the_window_is_configuration(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(idempotency_window_seconds=5)) as client:
        r = row(db, client.submit_task(greet, name="a", idempotency_key="k"))
    assert r["idempotency_expires_at"] - r["created_at"] == timedelta(seconds=5)


def test_a_race_for_one_key_has_one_winner(client: Client, greet: Any, db: Any) -> None:
    start = threading.Barrier(8)

    def submit(n: int) -> UUID:
        start.wait()
        return client.submit_task(greet, name=str(n), idempotency_key="k")

    with ThreadPoolExecutor(8) as threads:
        for _ in range(5):
            assert len(set(threads.map(submit, range(8)))) == 1
    assert count(db) == 1


def test_batches_with_the_same_keys_in_any_order_dont_wait_for_each_other(client: Client, greet: Any, db: Any) -> None:
    start = threading.Barrier(4)

    def submit(n: int) -> set[UUID]:
        keys = [f"k{i}" for i in range(200)]
        if n % 2:
            keys.reverse()
        batch = [greet.options(idempotency_key=k).bind(name=str(n)) for k in keys]
        start.wait()
        return set(client.submit_many(batch))

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(submit, range(4)))
    assert all(ids == answers[0] for ids in answers)
    assert count(db) == 200


# ---- lost connections ----


def end_the_clients_sessions(db: psycopg.Connection) -> int:
    ended = db.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'tasklib client'"
    ).fetchall()
    assert all(gone for (gone,) in ended)
    return len(ended)


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
async def test_a_session_ended_by_the_server_between_calls_is_not_noticed(either: Either, greet: Any, db: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: either.submit_task(greet, name="a"),
        lambda: either.submit_task(greet, name="a", idempotency_key="k"),
        lambda: either.submit_many(greet, [{"name": "a"}] * COPY_FROM),
        lambda: either.list_tasks(limit=1),
        lambda: either.submit_many([greet.bind(name="a"), greet.options(idempotency_key="l").bind(name="a")]),
    ]
    await calls[0]()
    for call in calls:
        assert end_the_clients_sessions(db) == 1
        assert await call()
    assert count(db) == 2 + 1 + COPY_FROM + 2


@pytest.fixture
def lossy(address: dict[str, str], config: Config) -> Iterator[tuple[Proxy, Config]]:
    """A way to the database that can lose answers."""
    with proxy(address["host"], int(address["port"])) as lossy:
        way: dict[str, Any] = {
            **address,
            "host": "127.0.0.1",
            "port": lossy.port,
            "sslmode": "disable",
            "gssencmode": "disable",
        }
        yield lossy, config.with_changes(database_url=make_conninfo("", **way))


@pytest.mark.parametrize("colour", [Client, AsyncClient], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("marker", "expected", "submit"),
    [
        (b"INSERT INTO", 1, lambda c, fn: c.submit_task(fn, name="a")),
        (b"INSERT INTO", 1, lambda c, fn: c.submit_task(fn, name="a", idempotency_key="k")),
        (b"INSERT INTO", 50, lambda c, fn: c.submit_many(fn, [{"name": "a"}] * 50)),
        (b"COMMIT", COPY_FROM, lambda c, fn: c.submit_many(fn, [{"name": "a"}] * COPY_FROM)),
        (
            b"COMMIT",
            COPY_FROM + 2,
            lambda c, fn: c.submit_many(
                [
                    *[fn.bind(name="a")] * COPY_FROM,
                    fn.options(delay_seconds=9).bind(name="b"),
                    fn.options(idempotency_key="k").bind(name="c"),
                ]
            ),
        ),
    ],
    ids=["one", "keyed", "insert", "copy", "mixed"],
)
async def test_a_submission_whose_answer_was_lost_after_the_commit_is_not_doubled(
    colour: Any, marker: bytes, expected: int, submit: Any, lossy: tuple[Proxy, Config], greet: Any, db: Any
) -> None:
    way, config = lossy
    client = Either(colour(config))
    await client.list_tasks()
    way.lose_answer_to(marker)
    ids = await submit(client, greet)
    assert way.lost == 1
    assert count(db) == expected
    assert {r["id"] for r in rows(db)} == (set(ids) if isinstance(ids, list) else {ids})
    client.client.close()


@pytest.mark.direct(reason="it changes a setting of its session, which a pooler gives to others")
async def test_a_session_of_a_demoted_primary_is_dropped(either: Either, greet: Any, db: Any) -> None:
    await either.submit_task(greet, name="a")
    for connection in either.client._database._idle:
        answer = connection.execute("SET default_transaction_read_only = on")
        if asyncio.iscoroutine(answer):
            await answer
    await either.submit_task(greet, name="b")
    assert count(db) == 2


async def test_a_server_that_takes_no_writes_is_named_as_such(
    either: Either, greet: Any, empty_database_url: str, config: Config
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        name = admin.info.dbname
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    client = Either(type(either.client)(config.with_changes(database_url=empty_database_url)))
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        await client.submit_task(greet, name="a")


# ---- sharing a client ----


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
def test_threads_share_a_client_and_its_few_connections(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(max_connections=2)) as client, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: client.submit_task(greet, name=str(n)), range(60)))
        opened = db.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'tasklib client'"
        ).fetchone()[0]
    assert 1 <= opened <= 2
    assert count(db) == 60


@pytest.mark.direct(reason="sessions are counted where they end, and a pooler keeps its own")
async def test_coroutines_share_a_client_and_its_few_connections(config: Config, greet: Any, db: Any) -> None:
    async with AsyncClient(config.with_changes(max_connections=2)) as client:
        await asyncio.gather(*(client.submit_task(greet, name=str(n)) for n in range(60)))
        opened = db.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'tasklib client'"
        ).fetchone()[0]
    assert 1 <= opened <= 2
    assert count(db) == 60


async def test_a_cancelled_submission_leaves_a_client_that_works(config: Config, greet: Any, db: Any) -> None:
    async with AsyncClient(config.with_changes(max_connections=1)) as client:
        await client.submit_task(greet, name="a")
        db.execute("BEGIN")
        db.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
        waiting = asyncio.create_task(client.submit_task(greet, name="b"))
        await until_something_waits_for_a_lock(db)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        db.execute("COMMIT")
        await client.submit_task(greet, name="c")
    assert [r["kwargs"]["name"] for r in rows(db)] == ["a", "c"]


async def until_something_waits_for_a_lock(db: psycopg.Connection) -> None:
    async with asyncio.timeout(20):
        while not db.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():  # noqa: ASYNC110 - the
            await asyncio.sleep(0.005)  # event is the server's


def test_a_client_can_be_used_again_after_close(client: Client, greet: Any, db: Any) -> None:
    client.submit_task(greet, name="a")
    client.close()
    client.submit_task(greet, name="b")
    assert count(db) == 2


def test_pgbouncer_mode_prepares_nothing(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(prepared_statements=False)) as client:
        for _ in range(10):
            client.submit_task(greet, name="a")
        with client._database.connection() as connection:
            assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert count(db) == 10


def test_a_task_can_be_read_back_as_submitted(client: Client, greet: Any) -> None:
    task_id = client.submit_task(greet, name="a", tags={"x": 1})
    found = client.get_task(task_id)
    assert isinstance(found, Task)
    assert (found.id, found.kwargs, found.tags) == (task_id, {"name": "a"}, {"x": 1})
