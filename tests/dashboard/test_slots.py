"""What the timeline of a worker's slots draws: known ends as they were, unknown ones as unknown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.db.database import AsyncDatabase
from tasklib.server.dashboard.slots import Sightings, SlotAttempt, drawn
from tasklib.server.dashboard.timeline import progress_of, steps
from tests.worker.watching import burst

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
RUNNING = """
    INSERT INTO tasks (name, state, worker_id, started_at, locked_until, lease_token)
    VALUES ('report', 'running', 'w1', now() - interval '5 minutes', now() + interval '1 h', 3) RETURNING id"""


def ran(since: float, until: float | None, state: str = "completed") -> SlotAttempt:
    end = None if until is None else NOW - timedelta(seconds=until)
    return SlotAttempt(uuid4(), "report", "w1", NOW - timedelta(seconds=since), end, state)


@pytest.fixture
async def database(config: Config) -> AsyncIterator[AsyncDatabase]:
    async with AsyncClient(config) as client:
        yield client.database


async def seen(sightings: Sightings, database: AsyncDatabase, id_: UUID) -> list[SlotAttempt]:
    return [run for run in await sightings.look(database, ["w1"]) if run.id == id_]


def test_a_worker_has_no_more_rows_than_slots_and_a_prefetched_task_begins_when_a_slot_is_free() -> None:
    first, second, prefetched = ran(600, 300), ran(600, 200), ran(599, 100)
    pieces = {piece.id: piece for piece in drawn([first, second, prefetched], NOW, slots=2)}
    assert {piece.row for piece in pieces.values()} == {0, 1}
    assert pieces[prefetched.id].row == pieces[first.id].row
    assert pieces[prefetched.id].x == pytest.approx(pieces[first.id].x + pieces[first.id].width, abs=0.01)


async def test_a_completed_task_is_drawn_on_its_worker_even_if_it_was_never_seen_running(
    config: Config, database: AsyncDatabase
) -> None:
    @task
    async def quick() -> None: ...

    async with AsyncClient(config) as client:
        task_id = await client.submit_task(quick)
        await burst(config)
        row = await client.get_task(task_id)
    assert row is not None
    [run] = await seen(Sightings(), database, task_id)
    assert (run.worker, run.state, run.started_at, run.ended_at) == (
        row.worker_id, "completed", row.started_at, row.completed_at,
    )  # fmt: skip


async def test_an_attempt_whose_task_runs_again_ends_when_its_history_says(
    database: AsyncDatabase, db: psycopg.Connection
) -> None:
    [id_] = db.execute(RUNNING).fetchone() or ()
    sightings = Sightings()
    await sightings.look(database, ["w1"])
    db.execute(
        """UPDATE tasks SET lease_token = 4, history = jsonb_build_array(jsonb_build_object(
           'token', 3, 'outcome', 'error', 'worker', 'w1', 'started_at', started_at,
           'ended_at', now() - interval '4 minutes'))"""
    )
    runs = {run.state: run for run in await seen(sightings, database, id_)}
    assert set(runs) == {"failed", "running"}
    ended = runs["failed"].ended_at
    assert ended is not None
    assert ended < runs["failed"].started_at + timedelta(seconds=90)


async def test_an_attempt_that_was_released_is_drawn_as_unknown_up_to_when_it_was_last_seen(
    database: AsyncDatabase, db: psycopg.Connection
) -> None:
    [id_] = db.execute(RUNNING).fetchone() or ()
    sightings = Sightings()
    [run] = await seen(sightings, database, id_)
    db.execute("UPDATE tasks SET state = 'pending', worker_id = NULL, locked_until = NULL, started_at = NULL")
    [gone] = await seen(sightings, database, id_)
    assert (gone.state, gone.ended_at) == ("unknown", run.seen_at)
    [piece] = drawn([gone], datetime.now(UTC), slots=1)
    assert piece.text.endswith("how it ended is not known")


async def test_the_attempt_that_had_completed_stays_on_record_after_a_replay(
    config: Config, database: AsyncDatabase
) -> None:
    @task
    async def again() -> None: ...

    async with AsyncClient(config) as client:
        task_id = await client.submit_task(again)
        await burst(config)
        before = await client.get_task(task_id)
        await client.replay_task(task_id)
        after = await client.get_task(task_id)
    assert before is not None
    assert after is not None
    assert after.worker_id is None
    [_, replayed, completed, _] = steps(after)
    assert (completed.title, completed.worker, completed.at) == (
        "Attempt 1 completed", before.worker_id, before.completed_at,
    )  # fmt: skip
    assert replayed.kind == "replayed"
    [run] = await seen(Sightings(), database, task_id)
    assert (run.state, run.ended_at) == ("completed", before.completed_at)


@pytest.mark.parametrize(
    ("value", "share"),
    [
        ({"done": 3, "of": 4}, 0.75),
        ({"done": 3, "total": 4}, 0.75),
        (0.5, 0.5),
        (50, 0.5),
        ({"done": 5, "of": 4}, None),
    ],
)
def test_progress_shows_a_bar_for_every_documented_form(value: object, share: float | None) -> None:
    found = progress_of(value)
    assert found is not None
    assert found[0] == share
