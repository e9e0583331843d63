"""Whatever a submission accepts of any type arrives equal: types and values are made by hypothesis."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from tasklib.errors import TaskExecutionError
from tasklib.tasks.round_trip import difference
from tests.tasks.round_trip_types import (
    EAST,
    Aliased,
    Animal,
    Box,
    Cat,
    Colour,
    Computed,
    Dog,
    Hidden,
    Point,
    Scaled,
    Size,
    Word,
    arrived,
    function_of,
)

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)


LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, text),
    (bool, st.booleans()),
    (None, st.none()),
    (bytes, st.binary(max_size=5)),
    (date, st.dates()),
    (datetime, st.datetimes() | st.datetimes(timezones=st.sampled_from([UTC, EAST]))),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (Path, text.filter(lambda t: t not in ("", "/")).map(Path)),
    (Colour, st.sampled_from(Colour)),
    (Size, st.sampled_from(Size)),
    (SecretStr, text.map(SecretStr)),
    (Animal, st.builds(Animal, name=text) | st.builds(Dog, name=text)),
    (Cat, st.builds(Cat, name=text)),
    (Aliased, st.builds(lambda a, b: Aliased(A=a, B=b), st.integers(), st.integers())),
    (Computed, st.builds(Computed, width=st.integers())),
    (Hidden, st.builds(Hidden, shown=st.integers(), hidden=st.integers(0, 1))),
    (Point, st.builds(Point, x=st.floats(allow_nan=False), labels=st.lists(text, max_size=2).map(tuple))),
    (Scaled, st.builds(Scaled, st.integers(), by=st.integers(0, 2))),
    (
        Any,
        st.one_of(st.integers(), text, st.floats(), st.dates(), st.tuples(text), st.sets(text), st.sampled_from(Word)),
    ),
]


HASHABLE = (int, str, bool, date, UUID, Decimal, Colour, Size)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def wrapped(chosen: tuple[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
        kind, values = chosen
        options: list[tuple[Any, st.SearchStrategy[Any]]] = [
            (list[kind], st.lists(values, max_size=3)),
            (tuple[kind, ...], st.lists(values, max_size=3).map(tuple)),
            (dict[str, kind], st.dictionaries(text, values, max_size=3)),
            (Box[kind], st.builds(Box[kind], inside=values)),
            (kind | None if kind is not None else None, values | st.none()),
        ]
        if kind in HASHABLE:
            options.append((set[kind], st.sets(values, max_size=3)))
            options.append((dict[kind, int], st.dictionaries(values, st.integers(), max_size=3)))
        return st.sampled_from(options)

    def united(two: tuple[Any, Any]) -> Any:
        (a, of_a), (b, of_b) = two
        return (a | b if {a, b} != {None} and Any not in (a, b) else Any, of_a | of_b)

    return inner.flatmap(wrapped) | st.tuples(inner, inner).map(united)


types = st.recursive(st.sampled_from(LEAVES), containers, max_leaves=3)


@given(data=st.data())
@settings(max_examples=150)
def test_whatever_submit_accepts_of_any_type_arrives_equal(data: st.DataObject) -> None:
    annotation, values = data.draw(types)
    function = function_of(annotation)
    value = data.draw(values)
    try:
        received = arrived(function, value)
    except TaskExecutionError:
        return  # refused, by name and reason
    validated = function.arguments._adapter.validator.validate_python({"x": value})["x"]
    assert received == validated
    assert difference(validated, received) is None  # the types too, all the way down
