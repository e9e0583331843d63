"""Durable tasks in every order: signals and ends of children against suspensions, steps against other attempts.

Each order begins with a task that a worker runs. Its function has looked for the signal `go` and for the end of a flow,
found neither, and is about to suspend.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from proof.interleavings.stepping import Session, orders, play
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.steps import StepId, StepKind
from tasklib.store import claim, control, durable, flows, settle
from tasklib.store.claim import Served
from tasklib.store.durable import NewStep, Suspension
from tasklib.store.settle import Completion, Lease

NAME, HOLDER, OTHER = "order", "w", "another"
FLOW, END, PARENT_GATE, CHILD = (UUID(f"0199d3c5-2f0e-7c3a-8a02-00000000000{n}") for n in range(1, 5))
_CHARGE = StepId(StepKind.STEP, "charge")
_LATER = datetime(2100, 1, 1, tzinfo=UTC)
_TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}


def _lease(task: UUID) -> Lease:
    return Lease(str(task), 1)


def _record(task: UUID, value: int) -> Query[Any]:
    return durable.record_steps([NewStep(_lease(task), _CHARGE, f'{{"value": {value}}}')], HOLDER)


def _suspend(task: UUID, *, until: datetime | None = None, seen: int | None = None) -> Query[Any]:
    return durable.suspend([Suspension(_lease(task), until, ["go"], seen)], HOLDER)


OPERATIONS: dict[str, Callable[[UUID], Query[Any]]] = {
    "suspend": _suspend,
    "suspend with a timeout": lambda task: _suspend(task, until=_LATER),
    "send": lambda task: durable.send_signal(task, "go", "1", key=None, sender="a"),
    "send with a key": lambda task: durable.send_signal(task, "go", "2", key="k", sender="b"),
    "consume": lambda task: durable.consume_signal(_lease(task), HOLDER, "go", step="go", expired=False),
    "record": lambda task: _record(task, 1),
    "record another": lambda task: _record(task, 2),
    "release": lambda task: settle.release([_lease(task)], HOLDER),
    "suspend for children": lambda task: durable.suspend([Suspension(_lease(task), None, [":children"], None)], HOLDER),
    "complete the child": lambda task: settle.complete([Completion(Lease(str(CHILD), 1), "{}")], HOLDER),
    "fold": lambda task: flows.fold([str(END)]),
    "cancel": lambda task: control.cancel(task, by="somebody"),
    "claim": lambda task: claim.claim(Served([NAME]), 1, OTHER, **_TERMS),
    # What a suspension would do that takes its number from the locked row: it has "seen" a signal that it has not.
    "suspend with a wrong number": lambda task: _suspend(task, seen=1),
}
_RIGHT = [operation for operation in OPERATIONS if operation != "suspend with a wrong number"]
PAIRS = [*itertools.combinations_with_replacement(_RIGHT, 2)]
TRIPLES = [
    ("suspend", "send", "claim"),
    ("suspend", "send", "send with a key"),
    ("suspend with a timeout", "send", "consume"),
    ("consume", "consume", "send"),
    ("record", "release", "claim"),
    ("record", "record another", "release"),
    ("suspend for children", "complete the child", "fold"),
    ("suspend for children", "fold", "cancel"),
]

_INVARIANTS = {
    "the children have ended, and the task waits for them": """
        SELECT FROM flows JOIN tasks ON tasks.id = flows.parent AND ':children' = ANY (awaited_signals)
        WHERE finished_at IS NOT NULL AND state = 'pending' AND scheduled_at > now()""",
    "a flow was not cancelled with its parent": """
        SELECT FROM flows JOIN tasks ON tasks.id = flows.parent AND tasks.state = 'cancelled'
        WHERE finished_at IS NULL AND flows.cancel_requested_at IS NULL""",
    "a signal waits, and so does the task that waits for it": """
        SELECT FROM tasks JOIN signals ON task = id AND signals.name = ANY (awaited_signals)
        WHERE consumed_at IS NULL AND state = 'pending' AND scheduled_at > now()""",
    "a signal was consumed without a step, or a step has none": """
        SELECT FROM (SELECT (SELECT count(*) FROM signals WHERE consumed_at IS NOT NULL) AS consumed,
                            (SELECT count(*) FROM steps WHERE kind = 'signal') AS recorded) AS counts
        WHERE consumed <> recorded""",
    "signals were not counted": """
        SELECT FROM tasks WHERE name = 'order' AND COALESCE(signals_sent, 0) <> (SELECT count(*) FROM signals)
            + (SELECT count(*) FROM flows WHERE parent = tasks.id AND finished_at IS NOT NULL)""",
    "a key was used twice": "SELECT FROM signals WHERE key = 'k' HAVING count(*) > 1",
}


class DurableTable:
    """One database on which orders are played, each on a task that runs."""

    def __init__(self, db: psycopg.Connection, sessions: list[Session]) -> None:
        self._db, self._sessions = db, sessions

    def play_all(self, operations: tuple[str, ...]) -> Iterator[str]:
        """Every order of these; what is wrong with any of them."""
        for order in orders(len(operations)):
            for wrong in self._play(operations, order):
                yield f"{' | '.join(operations)} in {order}: {wrong}"

    def _play(self, operations: tuple[str, ...], order: tuple[int, ...]) -> Iterator[str]:
        task = self._begin()
        sessions = self._sessions[: len(operations)]
        play(sessions, [OPERATIONS[operation](task) for operation in operations], order, task)
        for operation, session in zip(operations, sessions, strict=True):
            if session.error is not None:
                yield f"{operation} failed: {session.error}"
        self._fold()
        for wrong, query in _INVARIANTS.items():
            if self._db.execute(query.encode()).fetchall():
                yield wrong
        answers = [
            session.answer for operation, session in zip(operations, sessions, strict=True) if "record" in operation
        ]
        written = [answer[0] for answer in answers if answer]
        stored = self._db.execute("SELECT result::text FROM steps WHERE kind = 'step'").fetchall()
        if sum(each.is_new for each in written) != len(stored):
            yield f"{written} were reported, and {stored} is stored"
        if any((each.result,) not in stored for each in written if each.result is not None):
            yield f"{written} were reported, and {stored} counts"

    def _begin(self) -> UUID:
        self._db.execute("DELETE FROM tasks")
        row = self._db.execute(
            "INSERT INTO tasks (name, state, worker_id, locked_until, lease_token) "
            "VALUES (%s, 'running', %s, now() + interval '1 hour', 1) RETURNING id",
            (NAME, HOLDER),
        ).fetchone()
        assert row is not None
        task: UUID = row[0]
        self._begin_flow(task)
        return task

    def _begin_flow(self, task: UUID) -> None:
        """The flow that the task waits for, with one task that runs."""
        for table in ("flows", "gates", "arrivals"):
            self._db.execute(f"DELETE FROM {table}".encode())
        self._db.execute("INSERT INTO flows (id, name, parent) VALUES (%s, 'f', %s)", (FLOW, task))
        self._db.execute(
            "INSERT INTO gates (id, flow, kind, policy, expected) VALUES "
            "(%s, %s, 'flow', '{\"kind\": \"settled\"}', 1), (%s, %s, 'parent', '{\"kind\": \"all\"}', 1)",
            (END, FLOW, PARENT_GATE, FLOW),
        )
        self._db.execute("UPDATE tasks SET reports_to = %s WHERE id = %s", ([PARENT_GATE], task))
        self._db.execute(
            "INSERT INTO tasks (id, name, flow, node, state, worker_id, locked_until, lease_token, reports_to) "
            "VALUES (%s, 'child', %s, 'child', 'running', %s, now() + interval '1 h', 1, %s)",
            (CHILD, FLOW, HOLDER, [END]),
        )

    def _fold(self) -> None:
        gates: list[str] | None = None
        while (found := execute(self._db, flows.fold(gates), None)) or gates:
            gates = found or None
