"""What inline mode says of a task is what a worker says of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

import tasklib
from tasklib import Config, Reject, current_task, task
from tasklib.testing import drain, inline


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    name: str
    price: Decimal
    at: dt.datetime


def echo(value: Any) -> Any:
    return value


def typed(
    item: Item, colour: Colour, key: UUID, raw: bytes, many: set[int], span: dt.timedelta, path: Path | None = None
) -> Any:
    return {"types": [type(v).__name__ for v in (item, colour, key, raw, many, span, path)], "all": [item, raw, span]}


async def awaited(n: float) -> float:
    return n / 2


def nothing() -> None: ...


def strange() -> Any:
    return {"deep": [1, object()]}


def endless() -> Any:
    return "x" * 2_000_000


def bad() -> Any:
    return {"text": "a\x00b"}


def failing() -> None:
    raise ValueError("no\x00good \ud800")


def rejecting() -> None:
    raise Reject("never")


def leaving() -> None:
    raise SystemExit("bye")


def looking() -> Any:
    me = current_task()
    return [
        me.name,
        me.attempt,
        me.max_attempts,
        me.token,
        me.queue,
        me.seconds_left is None,
        dict(me.trace_context or {}),
    ]


TYPED = {
    "item": Item(name="é", price=Decimal("1.50"), at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC)),
    "colour": Colour.RED,
    "key": UUID(int=7),
    "raw": b"\x00\xff",
    "many": {3},
    "span": dt.timedelta(minutes=90),
}


@pytest.mark.parametrize(
    ("function", "kwargs"),
    [
        (echo, {"value": {"b": [1, 2.5, None, True, "\u2028"], "a": 10**30}}),
        (echo, {"value": 1e-7}),
        (typed, TYPED),
        (awaited, {"n": 5}),
        (nothing, {}),
        (looking, {}),
        (strange, {}),
        (endless, {}),
        (bad, {}),
        (failing, {}),
        (rejecting, {}),
        (leaving, {}),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)
async def test_inline_mode_and_a_worker_agree(
    app: Config, function: Callable[..., Any], kwargs: dict[str, Any]
) -> None:
    registered = task(max_retries=0)(function)
    with inline(raise_errors=False):
        here = tasklib.sync.get_task(registered.submit_sync(**kwargs))
    task_id = registered.submit_sync(**kwargs)
    await drain()
    there = tasklib.sync.get_task(task_id)
    assert here is not None
    assert there is not None
    for column in ("name", "kwargs", "state", "result", "error", "max_retries", "priority", "queue", "lease_token"):
        assert getattr(here, column) == getattr(there, column), column
