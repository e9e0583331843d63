"""Orders of statements on the rows of one flow: what all groups of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar
from uuid import UUID

import psycopg

from proof.interleavings.stepping import Session, orders, play
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.store import flows


class _GoingOn:
    """Having committed, a caller goes on: page by page, until nothing is left."""

    def __init__(self, session: Session, db: psycopg.Connection, query: Callable[[], Query[Any]]) -> None:
        self._session, self._db, self._query = session, db, query

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def commit(self) -> None:
        self._session.commit()
        while execute(self._db, self._query(), None):
            pass


class FlowTable:
    """One database on which orders are played, each on the flow that `begin` makes."""

    operations: ClassVar[Mapping[str, Callable[[], Query[Any]]]]
    invariants: ClassVar[Mapping[str, str]]
    """What is wrong if a query finds a row once all is counted."""
    follow_ups: ClassVar[Mapping[str, Callable[[], Query[Any]]]] = {}
    """What a caller does after the commit of an operation, until it finds nothing."""
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
        while execute(self.db, flows.cancel_tasks(None, 100), None):
            self.fold()

    def fold(self) -> None:
        """Count, until nothing is left to look at."""
        gates: list[str] | None = None
        while (found := execute(self.db, flows.fold(gates), None)) or gates:
            gates = found or None
