"""Parameters of task functions that the worker provides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import psycopg
import pytest

import tasklib
from tasklib import Config, Depends, TaskContext, task
from tasklib.errors import InvalidTaskFunction, TaskFailed
from tasklib.testing import inline, override_dependencies
from tests.worker.watching import burst

said: list[str] = []


class Session:
    def __init__(self, name: str) -> None:
        self.name = name


def url(context: TaskContext) -> str:
    return f"db-{context.name}"


def get_session(url: Annotated[str, Depends(url)]) -> Iterator[Session]:
    said.append("open")
    try:
        yield Session(url)
        said.append("commit")
    except Exception as e:
        said.append(f"rollback after {type(e).__name__}")
        raise
    finally:
        said.append("close")


async def get_client() -> AsyncIterator[str]:
    said.append("client opens")
    yield "client"
    said.append("client closes")


async def get_user() -> str:
    return "ada"


@pytest.fixture(autouse=True)
def _initialised(config: Config) -> Iterator[None]:
    said.clear()
    tasklib.init(config)
    yield
    tasklib.close()


async def test_a_dependency_is_opened_for_the_attempt_and_closed_after_it(
    config: Config, db: psycopg.Connection
) -> None:
    @task
    def bill(order: int, session: Annotated[Session, Depends(get_session)], note: str = "") -> str:
        said.append("run")
        return f"{order} in {session.name}{note}"

    # Type checkers can't take the parameter away; with a default of Depends(...) they need not.
    task_id: Any = await bill.submit(7, note="!")  # type: ignore[call-arg]
    row = db.execute("SELECT kwargs FROM tasks").fetchone()
    assert row == ({"order": 7, "note": "!"},), "dependencies are not stored"
    await burst(config)
    assert await task_id.result(timeout=0) == "7 in db-bill!"
    assert said == ["open", "run", "commit", "close"]


async def test_async_functions_have_dependencies_of_every_kind_each_called_once(config: Config) -> None:
    def first(session: Session = Depends(get_session)) -> Session:
        return session

    @task
    async def work(
        order: int,
        session: Session = Depends(get_session),
        again: Session = Depends(first),
        client: str = Depends(get_client),
        user: str = Depends(get_user),
    ) -> list[Any]:
        return [order, session is again, client, user]

    task_id = await work.submit(order=1)
    await burst(config)
    assert await task_id.result(timeout=0) == [1, True, "client", "ada"]
    assert said == ["open", "client opens", "client closes", "commit", "close"]


async def test_a_dependency_sees_what_the_task_raised_and_cannot_swallow_it(config: Config) -> None:
    def swallowing() -> Iterator[int]:
        try:
            yield 1
        except KeyError:
            said.append("swallowed")

    @task(max_retries=0)
    async def fails(a: int = Depends(swallowing), session: Session = Depends(get_session)) -> None:
        raise KeyError("gone")

    task_id = await fails.submit()
    await burst(config)
    with pytest.raises(TaskFailed, match="gone"):
        await task_id.result(timeout=0)
    assert said == ["open", "rollback after KeyError", "close", "swallowed"]


async def test_a_dependency_that_fails_fails_the_attempt(config: Config) -> None:
    def broken() -> int:
        raise ConnectionError("no database")

    @task(max_retries=0)
    def work(n: int = Depends(broken)) -> None: ...

    task_id = await work.submit()
    await burst(config)
    with pytest.raises(TaskFailed, match="no database"):
        await task_id.result(timeout=0)


def test_a_sync_function_cannot_depend_on_an_async_one() -> None:
    def through(user: str = Depends(get_user)) -> str:
        return user

    with pytest.raises(InvalidTaskFunction, match="get_user, which is async"):

        @task
        def work(user: str = Depends(through)) -> None: ...


def test_a_dependency_with_a_parameter_that_has_no_value_is_refused() -> None:
    def needs(x: int) -> int:
        return x

    with pytest.raises(InvalidTaskFunction, match="'x', for which there is no value"):

        @task
        def work(n: int = Depends(needs)) -> None: ...


async def test_an_argument_of_the_name_of_a_dependency_is_refused() -> None:
    @task
    def bill(order: int, session: Session = Depends(get_session)) -> None: ...

    with pytest.raises(tasklib.TaskExecutionError, match="session: is not a parameter"):
        await bill.submit(order=1, session=Session("mine"))


def test_tests_put_others_in_the_place_of_dependencies() -> None:
    @task
    def bill(order: int, session: Session = Depends(get_session)) -> str:
        return session.name

    with inline(), override_dependencies({get_session: lambda: Session("fake")}):
        assert bill.submit_sync(order=1).result() == "fake"
    assert bill(1, session=Session("given")) == "given"


async def test_transactional_functions_have_dependencies_beside_their_connection(config: Config) -> None:
    @task(transactional=True)
    async def ship(connection: psycopg.AsyncConnection[Any], order: int, user: str = Depends(get_user)) -> list[Any]:
        row = await (await connection.execute("SELECT 1")).fetchone()
        return [order, user, row]

    task_id = await ship.submit(order=3)
    await burst(config)
    assert await task_id.result(timeout=0) == [3, "ada", [1]]
