"""Versions of arguments in the rows: every way in writes them, with the capability that they require."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

import tasklib
from tasklib import Config, Schedule, chain, current_task, submit_many, submit_task, task
from tasklib.client.async_clients import AsyncClient
from tasklib.client.clients import Client
from tasklib.errors import InvalidOption
from tasklib.tasks.function import TaskFunction
from tasklib.testing import drain

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def initialised(config: Config) -> None:
    tasklib.init(config)


@pytest.fixture
def send() -> TaskFunction[..., Any, Any, ...]:
    @task(name="mail.send", version=2, required_capabilities=["smtp"])
    def send(to: str) -> str:
        return f"{to} as {current_task().payload_version}"

    @send.upcast(1)
    def _(old: dict[str, Any]) -> dict[str, Any]:
        return {"to": old["address"]}

    return send


def versions(db: psycopg.Connection) -> list[Row]:
    return db.execute("SELECT payload_version, required_capabilities FROM tasks ORDER BY id").fetchall()


WRITTEN = (2, ["mail.send@2", "smtp"])


async def test_every_way_in_writes_the_version_and_requires_code_that_reads_it(
    send: Any, db: psycopg.Connection, config: Config
) -> None:
    await send.submit(to="a")
    await send.options(idempotency_key="k").submit(to="b")
    await send.options(unique="pending").submit(to="c")
    await send.options(delay_seconds=0.001).submit(to="d")
    await submit_many(send, [{"to": str(n)} for n in range(150)])
    await chain(send.s("first"), send.s("second")).submit()
    with psycopg.connect(config.database_url) as connection:
        send.on(connection).submit(to="in a transaction")
    with Client(config) as client:
        client.create_schedule(send, Schedule("0 3 * * *", args={"to": "nightly"}), name="nightly")
        client.run_schedule("nightly")
    found = versions(db)
    assert len(found) == 158
    assert set(map(str, found)) == {str(WRITTEN)}


async def test_a_plain_function_writes_none(db: psycopg.Connection) -> None:
    @task
    def plain(n: int) -> None: ...

    await plain.submit(n=1)
    await submit_many(plain, [{"n": n} for n in range(150)])
    assert set(map(str, versions(db))) == {"(None, [])"}


async def test_a_program_without_the_function_can_say_the_version(db: psycopg.Connection) -> None:
    await submit_task("mail.send", kwargs={"address": "a"}, payload_version=1, registered_elsewhere=True)
    assert versions(db) == [(1, ["mail.send@1"])]


async def test_a_program_with_the_function_writes_its_version_and_no_other(send: Any) -> None:
    with pytest.raises(InvalidOption, match=r"has mail.send in version 2, .* omit payload_version=1"):
        await send.options(payload_version=1).submit(to="a")

    @task
    def plain() -> None: ...

    with pytest.raises(InvalidOption, match="in version none"):
        await plain.options(payload_version=1).submit()
    with pytest.raises(InvalidOption, match="payload_version must be a whole number from 1"):
        await submit_task("elsewhere", payload_version=0, registered_elsewhere=True)


async def test_a_merged_submission_brings_its_version_along(send: Any, db: psycopg.Connection) -> None:
    old = {"kwargs": {"address": "a"}, "payload_version": 1, "merge_key": "m", "registered_elsewhere": True}
    with tasklib.tasks.registry.isolated():
        await submit_task("mail.send", unique="pending", **old)  # type: ignore[arg-type]
    await send.options(unique="pending", merge_key="m", on_duplicate="replace").submit(to="b")
    assert versions(db) == [WRITTEN]


async def test_rows_of_all_versions_run_and_know_their_version(send: Any, db: psycopg.Connection) -> None:
    await send.submit(to="new")
    for version in (None, 1):
        db.execute(
            "INSERT INTO tasks (name, kwargs, payload_version) VALUES ('mail.send', %s, %s)",
            (json.dumps({"address": "old"}), version),
        )
    assert (await drain()).counts == {"completed": 3}
    results = [row[0]["value"] for row in db.execute("SELECT result FROM tasks ORDER BY id")]
    assert results == ["new as 2", "old as None", "old as 1"]


async def test_what_continues_as_new_is_of_the_version_that_the_code_writes(db: psycopg.Connection) -> None:
    @task(name="loop", version=2, durable=True, required_capabilities=["x"])
    async def loop(left: int) -> int:
        if left:
            tasklib.continue_as_new(left=left - 1)
        return left

    loop.upcast(1)(lambda old: {"left": old["n"]})
    for version, required in ((1, ["loop@1", "x"]), (None, ["x"])):
        db.execute(
            "INSERT INTO tasks (name, kwargs, payload_version, required_capabilities) VALUES ('loop', %s, %s, %s)",
            (json.dumps({"n": 2}), version, required),
        )
    assert (await drain(with_delayed=True)).counts == {"completed": 2}
    assert versions(db) == [(2, ["loop@2", "x"])] * 2
    assert db.execute("SELECT DISTINCT kwargs FROM tasks").fetchall() == [({"left": 0},)]


async def test_explain_says_which_code_a_versioned_task_waits_for(send: Any, config: Config) -> None:
    task_id = await submit_task("other.task", payload_version=7, registered_elsewhere=True)

    @task(name="other.task", version=6)
    def other() -> None: ...

    async with tasklib.Worker(config, names=["other.task"]), AsyncClient(config) as client:
        found = await client.explain_task(task_id)
    [reason] = [r for r in found.reasons if r.code == "capabilities_missing"]
    assert "lacks other.task@7" in reason.sentence
    assert "Deploy workers whose code reads version 7" in reason.hint
