"""Flows: submitting them, counting arrivals into gates, and reading what a join needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.columns import SEALED_OF, returned
from tasklib.db.fast_path import array, plain_array
from tasklib.db.query import Query, Rows, nothing
from tasklib.store.audit import Action, audited
from tasklib.store.fleet import Term
from tasklib.store.settle import Leased

MOST_ARRIVALS = 10_000
"""Arrivals that one fold counts."""
MOST_GATES = 100
"""Gates that one fold should take on. Ten times as many take sixty times as long."""
PAGE = 1000
"""Waiting tasks that one fold moves."""


class NewFlow(NamedTuple):
    """A flow that is ready to be inserted, with its gates."""

    id: UUID
    name: str
    gates: Sequence[NewGate]
    submitted_by: str | None = None
    parent: UUID | None = None
    """The durable task that waits for it."""
    first_task: UUID | None = None
    """None of its tasks has a lower id, spawned tasks included; None if that is not known."""

    @property
    def is_empty(self) -> bool:
        """It has no task whose end could finish it."""
        return any(gate.kind == "flow" and gate.is_open for gate in self.gates)


@dataclass(frozen=True, slots=True)
class NewGate:
    """A gate of a flow that is ready to be inserted."""

    id: UUID
    policy: dict[str, Any]
    nodes: Sequence[str]
    expected: int
    waiters: Sequence[str] = ()
    kind: str = "join"
    sealed: bool = True

    @property
    def is_open(self) -> bool:
        """A gate that waits for nothing opens at once."""
        return self.sealed and not self.expected


def submit(flow: NewFlow, tasks: str, *, with_gates: bool) -> Query[None]:
    """Insert a flow, its gates and tasks (a JSON array), all in one statement; or more tasks of the same flow."""
    parameters = {
        "id": str(flow.id),
        "name": flow.name,
        "submitted_by": flow.submitted_by,
        "parent": None if flow.parent is None else str(flow.parent),
        "first_task": None if flow.first_task is None else str(flow.first_task),
        "is_empty": "true" if flow.is_empty else "false",
        "gates": gates_as_json(flow.gates) if with_gates else "[]",
        "tasks": tasks,
    }
    return Query("flow_submit", parameters, nothing, repeatable=True, all_text=True)


def gates_as_json(gates: Sequence[NewGate]) -> str:
    """Gates as the statements take them."""
    return json.dumps(
        [
            {
                "id": str(g.id),
                "kind": g.kind,
                "policy": g.policy,
                "nodes": list(g.nodes),
                "waiters": list(g.waiters),
                "expected": g.expected,
                "sealed": g.sealed,
                "is_open": g.is_open,
            }
            for g in gates
        ]
    )


def new(flow: NewFlow) -> Query[None]:
    """Insert a flow whose id the caller made. A unique violation if the id is taken."""
    parameters = {
        "id": str(flow.id),
        "name": flow.name,
        "submitted_by": flow.submitted_by,
        "first_task": None if flow.first_task is None else str(flow.first_task),
        "is_empty": flow.is_empty,
    }
    return Query("flow_new", parameters, nothing)


def task_ids(flow: UUID) -> Query[dict[str, list[UUID]]]:
    """The ids of a flow's tasks by node, in the order of submission."""

    def read(rows: Rows) -> dict[str, list[UUID]]:
        found: dict[str, list[UUID]] = {}
        for node, id_ in rows:
            found.setdefault(node, []).append(UUID(id_))
        return found

    return Query("flow_task_ids", {"id": str(flow)}, read, repeatable=True)


class SpawnOutcome(NamedTuple):
    """What came of adding tasks to a running one."""

    added: int
    """How many were not there already."""
    is_cancelled: bool
    """True: none were added, because the task or its flow was cancelled."""


def spawn(lease: Leased, worker_id: str, tasks: str) -> Query[SpawnOutcome | None]:
    """Add tasks (a JSON array) to a running one; reads None if the attempt doesn't hold it any more."""
    parameters = {"id": lease.id, "token": lease.token, "worker": worker_id, "tasks": tasks}
    return Query(
        "spawn", parameters, lambda rows: SpawnOutcome(*rows[0]) if rows else None, prepare=True, repeatable=True
    )


def adopt(lease: Leased, worker_id: str, gate: UUID) -> Query[bool]:
    """Let a running task report to a gate of the flow that it waits for; False if it isn't ours any more."""
    parameters = {"id": lease.id, "token": lease.token, "worker": worker_id, "gate": str(gate)}
    return Query("adopt", parameters, bool)


class ChildrenLook(NamedTuple):
    """Whether the flow that a durable task waits for is finished; None: it is gone."""

    is_finished: bool | None
    seen: int | None
    """How many signals had been sent to the task by then."""


def children_look(task: str, flow: str) -> Query[ChildrenLook]:
    """How far the flow is that a durable task waits for."""
    return Query("children_look", {"id": task, "flow": flow}, lambda rows: ChildrenLook(*rows[0]), repeatable=True)


def parent_of(flow: UUID) -> Query[UUID | None]:
    """The durable task that waits for a flow; None if none does."""
    return Query(
        "flow_parent",
        {"flow": str(flow)},
        lambda rows: UUID(rows[0][0]) if rows and rows[0][0] else None,
        repeatable=True,
    )


class TaskEnd(NamedTuple):
    """How a task ended."""

    result: Any
    as_settled: Any
    """With its state and error."""


def results_of(ids: Sequence[str]) -> Query[dict[str, TaskEnd]]:
    """How these tasks ended, by id: what each says to those that wait only for results, and to the others."""

    def read(rows: Rows) -> dict[str, TaskEnd]:
        return {row[0]: TaskEnd(owned(row, returned(row[2])), owned(row, _ended(row))) for row in rows}

    return Query("flow_results", {"ids": plain_array(ids)}, read)


def node_results(
    flow: str, nodes: Sequence[str], settled: bool, after: str | None, limit: int
) -> Query[list[tuple[str, Any]]]:
    """What the tasks of these nodes returned, in the order of submission, each with its id.

    `settled`: of all that have ended, and how they did.
    """
    parameters = {"flow": flow, "nodes": array(nodes), "settled": settled, "after": after, "limit": limit}

    def read(rows: Rows) -> list[tuple[str, Any]]:
        return [(row[0], owned(row, _ended(row) if settled else returned(row[2]))) for row in rows]

    return Query("flow_node_results", parameters, read, prepare=True, repeatable=True)


def _ended(row: tuple[Any, ...]) -> dict[str, Any]:
    id_, state, result, error, _ = row
    return {"id": id_, "state": state, "result": returned(result), "error": error}


def owned(row: tuple[Any, ...], value: Any) -> Any:
    """A result of a sealed task says whose it is: it opens for that task alone."""
    return value if row[4] is None else {SEALED_OF: [row[0], row[4]], "value": value}


def fold(gates: Sequence[str] | None) -> Query[list[str]]:
    """Count arrivals, decide these gates, and move the tasks that wait there; reads the gates to look at again.

    None: the gates that have arrivals or tasks to move, up to a number.
    """
    parameters = {
        "gates": None if gates is None else plain_array(gates),
        "most": MOST_ARRIVALS,
        "most_gates": MOST_GATES,
        "page": PAGE,
    }
    return Query("fold", parameters, _again, prepare=True, repeatable=True)


def with_arrivals(gates: Sequence[str]) -> Query[list[str]]:
    """Those of these gates that have arrivals which are not counted yet."""
    return Query("gates_with_arrivals", {"gates": plain_array(gates)}, _first, prepare=True, repeatable=True)


def _again(rows: Rows) -> list[str]:
    return [gate for gate, _ in rows if gate is not None]


@dataclass(frozen=True, slots=True)
class FlowInfo:
    """A flow, and how far it is. `now` is the database's clock."""

    id: UUID
    name: str
    created_at: datetime
    cancel_requested_at: datetime | None
    finished_at: datetime | None
    submitted_by: str | None
    total: int
    completed: int
    failed: int
    """Tasks that ended as dead letters or were cancelled."""
    now: datetime

    @property
    def state(self) -> str:
        """`running`, `completed`, `cancelled`, or `failed` if a task did not complete."""
        if self.finished_at is None:
            return "running"
        return "cancelled" if self.cancel_requested_at else "failed" if self.failed else "completed"

    @property
    def eta_seconds(self) -> float | None:
        """How long the rest takes at the pace so far; None while nothing has ended, and after the end."""
        ended = self.completed + self.failed
        if self.finished_at is not None or not ended:
            return None
        return (self.now - self.created_at).total_seconds() / ended * (self.total - ended)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of a flow: one task, or a group of any size."""

    name: str
    task: str
    count: int
    states: Mapping[str, int]
    """How many of its tasks are in each state."""


@dataclass(frozen=True, slots=True)
class GateInfo:
    """What some nodes wait for."""

    id: str
    policy: Mapping[str, Any]
    nodes: Sequence[str]
    waiters: Sequence[str]
    expected: int
    sealed: bool
    completed: int
    failed: int
    opened_at: datetime | None
    failed_at: datetime | None
    culprit: str | None


def infos(
    *,
    id_: UUID | None = None,
    after: UUID | None = None,
    name: str | None = None,
    unfinished: bool = False,
    owner: str | None = None,
    limit: int = 100,
) -> Query[list[FlowInfo]]:
    """One page of flows, the newest first; or one of them."""
    parameters = {
        "id": None if id_ is None else str(id_),
        "after": None if after is None else str(after),
        "name": name,
        "unfinished": unfinished,
        "owner": owner,
        "limit": limit,
    }
    return Query("flow_list", parameters, _infos, prepare=False, repeatable=True)


def nodes_of(flow: UUID) -> Query[list[NodeInfo]]:
    """The nodes of a flow, in the order of submission."""
    return Query("flow_nodes", {"id": str(flow)}, lambda rows: [NodeInfo(*row) for row in rows], repeatable=True)


def gates_of(flow: UUID) -> Query[list[GateInfo]]:
    """The gates of a flow that nodes wait for."""
    return Query("flow_gates", {"id": str(flow)}, lambda rows: [GateInfo(*row) for row in rows], repeatable=True)


def cancel(flow: UUID, *, by: str, owner: str | None) -> Query[bool]:
    """Note that a flow is to stop; False if it is finished or unknown."""
    parameters = {"id": str(flow), "owner": owner}
    return audited("flow_cancel", parameters, bool, by=by, action=Action.CANCEL_FLOW, target=str(flow))


class MemberPlace(NamedTuple):
    """How far a pass through the tasks of a flow has come: see `members_after.sql`."""

    near: str = str(UUID(int=0))
    node: str = ""
    far: str = str(UUID(int=0))
    nameless: str = str(UUID(int=0))


FIRST_MEMBER = MemberPlace()


class ChangedPage(NamedTuple):
    """What became of one page of the tasks of a flow."""

    states: list[str]
    """Of those that were changed."""
    next: MemberPlace | None
    """Where the next page begins; None: this was the last one."""


def cancel_tasks(flow: UUID | str, limit: int, since: MemberPlace = FIRST_MEMBER) -> Query[ChangedPage]:
    """Go through one page of the tasks of a flow that was requested to stop, and cancel them; their states."""
    return _page("flow_cancel_tasks", flow, limit, since, message="cancel")


def to_cancel(limit: int) -> Query[list[str]]:
    """Flows that were requested to stop and have tasks that were not."""
    return Query("flows_to_cancel", {"limit": limit}, _first, repeatable=True)


def _page(name: str, flow: UUID | str, limit: int, since: MemberPlace, message: str) -> Query[ChangedPage]:
    def read(rows: Rows) -> ChangedPage:
        states = [state for state, kind, _, _, _ in rows if kind is None]
        ends = {kind: (node, id_) for _, kind, node, id_, _ in rows if kind is not None}
        if all(number < limit for _, kind, _, _, number in rows if kind is not None):
            return ChangedPage(states, None)
        _, near = ends.get("near", (None, since.near))
        node, far = ends.get("far", (since.node, since.far))
        _, nameless = ends.get("nameless", (None, since.nameless))
        return ChangedPage(states, MemberPlace(near, node, far, nameless))

    return Query(name, {"id": str(flow), "limit": limit, "message": message, **since._asdict()}, read)


def cancel_rest(flow: UUID) -> Query[list[str]]:
    """The ids of those that were left out because another transaction had locked them."""
    return Query("flow_cancel_rest", {"id": str(flow)}, _first, repeatable=True)


def replay(flow: UUID, *, by: str, owner: str | None) -> Query[bool]:
    """Note that a flow goes on; False if all its tasks have completed or it is unknown."""
    parameters = {"id": str(flow), "owner": owner}
    return audited("flow_replay", parameters, bool, by=by, action=Action.REPLAY_FLOW, target=str(flow))


def replay_tasks(flow: UUID, limit: int, since: MemberPlace = FIRST_MEMBER) -> Query[ChangedPage]:
    """Go through one page of the tasks of a flow, and let what failed start afresh; what their states were."""
    return _page("flow_replay_tasks", flow, limit, since, message="")


def forget(term: Term, age: float, limit: int) -> Query[tuple[int, int]]:
    """Delete flows that ended so long ago; how many tasks and flows are gone."""
    parameters = {**term.parameters(), "age": float(age), "limit": limit}
    return Query("forget_flows", parameters, lambda rows: (rows[0][0], rows[0][1]))


def _infos(rows: Rows) -> list[FlowInfo]:
    return [FlowInfo(UUID(row[0]), *row[1:]) for row in rows]


def _first(rows: Rows) -> list[str]:
    return [row[0] for row in rows]
