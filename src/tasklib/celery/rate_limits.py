"""`rate_limit`: "10/m" is ten starts in a minute. Celery counts them for each worker, TaskLib over the whole fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasklib.tasks.limits import Limit

if TYPE_CHECKING:
    from tasklib.celery.task import CeleryTask

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}


def rate_of(given: str | float | None) -> tuple[float, float] | None:
    """How many in how many seconds; None without a limit."""
    number, _, unit = str(given or 0).partition("/")
    try:
        rate, per = float(number), _SECONDS[unit]
    except (ValueError, KeyError):
        raise TypeError(f"rate_limit={given!r} should be like 10, '10/s', '10/m' or '10/h'.") from None
    return (rate, per) if rate else None


def limits_of(task: CeleryTask) -> list[Limit]:
    """That of a task, or of the setting `task_default_rate_limit`, as a limit of its function."""
    found = rate_of(task.app.conf.task_default_rate_limit if task.rate_limit is None else task.rate_limit)
    return [Limit(rate=found[0], per=found[1])] if found else []
