"""Flows as the API takes and answers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, model_validator

from tasklib.client.flow_graphs import FlowGraph, GraphNode, GraphTask, Reference, named_task
from tasklib.client.flows import FlowDetails
from tasklib.errors import InvalidOption
from tasklib.server.models import example
from tasklib.server.request_models import Body, Name, TaskBody
from tasklib.store.flows import FlowInfo, GateInfo, NodeInfo
from tasklib.tasks.flow_runs import FlowRun
from tasklib.tasks.flows import Policy
from tasklib.tasks.options import options_of

_ID = "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f"
_GATE = "0196f2a0-7a3c-7d42-8000-3f2b8c1d4e5f"
_MOMENT = "2026-05-21T08:30:00Z"
_INFO = {
    "flow_id": _ID,
    "name": "import",
    "state": "running",
    "total": 102,
    "completed": 40,
    "failed": 0,
    "created_at": _MOMENT,
    "cancel_requested_at": None,
    "finished_at": None,
    "submitted_by": None,
    "eta_seconds": 93.0,
    "read_at": _MOMENT,
}
MOST_NODES = 10_000


class FlowTaskBody(TaskBody):
    """A task of a flow."""

    results: dict[Name, Name | Annotated[list[Name], Field(min_length=1, max_length=MOST_NODES)]] = Field(
        default_factory=dict,
        description="Arguments that are results: by parameter the name of a node that comes before. Of a node with one "
        "task it is its result, of a group or of a list of nodes the list of results.",
    )
    pages: list[Name] = Field(
        default_factory=list, description="Parameters among `results` that the function declares as `Results[...]`."
    )

    def as_task(self, before: Mapping[str, GraphNode], trace: Mapping[str, str] | None) -> GraphTask:
        results: dict[str, Reference] = {}
        for parameter, source in self.results.items():
            if parameter in self.parameters:
                raise InvalidOption(f"{self.task_type}: {parameter} is both in parameters and in results.")
            nodes = (source,) if isinstance(source, str) else tuple(source)
            if unknown := next((name for name in nodes if name not in before), None):
                raise InvalidOption(
                    f"{self.task_type}: {parameter} is the result of {unknown}, which is no node before."
                )
            is_list = not isinstance(source, str) or before[source].is_group
            results[parameter] = Reference(nodes, is_list, is_list and parameter in self.pages)
        if stray := next((name for name in self.pages if name not in results), None):
            raise InvalidOption(f"{self.task_type}: {stray} is in pages, but not in results.")
        return named_task(self.task_type, self.parameters, options_of(self.options(trace)), results)


class FlowNodeBody(Body):
    """A node: `task`, or `tasks` for a group. It waits for nodes in `results` of its tasks, `after` and `optional`."""

    name: Name
    task: FlowTaskBody | None = None
    tasks: list[FlowTaskBody] | None = None
    after: list[Name] = Field(default_factory=list, max_length=MOST_NODES, description="Nodes that come before.")
    optional: list[Name] = Field(default_factory=list, max_length=MOST_NODES, description="Nodes that may fail.")
    when: Literal["all", "settled"] = Field(
        "all",
        description="`all` have completed, or all have ended: `settled`. Then its `results` have states and errors.",
    )
    at_least: StrictInt | StrictFloat | None = Field(
        None, description="It runs when this many have completed: a number of tasks, or a share such as 0.95."
    )

    @model_validator(mode="after")
    def _task_or_tasks(self) -> Self:
        if (self.task is None) == (self.tasks is None):
            raise ValueError("give either task or tasks, and only one of them")
        return self

    def as_node(self, before: Mapping[str, GraphNode], trace: Mapping[str, str] | None) -> GraphNode:
        if self.name in before:
            raise InvalidOption(f"two nodes of the flow are called {self.name}.")
        tasks = [each.as_task(before, trace) for each in (self.tasks if self.task is None else [self.task]) or ()]
        used = [node for each in tasks for reference in each.results.values() for node in reference.nodes]
        parents = list(dict.fromkeys([*used, *self.after, *self.optional]))
        policy = Policy(self.when, self.at_least)
        return GraphNode(self.name, tasks, parents, self.optional, policy, is_group=self.task is None)


class FlowBody(Body):
    """A flow to submit: all of its tasks or none. A node comes after the nodes that it waits for."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "import",
                    "nodes": [
                        {"name": "fetch", "task": {"task_type": "fetch", "parameters": {"url": "/a"}}},
                        {
                            "name": "parse",
                            "tasks": [
                                {"task_type": "parse", "parameters": {"limit": 10}, "results": {"page": "fetch"}},
                                {"task_type": "parse", "parameters": {"limit": 20}, "results": {"page": "fetch"}},
                            ],
                        },
                        {"name": "report", "task": {"task_type": "report", "results": {"counts": "parse"}}},
                    ],
                }
            ]
        },
    )

    name: Name = "flow"
    nodes: list[FlowNodeBody] = Field(
        min_length=1, max_length=MOST_NODES, description="With as many tasks together as a batch may have (1,000)."
    )
    flow_id: UUID | None = Field(
        None, description="An id of your own, a UUID of version 7: with it a request that is repeated adds nothing."
    )

    @property
    def task_count(self) -> int:
        return sum(1 if node.tasks is None else len(node.tasks) for node in self.nodes)

    def as_graph(self, trace: Mapping[str, str] | None) -> FlowGraph:
        nodes: dict[str, GraphNode] = {}
        for each in self.nodes:
            nodes[each.name] = each.as_node(nodes, trace)
        return FlowGraph(self.name, nodes)


class SubmittedFlowAnswer(BaseModel):
    """A flow that is stored."""

    model_config = example({"flow_id": _ID, "name": "import", "is_new": True, "tasks": {"fetch": [_ID]}})

    flow_id: UUID
    name: str
    is_new: bool = Field(description="False: the flow with this id was there before.")
    tasks: dict[str, list[UUID]] = Field(description="The ids of its tasks, by node, in the order of the request.")


class FlowAnswer(BaseModel):
    """A flow, and how far it is."""

    model_config = example(_INFO)

    flow_id: UUID
    name: str
    state: str = Field(description="`running`, `completed`, `cancelled`, or `failed` if a task did not complete.")
    total: int
    completed: int
    failed: int = Field(description="Tasks that ended as dead letters or were cancelled.")
    created_at: datetime
    cancel_requested_at: datetime | None
    finished_at: datetime | None
    submitted_by: str | None = Field(description="The id of the token it was submitted with.")
    eta_seconds: float | None = Field(description="How long the rest takes at the pace so far.")
    read_at: datetime = Field(description="The database's time.")


class FlowsAnswer(BaseModel):
    """Flows, the newest first."""

    model_config = example({"flows": [_INFO], "next": None})

    flows: list[FlowAnswer]
    next: str | None = Field(description="Pass it as `cursor` for the next page; null on the last one.")


class FlowNodeAnswer(BaseModel):
    """A node: one task, or a group of any size."""

    name: str
    task_type: str
    count: int
    states: dict[str, int] = Field(description="How many of its tasks are in each state.")


class FlowGateAnswer(BaseModel):
    """What some nodes wait for."""

    gate_id: str
    policy: dict[str, Any]
    nodes: list[str] = Field(description="The nodes whose tasks report to it.")
    waiters: list[str] = Field(description="The nodes that wait for it.")
    expected: int
    sealed: bool = Field(description="False: tasks may still be added to its nodes.")
    completed: int
    failed: int
    opened_at: datetime | None
    failed_at: datetime | None
    culprit: UUID | None = Field(description="The task that it failed because of.")


class FlowDetailsAnswer(FlowAnswer):
    """A flow with its nodes, and the gates between them."""

    model_config = example(
        {
            **_INFO,
            "nodes": [{"name": "fetch", "task_type": "fetch", "count": 1, "states": {"completed": 1}}],
            "gates": [
                {
                    "gate_id": _GATE,
                    "policy": {"kind": "all"},
                    "nodes": ["fetch"],
                    "waiters": ["parse"],
                    "expected": 1,
                    "sealed": True,
                    "completed": 1,
                    "failed": 0,
                    "opened_at": _MOMENT,
                    "failed_at": None,
                    "culprit": None,
                }
            ],
        }
    )

    nodes: list[FlowNodeAnswer]
    gates: list[FlowGateAnswer]


class FlowGraphAnswer(BaseModel):
    """The graph of a flow as text."""

    model_config = example({"format": "mermaid", "text": 'flowchart LR\n    n0["fetch: completed"]'})

    format: Literal["mermaid", "dot"]
    text: str


class CancelledFlowAnswer(BaseModel):
    """What the cancel of a flow did."""

    model_config = example({"cancelled": 120, "asked": 3})

    cancelled: int = Field(description="Tasks that waited.")
    asked: int = Field(description="Tasks that run, and whose workers were asked to stop them.")


class ReplayedFlowAnswer(BaseModel):
    """What the replay of a flow did."""

    model_config = example({"count": 2})

    count: int = Field(description="Tasks that begin again. Tasks that wait for them follow without being counted.")


def submitted_answer(run: FlowRun[Any], is_new: bool) -> SubmittedFlowAnswer:
    tasks = {node: [UUID(int=id_.int) for id_ in ids] for node, ids in run.tasks.items()}
    return SubmittedFlowAnswer(flow_id=run.id, name=run.name, is_new=is_new, tasks=tasks)


def flow_answer(info: FlowInfo) -> FlowAnswer:
    return FlowAnswer(**_flow(info))


def details_answer(details: FlowDetails) -> FlowDetailsAnswer:
    return FlowDetailsAnswer(**_flow(details.info), nodes=_nodes(details.nodes), gates=_gates(details.gates))


def _flow(info: FlowInfo) -> dict[str, Any]:
    names = ("name", "state", "total", "completed", "failed", "created_at", "cancel_requested_at", "finished_at")
    others = {name: getattr(info, name) for name in (*names, "submitted_by", "eta_seconds")}
    return {"flow_id": info.id, "read_at": info.now, **others}


def _nodes(nodes: Sequence[NodeInfo]) -> list[FlowNodeAnswer]:
    return [FlowNodeAnswer(name=n.name, task_type=n.task, count=n.count, states=dict(n.states)) for n in nodes]


def _gates(gates: Sequence[GateInfo]) -> list[FlowGateAnswer]:
    names = ("policy", "expected", "sealed", "completed", "failed", "opened_at", "failed_at", "culprit")
    return [
        FlowGateAnswer(
            gate_id=g.id, nodes=list(g.nodes), waiters=list(g.waiters), **{name: getattr(g, name) for name in names}
        )
        for g in gates
    ]
