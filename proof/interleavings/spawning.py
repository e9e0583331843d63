"""Spawning in every order: new tasks against the end of their parent, counting at gates, and a cancel of the flow.

Each order begins with a flow whose first task runs and has spawned one task, which runs too. A join waits for both, and
for whatever else is spawned.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from proof.interleavings.flow_tables import FlowTable
from tasklib.db.query import Query
from tasklib.store import claim, control, flows, settle
from tasklib.store.claim import Served
from tasklib.store.flows import NewFlow
from tasklib.store.settle import Completion, Failure, Lease
from tasklib.tasks.ids import spawned_id

HOLDER, OTHER = "w", "another"
FLOW, GATE, END, PARENT, JOIN = (UUID(f"0199d3c5-2f0e-7c3a-8a01-00000000000{n}") for n in range(1, 6))
CHILD = spawned_id(PARENT, 0)
_TERMS = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}


def _row(key: int, **more: Any) -> dict[str, Any]:
    """A task as the statement takes it."""
    return {
        "id": str(spawned_id(PARENT, key)),
        "name": "child",
        "queue": "default",
        "kwargs": {},
        "max_retries": 3,
        "priority": 0,
        "tags": {},
        "required_capabilities": [],
        **more,
    }


def _spawn(*keys: int) -> Query[Any]:
    return flows.spawn(Lease(str(PARENT), 1), HOLDER, json.dumps([_row(key) for key in keys]))


def _uncounted() -> Query[Any]:
    """A task added by a statement that neither counts it nor locks anything."""
    place = {"args": {}, "flow": str(FLOW), "node": "p:spawned", "reports_to": [str(GATE), str(END)]}
    return flows.submit(NewFlow(FLOW, "f", []), json.dumps([_row(9, **place)]), with_gates=False)


OPERATIONS: dict[str, Callable[[], Query[Any]]] = {
    "spawn": lambda: _spawn(1, 2),
    "spawn others": lambda: _spawn(2, 3),
    "complete": lambda: settle.complete([Completion(Lease(str(PARENT), 1), "{}")], HOLDER),
    "give up": lambda: settle.fail([Failure(Lease(str(PARENT), 1), "e", "error", 0.0, retriable=False)], HOLDER, 3),
    "complete the child": lambda: settle.complete([Completion(Lease(str(CHILD), 1), "{}")], HOLDER),
    "fold": lambda: flows.fold([str(GATE), str(END)]),
    "sweep": lambda: flows.fold(None),
    "cancel the flow": lambda: flows.cancel(FLOW, by="somebody", owner=None),
    "cancel the parent": lambda: control.cancel(PARENT, by="somebody"),
    "release": lambda: settle.release([Lease(str(PARENT), 1)], HOLDER),
    "claim": lambda: claim.claim(Served(["p", "child"]), 5, OTHER, **_TERMS),
    "add uncounted": _uncounted,
}
_RIGHT = [operation for operation in OPERATIONS if operation != "add uncounted"]
PAIRS = [*itertools.combinations_with_replacement(_RIGHT, 2)]
TRIPLES = [
    ("spawn", "complete", "fold"),
    ("spawn", "complete", "complete the child"),
    ("spawn", "spawn others", "complete"),
    ("spawn", "fold", "sweep"),
    ("spawn", "cancel the flow", "complete"),
    ("spawn", "cancel the flow", "claim"),
    ("spawn", "release", "claim"),
    ("complete", "complete the child", "fold"),
]

_UNFINISHED = "state IN ('pending', 'running', 'failed')"
_INVARIANTS = {
    "a gate expects other tasks than there are": """
        SELECT FROM gates WHERE expected <> (SELECT count(*) FROM tasks WHERE gates.id = ANY (reports_to))""",
    "a gate counted other ends than there are": """
        SELECT FROM gates WHERE completed + failed <> (
            SELECT count(*) FROM tasks WHERE gates.id = ANY (reports_to)
               AND state IN ('completed', 'cancelled', 'dead_letter'))""",
    "the join opened before all that it waits for had ended": f"""
        SELECT FROM tasks AS joining WHERE node = 'join' AND waits_for IS NULL
           AND EXISTS (SELECT FROM tasks WHERE {_UNFINISHED} AND '{GATE}' = ANY (reports_to))""",
    "the join waits though all have completed": f"""
        SELECT FROM tasks AS joining WHERE node = 'join' AND waits_for IS NOT NULL AND state = 'pending'
           AND NOT EXISTS (SELECT FROM tasks WHERE state <> 'completed' AND '{GATE}' = ANY (reports_to))""",
    "a task was spawned into a cancelled flow and waits": """
        SELECT FROM flows JOIN tasks ON tasks.flow = flows.id AND tasks.name = 'child' AND tasks.state = 'pending'
        WHERE flows.cancel_requested_at IS NOT NULL""",
}


class SpawnTable(FlowTable):
    """Orders of a task that spawns others."""

    operations, invariants, locked = OPERATIONS, _INVARIANTS, PARENT
    follow_ups: ClassVar = {"cancel the flow": partial(flows.cancel_tasks, FLOW, 100)}

    def begin(self) -> None:
        self.db.execute("INSERT INTO flows (id, name) VALUES (%s, 'f')", (FLOW,))
        self.db.execute(
            "INSERT INTO gates (id, flow, kind, policy, nodes, expected) VALUES "
            "(%s, %s, 'join', '{\"kind\": \"all\"}', '{p,p:spawned}', 2), "
            "(%s, %s, 'flow', '{\"kind\": \"settled\"}', '{}', 3)",
            (GATE, FLOW, END, FLOW),
        )
        self.db.execute(
            "INSERT INTO tasks (id, name, node, flow, state, worker_id, locked_until, lease_token, reports_to) VALUES "
            "(%s, 'p', 'p', %s, 'running', %s, now() + interval '1 h', 1, %s), "
            "(%s, 'child', 'p:spawned', %s, 'running', %s, now() + interval '1 h', 1, %s)",
            (PARENT, FLOW, HOLDER, [GATE, END], CHILD, FLOW, HOLDER, [GATE, END]),
        )
        self.db.execute(
            "INSERT INTO tasks (id, name, node, flow, waits_for, reports_to) VALUES (%s, 'join', 'join', %s, %s, %s)",
            (JOIN, FLOW, GATE, [END]),
        )
