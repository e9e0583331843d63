"""Sealed tasks of clients and workers over HTTP: the server has no key, and neither it nor the table sees anything."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import Config, Sealed, TaskFailed, current_task, task
from tasklib.errors import InvalidOption, KeyMissing
from tasklib.http import AsyncHttpClient, HttpClient
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tests.server.conftest import Running
from tests.worker import sealed_tasks
from tests.worker.test_sealed import _clear, _cut, _flipped, _moved, everything
from tests.worker.watching import burst

SECRET = "DE02-very-secret-0042"
AnyTask = TaskFunction[..., Any, Any, ...]


class Heard:
    """All that the server has received and sent."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.text = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def received() -> Any:
            self._add(message := await receive())
            return message

        async def sent(message: Any) -> None:
            self._add(message)
            await send(message)

        self.text += str(scope.get("path")) + str(scope.get("query_string"))
        await self._app(scope, received, sent)

    def _add(self, message: Any) -> None:
        self.text += bytes(message.get("body", b"")).decode(errors="replace")


@pytest.fixture
def worker(config: Config, monkeypatch: pytest.MonkeyPatch) -> Config:
    """What a worker has; clients have its key in their environment."""
    keys = f"a:{b64encode(os.urandom(32)).decode()}"
    monkeypatch.setenv("TASKLIB_KEYS", keys)
    return config.with_changes(keys=keys)


@pytest.fixture
def at(config: Config, server: Callable[..., Running]) -> Running:
    return server(config)


@pytest.fixture
def heard(at: Running) -> Heard:
    """What goes over the wire."""
    served = at.server.config
    served.loaded_app = heard = Heard(served.loaded_app)
    return heard


@pytest.fixture
def client(at: Running) -> Iterator[HttpClient]:
    with HttpClient(str(at)) as client:
        yield client


@pytest.fixture
def pay() -> AnyTask:
    @task(name="pay", sealed=True, max_retries=0)
    async def pay(iban: str, fail: bool = False) -> dict[str, str]:
        current_task().progress({"doing": iban})
        if fail:
            raise ValueError(f"{iban} is no account")
        return {"paid": iban}

    return pay


async def test_what_a_client_sends_and_a_worker_answers_is_sealed_on_its_way(
    worker: Config, db: psycopg.Connection, at: Running, heard: Heard, client: HttpClient, pay: AnyTask
) -> None:
    @task(name="fields", max_retries=0)
    def fields(order: str, iban: Sealed[str]) -> str:
        return f"{order} {iban}"

    done = client.submit_task(pay, iban=SECRET, idempotency_key=SECRET)
    assert client.submit_task(pay, iban=SECRET, idempotency_key=SECRET) == done
    failed = client.submit_task(pay, iban=SECRET, fail=True)
    some = client.submit_many(fields, [{"order": f"clear-{n}", "iban": SECRET} for n in range(3)])
    registry.register(sealed_tasks.in_process)
    in_child = client.submit_task(sealed_tasks.in_process, iban=SECRET)
    await burst(worker, modules=["tests.worker.sealed_tasks"], server=str(at))
    async with AsyncHttpClient(str(at)) as other:
        assert await other.wait_for(done) == {"paid": SECRET}
    with pytest.raises(TaskFailed, match=f"ValueError: {SECRET} is no account"):
        client.wait_for(failed)
    assert [client.wait_for(id_) for id_ in some] == [f"clear-{n} {SECRET}" for n in range(3)]
    assert client.wait_for(in_child) == f"paid {SECRET}"
    seen = [client.get_task(id_) for id_ in (done, failed, *some)]
    assert SECRET not in str(seen)
    assert SECRET not in everything(db)
    assert SECRET not in heard.text
    assert "clear-1" in heard.text  # so what goes over the wire is heard


async def test_a_worker_over_http_without_the_key_never_gets_the_task(
    config: Config, db: psycopg.Connection, at: Running, client: HttpClient, pay: AnyTask
) -> None:
    keys, other_keys = (("a", bytes(32)),), (("b", bytes(32)),)
    with HttpClient(str(at), keys=keys) as with_key, HttpClient(str(at), keys=other_keys) as other:
        id_ = with_key.submit_task(pay, iban=SECRET)
        await burst(config, server=str(at))
        assert db.execute("SELECT state, lease_token FROM tasks").fetchall() == [("pending", 0)]
        with pytest.raises(KeyMissing):
            client.submit_task(pay, iban=SECRET)
        await burst(config.with_changes(keys=keys), server=str(at))
        with pytest.raises(KeyMissing, match="'a'"):
            other.wait_for(id_)
        assert with_key.wait_for(id_) == {"paid": SECRET}


@pytest.mark.parametrize("attack", [_moved, _flipped, _cut, _clear])
async def test_forged_arguments_are_a_dead_letter_of_a_worker_over_http_too(
    worker: Config, db: psycopg.Connection, at: Running, client: HttpClient, pay: AnyTask, attack: Any
) -> None:
    client.submit_task(pay, iban=SECRET)
    client.submit_task(pay, iban=SECRET, max_retries=5)
    attack(db)
    await burst(worker, server=str(at))
    first, second = db.execute("SELECT state, retry_count, error FROM tasks ORDER BY id").fetchall()
    assert (first[0], second[0], second[1]) == ("completed", "dead_letter", 0)
    assert second[2].startswith("PayloadDamaged: ")


@pytest.mark.usefixtures("worker")
def test_what_a_server_would_have_to_see_is_refused(client: HttpClient, pay: AnyTask, db: psycopg.Connection) -> None:
    for refused in ({"unique": "pending"}, {"debounce": 5.0}, {"throttle": 5.0}):
        with pytest.raises(InvalidOption, match="so a server can't merge its submissions"):
            client.submit_task(pay, iban=SECRET, **refused)
    with pytest.raises(InvalidOption, match="can't be part of a flow over HTTP"):
        client.submit_flow(tasklib.chain(pay.s(SECRET)))
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


@pytest.mark.usefixtures("worker")
def test_a_clear_signal_to_a_sealed_task_is_not_stored(
    config: Config, client: HttpClient, heard: Heard, db: psycopg.Connection
) -> None:
    @task(name="waits", sealed=True, durable=True)
    async def waits(iban: str) -> None: ...

    id_ = client.submit_task(waits, iban=SECRET)
    with pytest.raises(tasklib.TaskLibError, match="key"):
        client.signal(id_, "go", {"iban": SECRET})
    assert db.execute("SELECT payload::text FROM signals").fetchall() == []
