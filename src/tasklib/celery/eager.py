"""Tasks that run where they are called: `task.apply()`, and every call with `task_always_eager`. Needs no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasklib.celery import states
from tasklib.celery.attempt import ExceptionInfo, attempt_of
from tasklib.celery.canvas import CelerySignature, chain, chord, chunks, group, maybe_signature
from tasklib.celery.lineage import PARENT, ROOT, Lineage, submitted_by_this_task
from tasklib.celery.request import CeleryRequest
from tasklib.celery.result_sets import CeleryGroupResult, EagerResult
from tasklib.celery.utils import uuid
from tasklib.tasks.retry import Retry

if TYPE_CHECKING:
    from tasklib.celery.app import Celery
    from tasklib.celery.task import CeleryTask


def apply_here(task: CeleryTask, args: Sequence[Any], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Run one task with its retries, none of which waits, and its callbacks."""
    task_id = str(options.get("task_id") or uuid())
    throw = options.get("throw", task.app.conf.task_eager_propagates)
    retries = 0
    lineage = _lineage(task_id)
    while True:
        request = CeleryRequest(
            id=task_id,
            task=task.name,
            args=list(args),
            kwargs=dict(kwargs),
            retries=retries,
            is_eager=True,
            called_directly=False,
            headers=options.get("headers"),
            ignore_result=task.ignore_result,
            delivery_info={
                "is_eager": True,
                "routing_key": options.get("queue"),
                "exchange": "",
                "priority": options.get("priority"),
            },
            lineage=lambda: lineage,
        )
        try:
            value = None
            with attempt_of(task, request):
                value = task(*args, **kwargs)
        except Retry:
            retries += 1
            continue
        except Exception as e:
            _call_back(task.app, options.get("link_error"), (task_id,))
            if throw:
                raise
            return EagerResult(task_id, e, states.FAILURE, ExceptionInfo(e).traceback, task.name)
        _call_back(task.app, options.get("link"), (value,))
        return EagerResult(task_id, value, states.SUCCESS, name=task.name)


def _lineage(task_id: str) -> Lineage:
    before = submitted_by_this_task()
    return Lineage(before.get(PARENT), before.get(ROOT, task_id))


def apply_canvas(app: Celery, part: CelerySignature) -> Any:
    """Run a signature of any kind here."""
    match part:
        case chain():
            return _chain(app, part)
        case group():
            return CeleryGroupResult(uuid(), [apply_canvas(app, each) for each in _given(part)], app=app)
        case chord():
            header = part["kwargs"]["header"]
            joined = apply_canvas(app, header if isinstance(header, group) else group(header, app=app))
            return apply_canvas(app, part.body.clone((joined.get(),)))
        case chunks():
            return apply_canvas(app, part.group())
    return app.tasks[part["task"]].apply(part["args"], part["kwargs"], **part["options"])


def _chain(app: Celery, part: CelerySignature) -> Any:
    last: Any = None
    for number, each in enumerate(part["kwargs"]["tasks"]):
        task = maybe_signature(each, app)
        if number == 0:
            last = apply_canvas(app, task.clone(part["args"], part["options"].get("partial_kwargs")))
            continue
        if not getattr(last, "successful", lambda: True)():
            return last
        before, last = last, apply_canvas(app, task.clone((last.get(),)))
        last.parent = before
    return last


def _given(part: CelerySignature) -> list[CelerySignature]:
    kwargs = part["options"].get("partial_kwargs")
    return [maybe_signature(each, part.app).clone(part["args"], kwargs) for each in part["kwargs"]["tasks"]]


def _call_back(app: Celery, callbacks: Any, args: tuple[Any, ...]) -> None:
    for callback in callbacks if isinstance(callbacks, list | tuple) else [callbacks] if callbacks else ():
        apply_canvas(app, maybe_signature(callback, app).clone(args))
