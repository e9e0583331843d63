"""A session that speaks TaskLib's own statements, and what each costs its server and its caller."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import psycopg

from tasklib import Config
from tasklib.db.connect import TASKS, connect
from tasklib.db.database import execute
from tasklib.db.fast_path import exchange
from tasklib.db.query import Query
from tasklib.store import claim, settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.settle import Completion

T = TypeVar("T")
NAME = "simulation.work"
SERVED = Served([NAME])
RESULT = '{"value":null}'
TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}


class Took(NamedTuple):
    """What a statement took, in seconds."""

    server: float
    wall: float


class TimedSession:
    """One connection, as a worker opens it. Linux, with the server on this machine, to see its CPU time."""

    def __init__(self, config: Config, role: str = TASKS) -> None:
        self.connection: psycopg.Connection = connect(config, role=role)
        self._schema = config.schema
        self.pid = self.connection.info.backend_pid

    def run(self, query: Query[T]) -> T:
        if query.all_text:
            return self.connection.wait(exchange(self.connection, query, self._schema))
        return execute(self.connection, query, self._schema)

    def timed(self, query: Query[T]) -> tuple[T, Took]:
        before, begun = self.server_seconds(), time.perf_counter()
        answer = self.run(query)
        wall = time.perf_counter() - begun
        return answer, Took(self.server_seconds() - before, wall)

    def server_seconds(self) -> float:
        """CPU time of the process that serves this session."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9

    def close(self) -> None:
        self.connection.close()


@contextmanager
def sessions(config: Config, count: int = 1, role: str = TASKS) -> Iterator[list[TimedSession]]:
    opened: list[TimedSession] = []
    try:
        for _ in range(count):
            opened.append(TimedSession(config, role))
        yield opened
    finally:
        for session in opened:
            session.close()


def claiming(worker: str, limit: int) -> Query[list[Claimed]]:
    """The claim of a worker from the beginning."""
    return claim.claim(SERVED, limit, worker, **TERMS)


def completing(claimed: Sequence[Claimed], worker: str) -> Query[set[str]]:
    return settle.complete([Completion(c, RESULT) for c in sorted(claimed)], worker)
