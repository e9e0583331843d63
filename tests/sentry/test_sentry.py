"""The real sentry-sdk, with a transport that keeps what would be sent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, Reject, Retry, Schedule, current_task, task
from tasklib.events import LeasesRescued, TaskEnded
from tasklib.tasks import hooks
from tasklib.testing import drain

sentry_sdk = pytest.importorskip("sentry_sdk", reason="is in the extra `sentry`, which `make test` installs")
from sentry_sdk.transport import Transport  # noqa: E402 - only if it is there

from tasklib import sentry  # noqa: E402 - likewise

Start = Callable[..., "Kept"]


class Kept(Transport):
    """What would have been sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.items: list[tuple[str, dict[str, Any]]] = []

    def capture_envelope(self, envelope: Any) -> None:
        self.items += [(item.headers["type"], item.payload.json) for item in envelope.items]

    def of(self, kind: str) -> list[dict[str, Any]]:
        sentry_sdk.flush()
        return [payload for type_, payload in self.items if type_ == kind]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return self.of("event")


@pytest.fixture
def start() -> Iterator[Start]:
    """Set Sentry up, as a program does."""
    with hooks.isolated():

        def start(**options: Any) -> Kept:
            kept = Kept()
            sentry_sdk.init(
                "https://key@sentry.invalid/1",
                transport=kept,
                default_integrations=False,
                traces_sample_rate=1.0,
                integrations=[sentry.TaskLibIntegration(**options)],
            )
            if not hooks.submission_hooks:  # the SDK sets an integration up once in a process
                sentry.TaskLibIntegration.setup_once()
            return kept

        yield start
        sentry_sdk.get_client().close()
        sentry_sdk.init()


async def test_a_failed_attempt_is_an_error_with_its_task_attempt_and_tags(config: Config, start: Start) -> None:
    kept = start()

    @task(queue="mail", max_retries=1, tags={"team": "billing", "size": 3})
    async def send(to: str) -> None:
        raise ConnectionRefusedError(f"no server for {to}")

    client = AsyncClient(config)
    task_id = await client.submit_task(send, to="ada")
    await drain(config, until_done=True)
    assert [error["tags"]["tasklib.attempt"] for error in kept.errors] == ["1", "2"]
    first = kept.errors[0]
    assert first["exception"]["values"][0]["type"] == "ConnectionRefusedError"
    assert first["exception"]["values"][0]["mechanism"] == {"type": "tasklib", "handled": False}
    assert first["transaction"] == send.name
    expected = {"tasklib.task": send.name, "tasklib.task_id": str(task_id), "team": "billing", "size": "3"}
    assert expected.items() <= first["tags"].items()
    assert first["tags"]["tasklib.queue"] == "mail"


async def test_only_the_last_attempt_is_reported_if_so_configured(config: Config, start: Start) -> None:
    kept = start(every_attempt=False)

    @task(max_retries=2)
    def fails() -> None:
        raise ValueError("no")

    @task(max_retries=5, non_retriable=KeyError)
    def hopeless(kind: str) -> None:
        raise Reject("never") if kind == "reject" else KeyError(kind)

    client = AsyncClient(config)
    await client.submit_task(fails)
    await client.submit_task(hopeless, kind="reject")
    await client.submit_task(hopeless, kind="key")
    await drain(config, until_done=True)
    told = [(e["tags"]["tasklib.task"], e["tags"]["tasklib.attempt"]) for e in kept.errors]
    assert sorted(told) == sorted([(fails.name, "3"), (hopeless.name, "1"), (hopeless.name, "1")])


async def test_a_retry_that_the_task_asks_for_is_no_error(config: Config, start: Start) -> None:
    kept = start()

    @task
    async def later() -> None:
        raise Retry(in_=0, reason="not yet")

    @task
    def fine() -> int:
        return 1

    client = AsyncClient(config)
    await client.submit_task(later)
    await client.submit_task(fine)
    await drain(config)
    assert kept.errors == []


async def test_attempts_on_one_loop_do_not_mix(config: Config, start: Start) -> None:
    kept = start()
    both = asyncio.Barrier(2)

    @task(max_retries=0)
    async def beside(name: str) -> None:
        sentry_sdk.set_tag("mine", name)
        await both.wait()
        raise ValueError(name)

    client = AsyncClient(config)
    ids = {name: str(await client.submit_task(beside, name=name)) for name in ("a", "b")}
    await drain(config, concurrency=2)
    told = {e["exception"]["values"][0]["value"]: e["tags"] for e in kept.errors}
    assert {name: (tags["mine"], tags["tasklib.task_id"]) for name, tags in told.items()} == {
        name: (name, id_) for name, id_ in ids.items()
    }


async def test_submission_and_attempt_are_one_trace(config: Config, db: psycopg.Connection, start: Start) -> None:
    kept = start()

    @task
    def work() -> None:
        with sentry_sdk.start_span(op="db", name="query"):
            pass

    client = AsyncClient(config)
    with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
        task_id = await client.submit_task(work)
    await drain(config)
    asked, ran = kept.of("transaction")
    assert (asked["transaction"], ran["transaction"]) == ("POST /orders", work.name)
    trace = asked["contexts"]["trace"]["trace_id"]
    assert ran["contexts"]["trace"]["trace_id"] == trace
    [submitting] = asked["spans"]
    assert (submitting["op"], ran["contexts"]["trace"]["op"]) == ("queue.publish", "queue.process")
    assert ran["contexts"]["trace"]["parent_span_id"] == submitting["span_id"]
    assert ran["contexts"]["trace"]["data"]["messaging.message.id"] == str(task_id)
    assert [span["op"] for span in ran["spans"]] == ["db"]
    assert (await client.get_task(task_id)).trace_id == trace


async def test_a_task_without_a_trace_starts_one(config: Config, db: psycopg.Connection, start: Start) -> None:
    kept = start()

    @task(name="sentry.from_sql")
    def work() -> None: ...

    db.execute("INSERT INTO tasks (name) VALUES ('sentry.from_sql')")
    await drain(config)
    [ran] = kept.of("transaction")
    assert ran["transaction"] == "sentry.from_sql"


async def test_slots_of_a_schedule_are_check_ins_of_its_monitor(config: Config, start: Start) -> None:
    kept = start(monitors=True)
    slot = datetime(2026, 3, 28, 2, tzinfo=UTC)

    @task(schedule=Schedule("0 3 * * *", timezone="Europe/Berlin", name="Nightly report"), max_retries=1)
    def report() -> None:
        if (current_task().slot, current_task().attempt) == (slot, 1):
            raise ValueError("once")

    with Client(config) as client:
        await asyncio.to_thread(client.sync_schedules)
        stretch: Any = {"start": slot, "end": slot + timedelta(days=1)}
        first, second = (await asyncio.to_thread(client.backfill_schedule, "Nightly report", **stretch)).task_ids
        await asyncio.to_thread(client.run_schedule, "Nightly report")  # without a slot: no check-in
        await drain(config, until_done=True)
    told = kept.of("check_in")
    assert {each["monitor_slug"] for each in told} == {"nightly-report"}
    by_task = {id_: [e["status"] for e in told if e["check_in_id"] == id_.hex] for id_ in (first, second)}
    assert list(by_task.values()) == [["in_progress", "in_progress", "ok"], ["in_progress", "ok"]]
    config_ = next(e["monitor_config"] for e in told if e["status"] == "in_progress")
    assert config_["schedule"] == {"type": "crontab", "value": "0 3 * * *"}
    assert config_["timezone"] == "Europe/Berlin"
    assert len(told) == 5


async def test_a_slot_that_fails_for_good_is_an_error_of_its_monitor(config: Config, start: Start) -> None:
    kept = start(monitors=True)

    @task(max_retries=1)
    def report() -> None:
        raise ValueError("always")

    with Client(config) as client:
        await asyncio.to_thread(client.create_schedule, report, "@daily", name="daily")
        slot = datetime(2026, 3, 28, tzinfo=UTC)
        await asyncio.to_thread(client.backfill_schedule, "daily", start=slot, end=slot)
        await drain(config, until_done=True)
    assert [each["status"] for each in kept.of("check_in")] == ["in_progress", "in_progress", "error"]
    assert "monitor_config" not in kept.of("check_in")[0], "it was made at run time: this program doesn't know it"


@pytest.mark.parametrize(
    ("schedule", "rule"),
    [
        (Schedule(every=timedelta(hours=2)), {"type": "interval", "value": 2, "unit": "hour"}),
        (Schedule(every=timedelta(minutes=90)), {"type": "interval", "value": 90, "unit": "minute"}),
        (Schedule(every=timedelta(seconds=90)), None),
        (Schedule("@hourly"), {"type": "crontab", "value": "@hourly"}),
        (Schedule("0 0 3 * * *"), None),
        (Schedule(["0 3 * * *", "0 4 * * *"]), None),
        (Schedule("0 3 * * *", exclude=["2026-12-25"]), None),
    ],
)
def test_a_monitor_is_described_where_sentry_has_words_for_it(schedule: Schedule, rule: Any) -> None:
    config = sentry.monitor_config(schedule)
    assert (config and config["schedule"]) == rule


@pytest.mark.parametrize(("name", "slug"), [("Nightly report", "nightly-report"), ("a/b é", "a-b"), ("é", "schedule")])
def test_monitors_are_named_after_schedules(name: str, slug: str) -> None:
    assert sentry.slug(name) == slug


def test_what_ends_an_attempt_without_an_exception_is_told_too(start: Start) -> None:
    kept = start()
    id_ = str(uuid4())
    timeout = "TaskTimeout: the attempt ran longer than its timeout of 1 s"
    raised = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: no'
    [(subscriber, _)] = hooks.subscribers
    for error in (timeout, raised):
        subscriber(TaskEnded(id_, "slow", 2, "failed", 1.0, error, retry_in_seconds=1.0))
    subscriber(LeasesRescued(((id_, "crashing", "dead_letter"), (id_, "crashing", "pending"))))
    first, second = kept.errors
    assert (first["message"], first["tags"]["tasklib.attempt"]) == (timeout, "2")
    assert second["message"].startswith("WorkerLost")


async def test_without_an_integration_nothing_is_sent(config: Config, start: Start) -> None:
    start()
    kept = Kept()
    sentry_sdk.init("https://key@sentry.invalid/1", transport=kept, default_integrations=False)

    @task(max_retries=0)
    def fails() -> None:
        raise ValueError("no")

    await AsyncClient(config).submit_task(fails)
    await drain(config)
    assert kept.errors == []


def test_a_child_process_sends_its_errors_itself(config: Config, tmp_path: Path) -> None:
    file = tmp_path / "sentry"
    environment = {
        **os.environ,
        "TASKLIB_DATABASE_URL": config.database_url,
        "TASKLIB_SCHEMA": config.schema or "",
        "TASKLIB_TEST_SENTRY_FILE": str(file),
    }
    with Client(config) as client:
        client.submit_task("fail_in_a_child", registered_elsewhere=True)
    command = [sys.executable, "-m", "tasklib", "worker", "tests.sentry.child_tasks", "--burst"]
    subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True)
    assert b"in a child" in file.read_bytes()
    assert file.read_bytes().count(b'"ValueError"') == 1
