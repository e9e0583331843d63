"""`self.replace(...)`: the task waits, as a durable function, for those that take its place, and gives their result."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

from tasklib import sync
from tasklib.celery.attempt import attempt_of, request_for
from tasklib.celery.exceptions import Ignore, NotOnTaskLib
from tasklib.celery.values import plain
from tasklib.tasks.context import current_task
from tasklib.tasks.durable_run import current_run

if TYPE_CHECKING:
    from tasklib.celery.canvas import CelerySignature
    from tasklib.celery.task import CeleryTask


class Replaced(Ignore):
    """Raised by `self.replace` to end the function."""

    def __init__(self, signature: CelerySignature) -> None:
        super().__init__("the task is replaced")
        self.signature = signature


def makes_replacements(function: Callable[..., Any]) -> bool:
    """Whether the code of a function calls something named `replace` on something: then it has to be durable."""
    code: CodeType | None = getattr(function, "__code__", None)
    return code is not None and "replace" in code.co_names and code.co_varnames[:1] == ("self",)


def replaced(task: CeleryTask, signature: CelerySignature) -> Any:
    """Leave the function; what replaces it runs after that."""
    chosen = task.on_replace(signature)
    if task.request.is_eager:
        return chosen.apply().get()
    if current_run.get(None) is None:
        raise NotOnTaskLib(
            f"{task.name}: self.replace has to be written in the function itself, whose first parameter is self: then "
            "the task is stored as one that can wait."
        )
    raise Replaced(chosen)


def replacing_function(task: CeleryTask) -> Callable[..., Any]:
    """What the worker calls: the function once, on record, then what replaces it."""

    def call(**payload: Any) -> Any:
        outcome = sync.step("call", _called, task, payload)
        if "signature" not in outcome:
            return outcome["value"]
        from tasklib.celery.canvas import maybe_signature
        from tasklib.celery.flows import CanvasPart

        part = CanvasPart(task.app, maybe_signature(outcome["signature"], app=task.app))
        parts: list[Any] = [part]
        return sync.gather(parts, name="replacement")[0]

    return call


def _called(task: Any, payload: dict[str, Any]) -> dict[str, Any]:
    request = request_for(task, payload, current_task())
    replacement: list[CelerySignature] = []
    with attempt_of(task, request) as attempt:
        try:
            attempt.returns(task(*request.args, **request.kwargs))
        except Replaced as e:
            replacement.append(e.signature)
            raise
    return {"signature": plain(replacement[0])} if replacement else {"value": attempt.value}
