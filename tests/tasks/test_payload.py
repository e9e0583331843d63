"""What is accepted comes back from jsonb as it was; what is refused has left nothing."""

from __future__ import annotations

import enum
import json
import math
import string
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tasklib import Client, Config, TaskFunction, task
from tasklib.errors import TaskExecutionError
from tasklib.tasks.payload import dump, limited
from tasklib.tasks.unstorable import MAX_DEPTH, MAX_DIGITS, UnstorableValue, storable_text

# The database is made once for all examples of a test.
against_the_database = settings(max_examples=120)

any_character = st.characters(exclude_categories=())  # surrogates and NUL included
texts = st.text(any_character) | st.sampled_from(["\x00", "\\u0000", "\ud800", "NaN", "null", "\\", '"', "\x7f"])
numbers = st.integers() | st.floats() | st.integers().map(lambda n: n * 10**300)
leaves = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=15
)


def is_storable(value: Any) -> bool:
    """The contract, said another way than the code says it."""
    match value:
        case str():
            return "\x00" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
        case float():
            return math.isfinite(value)
        case list():
            return all(map(is_storable, value))
        case dict():
            return all(map(is_storable, value)) and all(map(is_storable, value.values()))
    return True


def same(one: Any, other: Any) -> bool:
    """Equal as JSON. jsonb keeps numbers as decimals, so a large float may come back as the whole number it names."""
    match one, other:
        case (bool(), _) | (_, bool()):
            return one is other
        case float(), int() | float():
            return float(other) == one
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return type(one) is type(other) and one == other


@pytest.fixture
def client(config: Config) -> Iterator[Client]:
    with Client(config) as client:
        yield client


@pytest.fixture
def anything() -> TaskFunction[Any, Any]:
    @task
    def anything(x: Any) -> None: ...

    return anything


def stored(db: psycopg.Connection) -> str | None:
    """The text of the one task's arguments, which is then deleted."""
    rows = db.execute("DELETE FROM tasks RETURNING kwargs::text").fetchall()
    assert len(rows) <= 1
    return rows[0][0] if rows else None


@given(value=values)
@example(value={"a": [1e308, -0.0, 5e-324, 2**63, -(10**400)]})
@example(value={"": {"": []}})
@against_the_database
def test_what_is_accepted_comes_back_and_what_is_refused_leaves_no_row(
    value: Any, client: Client, anything: Any, db: Any
) -> None:
    if not is_storable(value):
        with pytest.raises(TaskExecutionError, match="the arguments of anything can't be stored: x") as caught:
            client.submit_task(anything, x=value)
        assert caught.value.field == "x"
        assert stored(db) is None
    else:
        client.submit_task(anything, x=value)
        text = stored(db)
        assert text is not None
        assert same(value, anything.arguments.from_json(text)["x"])
        assert same(value, json.loads(text)["x"])


@given(value=values, key=st.text(string.ascii_letters, min_size=1))
@against_the_database
def test_the_same_holds_for_names_that_another_program_knows(value: Any, key: str, client: Client, db: Any) -> None:
    if not is_storable(value):
        with pytest.raises(TaskExecutionError, match="the arguments of elsewhere can't be stored: "):
            client.submit_task("elsewhere", kwargs={key: value}, registered_elsewhere=True)
        assert stored(db) is None
    else:
        client.submit_task("elsewhere", kwargs={key: value}, registered_elsewhere=True)
        assert same({key: value}, json.loads(stored(db) or ""))


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Address(BaseModel):
    city: str
    since: date | None = None


@dataclass
class Point:
    x: float
    tags: tuple[str, ...] = ()


storable_text_ = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
finite = st.floats(allow_nan=False, allow_infinity=False)

TYPED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "whole": (int, st.integers()),
    "real": (float, finite),
    "text": (str, storable_text_),
    "raw": (bytes, st.binary()),
    "flag": (bool, st.booleans()),
    "moment": (datetime, st.datetimes(timezones=st.just(UTC))),
    "day": (date, st.dates()),
    "clock": (time, st.times()),
    "span": (timedelta, st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999))),
    "id_": (UUID, st.uuids()),
    "money": (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=4)),
    "colour": (Colour, st.sampled_from(Colour)),
    "address": (Address, st.builds(Address, city=storable_text_, since=st.none() | st.dates())),
    "point": (Point, st.builds(Point, x=finite, tags=st.lists(storable_text_, max_size=2).map(tuple))),
    "some": (set[int], st.sets(st.integers(), max_size=4)),
    "pair": (tuple[int, str], st.tuples(st.integers(), storable_text_)),
    "by_name": (dict[str, list[float]], st.dictionaries(storable_text_, st.lists(finite, max_size=2), max_size=2)),
    "maybe": (int | None, st.none() | st.integers()),
}


@pytest.fixture
def typed() -> TaskFunction[Any, Any]:
    hints = ", ".join(f"{name}: TYPED['{name}'][0]" for name in TYPED)
    scope: dict[str, Any] = {}
    exec(f"def typed({hints}): ...", globals(), scope)  # so many parameters, from one table
    return task(scope["typed"])


@given(arguments=st.fixed_dictionaries({name: strategy for name, (_, strategy) in TYPED.items()}))
@against_the_database
def test_the_function_receives_the_typed_values(arguments: dict[str, Any], client: Client, typed: Any, db: Any) -> None:
    client.submit_task(typed, kwargs=arguments)
    text = stored(db)
    assert text is not None
    received = typed.arguments.from_json(text)
    assert received == arguments
    assert {name: type(v) for name, v in received.items()} == {name: type(v) for name, v in arguments.items()}


# ---- the pieces ----


def test_a_result_of_any_kind_is_dumped() -> None:
    assert dump({"a": (1, 2.5, None), "b": {3}, "c": b"\xff"}) == '{"a":[1,2.5,null],"b":[3],"c":"_w=="}'
    assert dump(Address(city="Rome")) == '{"city":"Rome","since":null}'


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"rows": [0, {"price": math.nan}]}, "rows.1.price", "is nan, which JSON doesn't have"),
        (Point(math.inf), "x", "is inf, which JSON doesn't have"),
        ({"a": {"b\x00": 1}}, "a", "contains the character \\u0000, which PostgreSQL can't store"),
        ("\x00", "", "contains the character \\u0000, which PostgreSQL can't store"),
        ([10**MAX_DIGITS], "0", "is a whole number of more than 4300 digits"),
        ("\ud800", "", "contains a lone surrogate, which is not valid Unicode"),
        ({"a": object()}, "", "has a type that can't be stored as JSON (<class 'object'>)"),
    ],
)
def test_the_place_and_the_reason_are_named(value: Any, path: str, reason: str) -> None:
    with pytest.raises(UnstorableValue) as caught:
        dump(value)
    assert (caught.value.path, caught.value.reason) == (path, reason)


def test_depth_is_counted_in_levels_not_in_brackets() -> None:
    wide: list[list[Any]] = [[] for _ in range(10 * MAX_DEPTH)]
    assert dump(wide) == str(wide).replace(" ", "")
    assert dump("[{" * 10 * MAX_DEPTH) == f'"{"[{" * 10 * MAX_DEPTH}"'
    deep: Any = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert json.loads(dump(deep)) == deep
    with pytest.raises(UnstorableValue, match="is nested more than 100 levels deep"):
        dump([deep])


@pytest.mark.parametrize(("text", "size"), [("abc", 3), ("é", 2), ("😀a", 5)])
def test_a_limit_counts_bytes(text: str, size: int) -> None:
    assert limited(text, size, "the result") == text
    with pytest.raises(UnstorableValue, match=rf"the result takes {size} bytes as JSON; the limit is {size - 1} \("):
        limited(text, size - 1, "the result")


@given(text=st.text(any_character), limit=st.none() | st.integers(2, 50))
def test_any_text_can_be_made_storable(text: str, limit: int | None) -> None:
    made = storable_text(text, limit)
    assert "\x00" not in made
    assert made.encode().decode() == made
    if limit is None and is_storable(text):
        assert made == text


def test_the_middle_of_a_long_text_is_left_out() -> None:
    assert storable_text("a" * 50 + "b" * 900 + "c" * 50, 100) == (
        "a" * 50 + "\n... 900 characters left out ...\n" + "c" * 50
    )
    assert storable_text("a\x00b\ud800") == "a\\x00b\\ud800"
