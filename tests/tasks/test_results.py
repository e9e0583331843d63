"""Results come back equal, or the attempt fails."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from pydantic import Field, SecretStr, TypeAdapter

from tasklib import task
from tasklib.errors import ResultNotStorable
from tasklib.executors.functions import result_text
from tasklib.tasks.round_trip import as_stored, difference
from tests.tasks.round_trip_types import ARRIVES, CONFIG, DAY, REFUSED, Animal, Counted, Size, function_of


@pytest.mark.parametrize(("annotation", "value"), ARRIVES)
def test_a_result_of_the_declared_type_comes_back_equal(annotation: Any, value: Any) -> None:
    function = function_of(annotation)
    text = json.dumps(json.loads(as_stored(result_text(value, CONFIG, function.results.to_json)))["value"])
    back = TypeAdapter(Annotated[annotation, Field()]).validator.validate_json(text, by_name=True)
    if not isinstance(value, bytes):  # in base64, which this adapter doesn't know
        assert difference(value, back, exact=False) is None


RESULTS_REFUSED = [r for r in REFUSED if r[0] not in (Any, object, list) and r[0] is not Counted]


@pytest.mark.parametrize(("annotation", "value", "reason"), RESULTS_REFUSED)
def test_a_result_that_would_come_back_different_fails_the_attempt(annotation: Any, value: Any, reason: str) -> None:
    with pytest.raises(ResultNotStorable, match=r"the return value .* can't be stored"):
        result_text(value, CONFIG, function_of(annotation).results.to_json)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "5"), (list[int], ["a"]), (Animal, {"name": 1}), (str, 5), (int, 5.5), (SecretStr, SecretStr("x"))],
)
def test_a_result_that_is_not_what_the_function_declares_fails_the_attempt(annotation: Any, value: Any) -> None:
    with pytest.raises(ResultNotStorable, match=r"the return value .* can't be stored"):
        result_text(value, CONFIG, function_of(annotation).results.to_json)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [(float, 5, "5"), (int, True, "1"), (int, Size.SMALL, "1"), (dict[str, float], {"a": 1}, '{"a":1}')],
)
def test_a_result_may_equal_what_is_declared_without_being_it(annotation: Any, value: Any, text: str) -> None:
    assert function_of(annotation).results.to_json(value) == text


@pytest.mark.parametrize("value", [(1, DAY), {"a": {1}}, Animal(name="a"), 1e23])
def test_a_result_without_a_declared_type_is_stored_in_the_form_that_json_has(value: Any) -> None:
    def undeclared() -> Any: ...

    def declared() -> dict[str, Any]: ...

    text = task(undeclared).results.to_json(value)
    assert task(declared).results.to_json({"a": value}) == f'{{"a":{text}}}'
    assert json.loads(text) == TypeAdapter(Any).dump_python(value, mode="json")


def test_a_result_whose_keys_are_the_same_text_is_refused() -> None:
    with pytest.raises(ResultNotStorable, match="two keys that are the same text in JSON"):
        result_text({1: "a", "1": "b"}, CONFIG, function_of(Any).results.to_json)
