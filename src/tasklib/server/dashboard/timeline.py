"""What happened to a task, in words: its attempts, replays and what comes next; its progress and its trace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeGuard

from tasklib.formatting import last_line
from tasklib.models import Task
from tasklib.states import TaskState

_MOST_PROGRESS = 500


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A point in a task's life."""

    kind: str
    """Which colour it has: a state, or `replayed`."""
    title: str
    at: datetime | None
    seconds: float | None = None
    worker: str | None = None
    error: str | None = None
    """Its last line; None if it is the error that the page shows in full."""
    is_error_shown: bool = False
    """The page shows its error in full."""


def steps(task: Task) -> list[TimelineStep]:
    """What happened, the latest first: attempts, replays, and what comes next."""
    history = [e for e in task.history or [] if isinstance(e, dict)]
    found = [TimelineStep("pending", "Created", task.created_at)]
    for number, entry in enumerate(history):
        is_last = number == len(history) - 1
        if entry.get("outcome") == "replayed" and entry.get("completed_at"):
            found.append(_completed_before(entry))
        found.append(_entry(task, entry, shows_error=not (is_last and _is_this_error(task, entry))))
    if task.state == TaskState.RUNNING:
        found.append(TimelineStep("running", f"Attempt {task.attempts} runs", task.started_at, worker=task.worker_id))
    elif task.state == TaskState.COMPLETED:
        took = seconds_taken(task)
        title = f"Attempt {task.attempts} completed"
        found.append(TimelineStep("completed", title, task.completed_at, took, task.worker_id))
    elif task.state == TaskState.CANCELLED:
        found.append(TimelineStep("cancelled", "Cancelled", task.completed_at))
    elif task.state == TaskState.DEAD_LETTER:
        found.append(TimelineStep("dead_letter", "Given up", task.completed_at))
    elif task.state == TaskState.FAILED:
        found.append(TimelineStep("failed", "Next attempt", task.next_retry_at))
    elif task.state == TaskState.PENDING:
        found.append(TimelineStep("pending", "Due", task.scheduled_at))
    return found[::-1]


def _entry(task: Task, entry: dict[str, Any], *, shows_error: bool) -> TimelineStep:
    outcome = str(entry.get("outcome") or "ended")[:100]
    ended, began = moment(entry.get("ended_at")), moment(entry.get("started_at"))
    if outcome == "replayed":
        was = str(entry.get("was") or "finished").replace("_", " ")
        return TimelineStep("replayed", f"Replayed; it was {was[:100]}", ended)
    kind = "cancelled" if outcome == "cancelled" else "failed"
    worker = entry.get("worker")
    line = last_line(str(entry.get("error") or "")) or None
    return TimelineStep(
        kind,
        f"Attempt {str(entry.get('attempt', '?'))[:20]}: {outcome.replace('_', ' ')}",
        ended,
        (ended - began).total_seconds() if ended and began else None,
        str(worker) if worker else None,
        line if shows_error else None,
        is_error_shown=not shows_error,
    )


def _completed_before(entry: dict[str, Any]) -> TimelineStep:
    """The attempt that had completed when the task was replayed."""
    ended, began, worker = moment(entry["completed_at"]), moment(entry.get("started_at")), entry.get("worker")
    return TimelineStep(
        "completed",
        f"Attempt {str(entry.get('attempt', '?'))[:20]} completed",
        ended,
        (ended - began).total_seconds() if ended and began else None,
        str(worker) if worker else None,
    )


def _is_this_error(task: Task, entry: dict[str, Any]) -> bool:
    """True if the error in full is the one of this attempt, whose end the history keeps."""
    return bool(task.error) and bool(entry.get("error")) and str(task.error).endswith(str(entry["error"]))


def progress_of(value: Any) -> tuple[float | None, str] | None:
    """The share that is done, if it says one, and the value in words."""
    if value is None:
        return None
    if isinstance(value, dict):
        return _share(value.get("done"), value.get("of", value.get("total"))), _short(value)
    return _share(value, 1 if isinstance(value, float) and value <= 1 else 100), _short(value)


def _share(part: object, whole: object) -> float | None:
    if not _is_number(part) or not _is_number(whole):
        return None
    share = float(part) / float(whole) if whole else -1.0
    return share if 0 <= share <= 1 else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:_MOST_PROGRESS]


def seconds_taken(task: Task) -> float | None:
    """How long its last attempt took."""
    if task.started_at is None or task.completed_at is None:
        return None
    return (task.completed_at - task.started_at).total_seconds()


def moment(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
