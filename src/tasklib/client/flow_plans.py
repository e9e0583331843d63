"""From a graph to rows: the gates of a flow, what waits where and what reports to which. Checked before it is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin
from uuid import UUID

from tasklib.client.submissions import Defaults, NewTasks
from tasklib.errors import InvalidOption, TaskExecutionError
from tasklib.store.flows import NewFlow, NewGate
from tasklib.store.submit import SubmitTerms
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_results import SettledTask, is_pages
from tasklib.tasks.flows import ALL, Flow, FlowRun, Node, Policy, SyncFlowRun, nodes_of
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.ids import Ids, new_id
from tasklib.tasks.payload import limited
from tasklib.tasks.task_id import KnownId, SyncTaskId

MOST_IN_LIST = 10_000
"""Results that a join gets as a list. Beyond, its parameter has to be declared as `Results[...]`."""
_SCALARS = (str, int, float, bool, list, dict)


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

    def rows(self, start: int, end: int) -> str:
        """Some of the tasks, as the statement takes them."""
        each = zip(self.tasks[start:end], self.places[start:end], strict=True)
        texts = [f'{{"id":"{t.id.hex}","kwargs":{t.kwargs},{t.terms.as_json},{place}}}' for t, place in each]
        return f"[{','.join(texts)}]"

    def run(self) -> FlowRun[Any]:
        """What the submission returns."""
        kind = SyncFlowRun if issubclass(self.tasks.id_type, SyncTaskId) else FlowRun
        return kind(self.flow.id, self.flow.name, self.by_node, self.last)


def planned(flow: Flow[Any], defaults: Defaults, id_type: type[UUID], submitted_by: str | None) -> FlowPlan:
    """Check the whole graph and lay it out as rows."""
    nodes = list(flow.nodes.values())
    total = sum(len(n.members) for n in nodes)
    if not nodes:
        raise InvalidOption(f"the flow {flow.name} has no tasks: add some before it is submitted.")
    flow_id, end = new_id(), NewGate(new_id(), {"kind": "settled"}, (), total, kind="flow")
    gates: dict[tuple[Any, ...], _Gate] = {}
    waits = {n.name: _gate_of(n, gates) for n in nodes}
    reports: dict[str, list[str]] = {n.name: [] for n in nodes}
    for made in gates.values():
        for name in made.nodes:
            reports[name].append(str(made.id))
    made_ids = Ids(total, id_type)
    ids: list[Any] = made_ids.first(total)
    by_node: dict[str, list[Any]] = {}
    for n in nodes:
        taken = sum(map(len, by_node.values()))
        by_node[n.name] = ids[taken : taken + len(n.members)]
    texts: list[str] = []
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
        for signature, arguments in n.members:
            text, references = _row(signature, arguments, n, by_node, defaults)
            texts.append(text)
            terms.append(defaults.terms(signature.task, signature.options))
            places.append(f'{shared},"args":{references}')
    new = NewFlow(
        flow_id,
        flow.name,
        [*(NewGate(g.id, g.policy, g.nodes, g.expected, g.waiters) for g in gates.values()), end],
        submitted_by,
    )
    tasks = NewTasks(texts, terms, id_type=id_type, made=made_ids)
    return FlowPlan(new, tasks, places, by_node, _last(nodes, by_node))


def _last(nodes: Sequence[Node[Any]], by_node: dict[str, list[Any]]) -> Any:
    """The task whose result is the result of the flow: the only one that no other waits for."""
    waited_for = {p.name for n in nodes for p in n.parents}
    ends = [n for n in nodes if n.name not in waited_for]
    return by_node[ends[0].name][0] if len(ends) == 1 and not ends[0].is_group else None


def _gate_of(node: Node[Any], gates: dict[tuple[Any, ...], _Gate]) -> _Gate | None:
    """The gate that a node waits at: one for all that wait for the same nodes in the same way."""
    if not node.parents:
        if node.policy != ALL:
            raise InvalidOption(f"{node.name} waits for nothing, so when= and at_least= mean nothing.")
        return None
    parents = sorted({p.name: p for each in node.parents for p in _with_tasks(each)}.values(), key=lambda p: p.name)
    names, optional = [p.name for p in parents], sorted(p.name for p in node.optional)
    expected = sum(len(p.members) for p in parents)
    _check_at_least(node, node.policy, expected)
    if optional and node.policy != ALL:
        raise InvalidOption(f'{node.name}: optional= goes with when="all" only.')
    key = (tuple(names), tuple(optional), node.policy)
    if key not in gates:
        gates[key] = _Gate(new_id(), node.policy.stored(optional), names, expected)
    gates[key].waiters.append(node.name)
    return gates[key]


def _with_tasks(node: Node[Any]) -> Iterator[Node[Any]]:
    """The node itself; of an empty group, what the group would wait for."""
    if node.members:
        yield node
    else:
        for parent in node.parents:
            yield from _with_tasks(parent)


def _check_at_least(node: Node[Any], policy: Policy, expected: int) -> None:
    n = policy.at_least
    needed = 0 if n is None else math.ceil(n * expected) if isinstance(n, float) else n
    if needed > expected or (n is not None and not expected):
        raise InvalidOption(f"{node.name} waits for at least {n}, and there are only {expected} tasks it waits for.")


def _row(
    signature: Signature[Any],
    arguments: dict[str, Any],
    node: Node[Any],
    by_node: dict[str, list[Any]],
    defaults: Defaults,
) -> tuple[str, str]:
    """The arguments of a task as JSON: those that are known, and where the others come from."""
    task = signature.task
    later = {name: value for name, value in arguments.items() if nodes_of(value)}
    for name in later:
        if name not in task.arguments.parameters:
            raise TaskExecutionError(f"{name} is not a parameter of {task.name}.", task=task.name, field=name)
    references = {name: _reference(name, value, node, task, by_node) for name, value in later.items()}
    plain = {name: value for name, value in arguments.items() if name not in later}
    text = task.arguments.without(frozenset(later)).to_json(plain)
    limited(text, defaults.config.max_payload_bytes, "the arguments")
    return text, json.dumps(references) if references else "{}"


def _reference(
    name: str, value: Any, node: Node[Any], task: TaskFunction[..., Any, Any, ...], by_node: dict[str, list[Any]]
) -> dict[str, Any]:
    hint = task.arguments.hints.get(name, Any)
    settled = node.policy.when == "settled"
    sources = nodes_of(value)
    if isinstance(value, Node) and not value.is_group:
        if not settled:
            _check_type(_result_type(value), hint, name, value, task)
        return {"task": str(by_node[value.name][0]), "settled": settled}
    count = sum(len(by_node[s.name]) for s in sources)
    kind = {"nodes": [s.name for s in sources], "settled": settled}
    if is_pages(hint):
        return {**kind, "pages": True}
    if count > MOST_IN_LIST:
        raise InvalidOption(
            f"{task.name} would get {count} results as a list, and {MOST_IN_LIST} is the most. Declare its parameter "
            f"{name} as Results[...]: that reads them page by page."
        )
    if hint is not Any and (get_origin(hint) or hint) not in (list, object):
        raise InvalidOption(f"{task.name} gets a list of results in {name}, declared as {hint}: use list[...].")
    (item,) = get_args(hint) or (Any,)
    if settled and item is not Any and (get_origin(item) or item) is not SettledTask:
        raise InvalidOption(
            f'{task.name} waits with when="settled": its parameter {name} gets results and errors. '
            f"Declare it as list[SettledTask[...]], not {hint}."
        )
    if not settled:
        for source in sources:
            _check_type(_result_type(source), item, name, source, task)
    return kind


def _result_type(node: Node[Any]) -> Any:
    return node.members[0][0].task.results.declared if node.members else Any


def _check_type(result: Any, hint: Any, name: str, source: Node[Any], task: TaskFunction[..., Any, Any, ...]) -> None:
    """Refuse what can't fit, such as a str for an int. What might is left to the run, which checks the value."""
    given, wanted = get_origin(result) or result, get_origin(hint) or hint
    if given not in _SCALARS or wanted not in _SCALARS or given is wanted:
        return
    if (given, wanted) in ((int, float), (bool, int), (bool, float)):
        return
    raise InvalidOption(
        f"{task.name} takes {name} as {wanted.__name__}, and {source.name} returns {given.__name__}: "
        "change one of the two type hints, or convert in between."
    )
