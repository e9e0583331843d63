"""Flows: tasks that wait for each other, as a chain, a group with a join, or any graph.

chain(fetch.s(url), parse.s(), store.s())
group([resize.s(path) for path in paths]).then(publish.s())

flow = Flow("import")
page = flow.add(fetch.s(url))
flow.add(parse.s(page))                     # a node as an argument: its result, once it is there
run = await flow.submit()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, overload

from typing_extensions import TypeVar

from tasklib.errors import InvalidOption
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_runs import Attachable, Submittable
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import MAX_NAME_BYTES, is_name
from tasklib.tasks.submitter import Submission, WithOptions

R = TypeVar("R", default=Any)
R2 = TypeVar("R2")
R_co = TypeVar("R_co", covariant=True, default=Any)
When = Literal["all", "settled"]
SPAWNED = ":spawned"
"""What the names of nodes end with whose tasks are spawned while the flow runs."""


@dataclass(frozen=True)
class Policy:
    """When a gate opens."""

    when: When = "all"
    at_least: int | float | None = None

    def __post_init__(self) -> None:
        if self.when not in ("all", "settled"):
            raise InvalidOption(f'when= is "all" or "settled", not {self.when!r}.')
        n = self.at_least
        if n is None:
            return
        if self.when == "settled":
            raise InvalidOption('at_least= and when="settled" exclude each other: settled waits for all.')
        is_share = isinstance(n, float) and 0 < n <= 1
        if isinstance(n, bool) or not (is_share or (isinstance(n, int) and n > 0)):
            raise InvalidOption(
                f"at_least= is a number of tasks, such as 3, or a share of them, such as 0.95; not {n!r}."
            )

    def stored(self, optional: Sequence[str]) -> dict[str, Any]:
        """As the column `policy` of a gate holds it."""
        if self.at_least is not None:
            return {"kind": "at_least", "share" if isinstance(self.at_least, float) else "count": self.at_least}
        return {"kind": self.when, "optional": list(optional)} if optional else {"kind": self.when}


ALL = Policy()


class NodeTasks(Sequence[tuple[Signature[Any], dict[str, Any]]]):
    """The tasks of a node with their arguments by name, bound when they are read: a group may be very large."""

    def __init__(self, signatures: Sequence[Signature[Any]], before: Ends | None = None) -> None:
        self._signatures, self._before = signatures, before

    def __len__(self) -> int:
        return len(self._signatures)

    def __getitem__(self, at: Any) -> Any:
        return [*self][at] if isinstance(at, slice) else self._bound(self._signatures[at])

    def __iter__(self) -> Iterator[tuple[Signature[Any], dict[str, Any]]]:
        return map(self._bound, self._signatures)

    def _bound(self, signature: Signature[Any]) -> tuple[Signature[Any], dict[str, Any]]:
        before = self._before
        return signature, signature.arguments() if before is None else signature.arguments_after(before.value)

    def nodes(self) -> list[Node[Any]]:
        """The nodes among their arguments. TaskExecutionError if one was given too many of these."""
        return _unique(node for _, arguments in self for value in arguments.values() for node in nodes_of(value))


class Node(Generic[R_co]):
    """A place in a flow: one task, or a group of tasks. As an argument it is the result, or the list of results."""

    def __init__(
        self,
        flow: Flow[Any],
        name: str,
        members: Sequence[tuple[Signature[Any], dict[str, Any]]],
        parents: Sequence[Node[Any]],
        optional: Sequence[Node[Any]],
        policy: Policy,
        *,
        is_group: bool,
        spawner: Node[Any] | None = None,
        spawned: TaskFunction[..., Any, Any, ...] | None = None,
    ) -> None:
        self.flow = flow
        self.name = name
        self.members = members
        self.parents = parents
        self.optional = optional
        self.policy = policy
        self.is_group = is_group
        self.spawner = spawner
        """Of tasks that are spawned while the flow runs: the node that spawns them."""
        self.spawned = spawned
        """Their function, if that was said."""

    def __repr__(self) -> str:
        return f"<node {self.name} of {self.flow.name}>"


@dataclass(frozen=True)
class Ends:
    """What a part of a flow ends with: one node, or several whose results are a list."""

    nodes: Sequence[Node[Any]]
    policy: Policy = ALL

    @property
    def value(self) -> Any:
        """What the next part gets as its argument."""
        return self.nodes[0] if len(self.nodes) == 1 else self


class Flow(Submittable[R_co]):
    """A graph of tasks, built node by node; checked and submitted as a whole."""

    _what = "flow"

    def __init__(self, name: str = "flow") -> None:
        if not is_name(name):
            raise InvalidOption(f"a flow's name is a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
        self.name = name
        self.nodes: dict[str, Node[Any]] = {}
        self.ends: Ends | None = None

    def as_flow(self) -> Flow[R_co]:
        return self

    @overload
    def add(
        self,
        part: Submittable[R2],
        /,
        *,
        name: str | None = None,
        after: Iterable[Node[Any]] = (),
        optional: Iterable[Node[Any]] = (),
        when: When = "all",
        at_least: int | float | None = None,
    ) -> Node[R2]: ...
    @overload
    def add(
        self,
        part: Signature[R2],
        /,
        *,
        name: str | None = None,
        after: Iterable[Node[Any]] = (),
        optional: Iterable[Node[Any]] = (),
        when: When = "all",
        at_least: int | float | None = None,
    ) -> Node[R2]: ...
    @overload
    def add(
        self,
        part: Sequence[Signature[R2]],
        /,
        *,
        name: str | None = None,
        after: Iterable[Node[Any]] = (),
        optional: Iterable[Node[Any]] = (),
        when: When = "all",
        at_least: int | float | None = None,
    ) -> Node[list[R2]]: ...
    def add(
        self,
        part: Any,
        /,
        *,
        name: str | None = None,
        after: Iterable[Node[Any]] = (),
        optional: Iterable[Node[Any]] = (),
        when: When = "all",
        at_least: int | float | None = None,
    ) -> Any:
        """Add a task, or a list of tasks as one group, and return its node. Or a chain, a group or another flow.

        It waits for the nodes among its arguments, for those in `after`, and for those in `optional`, which may fail.
        """
        after, maybe = _flat(after), _flat(optional)
        if isinstance(part, Attachable):
            return self._add_part(part, name, after, maybe, Policy(when, at_least))
        is_group = isinstance(part, list | tuple)
        signatures = [signature_of(p) for p in (part if is_group else [part])]
        members = NodeTasks(signatures)
        parents = _unique([*members.nodes(), *after, *maybe])
        policy = Policy(when, at_least)
        default = signatures[0].task.name if signatures else "group"
        return self._place(name, default, members, parents, maybe, policy, is_group=is_group)

    def _place(
        self,
        name: str | None,
        default: str,
        members: Sequence[tuple[Signature[Any], dict[str, Any]]],
        parents: Sequence[Node[Any]],
        optional: Sequence[Node[Any]],
        policy: Policy,
        *,
        is_group: bool,
    ) -> Node[Any]:
        for parent in parents:
            if not isinstance(parent, Node) or parent.flow is not self:
                raise InvalidOption(f"{parent!r} is not a node of the flow {self.name}: add it to this flow first.")
        node: Node[Any] = Node(self, self._named(name, default), members, parents, optional, policy, is_group=is_group)
        self.nodes[node.name] = node
        self.ends = Ends([node])
        return node

    def spawned_by(self, node: Node[Any], of: TaskFunction[..., Any, Any, ...] | None = None) -> Node[Any]:
        """The group of tasks that a node spawns; see `spawned`."""
        if node.flow is not self or node.spawner is not None:
            raise InvalidOption(f"{node!r} is no node of the flow {self.name} that spawns tasks.")
        known = self.nodes.get(name := f"{node.name}{SPAWNED}")
        if known is None:
            known = Node(self, name, (), [node], (), ALL, is_group=True, spawner=node, spawned=of)
            self.nodes[name] = known
        self.ends = Ends([known])
        return known

    def _named(self, name: str | None, default: str) -> str:
        if name is not None:
            if name in self.nodes:
                raise InvalidOption(f"the flow {self.name} has a node {name!r} already: give this one another name.")
            if not is_name(name) or name.endswith(SPAWNED):
                raise InvalidOption(
                    f"{name!r} can't be the name of a node: a name is a string of 1 to {MAX_NAME_BYTES} bytes that "
                    f"doesn't end with {SPAWNED}."
                )
            return name
        n, free = 1, default
        while free in self.nodes:
            n += 1
            free = f"{default}-{n}"
        return free

    def attach(self, part: Any, before: Ends | None) -> Ends:
        """Add a part of a chain or group behind what came before; what it ends with."""
        if isinstance(part, Attachable):
            return part.attach_to(self, before)
        signature = signature_of(part)
        return Ends([self.attach_members(signature.task.name, [signature], before, is_group=False)])

    def attach_members(
        self, name: str, signatures: Sequence[Signature[Any]], before: Ends | None, *, is_group: bool
    ) -> Node[Any]:
        """Add a node whose tasks get what came before as their first argument."""
        members = NodeTasks(signatures, before)
        parents = _unique([*(before.nodes if before else ()), *members.nodes()])
        policy = ALL if before is None else before.policy
        return self._place(None, name, members, parents, (), policy, is_group=is_group)

    def attach_to(self, flow: Flow[Any], before: Ends | None) -> Ends:
        """Copy the nodes of this flow into another one, behind what came before."""
        if flow is self:
            raise InvalidOption(f"the flow {self.name} can't be a part of itself.")
        if not self.nodes:
            raise InvalidOption(f"the flow {self.name} has no tasks: add some before it becomes a part of another one.")
        copies: dict[Node[Any], Node[Any]] = {}
        prefix, n = self.name, 1
        while any(name.startswith(f"{prefix}.") for name in flow.nodes):
            n += 1
            prefix = f"{self.name}-{n}"
        for node in self.nodes.values():
            waits = [copies[p] for p in node.parents] if node.parents else (before.nodes if before else ())
            copy: Node[Any] = Node(
                flow,
                f"{prefix}.{node.name}",
                [(s, {name: _copied(v, copies) for name, v in arguments.items()}) for s, arguments in node.members],
                list(waits),
                [copies[n] for n in node.optional],
                node.policy if node.parents or before is None else before.policy,
                is_group=node.is_group,
                spawner=None if node.spawner is None else copies[node.spawner],
                spawned=node.spawned,
            )
            copies[node] = flow.nodes[copy.name] = copy
        waited_for = {p for node in self.nodes.values() for p in node.parents}
        return Ends([copies[node] for node in self.nodes.values() if node not in waited_for])

    def _add_part(
        self,
        part: Attachable,
        name: str | None,
        after: Sequence[Node[Any]],
        optional: Sequence[Node[Any]],
        policy: Policy,
    ) -> Any:
        """Add a chain, group or flow; what it begins with waits for these nodes."""
        known = set(self.nodes)
        ends = self.attach(part, None)
        added = [node for node in self.nodes.values() if node.name not in known]
        for node in added:
            if not any(p in added for p in node.parents) and (after or optional):
                node.parents = _unique([*node.parents, *after, *optional])
                node.optional, node.policy = list(optional), policy
        if name is not None:
            for node in added:
                del self.nodes[node.name]
                node.name = f"{name}.{node.name}"
                self.nodes[node.name] = node
        self.ends = Ends(ends.nodes)
        return self.ends.value


def signature_of(part: Any) -> Signature[Any]:
    """A part of a flow as a signature."""
    match part:
        case Signature():
            return part
        case TaskFunction():
            return Signature(part)
        case WithOptions():
            return Signature(part.task, options=part.chosen)
        case Submission(target, kwargs, options) if isinstance(target, TaskFunction):
            return Signature(target, (), kwargs, options)
    raise InvalidOption(f"a part of a flow is what task_function.s(...) returns, not {part!r}.")


def nodes_of(value: Any) -> Sequence[Node[Any]]:
    """The nodes that an argument stands for; none for a plain value."""
    return [value] if isinstance(value, Node) else value.nodes if isinstance(value, Ends) else ()


def _flat(nodes: Iterable[Any]) -> list[Node[Any]]:
    """The nodes, each once; a part that ends with several stands for all of them."""
    return _unique(node for each in nodes for node in nodes_of(each) or [each])


def _copied(value: Any, copies: Mapping[Node[Any], Node[Any]]) -> Any:
    """An argument of a task whose flow becomes part of another one."""
    match value:
        case Node():
            return copies[value]
        case Ends(nodes, policy):
            return Ends([copies[node] for node in nodes], policy)
    return value


def _unique(nodes: Iterable[Node[Any]]) -> list[Node[Any]]:
    return list(dict.fromkeys(nodes))
