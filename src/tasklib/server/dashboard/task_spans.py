"""A task's life to scale: how long each attempt waited and ran, and its steps and gathered tasks below.

Lengths are per mille of the whole; what isn't known is drawn as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tasklib.models import Task
from tasklib.server.dashboard.timeline import moment
from tasklib.states import TaskState
from tasklib.store.durable import RecordedStep
from tasklib.store.search import FoundTask

MOST_BARS = 60
"""Attempts, steps and gathered tasks each; of more, the latest are drawn."""
WIDTH = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time: `scheduled` (not due), `pending`, `unknown`, or how an attempt ended."""

    kind: str
    begin: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.begin).total_seconds())


@dataclass(frozen=True, slots=True)
class LifeLine:
    """One line of the chart."""

    title: str
    spans: Sequence[Span]
    link: str | None = None
    is_inner: bool = False
    """A step, or a task that this one waits for."""

    def seconds(self, *kinds: str) -> float | None:
        found = [s.seconds for s in self.spans if s.kind in kinds]
        return sum(found) if found else None

    @property
    def waited(self) -> float | None:
        return self.seconds("pending")

    @property
    def ran(self) -> float | None:
        return self.seconds("running", "completed", "failed", "cancelled", "dead_letter", "step")

    @property
    def state(self) -> str:
        return self.spans[-1].kind if self.spans else "unknown"


@dataclass(frozen=True, slots=True)
class LifeChart:
    """Lines on one axis of time."""

    begin: datetime
    end: datetime
    lines: Sequence[LifeLine]
    left_out: int = 0

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()

    def place(self, span: Span) -> tuple[float, float]:
        """Where it begins, and how long it is: never too short to be seen."""
        whole = self.seconds or 1.0
        x = WIDTH * (span.begin - self.begin).total_seconds() / whole
        width = max(2.0, WIDTH * span.seconds / whole)
        return round(min(max(0.0, x), WIDTH - width), 1), round(width, 1)


def life(task: Task, steps: Sequence[RecordedStep], children: Sequence[FoundTask], now: datetime) -> LifeChart:
    """The attempts, the latest last; then steps and gathered tasks."""
    attempts = _attempts(task, now)
    inner = [*_steps(steps, attempts), *(_child(child, now) for child in children)]
    lines = [*attempts[-MOST_BARS:], *inner[-MOST_BARS:]]
    spans = [span for line in lines for span in line.spans]
    begin = min((s.begin for s in spans), default=task.created_at)
    end = max((s.end for s in spans), default=now)
    return LifeChart(begin, end, lines, len(attempts) + len(inner) - len(lines))


def _attempts(task: Task, now: datetime) -> list[LifeLine]:
    lines: list[LifeLine] = []
    since, due = task.created_at, task.scheduled_at
    for entry in [e for e in task.history or [] if isinstance(e, dict)]:
        began, ended = moment(entry.get("started_at")), moment(entry.get("ended_at"))
        if entry.get("outcome") == "replayed":
            completed = moment(entry.get("completed_at"))
            if completed is not None:
                lines.append(_line(entry, since, due, began, completed, "completed"))
            since = due = ended or since
        elif ended is not None:
            kind = "cancelled" if entry.get("outcome") == "cancelled" else "failed"
            lines.append(_line(entry, since, due, began, ended, kind))
            since = due = ended
    return [*lines, *_latest(task, since, due, now)]


def _latest(task: Task, since: datetime, due: datetime, now: datetime) -> list[LifeLine]:
    """The attempt that the history doesn't have: one that runs, that completed, or that is to come."""
    title = f"Attempt {task.attempts}"
    if task.state == TaskState.RUNNING and task.started_at is not None:
        return [
            LifeLine(
                title,
                [*_waiting(since, due, task.started_at), Span("running", task.started_at, max(now, task.started_at))],
            )
        ]
    if task.state == TaskState.COMPLETED and task.completed_at is not None:
        began = task.started_at
        return [_line({"attempt": task.attempts}, since, due, began, task.completed_at, "completed")]
    if task.state in (TaskState.PENDING, TaskState.FAILED):
        until = task.next_retry_at if task.state == TaskState.FAILED and task.next_retry_at else due
        return [LifeLine("Waits", _waiting(since, until, max(now, since)))]
    return []


def _line(
    entry: dict[str, Any], since: datetime, due: datetime, began: datetime | None, ended: datetime, kind: str
) -> LifeLine:
    title = f"Attempt {str(entry.get('attempt', '?'))[:20]}"
    if began is None or began > ended:
        return LifeLine(title, [Span("unknown", min(since, ended), ended)])
    return LifeLine(title, [*_waiting(since, due, began), Span(kind, began, ended)])


def _waiting(since: datetime, due: datetime, until: datetime) -> list[Span]:
    """Before it was due, and after; neither if it began at once."""
    due = min(max(since, due), until)
    spans = [Span("scheduled", since, due), Span("pending", due, until)]
    return [s for s in spans if s.seconds > 0]


def _steps(steps: Iterable[RecordedStep], attempts: Sequence[LifeLine]) -> list[LifeLine]:
    """From the record before, or the beginning of the attempt, to the record: a step doesn't say when it began."""
    begins = sorted(
        s.begin for line in attempts for s in line.spans if s.kind not in ("scheduled", "pending", "unknown")
    )
    found: list[LifeLine] = []
    before: datetime | None = None
    for step in sorted(steps, key=lambda s: s.recorded_at):
        starts = [b for b in begins if b <= step.recorded_at][-1:] + ([before] if before else [])
        begin = max(starts) if starts else step.recorded_at
        title = f"{step.id.kind.value} {step.id.name}".strip()
        found.append(LifeLine(title, [Span("step", begin, step.recorded_at)], is_inner=True))
        before = step.recorded_at
    return found


def _child(task: FoundTask, now: datetime) -> LifeLine:
    began, ended = task.started_at, task.completed_at
    spans = _waiting(task.created_at, task.scheduled_at, began or ended or now)
    if began is not None:
        kind = task.state if ended or task.state == TaskState.RUNNING else "failed"
        spans.append(Span(kind, began, max(ended or now, began)))
    return LifeLine(task.name, spans, f"/tasks/{task.id}", is_inner=True)
