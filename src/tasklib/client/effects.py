"""The effects that a call yields.

A call is a generator: it yields an effect (`Query`, `OnConnection`, `InTransaction`, `Pause`, `RunCoroutine`,
`OnShards`, `Connect`), is sent
the answer or thrown the error, and returns its value. `Client` and `AsyncClient` carry the effects out.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from tasklib.config import Config
from tasklib.db.query import Query
from tasklib.store import submit
from tasklib.store.submit import NewTask

MOST_IN_JSON = 10_000
"""Tasks in one INSERT that repeats a COPY: PostgreSQL takes no JSON of any size."""


@dataclass(frozen=True, slots=True)
class OnConnection:
    """Run a query on the caller's connection, in the caller's transaction."""

    connection: Any
    query: Query[Any]


@dataclass(frozen=True, slots=True)
class InTransaction:
    """COPY tasks and run queries in one transaction; answers with the last query's value."""

    copied: Sequence[NewTask]
    queries: Sequence[Query[Any]]
    copy: str = submit.COPY
    """Which COPY: see `submit.copy_of`."""

    def again(self) -> InTransaction:
        """The same again, after a lost answer: it adds only the missing rows."""
        parts = [self.copied[i : i + MOST_IN_JSON] for i in range(0, len(self.copied), MOST_IN_JSON)]
        return InTransaction((), [*map(submit.submit, parts), *self.queries]) if parts else self


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RunCoroutine:
    """Run a coroutine that opens its own connections, and return its result."""

    work: Callable[[Config], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class OnShards:
    """Perform a whole call on each of these shards, at the same time; answers with the value or error of each."""

    calls: Mapping[int, Call[Any]]


@dataclass(frozen=True, slots=True)
class Connect:
    """Make sure that a connection is open. Nothing is sent on it."""


class HttpEffect:
    """Something that only a client of another kind does, such as a request over HTTP."""


T = TypeVar("T")
Effect: TypeAlias = Query[Any] | OnConnection | InTransaction | Pause | RunCoroutine | OnShards | Connect | HttpEffect
Call: TypeAlias = Generator[Effect, Any, T]


def once(query: Query[T]) -> Call[T]:
    """A call that is one query."""
    answer: T = yield query
    return answer
