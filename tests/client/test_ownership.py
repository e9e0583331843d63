"""Whose task it is: written by every way of submitting, and to others as if it didn't exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Client, Config, TaskFunction, task
from tasklib.client.call_arguments import Alike
from tasklib.client.effects import InTransaction
from tasklib.client.submissions import COPY_FROM, new_tasks
from tasklib.errors import IdempotencyKeyTaken, InvalidOption, TaskNotFound
from tasklib.sql import statement
from tasklib.store import lookup
from tasklib.store.filters import TaskFilter
from tasklib.tasks.options import NOTHING_SAID
from tests.client.conftest import Either

ANN, BOB = "token-of-ann", "token-of-bob"


@pytest.fixture
def greet() -> TaskFunction[Any, Any]:
    @task
    def greet(name: str) -> Any: ...

    return greet


@pytest.fixture
def ann(client: Client) -> Client:
    return client.on_behalf_of("ann", submitted_by=ANN, only_own=True)


@pytest.fixture
def bob(client: Client) -> Client:
    return client.on_behalf_of("bob", submitted_by=BOB, only_own=True)


def owners(db: psycopg.Connection) -> list[str | None]:
    return [row[0] for row in db.execute("SELECT submitted_by FROM tasks ORDER BY id")]


def limited(either: Either, submitted_by: str) -> Either:
    return Either(either.client.on_behalf_of(submitted_by, submitted_by=submitted_by, only_own=True))


# ---- every way of submitting ----


def _keyed(greet: Any, count: int) -> list[Any]:
    return [greet.options(idempotency_key=str(n)).bind(name="a") for n in range(count)]


WAYS: dict[str, Callable[[Either, Any], Any]] = {
    "one": lambda c, f: c.submit_task(f, name="a"),
    "one, later": lambda c, f: c.submit_task(f, name="a", delay_seconds=5, tags={"a": 1}),
    "one with a key": lambda c, f: c.submit_task(f, name="a", idempotency_key="k"),
    "one bound": lambda c, f: c.submit(f.bind(name="a")),
    "some": lambda c, f: c.submit_many(f, [{"name": "a"}] * 3),
    "some with keys": lambda c, f: c.submit_many(_keyed(f, 3)),
    "some with and without keys": lambda c, f: c.submit_many([*_keyed(f, 2), f.bind(name="b")]),
    "many": lambda c, f: c.submit_many(f, [{"name": "a"}] * COPY_FROM),
    "many with and without keys": lambda c, f: c.submit_many([*_keyed(f, 2), *[f.bind(name="b")] * COPY_FROM]),
    "each": lambda c, f: c.submit_each([*_keyed(f, 2), f.bind(name="b")]),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("only_own", [False, True])
async def test_every_way_of_submitting_writes_the_owner(
    way: str, only_own: bool, either: Either, greet: Any, db: psycopg.Connection
) -> None:
    ann = Either(either.client.on_behalf_of("ann", submitted_by=ANN, only_own=only_own))
    for _ in range(3):  # before, while and after it is prepared
        await WAYS[way](ann, greet)
    assert set(owners(db)) == {ANN}


@pytest.mark.parametrize("way", WAYS)
async def test_without_an_owner_there_is_none(way: str, either: Either, greet: Any, db: psycopg.Connection) -> None:
    await WAYS[way](either, greet)
    assert set(owners(db)) == {None}


async def test_the_owner_is_written_in_the_callers_transaction_too(
    either: Either, greet: Any, database_url: str, db: psycopg.Connection
) -> None:
    ann = limited(either, ANN)
    with psycopg.connect(database_url) as connection:
        await ann.submit_task(greet, name="a", connection=connection)
        await ann.submit_many([*_keyed(greet, 2), greet.bind(name="b")], connection=connection)
    assert owners(db) == [ANN] * 4


def test_a_copy_whose_answer_was_lost_is_repeated_with_its_owner(ann: Client, greet: Any, db: Any) -> None:
    tasks = new_tasks(Alike(greet, [{"name": "a"}] * COPY_FROM, NOTHING_SAID), ann.calls.defaults)
    ann._do(InTransaction(tasks, ()).again())
    assert owners(db) == [ANN] * COPY_FROM


def test_one_program_submits_for_many(client: Client, ann: Client, bob: Client, greet: Any, db: Any) -> None:
    for somebody in (ann, client, bob, ann):
        somebody.submit_task(greet, name="a")
    assert owners(db) == [ANN, None, BOB, ANN]


@pytest.mark.parametrize("owner", ["", "x" * 501, "a\x00", "\ud800", 5])
def test_an_owner_can_be_stored(client: Client, owner: Any) -> None:
    with pytest.raises(InvalidOption, match="submitted_by"):
        client.on_behalf_of("ann", submitted_by=owner)


def test_only_own_needs_to_know_whose(client: Client) -> None:
    with pytest.raises(InvalidOption, match="only_own=True needs submitted_by="):
        client.on_behalf_of("ann", only_own=True)


# ---- the tasks of others ----


def unknown(call: Callable[[UUID], Any], task_id: UUID) -> str:
    """What is said about a task that isn't there, without its id."""
    with pytest.raises(TaskNotFound) as caught:
        call(task_id)
    return str(caught.value).replace(str(task_id), "ID")


@pytest.mark.parametrize(
    "call", ["wait_for", "cancel_task", "replay_task", "run_task_now", "edit_task", "explain_task", "queue_position"]
)
@pytest.mark.parametrize("state", ["pending", "cancelled"])
def test_a_task_of_another_owner_is_as_unknown_as_one_that_is_not_there(
    call: str, state: str, client: Client, ann: Client, bob: Client, greet: Any, db: psycopg.Connection
) -> None:
    foreign, nobodys = bob.submit_task(greet, name="a"), client.submit_task(greet, name="a")
    if state == "cancelled":
        client.cancel_task(foreign), client.cancel_task(nobodys)
    rows = db.execute("SELECT tasks::text FROM tasks").fetchall()
    said = {unknown(getattr(ann, call), task_id) for task_id in (foreign, nobodys, uuid4())}
    assert len(said) == 1
    assert db.execute("SELECT tasks::text FROM tasks").fetchall() == rows


async def test_tasks_are_looked_up_and_listed_by_their_owner_only(either: Either, client: Client, greet: Any) -> None:
    ann, bob = limited(either, ANN), limited(either, BOB)
    hers, his, nobodys = [await c.submit_task(greet, name="a") for c in (ann, bob, either)]
    assert (await ann.get_task(hers)).submitted_by == ANN
    assert await ann.get_task(his) is None
    assert await ann.get_task(nobodys) is None
    assert [t.id for t in await ann.list_tasks()] == [hers]
    assert [t.id for t in await bob.list_tasks(state="pending", name="greet", limit=1)] == [his]
    assert await bob.list_tasks(after=his) == []
    assert {t.id for t in await either.list_tasks()} == {hers, his, nobodys}


async def test_ones_own_task_is_cancelled_replayed_and_waited_for(either: Either, greet: Any, db: Any) -> None:
    ann = limited(either, ANN)
    hers = await ann.submit_task(greet, name="a")
    assert (await ann.queue_position(hers)).number == 1
    assert (await ann.explain_task(hers)).task_id == hers
    assert await ann.cancel_task(hers) == "cancelled"
    await ann.replay_task(hers)
    db.execute("UPDATE tasks SET state = 'completed', completed_at = now(), result = '{\"value\": 7}'")
    assert await ann.wait_for(hers, timeout=5) == 7


async def test_many_are_cancelled_replayed_and_purged_among_ones_own(either: Either, greet: Any, db: Any) -> None:
    ann = limited(either, ANN)
    for somebody in (ann, limited(either, BOB), either):
        await somebody.submit_many(greet, [{"name": "a"}] * 2)
    assert (await ann.cancel_tasks(everything=True, dry_run=True)).cancelled == 2
    assert (await ann.cancel_tasks(everything=True)).cancelled == 2
    db.execute("UPDATE tasks SET state = 'dead_letter', completed_at = now() - interval '1 s', error = 'E'")
    assert len(await ann.dead_letters()) == 2
    assert [g.count for g in await ann.dead_letter_groups()] == [2]
    assert len(await ann.replay_dead_letters(everything=True, limit=1)) == 1
    with pytest.raises(InvalidOption, match="without a condition"):
        await ann.purge_dead_letters()
    assert len(await ann.purge_dead_letters(everything=True)) == 1
    assert owners(db).count(ANN) == 1
    assert len(owners(db)) == 5


def test_a_page_of_dead_letters_does_not_begin_behind_one_of_another_owner(
    ann: Client, bob: Client, greet: Any, db: psycopg.Connection
) -> None:
    foreign = bob.submit_task(greet, name="a")
    db.execute("UPDATE tasks SET state = 'dead_letter', completed_at = now(), error = 'E'")
    with pytest.raises(TaskNotFound):
        ann.dead_letters(after=foreign)


def test_ones_own_are_found_by_an_index_among_those_of_others(config: Config, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO tasks (name, submitted_by) SELECT 'w', 'token-of-bob' FROM generate_series(1, 5000)")
    db.execute("INSERT INTO tasks (name) SELECT 'w' FROM generate_series(1, 5000)")
    db.execute("INSERT INTO tasks (name, submitted_by) SELECT 'w', 'token-of-ann' FROM generate_series(1, 3)")
    db.execute("ANALYZE tasks")
    query = lookup.list_(TaskFilter(owner=ANN), None, 100)
    plan = db.execute(("EXPLAIN " + statement(query.name, None)).encode(), query.parameters).fetchall()
    assert any("tasks_submitted_by" in row[0] for row in plan)
    assert not any("Seq Scan" in row[0] for row in plan)


# ---- idempotency keys ----


async def test_a_key_gives_ones_own_first_task_again(either: Either, greet: Any, db: Any) -> None:
    ann = limited(either, ANN)
    first = await ann.submit_task(greet, name="a", idempotency_key="k")
    assert await ann.submit_task(greet, name="b", idempotency_key="k") == first
    assert (await ann.submit_many([greet.options(idempotency_key="k").bind(name="c"), greet.bind(name="d")]))[
        0
    ] == first
    assert len(owners(db)) == 2


async def test_keys_of_others_mean_nothing_to_one_who_knows_only_its_own(either: Either, greet: Any, db: Any) -> None:
    """Neither an oracle for who uses which keys, nor a way to use one before they do."""
    operator = Either(either.client.on_behalf_of("op", submitted_by="op"))
    everybody = [limited(either, ANN), limited(either, BOB), either]
    for _ in range(3):  # before, while and after it is prepared
        ids = [await somebody.submit_task(greet, name="a", idempotency_key="k") for somebody in everybody]
        assert len(set(ids)) == 3
        assert await operator.submit_task(greet, name="a", idempotency_key="k") == ids[2]
    assert owners(db) == [ANN, BOB, None]
    for somebody in everybody:
        answers = await somebody.submit_each([greet.options(idempotency_key="k").bind(name="b"), *_keyed(greet, 1)])
        assert [a.is_new for a in answers] == [False, True]


@pytest.mark.parametrize("plain", [0, 3, COPY_FROM])
async def test_a_key_made_to_look_like_another_owners_gives_it_no_task_of_others(
    plain: int, either: Either, greet: Any, db: Any
) -> None:
    """Only a program with the database can do so. All of the batch is refused then, and nothing is told."""
    first = await either.submit_task(greet, name="a", idempotency_key=f"{ANN}/1")
    batch = [*_keyed(greet, 3), *[greet.bind(name="b")] * plain]
    for submit in (limited(either, ANN).submit_many, limited(either, ANN).submit_each):
        with pytest.raises(IdempotencyKeyTaken) as caught:
            await submit(batch)
        assert str(first) not in f"{caught.value!r} {caught.value}"
    assert owners(db) == [None]


def test_an_open_transaction_with_a_key_holds_up_no_other_owner(
    ann: Client, bob: Client, greet: Any, database_url: str, db: psycopg.Connection
) -> None:
    with psycopg.connect(database_url) as connection:
        bob.submit_task(greet, name="a", idempotency_key="k", connection=connection)
        ann.submit_task(greet, name="a", idempotency_key="k")
        assert owners(db) == [ANN]


async def test_each_submission_says_whether_it_is_new(either: Either, greet: Any) -> None:
    first = await either.submit_task(greet, name="a", idempotency_key="0")
    answers = await either.submit_each([*_keyed(greet, 2), *_keyed(greet, 2)[1:], greet.bind(name="b")])
    assert [a.is_new for a in answers] == [False, True, False, True]
    assert answers[0].id == first
    assert answers[1].id == answers[2].id
    [alone] = await either.submit_each([greet.options(idempotency_key="0").bind(name="a")])
    assert (alone.id, alone.is_new) == (first, False)
    [new] = await either.submit_each([greet.options(idempotency_key="9").bind(name="a")])
    assert new.is_new


async def test_a_batch_that_is_rolled_back_harms_no_later_submission(either: Either, greet: Any) -> None:
    await either.submit_task(greet, name="a", idempotency_key=f"{BOB}/0")
    for _ in range(3):  # prepared by its second use
        await either.submit_task(greet, name="a")
    for _ in range(10):  # psycopg has prepared it by then, and forgets all that is prepared at a rollback
        with pytest.raises(IdempotencyKeyTaken):
            await limited(either, BOB).submit_many([*_keyed(greet, 1), greet.bind(name="b")])
    assert await either.submit_task(greet, name="c")
