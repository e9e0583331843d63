"""Sentry: failed attempts as errors, submissions and attempts in one trace, schedules as monitors.

    sentry_sdk.init(dsn=..., integrations=[TaskLibIntegration()])

Call it in a module that the worker imports: its child processes import it too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

try:
    import sentry_sdk
    from sentry_sdk._types import AnnotatedValue
    from sentry_sdk.consts import OP, SPANDATA
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations import Integration
    from sentry_sdk.tracing import TransactionSource
    from sentry_sdk.utils import event_from_exception, safe_repr
except ImportError as e:
    raise ImportError(f"tasklib.sentry needs sentry-sdk 2 ({e}): pip install 'tasklib-pg[sentry]'") from e

from tasklib import errors
from tasklib.events import Event, LeasesRescued, TaskEnded
from tasklib.tasks import registry
from tasklib.tasks.context import TaskContext
from tasklib.tasks.hooks import Submitting, around_attempts, around_submissions, on_event, on_shutdown
from tasklib.tasks.masking import MASK, Mask, mask_of_attempt, masked_value
from tasklib.tasks.retry import Reject, Retry, Throttled
from tasklib.tasks.sealing import SEALED_TEXT

if TYPE_CHECKING:
    from tasklib.schedules import Schedule

__all__ = ["TaskLibIntegration"]

_ORIGIN = "auto.queue.tasklib"
_IDS = ("event_id", "trace_id", "span_id", "parent_span_id", "timestamp", "start_timestamp")
"""Parts of an event that Sentry makes itself."""
_FLUSH_SECONDS = 2.0
_LONGEST_SLUG = 50
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


class TaskLibIntegration(Integration):
    """What Sentry learns of tasks.

    `every_attempt=False` reports a task that fails only when it has no retry left. `monitors=True` sends a check-in for
    each slot of a schedule: the monitor has the schedule's name.
    """

    identifier = "tasklib"

    def __init__(self, *, every_attempt: bool = True, monitors: bool = False) -> None:
        self.every_attempt = every_attempt
        self.monitors = monitors

    @staticmethod
    def setup_once() -> None:
        """Called by Sentry, once in each process."""
        around_attempts(_around_attempt)
        around_submissions(_around_submission)
        on_event(_on_event)
        on_shutdown(_flush)


def _integration() -> TaskLibIntegration | None:
    """None if the program's Sentry has been shut down, or set up without TaskLib."""
    found: TaskLibIntegration | None = sentry_sdk.get_client().get_integration(TaskLibIntegration)
    return found


def _around_submission(submitting: Submitting) -> Iterator[None]:
    if _integration() is None:
        yield
        return
    name = ", ".join(sorted(submitting.names)[:5])
    with sentry_sdk.start_span(op=OP.QUEUE_PUBLISH, name=name, origin=_ORIGIN) as span:
        span.set_data(SPANDATA.MESSAGING_SYSTEM, "tasklib")
        span.set_data(SPANDATA.MESSAGING_DESTINATION_NAME, ", ".join(sorted(submitting.queues)[:5]))
        if submitting.task_id is not None:
            span.set_data(SPANDATA.MESSAGING_MESSAGE_ID, submitting.task_id)
        submitting.trace_context.update(_carried())
        yield


def _around_attempt(attempt: TaskContext) -> Iterator[None]:
    integration = _integration()
    if integration is None:
        yield
        return
    with ExitStack() as stack:
        scope = stack.enter_context(sentry_sdk.isolation_scope())
        scope.set_transaction_name(attempt.name, source=TransactionSource.TASK)
        for key, value in _tags(attempt).items():
            scope.set_tag(key, value)
        if (mask := mask_of_attempt(attempt)) is not None:
            function = registry.functions.get(attempt.name)
            is_sealed = function is not None and function.sealing is not None
            scope.add_event_processor(lambda event, _: _without_secrets(event, mask, is_sealed=is_sealed))
        _begin_transaction(stack, attempt)
        watched = integration.monitors and attempt.slot is not None and attempt.schedule is not None
        if watched:
            _check_in(attempt, "in_progress")
        try:
            yield
        except Exception as error:
            is_last = _is_last(attempt, error)
            if not isinstance(error, Retry | Throttled) and (is_last or integration.every_attempt):
                _capture()
            if watched and is_last:
                _check_in(attempt, "error")
            raise
        if watched:
            _check_in(attempt, "ok")


def _begin_transaction(stack: ExitStack, attempt: TaskContext) -> None:
    transaction = sentry_sdk.continue_trace(
        _headers(attempt.trace_context),
        op=OP.QUEUE_PROCESS,
        name=attempt.name,
        source=TransactionSource.TASK,
        origin=_ORIGIN,
    )
    span = stack.enter_context(sentry_sdk.start_transaction(transaction))
    span.set_data(SPANDATA.MESSAGING_SYSTEM, "tasklib")
    span.set_data(SPANDATA.MESSAGING_DESTINATION_NAME, attempt.queue)
    span.set_data(SPANDATA.MESSAGING_MESSAGE_ID, str(attempt.id))
    span.set_data(SPANDATA.MESSAGING_MESSAGE_RETRY_COUNT, attempt.attempt - 1)


def _tags(attempt: TaskContext) -> dict[str, str]:
    """What errors can be searched by: the attempt, and the tags that `@task` gives the function."""
    function = registry.functions.get(attempt.name)
    declared = (function.defaults.tags if function is not None else None) or {}
    known = {
        "tasklib.task": attempt.name,
        "tasklib.task_id": str(attempt.id),
        "tasklib.attempt": str(attempt.attempt),
        "tasklib.queue": attempt.queue,
        "tasklib.worker": attempt.worker_id,
        "tasklib.schedule": attempt.schedule,
        "tasklib.slot": None if attempt.slot is None else attempt.slot.isoformat(),
    }
    return {**{key: str(value) for key, value in declared.items()}, **{k: v for k, v in known.items() if v is not None}}


def _is_last(attempt: TaskContext, error: Exception) -> bool:
    """Whether the task ends with this error."""
    function = registry.functions.get(attempt.name)
    given_up: tuple[type[BaseException], ...] = (Reject, *(function.non_retriable if function is not None else ()))
    once = function is not None and function.at_most_once
    if isinstance(error, Retry | Throttled):
        return once
    return once or isinstance(error, given_up) or attempt.attempt >= attempt.max_attempts


def _capture() -> None:
    event, hint = event_from_exception(
        sys.exc_info(),
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": TaskLibIntegration.identifier, "handled": False},
    )
    sentry_sdk.capture_event(event, hint=hint)


# Secrets: errors, breadcrumbs and spans of an attempt quote arguments that its function hides or seals.


def _without_secrets(event: Any, mask: Mask, *, is_sealed: bool) -> Any:
    """An event as it may be sent; of the errors of a sealed task only their types: they can quote parts of secrets."""
    for error in (event.get("exception") or {}).get("values", ()):
        if is_sealed:
            error["value"] = MASK
        for frame in (error.get("stacktrace") or {}).get("frames", ()):
            if is_sealed:
                frame.pop("vars", None)
    return _masked(event, mask)


def _masked(value: Any, mask: Mask) -> Any:
    match _plain(value):
        case dict() as found:
            return {name: each if name in _IDS else _masked(each, mask) for name, each in found.items()}
        case list() | tuple() as found:
            return [_masked(each, mask) for each in found]
        case None | bool() | datetime() as found:
            return found
        case str() | int() | float() as found:
            return masked_value(found, mask)
        case found:
            return mask(safe_repr(found))


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, AnnotatedValue) else value


# What ends a task without an exception that passes through it: a timeout, a process that was killed, a lost worker.


def _on_event(event: Event) -> None:
    integration = _integration()
    if integration is None:
        return
    match event:
        case TaskEnded(error=str(error)) if not _was_raised(error):
            if integration.every_attempt or event.retry_in_seconds is None:
                _message(error.splitlines()[0], event.id, event.name, event.attempt)
        case LeasesRescued(tasks):
            for id_, name, state in tasks:
                if state == "dead_letter":
                    _message("WorkerLost: the worker was lost too often while it ran this task", id_, name)


def _was_raised(error: str) -> bool:
    kind, _, rest = error.partition(": ")
    if rest == SEALED_TEXT:  # then the type alone tells
        return not hasattr(errors, kind)
    return '  File "' in error or error.startswith(("Retry", "Reject", "Throttled"))


def _message(text: str, id_: str, name: str, attempt: int | None = None) -> None:
    with sentry_sdk.isolation_scope() as scope:
        scope.set_transaction_name(name, source=TransactionSource.TASK)
        scope.set_tag("tasklib.task", name)
        scope.set_tag("tasklib.task_id", id_)
        if attempt is not None:
            scope.set_tag("tasklib.attempt", str(attempt))
        scope.fingerprint = ["tasklib", name, text.partition(":")[0]]
        sentry_sdk.capture_message(text, level="error")


def _flush() -> None:
    sentry_sdk.flush(timeout=_FLUSH_SECONDS)


# Traces: in the row as W3C has them, so that programs with OpenTelemetry read them too.


def _carried() -> dict[str, str]:
    parts = (sentry_sdk.get_traceparent() or "").split("-")
    if len(parts) < 2:
        return {}
    trace_id, span_id, *sampled = parts
    carried = {"traceparent": f"00-{trace_id}-{span_id}-{'01' if sampled == ['1'] else '00'}"}
    if baggage := sentry_sdk.get_baggage():
        carried["baggage"] = baggage
    return carried


def _headers(context: Mapping[str, str] | None) -> dict[str, str]:
    """What Sentry continues."""
    parts = ((context or {}).get("traceparent") or "").split("-")
    if context is None or len(parts) != 4:
        return {}
    baggage = context.get("baggage", "")
    # Without Sentry's own baggage the flag was another tracer's decision, and not for Sentry.
    flag = f"-{int(parts[3] == '01')}" if "sentry-" in baggage else ""
    return {"sentry-trace": f"{parts[1]}-{parts[2]}{flag}", "baggage": baggage}


# Monitors: one check-in for each slot, whatever the number of attempts. Its id is the task's.


def _check_in(attempt: TaskContext, status: str) -> None:
    assert attempt.schedule is not None
    capture_checkin(
        monitor_slug=slug(attempt.schedule),
        check_in_id=attempt.id.hex,
        status=status,
        monitor_config=_monitor(attempt) if status == "in_progress" else None,
    )


def slug(name: str) -> str:
    """A schedule's name as Sentry names monitors."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:_LONGEST_SLUG] or "schedule"


def _monitor(attempt: TaskContext) -> Any:
    """How Sentry is to watch a schedule of this program; None for one made at run time, which it then must know."""
    function = registry.functions.get(attempt.name)
    for schedule in function.schedules if function is not None else ():
        if (schedule.name or attempt.name) == attempt.schedule:
            return monitor_config(schedule)
    return None


def monitor_config(schedule: Schedule) -> Any:
    """A schedule in Sentry's words; None if it has none for it: seconds, several expressions, exclusions, jitter."""
    rule = _rule(schedule)
    if rule is None or schedule.exclude or schedule.max_jitter > timedelta(minutes=1):
        return None
    return {"schedule": rule, "timezone": schedule.timezone, "checkin_margin": 5, "failure_issue_threshold": 1}


def _rule(schedule: Schedule) -> dict[str, Any] | None:
    if schedule.every is not None:
        seconds = schedule.every.total_seconds()
        for unit_seconds, unit in _UNITS:
            if seconds % unit_seconds == 0:
                return {"type": "interval", "value": int(seconds // unit_seconds), "unit": unit}
        return None
    [expression, *others] = schedule.cron or ("",)
    if others or not (expression.startswith("@") or len(expression.split()) == 5):
        return None
    return {"type": "crontab", "value": expression}
