"""Task functions that tell which span they are in, for every executor."""

from __future__ import annotations

from opentelemetry import trace

from tasklib import current_task, task


def where_am_i() -> dict[str, str | None]:
    here = trace.get_current_span().get_span_context()
    return {
        "trace_id": trace.format_trace_id(here.trace_id),
        "span_id": trace.format_span_id(here.span_id),
        "told": current_task().trace_id,
    }


@task(name="traced.on_the_loop")
async def on_the_loop() -> dict[str, str | None]:
    return where_am_i()


@task(name="traced.in_a_thread")
def in_a_thread() -> dict[str, str | None]:
    return where_am_i()


@task(name="traced.in_a_child", executor="process")
def in_a_child() -> dict[str, str | None]:
    return where_am_i()


@task(name="traced.in_a_transaction", transactional=True)
async def in_a_transaction(connection: object) -> dict[str, str | None]:
    return where_am_i()
