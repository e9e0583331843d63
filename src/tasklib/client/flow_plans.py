"""From a graph to rows: the gates of a flow, what waits where and what reports to which."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tasklib.client.call_arguments import Target
from tasklib.client.flow_graphs import FlowGraph, GraphNode, GraphTask, Reference, check_unmerged
from tasklib.client.sealing import Sealer, refuse_unsealed
from tasklib.client.submissions import Defaults, NewTasks
from tasklib.db.query import Query
from tasklib.store import flows
from tasklib.store.flows import NewFlow, NewGate
from tasklib.store.submit import SubmitTerms
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_runs import FlowRun, SyncFlowRun
from tasklib.tasks.ids import Ids, new_id, start_of_millisecond
from tasklib.tasks.payload import limited
from tasklib.tasks.sealed_results import CLEAR, EITHER, with_sources
from tasklib.tasks.task_id import KnownId, SyncTaskId

ONE, SPAWNED = "one", "spawned"
MOST_IN_STATEMENT = 50_000
"""Tasks of a flow in one INSERT: PostgreSQL takes no JSON of any size."""


@dataclass(slots=True)
class _Gate:
    id: UUID
    policy: dict[str, Any]
    nodes: list[str]
    expected: int
    waiters: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FlowPlan:
    """A flow that is ready to be inserted."""

    flow: NewFlow
    tasks: NewTasks
    places: list[str] = field(default_factory=list)
    """Of each task, the rest of its row as JSON, without the braces."""
    by_node: dict[str, list[KnownId[Any]]] = field(default_factory=dict)
    last: KnownId[Any] | None = None
    ends: Sequence[str] = ()

    def rows(self, start: int, end: int) -> str:
        """Some of the tasks, as the statement takes them."""
        each = zip(self.tasks[start:end], self.places[start:end], strict=True)
        texts = [f'{{"id":"{t.id.hex}","kwargs":{t.kwargs},{t.terms.as_json},{place}}}' for t, place in each]
        return f"[{','.join(texts)}]"

    def statements(self) -> FlowStatements:
        """What inserts it."""
        return FlowStatements(self)

    def run(self) -> FlowRun[Any]:
        """What the submission returns."""
        kind = SyncFlowRun if issubclass(self.tasks.id_type, SyncTaskId) else FlowRun
        return kind(self.flow.id, self.flow.name, self.by_node, self.last, self.ends)


class FlowStatements(Sequence[Query[None]]):
    """The statements that insert a flow, each made when it is run: a flow may have a million tasks.

    The first one inserts flow, gates and tasks: so a flow of usual size is all or none on any connection.
    """

    def __init__(self, plan: FlowPlan) -> None:
        self._plan, self._starts = plan, range(0, max(len(plan.tasks), 1), MOST_IN_STATEMENT)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, at: Any) -> Any:
        return [*map(self._from, self._starts[at])] if isinstance(at, slice) else self._from(self._starts[at])

    def _from(self, start: int) -> Query[None]:
        end = min(start + self._starts.step, len(self._plan.tasks))
        return flows.submit(self._plan.flow, self._plan.rows(start, end), with_gates=start == 0)


def planned(
    graph: FlowGraph, defaults: Defaults, id_type: type[UUID], submitted_by: str | None, flow_id: UUID | None = None
) -> FlowPlan:
    """Lay a graph that was checked out as rows."""
    nodes = list(graph.nodes.values())
    total = sum(len(n.tasks) for n in nodes)
    shard = defaults.config.shard
    made_ids = Ids(total, id_type, shard)
    ids: list[Any] = made_ids.first(total)
    # After those of its tasks: the index of flows doesn't have tasks with lower ids than their flow.
    flow_id, end = flow_id or new_id(shard), NewGate(new_id(), {"kind": "settled"}, (), total, kind="flow")
    gates: dict[tuple[Any, ...], _Gate] = {}
    waits = {n.name: _gate_of(n, graph, gates) for n in nodes}
    reports: dict[str, list[str]] = {n.name: [] for n in nodes}
    for made in gates.values():
        for name in made.nodes:
            reports[name].append(str(made.id))
    by_node: dict[str, list[Any]] = {}
    taken = 0
    for n in nodes:
        by_node[n.name] = ids[taken : taken + len(n.tasks)]
        taken += len(n.tasks)
    texts: list[str] = []
    targets: list[Target] = []
    sealed = _sealed_nodes(nodes)
    terms: list[SubmitTerms] = []
    places: list[str] = []
    for n in nodes:
        gate = waits[n.name]
        place = {
            "flow": str(flow_id),
            "node": n.name,
            "waits_for": str(gate.id) if gate and gate.expected else None,
            "reports_to": [*reports[n.name], str(end.id)],
        }
        shared = json.dumps(place)[1:-1]
        alone = f'{shared},"args":{{}}'
        for task in n.tasks:
            limited(task.kwargs, defaults.config.max_payload_bytes, "the arguments")
            texts.append(_with_sources(task, sealed, by_node))
            targets.append(task.target)
            terms.append(defaults.terms(task.target, task.options))
            # Those of a large group have one and the same.
            places.append(f'{shared},"args":{_references(task.results, n, by_node)}' if task.results else alone)
    new = NewFlow(
        flow_id,
        graph.name,
        [*(NewGate(g.id, g.policy, g.nodes, g.expected, g.waiters) for g in gates.values()), end],
        submitted_by,
        None,
        start_of_millisecond(ids[0]) if ids else None,
    )
    tasks = NewTasks(texts, terms, id_type=id_type, made=made_ids)
    if any(defaults.may_seal(target) for target in targets):
        tasks.seal(targets, defaults)
    last = None if graph.last is None else by_node[graph.last][0]
    return FlowPlan(new, tasks, places, by_node, last, graph.ends)


def _sealed_nodes(nodes: Sequence[GraphNode]) -> dict[str, str]:
    """Nodes of which results are sealed: some, or that of their only task. Of what is spawned, any may be."""
    sealed: dict[str, str] = {}
    for node in nodes:
        each = [not isinstance(task.target, str) and task.target.sealing is not None for task in node.tasks]
        if any(each):
            sealed[node.name] = ONE if each == [True] else EITHER
        elif node.spawner is not None:
            sealed[node.name] = SPAWNED
    return sealed


def _with_sources(task: GraphTask, sealed: Mapping[str, str], by_node: Mapping[str, Sequence[UUID]]) -> str:
    """The arguments of a task, for a sealed one with where the others come from."""
    sealing = None if isinstance(task.target, str) else task.target.sealing
    sources: dict[str, str] = {}
    for name, reference in task.results.items():
        kinds = {sealed[node] for node in reference.nodes if node in sealed}
        if kinds - {SPAWNED} and (sealing is None or not sealing.is_sealed(name)):
            refuse_unsealed(task.name, name, next(node for node in reference.nodes if node in sealed))
        is_one = kinds == {ONE} and not reference.is_list
        sources[name] = str(by_node[reference.nodes[0]][0]) if is_one else EITHER if kinds else CLEAR
    return task.kwargs if sealing is None or not sources else with_sources(task.kwargs, sources)


def _gate_of(node: GraphNode, graph: FlowGraph, gates: dict[tuple[Any, ...], _Gate]) -> _Gate | None:
    """The gate that a node waits at: one for all that wait for the same nodes in the same way."""
    if not node.parents or node.spawner is not None:  # what is spawned comes later, and waits for nothing
        return None
    parents = graph.reporters(node)
    names, optional = [p.name for p in parents], sorted(node.optional)
    expected = sum(len(p.tasks) for p in parents)
    key = (tuple(names), tuple(optional), node.policy)
    if key not in gates:
        gates[key] = _Gate(new_id(), node.policy.stored(optional), names, expected)
    gates[key].waiters.append(node.name)
    return gates[key]


def spawned_rows(children: Sequence[tuple[UUID, Signature[Any]]], defaults: Defaults) -> str:
    """Tasks that a running one adds, as the statement takes them."""
    texts = []
    for id_, signature in children:
        task = GraphTask(signature.task, signature.task.arguments.to_json(signature.arguments()), signature.options)
        check_unmerged(task)
        limited(task.kwargs, defaults.config.max_payload_bytes, "the arguments")
        text, terms = task.kwargs, defaults.terms(task.target, task.options)
        if defaults.may_seal(task.target):
            text, terms = Sealer(defaults).sealed(task.target, id_, text, terms)
        texts.append(f'{{"id":"{id_.hex}","kwargs":{text},{terms.as_json}}}')
    return f"[{','.join(texts)}]"


def _references(results: Mapping[str, Reference], node: GraphNode, by_node: Mapping[str, list[Any]]) -> str:
    """Where the arguments that are not known yet come from, as the column `args` of a task holds it."""
    settled = node.policy.when == "settled"
    made: dict[str, dict[str, Any]] = {}
    for name, reference in results.items():
        if reference.is_list:
            made[name] = {"nodes": list(reference.nodes), "settled": settled, **_pages(reference)}
        else:
            made[name] = {"task": str(by_node[reference.nodes[0]][0]), "settled": settled}
    return json.dumps(made)


def _pages(reference: Reference) -> dict[str, bool]:
    return {"pages": True} if reference.pages else {}
