"""What can't be a task function is refused when its module is loaded, with the reason."""

from __future__ import annotations

import asyncio
import importlib
import re
import runpy
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tasklib import RetryPolicy, task
from tasklib.errors import (
    InvalidTaskFunction,
)
from tasklib.tasks import registry

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


def test_two_functions_under_one_name_are_refused_with_both_places() -> None:
    @task(name="mail.send")
    def one() -> None: ...

    with pytest.raises(
        InvalidTaskFunction,
        match=r"two functions want the task name 'mail\.send': tests\.client\.bad_input\.test_functions\.\S*one "
        r"\(\S*test_functions\.py:\d+\) and \S*two \(\S*:\d+\)\. Give one of them another: @task\(name='\.\.\.'\)\.",
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


_DECORATORS = """
import functools

def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

def careless(function):
    def wrapper():
        return function()
    return wrapper
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], ModuleType]]:
    """Writes a module and imports it; all are forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def make(name: str, source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield make
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("decorator", ["logged", "careless"])
def test_two_decorated_functions_of_one_name_are_refused_with_the_places_of_both(
    modules: Callable[[str, str], ModuleType], decorator: str
) -> None:
    source = f"from tasklib import task\nfrom decorators_ import {decorator}\n\n"
    source += f"@task(name='send')\n@{decorator}\ndef send() -> str:\n    return __name__\n"
    modules("decorators_", _DECORATORS)
    modules("billing_", source)
    with pytest.raises(InvalidTaskFunction, match=r"two functions want the task name 'send': .* and .*name='\.\.\.'"):
        modules("mail_", source)
    if decorator == "logged":
        with pytest.raises(
            InvalidTaskFunction, match=r"billing_\.send \(\S*billing_\.py:\d+\) and mail_\.send \(\S*mail_"
        ):
            modules("mail_", source)


def test_a_decorated_function_that_is_loaded_again_replaces_itself(
    modules: Callable[[str, str], ModuleType], tmp_path: Path
) -> None:
    modules("decorators_", _DECORATORS)
    source = "from tasklib import task\nfrom decorators_ import careless, logged\n\n"
    source += "@task\n@logged\ndef send() -> None: ...\n\n@task(name='careless')\n@careless\ndef other() -> None: ...\n"
    first = modules("mail_", source)
    reloaded = importlib.reload(first)
    del sys.modules["mail_"]
    imported_again = modules("mail_", source)
    as_script = runpy.run_path(str(tmp_path / "mail_.py"), run_name="__main__")
    assert len({first.send, reloaded.send, imported_again.send, as_script["send"]}) > 1
    assert registry.find("send") is as_script["send"]
    assert registry.find("careless") is as_script["other"]


def test_same_name_in_two_files_that_call_themselves_alike_is_refused() -> None:
    def load(source: str, filename: str) -> None:
        exec(compile(source, filename, "exec"), {"__name__": "plugin"})

    source = "from tasklib import task\n@task\ndef send() -> None: ...\n"
    load(source, "/plugins/one.py")
    with pytest.raises(InvalidTaskFunction, match=r"\(/plugins/one\.py:2\) and plugin\.send \(/plugins/two\.py:2\)"):
        load(source, "/plugins/two.py")


def test_a_method_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        InvalidTaskFunction,
        match=r"Mailer\.send is a method, and a worker has no \S*Mailer to call it on\. Put @task on a function",
    ):

        class Mailer:
            @task
            def send(self, to: str) -> None: ...

    with pytest.raises(InvalidTaskFunction, match=r"Sender\.send is a method"):

        class Sender:
            @task
            @classmethod
            async def send(cls, to: str) -> None: ...


def test_a_static_method_is_a_task_like_any_function() -> None:
    class Mailer:
        @task(name="static.inner")
        @staticmethod
        async def send(to: str) -> str:
            return to

        @staticmethod
        @task(name="static.outer")
        def write(to: str) -> str:
            return to

    def send(self: str) -> str:  # no class around it: a parameter like any other
        return self

    assert Mailer.send.executor == "loop"
    assert asyncio.run(Mailer().send("a")) == "a"
    assert (Mailer.write.name, Mailer().write("b"), task(send)("c")) == ("static.outer", "b", "c")


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
            "with_connection: a transactional task can't run in a process: its connection belongs to the worker.",
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
