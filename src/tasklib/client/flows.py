"""Flows: submitted as a whole, shown, cancelled and replayed. Calls without a colour."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tasklib import tracing
from tasklib.client import submissions, validation
from tasklib.client.effects import Call, InTransaction, OnConnection
from tasklib.client.flow_plans import FlowPlan, planned
from tasklib.client.identity import OnBehalf
from tasklib.client.submissions import Defaults
from tasklib.db.query import Query
from tasklib.errors import FlowNotFound, InvalidOption
from tasklib.events import client_events
from tasklib.store import flows
from tasklib.store.control import CancelCounts
from tasklib.store.flows import FlowInfo, GateInfo, NodeInfo
from tasklib.tasks.flows import FlowRun, Submittable

MOST_IN_STATEMENT = 50_000
"""Tasks of a flow in one INSERT: PostgreSQL takes no JSON of any size."""


PAGE = 1000
"""Tasks that one statement cancels or replays."""
MOST_FOLDS = 1000


@dataclass(frozen=True, slots=True)
class FlowDetails:
    """A flow as `get_flow` shows it."""

    info: FlowInfo
    nodes: list[NodeInfo]
    gates: list[GateInfo]

    @property
    def edges(self) -> list[tuple[str, str]]:
        """Which node waits for which: (before, after)."""
        return [(before, after) for gate in self.gates for after in gate.waiters for before in gate.nodes]


class FlowCalls(OnBehalf):
    """What a program does with flows."""

    defaults: Defaults
    id_type: type[Any]

    def submit_flow(self, flow: Submittable[Any], *, connection: Any = None) -> Call[FlowRun[Any]]:
        """Submit a flow: a `Flow`, a chain or a group. All of its tasks, or none."""
        if not isinstance(flow, Submittable):
            raise InvalidOption(f"submit_flow takes a Flow, chain(...) or group(...), not {flow!r}.")
        plan = planned(flow.as_flow(), self.defaults, self.id_type, self.identity.submitted_by)
        span = submissions.span_of(plan.tasks) if tracing.API in sys.modules and len(plan.tasks) else None
        if span is None:
            yield from self._store_flow(plan, connection)
        else:
            with span:
                plan.tasks.carry(span.carried)
                yield from self._store_flow(plan, connection)
        if client_events.routine:
            submissions.tell(plan.tasks, plan.tasks.ids, self.identity.actor)
        return plan.run()

    def flows(
        self, *, after: UUID | str | None = None, name: str | None = None, unfinished: bool = False, limit: int = 100
    ) -> Call[list[FlowInfo]]:
        """One page of flows, the newest first, each with how many of its tasks have ended."""
        validation.check_limit(limit, validation.MAX_PAGE)
        start = None if after is None else validation.as_id(after)
        owner = self.identity.owner
        page: list[FlowInfo] = yield flows.infos(
            after=start, name=name, unfinished=unfinished, owner=owner, limit=limit
        )
        return page

    def get_flow(self, flow_id: UUID | str) -> Call[FlowDetails]:
        """A flow with its nodes and gates. FlowNotFound."""
        id_ = validation.as_id(flow_id)
        found: list[FlowInfo] = yield flows.infos(id_=id_, owner=self.identity.owner)
        if not found:
            raise FlowNotFound(id_)
        nodes: list[NodeInfo] = yield flows.nodes_of(id_)
        gates: list[GateInfo] = yield flows.gates_of(id_)
        return FlowDetails(found[0], nodes, gates)

    def cancel_flow(self, flow_id: UUID | str) -> Call[CancelCounts]:
        """Cancel all tasks of a flow that have not ended; those that run are requested to stop."""
        id_ = validation.as_id(flow_id)
        changed: bool = yield flows.cancel(id_, by=self.identity.actor, owner=self.identity.owner)
        if not changed:
            yield from self.get_flow(id_)
            return CancelCounts()
        cancelled = asked = 0
        while True:
            states: list[str] = yield flows.cancel_tasks(id_, PAGE)
            asked += states.count("running")
            cancelled += len(states) - states.count("running")
            if len(states) < PAGE:
                break
        yield from _folded()
        return CancelCounts(cancelled, asked)

    def replay_flow(self, flow_id: UUID | str) -> Call[int]:
        """Let a flow go on where it failed or was cancelled; what has completed stays. How many tasks start afresh."""
        id_ = validation.as_id(flow_id)
        changed: bool = yield flows.replay(id_, by=self.identity.actor, owner=self.identity.owner)
        if not changed:
            yield from self.get_flow(id_)
            return 0
        count = 0
        while True:
            revived: list[str] = yield flows.replay_tasks(id_, PAGE)
            count += len(revived)
            if len(revived) < PAGE:
                break
        yield from _folded()
        return count

    def node_results(
        self,
        flow: UUID | str,
        nodes: Sequence[str],
        settled: bool = False,
        *,
        after: str | None = None,
        limit: int = 1000,
    ) -> Call[list[tuple[str, Any]]]:
        """One page of the results of these nodes, in the order of submission, each with its task's id."""
        page: list[tuple[str, Any]] = yield flows.node_results(str(flow), nodes, settled, after, limit)
        return page

    def _store_flow(self, plan: FlowPlan, connection: Any) -> Call[None]:
        queries = _statements(plan)
        if connection is not None:
            for query in queries:
                yield OnConnection(connection, query)
        elif len(queries) == 1:
            yield queries[0]
        else:
            yield InTransaction((), queries)


def _folded() -> Call[None]:
    """Count what has arrived now, instead of waiting for the leader's sweep."""
    gates: list[str] | None = None
    for _ in range(MOST_FOLDS):
        gates = yield flows.fold(gates)
        if not gates:
            return


def _statements(plan: FlowPlan) -> list[Query[Any]]:
    """The first one inserts flow, gates and tasks: so a flow of usual size is all or none on any connection."""
    count = len(plan.tasks)
    starts: Iterable[int] = range(0, max(count, 1), MOST_IN_STATEMENT)
    return [
        flows.submit(plan.flow, plan.rows(start, min(start + MOST_IN_STATEMENT, count)), with_gates=start == 0)
        for start in starts
    ]
