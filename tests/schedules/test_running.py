"""A scheduled task function from the declaration to the run."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, Schedule, TaskContext, Worker, current_task, task
from tasklib.events import Event, SchedulesSynced, TaskEnded
from tasklib.executors import child_protocol
from tasklib.executors.child_limits import ChildLimits
from tests.eventually import soon


async def test_a_worker_stores_its_schedules_leads_and_runs_their_slots(config: Config, db: psycopg.Connection) -> None:
    seen: list[tuple[str | None, datetime | None]] = []
    seen_events: list[Event] = []

    @task(schedule=Schedule("* * * * * *", name="each second"))
    async def tick() -> None:
        context = current_task()
        seen.append((context.schedule, context.slot))

    worker = Worker(config.with_changes(leader_lease_seconds=3.0))
    worker.events.subscribe(seen_events.append)
    running = asyncio.create_task(worker.run())
    await soon(lambda: len(seen) >= 2)
    worker.stop()
    await running
    assert {name for name, _ in seen} == {"each second"}
    slots = [slot for _, slot in seen]
    assert all(slot is not None and slot.microsecond == 0 and slot.tzinfo is not None for slot in slots)
    assert len(set(slots)) == len(slots)
    [synced] = [event for event in seen_events if isinstance(event, SchedulesSynced)]
    assert synced.created == ("each second",)
    rows = db.execute("SELECT schedule, slot FROM tasks ORDER BY slot").fetchall()
    assert {slot for slot in slots if slot} <= {slot for _, slot in rows}


async def test_a_new_schedule_is_fired_at_its_slot_though_the_leader_sleeps_for_long(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasklib.maintenance.schedules.HORIZON_SECONDS", 3600.0)
    task(told)
    worker = Worker(config)
    running = asyncio.create_task(worker.run())
    await soon(lambda: db.execute("SELECT FROM leadership").rowcount == 1)

    def fired() -> int:
        return db.execute("SELECT FROM tasks WHERE slot IS NOT NULL").rowcount

    async with AsyncClient(config) as client:
        await client.create_schedule("told", Schedule(every=timedelta(seconds=1)), name="each second")
        await soon(lambda: fired() >= 1)
        await client.pause_schedule("each second")
        before = fired()
        await client.resume_schedule("each second")
        await soon(lambda: fired() > before)
    worker.stop()
    await running


async def test_a_run_knows_its_slot_and_a_plain_task_has_none(config: Config, db: psycopg.Connection) -> None:
    task(told)
    client = Client(config)
    client.create_schedule("told", Schedule(every=timedelta(days=1)), name="daily")
    slot = datetime(2026, 3, 29, tzinfo=UTC)
    client.backfill_schedule("daily", start=slot, end=slot)
    by_hand = client.run_schedule("daily")
    plain = client.submit_task("told", trace_context={"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"})
    client.close()
    worker = Worker(config, burst=True)
    ended: list[Event] = []
    worker.events.subscribe(ended.append)
    await worker.run()
    results = {row[0]: row[1]["value"] for row in db.execute("SELECT id, result FROM tasks")}
    trace = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
    assert results.pop(by_hand) == ["daily", None, None]
    assert results.pop(plain) == [None, None, trace]
    assert list(results.values()) == [["daily", "2026-03-29T00:00:00+00:00", None]]
    assert all(event.state == "completed" for event in ended if isinstance(event, TaskEnded))


def test_a_child_process_is_told_the_slot_too() -> None:
    slot = datetime(2026, 3, 29, tzinfo=UTC)
    context = TaskContext(uuid4(), "told", 1, 4, 1, "default", "w", schedule="daily", slot=slot)
    sent = json.loads(json.dumps(child_protocol.described(context)))
    rebuilt = child_protocol.rebuilt(sent, "{}", lambda _: None, ChildLimits(lambda _: None))
    assert (rebuilt.schedule, rebuilt.slot) == ("daily", slot)


def told() -> list[object]:
    context = current_task()
    slot = None if context.slot is None else context.slot.astimezone(UTC).isoformat()
    return [context.schedule, slot, context.trace_context]
