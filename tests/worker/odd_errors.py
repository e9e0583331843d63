"""Exceptions that are hard to look at, or that end more than they should; each raised by a task of every kind."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BaseModel, field_serializer

from tasklib import Retry, RetryPolicy, task


class GetattrRaises(Exception):
    """As clients of web APIs have them: every attribute is looked up in an answer, `__notes__` too."""

    def __getattr__(self, name: str) -> Any:
        return {}[name]


class StrRaises(Exception):
    def __str__(self) -> str:
        raise KeyError("no message")


class StrExits(Exception):
    def __str__(self) -> str:
        raise SystemExit


class StrCancels(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


class StrIsNoString(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class Text(str):
    def __format__(self, spec: str) -> str:
        raise ValueError("no format")

    def __len__(self) -> int:
        raise ValueError("no length")


class StrIsOdd(Exception):
    def __str__(self) -> str:
        return Text("odd text")


class NotesRaise(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise SystemExit


class NotesAreNone(Exception):
    __notes__ = 5


class CauseRaises(Exception):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise KeyboardInterrupt


class CauseWithoutEnd(Exception):
    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        return CauseWithoutEnd()


class TracebackRaises(Exception):
    @property
    def __traceback__(self) -> Any:
        raise ValueError("no traceback")


class ClassRaises(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise ValueError("no class")


class Nameless(type):
    def __getattribute__(cls, name: str) -> Any:
        raise ValueError("no name")


class NamelessError(Exception, metaclass=Nameless): ...


class Unasked(type):
    def __instancecheck__(cls, instance: object) -> bool:
        raise SystemExit


class NeverAsk(Exception, metaclass=Unasked): ...


class RetrySoon(Retry):
    def __init__(self, seconds: Any) -> None:
        super().__init__()
        self.seconds = seconds


class Group(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        return (Group("made up", [ValueError("x")]),)


class OwnBase(BaseException): ...


def _cycle() -> BaseException:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


def _chain(length: int) -> BaseException:
    error: BaseException = ValueError("0")
    for n in range(length):
        above = ValueError(str(n))
        above.__cause__, error = error, above
    return error


def _nested(depth: int) -> BaseException:
    group: Exception = GetattrRaises("deep inside")
    for _ in range(depth):
        group = ExceptionGroup("level", [group])
    return group


def _recursion() -> NoReturn:
    _recursion()


def _elsewhere() -> NoReturn:
    """From code without a module."""
    exec("raise ValueError('made at run time')", {"__name__": None})
    raise AssertionError


ODD: dict[str, tuple[Callable[[], BaseException], str]] = {
    "getattr raises": (lambda: GetattrRaises("the API said no"), "GetattrRaises: the API said no"),
    "syntax error": (lambda: SyntaxError("x", ("f", "notint", None, 5)), "SyntaxError"),  # type: ignore[arg-type]
    "str raises": (lambda: StrRaises("x"), "StrRaises: "),
    "str exits": (lambda: StrExits("x"), "StrExits: "),
    "str cancels": (lambda: StrCancels("x"), "StrCancels: "),
    "str is no string": (lambda: StrIsNoString("x"), "StrIsNoString: "),
    "str is odd": (lambda: StrIsOdd("x"), "StrIsOdd: odd text"),
    "notes raise": (lambda: NotesRaise("x"), "NotesRaise: x"),
    "notes are none": (lambda: NotesAreNone("x"), "NotesAreNone: x"),
    "cause raises": (lambda: CauseRaises("x"), "CauseRaises: x"),
    "cause without end": (lambda: CauseWithoutEnd("x"), "CauseWithoutEnd: x"),
    "traceback raises": (lambda: TracebackRaises("x"), "TracebackRaises: x"),
    "class raises": (lambda: ClassRaises("x"), "ClassRaises: x"),
    "nameless": (lambda: NamelessError("x"), "NamelessError: x"),
    "many lines in a name": (lambda: type("Two\nLines", (Exception,), {})("x"), "Lines: x"),
    "control characters": (lambda: ValueError("a\x00b\ud800c"), "ValueError: a\\x00b\\ud800c"),
    "huge": (lambda: ValueError("x" * 3_000_000), "characters left out"),
    "cycle": (_cycle, "ValueError: one"),
    "chain": (lambda: _chain(300), "ValueError: 299"),
    "long chain": (lambda: _chain(20_000), "ValueError: 19999"),
    "nested groups": (lambda: _nested(500), "ExceptionGroup: level: tests.worker.odd_errors.GetattrRaises: deep"),
    "wide group": (lambda: ExceptionGroup("wide", [ValueError(n) for n in range(20_000)]), "wide: ValueError: 0"),
    "lying group": (lambda: Group("lies", [ValueError("truth")]), "Group: lies: ValueError: truth"),
    "retry at no time": (lambda: RetrySoon(float("nan")), "RetrySoon"),
    "retry soon": (lambda: RetrySoon("soon"), "RetrySoon"),
    "no arguments": (lambda: ValueError(), "ValueError"),
    "generator exit": (GeneratorExit, "GeneratorExit"),
    "keyboard interrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "system exit": (lambda: SystemExit(3), "SystemExit: 3"),
    "cancelled": (asyncio.CancelledError, "asyncio.exceptions.CancelledError"),
    "stop iteration": (StopIteration, "StopIteration"),
    "stop async iteration": (StopAsyncIteration, "StopAsyncIteration"),
    "own base": (lambda: OwnBase("mine"), "tests.worker.odd_errors.OwnBase: mine"),
    "base group": (lambda: BaseExceptionGroup("many", [KeyboardInterrupt(), OwnBase("b")]), "many: KeyboardInterrupt"),
}
"""What to raise, and what the stored error has to say."""


def misbehave(kind: str) -> NoReturn:
    if kind == "recursion":
        _recursion()
    if kind == "elsewhere":
        _elsewhere()
    raise ODD[kind][0]()


KINDS = {kind: said for kind, (_, said) in ODD.items()} | {
    "recursion": "RecursionError: ",
    "elsewhere": "ValueError: made at run time",
}


@task(name="odd.loop", max_retries=0)
async def on_the_loop(kind: str) -> None:
    await asyncio.sleep(0)
    misbehave(kind)


@task(name="odd.at_once", max_retries=0)
async def before_it_waits(kind: str) -> None:
    misbehave(kind)


@task(name="odd.thread", max_retries=0)
def in_a_thread(kind: str) -> None:
    misbehave(kind)


@task(name="odd.process", max_retries=0, executor="process")
def in_a_process(kind: str) -> None:
    misbehave(kind)


@task(name="odd.process_loop", max_retries=0, executor="process")
async def in_a_process_on_a_loop(kind: str) -> None:
    await asyncio.sleep(0)
    misbehave(kind)


@task(name="odd.transaction", max_retries=0, transactional=True)
async def in_a_transaction(kind: str, connection: Any) -> None:
    await connection.execute("SELECT 1")
    misbehave(kind)


@task(name="odd.thread_transaction", max_retries=0, transactional=True)
def in_a_transaction_in_a_thread(kind: str, connection: Any) -> None:
    connection.execute("SELECT 1")
    misbehave(kind)


EXITS: dict[str, type[BaseException]] = {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}


async def _leave(kind: str, is_late: bool) -> None:
    if is_late:
        await asyncio.sleep(0)
    raise EXITS[kind]("from below")


@task(name="odd.subtask", max_retries=0)
async def in_a_subtask(kind: str, how: str, is_late: bool) -> None:
    match how:
        case "gather":
            await asyncio.gather(_leave(kind, is_late), asyncio.sleep(0))
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(_leave(kind, is_late))
        case "context":
            await asyncio.create_task(_leave(kind, is_late), context=contextvars.copy_context())
        case "wait_for":
            await asyncio.wait_for(_leave(kind, is_late), 60)


EVERYWHERE = (
    on_the_loop,
    before_it_waits,
    in_a_thread,
    in_a_process,
    in_a_process_on_a_loop,
    in_a_transaction,
    in_a_transaction_in_a_thread,
)


def _refuse(value: str) -> str:
    raise {"key": KeyError("validator"), "exit": SystemExit("validator"), "odd": GetattrRaises("validator")}[value]


Refused = Annotated[str, AfterValidator(_refuse)]


class Unwritable(BaseModel):
    value: int = 1

    @field_serializer("value")
    def write(self, value: int) -> int:
        raise SystemExit("serialiser")


class OddMapping(dict[str, int]):
    def items(self) -> Any:
        raise GetattrRaises("items")


def _endless_trouble() -> Iterator[int]:
    yield 1
    raise GetattrRaises("generator")


RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "serialiser": (Unwritable, "serialiser"),
    "generator": (_endless_trouble, "generator"),
    "nameless": (lambda: Nameless("Result", (), {})(), "Result"),
}


@task(name="odd.result", max_retries=0)
async def odd_result(kind: str) -> Any:
    return RESULTS[kind][0]()


@task(name="odd.thread_result", max_retries=0)
def odd_result_in_a_thread(kind: str) -> Any:
    return RESULTS[kind][0]()


@task(name="odd.unasked", max_retries=0, non_retriable=(NeverAsk,))
async def unasked() -> None:
    raise ValueError("plain")


class NoPolicy(RetryPolicy):
    def delay(self, retry_count: int, chance: float | None = None) -> float:
        raise GetattrRaises("policy")


class EndlessPolicy(RetryPolicy):
    def delay(self, retry_count: int, chance: float | None = None) -> float:
        return float("nan")


@task(name="odd.policy", max_retries=1, retry_policy=NoPolicy())
async def without_policy() -> None:
    raise ValueError("plain")


@task(name="odd.endless_policy", max_retries=1, retry_policy=EndlessPolicy())
async def with_endless_policy() -> None:
    raise ValueError("plain")
