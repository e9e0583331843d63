"""Results of sealed tasks as arguments of others: opened where they are used, if they are of the tasks of the flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import (
    Config,
    FileStore,
    InvalidOption,
    Results,
    Sealed,
    SettledTask,
    TaskFailed,
    chain,
    current_task,
    gather,
    group,
    spawned,
    task,
)
from tasklib.client.clients import Client
from tasklib.tasks.function import TaskFunction
from tests.worker.watching import burst

SECRET = "DE02-very-secret-0042"
AnyTask = TaskFunction[..., Any, Any, ...]


@pytest.fixture
def sealed(config: Config) -> Config:
    made = config.with_changes(keys=(("new", bytes(range(32))),), max_retries=0)
    tasklib.init(made)
    return made


@pytest.fixture
def read() -> AnyTask:
    @task(name="read", sealed=True)
    async def read(n: int = 0, fail: bool = False) -> str:
        if fail:
            raise ValueError(SECRET * 200)
        return f"{SECRET}-{n}"

    return read


@pytest.fixture
def plain() -> AnyTask:
    @task(name="plain")
    async def plain(n: int = 0) -> str:
        return f"plain-{n}"

    return plain


@pytest.fixture
def pay() -> AnyTask:
    @task(name="pay", sealed=True)
    async def pay(iban: str, note: str = "") -> str:
        return f"paid {iban}{note}"

    return pay


def everything(db: psycopg.Connection) -> str:
    tables = ("tasks", "steps", "flows", "gates")
    query = " UNION ALL ".join(f"SELECT t::text FROM {table} AS t" for table in tables)
    return "\n".join(row[0] for row in db.execute(query).fetchall())


async def test_a_chain_hands_a_sealed_result_on(
    sealed: Config, read: AnyTask, pay: AnyTask, db: psycopg.Connection
) -> None:
    run = await chain(read.s(1), pay.s(note="!")).submit()
    await burst(sealed)
    assert await run.result() == f"paid {SECRET}-1!"
    assert SECRET not in everything(db)


async def test_single_fields_and_plain_results_beside_them(
    sealed: Config, read: AnyTask, plain: AnyTask, db: psycopg.Connection
) -> None:
    @task(name="fields")
    async def fields(iban: Sealed[str], order: int) -> str:
        return f"{order} {iban}"

    @task(name="whole", sealed=True)
    async def whole(value: str) -> str:
        return value

    first = await chain(read.s(1), fields.s(order=7)).submit()
    second = await chain(plain.s(2), whole.s()).submit()
    await burst(sealed)
    assert await first.result() == f"7 {SECRET}-1"
    assert await second.result() == "plain-2"
    assert SECRET not in everything(db)


async def test_a_join_of_sealed_and_plain_tasks(
    sealed: Config, read: AnyTask, plain: AnyTask, db: psycopg.Connection
) -> None:
    @task(name="total", sealed=True)
    async def total(values: list[str]) -> list[str]:
        return values

    run = await group([read.s(1), plain.s(2), read.s(3)]).then(total.s()).submit()
    await burst(sealed)
    assert await run.result() == [f"{SECRET}-1", "plain-2", f"{SECRET}-3"]
    assert SECRET not in everything(db)


async def test_a_join_that_settles_gets_results_and_whole_errors(
    sealed: Config, read: AnyTask, db: psycopg.Connection
) -> None:
    @task(name="report", sealed=True)
    async def report(ends: list[SettledTask[str]]) -> list[str]:
        return [end.state if end.error is None else end.error[-40:] for end in ends]

    run = await group([read.s(1), read.s(2, fail=True)]).then(report.s(), when="settled").submit()
    await burst(sealed)
    assert await run.result() == ["completed", (SECRET * 200)[-40:]]
    assert SECRET not in everything(db)


async def test_pages_of_sealed_results(sealed: Config, read: AnyTask, db: psycopg.Connection) -> None:
    @task(name="pages", sealed=True)
    async def pages(values: Results[str]) -> int:
        return len([v async for v in values if v.startswith(SECRET)])

    run = await group([read.s(n) for n in range(3)]).then(pages.s()).submit()
    await burst(sealed)
    assert await run.result() == 3


async def test_results_in_a_payload_store(
    sealed: Config, read: AnyTask, db: psycopg.Connection, tmp_path: Path
) -> None:
    stored = sealed.with_changes(payload_store=FileStore(tmp_path), payload_store_from_bytes=1024)
    tasklib.init(stored)

    @task(name="long", sealed=True)
    async def long() -> str:
        return SECRET * 200

    @task(name="count", sealed=True)
    async def count(text: str) -> int:
        return len(text)

    run = await chain(long.s(), count.s()).submit()
    await burst(stored)
    assert await run.result() == len(SECRET * 200)
    assert (found := _contents(tmp_path))
    assert not any(SECRET.encode() in each for each in found)


def _contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file()]


async def test_a_sealed_durable_function_gathers_sealed_tasks(
    sealed: Config, read: AnyTask, db: psycopg.Connection
) -> None:
    @task(name="parent", durable=True, sealed=True)
    async def parent() -> Any:
        both = await gather([read.s(1), read.s(2)])
        [end] = await gather([read.s(3, fail=True)], when="settled", name="settled")
        return [*both, end.state, len(end.error or "") > 2000]

    id_ = await parent.submit()
    await burst(sealed)
    assert await id_.result() == [f"{SECRET}-1", f"{SECRET}-2", "dead_letter", True]
    assert SECRET not in everything(db)


async def test_what_is_not_sealed_may_not_get_sealed_results(
    sealed: Config, read: AnyTask, plain: AnyTask, db: psycopg.Connection
) -> None:
    @task(name="take")
    async def take(value: Any, other: Sealed[str] = "") -> None: ...

    with pytest.raises(InvalidOption, match="take would get the result of read, which is sealed, as value"):
        await chain(read.s(1), take.s()).submit()

    @task(name="parent", durable=True, max_retries=0)
    async def parent() -> None:
        await gather([read.s(1)])

    id_ = await parent.submit()
    await burst(sealed)
    with pytest.raises(TaskFailed, match="would get the result of read, which is sealed, as what gather"):
        await id_.result()


async def test_sealed_tasks_that_are_spawned_are_kept_from_functions_that_are_not(
    sealed: Config, read: AnyTask, db: psycopg.Connection
) -> None:
    @task(name="spawner")
    async def spawner() -> None:
        await current_task().spawn(read.s(1), key="a")

    got: list[Any] = []

    @task(name="take")
    async def take(values: list[Any]) -> None:
        got.append(values)

    await chain(spawned(spawner.s(), of=read), take.s()).submit()
    await burst(sealed)
    assert got == []
    assert db.execute("SELECT state FROM tasks WHERE name = 'take'").fetchall() == [("dead_letter",)]


# ---- attacks ----


def _clear(db: psycopg.Connection) -> None:
    db.execute("""UPDATE tasks SET result = '{"value": "forged"}' WHERE name = 'read'""")


def _clear_without_key(db: psycopg.Connection) -> None:
    db.execute("""UPDATE tasks SET result = '{"value": "forged"}', key_id = NULL WHERE name = 'read'""")


def _of_another(db: psycopg.Connection) -> None:
    db.execute(
        "UPDATE tasks SET result = other.result FROM tasks AS other "
        "WHERE other.flow IS NULL AND tasks.name = 'read' AND tasks.flow IS NOT NULL"
    )


def _from_another(db: psycopg.Connection) -> None:
    db.execute(
        "UPDATE tasks SET args = jsonb_set(tasks.args, '{iban,task}', to_jsonb(other.id::text)) FROM tasks AS other "
        "WHERE other.flow IS NULL AND tasks.name = 'pay'"
    )


def _beside(db: psycopg.Connection) -> None:
    db.execute("""UPDATE tasks SET kwargs = kwargs || '{"note": "forged"}' WHERE name = 'pay'""")


def _instead(db: psycopg.Connection) -> None:
    db.execute("""UPDATE tasks SET kwargs = kwargs || '{"iban": "forged"}', args = '{}' WHERE name = 'pay'""")


def _left_out(db: psycopg.Connection) -> None:
    db.execute("UPDATE tasks SET args = '{}' WHERE name = 'pay'")


@pytest.mark.parametrize(
    "attack", [_clear, _clear_without_key, _of_another, _from_another, _beside, _instead, _left_out]
)
async def test_forged_results_are_a_dead_letter_at_once_and_the_function_is_not_called(
    attack: Any, sealed: Config, read: AnyTask, db: psycopg.Connection
) -> None:
    called: list[str] = []

    @task(name="pay", sealed=True, queue="later", max_retries=5)
    async def pay(iban: str, note: str = "") -> None:
        called.append(iban + note)

    await read.submit(n=2)
    await chain(read.s(1), pay.s()).submit()
    await burst(sealed, queues=["default"])
    attack(db)
    await burst(sealed)
    assert called == []
    [(state, retries, error)] = db.execute("SELECT state, retry_count, error FROM tasks WHERE name = 'pay'").fetchall()
    assert (state, retries) == ("dead_letter", 0)
    assert error.startswith("PayloadDamaged")


async def test_arguments_added_to_a_sealed_task_by_hand_are_refused(
    sealed: Config, pay: AnyTask, db: psycopg.Connection
) -> None:
    await pay.submit(iban=SECRET)
    db.execute("""UPDATE tasks SET kwargs = kwargs || '{"note": "forged"}'""")
    await burst(sealed)
    assert db.execute("SELECT state FROM tasks").fetchall() == [("dead_letter",)]


async def test_a_program_with_the_key_reads_pages_of_results(
    sealed: Config, read: AnyTask, db: psycopg.Connection
) -> None:
    run = await group([read.s(1), read.s(2)]).submit()
    await burst(sealed)
    with Client(sealed) as client:
        flow, node = db.execute("SELECT flow, node FROM tasks LIMIT 1").fetchall()[0]
        page = client.perform(client.calls.node_results(flow, [node]))
    assert sorted(value for _, value in page) == [f"{SECRET}-1", f"{SECRET}-2"]
    assert sorted(await run.results()) == [f"{SECRET}-1", f"{SECRET}-2"]
