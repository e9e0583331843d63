"""Sealed tasks from submission to result: nothing clear in the table, attacks end as dead letters, keys rotate."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasklib
from tasklib import Config, Sealed, TaskFailed, chain, current_task, submit_many, submit_task, task
from tasklib.client.clients import Client
from tasklib.client.rotation import rotate
from tasklib.client.sealing import opened_task
from tasklib.errors import InvalidOption, KeyMissing
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.keyring import Keyring, keyring_of
from tasklib.testing import drain, inline
from tasklib.worker.worker import Worker

SECRET = "DE02-very-secret-0042"
KEYS = [("new", bytes(range(32))), ("old", bytes(32))]
AnyTask = TaskFunction[..., Any, Any, ...]


@pytest.fixture
def sealed(config: Config) -> Config:
    return config.with_changes(keys=tuple(KEYS), max_retries=0)


@pytest.fixture(autouse=True)
def initialised(sealed: Config) -> None:
    tasklib.init(sealed)


@pytest.fixture
def pay() -> AnyTask:
    @task(name="pay", sealed=True)
    async def pay(iban: str, fail: bool = False) -> dict[str, str]:
        current_task().progress({"doing": iban})
        if fail:
            raise ValueError(f"{iban} is no account")
        return {"paid": iban}

    return pay


def everything(db: psycopg.Connection) -> str:
    rows = db.execute("SELECT t::text FROM tasks AS t UNION ALL SELECT a::text FROM audit AS a").fetchall()
    return "\n".join(row[0] for row in rows)


async def test_arguments_result_progress_and_history_hold_nothing_clear_and_open_again(
    pay: AnyTask, db: psycopg.Connection
) -> None:
    done = await pay.submit(iban=SECRET)
    failed = await pay.options(max_retries=1).submit(iban=SECRET, fail=True)
    await drain(until_done=True)
    assert SECRET not in everything(db)
    assert SECRET.encode() not in b"".join(b64decode(text) for text in _ciphertexts(db))
    assert await done.result() == {"paid": SECRET}
    with pytest.raises(TaskFailed, match=f"ValueError: {SECRET} is no account"):
        await failed.result()
    keys = db.execute("SELECT key_id, required_capabilities FROM tasks").fetchall()
    assert keys == [("new", ["key:new"])] * 2
    history = db.execute("SELECT history -> 0 ->> 'error' FROM tasks WHERE history IS NOT NULL").fetchall()
    assert history == [("ValueError",)]


def _ciphertexts(db: psycopg.Connection) -> list[str]:
    rows = db.execute("SELECT kwargs ->> '$sealed' FROM tasks").fetchall()
    return [row[0] for row in rows]


async def test_errors_of_one_type_are_one_group(pay: AnyTask, db: psycopg.Connection) -> None:
    for n in range(2):
        await pay.submit(iban=f"{SECRET}{n}", fail=True)
    await drain()
    groups = db.execute("SELECT DISTINCT tasklib_fingerprint(name, error) FROM tasks").fetchall()
    assert len(groups) == 1


async def test_every_way_in_seals(pay: AnyTask, sealed: Config, db: psycopg.Connection) -> None:
    @task(name="spawner")
    async def spawner() -> None:
        await current_task().spawn(pay.s(SECRET), key="x")

    await pay.options(delay_seconds=0.001).submit(iban=SECRET)
    await submit_many(pay, [{"iban": f"{SECRET}{n}"} for n in range(120)])
    await chain(pay.s(SECRET), spawner.s()).submit()
    with psycopg.connect(sealed.database_url) as connection:
        pay.on(connection).submit(iban=SECRET)
    assert (await drain()).counts == {"completed": 125}
    assert SECRET not in everything(db)
    assert db.execute("SELECT DISTINCT key_id FROM tasks WHERE name = 'pay'").fetchall() == [("new",)]


@pytest.mark.parametrize("executor", ["process", "thread"])
async def test_functions_in_threads_and_processes_get_them_open(executor: Any, db: psycopg.Connection) -> None:
    from tests.worker import sealed_tasks

    function = sealed_tasks.in_process if executor == "process" else sealed_tasks.in_thread
    tasklib.tasks.registry.register(function)
    ids = [await function.submit(iban=SECRET), await function.submit(iban=SECRET, fail=True)]
    await drain()
    assert await ids[0].result() == f"paid {SECRET}"
    with pytest.raises(TaskFailed, match=SECRET):
        await ids[1].result()
    assert SECRET not in everything(db)


async def test_a_transactional_task_seals_its_result(db: psycopg.Connection) -> None:
    @task(name="book", transactional=True, sealed=True)
    async def book(connection: psycopg.AsyncConnection[Any], iban: str) -> str:
        await connection.execute("SELECT 1")
        return iban

    id_ = await book.submit(iban=SECRET)
    await drain()
    assert await id_.result() == SECRET
    assert SECRET not in everything(db)


async def test_single_fields_are_sealed_beside_readable_ones(db: psycopg.Connection) -> None:
    @task(name="fields")
    async def fields(order: int, iban: Sealed[str]) -> str:
        return f"{order} {iban}"

    id_ = await fields.submit(order=7, iban=SECRET)
    await drain()
    assert await id_.result() == f"7 {SECRET}"
    assert SECRET not in everything(db)
    assert db.execute("SELECT kwargs -> 'order' FROM tasks").fetchall() == [(7,)]


async def test_a_worker_without_the_key_never_gets_the_task(
    pay: AnyTask, config: Config, sealed: Config, db: psycopg.Connection
) -> None:
    await pay.submit(iban=SECRET)
    for keys in (None, (("other", bytes(32)),)):
        await Worker(config.with_changes(keys=keys), burst=True, signals=False).run()
        assert db.execute("SELECT state, lease_token FROM tasks").fetchall() == [("pending", 0)]
    await Worker(sealed, burst=True, signals=False).run()
    assert db.execute("SELECT state FROM tasks").fetchall() == [("completed",)]


def _moved(db: psycopg.Connection) -> None:
    db.execute("UPDATE tasks SET kwargs = (SELECT kwargs FROM tasks ORDER BY id LIMIT 1)")


def _flipped(db: psycopg.Connection) -> None:
    raw = bytearray(b64decode(_ciphertexts(db)[1]))
    raw[-1] ^= 1
    _store(db, b64encode(raw).decode())


def _cut(db: psycopg.Connection) -> None:
    _store(db, _ciphertexts(db)[1][:-24])


def _replaced(db: psycopg.Connection) -> None:
    _store(db, b64encode(b"\x01\x03new" + bytes(60)).decode())


def _clear(db: psycopg.Connection) -> None:
    db.execute('UPDATE tasks SET kwargs = \'{"iban": "forged"}\' WHERE id = (SELECT max(id::text)::uuid FROM tasks)')


def _store(db: psycopg.Connection, text: str) -> None:
    db.execute(
        "UPDATE tasks SET kwargs = %s WHERE id = (SELECT max(id::text)::uuid FROM tasks)",
        (json.dumps({"$sealed": text}),),
    )


@pytest.mark.parametrize("attack", [_moved, _flipped, _cut, _replaced, _clear])
async def test_forged_arguments_are_a_dead_letter_at_once_and_the_function_is_not_called(
    attack: Any, pay: AnyTask, db: psycopg.Connection
) -> None:
    await pay.submit(iban=SECRET)
    await pay.options(max_retries=5).submit(iban=SECRET)
    attack(db)
    await drain(until_done=True)
    first, second = db.execute("SELECT state, retry_count, error FROM tasks ORDER BY id").fetchall()
    assert first[0] == "completed"
    assert second[0] == "dead_letter"
    assert second[2].startswith("PayloadDamaged: ")


async def test_a_retry_leaves_the_ciphertext_as_it_is(pay: AnyTask, db: psycopg.Connection) -> None:
    await pay.options(max_retries=3).submit(iban=SECRET, fail=True)
    before = _ciphertexts(db)
    await drain(until_done=True)
    assert db.execute("SELECT retry_count FROM tasks").fetchall()[0][0] >= 3
    assert _ciphertexts(db) == before


async def test_a_function_that_is_newly_sealed_can_take_clear_tasks_too(db: psycopg.Connection) -> None:
    @task(name="turning", sealed="new")
    async def turning(iban: str) -> str:
        return iban

    db.execute("INSERT INTO tasks (name, kwargs) VALUES ('turning', '{\"iban\": \"x\"}')")
    await turning.submit(iban=SECRET)
    assert (await drain()).counts == {"completed": 2}


async def test_idempotency_keys_are_hashed_and_still_meet(pay: AnyTask, db: psycopg.Connection) -> None:
    first = await pay.options(idempotency_key=SECRET).submit(iban="a")
    again = await pay.options(idempotency_key=SECRET).submit(iban="b")
    unique = [await pay.options(unique="unfinished").submit(iban=SECRET) for _ in range(2)]
    assert first == again
    assert unique[0] == unique[1]
    assert SECRET not in everything(db)


async def test_combinations_that_can_not_work_are_refused(pay: AnyTask, config: Config, db: psycopg.Connection) -> None:
    @task
    async def total(value: Any) -> None: ...

    with pytest.raises(InvalidOption, match="can't replace another's: omit debounce"):
        await pay.options(debounce=5).submit(iban="a")
    with pytest.raises(InvalidOption, match="would get the result of pay, which is sealed"):
        await chain(pay.s("a"), total.s()).submit()
    with Client(config) as client, pytest.raises(InvalidOption, match="sealed and can't have a schedule"):
        client.create_schedule(pay, "0 3 * * *")
    with Client(config) as client, pytest.raises(KeyMissing, match="pay is sealed, and this program has no keys"):
        client.submit_task(pay, iban="a")
    await pay.submit(iban=SECRET)
    stored = db.execute("SELECT kwargs FROM tasks").fetchall()[0][0]
    with tasklib.tasks.registry.isolated(), pytest.raises(InvalidOption, match="sealed for another task"):
        await submit_task("pay", kwargs=stored, registered_elsewhere=True)


async def test_a_client_without_the_key_is_told_which_one(pay: AnyTask, config: Config) -> None:
    id_ = await pay.submit(iban=SECRET)
    await drain()
    with Client(config) as client, pytest.raises(KeyMissing, match="'new'"):
        client.get_result(id_) if hasattr(client, "get_result") else client.wait_for(id_)


async def test_a_key_may_be_chosen_by_tenant(sealed: Config, pay: AnyTask, db: psycopg.Connection) -> None:
    tasklib.init(sealed.with_changes(key_for=lambda name, arguments: "old" if arguments["iban"] == "tenant" else "new"))
    await pay.submit(iban="tenant")
    await pay.submit(iban="other")
    assert db.execute("SELECT key_id FROM tasks ORDER BY id").fetchall() == [("old",), ("new",)]
    assert (await drain()).counts == {"completed": 2}


async def test_inline_mode_needs_no_keys(config: Config, pay: AnyTask) -> None:
    with inline() as ran:
        await pay.submit(iban=SECRET)
    assert ran.tasks[0].result == {"paid": SECRET}


# ---- rotation ----


@pytest.fixture
async def tasks_of_old(sealed: Config, pay: AnyTask, db: psycopg.Connection) -> list[UUID]:
    tasklib.init(sealed.with_changes(keys=tuple(reversed(KEYS))))
    done = [await pay.submit(iban=f"{SECRET}-{n}") for n in range(6)]
    done.append(await pay.submit(iban="bad", fail=True))
    await drain()
    waiting = [await pay.submit(iban=f"{SECRET}-{n}") for n in range(6)]
    tasklib.init(sealed)
    return [*done, *waiting]


def _ring() -> Keyring:
    ring = keyring_of(Config("postgresql://", keys=tuple(KEYS)))
    assert ring is not None
    return ring


async def test_rotation_seals_all_anew_and_everything_opens(
    sealed: Config, tasks_of_old: list[UUID], db: psycopg.Connection
) -> None:
    with Client(sealed) as client:
        done = client.perform(rotate(_ring(), "old", "new", by="ann"))
        assert (done.resealed, done.skipped, done.unreadable) == (13, 0, [])
        opened = [opened_task(sealed, task) for id_ in tasks_of_old if (task := client.get_task(id_))]
    assert [t.kwargs["iban"] for t in opened[7:]] == [f"{SECRET}-{n}" for n in range(6)]
    assert opened[0].result == {"paid": f"{SECRET}-0"}
    assert opened[6].error is not None
    assert opened[6].error.endswith("ValueError: bad is no account")
    assert db.execute("SELECT DISTINCT key_id, required_capabilities FROM tasks").fetchall() == [("new", ["key:new"])]
    assert (await drain()).counts == {"completed": 6}
    records = db.execute("SELECT actor, action, details FROM audit").fetchall()
    assert records == [("ann", "key.rotate", {"to": "new", "count": 13})]


async def test_rotation_passes_over_what_can_not_be_opened_and_what_runs(
    sealed: Config, tasks_of_old: list[UUID], db: psycopg.Connection
) -> None:
    db.execute('UPDATE tasks SET kwargs = \'{"$sealed": "AAAA"}\' WHERE id = %s', (tasks_of_old[0],))
    db.execute(
        "UPDATE tasks SET state = 'running', worker_id = 'w', locked_until = now() + '1 h' WHERE id = %s",
        (tasks_of_old[12],),
    )
    with Client(sealed) as client:
        done = client.perform(rotate(_ring(), "old", "new", by="ann"))
    assert (done.resealed, done.skipped, done.unreadable) == (11, 1, [str(tasks_of_old[0])])
    assert db.execute("SELECT count(*) FROM tasks WHERE key_id = 'old'").fetchall() == [(2,)]


async def test_a_task_that_changes_between_reading_and_writing_is_left_for_the_next_rotation(
    sealed: Config, tasks_of_old: list[UUID], db: psycopg.Connection
) -> None:
    with Client(sealed) as client:
        call = rotate(_ring(), "old", "new", by="ann")
        page = client.perform(_one(next(call)))
        db.execute("UPDATE tasks SET lease_token = lease_token + 1 WHERE id = %s", (tasks_of_old[7],))
        db.execute("UPDATE tasks SET state = 'cancelled', completed_at = now() WHERE id = %s", (tasks_of_old[8],))
        stored = client.perform(_one(call.send(page)))
        assert len(stored) == 11
        again = client.perform(rotate(_ring(), "old", "new", by="ann"))
    assert again.resealed == 2


def _one(effect: Any) -> Iterator[Any]:
    answer = yield effect
    return answer


async def test_rotation_that_is_interrupted_at_any_page_loses_and_doubles_nothing(
    sealed: Config, tasks_of_old: list[UUID], db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.client.rotation.PAGE", 2)
    total = 0
    with Client(sealed) as client:
        for stop_after in (1, 2, 3, 4, 5, None):
            call, statements = rotate(_ring(), "old", "new", by="ann"), 0
            effect = next(call)
            while stop_after is None or statements < stop_after:
                answer = client.perform(_one(effect))
                statements += 1
                total += len(answer) if isinstance(answer, set) else 0
                try:
                    effect = call.send(answer)
                except StopIteration:
                    break
    assert total == 13
    assert db.execute("SELECT key_id, count(*) FROM tasks GROUP BY 1").fetchall() == [("new", 13)]
    assert (await drain()).counts == {"completed": 6}
