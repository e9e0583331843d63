"""Long payloads in a payload store: every way in and out, a store that fails, and orphans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest

import tasklib
from tasklib import Config, FileStore, PayloadUnreadable, TaskFailed, Worker, chain, group, step, submit_many, task
from tasklib.client.clients import Client
from tasklib.client.rotation import rotate
from tasklib.db.query import Query
from tasklib.maintenance import payloads
from tasklib.maintenance.payloads import sweep_payloads
from tasklib.store import fleet
from tasklib.store.fleet import Term
from tasklib.tasks.ids import Ids
from tasklib.tasks.keyring import Keyring
from tasklib.tasks.payload_stores import new_key
from tasklib.testing import drain

T = TypeVar("T")
LONG = "long text " * 500
KEYS = (("new", bytes(range(32))), ("old", bytes(32)))


class Store(FileStore):
    """A directory whose next calls fail as often as it is told."""

    failures = 0

    def get(self, key: str) -> bytes:
        self._fail()
        return super().get(key)

    def put(self, key: str, data: bytes) -> None:
        self._fail()
        super().put(key, data)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no answer")

    def everything(self) -> list[str]:
        return self.keys("", 1000)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "payloads")


@pytest.fixture(autouse=True)
def stored(config: Config, store: Store) -> Config:
    made = config.with_changes(payload_store=store, payload_store_from_bytes=2000, max_retries=0, keys=KEYS)
    tasklib.init(made)
    return made


def echo(**settings: Any) -> Any:
    @task(name="echo", **settings)
    def echo(text: str) -> str:
        return text

    return echo


async def test_long_arguments_and_results_are_in_the_store_and_short_ones_in_the_table(
    store: Store, db: psycopg.Connection
) -> None:
    function = echo()
    long, short = await function.submit(text=LONG), await function.submit(text="short")
    await drain()
    assert [await long.result(), await short.result()] == [LONG, "short"]
    rows = db.execute("SELECT kwargs::text, result::text, required_capabilities FROM tasks ORDER BY id").fetchall()
    assert max(len(text) for text in rows[0][:2]) < 500
    assert rows[0][2] == ["payload-store", "zstd"]
    assert rows[1] == ('{"text": "short"}', '{"value": "short"}', [])
    assert [key.partition("/")[0] for key in store.everything()] == [str(long)] * 2
    assert sum(len(store.get(key)) for key in store.everything()) < len(LONG)


@pytest.mark.parametrize("executor", ["loop", "thread"])
async def test_every_way_in_puts_them_there(executor: str, stored: Config, db: psycopg.Connection) -> None:
    @task(name="echo.async")
    async def echo_async(text: str) -> str:
        return text

    function = echo() if executor == "thread" else echo_async
    await submit_many(function, [{"text": f"{n} {LONG}"} for n in range(120)])
    await chain(function.s(LONG), function.s()).submit()
    with psycopg.connect(stored.database_url) as connection:
        function.on(connection).submit(text=LONG)
    assert (await drain()).counts == {"completed": 123}
    row = db.execute("SELECT max(length(kwargs::text)), max(length(result::text)) FROM tasks").fetchone()
    assert row is not None
    assert max(row) < 500


async def test_arguments_that_replace_those_of_a_waiting_task_stay_in_the_table(store: Store) -> None:
    """The store would have them under an id that no task has, and the leader would delete them before the task runs."""
    replacing = echo().options(unique="pending", merge_key="mail", on_duplicate="replace", delay_seconds=3600)
    waiting = await replacing.submit(text=f"first {LONG}")
    assert await replacing.submit(text=f"second {LONG}") == waiting
    assert store.everything() == []
    assert (await drain(with_delayed=True)).counts == {"completed": 1}
    assert await waiting.result() == f"second {LONG}"


@pytest.mark.parametrize("knows", [True, False], ids=["function", "name"])
async def test_a_serial_key_holds_however_long_the_arguments_are(knows: bool, db: psycopg.Connection) -> None:
    """The claim makes the lane of a task of its arguments, and can't read the store."""
    if knows:

        @task(name="book", serial_key="account")
        async def book(account: str, text: str) -> None: ...

        await submit_many(book, [{"account": account, "text": LONG} for account in "ab"])
    # As a worker stores it that has the function.
    db.execute("""INSERT INTO limited_names VALUES ('book', '[{"serial": "account"}]')""")
    if not knows:
        await submit_many("book", [{"account": account, "text": LONG} for account in "ab"], registered_elsewhere=True)
    lanes = db.execute("SELECT tasklib_lane(name, lane, kwargs) FROM tasks ORDER BY id").fetchall()
    assert lanes == [("\x01ka",), ("\x01kb",)]


async def test_a_join_gets_the_results_of_others_from_the_store(db: psycopg.Connection) -> None:
    @task(name="lengths")
    async def lengths(texts: list[str]) -> list[int]:
        return [len(text) for text in texts]

    function = echo()
    run = await chain(group(function.s(f"{n}{LONG}") for n in range(3)), lengths.s()).submit()
    assert (await drain()).counts == {"completed": 4}
    assert await run.result() == [len(LONG) + 1] * 3


async def test_sealed_payloads_are_sealed_in_the_store_and_rotate(
    stored: Config, store: Store, db: psycopg.Connection
) -> None:
    function = echo(sealed=True, compress=False)
    tasklib.init(stored.with_changes(keys=(KEYS[1],)))
    task_id = await function.submit(text=LONG)
    await drain()
    before = store.everything()
    assert not any(b"long text" in store.get(key) for key in before)
    with Client(stored) as client:
        done = client.perform(rotate(Keyring(KEYS), "old", "new", by="ann"))
    assert (done.resealed, done.unreadable) == (1, [])
    tasklib.init(stored.with_changes(keys=(KEYS[0],)))
    assert await task_id.result() == LONG
    db.execute("UPDATE tasks SET state = 'pending', completed_at = NULL, result = NULL")
    await drain()
    assert await task_id.result() == LONG
    assert db.execute("SELECT key_id FROM tasks").fetchall() == [("new",)]


async def test_a_store_that_fails_costs_no_retry(store: Store, stored: Config, db: psycopg.Connection) -> None:
    task_id = await echo().submit(text=LONG)
    store.failures = 2
    await drain()
    assert await task_id.result() == LONG
    row = db.execute("SELECT state, retry_count, crash_count, history FROM tasks").fetchone()
    assert row == ("completed", 0, 0, None)
    assert store.failures == 0


async def test_a_result_stays_in_the_table_while_the_store_fails(store: Store, db: psycopg.Connection) -> None:
    @task(name="make")
    def make() -> str:
        store.failures = 10
        return LONG

    task_id = await make.submit()
    await drain()
    store.failures = 0
    assert await task_id.result() == LONG
    assert db.execute("SELECT result ->> 'value' FROM tasks").fetchall() == [(LONG,)]
    assert store.everything() == []


async def test_arguments_stay_in_the_table_while_the_store_fails(store: Store, db: psycopg.Connection) -> None:
    store.failures = 1
    task_id = await echo().submit(text=LONG)
    assert db.execute("SELECT kwargs ->> 'text', required_capabilities FROM tasks").fetchall() == [(LONG, [])]
    await drain()
    assert await task_id.result() == LONG


@pytest.mark.parametrize("damage", ["missing", "changed"])
async def test_what_is_missing_or_changed_in_the_store_is_a_dead_letter_at_once(damage: str, store: Store) -> None:
    task_id = await echo(max_retries=5).submit(text=LONG)
    for key in store.everything():
        if damage == "missing":
            store.delete(key)
        else:
            store.put(key, store.get(key)[:-1] + b"!")
    await drain()
    with pytest.raises(TaskFailed, match="PayloadDamaged"):
        await task_id.result()


async def test_a_worker_without_the_store_never_gets_the_task(
    stored: Config, config: Config, db: psycopg.Connection
) -> None:
    task_id = await echo().submit(text=LONG)
    await Worker(config, burst=True, signals=False).run()
    assert db.execute("SELECT state, lease_token FROM tasks").fetchall() == [("pending", 0)]
    await Worker(stored, burst=True, signals=False).run()
    with Client(config) as client, pytest.raises(PayloadUnreadable, match="TASKLIB_PAYLOAD_STORE"):
        client.wait_for(task_id)


async def test_long_results_of_steps_are_in_the_store_too(store: Store, db: psycopg.Connection) -> None:
    calls: list[str] = []

    def load() -> str:
        calls.append("load")
        return LONG

    @task(name="durable", durable=True, max_retries=1)
    async def durable() -> int:
        text = await step("load", load)
        if len(calls) == 1:
            calls.append("failed")
            raise ValueError
        return len(text)

    task_id = await durable.submit()
    await drain(until_done=True)
    assert await task_id.result() == len(LONG)
    assert calls == ["load", "failed"]
    row = db.execute("SELECT result FROM steps WHERE name = 'load'").fetchone()
    assert row is not None
    assert "$blob" in row[0]["value"]
    assert len(store.everything()) == 1


async def test_a_pointer_is_not_taken_from_a_caller(stored: Config) -> None:
    pointer = {"key": new_key(UUID(int=0), "kwargs"), "sha256": "0" * 64, "bytes": 1}
    with Client(stored) as client, pytest.raises(tasklib.InvalidOption, match="pointer"):
        client.submit_task("elsewhere", kwargs={"$blob": pointer}, registered_elsewhere=True)


async def test_a_check_passes_over_what_is_sealed_or_in_the_store(stored: Config) -> None:
    from tasklib.client.compatibility import check

    @task(name="pay", sealed=True)
    async def pay(iban: str) -> None: ...

    await echo().submit(text=LONG)
    await pay.submit(iban="DE02")
    with Client(stored) as client:
        found = client.perform(check())
    assert (found.tasks, found.unchecked, found.problems) == (2, 2, {})


# ---- orphans ----


class _Database:
    """Runs queries on the test's connection."""

    def __init__(self, config: Config) -> None:
        self.config = config

    async def run(self, query: Query[T], /) -> T:
        with Client(self.config) as client:
            return client.database.run(query)


async def test_the_leader_deletes_old_payloads_without_tasks_and_no_others(
    stored: Config, store: Store, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await echo().submit(text=LONG)
    old, other = "018f0000-0000-7000-8000-000000000001", "018f0000-0000-7000-8000-000000000002"
    young = str(await echo().submit(text="short"))
    db.execute("DELETE FROM tasks WHERE id = %s", (young,))
    db.execute("INSERT INTO tasks (id, name) VALUES (%s, 'x')", (other,))
    keys = [new_key(owner, "kwargs") for owner in (old, old, other, young)]
    for key in keys:
        store.put(key, b"x")
    monkeypatch.setattr(payloads, "PAGE", 2)
    with Client(stored) as client:
        term = client.database.run(fleet.campaign("me", 3600)).term
    assert term is not None
    await sweep_payloads(_Database(stored), stored, Term("other", term.number))
    assert len(store.everything()) == 5
    for _ in range(2):
        await sweep_payloads(_Database(stored), stored, term)
    left = store.everything()
    assert set(keys[2:]) < set(left)
    assert next(key for key in left if key not in keys).startswith(str(kept))
    assert len(left) == 3


async def test_the_leader_of_a_shard_leaves_the_payloads_of_other_shards(stored: Config, store: Store) -> None:
    """They have one store, and none has the tasks of another."""
    own, of_another = (str(Ids(1, shard=shard).first(1)[0]) for shard in (0, 5))
    # As old as the oldest ids are.
    keys = [new_key(f"00000000-0001-7{id_[15:]}", "kwargs") for id_ in (own, of_another)]
    for key in keys:
        store.put(key, b"x")
    with Client(stored) as client:
        term = client.database.run(fleet.campaign("me", 3600)).term
    assert term is not None
    await sweep_payloads(_Database(stored), stored, term)
    assert store.everything() == [keys[1]]
    await sweep_payloads(_Database(stored), stored.with_changes(shard=5), term)
    assert store.everything() == []


def test_the_duty_exists_only_with_a_store(config: Config, stored: Config) -> None:
    from tasklib.maintenance.calendar import duties_of

    names = {duty.name for duty in duties_of(stored)} - {duty.name for duty in duties_of(config)}
    assert names == {"payloads"}


async def test_show_reveals_what_is_in_the_store(stored: Config, db: psycopg.Connection) -> None:
    from tasklib.client.effects import once
    from tasklib.store import lookup
    from tasklib.tasks import blobs

    task_id = await echo().submit(text=LONG)
    with Client(stored) as client:
        found = client.perform(once(lookup.get(task_id)))
    assert found is not None
    assert blobs.resolved(stored, found.kwargs) == {"text": LONG}
    assert json.dumps(found.kwargs).count(LONG) == 0
