"""A trace goes from whoever submits, through the row, to the attempt: in the same trace, with every executor."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from subprocess import run
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI, Request, Response
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

import tasklib
from tasklib import AsyncClient, Client, Config, Reject, Retry, current_task, task
from tasklib.testing import inline
from tasklib.tracing import from_headers, trace_id_of
from tests.tracing import traced_tasks
from tests.tracing.conftest import Exported
from tests.worker.watching import burst, working

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def trace_of(span: ReadableSpan) -> str:
    return trace.format_trace_id(span.context.trace_id)


def id_of(span: ReadableSpan) -> str:
    return trace.format_span_id(span.context.span_id)


def parent_of(span: ReadableSpan) -> str:
    return f"00-{trace_of(span)}-{id_of(span)}-{span.context.trace_flags:02x}"


def is_child(span: ReadableSpan, of: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == of.context.span_id and trace_of(span) == trace_of(of)


async def test_a_trace_that_starts_in_a_web_request_ends_in_the_workers_span(config: Config, spans: Exported) -> None:
    @task(name="tracing.welcome")
    async def welcome(to: str) -> None:
        with spans.tracer.start_as_current_span("write letter"):
            current_task().logger.debug("in between")

    api = FastAPI()

    @api.middleware("http")
    async def traced(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        with spans.tracer.start_as_current_span("web request", kind=SpanKind.SERVER):
            return await call_next(request)

    @api.post("/sign-up")
    async def sign_up(email: str) -> str:
        return str(await welcome.submit(to=email))

    tasklib.init(config)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as browser:
        task_id = (await browser.post("/sign-up?email=ada")).json()
    watched = await burst(config)

    request, submit = spans.one("web request"), spans.one("submit tracing.welcome")
    process, inside = spans.one("process tracing.welcome"), spans.one("write letter")
    assert spans.descends(submit, request)  # FastAPI may have spans of its own in between
    assert is_child(process, submit)
    assert is_child(inside, process)
    assert [link.context.span_id for link in process.links] == [submit.context.span_id]
    assert (submit.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(submit.attributes or {}) == {
        "messaging.system": "tasklib",
        "messaging.operation.name": "submit",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": task_id,
        "tasklib.task.name": "tracing.welcome",
    }
    assert dict(process.attributes or {}) == {
        "messaging.system": "tasklib",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": task_id,
        "messaging.client.id": watched.worker.id,
        "tasklib.task.name": "tracing.welcome",
        "tasklib.task.attempt": 1,
        "tasklib.task.outcome": "completed",
    }
    assert (await watched.ended(task_id)).trace_id == trace_of(request)
    found = await tasklib.get_task(task_id)
    assert found is not None
    assert found.trace_id == trace_of(request)


@pytest.mark.parametrize(
    "function",
    [
        traced_tasks.on_the_loop,
        traced_tasks.in_a_thread,
        traced_tasks.in_a_child,
        traced_tasks.in_a_transaction,
    ],
    ids=["loop", "thread", "process", "transaction"],
)
async def test_the_attempts_span_is_current_in_every_executor(config: Config, spans: Exported, function: Any) -> None:
    tasklib.tasks.registry.register(function)
    async with AsyncClient(config) as client:
        with spans.tracer.start_as_current_span("here") as here:
            task_id = await client.submit_task(function)
        await burst(config)
        process = spans.one(f"process {function.name}")
        assert await client.wait_for(task_id) == {
            "trace_id": trace.format_trace_id(here.get_span_context().trace_id),
            "span_id": id_of(process),
            "told": trace_of(process),
        }


async def test_what_a_task_submits_is_in_its_trace_and_what_the_next_one_submits_is_not(
    config: Config, spans: Exported
) -> None:
    tasklib.init(config)

    @task(name="tracing.grandchild")
    async def grandchild() -> None: ...

    @task(name="tracing.parent")
    async def parent() -> None:
        await grandchild.submit()

    with Client(config) as client:
        client.submit_many(parent, [{}, {}], trace_context={"mine": "not W3C's"})
    await burst(config, concurrency=1)
    first, second = spans.named("process tracing.parent")
    assert trace_of(first) != trace_of(second)
    submits, ends = spans.named("submit tracing.grandchild"), spans.named("process tracing.grandchild")
    assert [trace_of(s) for s in submits] == [trace_of(first), trace_of(second)]
    assert {trace_of(s) for s in ends} == {trace_of(first), trace_of(second)}


def test_a_batch_has_one_span_that_all_its_tasks_carry(config: Config, spans: Exported, db: psycopg.Connection) -> None:
    @task(name="tracing.small", queue="mail")
    def small(n: int) -> None: ...

    with Client(config) as client:
        client.submit_many(small, [{"n": n} for n in range(150)])
        client.submit_many([small.bind(n=1), small.options(trace_context={"traceparent": PARENT}).bind(n=2)])
    large, mixed = spans.named("submit tracing.small")
    assert large.attributes is not None
    assert large.attributes["messaging.batch.message_count"] == 150
    rows = db.execute("SELECT trace_context ->> 'traceparent', count(*) FROM tasks GROUP BY 1").fetchall()
    assert dict(rows) == {
        parent_of(large): 150,
        parent_of(mixed): 1,
        PARENT: 1,
    }


async def test_baggage_travels_with_the_trace(config: Config, spans: Exported) -> None:
    @task(name="tracing.porter")
    async def porter() -> object:
        return baggage.get_baggage("tenant")

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    async with AsyncClient(config) as client:
        task_id = await client.submit_task(porter)
        context.detach(token)
        await burst(config)
        assert await client.wait_for(task_id) == "acme"


def status_of(span: ReadableSpan) -> tuple[StatusCode, Any, Any]:
    attributes = span.attributes or {}
    return span.status.status_code, attributes["tasklib.task.outcome"], attributes.get("error.type")


async def test_how_an_attempt_ended_is_in_its_span(config: Config, spans: Exported) -> None:
    @task(name="tracing.ends", max_retries=0)
    async def ends(how: str) -> None:
        match how:
            case "error":
                raise ValueError("no such customer")
            case "reject":
                raise Reject("not ours")
            case "retry":
                raise Retry(in_=3600)
            case _:
                await asyncio.sleep(3600)

    async with AsyncClient(config) as client:
        for how in ("error", "reject", "retry"):
            await client.submit_task(ends, how=how, max_retries=1 if how == "retry" else 0, delay_seconds=0)
        await client.submit_task(ends, how="timeout", timeout_seconds=1)
    await burst(config)
    ended = {status_of(span): span for span in spans.named("process tracing.ends")}
    assert set(ended) == {
        (StatusCode.ERROR, "error", "ValueError"),
        (StatusCode.ERROR, "rejected", "Reject"),
        (StatusCode.UNSET, "retry", None),
        (StatusCode.ERROR, "timeout", "TaskTimeout"),
    }
    [event] = ended[StatusCode.ERROR, "error", "ValueError"].events
    assert event.attributes is not None
    assert event.attributes["exception.message"] == "ValueError: no such customer"
    assert "Traceback" in str(event.attributes["exception.stacktrace"])


async def test_an_attempt_that_is_cancelled_says_so(config: Config, spans: Exported) -> None:
    @task(name="tracing.patient")
    async def patient() -> None:
        await asyncio.sleep(3600)

    async with AsyncClient(config) as client, working(config) as watched:
        task_id = await client.submit_task(patient)
        await watched.until(tasklib.events.TaskStarted)
        await client.cancel_task(task_id)
        await watched.ended(task_id, "cancelled")
    assert status_of(spans.one("process tracing.patient")) == (StatusCode.UNSET, "cancelled", None)


def test_a_submission_that_fails_is_an_error_of_its_span(config: Config, spans: Exported) -> None:
    @task(name="tracing.unlucky")
    def unlucky() -> None: ...

    with Client(config.with_changes(schema="nowhere")) as client, pytest.raises(tasklib.errors.SchemaError):
        client.submit_task(unlucky)
    span = spans.one("submit tracing.unlucky")
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, "SchemaError")


async def test_without_a_provider_a_trace_is_passed_on_and_none_is_begun(
    config: Config, db: psycopg.Connection
) -> None:
    tasklib.init(config)

    @task(name="tracing.second")
    async def second() -> None: ...

    @task(name="tracing.first")
    async def first() -> None:
        await second.submit()

    await first.submit()
    remote = SpanContext(int(TRACE, 16), 1, is_remote=True, trace_flags=TraceFlags(1))
    token = context.attach(trace.set_span_in_context(NonRecordingSpan(remote)))
    await first.submit()
    context.detach(token)
    await burst(config)
    rows = db.execute("SELECT name, trace_context FROM tasks ORDER BY id").fetchall()
    carried = {"traceparent": f"00-{TRACE}-{1:016x}-01"}
    assert sorted(rows, key=str) == sorted(
        [(f"tracing.{n}", c) for n in ("first", "second") for c in (None, carried)], key=str
    )


async def test_an_exporter_that_raises_harms_no_work(config: Config, spans: Exported) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("disk full")

        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("disk full")

    @task(name="tracing.sturdy")
    def sturdy() -> int:
        return 7

    spans.provider.add_span_processor(Broken())
    async with AsyncClient(config) as client:
        task_id = await client.submit_task(sturdy)
        await burst(config)
        assert await client.wait_for(task_id) == 7


def test_inline_tasks_are_in_the_trace_that_submits_them(spans: Exported) -> None:
    @task(name="tracing.inline")
    def here() -> str | None:
        return current_task().trace_id

    with inline() as ran, spans.tracer.start_as_current_span("test") as span:
        here.submit_sync()
    assert ran.tasks[0].result == trace.format_trace_id(span.get_span_context().trace_id)


def test_a_program_that_does_not_trace_does_not_import_opentelemetry() -> None:
    program = """
import sys, tasklib, tasklib.worker.worker, tasklib.observe.logs
from tasklib.testing import inline

@tasklib.task
def noop() -> None: ...

with inline() as ran:
    noop.submit_sync()
assert len(ran.tasks) == 1
print([name for name in sys.modules if name.partition(".")[0] in ("opentelemetry", "fastapi", "httpx", "jinja2")])
"""
    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("parent", "trace_id"),
    [
        (PARENT, TRACE),
        (PARENT.replace("00-", "cc-", 1) + "-more", TRACE),
        (PARENT.replace("00-", "ff-", 1), None),
        (PARENT.upper(), None),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (PARENT + "\n", None),
        ("", None),
        (7, None),
        (None, None),
    ],
)
def test_a_trace_id_is_read_from_what_is_w3cs(parent: Any, trace_id: str | None) -> None:
    assert trace_id_of({"traceparent": parent}) == trace_id
    assert trace_id_of(None) is None
    wanted = {"traceparent": parent} if trace_id else None
    assert from_headers({"traceparent": parent, "other": "x"}) == wanted


def test_a_state_that_is_too_long_is_left_behind() -> None:
    assert from_headers({"traceparent": PARENT, "tracestate": "a=1"}) == {"traceparent": PARENT, "tracestate": "a=1"}
    assert from_headers({"traceparent": PARENT, "tracestate": "a" * 513}) == {"traceparent": PARENT}


async def test_a_row_may_hold_anything_as_its_trace_context(
    config: Config, spans: Exported, db: psycopg.Connection
) -> None:
    @task(name="tracing.odd")
    async def odd() -> None: ...

    for value in ({"traceparent": 5}, {"traceparent": [PARENT]}, {"baggage": None}, {"tracestate": "?"}, [], 7, "x"):
        db.execute("INSERT INTO tasks (name, trace_context) VALUES ('tracing.odd', %s)", [json.dumps(value)])
    await burst(config)
    assert db.execute("SELECT state, count(*) FROM tasks GROUP BY 1").fetchall() == [("completed", 7)]
