"""Orders of statements on the rows of one flow: what all groups of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeAlias
from uuid import UUID

import psycopg

from proof.interleavings.stepping import Session, orders, play
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.store import flows

Pages: TypeAlias = Callable[[flows.MemberPlace], Query[flows.ChangedPage]]
"""The query for one page of the tasks of a flow."""


def _go_through(db: psycopg.Connection, pages: Pages) -> None:
    place: flows.MemberPlace | None = flows.FIRST_MEMBER
    while place is not None:
        place = execute(db, pages(place), None).next


class _GoingOn:
    """Having committed, a caller goes through the tasks of the flow, page by page."""

    def __init__(self, session: Session, db: psycopg.Connection, pages: Pages) -> None:
        self._session, self._db, self._pages = session, db, pages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def commit(self) -> None:
        self._session.commit()
        _go_through(self._db, self._pages)


class FlowTable:
    """One database on which orders are played, each on the flow that `begin` makes."""

    operations: ClassVar[Mapping[str, Callable[[], Query[Any]]]]
    invariants: ClassVar[Mapping[str, str]]
    """What is wrong if a query finds a row once all is counted."""
    follow_ups: ClassVar[Mapping[str, Pages]] = {}
    """What a caller does after the commit of an operation."""
    locked: ClassVar[UUID]

    def __init__(self, db: psycopg.Connection, sessions: list[Session]) -> None:
        self.db, self._sessions = db, sessions

    def begin(self) -> None:
        """Insert the flow."""
        raise NotImplementedError

    def play_all(self, operations: tuple[str, ...]) -> Iterator[str]:
        """Every order of these; what is wrong with any of them."""
        for order in orders(len(operations)):
            for wrong in self._play(operations, order):
                yield f"{' | '.join(operations)} in {order}: {wrong}"

    def _play(self, operations: tuple[str, ...], order: tuple[int, ...]) -> Iterator[str]:
        for table in ("tasks", "flows", "gates", "arrivals", "releases"):
            self.db.execute(f"DELETE FROM {table}".encode())
        self.begin()
        plain = self._sessions[: len(operations)]
        sessions: list[Any] = [
            _GoingOn(session, self.db, self.follow_ups[operation]) if operation in self.follow_ups else session
            for operation, session in zip(operations, plain, strict=True)
        ]
        play(sessions, [self.operations[operation]() for operation in operations], order, self.locked)
        for operation, session in zip(operations, plain, strict=True):
            if session.error is not None:
                yield f"{operation} failed: {session.error}"
        self.sweep()
        for wrong, query in self.invariants.items():
            if self.db.execute(query.encode()).fetchall():
                yield wrong

    def sweep(self) -> None:
        """What the leader does: rows that were locked when their flow was cancelled are cancelled now."""
        self.fold()
        for flow in execute(self.db, flows.to_cancel(100), None):
            _go_through(self.db, partial(flows.cancel_tasks, flow, 100))
        self.fold()

    def fold(self) -> None:
        """Count, until nothing is left to look at."""
        gates: list[str] | None = None
        while (found := execute(self.db, flows.fold(gates), None)) or gates:
            gates = found or None
