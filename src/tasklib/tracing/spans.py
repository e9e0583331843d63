"""OpenTelemetry's side of tracing, by its conventions for messaging. Imported once a program uses OpenTelemetry.

The one who submits has a producer span, and each attempt a consumer span: a child of the producer's, in the same trace,
and linked to it. Spans live where the submission and the worker are, never in a child process, which can be killed.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

# W3C's, whatever else the program has chosen for its own requests: another program has to read it in the row.
_TRACE, _BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()
_READ = ("traceparent", "tracestate", "baggage")

P = ParamSpec("P")
T = TypeVar("T")

_tracer_of: tuple[trace.TracerProvider, trace.Tracer] | None = None


def _harmless(function: Callable[P, T]) -> Callable[P, T | None]:
    """Tracing must not disturb the work: an exporter of the program may raise anything."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except Exception:
            with suppress(Exception):  # nor may a filter or handler of its logging
                logging.getLogger("tasklib").exception("a span could not be made or ended")
            return None

    return guarded


class Producer:
    """The span of one call that submits; `carried` is what its tasks take with them."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.carried = _carried(trace.set_span_in_context(span))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._end(error)

    @_harmless
    def _end(self, error: BaseException | None) -> None:
        if isinstance(error, Exception):
            self._span.record_exception(error)
            _failed(self._span, type(error).__qualname__, str(error))
        self._span.end()


class Consumer:
    """The span of one attempt."""

    def __init__(self, span: Span, submitted: Context) -> None:
        self._span = span
        self._context = trace.set_span_in_context(span, submitted)

    @property
    @_harmless
    def trace_id(self) -> str | None:
        """The trace it belongs to."""
        found = self._span.get_span_context()
        return trace.format_trace_id(found.trace_id) if found.is_valid else None

    @property
    @_harmless
    def carried(self) -> dict[str, str] | None:
        """What a child process restores, to be part of this span."""
        return _carried(self._context)

    @_harmless
    def enter(self) -> None:
        """Make it the current span of the running asyncio task or thread, to the end of its context of variables."""
        contexts.attach(self._context)

    @_harmless
    def end(self, outcome: str, error: str | None = None, raised: str | None = None) -> None:
        """End it. An `error` is a traceback as text; `raised` is the name of the exception's class."""
        span = self._span
        if span.is_recording():
            span.set_attribute("tasklib.task.outcome", outcome)
            if error is not None:
                kind = raised or outcome
                message = error.rstrip().rpartition("\n")[2]
                span.add_event(
                    "exception",
                    {"exception.type": kind, "exception.message": message, "exception.stacktrace": error},
                )
                _failed(span, kind, message)
        span.end()


@_harmless
def producer(names: set[str], queues: set[str], count: int, task_id: str | None) -> Producer | None:
    if not _is_seen() and not has_span():
        return None
    attributes: dict[str, Any] = {"messaging.operation.name": "submit", "messaging.operation.type": "send"}
    if task_id is not None:
        attributes["messaging.message.id"] = task_id
    else:
        attributes["messaging.batch.message_count"] = count
    if len(names) == 1:
        attributes["tasklib.task.name"] = min(names)
    if len(queues) == 1:
        attributes["messaging.destination.name"] = min(queues)
    return Producer(_started("submit", names, SpanKind.PRODUCER, attributes))


@_harmless
def consumer(
    task_id: str, name: str, queue: str, attempt: int, worker_id: str, context: Mapping[str, Any] | None
) -> Consumer | None:
    if not context and not _is_seen():
        return None
    submitted = _context_of(context)
    attributes = {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": task_id,
        "messaging.destination.name": queue,
        "messaging.client.id": worker_id,
        "tasklib.task.name": name,
        "tasklib.task.attempt": attempt,
    }
    creator = trace.get_current_span(submitted).get_span_context()
    links = [Link(creator)] if creator.is_valid else []
    return Consumer(_started("process", {name}, SpanKind.CONSUMER, attributes, submitted, links), submitted)


def has_span() -> bool:
    return trace.get_current_span().get_span_context().is_valid


def current() -> dict[str, str]:
    return _carried(contexts.get_current())


@_harmless
def restore(context: Mapping[str, Any]) -> None:
    contexts.attach(_context_of(context))


def _started(
    operation: str,
    names: set[str],
    kind: SpanKind,
    attributes: dict[str, Any],
    parent: Context | None = None,
    links: list[Link] | None = None,
) -> Span:
    name = f"{operation} {min(names)}" if len(names) == 1 else operation
    given = {"messaging.system": "tasklib", **attributes}
    return _tracer().start_span(name, context=parent, kind=kind, attributes=given, links=links)


def _tracer() -> trace.Tracer:
    """The tracer of the program's provider. To ask for it takes longer than to use it."""
    global _tracer_of
    provider = trace.get_tracer_provider()
    if _tracer_of is None or _tracer_of[0] is not provider:
        _tracer_of = provider, provider.get_tracer("tasklib")
    return _tracer_of[1]


def _is_seen() -> bool:
    """Whether the program has said where spans go; OpenTelemetry's own placeholder drops them."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _carried(context: Context) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _TRACE.inject(carrier, context)
    _BAGGAGE.inject(carrier, context)
    return carrier


def _context_of(carrier: Mapping[str, Any] | None) -> Context:
    # A row may hold any JSON, and anything under these names.
    known = carrier if isinstance(carrier, Mapping) else {}
    given = {key: known[key] for key in _READ if isinstance(known.get(key), str)}
    return _BAGGAGE.extract(given, _TRACE.extract(given, Context()))


def _failed(span: Span, kind: str, message: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, message))
