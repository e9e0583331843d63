"""Sealed durable functions: steps, signals, approvals and new arguments hold nothing clear, and none can be forged."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel

import tasklib
from tasklib import (
    AsyncClient,
    Config,
    FileStore,
    TaskFailed,
    continue_as_new,
    current_task,
    sleep,
    step,
    sync,
    task,
    wait_for_approval,
    wait_for_signal,
)
from tasklib.client.clients import Client
from tasklib.client.rotation import rotate
from tasklib.errors import KeyMissing, PayloadDamaged
from tasklib.tasks.keyring import Keyring
from tests.worker.watching import burst

SECRET = "DE02-very-secret-0042"
KEYS = (("new", bytes(range(32))), ("old", bytes(32)))
RING = Keyring(KEYS)


@pytest.fixture
def sealed(config: Config) -> Config:
    return config.with_changes(keys=KEYS, max_retries=0)


@pytest.fixture
async def client(sealed: Config) -> AsyncClient:
    tasklib.init(sealed)
    return AsyncClient(sealed)


@pytest.fixture
def without_key(config: Config, client: AsyncClient) -> AsyncClient:
    return AsyncClient(config)


def everything(db: psycopg.Connection) -> str:
    tables = ("tasks", "steps", "signals", "audit")
    query = " UNION ALL ".join(f"SELECT t::text FROM {table} AS t" for table in tables)
    return "\n".join(row[0] for row in db.execute(query).fetchall())


def state(db: psycopg.Connection) -> tuple[str, str | None]:
    found: tuple[str, str | None] = db.execute("SELECT state, error FROM tasks").fetchall()[0]
    return found


class Form(BaseModel):
    iban: str


async def order_paid(number: str) -> dict[str, Any]:
    await sleep(0)
    charged: str = await step("charge", _charge, number)
    paid: Any = await wait_for_signal("paid")
    return {"charged": charged, "paid": paid}


def _charge(number: str) -> str:
    return f"charged {number}"


async def test_steps_signals_and_the_result_hold_nothing_clear_and_the_function_sees_them_all(
    client: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    order = task(durable=True, sealed=True, name="order")(order_paid)
    id_ = await order.submit(number=SECRET)
    await burst(sealed)
    assert await client.signal(id_, "paid", {"from": SECRET})
    assert SECRET not in everything(db)
    await burst(sealed)
    assert await id_.result() == {"charged": f"charged {SECRET}", "paid": {"from": SECRET}}
    assert SECRET not in everything(db)
    kinds = db.execute("SELECT kind, result -> 'value' ? '$sealed' FROM steps ORDER BY kind").fetchall()
    assert kinds == [("signal", True), ("sleep", False), ("step", True)]


async def test_a_sync_function_and_a_transactional_step_are_sealed_too(
    client: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    @task(durable=True, sealed=True, name="book")
    def book(iban: str) -> str:
        def write(connection: psycopg.Connection[Any], iban: str) -> str:
            connection.execute("SELECT 1")
            return iban

        first = sync.step("write", write, iban, transactional=True)
        return f"{first} {sync.wait_for_signal('go')}"

    id_ = await book.submit(iban=SECRET)
    await burst(sealed)
    await client.signal(id_, "go", SECRET)
    await burst(sealed)
    assert await id_.result() == f"{SECRET} {SECRET}"
    assert SECRET not in everything(db)


async def test_a_task_that_begins_anew_seals_its_new_arguments(
    client: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    @task(durable=True, sealed=True, name="poll")
    async def poll(cursor: str, turns: int = 0) -> str:
        if turns < 2:
            continue_as_new(cursor=f"{SECRET}-{turns}", turns=turns + 1)
        return cursor

    id_ = await poll.submit(cursor="first")
    await burst(sealed)
    assert await id_.result() == f"{SECRET}-1"
    assert SECRET not in everything(db)


async def test_a_signal_needs_the_key_of_its_task_and_a_key_makes_it_one_still(
    client: AsyncClient, without_key: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    order = task(durable=True, sealed=True, name="order")(order_paid)
    id_ = await order.submit(number="7")
    await burst(sealed)
    with pytest.raises(KeyMissing, match="order is sealed, and this program has no keys"):
        await without_key.signal(id_, "paid", SECRET)
    clear = db.execute("SELECT tasklib_signal(%s, 'paid', '\"forged\"')", (id_,)).fetchall()
    assert clear == [("sealed",)]
    assert db.execute("SELECT count(*) FROM signals").fetchall() == [(0,)]
    for _ in range(2):
        assert await client.signal(id_, "paid", SECRET, key="once")
    assert db.execute("SELECT count(*) FROM signals").fetchall() == [(1,)]
    ready = db.execute("SELECT payload FROM signals").fetchall()[0][0]
    other = await order.submit(number="8")
    with pytest.raises(PayloadDamaged, match="sealed with another key"):
        await client.signal(other, "paid", {"$sealed": "AQNvbGQ" + ready["$sealed"][7:]})


async def test_signals_inside_a_transaction_of_the_caller_are_sealed(
    client: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    order = task(durable=True, sealed=True, name="order")(order_paid)
    id_ = await order.submit(number="7")
    with psycopg.connect(sealed.database_url) as connection, Client(sealed) as blocking:
        blocking.signal(id_, "paid", SECRET, connection=connection)
    await burst(sealed)
    assert (await id_.result())["paid"] == SECRET
    assert SECRET not in everything(db)


# ---- attacks ----


def _clear_step(db: psycopg.Connection) -> None:
    db.execute("""UPDATE steps SET result = '{"value": "forged"}' WHERE kind = 'step'""")


def _other_step(db: psycopg.Connection) -> None:
    db.execute("UPDATE steps SET result = (SELECT result FROM steps WHERE name = 'other') WHERE name = 'charge'")


def _arguments_as_step(db: psycopg.Connection) -> None:
    db.execute("UPDATE steps SET result = jsonb_build_object('value', (SELECT kwargs FROM tasks)) WHERE kind = 'step'")


def _other_signal(db: psycopg.Connection) -> None:
    db.execute("UPDATE signals SET name = 'paid'")


def _step_as_signal(db: psycopg.Connection) -> None:
    db.execute(
        "UPDATE signals SET name = 'paid', payload = (SELECT result -> 'value' FROM steps WHERE name = 'charge')"
    )


def _clear_signal(db: psycopg.Connection) -> None:
    db.execute("""UPDATE signals SET name = 'paid', payload = '"forged"'""")


@pytest.mark.parametrize(
    "attack", [_clear_step, _other_step, _arguments_as_step, _other_signal, _step_as_signal, _clear_signal]
)
async def test_forged_steps_and_signals_are_a_dead_letter_at_once(
    attack: Any, client: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    @task(durable=True, sealed=True, name="order", max_retries=5)
    async def order(number: str) -> Any:
        await step("charge", _charge, number)
        await step("other", _charge, "other")
        return await wait_for_signal("paid")

    id_ = await order.submit(number=SECRET)
    await burst(sealed)
    await client.signal(id_, "refused", "no")
    attack(db)
    db.execute("UPDATE tasks SET scheduled_at = now() - interval '1 second'")
    await burst(sealed)
    assert state(db)[0] == "dead_letter"
    with pytest.raises(TaskFailed, match="PayloadDamaged"):
        await id_.result()
    assert db.execute("SELECT retry_count FROM tasks").fetchall() == [(0,)]


async def test_a_signal_that_is_copied_is_not_received_twice(
    client: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    received: list[str] = []

    @task(durable=True, sealed=True, name="till")
    async def till() -> None:
        for n in range(2):
            received.append(await wait_for_signal("paid", key=n))

    id_ = await till.submit()
    await client.signal(id_, "paid", "100")
    db.execute("INSERT INTO signals (task, name, payload) SELECT task, name, payload FROM signals")
    await burst(sealed)
    assert state(db)[0] == "dead_letter"
    assert received == ["100"]


# ---- approvals ----


async def test_what_an_approval_asks_and_its_answer_are_sealed(
    client: AsyncClient, without_key: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    @task(durable=True, sealed=True, name="pay")
    async def pay(iban: str) -> list[str]:
        decision = await wait_for_approval(
            "pay-out", form=Form, title=f"Pay to {iban}?", details={"iban": iban}, role="operator"
        )
        return [decision.form.iban, decision.comment]

    id_ = await pay.submit(iban=SECRET)
    await burst(sealed)
    [blind] = await without_key.approvals()
    assert (blind.title, blind.details, blind.form, blind.role) == ("pay-out", None, None, "operator")
    assert blind.sealed
    with pytest.raises(KeyMissing):
        await without_key.approve(id_, form={"iban": SECRET})
    clear = db.execute("SELECT tasklib_answer(%s, 'pay-out', true)", (id_,)).fetchall()
    assert clear == [("sealed",)]
    asked = await client.approval(id_)
    assert (asked.title, asked.details) == (f"Pay to {SECRET}?", {"iban": SECRET})
    assert asked.form is not None
    await client.approve(id_, form={"iban": SECRET}, comment=f"for {SECRET}")
    assert SECRET not in everything(db)
    await burst(sealed)
    assert await id_.result() == [SECRET, f"for {SECRET}"]
    assert SECRET not in everything(db)
    actions = [row[0] for row in db.execute("SELECT action FROM audit ORDER BY id").fetchall()]
    assert actions == ["task.reveal", "task.reveal", "task.answer"]


# ---- rotation ----


async def test_steps_signals_and_questions_get_the_new_key_with_their_task(
    client: AsyncClient, sealed: Config, db: psycopg.Connection, tmp_path: Path
) -> None:
    store = FileStore(tmp_path)
    config = sealed.with_changes(keys=KEYS[::-1], payload_store=store, payload_store_from_bytes=1024)
    tasklib.init(config)

    @task(durable=True, sealed=True, name="order")
    async def order(number: str) -> Any:
        long = await step("long", _charge, number * 200)
        first = await wait_for_signal("first")
        decision = await wait_for_approval("pay-out", title=number)
        current_task().progress(number)
        return [len(long), first, await wait_for_signal("second"), bool(decision)]

    async with AsyncClient(config) as old:
        id_ = await order.submit(number=SECRET)
        await old.signal(id_, "first", SECRET)
        await burst(config)
        await old.signal(id_, "second", SECRET)
    turned = config.with_changes(keys=KEYS)
    with Client(turned) as blocking:
        done = blocking.perform(rotate(RING, "old", "new", by="ann"))
    assert (done.resealed, done.skipped, done.unreadable) == (1, 0, [])
    only_new = turned.with_changes(keys=KEYS[:1])
    async with AsyncClient(only_new) as new:
        tasklib.init(only_new)
        assert (await new.approval(id_)).title == SECRET
        await new.approve(id_)
        await burst(only_new)
        assert await new.wait_for(id_) == [len(_charge(SECRET * 200)), SECRET, SECRET, True]


async def test_a_task_that_gets_a_signal_while_it_is_sealed_anew_is_left_for_the_next_rotation(
    client: AsyncClient, sealed: Config, db: psycopg.Connection
) -> None:
    tasklib.init(sealed.with_changes(keys=KEYS[::-1]))
    order = task(durable=True, sealed=True, name="order")(order_paid)
    id_: UUID = await order.submit(number=SECRET)
    tasklib.init(sealed)
    with Client(sealed) as blocking:
        call = rotate(RING, "old", "new", by="ann")
        page = blocking.perform(_one(next(call)))
        await client.signal(id_, "paid", SECRET)
        assert blocking.perform(_one(call.send(page))) == set()
        assert blocking.perform(rotate(RING, "old", "new", by="ann")).resealed == 1
    await burst(sealed.with_changes(keys=KEYS[:1]))
    assert state(db)[0] == "completed"


def _one(effect: Any) -> Any:
    answer = yield effect
    return answer
