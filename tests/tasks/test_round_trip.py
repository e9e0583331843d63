"""Arguments arrive equal, or are refused when they are submitted."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tasklib import Client, task
from tasklib.config import Config
from tasklib.errors import TaskExecutionError
from tasklib.tasks.round_trip import as_stored, difference, with_whole_floats
from tests.tasks.round_trip_types import ARRIVES, DAY, REFUSED, Aliased, Login, Plain, arrived, function_of


@pytest.mark.parametrize(("annotation", "value"), ARRIVES)
def test_what_is_accepted_arrives_equal(annotation: Any, value: Any) -> None:
    function = function_of(annotation)
    received = arrived(function, value)
    assert difference(TypeAdapter(annotation).validate_python(value), received) is None
    assert received == value or isinstance(value, datetime | Plain)


@pytest.mark.parametrize(("annotation", "value", "reason"), REFUSED)
def test_what_would_arrive_different_is_refused_by_name_and_reason(annotation: Any, value: Any, reason: str) -> None:
    with pytest.raises(TaskExecutionError, match=rf"the arguments of keep can't be stored: {reason}") as caught:
        function_of(annotation).arguments.to_json({"x": value})
    assert caught.value.field == "x"


def test_arguments_by_other_names_have_their_type() -> None:
    @task
    def count(**days: date) -> None: ...

    text = count.arguments.to_json({"first": "2026-11-16"})
    assert count.arguments.from_json(text) == {"first": DAY}
    with pytest.raises(TaskExecutionError, match="first: "):
        count.arguments.to_json({"first": "never"})


def test_a_row_may_have_a_models_aliases() -> None:
    assert function_of(Aliased).arguments.from_json('{"x": {"A": 1, "B": 2}}') == {"x": Aliased(A=1, B=2)}


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e16, -1e16, 1e22, 1e23, 1.5e300])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé€0", max_size=3), inner, max_size=4),
    max_leaves=8,
).filter(lambda v: "\\u0000" not in json.dumps(v))


@given(value=json_values)
@example(value={"bb": 1, "a": 2, "é": 3, "": 4})
@settings(max_examples=100)
def test_jsonb_gives_back_what_was_tried(value: Any, shared_db: psycopg.Connection) -> None:
    text = with_whole_floats(json.dumps(value))
    row = shared_db.execute("SELECT %s::jsonb::text", [text]).fetchone()
    assert row is not None
    stored = json.loads(row[0], object_pairs_hook=list)
    tried = json.loads(as_stored(text), object_pairs_hook=list)
    assert difference(stored, tried) is None


@pytest.fixture(scope="module")
def shared_db(server_url: str) -> Any:
    with psycopg.connect(server_url, autocommit=True) as connection:
        yield connection


def test_a_secret_and_a_large_float_pass_through_the_table(client: Client, db: psycopg.Connection) -> None:
    @task
    def both(login: Login, number: Any) -> None: ...

    login = Login(user="ann", password="hunter2", key=b"\x01")
    client.submit_task(both, login=login, number=1e23)
    (text,) = db.execute("SELECT kwargs::text FROM tasks").fetchone() or ("",)
    assert both.arguments.from_json(text) == {"login": login, "number": 1e23}


@pytest.fixture
def client(config: Config) -> Any:
    with Client(config) as made:
        yield made
