"""The tasks that a canvas needs: `celery.map`, `celery.starmap`, and the one that calls error callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tasklib.celery.attempt import ExceptionInfo
from tasklib.celery.binding import Binding
from tasklib.celery.failures import exception_of, upstream_of
from tasklib.celery.request import CeleryRequest
from tasklib.celery.values import plain, revived
from tasklib.tasks import registry
from tasklib.tasks.flow_results import SettledTask
from tasklib.tasks.function import TaskFunction

if TYPE_CHECKING:
    from tasklib.celery.app import Celery

ERRBACK = "tasklib.celery.errback"


def errback_task(ends: list[SettledTask[Any]], errback: dict[str, Any], headers: list[SettledTask[Any]]) -> None:
    """Call the error callback for each task that failed. It is submitted for every end, as a gate can't tell.

    `headers`: of chords. If one of those failed, the callback is called once for the body that is missing.
    """
    unfinished = [end for end in ends if end.state != "completed"]
    in_header = {str(end.id) for end in headers}
    failed = [end for end in unfinished if not upstream_of(end.error)]
    failed += [end for end in unfinished if upstream_of(end.error) in in_header][:1]
    for end in failed:
        _call_errback(errback, end)


def _call_errback(errback: dict[str, Any], end: SettledTask[Any]) -> None:
    from tasklib.celery.app import current_app_or_default
    from tasklib.celery.canvas import maybe_signature

    app = current_app_or_default()
    signature = maybe_signature(revived(errback), app)
    task = app.tasks.get(signature.get("task"))
    error = app.AsyncResult(str(end.id)).result if upstream_of(end.error) else exception_of(end.error)
    given = () if task is None else tuple(inspect.signature(task.run).parameters.values())
    wanted = [p for p in given if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    own = signature["args"]
    if task is not None and len(wanted) - len(own) - len(signature["kwargs"]) > 1:
        request = CeleryRequest(id=str(end.id), called_directly=False)
        task(request, error, ExceptionInfo(error).traceback, *own, **signature["kwargs"])
    elif signature["immutable"]:
        signature.apply_async()
    else:
        signature.apply_async((str(end.id),))


def map_items(task: Any, it: list[Any]) -> list[Any]:
    """`task.map(items)`."""
    return [plain(_called(task, (item,))) for item in it]


def starmap_items(task: Any, it: list[Any]) -> list[Any]:
    """`task.starmap(lists_of_arguments)`."""
    return [plain(_called(task, tuple(items))) for items in it]


def ensure(app: Celery) -> None:
    """Register them, unless they are."""
    from tasklib.celery.app import tasks

    for name, function in (("celery.map", map_items), ("celery.starmap", starmap_items)):
        if name not in registry.functions:
            tasks.pop(name, None)
            app.task(name=name)(function)
    if ERRBACK not in registry.functions:
        registry.register(TaskFunction(errback_task, name=ERRBACK))


def elsewhere(name: str) -> TaskFunction[..., Any]:
    """A task function without a body, for a task that only another program has. It is not registered."""

    def call(_args: Any = None, _previous: Any = None, _celery: Any = None, **named: Any) -> Any:
        raise NotImplementedError(name)

    call.__annotations__ = {}
    return TaskFunction(call, name=name)


def binding_of(function: TaskFunction[..., Any]) -> Binding | None:
    """The parameters of a task function that was written with `@task`."""
    return None if function.name == ERRBACK else Binding(_without_body(function), function.name, bound=False)


def _without_body(function: TaskFunction[..., Any]) -> Callable[..., Any]:
    def call() -> None: ...

    vars(call)["__signature__"] = function.arguments.signature
    return call


def _called(task: Any, args: tuple[Any, ...]) -> Any:
    from tasklib.celery.canvas import maybe_signature

    return maybe_signature(task)(*args)
