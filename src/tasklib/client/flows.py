"""Flows: submitted as a whole, shown, cancelled and replayed. One implementation for sync and async clients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from tasklib.client import blobs, submissions, validation
from tasklib.client.effects import Call, InTransaction, OnConnection
from tasklib.client.flow_graphs import FlowGraph, check_graph, graph_of
from tasklib.client.flow_plans import FlowPlan, planned
from tasklib.client.identity import OnBehalf
from tasklib.client.submissions import Defaults
from tasklib.db.query import Query
from tasklib.errors import FlowNotFound, InvalidOption
from tasklib.events import client_events
from tasklib.states import TaskState
from tasklib.store import control, flows
from tasklib.store.control import CancelCounts
from tasklib.store.flows import FIRST_MEMBER, FlowInfo, GateInfo, MemberPlace, NodeInfo
from tasklib.tasks.flow_runs import FlowRun, Submittable
from tasklib.tasks.flows import SPAWNED
from tasklib.tasks.ids import check_id
from tasklib.tasks.keyring import keyring_of
from tasklib.tasks.sealed_results import opened_value

PAGE = 1000
"""Tasks of a flow that one statement goes through to cancel or replay them."""
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
        waits = [(before, after) for gate in self.gates for after in gate.waiters for before in gate.nodes]
        names = dict.fromkeys(name for edge in waits for name in edge) | dict.fromkeys(n.name for n in self.nodes)
        return [*waits, *((name.removesuffix(SPAWNED), name) for name in names if name.endswith(SPAWNED))]


class FlowCalls(OnBehalf):
    """What a program does with flows."""

    defaults: Defaults
    id_type: type[Any]

    def submit_flow(self, flow: Submittable[Any], *, connection: Any = None) -> Call[FlowRun[Any]]:
        """Submit a flow: a `Flow`, a chain or a group. All of its tasks, or none."""
        plan = yield from self._submit_graph(graph_of(flow), None, connection)
        return plan.run()

    def submit_graph(self, graph: FlowGraph, flow_id: UUID | None = None) -> Call[tuple[FlowRun[Any], bool]]:
        """Submit a flow that came as data. With an id of its own, repeating it adds nothing: then it is not new."""
        if flow_id is not None:
            check_id(flow_id, "flow")
        check_graph(graph)
        try:
            plan = yield from self._submit_graph(graph, flow_id, None)
        except psycopg.errors.UniqueViolation as e:
            return (yield from self._known_flow(flow_id, graph, e)), False
        return plan.run(), True

    def _submit_graph(self, graph: FlowGraph, flow_id: UUID | None, connection: Any) -> Call[FlowPlan]:
        plan = planned(graph, self.defaults, self.id_type, self.identity.submitted_by, flow_id)
        if self.config.payload_store is not None:
            yield from blobs.offload(self.config, plan.tasks)
        with submissions.around(plan.tasks) if len(plan.tasks) else nullcontext():
            yield from self._store_flow(plan, connection, must_be_new=flow_id is not None)
        if client_events.routine:
            submissions.tell(plan.tasks, plan.tasks.ids, self.identity.actor)
        return plan

    def _known_flow(self, flow_id: UUID | None, graph: FlowGraph, cause: Exception) -> Call[FlowRun[Any]]:
        """The flow that has this id, if it is the caller's own and of the same nodes."""
        assert flow_id is not None, cause
        found: list[FlowInfo] = yield flows.infos(id_=flow_id, owner=self.identity.owner)
        ids: dict[str, list[UUID]] = yield flows.task_ids(flow_id)
        is_same = all(len(ids.get(n.name, ())) >= len(n.tasks) for n in graph.nodes.values())  # it may have grown
        if not found or found[0].name != graph.name or not is_same:
            raise InvalidOption(
                f"the id {flow_id} belongs to another flow. Make a new one: flow ids are UUIDs of version 7."
            ) from cause
        by_node: dict[str, list[Any]] = {name: [self.id_type(id_) for id_ in ids.get(name, [])] for name in graph.nodes}
        last = None if graph.last is None else by_node[graph.last][0]
        return FlowRun(flow_id, graph.name, by_node, last, graph.ends)

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
        place: MemberPlace | None = FIRST_MEMBER
        while place is not None:
            states, place = yield flows.cancel_tasks(id_, PAGE, place)
            asked += states.count("running")
            cancelled += len(states) - states.count("running")
        # Rows that another transaction had locked, such as a claim: one by one, so that each waits for one row only.
        rest: list[str] = yield flows.cancel_rest(id_)
        for task_id in rest:
            state: str | None = yield control.cancel(UUID(task_id), by=self.identity.actor)
            cancelled += state == TaskState.CANCELLED
            asked += state == TaskState.RUNNING
        yield from folded()
        return CancelCounts(cancelled, asked)

    def replay_flow(self, flow_id: UUID | str) -> Call[int]:
        """Let a flow go on where it failed or was cancelled; what has completed stays. How many tasks start afresh."""
        id_ = validation.as_id(flow_id)
        changed: bool = yield flows.replay(id_, by=self.identity.actor, owner=self.identity.owner)
        if not changed:
            yield from self.get_flow(id_)
            return 0
        count = 0
        place: MemberPlace | None = FIRST_MEMBER
        while place is not None:
            revived, place = yield flows.replay_tasks(id_, PAGE, place)
            count += len(revived)
        yield from folded()
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
        ring = keyring_of(self.config)
        return [(id_, opened_value(ring, value)) for id_, value in page]

    def _store_flow(self, plan: FlowPlan, connection: Any, *, must_be_new: bool) -> Call[None]:
        queries: Sequence[Query[Any]] = plan.statements()
        if must_be_new:  # else tasks might be added to the flow of another owner
            queries = [flows.new(plan.flow), *queries]
        if connection is not None:
            for query in queries:
                yield OnConnection(connection, query)
        elif len(queries) == 1:
            yield queries[0]
        else:
            yield InTransaction((), queries)


def folded() -> Call[None]:
    """Count what has arrived now, instead of waiting for the leader's sweep."""
    gates: list[str] | None = None
    for _ in range(MOST_FOLDS):
        gates = yield flows.fold(gates)
        if not gates:
            return
