"""Unique, debounced and throttled submissions, through either client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib import Client, Config, DuplicateTask, InvalidOption, task
from tasklib.db.database import Database
from tasklib.store import claim, settle
from tasklib.store.claim import Served
from tasklib.store.settle import Completion, Failure, Lease
from tests.client.conftest import Either
from tests.client.submit.stored import count, row, rows

TERMS = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}


@pytest.fixture
def sync_user() -> Any:
    @task
    def sync_user(user: int, name: str = "") -> None: ...

    return sync_user


class Worker:
    """Claims and settles the tasks named sync_user, statement by statement."""

    def __init__(self, config: Config) -> None:
        self._database = Database(config)

    def claim(self) -> Lease:
        [found] = self._database.run(claim.claim(Served(["sync_user"]), 1, "w", **TERMS))
        return Lease(str(found.id), found.token)

    def complete(self, lease: Lease) -> None:
        self._database.run(settle.complete([Completion(lease, '{"value": 1}')], "w"))

    def fail(self, lease: Lease, delay: float = 0.0) -> None:
        self._database.run(settle.fail([Failure(lease, "boom", "error", delay)], "w", 3))

    def release(self, lease: Lease) -> None:
        self._database.run(settle.release([lease], "w"))


@pytest.fixture
def worker(config: Config) -> Worker:
    return Worker(config)


# ---- unique ----


async def test_a_pending_task_is_returned_until_it_is_claimed(
    either: Either, sync_user: Any, worker: Worker, db: Any
) -> None:
    first = await either.submit_task(sync_user, user=7, unique="pending")
    assert await either.submit_task(sync_user, user=7, unique="pending") == first
    assert await either.submit_task(sync_user, user=8, unique="pending") != first
    assert count(db) == 2
    worker.claim()
    assert await either.submit_task(sync_user, user=7, unique="pending") != first
    assert count(db) == 3


async def test_without_a_merge_key_equal_arguments_are_the_same_in_any_order(either: Either, db: Any) -> None:
    name = {"registered_elsewhere": True, "unique": "pending"}
    first = await either.submit_task("other", kwargs={"a": 1, "b": {"c": [1], "d": None}}, **name)
    assert await either.submit_task("other", kwargs={"b": {"d": None, "c": [1]}, "a": 1}, **name) == first
    assert await either.submit_task("other", kwargs={"a": 1, "b": {"c": [1], "d": "x" * 500}}, **name) != first
    assert count(db) == 2


async def test_some_arguments_can_make_the_merge_key(either: Either, sync_user: Any, db: Any) -> None:
    first = await either.submit_task(sync_user, user=7, name="a", unique="pending", merge_key=["user"])
    assert await either.submit_task(sync_user, user=7, name="b", unique="pending", merge_key=["user"]) == first
    assert await either.submit_task(sync_user, user=8, name="a", unique="pending", merge_key=["user"]) != first
    with pytest.raises(InvalidOption, match="no argument of sync_user"):
        await either.submit_task(sync_user, user=7, unique="pending", merge_key=["usr"])


async def test_an_unfinished_task_is_returned_while_it_runs_and_through_its_retries(
    either: Either, sync_user: Any, worker: Worker, db: Any
) -> None:
    first = await either.submit_task(sync_user, user=7, unique="unfinished")
    for end in (worker.release, worker.fail):
        lease = worker.claim()
        assert await either.submit_task(sync_user, user=7, unique="unfinished") == first
        end(lease)
        assert await either.submit_task(sync_user, user=7, unique="unfinished") == first
    worker.complete(worker.claim())
    assert await either.submit_task(sync_user, user=7, unique="unfinished") != first
    assert count(db) == 2


@pytest.mark.parametrize("come_back", ["release", "fail", "replay", "cancel"])
@pytest.mark.parametrize("unique", ["pending", "unfinished"])
def test_no_task_that_comes_back_collides_with_a_newer_one(
    come_back: str, unique: str, client: Client, sync_user: Any, worker: Worker, db: Any
) -> None:
    first = client.submit_task(sync_user, user=7, unique=unique)
    if come_back == "cancel":
        client.cancel_task(first)
    else:
        lease = worker.claim()
        if come_back == "replay":
            worker.complete(lease)
    second = client.submit_task(sync_user, user=7, unique=unique)
    if come_back in ("replay", "cancel"):
        client.replay_task(first)
    else:
        getattr(worker, come_back)(lease)
    assert row(db, first)["state"] in ("pending", "failed")
    assert (second == first) is (unique == "unfinished" and come_back in ("release", "fail"))
    assert client.submit_task(sync_user, user=7, unique=unique) == second


async def test_a_waiting_task_takes_the_new_arguments_and_options_and_keeps_its_id_and_place(
    either: Either, sync_user: Any, db: Any
) -> None:
    options = {"unique": "pending", "merge_key": "7", "on_duplicate": "replace"}
    first = await either.submit_task(sync_user, user=7, name="a", **options)
    before = row(db, first)
    assert await either.submit_task(sync_user, user=7, name="b", priority="high", **options) == first
    after = row(db, first)
    assert (after["kwargs"], after["priority"]) == ({"user": 7, "name": "b"}, 100)
    assert (after["scheduled_at"], after["created_at"]) == (before["scheduled_at"], before["created_at"])


def test_a_replacement_with_a_time_moves_the_task(client: Client, sync_user: Any, db: Any) -> None:
    options = {"unique": "pending", "merge_key": "7", "on_duplicate": "replace"}
    first = client.submit_task(sync_user, user=7, delay_seconds=60, **options)
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    client.submit_task(sync_user, user=7, scheduled_at=moment, **options)
    assert row(db, first)["scheduled_at"] == moment
    client.submit_task(sync_user, user=7, **options)
    assert row(db, first)["scheduled_at"] == moment


def test_a_failed_task_that_waits_takes_new_arguments_and_a_running_one_refuses_them(
    client: Client, sync_user: Any, worker: Worker, db: Any
) -> None:
    options = {"unique": "unfinished", "merge_key": "7", "on_duplicate": "replace"}
    first = client.submit_task(sync_user, user=7, **options)
    lease = worker.claim()
    with pytest.raises(DuplicateTask, match="runs") as refused:
        client.submit_task(sync_user, user=7, name="b", **options)
    assert (refused.value.task_id, refused.value.state) == (first, "running")
    worker.fail(lease, delay=60)
    retry_at = row(db, first)["next_retry_at"]
    assert client.submit_task(sync_user, user=7, name="b", **options) == first
    assert row(db, first)["kwargs"] == {"user": 7, "name": "b"}
    assert row(db, first)["next_retry_at"] == retry_at


async def test_a_duplicate_is_refused_if_that_is_asked_for(either: Either, sync_user: Any, db: Any) -> None:
    first = await either.submit_task(sync_user, user=7, unique="unfinished", on_duplicate="raise")
    with pytest.raises(DuplicateTask) as refused:
        await either.submit_task(sync_user, user=7, unique="unfinished", on_duplicate="raise")
    assert (refused.value.task_id, refused.value.name, refused.value.state) == (first, "sync_user", "pending")
    assert count(db) == 1


# ---- debounce and throttle ----


async def test_each_debounced_submission_moves_the_task_and_the_last_arguments_count(
    either: Either, sync_user: Any, db: Any
) -> None:
    options = {"debounce": 60, "merge_key": ["user"]}
    first = await either.submit_task(sync_user, user=7, name="a", **options)
    due = row(db, first)["scheduled_at"]
    assert due - row(db, first)["created_at"] >= timedelta(seconds=60)
    assert await either.submit_task(sync_user, user=7, name="b", **options) == first
    found = row(db, first)
    assert found["scheduled_at"] > due
    assert found["kwargs"]["name"] == "b"


def test_a_debounced_task_can_keep_its_first_arguments(client: Client, sync_user: Any, db: Any) -> None:
    options = {"debounce": 60, "merge_key": ["user"], "on_duplicate": "return"}
    first = client.submit_task(sync_user, user=7, name="a", **options)
    due = row(db, first)["scheduled_at"]
    client.submit_task(sync_user, user=7, name="b", **options)
    found = row(db, first)
    assert found["scheduled_at"] > due
    assert found["kwargs"]["name"] == "a"


def test_a_debounced_task_waits_no_longer_than_max_wait(client: Client, sync_user: Any, db: Any) -> None:
    first = client.submit_task(sync_user, user=7, debounce=50, max_wait=60, unique=None)
    db.execute("UPDATE tasks SET created_at = created_at - interval '30 s'")
    client.submit_task(sync_user, user=7, debounce=50, max_wait=60)
    found = row(db, first)
    assert found["scheduled_at"] == found["created_at"] + timedelta(seconds=60)


def test_after_a_claim_a_new_debounced_task_begins(
    client: Client, sync_user: Any, worker: Worker, db: psycopg.Connection
) -> None:
    first = client.submit_task(sync_user, user=7, debounce=60)
    db.execute("UPDATE tasks SET scheduled_at = now()")
    worker.claim()
    assert client.submit_task(sync_user, user=7, debounce=60) != first


async def test_a_throttled_submission_returns_the_first_task_within_the_window(
    either: Either, sync_user: Any, worker: Worker, db: Any
) -> None:
    first = await either.submit_task(sync_user, user=7, throttle=60)
    worker.complete(worker.claim())
    assert await either.submit_task(sync_user, user=7, throttle=60) == first
    found = row(db, first)
    assert found["idempotency_expires_at"] - found["created_at"] == timedelta(seconds=60)
    db.execute("UPDATE tasks SET idempotency_expires_at = now()")
    assert await either.submit_task(sync_user, user=7, throttle=60) != first


# ---- defaults, batches, transactions ----


def test_a_task_function_can_be_unique_by_default(client: Client, db: Any) -> None:
    @task(debounce=5, merge_key=["user"])
    def index(user: int, name: str) -> None: ...

    first = client.submit_task(index, user=7, name="a")
    assert client.submit_task(index, user=7, name="b") == first
    assert client.submit_task(index, user=7, name="a", unique="unfinished") != first
    assert sorted(r["merge_while"] for r in rows(db)) == ["pending", "unfinished"]


async def test_a_batch_merges_as_if_its_tasks_came_one_by_one(either: Either, sync_user: Any, db: Any) -> None:
    keyed = sync_user.options(unique="pending", merge_key=["user"], on_duplicate="replace")
    one = await either.submit(keyed.bind(user=1, name="a"))
    items = [
        keyed.bind(user=1, name="b"),
        sync_user.bind(user=1),
        keyed.bind(user=2, name="a"),
        sync_user.options(idempotency_key="k").bind(user=3),
        keyed.bind(user=2, name="b"),
    ]
    ids = await either.submit_many(items)
    assert ids[0] == one
    assert ids[2] == ids[4]
    assert len({*ids}) == 4
    assert [row(db, i)["kwargs"].get("name") for i in ids] == ["b", None, "b", None, "b"]
    assert count(db) == 4


async def test_a_batch_with_a_refused_duplicate_stores_nothing(either: Either, sync_user: Any, db: Any) -> None:
    refusing = sync_user.options(unique="pending", on_duplicate="raise")
    await either.submit(refusing.bind(user=2))
    with pytest.raises(DuplicateTask):
        await either.submit_many([refusing.bind(user=1), refusing.bind(user=2)])
    with pytest.raises(InvalidOption, match="same merge key"):
        await either.submit_many([refusing.bind(user=3), refusing.bind(user=3)])
    assert count(db) == 1


def test_a_returned_task_does_not_begin_before_the_callers_transaction_ends(
    client: Client, sync_user: Any, config: Config, database_url: str
) -> None:
    first = client.submit_task(sync_user, user=7, unique="pending")
    claiming = claim.claim(Served(["sync_user"]), 1, "w", **TERMS)
    with psycopg.connect(database_url) as connection:
        assert client.submit_task(sync_user, user=7, unique="pending", connection=connection) == first
        assert Database(config).run(claiming) == []
        connection.commit()
        assert len(Database(config).run(claiming)) == 1


def test_a_merged_submission_that_is_rolled_back_changes_nothing(
    client: Client, sync_user: Any, database_url: str, db: Any
) -> None:
    options = {"debounce": 60, "merge_key": ["user"]}
    first = client.submit_task(sync_user, user=7, name="a", **options)
    before = row(db, first)
    with psycopg.connect(database_url) as connection:
        bound = sync_user.options(**options)
        client.submit_many([bound.bind(user=7, name="b"), bound.bind(user=8, name="c")], connection=connection)
        connection.rollback()
    assert rows(db) == [before]


def test_on_ones_own_connection_a_mixed_batch_is_refused(
    client: Client, sync_user: Any, database_url: str, db: Any
) -> None:
    unique = sync_user.options(unique="pending")
    refusing = sync_user.options(unique="pending", on_duplicate="raise")
    with psycopg.connect(database_url) as connection:
        with pytest.raises(InvalidOption, match="apart from the others"):
            client.submit_many([unique.bind(user=1), sync_user.bind(user=2)], connection=connection)
        with pytest.raises(InvalidOption, match="one by one"):
            client.submit_many([refusing.bind(user=1), refusing.bind(user=2)], connection=connection)
    assert count(db) == 0


def test_a_repeated_submission_with_its_own_id_changes_nothing_again(
    client: Client, sync_user: Any, worker: Worker, db: Any
) -> None:
    from tasklib.tasks.ids import new_id

    id_ = new_id()
    item = sync_user.options(unique="pending", merge_key="k", on_duplicate="replace").bind(user=7, name="a")
    later = sync_user.options(unique="pending", merge_key="k", on_duplicate="replace").bind(user=7, name="b")
    assert client.submit_each([item], ids=[id_])[0].is_new
    client.submit(later)
    assert client.submit_each([item], ids=[id_])[0].is_new
    assert row(db, id_)["kwargs"]["name"] == "b"
    worker.claim()
    assert client.submit_each([item], ids=[id_])[0].id == id_
    assert count(db) == 1
    with pytest.raises(InvalidOption, match="another task"):
        client.submit_each([item_of_other_name()], ids=[id_])


def item_of_other_name() -> Any:
    @task
    def other_name() -> None: ...

    return other_name.options(unique="pending").bind()


# ---- bad combinations ----


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unique": "always"}, "unique must be one of pending, unfinished"),
        ({"unique": "pending", "on_duplicate": "drop"}, "on_duplicate must be one of return, replace, raise"),
        ({"unique": "pending", "debounce": 5}, "exclude each other"),
        ({"unique": "pending", "idempotency_key": "k"}, "exclude each other"),
        ({"debounce": 0}, "above 0"),
        ({"debounce": 5, "on_duplicate": "raise"}, "can't be combined"),
        ({"debounce": 5, "max_wait": 4}, "at least as long"),
        ({"debounce": 5, "delay_seconds": 1}, "omit delay_seconds"),
        ({"throttle": 5, "on_duplicate": "replace"}, "can't be combined"),
        ({"max_wait": 5}, "max_wait needs"),
        ({"merge_key": "k"}, "merge_key needs"),
        ({"unique": "pending", "merge_key": []}, "merge_key must be"),
        ({"unique": "pending", "merge_key": ""}, "merge_key must be"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    options: dict[str, Any], said: str, client: Client, sync_user: Any, db: Any
) -> None:
    with pytest.raises(InvalidOption, match=said):
        client.submit_task(sync_user, user=7, **options)
    assert count(db) == 0
