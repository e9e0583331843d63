"""The backend for `django.tasks`, of Django 6.0 and newer.

TASKS = {"default": {"BACKEND": "tasklib.django.Backend", "OPTIONS": {"max_retries": 3}}}

A task of Django's is a task function named after its module and function. It is registered when Django validates it,
which is when its module is imported: so a worker that imports the `tasks.py` of every app serves it.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.apps import apps
from django.core.checks import Error
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task as DjangoTask
from django.tasks.base import TaskContext as DjangoTaskContext
from django.tasks.base import TaskError, TaskResult, TaskResultStatus
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from tasklib.client.default import default_client
from tasklib.errors import InvalidOption
from tasklib.executors.tracebacks import error_text
from tasklib.states import TaskState
from tasklib.tasks import registry
from tasklib.tasks.context import TaskContext, current_task
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import Options
from tasklib.tasks.submitter import Submission

if TYPE_CHECKING:
    from tasklib.models import Task

_STATUS = {
    TaskState.PENDING: TaskResultStatus.READY,
    TaskState.FAILED: TaskResultStatus.READY,  # it waits for its retry
    TaskState.RUNNING: TaskResultStatus.RUNNING,
    TaskState.COMPLETED: TaskResultStatus.SUCCESSFUL,
    TaskState.CANCELLED: TaskResultStatus.FAILED,
    TaskState.DEAD_LETTER: TaskResultStatus.FAILED,
}
_OPTIONS = ("max_retries", "timeout_seconds")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")


class DjangoTaskBackend(BaseTaskBackend):
    """`tasklib.django.Backend`. Its OPTIONS are `max_retries` (0) and `timeout_seconds` (none) of each task."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: DjangoTask) -> None:
        """Refuse what Django says a task may not be, and register the others."""
        super().validate_task(task)
        known = registry.functions.get(task.module_path)
        if known is None or getattr(known.function, "django_function", None) is not task.func:
            registry.register(TaskFunction(_called_by_worker(task.func, task.takes_context), name=task.module_path))

    def enqueue(self, task: DjangoTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Submit the task, in the transaction that Django's connection is in."""
        self.validate_task(task)
        made = _result(task, self.alias, normalize_json(list(args)), normalize_json(dict(kwargs)))
        payload = {"args": made.args, "kwargs": made.kwargs, **_using(task)}
        client = default_client()
        task_id = client.perform(
            client.calls.submit(Submission(registry.find(task.module_path), payload, self._options(task)))
        )
        _set(made, id=str(task_id), enqueued_at=_made_at(task_id))
        task_enqueued.send(type(self), task_result=made)
        return made

    def get_result(self, result_id: str) -> TaskResult:
        """The result as it is now."""
        try:
            task = default_client().get_task(result_id)
        except InvalidOption:
            task = None
        if task is None:
            raise TaskResultDoesNotExist(result_id)
        return _result_of(task)

    def check(self, **_: Any) -> list[Error]:
        """What `manage.py check` says."""
        problems = []
        if not apps.is_installed("tasklib.django"):
            problems.append(
                Error(
                    "TaskLib's backend for tasks needs its app.",
                    hint="Add 'tasklib.django' to INSTALLED_APPS.",
                    id="tasklib.E002",
                )
            )
        if unknown := set(self.options) - set(_OPTIONS):
            known = " and ".join(_OPTIONS)
            problems.append(
                Error(f"TASKS[{self.alias!r}]['OPTIONS'] knows {known}, not {min(unknown)}.", id="tasklib.E003")
            )
        return problems

    def _options(self, task: DjangoTask) -> Options:
        run_after = task.run_after
        if run_after is not None and timezone.is_naive(run_after):
            run_after = timezone.make_aware(run_after)
        return Options(
            scheduled_at=run_after,
            max_retries=self.options.get("max_retries", 0),
            timeout_seconds=self.options.get("timeout_seconds"),
            priority=_priority(task.priority),
            queue=task.queue_name,
        )


def _priority(given: int) -> int:
    """Django's priorities go from -100 to 100 and ours from -10: ten of those below 0 share one."""
    return given if given >= 0 else -((9 - given) // 10)


def _using(task: DjangoTask) -> dict[str, Any]:
    """What the columns of the row don't tell exactly."""
    said = {"priority": task.priority if task.priority < 0 else None, "backend": task.backend}
    said["run_after"] = task.run_after.isoformat() if task.run_after else None
    usual = {"priority": None, "backend": "default", "run_after": None}
    return {"using": using} if (using := {name: v for name, v in said.items() if v != usual[name]}) else {}


# ---- on the worker ----


def _called_by_worker(function: Any, takes_context: bool) -> Any:
    """The function around Django's that a worker calls: it sends Django's signals and makes the context."""
    if iscoroutinefunction(function):

        async def call_async(args: list[Any], kwargs: dict[str, Any], using: dict[str, Any] | None = None) -> Any:
            with _DjangoAttempt(args, kwargs) as attempt:
                return attempt.returns(await function(*attempt.context(takes_context), *args, **kwargs))

        return _named_like(call_async, function)

    def call(args: list[Any], kwargs: dict[str, Any], using: dict[str, Any] | None = None) -> Any:
        with _DjangoAttempt(args, kwargs) as attempt:
            return attempt.returns(function(*attempt.context(takes_context), *args, **kwargs))

    return _named_like(call, function)


def _named_like(call: Any, function: Any) -> Any:
    # Not by functools.wraps: the parameters are the wrapper's.
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(call, name, getattr(function, name))
    call.django_function = function
    return call


class _DjangoAttempt:
    """One attempt, as Django's signals and contexts show it."""

    def __init__(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._now: TaskContext = current_task()
        task = import_string(self._now.name).using(queue_name=self._now.queue)
        self._result = _result(task, task.backend, args, kwargs)
        started = timezone.now()
        _set(
            self._result,
            id=str(self._now.id),
            status=TaskResultStatus.RUNNING,
            enqueued_at=_made_at(self._now.id),
            started_at=started,
            last_attempted_at=started,
            worker_ids=[self._now.worker_id] * self._now.attempt,
        )

    def context(self, wanted: bool) -> tuple[DjangoTaskContext, ...]:
        return (DjangoTaskContext(task_result=self._result),) if wanted else ()

    def returns(self, value: Any) -> Any:
        """The value as JSON has it; TypeError if it can't be stored."""
        try:
            stored = normalize_json(value)
        except TypeError as e:
            raise TypeError(f"the result of {self._now.name} is not JSON serializable: {e}") from e
        _set(self._result, _return_value=stored)
        return stored

    def __enter__(self) -> _DjangoAttempt:
        self._signal(task_started)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if error is None:
            _set(self._result, status=TaskResultStatus.SUCCESSFUL)
        else:
            path = f"{type(error).__module__}.{type(error).__qualname__}"
            self._result.errors.append(TaskError(exception_class_path=path, traceback=error_text(error, 64 * 1024)))
            is_last = self._now.attempt >= self._now.max_attempts
            _set(self._result, status=TaskResultStatus.FAILED if is_last else TaskResultStatus.READY)
        _set(self._result, finished_at=timezone.now())
        self._signal(task_finished)

    def _signal(self, signal: Any) -> None:
        signal.send(type(self._result.task.get_backend()), task_result=self._result)


def _made_at(task_id: UUID) -> Any:
    """When the task was submitted: its id begins with the milliseconds. So it is the same before and after storing."""
    return _in_djangos_zone(datetime.fromtimestamp((task_id.int >> 80) / 1000, UTC))


# ---- results ----


def _result(task: DjangoTask, alias: str, args: list[Any], kwargs: dict[str, Any]) -> TaskResult:
    return TaskResult(
        task=task,
        id="",
        status=TaskResultStatus.READY,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def _result_of(task: Task) -> TaskResult:
    """The result from a row."""
    using = task.kwargs.get("using") or {}
    run_after = datetime.fromisoformat(using["run_after"]) if "run_after" in using else None
    made = _django_task(task).using(
        priority=using.get("priority", task.priority),
        queue_name=task.queue,
        run_after=run_after,
        backend=using.get("backend"),
    )
    result = _result(made, made.backend, task.kwargs["args"], task.kwargs["kwargs"])
    history = [entry for entry in task.history or [] if entry.get("worker")]
    started = datetime.fromisoformat(history[0]["started_at"]) if history else task.started_at
    _set(
        result,
        id=str(task.id),
        status=_STATUS[TaskState(task.state)],
        enqueued_at=_made_at(task.id),
        started_at=_in_djangos_zone(started),
        last_attempted_at=_in_djangos_zone(task.started_at),
        finished_at=_in_djangos_zone(task.completed_at),
        errors=_errors(task, history),
        worker_ids=_workers(task, history),
        _return_value=task.result,
    )
    return result


def _django_task(task: Task) -> DjangoTask:
    """The task of a row; ImportError if it is gone, TaskResultDoesNotExist if it is TaskLib's own."""
    try:
        found = import_string(task.name)
    except ImportError:
        if "." in task.name and task.name not in registry.functions:
            raise
        found = None
    if not isinstance(found, DjangoTask):
        raise TaskResultDoesNotExist(str(task.id))
    return found


def _errors(task: Task, history: list[dict[str, Any]]) -> list[TaskError]:
    texts = [entry["error"] for entry in history if entry.get("error")]
    if texts and task.error:
        texts[-1] = task.error  # in full: the history has only the end of it
    return [TaskError(exception_class_path=_class_path(text), traceback=text + "\n") for text in texts]


def _class_path(traceback: str) -> str:
    """The class of the exception that a traceback ends with."""
    lines = traceback.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    # The first line that is not part of a frame; its message may go on below it.
    for line in lines[frames[-1] if frames else 0 :]:
        if match := _RAISED.match(line):
            name = match[1]
            return f"builtins.{name}" if isinstance(getattr(builtins, name, None), type) else name
    return "builtins.Exception"


def _workers(task: Task, history: list[dict[str, Any]]) -> list[str]:
    """One entry for each attempt. Of an attempt that succeeded, the row no longer says which worker made it."""
    tried = [entry["worker"] for entry in history]
    return [*tried, task.worker_id or ""] if task.state in (TaskState.RUNNING, TaskState.COMPLETED) else tried


def _in_djangos_zone(moment: datetime | None) -> Any:
    if moment is None:
        return None
    from django.conf import settings

    return moment.astimezone(UTC) if settings.USE_TZ else timezone.make_naive(moment)


def _set(result: TaskResult, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(result, name, value)  # Django freezes it
