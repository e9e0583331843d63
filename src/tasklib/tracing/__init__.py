"""Traces: which trace a task belongs to, and OpenTelemetry's spans around submissions and attempts.

A program that never imported `opentelemetry.trace` has neither spans nor an exporter. So tracing is on if that module
is in `sys.modules`: a program without tracing pays for one look-up, and imports nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType
    from uuid import UUID

    from tasklib.tracing.spans import Consumer, Producer

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_MOST_STATE = 512
API = "opentelemetry.trace"
"""In `sys.modules` if this program uses OpenTelemetry."""
HEADERS = ("traceparent", "tracestate")
"""What W3C Trace Context calls its headers."""


def trace_id_of(context: object) -> str | None:
    """The trace a context belongs to, as 32 hexadecimal digits; None if it is not W3C's. A row may hold any JSON."""
    parent = context.get("traceparent") if isinstance(context, Mapping) else None
    match = _TRACEPARENT.fullmatch(parent) if isinstance(parent, str) else None
    return match[1] if match else None


def trace_id_for(task_id: UUID | str, context: object) -> str:
    """The trace a task belongs to: the one it was submitted in, else one of its own, which has the task's id."""
    return trace_id_of(context) or str(task_id).replace("-", "")


def from_headers(headers: Mapping[str, str]) -> dict[str, str] | None:
    """The trace context that came with a request, or None without a valid one."""
    if trace_id_of(headers) is None:
        return None
    state = headers.get("tracestate", "")
    return {"traceparent": headers["traceparent"]} | ({"tracestate": state} if 0 < len(state) <= _MOST_STATE else {})


def has_span() -> bool:
    """Whether a span is current here, which a submission would be part of."""
    spans = _spans()
    return spans is not None and spans.has_span()


def current() -> dict[str, str]:
    """The context of the current span, as headers; empty without one."""
    spans = _spans()
    return spans.current() if spans is not None else {}


def submitting(names: set[str], queues: set[str], count: int, task_id: str | None) -> Producer | None:
    """The span of a call that submits so many tasks, or this one; None if tracing is off."""
    spans = _spans()
    return spans.producer(names, queues, count, task_id) if spans is not None else None


def attempting(
    task_id: str, name: str, queue: str, attempt: int, worker_id: str, context: Mapping[str, Any] | None
) -> Consumer | None:
    """The span of an attempt at a task that was submitted in this context; None if tracing is off."""
    spans = _spans()
    return spans.consumer(task_id, name, queue, attempt, worker_id, context) if spans is not None else None


def restore(context: Mapping[str, Any] | None) -> None:
    """Make what runs from here on, in this context of variables, part of the trace."""
    if context and (spans := _spans()) is not None:
        spans.restore(context)


def _spans() -> ModuleType | None:
    return _imported() if API in sys.modules else None


@cache
def _imported() -> ModuleType | None:
    try:
        from tasklib.tracing import spans
    except ImportError:  # a version of OpenTelemetry that we don't know: no reason not to work
        return None
    return spans
