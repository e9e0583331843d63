"""What submitting returns: a UUID in every respect, that knows its task."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlmodel import Session, select

import tasklib
from tasklib import AsyncClient, Client, Config, SyncTaskId, Task, TaskId, TaskState, Worker, current_task, task
from tasklib.errors import ResultNotReadable, TaskCancelled, TaskFailed, TaskNotFound, WaitTimeout
from tests.client.conftest import Either
from tests.client.submit.stored import row


class Order(BaseModel):
    number: int
    placed: dt.date


TYPED = [
    (Order, Order(number=1, placed=dt.date(2030, 1, 1))),
    (dt.date, dt.date(2030, 1, 1)),
    (list[dt.timedelta], [dt.timedelta(seconds=1)]),
    (bytes, b"\x00\xff"),
    (tuple[int, UUID], (1, UUID(int=7))),
    (int | None, None),
    (dict[str, Any], {"a": [1]}),
]


@pytest.fixture
def initialised(config: Config) -> Iterator[None]:
    tasklib.init(config)
    yield
    tasklib.close()


async def work(config: Config) -> None:
    await Worker(config, burst=True, signals=False).run()


def known(*values: Any) -> bool:
    return all(isinstance(value, TaskId | SyncTaskId) for value in values)


# ---- what it can do ----


@pytest.mark.parametrize(("annotation", "value"), TYPED)
async def test_result_is_of_the_type_that_the_function_declares(
    annotation: Any, value: Any, config: Config, initialised: None
) -> None:
    def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    function = task(give)
    ids = [await function.submit(), function.submit_sync()]
    await work(config)
    assert (await ids[0].result(timeout=120), ids[1].result(timeout=120)) == (value, value)
    assert type(await ids[0].result()) is type(value)
    plain = UUID(str(ids[0]))
    assert await tasklib.wait_for(plain) == tasklib.sync.wait_for(str(plain)) == value


async def test_get_wait_progress_and_cancel_ask_about_its_task(config: Config, initialised: None) -> None:
    @task
    def count() -> int:
        current_task().progress({"done": 3})
        return 3

    done, waiting = await count.submit(), await count.options(delay_seconds=3600).submit()
    assert await waiting.cancel() is TaskState.CANCELLED
    assert (await done.get()).state == "pending"
    assert await done.progress() is None
    await work(config)
    assert (await done.wait(timeout=120), await waiting.wait()) == ("completed", "cancelled")
    assert ((await done.get()).result, await done.progress()) == (3, {"done": 3})
    with pytest.raises(TaskCancelled):
        await waiting.result()


def test_the_ids_of_synchronous_code_block(config: Config, initialised: None) -> None:
    @task
    def count() -> int:
        current_task().progress({"done": 3})
        return 3

    done, waiting = count.submit_sync(), count.options(delay_seconds=3600).submit_sync()
    assert waiting.cancel() is TaskState.CANCELLED
    Worker(config, burst=True, signals=False).run_sync()
    assert (done.wait(timeout=120), done.get().result, done.progress()) == (TaskState.COMPLETED, 3, {"done": 3})
    with pytest.raises(TaskCancelled):
        waiting.result()


async def test_waiting_ends_with_an_error_only_if_the_task_has_not_ended(config: Config, initialised: None) -> None:
    @task(max_retries=0)
    def fail() -> None:
        raise ValueError("no")

    task_id = await fail.submit()
    with pytest.raises(WaitTimeout):
        await task_id.wait(timeout=0)
    await work(config)
    assert await task_id.wait() is TaskState.DEAD_LETTER
    with pytest.raises(TaskFailed, match="ValueError: no"):
        await task_id.result()


async def test_an_id_without_a_task_says_so(initialised: None) -> None:
    nowhere = TaskId[int](UUID(int=7))
    for call in (nowhere.get, nowhere.result, nowhere.wait, nowhere.progress, nowhere.cancel):
        with pytest.raises(TaskNotFound, match=r"no task has the id 00000000-0000-0000-0000-000000000007"):
            await call()


async def test_an_id_asks_the_client_that_submitted_it(either: Either, config: Config) -> None:
    @task
    def one() -> int:
        return 1

    ids = [await either.submit_task(one), *await either.submit_many(one, [{}]), await either.submit(one.bind())]
    await work(config)  # tasklib.init() was not called
    for task_id in ids:
        result = task_id.result(timeout=120)
        assert (await result if isinstance(task_id, TaskId) else result) == 1


async def test_every_way_to_submit_returns_such_an_id(
    client: Client, async_client: AsyncClient, greet: Any, database_url: str, initialised: None
) -> None:
    with psycopg.connect(database_url) as connection:
        blocking = [
            greet.submit_sync("a"),
            greet.options(queue="q").submit_sync("a"),
            greet.on(connection).submit("a"),
            greet.options(idempotency_key="k").submit_sync("a"),
            greet.options(idempotency_key="k").submit_sync("a"),
            tasklib.sync.submit_task(greet, name="a"),
            *tasklib.sync.submit_many(greet, [{"name": "a"}] * 2),
            *client.submit_many(greet, [{"name": "a"}] * 100),
            client.submit_task("greet", name="a"),
        ]
    assert {type(task_id) for task_id in blocking} == {SyncTaskId}
    awaited = [
        await greet.submit("a"),
        await greet.options(idempotency_key="k").submit("a"),
        await tasklib.submit_task(greet, name="a"),
        *await tasklib.submit_many(greet, [{"name": "a"}] * 100),
        await async_client.submit_task(greet, name="a"),
    ]
    assert {type(task_id) for task_id in awaited} == {TaskId}
    assert blocking[3] == blocking[4] == awaited[1]


async def test_an_awaitable_id_has_a_form_that_blocks(config: Config, initialised: None, greet: Any) -> None:
    task_id = await greet.submit("a")
    assert (type(task_id.sync), task_id.sync) == (SyncTaskId, task_id)
    assert task_id.sync.get().name == "greet"
    async with AsyncClient(config) as client:
        with pytest.raises(TypeError, match=r"Hand it to a Client: client\.wait_for\(task_id\)"):
            _ = (await client.submit_task(greet, name="a")).sync


async def test_a_forgotten_await_of_its_methods_says_what_to_write(initialised: None, greet: Any) -> None:
    task_id: Any = await greet.submit("a")
    for name in ("result", "wait", "get", "progress", "cancel"):
        call = getattr(task_id, name)()
        advice = rf"Write `await task_id\.{name}\(\.\.\.\)`, or `task_id\.sync\.{name}\(\.\.\.\)` in synchronous code"
        with pytest.raises(AttributeError, match=advice):
            _ = call.state
        call.close()


async def test_a_result_that_no_longer_fits_the_function_is_named(config: Config, initialised: None, db: Any) -> None:
    @task
    def number() -> int:
        return 1

    task_id = await number.submit()
    await work(config)
    db.execute("""UPDATE tasks SET result = '{"value": {"not": "a number"}}'""")
    with pytest.raises(ResultNotReadable, match=r"doesn't fit the type that number declares here: ") as caught:
        await task_id.result()
    assert caught.value.value == (await task_id.get()).result == {"not": "a number"}


async def test_without_the_function_the_result_is_what_json_has(config: Config, initialised: None) -> None:
    from tasklib.tasks import registry

    @task
    def day() -> dt.date:
        return dt.date(2030, 1, 1)

    task_id = await day.submit()
    await work(config)
    with registry.isolated():
        assert await task_id.result() == "2030-01-01"


# ---- what it is ----


@pytest.fixture(params=[TaskId, SyncTaskId])
def task_id(request: pytest.FixtureRequest) -> Any:
    return request.param("01990000-0000-7000-8000-000000000001")


def test_it_is_equal_to_the_plain_uuid_and_found_by_it(task_id: Any) -> None:
    plain = UUID(str(task_id))
    later = UUID(int=plain.int + 1)
    assert isinstance(task_id, UUID)
    assert (task_id, hash(task_id)) == (plain, hash(plain))
    assert {task_id: 1}[plain] == {plain: 1}[task_id] == 1
    assert task_id < later
    assert (task_id.hex, task_id.bytes, task_id.version, task_id.is_safe) == (
        plain.hex,
        plain.bytes,
        plain.version,
        plain.is_safe,
    )
    assert TaskId(plain) == SyncTaskId(str(plain))


def test_it_pickles_and_copies_as_itself(task_id: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        loaded = pickle.loads(pickle.dumps(task_id, protocol))
        assert (type(loaded), loaded) == (type(task_id), task_id)
    assert copy.copy(task_id) is copy.deepcopy([task_id])[0] is task_id


def test_an_id_that_was_pickled_goes_through_the_module_level_calls(client: Client, config: Config, greet: Any) -> None:
    pickled = pickle.dumps(client.submit_task(greet, name="a"))
    with pytest.raises(RuntimeError, match=r"tasklib\.init"):
        pickle.loads(pickled).get()
    tasklib.init(config)
    assert pickle.loads(pickled).get().name == "greet"
    tasklib.close()


def test_pydantic_takes_it_for_a_uuid_and_reads_its_own_type(task_id: Any) -> None:
    class Plain(BaseModel):
        id: UUID

    class Typed(BaseModel):
        id: TaskId[int]

    text = json.dumps({"id": str(task_id)})
    assert Plain(id=task_id).model_dump_json() == Typed(id=task_id).model_dump_json() == text.replace(" ", "")
    assert Plain.model_validate({"id": task_id}, strict=True).id == task_id
    assert type(Typed.model_validate_json(text).id) is TaskId


async def test_a_task_may_take_ids_as_arguments(config: Config, initialised: None) -> None:
    @task
    def first() -> int:
        return 1

    @task
    def after(one: UUID, several: set[UUID], typed: SyncTaskId[int]) -> int:
        assert several == {one, typed}
        return typed.result(timeout=0)

    task_id = await first.submit()
    await work(config)
    later = await after.submit(one=task_id, several={task_id}, typed=task_id.sync)
    await work(config)
    assert await later.result() == 1


async def test_drivers_take_it_for_a_uuid(client: Client, greet: Any, database_url: str, db: Any) -> None:
    task_id = client.submit_task(greet, name="a")
    assert row(db, task_id)["name"] == "greet"
    for binary in (False, True):
        assert db.execute("SELECT id = %s FROM tasks", [task_id], binary=binary).fetchone() == (True,)
    assert db.execute("SELECT count(*) FROM tasks WHERE id = ANY(%s)", [[task_id]]).fetchone() == (1,)
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT name FROM tasks WHERE id = $1", task_id) == "greet"
    assert await connection.fetchval("SELECT count(*) FROM tasks WHERE id = ANY($1::uuid[])", [task_id]) == 1
    await connection.close()
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine) as session:
        assert session.exec(select(Task).where(Task.id == task_id)).one().id == task_id
        assert session.get_one(Task, task_id).name == "greet"
    engine.dispose()
