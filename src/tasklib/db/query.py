"""A `Query`: which statement, with which parameters, and how its rows are read. Pure data; runners execute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Query(Generic[T]):
    """One statement from `tasklib.sql`, ready to run on any connection, synchronous or asynchronous."""

    name: str
    parameters: Mapping[str, Any]
    read: Callable[[Rows], T]
    prepare: bool | None = None
    """True: worth a prepared statement at once. False: plan for these very values each time."""
    repeatable: bool = False
    """True if running it twice does no more than running it once: it is tried again when the connection is lost."""
    all_text: bool = False
    """True if each parameter may travel as text (texts, numbers, arrays of texts): then it needs no cursor."""
    types: tuple[int, ...] = ()
    """With `all_text`: the types that the columns are read as, by their oids; (): as what they are."""
    if_locked: Query[T] | None = None
    """What a `ReconnectingConnection` runs instead when another transaction keeps this one waiting for a row."""


class Runs(Protocol):
    """Whatever runs queries on a connection of its own that comes back: one db, or several."""

    async def run(self, query: Query[T], /) -> T:
        """DatabaseUnavailable means that the connection broke: the statement may or may not have taken effect."""
        ...


def nothing(_: Rows) -> None:
    """Read no rows."""
