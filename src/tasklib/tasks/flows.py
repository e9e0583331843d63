"""Flows: tasks that wait for each other, as a chain, a group with a join, or any graph.

chain(fetch.s(url), parse.s(), store.s())
group([resize.s(path) for path in paths]).then(publish.s())

flow = Flow("import")
page = flow.add(fetch.s(url))
flow.add(parse.s(page))                     # a node as an argument: its result, once it is there
run = await flow.submit()
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, overload
from uuid import UUID

from typing_extensions import TypeVar

from tasklib.errors import InvalidOption
from tasklib.tasks import default_client
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import MAX_NAME_BYTES, is_name
from tasklib.tasks.submitter import Awaited, Submission, WithOptions, returns_awaited
from tasklib.tasks.task_id import KnownId

if TYPE_CHECKING:
    from tasklib.tasks.submitter import AsynchronousConnection, SyncConnection

R = TypeVar("R", default=Any)
R2 = TypeVar("R2")
R_co = TypeVar("R_co", covariant=True, default=Any)
When = Literal["all", "settled"]
Part = "Signature[Any] | Chain[Any] | Group[Any] | Submission[Any] | TaskFunction[..., Any, Any, ...]"


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
    ) -> None:
        self.flow = flow
        self.name = name
        self.members = members
        self.parents = parents
        self.optional = optional
        self.policy = policy
        self.is_group = is_group

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


class FlowRun(Generic[R_co]):
    """A flow that was submitted."""

    def __init__(self, id: UUID, name: str, tasks: dict[str, list[KnownId[Any]]], last: KnownId[Any] | None) -> None:
        self.id = id
        self.name = name
        self.tasks = tasks
        """The ids of its tasks, by node."""
        self.last: Any = last
        """The id of the task whose result is that of the flow; None if it ends with several."""

    def __repr__(self) -> str:
        return f"<flow {self.name} {self.id}>"

    def _end(self) -> Any:
        if self.last is None:
            raise InvalidOption(
                f"the flow {self.name} ends with several tasks, and has no single result. "
                "Ask for those of single tasks: run.tasks['node'][0].result()."
            )
        return self.last

    @returns_awaited
    def result(self, timeout: float | None = None) -> Coroutine[Any, Any, R_co]:
        """Wait for the last task of the flow and return its result."""
        awaited: Coroutine[Any, Any, R_co] = self._end().result(timeout)
        return awaited


class SyncFlowRun(FlowRun[R_co]):
    """`FlowRun` for synchronous code."""

    def result(self, timeout: float | None = None) -> R_co:  # type: ignore[override]  # it blocks instead
        """Wait for the last task of the flow and return its result."""
        value: R_co = self._end().result(timeout)
        return value


class Submittable(Generic[R_co]):
    """A flow, or a part that is a flow of its own."""

    _what: ClassVar[str]

    def as_flow(self) -> Flow[R_co]:
        """The graph."""
        raise NotImplementedError

    @returns_awaited
    def submit(self) -> Coroutine[Any, Any, FlowRun[R_co]]:
        """Submit all its tasks at once, or none."""
        return Awaited(self._submit(None), f"{self._what}.submit", f"{self._what}.submit_sync")

    def submit_sync(self) -> SyncFlowRun[R_co]:
        """`submit` for synchronous code."""
        client = default_client.sync_client()
        run: SyncFlowRun[R_co] = client.perform(client.calls.submit_flow(self))
        return run

    @overload
    def on(self, connection: SyncConnection, /) -> FlowInTransaction[R_co]: ...
    @overload
    def on(self, connection: AsynchronousConnection, /) -> AsyncFlowInTransaction[R_co]: ...
    def on(self, connection: Any, /) -> Any:
        """Submit on this connection, in its transaction: the flow exists if and only if the transaction commits."""
        kind = AsyncFlowInTransaction if default_client.is_async_connection(connection) else FlowInTransaction
        return kind(self, connection)

    async def _submit(self, connection: Any) -> FlowRun[R_co]:
        client = default_client.async_client()
        run: FlowRun[R_co] = await client.perform(client.calls.submit_flow(self, connection=connection))
        return run


@dataclass(frozen=True)
class FlowInTransaction(Generic[R_co]):
    """A flow that is submitted in the transaction of a synchronous connection."""

    flow: Submittable[R_co]
    connection: Any

    def submit(self) -> SyncFlowRun[R_co]:
        """Submit all its tasks. They exist once the transaction commits."""
        client = default_client.sync_client()
        run: SyncFlowRun[R_co] = client.perform(client.calls.submit_flow(self.flow, connection=self.connection))
        return run


@dataclass(frozen=True)
class AsyncFlowInTransaction(Generic[R_co]):
    """A flow that is submitted in the transaction of an asynchronous connection."""

    flow: Submittable[R_co]
    connection: Any

    @returns_awaited
    def submit(self) -> Coroutine[Any, Any, FlowRun[R_co]]:
        """Submit all its tasks. They exist once the transaction commits."""
        return Awaited(self.flow._submit(self.connection), "flow.on(connection).submit")


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
        """Add a task, or a list of tasks as one group, and return its node.

        It waits for the nodes among its arguments, for those in `after`, and for those in `optional`, which may fail.
        """
        is_group = isinstance(part, list | tuple)
        signatures = [signature_of(p) for p in (part if is_group else [part])]
        members = [(s, s.arguments()) for s in signatures]
        used = [n for _, arguments in members for v in arguments.values() for n in nodes_of(v)]
        maybe = _unique(optional)
        parents = _unique([*used, *after, *maybe])
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

    def _named(self, name: str | None, default: str) -> str:
        if name is not None:
            if not is_name(name) or name in self.nodes:
                raise InvalidOption(f"the flow {self.name} has a node {name!r} already, or this can't be a name.")
            return name
        n, free = 1, default
        while free in self.nodes:
            n += 1
            free = f"{default}-{n}"
        return free

    def attach(self, part: Any, before: Ends | None) -> Ends:
        """Add a part of a chain or group behind what came before; what it ends with."""
        match part:
            case Chain():
                for each in part.parts:
                    before = self.attach(each, before)
                assert before is not None
                return before
            case Group():
                ends = self._attach_group(part, before)
                return Ends(ends, part.policy)
        signature = signature_of(part)
        return Ends([self._attach(signature, before)])

    def _attach(self, signature: Signature[Any], before: Ends | None) -> Node[Any]:
        arguments = signature.arguments() if before is None else signature.arguments_after(before.value)
        parents = _unique([*(before.nodes if before else ()), *(n for v in arguments.values() for n in nodes_of(v))])
        policy = ALL if before is None else before.policy
        return self._place(None, signature.task.name, [(signature, arguments)], parents, (), policy, is_group=False)

    def _attach_group(self, part: Group[Any], before: Ends | None) -> list[Node[Any]]:
        if any(isinstance(p, Chain | Group) for p in part.parts):
            return [node for p in part.parts for node in self.attach(p, before).nodes]
        signatures = [signature_of(p) for p in part.parts]
        members = [(s, s.arguments() if before is None else s.arguments_after(before.value)) for s in signatures]
        used = [n for _, arguments in members for v in arguments.values() for n in nodes_of(v)]
        parents = _unique([*(before.nodes if before else ()), *used])
        name = signatures[0].task.name if signatures else "group"
        policy = ALL if before is None else before.policy
        return [self._place(None, name, members, parents, (), policy, is_group=True)]


@dataclass(frozen=True)
class Chain(Submittable[R_co]):
    """Tasks one after the other; each gets the result of the one before as its first argument."""

    _what = "chain(...)"
    parts: tuple[Any, ...]

    def as_flow(self) -> Flow[R_co]:
        flow: Flow[R_co] = Flow("chain")
        if not self.parts:
            raise InvalidOption("a chain needs at least one task: chain(fetch.s(url), parse.s()).")
        flow.ends = flow.attach(self, None)
        return flow


@dataclass(frozen=True)
class Group(Submittable[R_co]):
    """Tasks side by side."""

    _what = "group(...)"
    parts: tuple[Any, ...]
    policy: Policy = ALL

    def then(
        self,
        join: Signature[R2] | TaskFunction[..., R2, Any, ...],
        /,
        *,
        when: When = "all",
        at_least: int | float | None = None,
    ) -> Chain[R2]:
        """The group with a join: a task that gets the list of the results as its first argument.

        `when="settled"`: it runs however the others end, and gets `SettledTask` values. `at_least=`: it runs as soon
        as so many have completed, a number or a share.
        """
        return Chain((Group(self.parts, Policy(when, at_least)), join))

    def as_flow(self) -> Flow[R_co]:
        flow: Flow[R_co] = Flow("group")
        flow.ends = flow.attach(self, None)
        return flow


@overload
def chain(last: Signature[R2], /) -> Chain[R2]: ...
@overload
def chain(first: Any, last: Signature[R2], /) -> Chain[R2]: ...
@overload
def chain(first: Any, second: Any, last: Signature[R2], /) -> Chain[R2]: ...
@overload
def chain(first: Any, second: Any, third: Any, last: Signature[R2], /) -> Chain[R2]: ...
@overload
def chain(*parts: Any) -> Chain[Any]: ...
def chain(*parts: Any) -> Chain[Any]:
    """Tasks one after the other: `chain(fetch.s(url), parse.s(), store.s())`.

    Each gets the result of the one before it as its first argument, before those that were given. It gets none if its
    first argument was given by name, or all of them were given.
    """
    return Chain(parts)


@overload
def group(parts: Iterable[Signature[R2]], /) -> Group[list[R2]]: ...
@overload
def group(*parts: Signature[R2]) -> Group[list[R2]]: ...
@overload
def group(*parts: Any) -> Group[list[Any]]: ...
def group(*parts: Any) -> Group[Any]:
    """Tasks side by side: `group(resize.s(p) for p in paths).then(publish.s())`."""
    if len(parts) == 1 and not isinstance(
        parts[0], Signature | Chain | Group | Submission | TaskFunction | WithOptions
    ):
        parts = tuple(parts[0])
    return Group(parts)


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


def _unique(nodes: Iterable[Node[Any]]) -> list[Node[Any]]:
    return list(dict.fromkeys(nodes))
