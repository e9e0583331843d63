"""Sessions that are stepped one statement at a time, and every order of their steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg

from proof.interleavings.operations import EXPIRE, OPERATIONS
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.errors import TaskLibError

Step = str | Query[Any]
"""The name of an operation, or a statement."""

PATIENCE = 120.0
_WAITS = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"


class Stuck(Exception):
    """A session neither returned nor waits for a lock, or all of them wait for each other."""


class Session:
    """One connection that does one operation: a step executes it, the next commits."""

    def __init__(self, url: str, watcher: psycopg.Connection, name: str = "") -> None:
        self._connection = psycopg.connect(url, application_name=name)
        self._watcher = watcher
        self._pid = self._connection.info.backend_pid
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[Any] | None = None
        self.answer: Any = None
        self.error: psycopg.Error | TaskLibError | None = None

    def begin(self) -> None:
        self.answer, self.error = None, None

    def execute(self, operation: Step, task: UUID) -> None:
        self._under_way = self._thread.submit(self._do, operation, task)
        self.settle()

    def commit(self) -> None:
        """Commit, once the statement has returned."""
        assert self._under_way is not None
        self._under_way.result(PATIENCE)
        self._connection.commit()

    def settle(self) -> bool:
        """Wait until the statement has returned or waits for a lock; True if it has returned."""
        assert self._under_way is not None
        deadline = time.monotonic() + PATIENCE
        while not self._under_way.done():
            waits = self._watcher.execute(_WAITS, (self._pid,)).fetchone()
            if waits == (True,) and not self._under_way.done():
                return False
            if time.monotonic() > deadline:
                raise Stuck(f"session {self._pid} doesn't return")
        self._under_way.result()
        return True

    def _do(self, operation: Step, task: UUID) -> None:
        try:
            if operation == "expire":
                self.answer = self._connection.execute(EXPIRE, (task,)).rowcount
            else:
                query = OPERATIONS[operation].query(task) if isinstance(operation, str) else operation
                self.answer = execute(self._connection, query, None)
        except (psycopg.Error, TaskLibError) as e:
            self.error = e
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()
        self._thread.shutdown()


def orders(sessions: int) -> Iterator[tuple[int, ...]]:
    """Every order of two steps per session; sessions are told apart."""

    def rest(left: tuple[int, ...], done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not any(left):
            yield done
        for session, steps in enumerate(left):
            if steps:
                yield from rest((*left[:session], steps - 1, *left[session + 1 :]), (*done, session))

    return rest((2,) * sessions, ())


def play(sessions: Sequence[Session], operations: Sequence[Step], order: Sequence[int], task: UUID) -> None:
    """Take the steps in this order. Who waits for a lock is skipped, and takes its steps once it is let through."""
    begun: set[int] = set()
    owed: list[int] = []
    """Sessions that should have committed, and wait."""
    for session in sessions:
        session.begin()

    def let_through() -> None:
        progress = True
        while progress and owed:
            progress = False
            for number in list(owed):
                if sessions[number].settle():
                    owed.remove(number)
                    sessions[number].commit()
                    progress = True

    for number in order:
        if number not in begun:
            begun.add(number)
            sessions[number].execute(operations[number], task)
        elif sessions[number].settle():
            sessions[number].commit()
        else:
            owed.append(number)
        let_through()
    deadline = time.monotonic() + PATIENCE
    while owed:
        let_through()
        if time.monotonic() > deadline:
            raise Stuck(f"{[operations[n] for n in owed]} wait for each other")
