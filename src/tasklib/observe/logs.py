"""Events of workers and clients as log lines: JSON or key=value, one for each transition, never arguments or results.

The keys are those of `current_task().logger`, so that one search finds the lines of both the worker and the task.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO, TypeAlias

import structlog
from pydantic_core import to_json

from tasklib.events import (
    BreakerMoved,
    CancelRequested,
    ChildrenSpawned,
    DatabaseAwaited,
    DatabaseBack,
    DatabaseLost,
    DutyFailed,
    Event,
    LeaseLost,
    LeasesRescued,
    NotificationsMissing,
    ResultRefused,
    SchedulesSynced,
    SlotsFired,
    SlotsSkipped,
    SlotStuck,
    TaskEnded,
    TaskNotBegun,
    TaskReplayed,
    TasksClaimed,
    TaskStarted,
    TaskSubmitted,
    WorkerDraining,
    WorkerStarted,
    WorkerStopped,
)
from tasklib.observe.formatting import last_line, printable, printable_json, short_id, was_given_back
from tasklib.tasks.masking import mask_here

_LEVELS = {"failed": "warning", "dead_letter": "error"}
_LEVEL_NAMES = {"warn": "warning", "exception": "error", "fatal": "critical"}
_FIRST_KEYS = ("event", "task_id", "task", "attempt", "state")


class LogLines:
    """A subscriber of `worker.events` or `client_events` that writes log lines.

    worker.events.subscribe(LogLines(log_to(sys.stderr, as_json=True)))
    """

    def __init__(self, logger: Any) -> None:
        self._log = logger
        self._worker = ""
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            WorkerStarted: self._worker_started,
            WorkerDraining: self._worker_draining,
            WorkerStopped: self._worker_stopped,
            TasksClaimed: self._claimed,
            TaskStarted: self._started,
            TaskEnded: self._ended,
            ResultRefused: self._refused,
            LeaseLost: self._lease_lost,
            SlotStuck: self._stuck,
            TaskNotBegun: self._not_begun,
            ChildrenSpawned: self._children_spawned,
            LeasesRescued: self._rescued,
            SchedulesSynced: self._schedules_synced,
            SlotsFired: self._slots_fired,
            SlotsSkipped: self._slots_skipped,
            BreakerMoved: self._breaker_moved,
            DutyFailed: self._duty_failed,
            DatabaseAwaited: self._database_awaited,
            NotificationsMissing: self._notifications_missing,
            DatabaseLost: self._database_lost,
            DatabaseBack: self._database_back,
            TaskSubmitted: self._submitted,
            CancelRequested: self._cancel_requested,
            TaskReplayed: self._replayed,
        }

    def __call__(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def _worker_started(self, event: WorkerStarted) -> None:
        self._worker = event.worker_id
        self._log.info(
            "worker started",
            worker=event.worker_id,
            tasks=list(event.names),
            queues=list(event.queues) if event.queues is not None else None,
            concurrency=event.concurrency,
            **({"shards": list(event.shards)} if event.shards else {}),
        )

    def _worker_draining(self, event: WorkerDraining) -> None:
        what = "worker stops at once" if event.now else "worker drains"
        self._log.info(what, worker=event.worker_id, running=event.running)

    def _worker_stopped(self, event: WorkerStopped) -> None:
        self._log.info("worker stopped", worker=event.worker_id)

    def _claimed(self, event: TasksClaimed) -> None:
        self._log.debug("tasks claimed", worker=self._worker, count=event.count, asked=event.asked)

    def _started(self, event: TaskStarted) -> None:
        self._log.debug("task started", **self._about(event), attempt=event.attempt, state="running")

    def _ended(self, event: TaskEnded) -> None:
        more: dict[str, Any] = {}
        if event.retry_in_seconds is not None:
            more["retry_in_seconds"] = round(event.retry_in_seconds, 3)
        if event.max_retries is not None and event.error:
            more["max_retries"] = event.max_retries
        if event.error:
            more["error"] = last_line(event.error, 500)
            if "\n" in event.error:
                more["traceback"] = event.error
        what = "task released" if was_given_back(event) else f"task {event.state.replace('_', ' ')}"
        write = getattr(self._log, "info" if was_given_back(event) else _LEVELS.get(event.state, "info"))
        seconds = round(event.seconds, 6)
        write(what, **self._about(event), attempt=event.attempt, state=event.state, seconds=seconds, **more)

    def _refused(self, event: ResultRefused) -> None:
        self._log.warning("result refused", **self._about(event), token=event.token)

    def _lease_lost(self, event: LeaseLost) -> None:
        self._log.warning("lease lost", **self._about(event), token=event.token)

    def _stuck(self, event: SlotStuck) -> None:
        self._log.warning("slot stuck", **self._about(event))

    def _not_begun(self, event: TaskNotBegun) -> None:
        self._log.error("task not begun", **self._about(event), reason=event.reason)

    def _children_spawned(self, event: ChildrenSpawned) -> None:
        self._log.warning("children spawned", reason=event.reason, worker=self._worker)

    def _rescued(self, event: LeasesRescued) -> None:
        for task_id, name, state in event.tasks:
            self._log.warning("task rescued", task_id=task_id, task=name, state=state, worker=self._worker)

    def _schedules_synced(self, event: SchedulesSynced) -> None:
        if event.created or event.changed or event.retired:
            self._log.info(
                "schedules stored",
                created=list(event.created),
                changed=list(event.changed),
                retired=list(event.retired),
                worker=self._worker,
            )
        if event.refused:
            self._log.warning("schedules refused", schedules=list(event.refused), worker=self._worker)

    def _slots_fired(self, event: SlotsFired) -> None:
        for schedule, task_id, slot in event.tasks:
            self._log.info("slot fired", task_id=task_id, schedule=schedule, slot=slot, worker=self._worker)

    def _breaker_moved(self, event: BreakerMoved) -> None:
        log = self._log.warning if event.state == "open" else self._log.info
        log(
            f"breaker {event.state}",
            task=event.name,
            attempts=event.attempts,
            failures=event.failures,
            until=None if event.until is None else event.until.isoformat(),
        )

    def _slots_skipped(self, event: SlotsSkipped) -> None:
        self._log.warning(
            "slots skipped",
            schedule=event.schedule,
            reason=event.reason,
            count=event.count,
            first=event.first.isoformat(),
            last=event.last.isoformat(),
            worker=self._worker,
        )

    def _duty_failed(self, event: DutyFailed) -> None:
        self._log.error("duty failed", duty=event.duty, reason=event.reason, worker=self._worker, **_shard(event))

    def _database_awaited(self, event: DatabaseAwaited) -> None:
        self._log.warning("waiting for the database", reason=event.reason, up_to_seconds=event.seconds, **_shard(event))

    def _notifications_missing(self, event: NotificationsMissing) -> None:
        what = "notifications do not arrive, polling instead"
        self._log.warning(
            what, reason=event.reason, poll_seconds=event.poll_seconds, worker=self._worker, **_shard(event)
        )

    def _database_lost(self, event: DatabaseLost) -> None:
        self._log.error(
            "database lost", purpose=event.purpose, reason=event.reason, worker=self._worker, **_shard(event)
        )

    def _database_back(self, event: DatabaseBack) -> None:
        # At the level of the loss, so that a log that has the one has the other.
        self._log.warning("database back", purpose=event.purpose, worker=self._worker, **_shard(event))

    def _submitted(self, event: TaskSubmitted) -> None:
        what = "task submitted" if event.is_new else "task submitted before"
        traced = {"trace_id": event.trace_id} if event.trace_id else {}
        self._log.info(what, task_id=event.id, task=event.name, queue=event.queue, by=event.by, **traced)

    def _cancel_requested(self, event: CancelRequested) -> None:
        self._log.info("task cancel requested", task_id=event.id, state=event.state, by=event.by)

    def _replayed(self, event: TaskReplayed) -> None:
        self._log.info("task replayed", task_id=event.id, state="pending", by=event.by)

    def _about(
        self, event: TaskStarted | TaskEnded | ResultRefused | LeaseLost | SlotStuck | TaskNotBegun
    ) -> dict[str, Any]:
        about = {"task_id": event.id, "task": event.name, "worker": self._worker}
        return about | {"trace_id": event.trace_id} if event.trace_id else about


def log_to(stream: TextIO, *, as_json: bool, level: int = logging.INFO) -> Any:
    """A structlog logger that writes lines to this stream, whatever the program has configured for itself."""
    lazy = structlog.wrap_logger(
        LineWriter(stream),
        processors=[stamped, renderer(as_json)],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    return lazy.bind()


LogLine: TypeAlias = MutableMapping[str, Any]


def stamped(_: Any, method: str, line: LogLine) -> LogLine:
    """The line with its time and level, and the keys one reads first in front."""
    # One dictionary, no further processors: a fast worker writes a line for each of its tasks.
    ordered: dict[str, Any] = {"time": datetime.now(UTC).isoformat(), "level": _LEVEL_NAMES.get(method, method)}
    for key in _FIRST_KEYS:
        if key in line:
            ordered[key] = line[key]
    return ordered | line  # type: ignore[operator, no-any-return]


def brief(_: Any, __: str, line: LogLine) -> LogLine:
    """For a person: the end of the id, as in the worker's own lines, and nothing that is the same in all of them."""
    line.pop("worker", None)
    if "task_id" in line:
        line["task_id"] = f"…{short_id(line['task_id'])}"
    return line


def harmless(_: Any, __: str, line: LogLine) -> LogLine:
    """For a terminal: no text in it can do more than be read, or look like another line."""
    for key, value in line.items():
        if isinstance(value, str):
            line[key] = printable(value, lines=key in ("exception", "stack"))
    return line


def write_traceback(stream: TextIO, exc_info: Any) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    mask = mask_here()
    stream.write(printable(text.getvalue() if mask is None else mask(text.getvalue()), lines=True))


def renderer(as_json: bool) -> Any:
    return _json if as_json else _logfmt


_as_logfmt = structlog.processors.LogfmtRenderer()


def _logfmt(logger: Any, method: str, line: LogLine) -> str:
    return printable(_as_logfmt(logger, method, line))


def _json(_: Any, __: str, line: LogLine) -> str:
    try:
        return printable_json(to_json(line, fallback=repr).decode())
    except ValueError:  # a lone surrogate, which the standard library writes as an escape
        return json.dumps(line, default=repr)


class LineWriter:
    """The last step of structlog: one write per line. A reader that went away is no reason to stop working."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(message + "\n")
            self._stream.flush()

    debug = info = warning = warn = error = critical = exception = fatal = log = msg


def _shard(event: DutyFailed | DatabaseAwaited | NotificationsMissing | DatabaseLost | DatabaseBack) -> dict[str, int]:
    """The shard that it is about, of a worker over several."""
    return {} if event.shard is None else {"shard": event.shard}
