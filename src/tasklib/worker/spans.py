"""The span of an attempt, from its start to its outcome, in programs that trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tasklib import tracing
from tasklib.executors.outcomes import (
    Cancelled,
    Committed,
    Done,
    Failed,
    FailureKind,
    Lost,
    Outcome,
    Released,
    Suspended,
)
from tasklib.worker.attempt import Attempt

if TYPE_CHECKING:
    from tasklib.tracing.spans import Consumer


def begin_span(attempt: Attempt) -> None:
    """Give the attempt its span, unless tracing is off."""
    c = attempt.claimed
    attempt.span = tracing.attempting(c.id, c.name, c.queue, c.attempt, attempt.worker_id, attempt.trace_context)


def end_span(span: Consumer, outcome: Outcome) -> None:
    """End an attempt's span and say how the attempt ended."""
    match outcome:
        case Done() | Committed():
            span.end("completed")
        case Failed(_, (FailureKind.RETRY | FailureKind.THROTTLED) as kind):
            span.end(kind.value)  # what the task asked for is no error
        case Failed(error, kind):
            span.end(kind.value, error, outcome.raised)
        case Cancelled():
            span.end("cancelled")
        case Released():
            span.end("released")
        case Suspended():
            span.end("suspended")
        case Lost():
            span.end("lost")
        case _:
            assert_never(outcome)
