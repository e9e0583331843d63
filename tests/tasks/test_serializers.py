"""Serializers by content type: written where registered, read where accepted, and never what can run code."""

from __future__ import annotations

import json
import marshal
import pickle
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from pydantic_core import from_json, to_json

import tasklib
from tasklib import (
    Config,
    InvalidOption,
    InvalidTaskFunction,
    PayloadUnreadable,
    Sealed,
    TaskExecutionError,
    Worker,
    accept_content,
    chain,
    register_serializer,
    task,
)
from tasklib.tasks import serializers
from tasklib.tasks.unstorable import UnstorableValue
from tasklib.testing import drain

msgpack = pytest.importorskip("msgpack")
MSGPACK, PYDANTIC = "application/msgpack", "application/vnd.pydantic+json"


def _packb(value: Any) -> bytes:
    return bytes(msgpack.packb(value, datetime=True))


def _unpackb(data: bytes) -> Any:
    return msgpack.unpackb(data, timestamp=3)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serializers, "_registered", {})
    monkeypatch.setattr(serializers, "_accepted", set())
    register_serializer(MSGPACK, dumps=_packb, loads=_unpackb)
    register_serializer(PYDANTIC, dumps=to_json, loads=from_json)
    accept_content(MSGPACK)


@dataclass
class Order:
    number: int
    at: datetime


@pytest.mark.parametrize("content_type", [MSGPACK, PYDANTIC])
def test_arguments_and_results_come_back_equal(content_type: str) -> None:
    accept_content(content_type)

    @task(name="order", serializer=content_type)
    def order(order: Order, count: int = 1) -> Order:
        return order

    made = {"order": Order(7, datetime(2026, 11, 18, tzinfo=UTC)), "count": 2}
    text = order.arguments.to_json(made)
    assert json.loads(text)["$as"]["type"] == content_type
    assert order.arguments.from_json(text) == made
    assert order.arguments.from_json('{"order": {"number": 1, "at": "2026-11-18T00:00:00Z"}}')["order"].number == 1
    assert order.results.from_json(json.loads(order.results.to_json(made["order"]))) == made["order"]


async def test_a_task_runs_with_bytes_by_msgpack(config: Config, db: psycopg.Connection) -> None:
    @task(name="shrink", serializer=MSGPACK)
    async def shrink(image: bytes) -> bytes:
        return image[:3]

    @task(name="size")
    async def size(image: bytes) -> int:
        return len(image)

    tasklib.init(config)
    image = bytes(range(256)) * 10
    task_id = await shrink.options(required_capabilities=["gpu"]).submit(image=image)
    run = await chain(shrink.s(image), size.s()).submit()
    assert (await drain()).counts == {"completed": 3}
    assert await task_id.result() == image[:3]
    assert await run.result() == 3
    row = db.execute("SELECT required_capabilities, kwargs FROM tasks WHERE id = %s", (task_id,)).fetchone()
    assert row is not None
    assert row[0] == [f"content:{MSGPACK}", "gpu"]
    assert row[1].keys() == {"$as"}


async def test_a_worker_that_does_not_accept_it_never_gets_the_task(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    @task(name="shrink", serializer=MSGPACK)
    async def shrink(image: bytes) -> bytes:
        return image

    tasklib.init(config)
    await shrink.submit(image=b"\x00")
    with monkeypatch.context() as patch:
        patch.setattr(serializers, "_accepted", set())
        await Worker(config, burst=True, signals=False).run()
        assert db.execute("SELECT state, lease_token FROM tasks").fetchall() == [("pending", 0)]
    await Worker(config, burst=True, signals=False).run()
    assert db.execute("SELECT state FROM tasks").fetchall() == [("completed",)]


def test_what_is_not_accepted_is_not_read() -> None:
    stored = json.loads(serializers.packed(serializers._registered[PYDANTIC], {"a": 1}))
    with pytest.raises(PayloadUnreadable, match="accept_content"):
        serializers.unpacked(stored)
    accept_content(PYDANTIC)
    assert serializers.unpacked(stored) == {"a": 1}
    with pytest.raises(InvalidOption, match="comes first"):
        accept_content("application/cbor")


@pytest.mark.parametrize(
    ("content_type", "dumps", "loads"),
    [
        ("application/x-python-pickle", _packb, _unpackb),
        ("application/x-dill", _packb, _unpackb),
        ("application/x-marshal", _packb, _unpackb),
        ("application/x-own", pickle.dumps, pickle.loads),
        ("application/x-own", _packb, pickle.loads),
        ("application/x-own", marshal.dumps, marshal.loads),
        ("application/json", _packb, _unpackb),
        ("msgpack", _packb, _unpackb),
    ],
)
def test_what_can_run_code_is_refused_by_name(content_type: str, dumps: Any, loads: Any) -> None:
    with pytest.raises(InvalidOption):
        register_serializer(content_type, dumps=dumps, loads=loads)


_SHARED = {"key": [1, 2, 3]}
_CODE = [
    *(pickle.dumps(value, protocol=n) for n in range(6) for value in (_SHARED, [1, 2], Order)),
    *(marshal.dumps(value, version) for version in (2, 4) for value in (_SHARED, {"a": "b"}, {}, [1, 2])),
    marshal.dumps((lambda: 0).__code__),
]


@pytest.mark.parametrize("data", _CODE, ids=range(len(_CODE)))
def test_what_can_run_code_is_refused_by_its_first_bytes(data: bytes) -> None:
    register_serializer("application/x-own", dumps=lambda value: data, loads=lambda raw: pytest.fail("it was read"))
    accept_content("application/x-own")
    with pytest.raises(UnstorableValue, match="can run code"):
        serializers.packed(serializers._registered["application/x-own"], {})
    stored = {"$as": {"type": "application/x-own", "data": b64encode(data).decode()}}
    with pytest.raises(PayloadUnreadable, match="can run code"):
        serializers.unpacked(stored)


@pytest.mark.parametrize("value", [{}, {"a": 1}, [], [1], "x" * 9, -5, -29, 123, b"\x80\x04.", 1.5, None, "."])
def test_what_msgpack_and_json_write_is_not_taken_for_code(value: Any) -> None:
    for data in (_packb(value), json.dumps(repr(value)).encode()):
        serializers._refuse_code(data)


def test_what_a_serializer_can_not_write_or_changes_is_refused_at_submission() -> None:
    @task(name="any", serializer=MSGPACK)
    def any_(value: Any) -> None: ...

    with pytest.raises(TaskExecutionError, match="application/msgpack"):
        any_.arguments.to_json({"value": object()})
    with pytest.raises(TaskExecutionError, match="value"):
        any_.arguments.to_json({"value": (1, 2)})  # a tuple would come back as a list


def test_a_function_with_a_serializer_has_nothing_that_reads_single_arguments() -> None:
    with pytest.raises(InvalidTaskFunction, match="no serializer is registered for 'application/cbor'"):
        task(name="a", serializer="application/cbor")(lambda: None)
    excluded: dict[str, Any] = {"serial_key": "a", "share": "a", "version": 2}
    for name, value in excluded.items():
        with pytest.raises(InvalidTaskFunction, match=f"excludes {name}"):

            @task(name="b", serializer=MSGPACK, **{name: value})
            def b(a: str) -> None: ...

    with pytest.raises(InvalidTaskFunction, match="Sealed"):

        @task(name="c", serializer=MSGPACK)
        def c(a: Sealed[str]) -> None: ...
