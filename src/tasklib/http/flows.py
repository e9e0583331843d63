"""Flows over HTTP: checked here, submitted as one request."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from tasklib.client import validation
from tasklib.client.cursors import cursor
from tasklib.client.effects import Call
from tasklib.client.flow_graphs import FlowGraph, GraphNode, graph_of
from tasklib.client.flows import FlowDetails
from tasklib.client.submissions import Submitted
from tasklib.errors import InvalidOption
from tasklib.events import client_events
from tasklib.http import responses
from tasklib.http.requests import API, Request, get, query_of
from tasklib.http.schedules import HttpScheduleCalls
from tasklib.http.submitting import TaskToSend, around, tell
from tasklib.http.transport import checked
from tasklib.store.control import CancelCounts
from tasklib.store.flows import FlowInfo
from tasklib.tasks.flow_runs import FlowRun, Submittable, SyncFlowRun
from tasklib.tasks.ids import new_id
from tasklib.tasks.task_id import SyncTaskId


class HttpFlowCalls(HttpScheduleCalls):
    """What a program does with flows."""

    def submit_flow(self, flow: Submittable[Any], *, connection: Any = None) -> Call[FlowRun[Any]]:
        if connection is not None:
            raise InvalidOption("a flow over HTTP can't be part of a transaction: leave connection= out.")
        graph = graph_of(flow)
        nodes = {node.name: _tasks(node) for node in graph.nodes.values()}
        every = [task for tasks in nodes.values() for task in tasks]
        # The id is made here, so that a request whose answer was lost can be sent again.
        body = _body(new_id(), graph, nodes)
        with around(every) as trace:
            request = Request("POST", f"{API}/flows", (), body, repeatable=True, trace=trace)
            found = yield from self._ask(request)
        by_node = {name: [self.id_type(id_) for id_ in found["tasks"][name]] for name in graph.nodes}
        if client_events.routine:
            ids = [id_ for ids in by_node.values() for id_ in ids]
            tell(every, [Submitted(id_, True) for id_ in ids], self.identity.actor, trace)
        kind = SyncFlowRun if issubclass(self.id_type, SyncTaskId) else FlowRun
        last = None if graph.last is None else by_node[graph.last][0]
        return kind(UUID(found["flow_id"]), graph.name, by_node, last, graph.ends)

    def flows(
        self, *, after: UUID | str | None = None, name: str | None = None, unfinished: bool = False, limit: int = 100
    ) -> Call[list[FlowInfo]]:
        checked(super().flows(after=after, name=name, unfinished=unfinished, limit=limit))
        start = None if after is None else cursor("flows", str(validation.as_id(after)))
        query = query_of(name=name, unfinished=unfinished)
        return (yield from self._pages("/flows", "flows", query, start, limit, responses.flow_of))

    def get_flow(self, flow_id: UUID | str) -> Call[FlowDetails]:
        id_ = validation.as_id(flow_id)
        return responses.flow_details_of((yield from self._ask(get(f"/flows/{id_}", flow_id=id_))))

    def cancel_flow(self, flow_id: UUID | str) -> Call[CancelCounts]:
        id_ = validation.as_id(flow_id)
        request = Request("POST", f"{API}/flows/{id_}/cancel", repeatable=True, about={"flow_id": id_})
        found = yield from self._ask(request)
        return CancelCounts(found["cancelled"], found["asked"])

    def replay_flow(self, flow_id: UUID | str) -> Call[int]:
        id_ = validation.as_id(flow_id)
        found = yield from self._ask(Request("POST", f"{API}/flows/{id_}/replay", about={"flow_id": id_}))
        return int(found["count"])


def _tasks(node: GraphNode) -> list[TaskToSend]:
    tasks = []
    for task in node.tasks:
        options = task.options if isinstance(task.target, str) else task.options.over(task.target.defaults)
        if not isinstance(task.target, str) and task.target.sealing is not None:
            raise InvalidOption(f"{task.name} is sealed, and can't be part of a flow over HTTP. Submit it by itself.")
        tasks.append(TaskToSend(None, task.name, task.kwargs, options))
    return tasks


def _body(flow_id: UUID, graph: FlowGraph, tasks: dict[str, list[TaskToSend]]) -> str:
    nodes = ",".join(_node(node, tasks[node.name]) for node in graph.nodes.values())
    return f'{{"flow_id":"{flow_id}","name":{json.dumps(graph.name)},"nodes":[{nodes}]}}'


def _node(node: GraphNode, tasks: list[TaskToSend]) -> str:
    said: dict[str, Any] = {"name": node.name, "after": list(node.parents), "optional": list(node.optional)}
    said |= {"when": node.policy.when, "at_least": node.policy.at_least}
    texts = []
    for task, sent in zip(node.tasks, tasks, strict=True):
        results = {name: list(r.nodes) if r.is_list else r.nodes[0] for name, r in task.results.items()}
        pages = [name for name, r in task.results.items() if r.pages]
        texts.append(f'{sent.as_json()[:-1]},"results":{json.dumps(results)},"pages":{json.dumps(pages)}}}')
    what = f'"tasks":[{",".join(texts)}]' if node.is_group else f'"task":{texts[0]}'
    return f"{json.dumps(said)[:-1]},{what}}}"
