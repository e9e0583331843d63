"""`beat_schedule` and `add_periodic_task` as schedules of TaskLib, which the leader of the workers runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tasklib.celery.binding import HEADER, payload_of_unknown
from tasklib.celery.exceptions import ImproperlyConfigured, NotRegistered
from tasklib.celery.schedules import crontab, maybe_schedule
from tasklib.celery.schedules import schedule as Interval
from tasklib.celery.submitting import asked
from tasklib.schedules import Schedule
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction

if TYPE_CHECKING:
    from tasklib.celery.app import Celery

_NOT_HERE = ("countdown", "eta", "link", "link_error", "task_id", "connection")


def declare(app: Celery, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the entries to the schedules of their task functions, in place of those of the same names."""
    for name, entry in entries.items():
        function, made = declared(app, name, entry)
        others = [known for known in function.schedules if known.name != name]
        function.schedules = (*others, made)


def declared(app: Celery, name: str, entry: Mapping[str, Any]) -> tuple[TaskFunction[..., Any], Schedule]:
    """One entry as a schedule, and the task function it is of."""
    task = entry.get("task")
    if task not in app.tasks and task not in registry.functions:
        raise NotRegistered(f"beat_schedule[{name!r}] names the task {task!r}, which no imported module has.")
    function, binding = app.function_of(str(task))
    args, kwargs = entry.get("args") or (), entry.get("kwargs") or {}
    options = dict(entry.get("options") or {})
    if refused := [option for option in _NOT_HERE if options.get(option) is not None]:
        raise ImproperlyConfigured(f"beat_schedule[{name!r}]: the option {refused[0]} can't be said of a schedule.")
    expires = options.pop("expires", None)
    wish = asked(app, str(task), app.tasks.get(str(task)), options)
    payload = payload_of_unknown(args, kwargs) if binding is None else binding.payload(args, kwargs)
    header = {name: value for name, value in wish.header.items() if name != "expires"}
    if expires is not None:
        header["expires_after"] = _relative(name, expires)
    if header:
        payload[HEADER] = header
    said = wish.options
    return function, Schedule(
        **_rule(app, name, entry.get("schedule")),
        name=name,
        args=payload,
        queue=said.queue,
        priority=said.priority,
        max_retries=said.max_retries,
        timeout_seconds=said.timeout_seconds,
    )


def _rule(app: Celery, name: str, given: Any) -> dict[str, Any]:
    match maybe_schedule(given):
        case crontab() as cron:
            rule: dict[str, Any] = {"cron": cron.expression, "timezone": str(app.timezone)}
            return {**rule, "exclude": [cron.other_days]} if cron.other_days else rule
        case Interval() as interval:
            return {"every": interval.run_every}
        case Schedule() as schedule:
            return {"cron": schedule.cron, "every": schedule.every, "timezone": schedule.timezone}
    raise ImproperlyConfigured(
        f"beat_schedule[{name!r}]: its schedule is crontab(...), a timedelta or seconds, not {given!r}."
    )


def _relative(name: str, expires: Any) -> float:
    if isinstance(expires, timedelta):
        return expires.total_seconds()
    if isinstance(expires, int | float) and not isinstance(expires, bool):
        return float(expires)
    raise ImproperlyConfigured(f"beat_schedule[{name!r}]: expires is a number of seconds after each slot.")
