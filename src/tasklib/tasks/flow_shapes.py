"""Flows without a graph of one's own: chains, groups with joins or callbacks, and what a task spawns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from tasklib.errors import InvalidOption
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_runs import Attachable, Submittable
from tasklib.tasks.flows import ALL, Ends, Flow, Node, Policy, When, signature_of
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.submitter import Submission, WithOptions

R2 = TypeVar("R2")
R_co = TypeVar("R_co", covariant=True, default=Any)


@dataclass(frozen=True)
class Chain(Submittable[R_co]):
    """Tasks one after the other; each gets the result of the one before as its first argument."""

    _what = "chain(...)"
    parts: tuple[Any, ...]
    name: str = "chain"
    """Under which it is listed."""

    def as_flow(self) -> Flow[R_co]:
        return _flow_of(self, self.name)

    def attach_to(self, flow: Flow[Any], before: Ends | None) -> Ends:
        if not self.parts:
            raise InvalidOption("a chain needs at least one task: chain(fetch.s(url), parse.s()).")
        for each in self.parts:
            before = flow.attach(each, before)
        assert before is not None
        return before


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
        return Chain((Group(self.parts, Policy(when, at_least)), join), "group")

    def with_callbacks(
        self,
        *,
        on_success: Signature[Any] | TaskFunction[..., Any, Any, ...] | None = None,
        on_end: Signature[Any] | TaskFunction[..., Any, Any, ...] | None = None,
    ) -> GroupWithCallbacks:
        """The group with tasks that run after it: when all have completed, and when all have ended, however they did.

        `on_success` gets the list of the results as its first argument, `on_end` a list of `SettledTask` values.
        """
        return GroupWithCallbacks(self, on_success, on_end)

    def as_flow(self) -> Flow[R_co]:
        return _flow_of(self, "group")

    def attach_to(self, flow: Flow[Any], before: Ends | None) -> Ends:
        if any(isinstance(part, Attachable) for part in self.parts):
            nodes = [node for part in self.parts for node in flow.attach(part, before).nodes]
            return Ends(nodes, self.policy)
        signatures = [signature_of(part) for part in self.parts]
        name = signatures[0].task.name if signatures else "group"
        return Ends([flow.attach_members(name, signatures, before, is_group=True)], self.policy)


@dataclass(frozen=True)
class GroupWithCallbacks(Submittable[Any]):
    """A group with callbacks."""

    _what = "group(...).with_callbacks(...)"
    group: Group[Any]
    on_success: Any = None
    on_end: Any = None

    def as_flow(self) -> Flow[Any]:
        return _flow_of(self, "batch")

    def attach_to(self, flow: Flow[Any], before: Ends | None) -> Ends:
        members = flow.attach(self.group, before).nodes
        asked = ((self.on_success, ALL), (self.on_end, Policy("settled")))
        callbacks = [flow.attach(part, Ends(members, policy)) for part, policy in asked if part is not None]
        return Ends([node for ends in callbacks for node in ends.nodes] or members)


@dataclass(frozen=True)
class SpawnedPart(Attachable, Generic[R_co]):
    """What a part of a chain spawns; made by `spawned`."""

    by: Signature[Any]
    of: TaskFunction[..., Any, Any, ...] | None = None

    def attach_to(self, flow: Flow[Any], before: Ends | None) -> Ends:
        (by,) = flow.attach(self.by, before).nodes
        return Ends([flow.spawned_by(by, self.of)])


@overload
def spawned(by: Node[Any], /, *, of: TaskFunction[..., R2, Any, ...]) -> Node[list[R2]]: ...
@overload
def spawned(by: Node[Any], /) -> Node[list[Any]]: ...
@overload
def spawned(by: Signature[Any], /, *, of: TaskFunction[..., R2, Any, ...]) -> SpawnedPart[list[R2]]: ...
@overload
def spawned(by: Signature[Any], /) -> SpawnedPart[list[Any]]: ...
def spawned(by: Any, /, *, of: TaskFunction[..., Any, Any, ...] | None = None) -> Any:
    """The tasks that a part of a flow spawns with `current_task().spawn(...)`; as an argument, the list of results.

    `chain(spawned(find_pages.s(site)), report.s())`, or of a node: `flow.add(report.s(spawned(found)))`. What waits for
    it runs after the spawning task and all the tasks that it has spawned. `of=` is their function, for type checkers.
    """
    return by.flow.spawned_by(by, of) if isinstance(by, Node) else SpawnedPart(signature_of(by), of)


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
    if len(parts) == 1 and not isinstance(parts[0], Signature | Attachable | Submission | TaskFunction | WithOptions):
        parts = tuple(parts[0])
    return Group(parts)


def _flow_of(part: Submittable[R2], name: str) -> Flow[R2]:
    flow: Flow[R2] = Flow(name)
    flow.ends = flow.attach(part, None)
    return flow
