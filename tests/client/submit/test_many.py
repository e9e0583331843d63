"""Many at once: one transaction, whatever they are, or none of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasklib import Client, Config, task
from tasklib.client.effects import Effect, InTransaction
from tasklib.client.submissions import COPY_FROM
from tasklib.db.query import Query
from tasklib.errors import InvalidOption, TaskExecutionError
from tests.client.conftest import Either
from tests.client.submit.stored import count, row, rows


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
    assert isinstance(effect, InTransaction)
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
    assert isinstance(effect, InTransaction)
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
        (lambda c, fn: c.submit_many(fn, [{"name": "a"}], name="b"), "there is no option 'name'. The options are"),
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
