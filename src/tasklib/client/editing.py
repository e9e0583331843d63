"""Changing a task that waits: its arguments and options, checked like those of a submission.

What can't be changed is refused, with the reason: arguments that others rely on, or that a worker has seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.client import validation
from tasklib.client.call_arguments import Target
from tasklib.client.effects import Call
from tasklib.client.identity import said_key
from tasklib.client.merging import THROTTLE
from tasklib.client.submissions import Defaults, SubmitCalls, refuse_too_long, writer_of
from tasklib.errors import TaskNotEditable, TaskNotFound
from tasklib.states import TaskState
from tasklib.store import control, lookup
from tasklib.store.control import EditLook, TaskEdit
from tasklib.tasks import registry
from tasklib.tasks.blobs import is_pointer
from tasklib.tasks.options import Options
from tasklib.tasks.sealing import key_capability, sealed_arguments
from tasklib.tasks.versions import capability

if TYPE_CHECKING:
    from tasklib.models import Task

_WAITING = (TaskState.PENDING, TaskState.FAILED)


class EditCalls(SubmitCalls):
    """The call that changes a waiting task."""

    def edit_task(
        self,
        task_id: UUID | str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int | str | None = None,
        delay_seconds: float | None = None,
        scheduled_at: datetime | None = None,
        max_retries: int | None = None,
        timeout_seconds: int | None = None,
        tags: Mapping[str, Any] | None = None,
        required_capabilities: Iterable[str] | None = None,
    ) -> Call[TaskState]:
        """Change a task that waits, and return its state. None means: as it is.

        `kwargs` are all its arguments, and `tags` all its tags. Raises TaskNotEditable if the task runs or is
        finished, if it began meanwhile, and for arguments that can't be changed: sealed ones, results of other tasks
        of a flow, those of a durable function that began, and those of a unique, debounced or throttled task.
        """
        task_id = validation.as_id(task_id)
        options = Options(
            delay_seconds, scheduled_at, max_retries, timeout_seconds, priority, tags, queue, required_capabilities
        )
        # The look comes first: what changes after it is noticed by the version.
        look: EditLook | None = yield control.edit_look(task_id, owner=self.identity.owner)
        task: Task | None = yield lookup.get(task_id, owner=self.identity.owner)
        if look is None or task is None:
            raise TaskNotFound.with_id(task_id)
        edit = edit_of(task, look, kwargs, options, self.defaults)
        if not edit:
            return TaskState(task.state)
        if edit.queue is not None and self.config.backpressure:
            yield from self._admit({f"queue:{edit.queue}"}, None)
        by, owner = self.identity.actor, self.identity.owner
        details = _details(task, edit)
        state: str | None = yield control.edit(task_id, edit, look.version, details, by=by, owner=owner)
        if state is None:
            raise _not_any_more(task_id, (yield lookup.outcome(task_id, owner=owner)))
        return TaskState(state)


def edit_of(
    task: Task, look: EditLook, kwargs: Mapping[str, Any] | None, options: Options, defaults: Defaults
) -> TaskEdit:
    """What of this task changes; empty if nothing does. Refuses what can't be changed."""
    if task.state not in _WAITING:
        raise TaskNotEditable(f"task {task.id} is {task.state}; only a task that waits can be edited.", task.id)
    target: Target = registry.functions.get(task.name) or task.name
    terms = defaults.terms(target, options)  # checks them
    edit = TaskEdit(
        kwargs=None if kwargs is None else _arguments(task, look, target, kwargs, defaults),
        queue=_other(options.queue, task.queue),
        priority=None if options.priority is None else _other(terms.priority, task.priority),
        max_retries=_other(options.max_retries, task.max_retries),
        timeout_seconds=_other(options.timeout_seconds, task.timeout_seconds),
        tags=None if options.tags is None or json.loads(terms.tags) == task.tags else terms.tags,
        required_capabilities=_required(task, options),
        delay_seconds=options.delay_seconds,
        scheduled_at=_other(options.scheduled_at, task.next_retry_at or task.scheduled_at),
    )
    if edit.queue is not None and look.holds_place:
        raise _refusal(task, "its queue", "it holds its place in a serial line until it is finished")
    if edit.delay_seconds is not None or edit.scheduled_at is not None:
        _refuse_time(task)
    return edit


def _other(said: Any, known: Any) -> Any:
    return None if said == known else said


def _required(task: Task, options: Options) -> list[str] | None:
    """Those that were given, and those that come from the arguments: their version, and the key that seals them."""
    if options.required_capabilities is None:
        return None
    required = set(options.required_capabilities)
    if task.payload_version is not None:
        required.add(capability(task.name, task.payload_version))
    if task.key_id is not None:
        required.add(key_capability(task.key_id))
    return None if required == set(task.required_capabilities) else sorted(required)


def _arguments(task: Task, look: EditLook, target: Target, kwargs: Mapping[str, Any], defaults: Defaults) -> str | None:
    """The arguments as they are stored; None if they are as before."""
    if kwargs == task.kwargs:
        return None
    if (because := _reason_against(task, look)) is not None:
        raise _refusal(task, "its arguments", because)
    if is_pointer(task.kwargs):
        raise _refusal(
            task, "its arguments", "they are in a payload store: cancel it, and submit it with other arguments"
        )
    if task.key_id is not None or (not isinstance(target, str) and target.sealing is not None):
        raise _refusal(task, "its arguments", "they are sealed: cancel it, and submit it with other arguments")
    if not isinstance(target, str) and target.version != task.payload_version:
        raise _refusal(
            task,
            "its arguments",
            f"they are of version {task.payload_version or 'none'}, and this program checks those of version "
            f"{target.version or 'none'}",
        )
    text: str = writer_of(target)(kwargs)
    refuse_too_long(task.name, text, defaults.config.max_payload_bytes)
    if sealed_arguments(text) is not None:
        raise _refusal(task, "its arguments", "sealed arguments belong to the task that they were sealed for")
    return None if json.loads(text) == task.kwargs else text


def _reason_against(task: Task, look: EditLook) -> str | None:
    """By what else the arguments were used already, so that they can't change any more."""
    if task.args:
        return f"{', '.join(task.args)} will be results of other tasks of its flow"
    if look.has_steps:
        return "its function has steps on record that were made with them: cancel it, and submit another one"
    if task.merge_key is not None:
        return "other submissions are merged by them: submit it again with on_duplicate='replace', or cancel it"
    if (said_key(task.idempotency_key, task.submitted_by) or "").startswith(THROTTLE):
        return "other submissions are throttled by them: cancel it, and submit another one"
    return "it holds its place in a serial line until it is finished" if look.holds_place else None


def _refuse_time(task: Task) -> None:
    if task.waits_for is not None:
        raise _refusal(task, "its time", "it waits for other tasks of its flow")
    if task.awaited_signals is not None:
        raise _refusal(task, "its time", "it is a durable function that sleeps, or waits for a signal")


def _refusal(task: Task, what: str, because: str) -> TaskNotEditable:
    return TaskNotEditable(f"{what} can't be edited: {because}. Task {task.id} is unchanged.", task.id)


def _not_any_more(task_id: UUID, outcome: lookup.Outcome | None) -> TaskNotEditable:
    state = validation.known(task_id, outcome).state
    what = "was changed in the meantime. Read it again" if state in _WAITING else f"is {state} by now"
    return TaskNotEditable(f"task {task_id} {what}; the edit changed nothing.", task_id)


def _details(task: Task, edit: TaskEdit) -> dict[str, Any]:
    """For the audit: options with what they were before; of arguments and tags only the names, which are no secrets."""
    options = {name: value for name, value in edit.given().items() if name not in ("kwargs", "tags")}
    was = {name: getattr(task, name) for name in options if name != "delay_seconds"}
    if edit.delay_seconds is not None or edit.scheduled_at is not None:
        was["scheduled_at"] = (task.next_retry_at or task.scheduled_at).isoformat()
    return {
        **options,
        "arguments": _changed(edit.kwargs, task.kwargs),
        "tags": _changed(edit.tags, task.tags),
        "was": was or None,
    }


def _changed(after: str | None, before: Mapping[str, Any]) -> list[str] | None:
    if after is None:
        return None
    values = json.loads(after)
    nothing = object()
    return sorted(k for k in {*values, *before} if values.get(k, nothing) != before.get(k, nothing))
