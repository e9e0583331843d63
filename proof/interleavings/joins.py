"""A join in every order: its members arrive, fail, are released, claimed and replayed, and gates are folded meanwhile.

Each order begins with a flow of two members that run, a join that waits for both, and a task that waits for the join.
`FailedJoinTable` begins after one of the members has failed: its gate has failed too, and cancelled the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from proof.interleavings.flow_tables import FlowTable
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.store import claim, control, flows, settle
from tasklib.store.claim import Served
from tasklib.store.settle import Completion, Failure, Lease

HOLDER, OTHER = "w", "another"
FLOW, GATE, NEXT_GATE, END, ONE, TWO, JOIN, AFTER = (UUID(f"0199d3c5-2f0e-7c3a-8a03-00000000000{n}") for n in range(8))
_TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}


def _complete(task: UUID) -> Query[Any]:
    return settle.complete([Completion(Lease(str(task), 1), "{}")], HOLDER)


def _fail(task: UUID, *, retriable: bool) -> Query[Any]:
    return settle.fail([Failure(Lease(str(task), 1), "e", "error", 0.0, retriable=retriable)], HOLDER, 3)


OPERATIONS: dict[str, Callable[[], Query[Any]]] = {
    "one completes": lambda: _complete(ONE),
    "two completes": lambda: _complete(TWO),
    "one gives up": lambda: _fail(ONE, retriable=False),
    "one fails": lambda: _fail(ONE, retriable=True),
    "release one": lambda: settle.release([Lease(str(ONE), 1)], HOLDER),
    "claim": lambda: claim.claim(Served(["member", "join"]), 5, OTHER, **_TERMS),
    "fold": lambda: flows.fold([str(GATE), str(NEXT_GATE), str(END)]),
    "sweep": lambda: flows.fold(None),
    "cancel the flow": lambda: flows.cancel(FLOW, by="operator", owner=None),
    "cancel the join": lambda: control.cancel(JOIN, by="operator"),
    "cancel one": lambda: control.cancel(ONE, by="operator"),
    "replay the flow": lambda: flows.replay(FLOW, by="operator", owner=None),
    "replay one": lambda: control.replay(ONE, by="operator"),
    "replay the join": lambda: control.replay(JOIN, by="operator"),
}
PAIRS = [*itertools.combinations_with_replacement(OPERATIONS, 2)]
TRIPLES = [
    ("one completes", "two completes", "fold"),
    ("one gives up", "two completes", "fold"),
    ("one completes", "fold", "sweep"),
    ("one gives up", "fold", "replay one"),
    ("one gives up", "cancel the join", "fold"),
    ("one gives up", "cancel the flow", "sweep"),
    ("one completes", "replay one", "fold"),
    ("cancel one", "release one", "fold"),
    ("cancel the flow", "replay the flow", "sweep"),
    ("release one", "claim", "cancel the flow"),
]
FAILED_TRIPLES = [
    ("replay one", "fold", "two completes"),
    ("replay the flow", "sweep", "claim"),
    ("replay one", "replay the join", "fold"),
    ("replay the flow", "cancel the flow", "fold"),
    ("replay one", "cancel the join", "sweep"),
]

_UNFINISHED = "state IN ('pending', 'running', 'failed')"
_MEMBERS = f"SELECT FROM tasks WHERE '{GATE}' = ANY (reports_to)"
_INVARIANTS = {
    "an arrival is not counted": "SELECT FROM arrivals",
    "a gate counted other ends than there are": """
        SELECT FROM gates
        WHERE (completed, failed) <> (
            SELECT count(*) FILTER (WHERE state = 'completed'),
                   count(*) FILTER (WHERE state IN ('cancelled', 'dead_letter'))
            FROM tasks WHERE gates.id = ANY (reports_to))""",
    "a task was let through twice": "SELECT FROM releases GROUP BY task HAVING count(*) > 1",
    "the join was let through by a gate that is not open": f"""
        SELECT FROM tasks WHERE id = '{JOIN}' AND waits_for IS NULL
           AND EXISTS (SELECT FROM gates WHERE id = '{GATE}' AND opened_at IS NULL)""",
    "the join waits though all have completed": f"""
        SELECT FROM tasks WHERE id = '{JOIN}' AND waits_for IS NOT NULL AND state = 'pending'
           AND NOT EXISTS ({_MEMBERS} AND state <> 'completed')""",
    "the join waits for a member that will not complete": f"""
        SELECT FROM tasks WHERE id = '{JOIN}' AND waits_for IS NOT NULL AND state = 'pending'
           AND EXISTS ({_MEMBERS} AND state IN ('cancelled', 'dead_letter'))""",
    "the join was cancelled by its gate though no member has failed": f"""
        SELECT FROM tasks WHERE id = '{JOIN}' AND state = 'cancelled' AND cancel_requested_at IS NULL
           AND NOT EXISTS ({_MEMBERS} AND state IN ('cancelled', 'dead_letter'))""",
    "what follows the join waits though the join was cancelled": f"""
        SELECT FROM tasks AS following WHERE id = '{AFTER}' AND state = 'pending' AND waits_for IS NOT NULL
           AND EXISTS (SELECT FROM tasks WHERE id = '{JOIN}' AND state = 'cancelled')""",
    "a flow is finished and its tasks are not, or the other way round": f"""
        SELECT FROM flows WHERE (finished_at IS NULL) <> EXISTS (SELECT FROM tasks WHERE {_UNFINISHED})""",
    "a gate is decided and has tasks to move": """
        SELECT FROM gates WHERE NOT released AND (opened_at IS NOT NULL OR failed_at IS NOT NULL)""",
    "a task of a cancelled flow waits": """
        SELECT FROM flows JOIN tasks ON tasks.flow = flows.id AND tasks.state IN ('pending', 'failed')
        WHERE flows.cancel_requested_at IS NOT NULL""",
}


class JoinTable(FlowTable):
    """Orders of what happens to a join."""

    operations, invariants, locked = OPERATIONS, _INVARIANTS, ONE
    follow_ups: ClassVar = {
        "cancel the flow": partial(flows.cancel_tasks, FLOW, 100),
        "replay the flow": partial(flows.replay_tasks, FLOW, 100),
    }

    def begin(self) -> None:
        self.db.execute("INSERT INTO flows (id, name) VALUES (%s, 'f')", (FLOW,))
        self.db.execute(
            "INSERT INTO gates (id, flow, kind, policy, expected) VALUES "
            "(%(gate)s, %(flow)s, 'join', '{\"kind\": \"all\"}', 2), "
            "(%(next)s, %(flow)s, 'join', '{\"kind\": \"all\"}', 1), "
            "(%(end)s, %(flow)s, 'flow', '{\"kind\": \"settled\"}', 4)",
            {"gate": GATE, "next": NEXT_GATE, "end": END, "flow": FLOW},
        )
        for member in (ONE, TWO):
            self.db.execute(
                "INSERT INTO tasks (id, name, node, flow, state, worker_id, locked_until, lease_token, reports_to) "
                "VALUES (%s, 'member', 'member', %s, 'running', %s, now() + interval '1 h', 1, %s)",
                (member, FLOW, HOLDER, [GATE, END]),
            )
        for task, waits_for, reports_to in ((JOIN, GATE, [NEXT_GATE, END]), (AFTER, NEXT_GATE, [END])):
            self.db.execute(
                "INSERT INTO tasks (id, name, node, flow, waits_for, reports_to) "
                "VALUES (%s, 'join', 'join', %s, %s, %s)",
                (task, FLOW, waits_for, reports_to),
            )


class FailedJoinTable(JoinTable):
    """The same after a member has failed."""

    def begin(self) -> None:
        super().begin()
        execute(self.db, OPERATIONS["one gives up"](), None)
        self.fold()
