"""Flows as rows, for tests of the gates alone: no client and no worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb

from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.store import flows

ALL = {"kind": "all"}
SETTLED = {"kind": "settled"}


class Rows:
    """Inserts and moves the rows of flows on one connection in autocommit mode."""

    def __init__(self, db: psycopg.Connection) -> None:
        self.db = db

    def run(self, query: Query[Any]) -> Any:
        return execute(self.db, query, None)

    def flow(self, expected: int, name: str = "f") -> tuple[UUID, UUID]:
        """A flow of so many tasks; its id and its own gate."""
        flow = uuid4()
        self.db.execute("INSERT INTO flows (id, name) VALUES (%s, %s)", [flow, name])
        return flow, self.gate(flow, expected, SETTLED, kind="flow")

    def gate(
        self, flow: UUID, expected: int, policy: Mapping[str, Any] = ALL, *, kind: str = "join", sealed: bool = True
    ) -> UUID:
        gate = uuid4()
        self.db.execute(
            "INSERT INTO gates (id, flow, kind, policy, expected, sealed) VALUES (%s, %s, %s, %s, %s, %s)",
            [gate, flow, kind, Jsonb(dict(policy)), expected, sealed],
        )
        return gate

    def task(
        self, flow: UUID | None, node: str, *, waits_for: UUID | None = None, reports_to: Sequence[UUID] | None = None
    ) -> UUID:
        ((id_,),) = self.db.execute(
            "INSERT INTO tasks (name, flow, node, waits_for, reports_to) VALUES (%s, %s, %s, %s, %s) RETURNING id",
            [node, flow, node, waits_for, reports_to],
        ).fetchall()
        return UUID(str(id_))

    def hold(self, task: UUID, worker: str = "w") -> int:
        """Lease a task to a worker; the token."""
        ((token,),) = self.db.execute(
            "UPDATE tasks SET state = 'running', worker_id = %s, locked_until = now() + interval '1 h', "
            "lease_token = lease_token + 1, started_at = now() "
            "WHERE id = %s AND waits_for IS NULL RETURNING lease_token",
            [worker, task],
        ).fetchall()
        return int(token)

    def fold(self, *gates: UUID) -> None:
        """Fold these gates, or all, until nothing is left to look at."""
        wanted: list[str] | None = [str(g) for g in gates] or None
        while again := self.run(flows.fold(wanted)):
            wanted = again

    def state(self, task: UUID) -> str:
        """The state of a task, or `waiting` for one that waits at a gate."""
        ((state, waits),) = self.db.execute("SELECT state, waits_for FROM tasks WHERE id = %s", [task]).fetchall()
        return "waiting" if state == "pending" and waits else state

    def finished(self, flow: UUID) -> bool:
        ((finished,),) = self.db.execute("SELECT finished_at IS NOT NULL FROM flows WHERE id = %s", [flow]).fetchall()
        return bool(finished)

    def arrivals(self, gate: UUID | None = None) -> int:
        """Arrivals that are not counted, at a gate or at all of them."""
        query = "SELECT count(*) FROM arrivals WHERE %s::uuid IS NULL OR gate = %s"
        ((count,),) = self.db.execute(query, [gate, gate]).fetchall()
        return int(count)
