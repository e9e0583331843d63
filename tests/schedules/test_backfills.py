"""Backfills: slots that have passed are run, all at once or one by one, and no slot twice."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib import Client, Config, Schedule, current_task, task
from tasklib.errors import InvalidOption
from tasklib.store import schedules
from tasklib.testing import drain_sync

HOUR = timedelta(hours=1)
START = datetime(2026, 3, 28, 22, tzinfo=UTC)


def _waiting(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    query = "SELECT slot, waits_for IS NOT NULL FROM tasks WHERE flow IS NOT NULL ORDER BY slot"
    return [tuple(row) for row in db.execute(query).fetchall()]


def test_a_backfill_runs_each_slot_that_has_not_been_run_at_a_lower_priority(
    client: Client, db: psycopg.Connection, report: Any
) -> None:
    client.create_schedule(report, Schedule(every=HOUR, priority=50), name="nightly")
    db.execute("INSERT INTO tasks (name, schedule, slot) VALUES ('report', 'nightly', %s)", (START + HOUR,))
    end = START + 4 * HOUR
    dry = client.backfill_schedule("nightly", start=START, end=end, dry_run=True)
    assert (dry.count, dry.has_task, dry.task_ids, dry.overlap) == (5, 1, [], "allow")
    assert dry.slots == [START + n * HOUR for n in range(5)]
    done = client.backfill_schedule("nightly", start=START, end=end)
    assert (done.count, done.has_task, len(done.task_ids), done.flow) == (5, 1, 4, None)
    rows = db.execute("SELECT slot, priority FROM tasks WHERE priority <> 0 ORDER BY id").fetchall()
    assert rows == [(START + n * HOUR, 40) for n in (0, 2, 3, 4)]
    assert client.backfill_schedule("nightly", start=START, end=end).task_ids == []


def test_a_backfill_is_limited_and_never_of_the_future(client: Client, db: psycopg.Connection, report: Any) -> None:
    client.create_schedule(report, Schedule(every=HOUR), name="nightly")
    [(now,)] = db.execute("SELECT now()").fetchall()
    with pytest.raises(InvalidOption, match="more than 10 slots"):
        client.backfill_schedule("nightly", start=START, end=START + 10 * HOUR, limit=10)
    with pytest.raises(InvalidOption, match="has not passed yet"):
        client.backfill_schedule("nightly", start=START, end=now + HOUR)
    with pytest.raises(InvalidOption, match="later than end"):
        client.backfill_schedule("nightly", start=START, end=START - HOUR)
    with pytest.raises(InvalidOption, match="naive"):
        client.backfill_schedule("nightly", start=datetime(2026, 1, 1), end=START)
    with pytest.raises(InvalidOption, match="'allow' or 'one_by_one', not 'skip'"):
        client.backfill_schedule("nightly", start=START, end=START, overlap="skip")  # type: ignore[arg-type] # the error is the test


def test_a_backfill_one_by_one_runs_the_slots_in_order_and_never_two_at_a_time(
    config: Config, client: Client, db: psycopg.Connection
) -> None:
    seen: list[tuple[str, datetime | None]] = []

    @task(max_retries=0)
    async def report() -> None:
        seen.append(("begin", current_task().slot))
        await asyncio.sleep(0.01)
        seen.append(("end", current_task().slot))
        if current_task().slot == START + HOUR:
            raise ValueError("a failure doesn't end the backfill")

    client.create_schedule(report, Schedule(every=HOUR), name="nightly")
    done = client.backfill_schedule("nightly", start=START, end=START + 3 * HOUR, overlap="one_by_one")
    assert _waiting(db) == [(START + n * HOUR, n > 0) for n in range(4)]
    assert [client.get_task(id_).slot for id_ in done.task_ids] == done.slots
    drain_sync(config, concurrency=10, until_done=True)
    assert seen == [(what, START + n * HOUR) for n in range(4) for what in ("begin", "end")]
    assert done.flow is not None
    flow = client.get_flow(done.flow).info
    assert (flow.name, flow.finished_at is not None) == ("backfill of nightly", True)


def test_a_schedule_whose_runs_do_not_overlap_is_backfilled_one_by_one(client: Client, report: Any) -> None:
    client.create_schedule(report, Schedule(every=HOUR, overlap="skip"), name="nightly")
    stretch: Any = {"start": START, "end": START + HOUR}
    assert client.backfill_schedule("nightly", **stretch, dry_run=True).overlap == "one_by_one"
    assert client.backfill_schedule("nightly", **stretch, overlap="allow", dry_run=True).overlap == "allow"


def test_the_first_of_them_waits_for_runs_that_have_not_begun(
    config: Config, client: Client, db: psycopg.Connection
) -> None:
    order: list[Any] = []

    @task
    def report() -> None:
        order.append(current_task().slot)

    client.create_schedule(report, Schedule(every=HOUR, priority=-10), name="nightly")
    by_hand = client.run_schedule("nightly")
    client.backfill_schedule("nightly", start=START, end=START + HOUR, overlap="one_by_one", priority=100)
    client.backfill_schedule(
        "nightly", start=START + 2 * HOUR, end=START + 2 * HOUR, overlap="one_by_one", priority=100
    )
    assert _waiting(db) == [(START + n * HOUR, True) for n in range(3)]
    drain_sync(config, concurrency=10, until_done=True)
    assert client.get_task(by_hand).state == "completed"
    assert order == [None, *(START + n * HOUR for n in range(3))]


def test_a_backfill_one_by_one_is_refused_while_a_run_is_under_way(
    client: Client, db: psycopg.Connection, report: Any
) -> None:
    client.create_schedule(report, Schedule(every=HOUR, overlap="skip"), name="nightly")
    under_way = client.run_schedule("nightly")
    db.execute("UPDATE tasks SET state = 'running', worker_id = 'w', locked_until = now() + interval '1 h'")
    with pytest.raises(InvalidOption, match=f"under way, task {under_way}"):
        client.backfill_schedule("nightly", start=START, end=START + HOUR)
    assert db.execute("SELECT count(*) FROM flows").fetchall() == [(0,)]
    assert client.get_task(under_way).reports_to is None
    assert len(client.backfill_schedule("nightly", start=START, end=START + HOUR, overlap="allow").task_ids) == 2


def test_cancelling_its_flow_ends_a_backfill(config: Config, client: Client, report: Any) -> None:
    client.create_schedule(report, Schedule(every=HOUR), name="nightly")
    done = client.backfill_schedule("nightly", start=START, end=START + 3 * HOUR, overlap="one_by_one")
    assert done.flow is not None
    assert client.cancel_flow(done.flow).cancelled == 4
    assert {client.get_task(id_).state for id_ in done.task_ids} == {"cancelled"}


@pytest.mark.parametrize("overlap", ["allow", "one_by_one"])
def test_a_slot_that_gets_its_task_meanwhile_is_left_out(
    client: Client, db: psycopg.Connection, report: Any, monkeypatch: pytest.MonkeyPatch, overlap: Any
) -> None:
    client.create_schedule(report, Schedule(every=HOUR), name="nightly")
    statement = "run" if overlap == "allow" else "run_one_by_one"
    query, pending = getattr(schedules, statement), [START + HOUR]

    def late(*arguments: Any, **options: Any) -> Any:
        if pending:
            db.execute("INSERT INTO tasks (name, schedule, slot) VALUES ('report', 'nightly', %s)", (pending.pop(),))
        return query(*arguments, **options)

    monkeypatch.setattr(schedules, statement, late)
    done = client.backfill_schedule("nightly", start=START, end=START + 2 * HOUR, overlap=overlap)
    assert (len(done.task_ids), done.has_task) == (2, 1)
    [(tasks, flows)] = db.execute("SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM flows)").fetchall()
    assert (tasks, flows) == (3, 0 if overlap == "allow" else 1)
