"""Claims behind limits, and blocks that enter one, in every order: against each other, ends of what runs, a throttled
attempt, a rescue, and an operator.

Each order begins with a limit of one place, which a running task holds; two tasks wait behind it, and two for a serial
key. Two places of a rate are left. Two plain tasks run, whose blocks `with limit(...)` ask for the one place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import psycopg

from proof.interleavings.operations import LEADER
from proof.interleavings.stepping import Session, orders, play
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.store import control, limits, maintenance, settle
from tasklib.store.claim import Served
from tasklib.store.limited_claim import Turn, claim_limited
from tasklib.store.limits import PlaceRequest
from tasklib.store.settle import Completion, Failure, Lease

HOLDER = "holder"
RUNNING = UUID("0199d3c5-2f0e-7c3a-8a01-000000000001")
BLOCKS = [UUID(f"0199d3c5-2f0e-7c3a-8a01-00000000000{n}") for n in (2, 3)]
_TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}
_ONE, _KEY, _RATE = "\x01lone\x02", "\x01kann", "\x01lrate\x02"


def _claim(worker: str) -> Query[Any]:
    return claim_limited(Served(["work"]), 10, worker, Turn(), **_TERMS)


def _enter(task: UUID) -> Query[Any]:
    return limits.take_place(Lease(str(task), 1), HOLDER, PlaceRequest("one", "", 1, block=1, nested=0))


OPERATIONS: dict[str, Callable[[], Query[Any]]] = {
    "claim": lambda: _claim("w1"),
    "claim as another": lambda: _claim("w2"),
    "complete": lambda: settle.complete([Completion(Lease(str(RUNNING), 1), "{}")], HOLDER),
    "fail": lambda: settle.fail([Failure(Lease(str(RUNNING), 1), "e", "error", 0.0)], HOLDER, 3),
    "throttled": lambda: settle.fail([Failure(Lease(str(RUNNING), 1), "e", "throttled", 1000.0)], HOLDER, 3),
    "enter": lambda: _enter(BLOCKS[0]),
    "enter as another": lambda: _enter(BLOCKS[1]),
    "release": lambda: settle.release([Lease(str(RUNNING), 1)], HOLDER),
    "cancel": lambda: control.cancel(RUNNING, by="somebody"),
    "rescue": lambda: maintenance.rescue(LEADER, 3, 10),
    "raise": lambda: limits.set_limit("one", {"max_running": 2}, by="somebody"),
    "lower": lambda: limits.set_limit("one", {"max_running": 0}, by="somebody"),
    "remove": lambda: limits.remove_limit("one", by="somebody"),
}
PAIRS = [*itertools.combinations_with_replacement(OPERATIONS, 2)]
TRIPLES = [("claim", "claim as another", other) for other in OPERATIONS if not other.startswith("claim")]
_RUNNING = """
    SELECT lane, count(*) FROM tasks WHERE state = 'running' AND lane IN (%s, %s, %s) GROUP BY 1
"""


class LimitTable:
    """One database on which orders are played, each on tasks of its own."""

    def __init__(self, db: psycopg.Connection, sessions: list[Session]) -> None:
        self._db, self._sessions = db, sessions

    def play_all(self, operations: tuple[str, ...]) -> Iterator[str]:
        """Every order of these; what is wrong with any of them."""
        for order in orders(len(operations)):
            for wrong in self._play(operations, order):
                yield f"{' | '.join(operations)} in {order}: {wrong}"

    def _play(self, operations: tuple[str, ...], order: tuple[int, ...]) -> Iterator[str]:
        self._begin()
        sessions = self._sessions[: len(operations)]
        play(sessions, [OPERATIONS[operation]() for operation in operations], order, uuid4())
        for operation, session in zip(operations, sessions, strict=True):
            if session.error is not None:
                yield f"{operation} failed: {session.error}"
        most = 5 if "remove" in operations else 2 if "raise" in operations else 1
        yield from self._judge(most)
        # When all is over, a claim takes what is left: no place is lost, and none is taken twice.
        before = self._taken()
        execute(self._db, claim_limited(Served(["work"]), 10, "w3", Turn(), **_TERMS), None)
        allowed = self._value("SELECT max_running FROM limits WHERE name = 'one'")
        yield from self._judge(most if allowed is None else max(before, allowed))
        is_blocked = self._value("SELECT true FROM limit_states WHERE limit_name = 'one' AND blocked_until > now()")
        if not is_blocked and not self._value("SELECT max_running = 0 FROM limits WHERE name = 'one'"):
            waiting = self._value(
                f"SELECT count(*) FROM tasks WHERE lane = '{_ONE}' AND state IN ('pending', 'failed')"
            )
            if waiting and self._taken() < 1:
                yield f"{waiting} tasks wait, and the place is taken by nothing"

    def _judge(self, most: int) -> Iterator[str]:
        running = dict(self._db.execute(_RUNNING, (_ONE, _KEY, _RATE)).fetchall())
        if (taken := self._taken()) > most:
            yield f"{taken} tasks run behind a limit of {most}"
        if running.get(_KEY, 0) > 1:
            yield f"{running[_KEY]} tasks of a serial key run"
        first = f"SELECT state FROM tasks WHERE lane = '{_KEY}' ORDER BY scheduled_at, id LIMIT 1"
        if running.get(_KEY, 0) == 1 and self._value(first) != "running":
            yield "the second task of a serial key runs before the first"
        if running.get(_RATE, 0) > 2:
            yield f"{running[_RATE]} tasks began with two tokens"

    def _taken(self) -> int:
        """How many places are taken, by tasks behind the limit and by blocks."""
        found: int = self._value(
            f"SELECT (SELECT count(*) FROM tasks WHERE lane = '{_ONE}' AND state = 'running')"
            " + (SELECT count(*) FROM places JOIN tasks ON id = task"
            " WHERE block > 0 AND state = 'running' AND lease_token = token)"
        )
        return found

    def _begin(self) -> None:
        for table in ("tasks", "places", "limit_states", "limits", "pauses"):
            self._db.execute(f"DELETE FROM {table}".encode())
        self._db.execute("INSERT INTO limits (name, max_running) VALUES ('one', 1)")
        self._db.execute("INSERT INTO limits (name, rate, per, burst) VALUES ('rate', 1, 1000, 2)")
        self._db.execute("INSERT INTO limits (name, serial) VALUES ('serial:default', 'hold')")
        self._db.execute(
            "INSERT INTO tasks (id, name, lane, state, worker_id, locked_until, lease_token, started_at) "
            "VALUES (%s, 'work', %s, 'running', %s, now() - interval '1 s', 1, now() - interval '1 min')",
            (RUNNING, _ONE, HOLDER),
        )
        self._db.execute("INSERT INTO places (task, limit_name, key, token) VALUES (%s, 'one', '', 1)", (RUNNING,))
        for block in BLOCKS:
            self._db.execute(
                "INSERT INTO tasks (id, name, state, worker_id, locked_until, lease_token, started_at) "
                "VALUES (%s, 'plain', 'running', %s, now() + interval '1 hour', 1, now())",
                (block, HOLDER),
            )
        for lane, number in ((_ONE, 2), (_KEY, 2), (_RATE, 3)):
            for _ in range(number):
                self._db.execute("INSERT INTO tasks (name, lane) VALUES ('work', %s)", (lane,))

    def _value(self, query: str) -> Any:
        row = self._db.execute(query.encode()).fetchone()
        return row and row[0]
