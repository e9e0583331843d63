"""A task that isn't known and arguments that don't fit are refused by a sentence that says what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tasklib
from tasklib import Client, task
from tasklib.errors import (
    InvalidOption,
    TaskExecutionError,
    TaskNotFound,
)
from tests.client.bad_input.saying import Address, saying
from tests.client.conftest import Either

# ---- which task ----


async def test_an_unknown_name_brings_near_matches(either: Either) -> None:
    for name in ("mail.send", "mail.seed", "invoice.print"):
        task(name=name)(lambda: None)
    with pytest.raises(TaskNotFound) as caught:
        await either.submit_task("mial.send")
    assert str(caught.value) == (
        "no task named 'mial.send' is registered in this program. Did you mean 'mail.send' or 'mail.seed'? "
        "Import the module that defines it, or pass registered_elsewhere=True if another program has it."
    )
    assert caught.value.name == "mial.send"
    with pytest.raises(TaskNotFound, match=r"no task named 'zzz' is registered in this program\. Import the module"):
        await either.submit_many("zzz", [{}])


async def test_a_function_that_is_no_task_is_named(either: Either) -> None:
    def plain() -> None: ...

    with pytest.raises(TaskNotFound, match=saying("the function 'plain' is not a task. Put @task above it.")):
        await either.submit_task(plain)


@pytest.mark.parametrize("wrong", [None, 5, ["greet"], object])
async def test_what_is_neither_function_nor_name_is_refused(wrong: Any, either: Either) -> None:
    with pytest.raises(TaskNotFound, match=r"expected a task function or a task's name, not |is not a task"):
        await either.submit_task(wrong)


@pytest.mark.parametrize("wrong", ["", "a\x00b", "\ud800", "x" * 501, "é" * 251])
async def test_a_name_elsewhere_must_still_be_a_name(wrong: str, either: Either) -> None:
    with pytest.raises(InvalidOption, match="a task's name is a string of 1 to 500 bytes, not "):
        await either.submit_task(wrong, registered_elsewhere=True)


# ---- arguments that don't fit ----


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        ({}, "name", "the arguments don't fit greet: name: is missing"),
        ({"name": 5}, "name", "the arguments don't fit greet: name: Input should be a valid string"),
        (
            {"name": "a", "times": "many"},
            "times",
            "the arguments don't fit greet: times: Input should be a valid integer, "
            "unable to parse string as an integer",
        ),
        (
            {"name": "a", "nmae": "b"},
            "nmae",
            "the arguments don't fit greet: nmae: is not a parameter of greet. Did you mean 'name'?",
        ),
        (
            {"tiems": 2},
            "name",
            "the arguments don't fit greet: name: is missing; tiems: is not a parameter of greet. "
            "Did you mean 'times'?",
        ),
        ({"name": None}, "name", "the arguments don't fit greet: name: Input should be a valid string"),
    ],
    ids=["missing", "wrong type", "unreadable", "extra", "two at once", "null"],
)
async def test_arguments_that_dont_fit_name_the_field(
    arguments: dict[str, Any], field: str, message: str, either: Either, greet: Any
) -> None:
    with pytest.raises(TaskExecutionError, match=saying(message)) as caught:
        await either.submit_task(greet, **arguments)
    assert (caught.value.task, caught.value.field) == ("greet", field)
    with pytest.raises(TaskExecutionError, match=f"^{re.escape(message)}\nThis was item 1 of 2; none of them was"):
        await either.submit_many(greet, [{"name": "fine"}, arguments])


def test_a_wrong_value_deep_inside_is_found(client: Client) -> None:
    @task
    def move(to: list[Address]) -> None: ...

    with pytest.raises(TaskExecutionError, match=r"the arguments don't fit move: to\.1\.city: is missing"):
        client.submit_task(move, to=[{"city": "Rome"}, {"height": 2}])


async def test_positional_arguments_are_refused_with_the_call_to_write(either: Either, greet: Any) -> None:
    expected = "greet was given 1 positional argument; tasks take their arguments by name: "
    with pytest.raises(TaskExecutionError, match=saying(f"{expected}submit_task(greet, name=..., times=...).")):
        await either.submit_task(greet, "a")
    with pytest.raises(TaskExecutionError, match="was given 2 positional arguments"):
        await either.submit_task(greet, "a", 2)


async def test_the_typed_methods_take_positions_as_the_function_does(database_url: str, greet: Any) -> None:
    tasklib.init(database_url)
    with pytest.raises(TaskExecutionError, match=saying("greet: too many positional arguments.")):
        await greet.submit("a", 2, 3)
    with pytest.raises(TaskExecutionError, match=saying("greet: multiple values for argument 'name'.")):
        greet.submit_sync("a", name="b")
    with pytest.raises(TaskExecutionError, match="name: is missing"):
        greet.options(queue="q").submit_sync(times=2)
