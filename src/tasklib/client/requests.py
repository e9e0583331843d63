"""What both clients do before and after the database: no input or output here, so nothing has a colour."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tasklib.config import Config
from tasklib.db.query import Query
from tasklib.errors import (
    InvalidOption,
    TaskCancelled,
    TaskExecutionError,
    TaskFailed,
    TaskLibError,
    TaskNotFound,
    WaitTimeout,
)
from tasklib.models import Task
from tasklib.states import TaskState
from tasklib.store import lookup
from tasklib.store.submit import NewTask
from tasklib.tasks import registry
from tasklib.tasks.function import Submission, TaskFunction
from tasklib.tasks.ids import new_ids
from tasklib.tasks.options import MAX_NAME_BYTES, Options, is_name, json_option, priority_of, require_aware
from tasklib.tasks.payload import Unstorable, dump, limited

MAX_PAGE = 10_000
_FIRST_PAUSE, _PAUSE_GROWTH, _LONGEST_PAUSE = 0.01, 1.5, 0.5


def submission(
    target: object,
    args: tuple[Any, ...],
    options: Options,
    explicit: Mapping[str, Any] | None,
    arguments: Mapping[str, Any],
    *,
    also_given: Collection[str] = (),
    registered_elsewhere: bool = False,
) -> Submission:
    """Sort out one submit call: which task function, which keyword is an option and which an argument.

    `also_given` are the keywords that submit_task itself took, besides the options.
    """
    found = _target(target, registered_elsewhere)
    name = found if isinstance(found, str) else found.name
    if args:
        wanted = "" if isinstance(found, str) else ", ".join(f"{p}=..." for p in found.arguments.parameters)
        raise TaskExecutionError(
            f"{name} was given {len(args)} positional argument{'s' * (len(args) > 1)}; "
            f"tasks take their arguments by name: submit_task({name}{', ' if wanted else ''}{wanted}).",
            task=name,
        )
    if explicit is not None:
        if not isinstance(explicit, Mapping):
            raise TaskExecutionError(f"{name}: kwargs= takes a mapping of arguments, not {explicit!r}.", task=name)
        if arguments:
            raise TaskExecutionError(
                f"{name}: give all arguments in kwargs= or none; {', '.join(arguments)} came beside it.", task=name
            )
        return Submission(found, dict(explicit), options)
    if isinstance(found, TaskFunction):
        given = options.given().keys() | also_given
        if both := given & found.arguments.parameters.keys():
            option = min(both)
            raise TaskExecutionError(
                f"{option} is both an option of submit_task and a parameter of {name}, so this call is ambiguous. "
                f"Write {name}.options({option}=...).submit({option}=...), or pass the arguments as kwargs={{...}}.",
                task=name,
                field=option,
            )
    return Submission(found, arguments, options)


def new_tasks(submissions: Iterable[Submission], config: Config) -> list[NewTask]:
    """Check submissions and apply every default: call, then task function, then level, then configuration."""
    items = list(submissions)
    tasks = []
    for i, (id_, item) in enumerate(zip(new_ids(len(items)), items, strict=True)):
        try:
            tasks.append(_new_task(id_, item, config))
        except TaskLibError as e:
            if len(items) > 1:
                e.add_note(f"This was item {i} of {len(items)}; none of them was submitted.")
            raise
    return tasks


def _target(target: object, registered_elsewhere: bool) -> TaskFunction[Any, Any] | str:
    try:
        return registry.find(target)
    except TaskNotFound:
        if not registered_elsewhere or not isinstance(target, str):
            raise
    if not is_name(target):
        raise InvalidOption(f"a task's name is a string of 1 to {MAX_NAME_BYTES} bytes, not {target!r}.")
    return target


def _new_task(id_: UUID, item: Submission, config: Config) -> NewTask:
    if isinstance(item.target, str):
        name, options, kwargs = item.target, item.options, _plain_arguments(item.target, item.kwargs)
    else:
        name, options = item.target.name, item.options.over(item.target.defaults)
        kwargs = item.target.arguments.to_json(item.kwargs)
    priority, level = priority_of(options.priority, config)
    return NewTask(
        id=id_,
        name=name,
        queue=options.queue or "default",
        kwargs=_limited_arguments(name, kwargs, config),
        max_retries=_first(options.max_retries, level.max_retries if level else None, config.max_retries),
        timeout_seconds=options.timeout_seconds
        or (level.timeout_seconds if level else config.default_task_timeout_seconds),
        priority=priority,
        tags=json_option("tags", options.tags, config) if options.tags else "{}",
        required_capabilities=tuple(options.required_capabilities or ()),
        trace_context=json_option("trace_context", options.trace_context, config) if options.trace_context else None,
        delay_seconds=options.delay_seconds or None,
        scheduled_at=options.scheduled_at,
        idempotency_key=options.idempotency_key,
        idempotency_window=config.idempotency_window_seconds if options.idempotency_key else None,
    )


def _first(*values: int | None) -> int:
    return next(v for v in values if v is not None)


def _plain_arguments(name: str, kwargs: Mapping[str, Any]) -> str:
    try:
        return dump(dict(kwargs))
    except Unstorable as e:
        place = e.path or "arguments"
        raise TaskExecutionError(
            f"the arguments of {name} can't be stored: {place}: {e.reason}", task=name, field=place.split(".")[0]
        ) from e


def _limited_arguments(name: str, kwargs: str, config: Config) -> str:
    try:
        return limited(kwargs, config.max_payload_bytes, "the arguments")
    except Unstorable as e:
        raise TaskExecutionError(f"{name}: {e.reason}.", task=name) from e


def submissions_of(
    target: object, arguments: Iterable[Mapping[str, Any]] | None, options: Options, *, registered_elsewhere: bool
) -> list[Submission]:
    """The two forms of submit_many: a task function with many arguments, or ready submissions."""
    if arguments is None:
        if isinstance(target, str | TaskFunction) or not isinstance(target, Iterable):
            raise InvalidOption(
                "submit_many needs a list: submit_many(fn, [{...}, ...]) or submit_many([fn.bind(...), ...])."
            )
        items = list(target)
        for item in items:
            if not isinstance(item, Submission):
                raise InvalidOption(f"submit_many([...]) takes what task_function.bind(...) returns, not {item!r}.")
        _refuse_shared_key(options, sum(i.options.idempotency_key is None for i in items))
        return [Submission(i.target, i.kwargs, i.options.over(options)) for i in items]
    found = _target(target, registered_elsewhere)
    if isinstance(arguments, str | Mapping) or not isinstance(arguments, Iterable):
        raise InvalidOption(f"submit_many(fn, [...]) takes a list with the arguments of each task, not {arguments!r}.")
    items = []
    for a in arguments:
        if not isinstance(a, Mapping):
            raise InvalidOption(f"submit_many(fn, [...]) takes a mapping of arguments for each task, not {a!r}.")
        items.append(Submission(found, a, options))
    _refuse_shared_key(options, len(items))
    return items


def _refuse_shared_key(options: Options, count: int) -> None:
    if options.idempotency_key is not None and count > 1:
        raise InvalidOption(
            f"one idempotency_key for {count} tasks would leave only the first of them. Give each its own: "
            "submit_many([fn.options(idempotency_key=...).bind(...), ...])."
        )


def without_repeats(tasks: Sequence[NewTask]) -> list[NewTask]:
    """Of tasks that share a name and an idempotency key, only the first."""
    first: dict[tuple[str, str | None], NewTask] = {}
    for t in tasks:
        first.setdefault((t.name, t.idempotency_key), t)
    return list(first.values())


def ids_in_order(tasks: Sequence[NewTask], kept: Mapping[tuple[str, str], UUID]) -> list[UUID]:
    """The id of each task: its own, or that of the task that has its idempotency key."""
    return [t.id if t.idempotency_key is None else kept[t.name, t.idempotency_key] for t in tasks]


def listing(
    config: Config,
    *,
    state: str | Iterable[str] | None,
    name: str | None,
    queue: str | None,
    tags: Mapping[str, Any] | None,
    created_after: datetime | None,
    created_before: datetime | None,
    after: UUID | str | Task | None,
    limit: int,
) -> Query[list[Task]]:
    """One page of tasks, newest first."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidOption(f"limit must be from 1 to {MAX_PAGE}, not {limit!r}.")
    Options(queue=queue, tags=tags)  # checks them
    if name is not None and not is_name(name):
        raise InvalidOption(f"name must be a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
    for option, moment in (("created_after", created_after), ("created_before", created_before)):
        if moment is not None:
            require_aware(option, moment)
    return lookup.list_(
        states=None if state is None else _states(state),
        name=name,
        queue=queue,
        tags=json_option("tags", tags, config) if tags else None,
        created_after=created_after,
        created_before=created_before,
        after=None if after is None else after.id if isinstance(after, Task) else as_id(after),
        limit=limit,
    )


def _states(state: str | Iterable[str]) -> list[str]:
    wanted = [state] if isinstance(state, str) else list(state)
    try:
        return [TaskState(s).value for s in wanted]
    except ValueError as e:
        raise InvalidOption(f"{e}: a state is one of {', '.join(TaskState)}.") from None


def as_id(value: UUID | str) -> UUID:
    """A task id, also from its text form."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidOption(f"a task id is a UUID, not {value!r}.") from None


def known(task_id: UUID, outcome: lookup.Outcome | None) -> lookup.Outcome:
    """The outcome of a task that must exist."""
    if outcome is None:
        raise TaskNotFound.with_id(task_id)
    return outcome


def not_finished(task_id: UUID, outcome: lookup.Outcome | None) -> InvalidOption:
    state = known(task_id, outcome).state
    return InvalidOption(f"task {task_id} is {state}; only a completed, cancelled or dead_letter task can be replayed.")


def result_of(task_id: UUID, outcome: lookup.Outcome | None) -> tuple[bool, Any]:
    """(True, the result) if the task is done, (False, None) if it goes on; raises what the task ended with."""
    if outcome is None:
        raise TaskNotFound.with_id(task_id)
    match outcome.state:
        case TaskState.COMPLETED:
            return True, (outcome.result or {}).get("value")
        case TaskState.DEAD_LETTER:
            raise TaskFailed(task_id, outcome.name, outcome.error)
        case TaskState.CANCELLED:
            raise TaskCancelled(task_id, outcome.name)
    return False, None


def pauses(timeout: float | None) -> Iterator[float | None]:
    """Look at once, then after growing pauses; the last look, when the time is up, has no pause behind it."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0):
        raise InvalidOption(f"timeout must be 0 seconds or more, not {timeout!r}.")
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while deadline is None or (left := deadline - time.monotonic()) > 0:
        yield pause if deadline is None else min(pause, left)
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE)
    yield None


def still_waiting(task_id: UUID, outcome: lookup.Outcome | None, timeout: float | None) -> WaitTimeout:
    return WaitTimeout(task_id, outcome.state if outcome else "unknown", timeout or 0)
