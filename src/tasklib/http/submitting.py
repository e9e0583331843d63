"""Submitting over HTTP: what is sent for each task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from tasklib import tracing
from tasklib.client.call_arguments import Alike
from tasklib.client.sealing import sealed_text, stored_key
from tasklib.client.submissions import Defaults, Submitted, parts_of, writer_of
from tasklib.errors import InvalidOption, TaskLibError
from tasklib.events import TaskSubmitted, client_events
from tasklib.http.requests import text_of
from tasklib.tasks.hooks import around_submission
from tasklib.tasks.ids import new_ids
from tasklib.tasks.options import Options
from tasklib.tasks.payload import dump
from tasklib.tasks.submitter import Submission
from tasklib.tasks.unstorable import UnstorableValue


@dataclass(frozen=True, slots=True)
class TaskToSend:
    """A task that is ready to be sent. Its id is made here, so that it can be sent twice and is stored once.

    A task of a flow has none: the id of the flow is enough.
    """

    id: UUID | None
    name: str
    kwargs: str
    options: Options

    @property
    def queue(self) -> str:
        return self.options.queue or "default"

    def as_json(self) -> str:
        """As the API takes it."""
        ids = {} if self.id is None else {"task_id": str(self.id)}
        return _as_json({**ids, "task_type": self.name}, self.options, self.kwargs)


def new_tasks(items: Alike | Sequence[Submission], ids: Sequence[UUID] | None, defaults: Defaults) -> list[TaskToSend]:
    """Check submissions as far as their functions are known here, and give them ids."""
    made: list[TaskToSend] = []
    all_ids = new_ids(len(items)) if ids is None else ids
    try:
        for id_, (target, arguments, options) in zip(all_ids, parts_of(items), strict=True):
            name, own = (target, None) if isinstance(target, str) else (target.name, target.defaults)
            text, said = writer_of(target)(arguments), options if own is None else options.over(own)
            if not isinstance(target, str) and target.sealing is not None:
                said = _with_hashed_key(defaults, target, said)
                _, text = sealed_text(defaults.config, target, id_, text)
            made.append(TaskToSend(id_, name, text, said))
    except TaskLibError as e:
        if len(items) > 1:
            e.add_note(f"This was item {len(made)} of {len(items)}; none of them was submitted.")
        raise
    return made


def _with_hashed_key(defaults: Defaults, target: Any, options: Options) -> Options:
    """The options of a sealed task: the server must not see its key, and can't make one of its arguments."""
    if options.unique or options.debounce or options.throttle:
        raise InvalidOption(
            f"{target.name} is sealed, so a server can't merge its submissions: omit unique, debounce and throttle, or "
            "submit it with an idempotency_key."
        )
    if options.idempotency_key is None:
        return options
    return replace(options, idempotency_key=stored_key(defaults, target, options.idempotency_key))


def edit_as_json(options: Options, kwargs: str | None) -> str:
    """What changes of a task, as the API takes it."""
    return _as_json({}, options, kwargs)


@contextmanager
def around(tasks: Sequence[TaskToSend]) -> Iterator[Mapping[str, str]]:
    """The span of the call that submits these tasks, and the program's own hooks; yields what the request carries."""
    task_id = str(tasks[0].id) if len(tasks) == 1 else None
    names, queues = {t.name for t in tasks}, {t.queue for t in tasks}
    with (
        (tracing.submitting(names, queues, len(tasks), task_id) if tasks else None) or nullcontext() as span,
        around_submission(names, queues, len(tasks), task_id) as carried,
    ):
        yield {**carried, **(span.carried if span is not None else {})}


def tell(tasks: Sequence[TaskToSend], stored: Sequence[Submitted], by: str, trace: Mapping[str, str] | None) -> None:
    """Emit an event for each submitted task to the subscribers of this program's clients."""
    for task, (id_, is_new) in zip(tasks, stored, strict=True):
        trace_id = tracing.trace_id_for(id_, task.options.trace_context or trace)
        client_events.emit_routine(TaskSubmitted(str(id_), task.name, task.queue, by, is_new, trace_id))


def _as_json(values: dict[str, str], options: Options, kwargs: str | None) -> str:
    given = options.given()
    # These may hold whatever Pydantic can turn into JSON, like the arguments.
    texts = {} if kwargs is None else {"parameters": kwargs}
    texts |= {name: _json(name, given.pop(name)) for name in ["tags", "trace_context"] if name in given}
    plain = [f"{json.dumps(name)}:{json.dumps(v, default=_plain)}" for name, v in {**values, **given}.items()]
    return f"{{{','.join([*plain, *(f'{json.dumps(name)}:{text}' for name, text in texts.items())])}}}"


def _json(option: str, value: Any) -> str:
    try:
        return dump(dict(value))
    except UnstorableValue as e:
        raise InvalidOption(f"{option}.{e.path} {e.reason}." if e.path else f"{option} {e.reason}.") from e


def _plain(value: object) -> Any:
    return list(value) if isinstance(value, tuple | frozenset | set) else text_of(value)
