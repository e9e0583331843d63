"""From Celery's canvas to a flow of TaskLib: one graph of chains, groups, chords and callbacks, submitted at once.

A callback (`link`) is a task of the flow that waits for its task. An error callback (`link_error`) waits for all the
tasks it is meant for, however they end, and calls its function for each of them that failed. A chord fails with its
body: if a task of its header failed, the function is called once, and for each task of the header too with the setting
`task_allow_error_cb_on_chord_header`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tasklib.celery.binding import HEADER, LATER, payload_of_unknown
from tasklib.celery.builtin_tasks import ERRBACK
from tasklib.celery.canvas import CelerySignature, chain, chord, chunks, group, maybe_signature
from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.celery.result import CeleryResult
from tasklib.celery.result_sets import CeleryGroupResult
from tasklib.celery.submitting import Asked, asked
from tasklib.client.default import default_client
from tasklib.tasks.flow_parts import Signature
from tasklib.tasks.flow_runs import Attachable, FlowRun
from tasklib.tasks.flows import Ends, Flow, Node

if TYPE_CHECKING:
    from tasklib.celery.app import Celery

_FOR_EACH = ("countdown", "eta", "expires", "queue", "priority", "headers", "time_limit", "ignore_result", "serializer")


@dataclass
class CanvasEnd:
    """What a part of a canvas has become."""

    ends: Sequence[Node[Any]]
    """The nodes whose results are its result."""
    is_list: bool
    result: Callable[[FlowRun[Any]], Any]
    """Makes the result for the caller, once there are ids."""
    nodes: list[Node[Any]] = field(default_factory=list)
    """All nodes of it, for error callbacks."""
    headers: list[Node[Any]] = field(default_factory=list)
    """Those that are in headers of chords."""

    @property
    def value(self) -> Any:
        """What the next task gets."""
        if not self.is_list and len(self.ends) == 1:
            return self.ends[0]
        only = self.ends[0] if len(self.ends) == 1 else None
        return only if only is not None and only.is_group else Ends(self.ends)


class CanvasFlow:
    """A flow that grows by the parts of a canvas."""

    def __init__(self, app: Celery, flow: Flow[Any] | None = None) -> None:
        self.app = app
        self.flow: Flow[Any] = Flow("canvas") if flow is None else flow
        self.connection: Any = None

    def attach(self, part: CelerySignature, before: CanvasEnd | None) -> CanvasEnd:
        """Add a part behind what came before it."""
        match part:
            case chain():
                end = self._chain(part, before)
            case group():
                end = self._group(part, before)
            case chord():
                end = self._chord(part, before)
            case chunks():
                end = self._group(part.group(), before)
            case _:
                return self._task(part, before)
        return self._with_callbacks(part, end)

    def _task(self, part: CelerySignature, before: CanvasEnd | None) -> CanvasEnd:
        made, wish = self._signature(part, before)
        node = self.flow.add(made, after=() if before is None else before.ends)
        parent = None if before is None else before.result
        end = CanvasEnd([node], False, lambda run: _result_at(run, node, 0, parent), [node])
        headers = before.nodes if before is not None and before.is_list else []
        return self._called_back(end, wish.link, wish.link_error, headers)

    def _signature(self, part: CelerySignature, before: CanvasEnd | None) -> tuple[Signature[Any], Asked]:
        """One task as a part of the flow."""
        name, args, kwargs = part["task"], part["args"], part["kwargs"]
        gets = before is not None and not part["immutable"]
        function, binding = self.app.function_of(name)
        given = (LATER, *args) if gets else args
        payload = payload_of_unknown(given, kwargs) if binding is None else binding.payload(given, kwargs)
        if before is not None and gets:
            payload = {key: before.value if value is LATER else value for key, value in payload.items()}
        options = {key: value for key, value in part["options"].items() if key not in ("partial_kwargs",)}
        wish = asked(self.app, name, self.app.tasks.get(name), options)
        if wish.task_id is not None:
            raise NotOnTaskLib(
                "a task of a chain, group or chord gets its id when that is submitted: leave task_id out."
            )
        if wish.connection is not None:
            self.connection = wish.connection
        if wish.header:
            payload[HEADER] = wish.header
        return Signature(function, (), payload, wish.options), wish

    def _chain(self, part: CelerySignature, before: CanvasEnd | None) -> CanvasEnd:
        tasks = _unrolled(part)
        if not tasks:
            raise NotOnTaskLib("an empty chain has no task and no result.")
        nodes: list[Node[Any]] = []
        headers: list[Node[Any]] = []
        end = before
        for number, each in enumerate(tasks):
            follows = number + 1 < len(tasks)
            chosen = each.tasks[0] if follows and isinstance(each, group) and len(each.tasks) == 1 else each
            end = self.attach(chosen, end)
            nodes += end.nodes
            headers += end.nodes if follows and end.is_list else end.headers
        assert end is not None
        return CanvasEnd(end.ends, end.is_list, end.result, nodes, headers)

    def _group(self, part: CelerySignature, before: CanvasEnd | None) -> CanvasEnd:
        tasks = _members(part)
        parent = None if before is None else before.result
        if all(_is_plain(each) for each in tasks):
            made = [self._signature(each, before)[0] for each in tasks]
            node = self.flow.add(made, after=() if before is None else before.ends)
            return CanvasEnd([node], True, lambda run: _group_result(run, node, parent), [node])
        parts = [self.attach(each, before) for each in tasks]
        nodes = [node for each in parts for node in each.nodes]
        headers = [node for each in parts for node in each.headers]
        ends = [node for each in parts for node in each.ends]
        return CanvasEnd(ends, True, lambda run: _results_of(run, parts, parent), nodes, headers)

    def _chord(self, part: CelerySignature, before: CanvasEnd | None) -> CanvasEnd:
        header, body = part["kwargs"]["header"], part["kwargs"]["body"]
        if body is None:
            raise NotOnTaskLib("a chord needs a body: chord(header)(body).")
        tasks = header if isinstance(header, group) else group(header, app=self.app)
        members = tasks.clone(part["args"])
        if part["immutable"]:
            members.set_immutable(True)
        joined = self._group(members, before)
        end = self.attach(body, joined)
        headers = [*joined.nodes, *end.headers]
        return CanvasEnd(end.ends, end.is_list, end.result, [*joined.nodes, *end.nodes], headers)

    def _with_callbacks(self, part: CelerySignature, end: CanvasEnd) -> CanvasEnd:
        options = part["options"]
        links, link_errors = _signatures(options.get("link")), _signatures(options.get("link_error"))
        return self._called_back(end, links, link_errors, end.headers)

    def _called_back(
        self, end: CanvasEnd, links: Sequence[Any], link_errors: Sequence[Any], headers: Sequence[Node[Any]]
    ) -> CanvasEnd:
        for link in links:
            self.attach(maybe_signature(link, self.app), end)
        for errback in link_errors:
            function, _ = self.app.function_of(ERRBACK)
            also = self.app.conf.task_allow_error_cb_on_chord_header
            arguments = {
                "ends": Ends([node for node in end.nodes if also or node not in headers]),
                "errback": dict(_plain(maybe_signature(errback, self.app))),
                "headers": Ends(headers) if headers else [],
            }
            self.flow.add(Signature(function, (), arguments), when="settled")
        return end


class CanvasPart(Attachable):
    """A canvas as a part of another flow."""

    def __init__(self, app: Celery, part: CelerySignature) -> None:
        self._app = app
        self._part = part

    def attach_to(self, flow: Flow[Any], before: Ends | None) -> Ends:
        """Add its tasks to a flow."""
        return Ends(CanvasFlow(self._app, flow).attach(self._part, None).ends)


def submit_canvas(app: Celery, part: CelerySignature) -> Any:
    """Submit a signature: a single task as a task, everything else as one flow."""
    if app.conf.task_always_eager:
        from tasklib.celery.eager import apply_canvas

        return apply_canvas(app, part)
    if type(part) is CelerySignature or not isinstance(part, chain | group | chord | chunks):
        return app.submit(part["task"], part["args"], part["kwargs"], part["options"])
    if isinstance(part, group) and not part.tasks:
        return CeleryGroupResult(None, [], app=app)
    canvas = CanvasFlow(app)
    end = canvas.attach(part, None)
    return app.submit_flow(canvas, end)


def submit_with_callbacks(app: Celery, part: CelerySignature) -> CeleryResult:
    """Submit one task with its callbacks, as a flow."""
    canvas = CanvasFlow(app)
    end = canvas.attach(part, None)
    result: CeleryResult = app.submit_flow(canvas, end)
    return result


def run_flow(canvas: CanvasFlow) -> FlowRun[Any]:
    """Submit the flow as it is."""
    client = default_client()
    run: FlowRun[Any] = client.perform(client.calls.submit_flow(canvas.flow, connection=canvas.connection))
    return run


def _unrolled(part: CelerySignature) -> list[CelerySignature]:
    """The tasks of a chain, with what the chain as a whole was given at its first."""
    tasks: list[CelerySignature] = [maybe_signature(each, part.app) for each in part["kwargs"]["tasks"]]
    given = {name: value for name, value in part["options"].items() if name in _FOR_EACH}
    _refuse_in_flows(part)
    kwargs = part["options"].get("partial_kwargs") or {}
    if tasks and (part["args"] or kwargs or given):
        tasks[0] = tasks[0].clone(part["args"], kwargs, **given)
    return tasks


def _members(part: CelerySignature) -> list[CelerySignature]:
    """The tasks of a group, each with what the group as a whole was given; groups in it are part of it."""
    given = {name: value for name, value in part["options"].items() if name in _FOR_EACH}
    _refuse_in_flows(part)
    kwargs = part["options"].get("partial_kwargs") or {}
    found: list[CelerySignature] = []
    for each in part["kwargs"]["tasks"]:
        task = maybe_signature(each, part.app)
        if part["args"] or kwargs or given or part["immutable"]:
            task = task.clone(part["args"], kwargs, **{**given, **task["options"]})
            if part["immutable"]:
                task.set_immutable(True)
        found += _members(task) if isinstance(task, group) and not _callbacks(task) else [task]
    return found


def _refuse_in_flows(part: CelerySignature) -> None:
    known = {*_FOR_EACH, "link", "link_error", "partial_kwargs", "retry", "retry_policy", "add_to_parent"}
    if unknown := [name for name, value in part["options"].items() if name not in known and value is not None]:
        raise NotOnTaskLib(f"{unknown[0]} can't be said of a whole chain, group or chord: say it of its tasks.")


def _is_plain(part: CelerySignature) -> bool:
    return not isinstance(part, chain | group | chord | chunks) and not _callbacks(part)


def _callbacks(part: CelerySignature) -> bool:
    return bool(part["options"].get("link") or part["options"].get("link_error"))


def _signatures(value: Any) -> list[Any]:
    return [] if not value else list(value) if isinstance(value, list | tuple) else [value]


def _plain(part: Any) -> Any:
    from tasklib.celery.values import plain

    return plain(part)


# ---- results ----


def _result_at(run: FlowRun[Any], node: Node[Any], index: int, parent: Callable[[FlowRun[Any]], Any] | None) -> Any:
    return CeleryResult(str(run.tasks[node.name][index]), parent=None if parent is None else parent(run))


def _group_result(run: FlowRun[Any], node: Node[Any], parent: Callable[[FlowRun[Any]], Any] | None) -> Any:
    before = None if parent is None else parent(run)
    results = [CeleryResult(str(id_), parent=before) for id_ in run.tasks.get(node.name, ())]
    return CeleryGroupResult(str(run.id), results, parent=before)


def _results_of(run: FlowRun[Any], parts: Sequence[CanvasEnd], parent: Callable[[FlowRun[Any]], Any] | None) -> Any:
    before = None if parent is None else parent(run)
    return CeleryGroupResult(str(run.id), [part.result(run) for part in parts], parent=before)
