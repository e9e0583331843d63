"""Whatever is wrong is refused before anything is stored, by a sentence that says what, where, and what to do."""

from __future__ import annotations

import importlib
import math
import re
import socket
import struct
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import BaseModel

import tasklib
from tasklib import AsyncClient, Client, Config, RetryPolicy, TaskFunction, task
from tasklib.errors import (
    ConfigError,
    DatabaseUnavailable,
    InvalidOption,
    InvalidTaskFunction,
    NotInitialized,
    SchemaError,
    TaskExecutionError,
    TaskNotFound,
)
from tasklib.migrations import check, migrate
from tasklib.tasks.payload import MAX_DEPTH
from tests.client.conftest import Either

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


class Address(BaseModel):
    city: str
    height: float = 0.0
    extra: Any = None


@dataclass
class Point:
    x: float


@pytest.fixture
def greet() -> TaskFunction[Any, Any]:
    @task
    def greet(name: str, times: int = 1) -> None: ...

    return greet


@pytest.fixture
def anything() -> TaskFunction[Any, Any]:
    @task
    def anything(x: Any) -> None: ...

    return anything


@pytest.fixture(autouse=True)
def _nothing_is_stored(
    request: pytest.FixtureRequest, database_url: str, janitor: psycopg.Connection
) -> Iterator[None]:
    """What was refused has left no row. (It needs database_url so as to look before that one cleans up.)"""
    yield
    if "stores" not in request.fixturenames:
        assert janitor.execute("SELECT count(*) FROM tasks").fetchone() == (0,)


@pytest.fixture
def stores() -> None:
    """Says that a test does store something."""


def saying(text: str) -> str:
    """A pattern that matches exactly this text."""
    return f"^{re.escape(text)}$"


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
        ({"name": "a", "nmae": "b"}, "nmae", "the arguments don't fit greet: nmae: is not a parameter of greet"),
        (
            {"tiems": 2},
            "name",
            "the arguments don't fit greet: name: is missing; tiems: is not a parameter of greet",
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


# ---- values that can't be stored ----


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


def nested(levels: int, kind: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = kind(value)
    return value


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
            "scheduled_at is outside the years 1 to 9999 in UTC: 0001-01-01T00:00:00+01:00.",
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
        "there is no option 'dealy_seconds'; the options are delay_seconds, idempotency_key, max_retries, priority, "
        "queue, required_capabilities, scheduled_at, tags, timeout_seconds, trace_context."
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


# ---- what can't be a task function ----


def test_two_functions_under_one_name_are_refused_with_both_places() -> None:
    @task(name="mail.send")
    def one() -> None: ...

    with pytest.raises(
        InvalidTaskFunction,
        match=r"two functions want the task name 'mail\.send': tests\.client\.test_bad_input\.\S*one "
        r"\(\S*test_bad_input\.py:\d+\) and \S*two \(\S*:\d+\)\. Give one of them another: @task\(name='\.\.\.'\)\.",
    ):

        @task(name="mail.send")
        def two() -> None: ...


def test_a_reloaded_module_registers_its_functions_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"reloaded_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("from tasklib import task\n\n@task\ndef work() -> None: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    first = module.work
    assert importlib.reload(module).work is not first
    assert sys.modules.pop(name).work.name == "work"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(a, /): ...", "f has the positional parameter a; tasks receive their arguments by name."),
        ("def f(*args): ...", "f has the positional parameter *args; tasks receive their arguments by name."),
        ("def f():\n    yield 1", "f is a generator; a task returns one value."),
        ("async def f():\n    yield 1", "f is a generator; a task returns one value."),
        (
            "def f(a: 'Nowhere'): ...",
            "the type hints of f can't be resolved: name 'Nowhere' is not defined. Task functions need hints that "
            "exist at run time, not only under TYPE_CHECKING.",
        ),
        ("import os\ndef f(a: 'os.Nowhere'): ...", "the type hints of f can't be resolved: module 'os' has no att"),
        ("def f(a: 'not a hint ('): ...", "the type hints of f can't be resolved: "),
        ("class C: ...\ndef f(a: C): ...", "a parameter of f has a type that can't travel as JSON: "),
        ("class f: ...", "@task needs a function, not <class 'f'>."),
        ("f = 5", "@task needs a function, not 5."),
        ("import functools\nf = functools.partial(print)", "@task needs a function, not functools.partial("),
    ],
)
def test_a_function_that_cant_be_a_task_is_refused_with_the_reason(source: str, message: str) -> None:
    scope: dict[str, Any] = {}
    exec(source, scope)
    with pytest.raises(InvalidTaskFunction, match=f"^{re.escape(message)}"):
        task(scope["f"])


def test_a_hint_that_only_type_checkers_see_is_refused() -> None:
    def work(amount: OnlyForTypeCheckers) -> None: ...

    with pytest.raises(InvalidTaskFunction, match="name 'OnlyForTypeCheckers' is not defined"):
        task(work)


def sync_work() -> None: ...


async def async_work() -> None: ...


async def async_generator() -> AsyncIterator[int]:
    yield 1


def with_connection(connection: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (
            sync_work,
            {"transactional": True},
            "sync_work is transactional, so it needs a parameter named connection to receive the connection.",
        ),
        (
            sync_work,
            {"executor": "loop"},
            "sync_work: executor='loop' needs an async function; this one would block the loop.",
        ),
        (
            async_work,
            {"executor": "thread"},
            "async_work: an async function runs on the loop or in a process, not in a thread.",
        ),
        (
            with_connection,
            {"executor": "process", "transactional": True},
            "with_connection: a transactional task can't run in a process: its connection lives in the worker.",
        ),
        (sync_work, {"executor": "gpu"}, "sync_work: executor must be one of loop, thread, process, not 'gpu'."),
        (
            sync_work,
            {"retry_policy": {"base_seconds": 1}},
            "sync_work: retry_policy must be a RetryPolicy(...), not {'base_seconds': 1}.",
        ),
        (sync_work, {"non_retriable": (5,)}, "sync_work: non_retriable must be exception classes, not (5,)."),
        (sync_work, {"non_retriable": "ValueError"}, "sync_work: non_retriable must be exception classes, not 'ValueE"),
        (sync_work, {"name": ""}, "a task's name is a string of 1 to 500 bytes, not ''."),
        (sync_work, {"name": "a\x00"}, "a task's name is a string of 1 to 500 bytes, not 'a\\x00'."),
        (sync_work, {"name": "\ud800"}, "a task's name is a string of 1 to 500 bytes, not '\\ud800'."),
        (sync_work, {"name": "x" * 501}, "a task's name is a string of 1 to 500 bytes, not 'xxx"),
        (sync_work, {"name": 5}, "a task's name is a string of 1 to 500 bytes, not 5."),
        (async_generator, {}, "async_generator is a generator; a task returns one value."),
    ],
)
def test_options_that_dont_go_with_the_function_are_refused(
    function: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidTaskFunction, match=f"^{re.escape(message)}"):
        task(**options)(function)


def test_the_combinations_that_make_sense_are_accepted() -> None:
    assert task(sync_work).executor == "thread"
    assert task(async_work).executor == "loop"
    assert task(name="a", executor="process")(sync_work).executor == "process"
    assert task(name="b", executor="process")(async_work).executor == "process"
    assert task(transactional=True, retry_policy=RetryPolicy())(with_connection).executor == "thread"
    assert task(name="c", non_retriable=ValueError)(sync_work).non_retriable == (ValueError,)  # type: ignore[call-overload]


# ---- the database ----


async def test_without_init_the_error_says_what_to_call(greet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TASKLIB_DATABASE_URL", raising=False)
    expected = saying(
        "TaskLib is not initialised. Call tasklib.init('postgresql://user@host/db') once at start-up, "
        "or set TASKLIB_DATABASE_URL, or use tasklib.Client / tasklib.AsyncClient."
    )
    with pytest.raises(NotInitialized, match=expected):
        await tasklib.submit_task(greet, name="a")
    with pytest.raises(RuntimeError, match=expected):
        tasklib.submit_task_sync(greet, name="a")
    with pytest.raises(NotInitialized, match=expected):
        await greet.submit(name="a")
    with pytest.raises(NotInitialized, match=expected):
        greet.submit_sync(name="a")
    with pytest.raises(ConfigError, match=r"no database is configured\. Set TASKLIB_DATABASE_URL="):
        tasklib.init()


async def refused_at(url: str, greet: Any) -> str:
    """What both clients and the migration say about this address; they must agree."""
    said = set()
    with pytest.raises(DatabaseUnavailable) as caught:
        Client(url).submit_task(greet, name="a")
    said.add(str(caught.value))
    with pytest.raises(ConnectionError) as caught_too:
        await AsyncClient(url).submit_task(greet, name="a")
    said.add(str(caught_too.value))
    with pytest.raises(DatabaseUnavailable) as caught:
        migrate(Config(url))
    said.add(str(caught.value))
    assert len({re.sub(r"connection timeout.*", "", text) for text in said}) == 1, said
    assert all("hunter2" not in text for text in said)
    return said.pop()


async def test_a_server_that_isnt_there_is_named_without_the_password(greet: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers, and nobody else can take it
        port = taken.getsockname()[1]
        said = await refused_at(f"postgresql://app:hunter2@127.0.0.1:{port}/shop", greet)
    assert said.startswith(f"can't connect to PostgreSQL at app@127.0.0.1:{port}/shop: ")
    assert "Connection refused" in said
    assert said.endswith("Check that the server runs and that the URL, user and password are right.")


async def test_a_socket_that_isnt_there_is_named(greet: Any, tmp_path: Path) -> None:
    said = await refused_at(f"host={tmp_path} user=app password=hunter2 dbname=shop", greet)
    assert said.startswith(f"can't connect to PostgreSQL at app@{tmp_path}/shop: ")
    assert "No such file or directory" in said


async def test_a_database_that_isnt_there_is_named(greet: Any, server_url: str) -> None:
    said = await refused_at(make_conninfo(server_url, dbname="no_such_database"), greet)
    assert "/no_such_database: " in said
    assert 'database "no_such_database" does not exist' in said


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that gives everybody the same answer to their first words."""

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.recv(65536)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(20)


async def test_a_password_that_the_server_refuses_is_explained_and_never_shown(greet: Any) -> None:
    # The words of PostgreSQL itself, in its protocol: an ErrorResponse with severity, SQLSTATE and message.
    fields = b'SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user "app"\0\0'
    with answering(b"E" + struct.pack("!i", 4 + len(fields)) + fields) as port:
        url = f"postgresql://app:hunter2@127.0.0.1:{port}/shop?sslmode=disable&gssencmode=disable"
        said = await refused_at(url, greet)
    assert 'password authentication failed for user "app"' in said
    assert said.startswith(f"can't connect to PostgreSQL at app@127.0.0.1:{port}/shop: ")


async def test_a_real_server_refuses_a_wrong_password(greet: Any, server_url: str) -> None:
    role = f"tasklib_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'right'").format(sql.Identifier(role)))
        try:
            wrong = make_conninfo(server_url, user=role, password="hunter2")
            try:
                psycopg.connect(wrong).close()
            except psycopg.OperationalError:
                said = await refused_at(wrong, greet)
            else:
                pytest.skip("this server trusts everybody; the embedded one asks for the password")
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    assert f'password authentication failed for user "{role}"' in said


async def test_what_isnt_postgresql_is_refused(greet: Any) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        url = f"postgresql://app:hunter2@127.0.0.1:{port}/shop?sslmode=disable&gssencmode=disable"
        said = await refused_at(url, greet)
    assert said.startswith(f"can't connect to PostgreSQL at app@127.0.0.1:{port}/shop: ")


async def test_an_unmigrated_database_says_what_to_run(greet: Any, empty_database_url: str) -> None:
    expected = r'TaskLib\'s tables are missing .*relation "tasks" does not exist.* Run: tasklib migrate'
    with Client(empty_database_url) as client:
        for call in (
            lambda: client.submit_task(greet, name="a"),
            lambda: client.submit_task(greet, name="a", idempotency_key="k"),
            lambda: client.submit_many(greet, [{"name": "a"}] * 200),
            lambda: client.get_task(uuid.uuid4()),
            lambda: client.list_tasks(),
            lambda: client.wait_for(uuid.uuid4()),
        ):
            with pytest.raises(SchemaError, match=expected):
                call()
    async with AsyncClient(empty_database_url) as async_client:
        with pytest.raises(SchemaError, match=expected):
            await async_client.submit_task(greet, name="a")
        with pytest.raises(SchemaError, match=expected):
            await async_client.submit_many(greet, [{"name": "a"}] * 200)
    with pytest.raises(
        SchemaError, match=saying("TaskLib's tables are not in this database. Create them with: tasklib migrate")
    ):
        check(Config(empty_database_url))


def test_a_schema_that_isnt_there_is_named(greet: Any, config: Config) -> None:
    there = config.with_changes(schema="nowhere")
    with Client(there) as client, pytest.raises(SchemaError, match=r'"nowhere\.tasks" does not exist'):
        client.submit_task(greet, name="a")
    with pytest.raises(SchemaError, match="TaskLib's tables are not in schema 'nowhere'"):
        check(there)


def test_a_newer_database_asks_for_an_upgrade(empty_database_url: str) -> None:
    config = Config(empty_database_url)
    migrate(config)
    check(config)
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("UPDATE tasklib_version SET version_num = '9999'")
    expected = saying(
        "this database is at revision 9999, newer than this TaskLib knows "
        f"({sorted(p.name[:4] for p in VERSIONS.glob('[0-9]*.py'))[-1]}). "
        "Upgrade tasklib-pg in this program; nothing was changed."
    )
    with pytest.raises(SchemaError, match=expected):
        check(config)
    with pytest.raises(SchemaError, match=expected):
        migrate(config)


VERSIONS = Path(tasklib.__file__).parent / "migrations" / "versions"


# ---- what the database itself refuses, whoever writes ----


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"name": ""}, "tasks_name_not_empty"),
        ({"state": "done"}, "tasks_state_known"),
        ({"state": "PENDING"}, "tasks_state_known"),
        ({"state": ""}, "tasks_state_known"),
        ({"kwargs": "[]"}, "tasks_kwargs_is_object"),
        ({"kwargs": "null"}, "tasks_kwargs_is_object"),
        ({"kwargs": '"text"'}, "tasks_kwargs_is_object"),
        ({"tags": "[1]"}, "tasks_tags_is_object"),
        ({"priority": 101}, "tasks_priority_in_range"),
        ({"priority": -11}, "tasks_priority_in_range"),
        ({"max_retries": -1}, "tasks_counts_not_negative"),
        ({"retry_count": -1}, "tasks_counts_not_negative"),
        ({"crash_count": -1}, "tasks_counts_not_negative"),
        ({"timeout_seconds": 0}, "tasks_timeout_positive"),
        ({"state": "running"}, "tasks_running_has_lease"),
        ({"worker_id": "w", "locked_until": "2030-01-01"}, "tasks_running_has_lease"),
        ({"state": "failed"}, "tasks_failed_has_retry_time"),
        ({"state": "completed"}, "tasks_terminal_has_end"),
        ({"state": "cancelled"}, "tasks_terminal_has_end"),
        ({"state": "dead_letter"}, "tasks_terminal_has_end"),
        ({"completed_at": "2030-01-01"}, "tasks_terminal_has_end"),
    ],
    ids=str,
)
def test_the_database_refuses_what_no_task_can_be(columns: dict[str, Any], constraint: str, db: Any) -> None:
    given = {"name": "by.hand", **columns}
    insert = sql.SQL("INSERT INTO tasks ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(sql.Placeholder, given))
    )
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        db.execute(insert, given)
    assert caught.value.diag.constraint_name == constraint


@pytest.mark.parametrize("column", ["name", "queue", "kwargs", "scheduled_at", "priority", "tags", "max_retries"])
def test_the_database_refuses_a_task_without_what_every_task_has(column: str, db: Any) -> None:
    given = {"name": "by.hand", column: None}
    insert = sql.SQL("INSERT INTO tasks ({}) VALUES ({})").format(
        sql.SQL(", ").join(map(sql.Identifier, given)), sql.SQL(", ").join(map(sql.Placeholder, given))
    )
    with pytest.raises(psycopg.errors.NotNullViolation) as caught:
        db.execute(insert, given)
    assert caught.value.diag.column_name == column


def test_the_database_refuses_a_key_that_is_taken(db: Any) -> None:
    insert = "INSERT INTO tasks (name, idempotency_key) VALUES ('a', 'k')"
    db.execute(insert)
    with pytest.raises(psycopg.errors.UniqueViolation, match="tasks_idempotency"):
        db.execute(insert)
    db.execute("DELETE FROM tasks")


def test_option_given_as_an_argument_of_the_typed_method_is_told_where_it_goes(config: Config) -> None:
    @task
    def greet(name: str) -> None: ...

    tasklib.init(config)
    with pytest.raises(TaskExecutionError, match=r"priority: is not a parameter of greet; as an option it goes before"):
        greet.submit_sync(name="a", priority="high")  # type: ignore[call-arg]
