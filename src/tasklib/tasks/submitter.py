"""The typed ways to submit a task function: as it is, with options, and inside a transaction.

An asynchronous call returns an `Awaited`, a coroutine that says what to write when it is taken for the result.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, TypeAlias, overload

from typing_extensions import TypeVar, Unpack

from tasklib.tasks import default_client
from tasklib.tasks.flow_parts import NOTHING_GIVEN, Signature
from tasklib.tasks.options import NOTHING_SAID, Options, SubmitOptions, options_of

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from tasklib.tasks.function import TaskFunction
    from tasklib.tasks.task_id import SyncTaskId, TaskId

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True, default=Any)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, known by its methods: it need not be installed."""

    @property
    def fetchrow(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...


class DjangoConnection(Protocol):
    """A connection of Django, known by what it has: it need not be installed."""

    @property
    def vendor(self) -> str: ...
    @property
    def cursor(self) -> Callable[..., Any]: ...


if TYPE_CHECKING:
    SyncConnection: TypeAlias = (
        psycopg.Connection[Any] | Session | scoped_session[Any] | sqlalchemy.Connection | DjangoConnection
    )
    AsynchronousConnection: TypeAlias = (
        psycopg.AsyncConnection[Any] | AsyncSession | async_scoped_session[Any] | AsyncConnection | AsyncpgConnection
    )


_unmarked: list[Callable[..., Any]] = []


def returns_awaited(function: F) -> F:
    """Mark a function that returns an `Awaited` as one to await: frameworks ask before they call, or use a thread."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    _unmarked.append(function)
    return function


def mark_for_asyncio() -> None:
    """The same before Python 3.12, where only asyncio has such a mark: done when asyncio is imported anyway."""
    if sys.version_info < (3, 12):
        import asyncio

        # The private mark is the only one that asyncio.iscoroutinefunction knows before 3.12.
        mark = vars(asyncio.coroutines)["_is_coroutine"]
        while _unmarked:
            _unmarked.pop().__dict__["_is_coroutine"] = mark


class Awaited(Coroutine[Any, Any, T]):
    """A coroutine that knows what its caller should have written.

    task = get_task(id)
    task.state          # AttributeError: ... Write `await tasklib.get_task(...)`
    """

    __slots__ = ("_call", "_coroutine", "_instead")

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str, instead: str | None = None) -> None:
        self._coroutine = coroutine
        self._call = call
        self._instead = instead

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        # asyncio and debuggers probe for attributes of coroutines.
        if name.startswith(("__", "cr_")):
            return getattr(self._coroutine, name)
        raise AttributeError(f"{self._reason} It has no {name!r} before. {self._advice}", name=name)

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self._reason} {self._advice}")

    def __getitem__(self, _: object) -> NoReturn:
        raise TypeError(f"{self._reason} {self._advice}")

    def __len__(self) -> NoReturn:
        raise TypeError(f"{self._reason} {self._advice}")

    def __repr__(self) -> str:
        return f"<{self._call}(...), not awaited>"

    @property
    def _reason(self) -> str:
        return f"{self._call}(...) was not awaited."

    @property
    def _advice(self) -> str:
        instead = f", or `{self._instead}(...)` in synchronous code" if self._instead else ""
        return f"Write `await {self._call}(...)`{instead}."


@dataclass(frozen=True)
class Submission(Generic[R_co]):
    """A task function (or a name), its options and its arguments: what `submit_many` takes a list of."""

    target: TaskFunction[..., R_co, Any, ...] | str
    kwargs: Mapping[str, Any]
    options: Options = NOTHING_SAID


class Submitter(Generic[P, R]):
    """Something that can be submitted with arguments."""

    task: TaskFunction[P, R, Any, ...]
    chosen: Options = NOTHING_SAID

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Submission[R]:
        """The arguments of one task, for `submit_many`."""
        return Submission(self.task, self.task.arguments.bind(args, kwargs), self.chosen)

    def s(self, *args: Any, **kwargs: Any) -> Signature[R]:
        """A part of a flow: the function with some of its arguments, which may be nodes of the flow."""
        return Signature(self.task, args, kwargs or NOTHING_GIVEN, self.chosen)

    @returns_awaited
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, TaskId[R]]:
        """Submit a task with these arguments and return its id."""
        item = self.bind(*args, **kwargs)
        return Awaited(_submit(item), f"{_name(item)}.submit", f"{_name(item)}.submit_sync")

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncTaskId[R]:
        """`submit` for synchronous code."""
        client = default_client.sync_client()
        task_id: SyncTaskId[R] = client.perform(client.calls.submit(self.bind(*args, **kwargs)))
        return task_id

    @overload
    def on(self, connection: SyncConnection, /) -> TransactionSubmitter[P, R]: ...
    @overload
    def on(self, connection: AsynchronousConnection, /) -> AsyncTransactionSubmitter[P, R]: ...
    def on(self, connection: Any, /) -> Any:
        """Submit on this connection, in its transaction: the task exists if and only if the transaction commits.

        ship.on(connection).submit(order=7)             # psycopg, SQLAlchemy, SQLModel, Django
        await ship.on(connection).submit(order=7)       # the asynchronous ones, and asyncpg
        """
        kind = AsyncTransactionSubmitter if default_client.is_async_connection(connection) else TransactionSubmitter
        return kind(self, connection)


@dataclass(frozen=True)
class WithOptions(Submitter[P, R]):
    """A task function with options, ready for its arguments."""

    task: TaskFunction[P, R, Any, ...]
    chosen: Options

    def options(self, **options: Unpack[SubmitOptions]) -> WithOptions[P, R]:
        """The same with these options besides; where both say something, these count."""
        return WithOptions(self.task, options_of(options).over(self.chosen))


@dataclass(frozen=True)
class TransactionSubmitter(Generic[P, R]):
    """A task function that is submitted in the transaction of a synchronous connection."""

    submitter: Submitter[P, R]
    connection: Any

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> SyncTaskId[R]:
        """Submit a task with these arguments and return its id. It exists once the transaction commits."""
        client = default_client.sync_client()
        item = self.submitter.bind(*args, **kwargs)
        task_id: SyncTaskId[R] = client.perform(client.calls.submit(item, connection=self.connection))
        return task_id


@dataclass(frozen=True)
class AsyncTransactionSubmitter(Generic[P, R]):
    """A task function that is submitted in the transaction of an asynchronous connection."""

    submitter: Submitter[P, R]
    connection: Any

    @returns_awaited
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, TaskId[R]]:
        """Submit a task with these arguments and return its id. It exists once the transaction commits."""
        item = self.submitter.bind(*args, **kwargs)
        call = f"{_name(item)}.on(connection).submit"
        return Awaited(_submit(item, connection=self.connection), call)


async def _submit(item: Submission[R], connection: Any = None) -> TaskId[R]:
    client = default_client.async_client()
    task_id: TaskId[R] = await client.perform(client.calls.submit(item, connection=connection))
    return task_id


def _name(item: Submission[Any]) -> str:
    target = item.target
    return target if isinstance(target, str) else target.function.__name__
