"""Secrets arrive with their values, are marked where they are stored, and are in no message."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Secret, SecretBytes, SecretStr

from tasklib.errors import ResultNotStorable, TaskExecutionError
from tasklib.executors.functions import result_text
from tests.tasks.round_trip_types import CONFIG, Login, arrived, function_of


@pytest.mark.parametrize("value", [SecretStr("hunter2"), [Login(user="a", password="hunter2")], {"a": SecretStr("b")}])
def test_a_secret_in_a_result_is_refused_instead_of_stored_as_stars(value: Any) -> None:
    with pytest.raises(ResultNotStorable, match="holds a secret") as caught:
        result_text(value, CONFIG, function_of(Any).results.to_json)
    assert "hunter2" not in str(caught.value)


SECRETS: list[tuple[Any, Any]] = [
    (SecretStr, SecretStr("hunter2")),
    (SecretStr, SecretStr("")),
    (SecretStr, SecretStr("**********")),
    (SecretBytes, SecretBytes(b"\xff\x00")),
    (Secret[int], Secret[int](5)),
    (SecretStr | None, SecretStr("a")),
    (Login, Login(user="**********", password="hunter2", key=b"key")),
    (dict[str, list[Login]], {"all": [Login(user="a", password="b"), Login(user="c", password="d")]}),
]


@pytest.mark.parametrize(("annotation", "value"), SECRETS)
def test_a_secret_arrives_with_its_value(annotation: Any, value: Any) -> None:
    assert arrived(function_of(annotation), value) == value


def test_a_stored_secret_is_marked_where_it_stands() -> None:
    stored = json.loads(function_of(Login).arguments.to_json({"x": Login(user="ann", password="hunter2")}))
    assert stored == {"x": {"user": "ann", "password": {"$secret": "hunter2"}, "key": {"$secret": ""}}}


def test_a_secret_inserted_without_a_mark_is_read_too() -> None:
    assert function_of(SecretStr).arguments.from_json('{"x": "hunter2"}') == {"x": SecretStr("hunter2")}


def test_a_dict_that_looks_like_a_marked_secret_arrives_as_it_is() -> None:
    function = function_of(Any)
    assert arrived(function, {"$secret": "x"}) == {"$secret": "x"}


def test_a_refused_secret_is_not_in_the_message() -> None:
    class Stubborn(BaseModel):
        password: Annotated[SecretStr, AfterValidator(lambda s: SecretStr(s.get_secret_value() + "!"))]

    with pytest.raises(TaskExecutionError, match=r"x\.password: would arrive with another value") as caught:
        function_of(Stubborn).arguments.to_json({"x": {"password": "hunter2"}})
    assert "hunter2" not in str(caught.value)
