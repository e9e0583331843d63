"""Options that make no sense are named, and a name that is both an option and a parameter is never guessed at."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import tasklib
from tasklib import Config, TaskFunction, task
from tasklib.errors import (
    InvalidOption,
    TaskExecutionError,
)
from tests.client.bad_input.saying import nested, saying
from tests.client.conftest import Either

# ---- options ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"scheduled_at": datetime(2026, 1, 2, 3, 4)},
            "scheduled_at is a naive datetime (2026-01-02T03:04:00), so its moment is unknown. "
            "Give it a time zone, e.g. datetime.now(timezone.utc).",
        ),
        ({"scheduled_at": "2026-01-02"}, "scheduled_at must be a datetime, not '2026-01-02'."),
        (
            {"scheduled_at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
            "scheduled_at must lie between 0001-01-03 and 9999-12-29 in UTC, not at 0001-01-01T00:00:00+01:00.",
        ),
        (
            {"scheduled_at": datetime(2026, 1, 1, tzinfo=UTC), "delay_seconds": 5},
            "give either delay_seconds or scheduled_at, not both.",
        ),
        *(
            (
                {"delay_seconds": wrong},
                "delay_seconds must be a number of seconds from 0 to 31,536,000,000 (a thousand years), "
                f"not {wrong!r}.",
            )
            for wrong in (-1, -0.001, math.nan, math.inf, 1e300, 10**30, "5", True, timedelta(seconds=5))
        ),
        *(
            ({"priority": wrong}, f"priority must be from -10 to 100, or a level such as 'high', not {wrong!r}.")
            for wrong in (-11, 101, 1.5, True, False, ["high"])
        ),
        *(
            ({"priority": wrong}, f"priority must be -10 to 100 or one of high, medium, low, not {wrong!r}.")
            for wrong in ("urgent", "HIGH", "", "5")
        ),
        *(
            ({"max_retries": wrong}, f"max_retries must be a whole number from 0 to 2,147,483,647, not {wrong!r}.")
            for wrong in (-1, 1.5, True, "3", 2**31)
        ),
        *(
            (
                {"timeout_seconds": wrong},
                f"timeout_seconds must be a whole number from 1 to 2,147,483,647, not {wrong!r}.",
            )
            for wrong in (0, -1, 0.5, True, "3", 2**31)
        ),
        *(
            ({option: wrong}, f"{option} must be a string of 1 to 500 bytes, not {wrong!r}.")
            for option in ("queue", "idempotency_key")
            for wrong in ("", 5, "a\x00", "\ud800", "x" * 501, "é" * 251, b"k")
        ),
        *(
            ({option: wrong}, f"{option} must be a mapping such as {{'batch': 'daily'}}, not {wrong!r}.")
            for option in ("tags", "trace_context")
            for wrong in (["a"], "a", 5)
        ),
        ({"tags": {"a": [math.nan]}}, "tags.a.0 is nan, which JSON doesn't have."),
        ({"tags": {"a": "\x00"}}, "tags.a contains the character \\u0000, which PostgreSQL can't store."),
        ({"tags": {"a": "\ud800"}}, "tags contains a lone surrogate, which is not valid Unicode."),
        ({"tags": {"a": nested(300, lambda v: [v])}}, "tags refers to itself or is nested too deeply."),
        ({"trace_context": {"a": math.inf}}, "trace_context.a is inf, which JSON doesn't have."),
        ({"required_capabilities": "gpu"}, "required_capabilities must be a list such as ['gpu'], not 'gpu'."),
        ({"required_capabilities": 5}, "required_capabilities must be a list such as ['gpu'], not 5."),
        *(
            (
                {"required_capabilities": ["ok", wrong]},
                f"required_capabilities must be strings of 1 to 500 bytes each, not {wrong!r}.",
            )
            for wrong in ("", 5, None, "\x00", "\ud800", "x" * 501)
        ),
        (
            {"required_capabilities": [str(i) * 400 for i in range(3)]},
            "required_capabilities take more than 1000 bytes together.",
        ),
    ],
    ids=lambda value: ascii(value)[:60] if isinstance(value, dict) else "",
)
async def test_an_option_that_makes_no_sense_is_named(
    options: dict[str, Any], message: str, either: Either, greet: Any
) -> None:
    with pytest.raises(InvalidOption, match=saying(message)):
        await either.submit_task(greet, name="a", **options)
    with pytest.raises(InvalidOption, match=saying(message)):
        await either.submit_many(greet, [{"name": "a"}], **options)


def test_an_unknown_option_is_named_with_those_there_are(greet: Any) -> None:
    expected = (
        "there is no option 'dealy_seconds'. Did you mean 'delay_seconds'? The options are debounce, "
        "delay_seconds, idempotency_key, max_retries, max_wait, merge_key, on_duplicate, payload_version, "
        "priority, queue, required_capabilities, scheduled_at, serial_key, share, tags, throttle, timeout_seconds, "
        "trace_context, unique."
    )
    with pytest.raises(InvalidOption, match=saying(expected)):
        greet.options(dealy_seconds=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_retries": -1}, "max_retries must be a whole number"),
        ({"timeout_seconds": 0}, "timeout_seconds must be a whole number"),
        ({"priority": 1000}, "priority must be from -10 to 100"),
        ({"queue": ""}, "queue must be a string"),
        ({"tags": []}, "tags must be a mapping"),
        ({"required_capabilities": "gpu"}, "required_capabilities must be a list"),
    ],
)
def test_the_options_of_a_decorator_are_checked_when_the_module_is_loaded(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        task(**options)(lambda: None)


# ---- one name for an option and a parameter ----


@pytest.fixture
def charge() -> TaskFunction[Any, Any]:
    @task
    def charge(amount: int, priority: str = "none", connection: str = "none", kwargs: str = "none") -> None: ...

    return charge


async def test_a_keyword_that_is_both_an_option_and_a_parameter_is_ambiguous(either: Either, charge: Any) -> None:
    expected = (
        "priority is both an option of submit_task and a parameter of charge, so this call is ambiguous. "
        "Write charge.options(priority=...).submit(priority=...), or pass the arguments as kwargs={...}."
    )
    with pytest.raises(TaskExecutionError, match=saying(expected)) as caught:
        await either.submit_task(charge, amount=1, priority=5)
    assert (caught.value.task, caught.value.field) == ("charge", "priority")
    with pytest.raises(TaskExecutionError, match="connection is both an option of submit_task and a parameter"):
        await either.submit_task(charge, amount=1, connection="visa")
    with pytest.raises(TaskExecutionError, match=saying("charge: kwargs= takes a mapping of arguments, not 'x'.")):
        await either.submit_task(charge, amount=1, kwargs="x")


@pytest.mark.usefixtures("stores")
async def test_the_two_unambiguous_forms_work(either: Either, charge: Any, database_url: str, db: Any) -> None:
    tasklib.init(database_url)
    arguments = {"amount": 1, "priority": "mine", "connection": "visa", "kwargs": "k"}
    ids = [
        await charge.options(priority=7).submit(**arguments),
        charge.options(priority=7).submit_sync(**arguments),
        await either.submit_task(charge, kwargs=arguments, priority=7),
        await either.submit(charge.options(priority=7).bind(**arguments)),
        *(await either.submit_many(charge, [arguments], priority=7)),
    ]
    stored = db.execute("SELECT priority, kwargs FROM tasks WHERE id = ANY(%s)", [ids]).fetchall()
    assert stored == [(7, arguments)] * 5


async def test_a_required_parameter_named_like_an_option_says_how_to_pass_it(either: Either) -> None:
    @task
    def tagged(tags: dict[str, str]) -> None: ...

    expected = "tags: is missing (submit_task has a keyword of that name: pass arguments as kwargs={'tags': ...})"
    with pytest.raises(TaskExecutionError, match=re.escape(expected)):
        await either.submit_task(tagged)


async def test_arguments_beside_kwargs_are_refused(either: Either, greet: Any) -> None:
    with pytest.raises(
        TaskExecutionError, match=saying("greet: give all arguments in kwargs= or none; times came beside it.")
    ):
        await either.submit_task(greet, kwargs={"name": "a"}, times=2)


def test_option_given_as_an_argument_of_the_typed_method_is_told_where_it_goes(config: Config) -> None:
    @task
    def greet(name: str) -> None: ...

    tasklib.init(config)
    with pytest.raises(TaskExecutionError, match=r"priority: is not a parameter of greet; as an option it goes before"):
        greet.submit_sync(name="a", priority="high")  # type: ignore[call-arg]
