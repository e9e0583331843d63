"""OpenTelemetry as a program sets it up, with an exporter that keeps what it is given; undone after the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Exported:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("the program")

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def descends(self, span: ReadableSpan, ancestor: ReadableSpan) -> bool:
        """Whether one span is part of another, at whatever depth."""
        by_id = {s.context.span_id: s for s in self.all}
        above: ReadableSpan | None = span
        while above is not None and above is not ancestor:
            above = by_id.get(above.parent.span_id) if above.parent is not None else None
        return above is ancestor


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    """A program that traces."""
    exported = Exported()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", exported.provider)
    yield exported
    exported.provider.shutdown()
