"""Values that can't be stored, or that no worker could read, are refused before anything is stored."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tasklib import Client, Config, task
from tasklib.errors import (
    InvalidOption,
    TaskExecutionError,
)
from tasklib.tasks.unstorable import MAX_DEPTH
from tests.client.bad_input.saying import Address, Point, nested, saying
from tests.client.conftest import Either


class Plain:
    """Nothing that JSON knows."""


@pytest.mark.parametrize(
    "wrong", [Plain(), Plain, lambda: None, {"a": [Plain()]}], ids=["object", "class", "function", "deep"]
)
async def test_a_value_without_a_json_form_is_refused(wrong: Any, either: Either, anything: Any) -> None:
    expected = "can't be stored: {}: has a type that can't be stored as JSON"
    with pytest.raises(TaskExecutionError, match=f"the arguments of anything {expected.format('x')}") as caught:
        await either.submit_task(anything, x=wrong)
    assert caught.value.field == "x"
    with pytest.raises(TaskExecutionError, match=f"the arguments of there {expected.format('arguments')}"):
        await either.submit_task("there", registered_elsewhere=True, x=wrong)


@pytest.mark.parametrize(
    ("wrong", "place", "number"),
    [
        (math.nan, "x", "nan"),
        (math.inf, "x", "inf"),
        (-math.inf, "x", "-inf"),
        ([1, [math.nan]], "x.1.0", "nan"),
        ({"a": {"b": math.inf}}, "x.a.b", "inf"),
        ((1.0, -math.inf), "x.1", "-inf"),
        (Address(city="a", height=math.nan), "x.height", "nan"),
        ([Address(city="a", extra={"z": [math.inf]})], "x.0.extra.z.0", "inf"),
        (Point(math.nan), "x.x", "nan"),
        ({"NaN": "NaN", "n": math.nan}, "x.n", "nan"),
        ({"empty": None, "n": Address(city="a", height=math.inf)}, "x.n.height", "inf"),
    ],
    ids=str,
)
async def test_nan_and_infinity_are_refused_wherever_they_are(
    wrong: Any, place: str, number: str, either: Either, anything: Any
) -> None:
    expected = f"{place}: is {number}, which JSON doesn't have"
    with pytest.raises(
        TaskExecutionError, match=saying(f"the arguments of anything can't be stored: {expected}")
    ) as caught:
        await either.submit_task(anything, x=wrong)
    assert caught.value.field == "x"
    with pytest.raises(TaskExecutionError, match=saying(f"the arguments of there can't be stored: {expected}")):
        await either.submit_task("there", registered_elsewhere=True, x=wrong)


@pytest.mark.parametrize("wrong", [math.nan, [math.nan], Address(city="a", height=math.nan)], ids=str)
def test_a_type_hint_doesnt_let_nan_through(wrong: Any, client: Client) -> None:
    @task
    def measure(x: float | list[float] | Address) -> None: ...

    with pytest.raises(TaskExecutionError, match="is nan, which JSON doesn't have"):
        client.submit_task(measure, x=wrong)


@pytest.mark.usefixtures("stores")
def test_the_words_nan_infinity_and_null_are_fine(client: Client, anything: Any, db: Any) -> None:
    words = ["NaN", "Infinity", "-Infinity", "null", None, {"NaN": "null"}]
    task_id = client.submit_task(anything, x=words)
    assert db.execute("SELECT kwargs FROM tasks WHERE id = %s", [task_id]).fetchone() == ({"x": words},)


@pytest.mark.parametrize("wrong", ["\ud800", "a\udfffb", ["\ud800"], {"k": "\ud800"}, {"\ud800": 1}], ids=ascii)
async def test_a_lone_surrogate_is_refused(wrong: Any, either: Either, anything: Any, greet: Any) -> None:
    with pytest.raises(TaskExecutionError, match="x: contains a lone surrogate, which is not valid Unicode"):
        await either.submit_task(anything, x=wrong)
    with pytest.raises(TaskExecutionError, match="name: "):
        await either.submit_task(greet, name="\ud800")


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ("\x00", "x"),
        ("a\x00b", "x"),
        (["a", "\x00"], "x.1"),
        ({"k": {"l": "\x00"}}, "x.k.l"),
        ({"\x00": 1}, "x"),
        ({"k": [{"\x00": 1}]}, "x.k.0"),
        (["\\u0000", "\x00"], "x.1"),
        (Address(city="\x00"), "x.city"),
    ],
    ids=str,
)
async def test_the_character_that_postgresql_cant_store_is_refused(
    wrong: Any, place: str, either: Either, anything: Any
) -> None:
    expected = f"can't be stored: {place}: contains the character \\u0000, which PostgreSQL can't store"
    with pytest.raises(TaskExecutionError, match=re.escape(expected)):
        await either.submit_task(anything, x=wrong)


@pytest.mark.usefixtures("stores")
@pytest.mark.parametrize("fine", ["\\u0000", "\\\\u0000", {"\\u0000": "\\u0000"}, "\\x00", "\x01", "u0000"], ids=str)
async def test_what_only_looks_like_that_character_is_stored(fine: Any, either: Either, anything: Any, db: Any) -> None:
    task_id = await either.submit_task(anything, x=fine)
    assert db.execute("SELECT kwargs FROM tasks WHERE id = %s", [task_id]).fetchone() == ({"x": fine},)


async def test_arguments_over_the_limit_are_refused_with_both_numbers(config: Config, anything: Any) -> None:
    expected = (
        "anything: the arguments take 1,001 bytes as JSON; the limit is 1,000 (max_payload_bytes). "
        "Store large data elsewhere and pass a reference to it."
    )
    with Client(config.with_changes(max_payload_bytes=1000)) as client:
        for text in ("x" * 993, "é" * 496 + "x"):
            with pytest.raises(TaskExecutionError, match=saying(expected)):
                client.submit_task(anything, x=text)
        with pytest.raises(InvalidOption, match=saying(expected.replace("anything: the arguments", "tags"))):
            client.submit_task(anything, x=1, tags={"t": "x" * 993})


@pytest.mark.usefixtures("stores")
def test_arguments_at_the_limit_are_stored(config: Config, anything: Any, db: Any) -> None:
    with Client(config.with_changes(max_payload_bytes=1000)) as client:
        client.submit_task(anything, x="x" * 992)
        client.submit_task(anything, x="é" * 496)
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (2,)


@pytest.mark.parametrize("kind", [lambda v: [v], lambda v: {"a": v}], ids=["lists", "mappings"])
@pytest.mark.parametrize("levels", [MAX_DEPTH, 199, 240, 300, 5000])
async def test_values_nested_too_deeply_are_refused(levels: int, kind: Any, either: Either, anything: Any) -> None:
    with pytest.raises(TaskExecutionError, match=r"x: is nested more than 100 levels deep|x: .*nested too deeply"):
        await either.submit_task(anything, x=nested(levels, kind))


def test_a_value_inside_itself_is_refused(client: Client, anything: Any) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TaskExecutionError, match="x: refers to itself or is nested too deeply"):
        client.submit_task(anything, x=loop)


@pytest.mark.usefixtures("stores")
def test_the_deepest_value_that_is_stored_can_be_read_by_a_worker(client: Client, anything: Any, db: Any) -> None:
    deepest = nested(MAX_DEPTH - 1, lambda v: [v])
    task_id = client.submit_task(anything, x=deepest)
    text = db.execute("SELECT kwargs::text FROM tasks WHERE id = %s", [task_id]).fetchone()[0]
    assert anything.arguments.from_json(text) == {"x": deepest}


def test_a_number_that_no_worker_could_read_is_refused(client: Client, anything: Any) -> None:
    for wrong in (10**4300, -(10**4300), [{"a": 10**9000}]):
        with pytest.raises(TaskExecutionError, match=r"x[.\w]*: is a whole number of more than 4300 digits"):
            client.submit_task(anything, x=wrong)


@pytest.mark.usefixtures("stores")
def test_the_longest_number_that_is_stored_can_be_read_by_a_worker(client: Client, anything: Any, db: Any) -> None:
    for number in (10**4299, -(10**4299), "1" * 9000):
        task_id = client.submit_task(anything, x=number)
        text = db.execute("SELECT kwargs::text FROM tasks WHERE id = %s", [task_id]).fetchone()[0]
        assert anything.arguments.from_json(text) == {"x": number}
