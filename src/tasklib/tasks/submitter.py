"""The typed ways to submit a task function: as it is, with options, and inside a transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeAlias, overload

from typing_extensions import TypeVar, Unpack

from tasklib.tasks.awaited import Awaited, returns_awaited
from tasklib.tasks.default_client import default_async_client, default_client, is_async_connection
from tasklib.tasks.options import NOTHING_SAID, Options, SubmitOptions, options_of
from tasklib.tasks.task_id import SyncTaskId, TaskId

if TYPE_CHECKING:
    import psycopg
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    from tasklib.tasks.function import TaskFunction

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True, default=Any)


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


@dataclass(frozen=True)
class Submission(Generic[R_co]):
    """A task function (or a name), its options and its arguments: what `submit_many` takes a list of."""

    target: TaskFunction[..., R_co, Any, ...] | str
    kwargs: Mapping[str, Any]
    options: Options = NOTHING_SAID


class Submitter(ABC, Generic[P, R]):
    """Something that can be submitted with arguments."""

    @abstractmethod
    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Submission[R]:
        """The arguments of one task, for `submit_many`."""

    @returns_awaited
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, TaskId[R]]:
        """Submit a task with these arguments and return its id."""
        item = self.bind(*args, **kwargs)
        return Awaited(_submit(item), f"{_name(item)}.submit", f"{_name(item)}.submit_sync")

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncTaskId[R]:
        """`submit` for synchronous code."""
        client = default_client()
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
        kind = AsyncTransactionSubmitter if is_async_connection(connection) else TransactionSubmitter
        return kind(self, connection)


@dataclass(frozen=True)
class WithOptions(Submitter[P, R]):
    """A task function with options, ready for its arguments."""

    task: TaskFunction[P, R, Any, ...]
    chosen: Options

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Submission[R]:
        """The arguments of one task, for `submit_many`."""
        return Submission(self.task, self.task.arguments.bind(args, kwargs), self.chosen)

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
        client = default_client()
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
    client = default_async_client()
    task_id: TaskId[R] = await client.perform(client.calls.submit(item, connection=connection))
    return task_id


def _name(item: Submission[Any]) -> str:
    target = item.target
    return target if isinstance(target, str) else target.function.__name__
