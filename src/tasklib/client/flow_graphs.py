"""A flow as data: its nodes with arguments as JSON, checked as a whole. It becomes rows, or a request over HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, get_args, get_origin

from tasklib.client.call_arguments import Target
from tasklib.errors import InvalidOption, TaskExecutionError
from tasklib.tasks import registry
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_results import SettledTask, is_pages
from tasklib.tasks.flow_runs import Submittable
from tasklib.tasks.flows import ALL, SPAWNED, Node, Policy, nodes_of
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import Options
from tasklib.tasks.payload import dump

MOST_IN_LIST = 10_000
"""Results that a join gets as a list. Beyond, its parameter has to be declared as `Results[...]`."""
_SCALARS = (str, int, float, bool, list, dict)
_MERGING = ("unique", "debounce", "throttle")
NO_RESULTS: Final[Mapping[str, Reference]] = {}
AnyFunction: TypeAlias = TaskFunction[..., Any, Any, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """An argument that is the result of other tasks: of one, or of all tasks of some nodes."""

    nodes: tuple[str, ...]
    is_list: bool = False
    pages: bool = False
    """True: the task reads them page by page, as `Results[...]`."""


@dataclass(frozen=True, slots=True)
class GraphTask:
    """A task of a flow. Of a function that only another program has, the name."""

    target: Target
    kwargs: str
    """The arguments that are known, as JSON."""
    options: Options
    results: Mapping[str, Reference] = field(default_factory=lambda: NO_RESULTS)

    @property
    def name(self) -> str:
        return self.target if isinstance(self.target, str) else self.target.name


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node: one task, or a group of any size. It waits for `parents`, of which those in `optional` may fail."""

    name: str
    tasks: Sequence[GraphTask]
    parents: Sequence[str] = ()
    optional: Sequence[str] = ()
    policy: Policy = ALL
    is_group: bool = False

    @property
    def spawner(self) -> str | None:
        """Of tasks that are spawned while the flow runs: the node that spawns them."""
        return self.name.removesuffix(SPAWNED) if self.name.endswith(SPAWNED) else None


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """A whole flow. A node comes after those that it waits for, so there are no cycles."""

    name: str
    nodes: Mapping[str, GraphNode]

    @property
    def ends(self) -> list[str]:
        """The nodes that no other waits for."""
        waited_for = {parent for node in self.nodes.values() for parent in node.parents}
        return [name for name in self.nodes if name not in waited_for]

    @property
    def last(self) -> str | None:
        """The node whose result is that of the flow: the only one that no other waits for, if it is one task."""
        ends = self.ends
        return ends[0] if len(ends) == 1 and not self.nodes[ends[0]].is_group else None

    def reporters(self, node: GraphNode) -> list[GraphNode]:
        """The nodes whose tasks it waits for: its parents; of an empty group, what the group would wait for.

        Of spawned tasks, also the task that spawns them: by its end it says that there will be no more of them.
        """
        found = {p.name: p for name in node.parents for p in self._with_tasks(name)}
        return [found[name] for name in sorted(found)]

    def _with_tasks(self, name: str) -> Iterator[GraphNode]:
        node = self.nodes[name]
        if node.tasks or node.spawner is not None:
            yield node
        if not node.tasks:
            for parent in node.parents:
                yield from self._with_tasks(parent)


def graph_of(part: Submittable[Any]) -> FlowGraph:
    """A flow, chain or group as data, its arguments and types checked, and that it can run at all."""
    if not isinstance(part, Submittable):
        raise InvalidOption(f"submit_flow takes a Flow, chain(...) or group(...), not {part!r}.")
    flow = part.as_flow()
    nodes = {
        node.name: GraphNode(
            node.name,
            [_task(signature, arguments, node) for signature, arguments in node.members],
            [p.name for p in node.parents],
            [p.name for p in node.optional],
            node.policy,
            node.is_group,
        )
        for node in flow.nodes.values()
    }
    graph = FlowGraph(flow.name, nodes)
    check_graph(graph)
    return graph


def named_task(
    name: str, arguments: Mapping[str, Any], options: Options, results: Mapping[str, Reference]
) -> GraphTask:
    """A task by the name of its function, with arguments that came as JSON. A function that is here checks them."""
    function = registry.functions.get(name)
    if function is None or options.payload_version not in (None, function.version):
        return GraphTask(name, dump(dict(arguments)), options, results)
    _check_known(function, results)
    known = function.arguments.without(frozenset(results))
    return GraphTask(function, known.to_json(known.from_json(json.dumps(arguments))), options, results)


def check_graph(graph: FlowGraph) -> None:
    """Refuse what can't be: a parent that does not come before, a list that is too long, merging."""
    if not graph.nodes:
        raise InvalidOption(f"the flow {graph.name} has no tasks: add some before it is submitted.")
    before: dict[str, GraphNode] = {}
    for node in graph.nodes.values():
        _check_node(node, before)
        reporters = graph.reporters(node)
        if node.policy.at_least is not None and any(p.spawner is not None for p in reporters):
            raise InvalidOption(
                f"{node.name} waits for spawned tasks, and how many these will be is not known before all are there: "
                'at_least= can\'t be used. Wait with when="settled", and count in the function.'
            )
        _check_at_least(node, sum(len(p.tasks) for p in reporters))
        before[node.name] = node


def _check_at_least(node: GraphNode, expected: int) -> None:
    n = node.policy.at_least
    needed = 0 if n is None else math.ceil(n * expected) if isinstance(n, float) else n
    if needed > expected or (n is not None and not expected):
        raise InvalidOption(f"{node.name} waits for at least {n} tasks, and there are only {expected} before it.")


def _check_node(node: GraphNode, before: Mapping[str, GraphNode]) -> None:
    if node.spawner is not None and (node.tasks or [*node.parents] != [node.spawner]):
        raise InvalidOption(
            f"the name {node.name} says that its tasks are spawned by {node.spawner}: such a node has no tasks of its "
            f"own, and comes after {node.spawner} alone."
        )
    for parent in node.parents:
        if parent not in before:
            raise InvalidOption(f"{node.name} waits for {parent}, which is not a node before it in the flow.")
    if not node.parents and node.policy != ALL:
        raise InvalidOption(f"{node.name} waits for nothing, so it can't have when= or at_least=.")
    if node.optional and node.policy != ALL:
        raise InvalidOption(f'{node.name}: optional= goes with when="all" only.')
    for task in node.tasks:
        check_unmerged(task)
        for parameter, reference in task.results.items():
            _check_length(task, parameter, reference, before)


def check_unmerged(task: GraphTask) -> None:
    """Refuse a task that would be merged into another one."""
    said = task.options if isinstance(task.target, str) else task.options.over(task.target.defaults)
    if merging := next((option for option in _MERGING if getattr(said, option) is not None), None):
        raise InvalidOption(
            f"{task.name} has {merging}= and can't be part of a flow: it would be merged into another task, "
            "and others wait for this very one. Register the function a second time without it, under another name."
        )


def _check_length(task: GraphTask, parameter: str, reference: Reference, before: Mapping[str, GraphNode]) -> None:
    count = sum(len(before[name].tasks) for name in reference.nodes)
    if reference.is_list and not reference.pages and count > MOST_IN_LIST:
        raise InvalidOption(
            f"{task.name} would get {count} results as a list, and {MOST_IN_LIST} is the most. Declare its parameter "
            f"{parameter} as Results[...]: that reads them page by page."
        )


def _task(signature: Signature[Any], arguments: dict[str, Any], node: Node[Any]) -> GraphTask:
    task = signature.task
    later = {name: value for name, value in arguments.items() if nodes_of(value)}
    if not later:
        return GraphTask(task, task.arguments.to_json(arguments), signature.options)
    _check_known(task, later)
    results = {name: _reference(name, value, node, task) for name, value in later.items()}
    plain = {name: value for name, value in arguments.items() if name not in later}
    text = task.arguments.without(frozenset(later)).to_json(plain)
    return GraphTask(task, text, signature.options, results)


def _check_known(task: AnyFunction, names: Iterable[str]) -> None:
    for name in names:
        if name not in task.arguments.parameters:
            raise TaskExecutionError(f"{name} is not a parameter of {task.name}.", task=task.name, field=name)


def _reference(name: str, value: Any, node: Node[Any], task: AnyFunction) -> Reference:
    hint = task.arguments.hints.get(name, Any)
    settled = node.policy.when == "settled"
    sources = nodes_of(value)
    names = tuple(source.name for source in sources)
    if isinstance(value, Node) and not value.is_group:
        if not settled:
            _check_type(_result_type(value), hint, name, value, task)
        return Reference(names)
    if is_pages(hint):
        return Reference(names, is_list=True, pages=True)
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
    return Reference(names, is_list=True)


def _result_type(node: Node[Any]) -> Any:
    if node.spawned is not None:
        return node.spawned.results.declared
    return node.members[0][0].task.results.declared if node.members else Any


def _check_type(result: Any, hint: Any, name: str, source: Node[Any], task: AnyFunction) -> None:
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
