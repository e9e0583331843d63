"""Replays as jobs: rate, canary, pause, stop, outcomes; each dead letter once, whatever happens in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import InvalidOption, ReplayNotFound
from tasklib.maintenance import replays as duty
from tasklib.maintenance.replays import work_replays
from tasklib.store import fleet, replays
from tasklib.store.audit import Action
from tasklib.store.filters import DeadLetterFilter
from tasklib.store.fleet import Term
from tasklib.store.replays import OpenReplay, Replay
from tests.eventually import soon

AN_ID = UUID("019345ab-1234-7abc-8def-0123456789ab")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
async def leader_db(config: Config) -> ReconnectingConnection:
    return ReconnectingConnection(config, "maintenance")


@pytest.fixture
async def term(leader_db: ReconnectingConnection) -> Term:
    term = await leader_db.run(fleet.lead("leader", 600))
    assert term is not None
    return term


@pytest.fixture
def client(config: Config) -> Any:
    with Client(config) as client:
        yield client


class Job:
    """The leader's rounds, one at a time."""

    def __init__(self, db: ReconnectingConnection, config: Config, term: Term, client: Client) -> None:
        self.db, self.config, self.term, self.client = db, config, term, client

    async def round(self, replay: Replay) -> Replay:
        await work_replays(self.db, self.config, self.term)
        return self.client.get_replay(replay.id)


@pytest.fixture
def job(leader_db: ReconnectingConnection, config: Config, term: Term, client: Client) -> Job:
    return Job(leader_db, config, term, client)


def die(db: psycopg.Connection, count: int, name: str = "send", error: str = "Boom: 1") -> None:
    db.execute(
        "INSERT INTO tasks (name, state, error, completed_at) "
        "SELECT %s, 'dead_letter', %s, now() - make_interval(secs => 1000 - n) FROM generate_series(1, %s) AS n",
        [name, error, count],
    )


def states(db: psycopg.Connection) -> dict[str, int]:
    return dict(db.execute("SELECT state, count(*) FROM tasks GROUP BY 1").fetchall())


def end(db: psycopg.Connection, state: str, limit: int = 1000) -> None:
    """What a worker would make of those that wait."""
    retry = "now() + interval '1 h'" if state == "failed" else "NULL"
    ended = "NULL" if state == "failed" else "clock_timestamp()"
    db.execute(
        f"UPDATE tasks SET state = '{state}', completed_at = {ended}, next_retry_at = {retry}, error = 'Again: 2' "
        f"WHERE id IN (SELECT id FROM tasks WHERE state = 'pending' ORDER BY id LIMIT {limit})".encode()
    )


async def test_all_are_replayed_once_and_their_outcomes_counted(job: Job, db: psycopg.Connection) -> None:
    die(db, 7)
    die(db, 2, "other")
    begun = job.client.start_replay(name="send", canary=False)
    assert (begun.status, begun.expected, begun.replayed) == ("running", 7, 0)
    now = await job.round(begun)
    assert (now.status, now.replayed, now.waiting) == ("done", 7, 7)
    assert states(db) == {"pending": 7, "dead_letter": 2}
    end(db, "completed", 4)
    end(db, "dead_letter", 2)
    end(db, "cancelled", 1)
    now = await job.round(begun)
    assert (now.completed, now.failed, now.dropped, now.waiting) == (4, 2, 1, 0)
    assert await job.round(begun) == now, "nothing is counted twice, and what failed again is not replayed"
    assert states(db) == {"completed": 4, "dead_letter": 4, "cancelled": 1}


async def test_a_task_that_was_deleted_is_dropped(job: Job, db: psycopg.Connection) -> None:
    die(db, 2)
    begun = job.client.start_replay(name="send", canary=False)
    await job.round(begun)
    db.execute("DELETE FROM tasks")
    now = await job.round(begun)
    assert (now.dropped, now.waiting) == (2, 0)
    assert db.execute("SELECT settled FROM replays").fetchall() == [(True,)]


async def test_the_rate_is_kept_and_a_pause_of_the_leader_is_not_made_up(job: Job, db: psycopg.Connection) -> None:
    die(db, 100)
    begun = job.client.start_replay(name="send", canary=False, per_minute=60)
    assert (await job.round(begun)).replayed == 1
    assert (await job.round(begun)).replayed == 1, "the next is due in a second"
    db.execute("UPDATE replays SET next_at = now() - interval '3 seconds'")
    assert (await job.round(begun)).replayed == 1 + 4
    db.execute("UPDATE replays SET next_at = now() - interval '1 hour'")
    assert (await job.round(begun)).replayed == 5 + 11, "ten seconds' worth, and the one that is due"


async def test_the_others_wait_until_the_canary_has_completed(job: Job, db: psycopg.Connection) -> None:
    die(db, 5)
    begun = job.client.start_replay(name="send")
    now = await job.round(begun)
    assert (now.replayed, now.canary) == (1, "waiting")
    assert (await job.round(begun)).replayed == 1
    db.execute("UPDATE tasks SET state = 'completed', completed_at = now() WHERE id = %s", [now.canary_task])
    now = await job.round(begun)
    assert (now.status, now.canary, now.replayed, now.completed) == ("done", "passed", 5, 1)


@pytest.mark.parametrize("state", ["failed", "dead_letter", "cancelled"])
async def test_a_canary_that_fails_pauses_the_replay_and_the_next_is_a_canary_again(
    job: Job, db: psycopg.Connection, state: str
) -> None:
    die(db, 5)
    begun = job.client.start_replay(name="send")
    await job.round(begun)
    end(db, state)
    now = await job.round(begun)
    assert (now.status, now.canary, now.replayed) == ("paused", "failed", 1)
    assert now.reason == f"the canary is {state.replace('_', ' ')}: Again: 2"
    assert (await job.round(begun)).replayed == 1
    resumed = job.client.resume_replay(begun.id)
    assert (resumed.status, resumed.canary, resumed.reason) == ("running", "wanted", None)
    now = await job.round(begun)
    assert (now.replayed, now.canary) == (2, "waiting")


async def test_a_paused_replay_takes_nothing_and_a_resumed_one_goes_on_where_it_was(
    job: Job, db: psycopg.Connection
) -> None:
    die(db, 9)
    begun = job.client.start_replay(name="send", canary=False, per_minute=6)
    await job.round(begun)
    job.client.pause_replay(begun.id)
    db.execute("UPDATE replays SET next_at = now() - interval '1 hour'")
    assert (await job.round(begun)).replayed == 1
    job.client.resume_replay(begun.id, per_minute=1_000_000)
    db.execute("UPDATE replays SET next_at = now() - interval '1 second'")
    now = await job.round(begun)
    assert (now.per_minute, now.replayed, now.status) == (1_000_000, 9, "done")


async def test_a_stopped_replay_is_over_and_what_it_replayed_is_counted(job: Job, db: psycopg.Connection) -> None:
    die(db, 3)
    begun = job.client.start_replay(name="send")
    await job.round(begun)
    assert job.client.stop_replay(begun.id).ended_at is not None
    end(db, "completed")
    now = await job.round(begun)
    assert (now.status, now.replayed, now.completed) == ("stopped", 1, 1)
    for call in (job.client.pause_replay, job.client.resume_replay, job.client.stop_replay):
        with pytest.raises(InvalidOption, match="is stopped; only one that is under way"):
            call(begun.id)
    assert states(db) == {"completed": 1, "dead_letter": 2}


async def test_dead_letters_of_other_causes_cost_a_bounded_look(
    job: Job, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty, "LOOK", 4)
    monkeypatch.setattr(duty, "MOST_STATEMENTS", 2)
    die(db, 30, "other")
    db.execute("UPDATE tasks SET completed_at = completed_at - interval '1 hour'")
    die(db, 2)
    begun = job.client.start_replay(name="send", canary=False)
    assert (await job.round(begun)).replayed == 0, "eight were looked at"
    for _ in range(3):
        await job.round(begun)
    now = await job.round(begun)
    assert (now.replayed, now.status) == (2, "done")
    assert states(db) == {"pending": 2, "dead_letter": 30}


async def test_rows_that_are_locked_are_taken_by_another_pass(
    job: Job, db: psycopg.Connection, database_url: str
) -> None:
    die(db, 3)
    begun = job.client.start_replay(name="send", canary=False)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM tasks ORDER BY completed_at LIMIT 1 FOR UPDATE")
        now = await job.round(begun)
        assert (now.status, now.replayed) == ("running", 2)
    assert (await job.round(begun)).replayed == 3
    assert (await job.round(begun)).status == "done"


async def test_what_is_given_up_after_the_beginning_is_left_alone(job: Job, db: psycopg.Connection) -> None:
    die(db, 1)
    begun = job.client.start_replay(name="send", canary=False)
    db.execute("INSERT INTO tasks (name, state, completed_at) VALUES ('send', 'dead_letter', clock_timestamp())")
    assert (await job.round(begun)).replayed == 1
    assert states(db) == {"pending": 1, "dead_letter": 1}


async def test_a_task_is_not_taken_twice_even_if_the_clock_went_back(job: Job, db: psycopg.Connection) -> None:
    die(db, 1)
    begun = job.client.start_replay(name="send", canary=False)
    await job.round(begun)
    db.execute("UPDATE tasks SET state = 'dead_letter', completed_at = now() - interval '1 hour'")
    db.execute("UPDATE replays SET status = 'running', settled = false, after_time = NULL")
    now = await job.round(begun)
    assert (now.replayed, now.status) == (1, "done")
    assert states(db) == {"dead_letter": 1}


async def test_a_stop_that_comes_while_a_batch_is_open_waits_for_it_and_nothing_follows(
    job: Job, db: psycopg.Connection, config: Config, database_url: str
) -> None:
    """Two sessions stepped: the batch has run and is not committed when the operator stops the replay."""
    die(db, 3)
    begun = job.client.start_replay(name="send", canary=False)
    chosen = OpenReplay(str(begun.id), DeadLetterFilter(name="send"))
    async with AsyncClient(config) as operator:
        with psycopg.connect(database_url) as leading:
            execute(leading, replays.advance(job.term, chosen, 1, 10, 5), None)
            stopping = asyncio.create_task(operator.stop_replay(begun.id))
            await soon(lambda: db.execute(WAITING).fetchall() == [(1,)])
            leading.commit()
        assert (await stopping).replayed == 1
    assert (await job.round(begun)).replayed == 1
    assert states(db) == {"pending": 1, "dead_letter": 2}


async def test_a_batch_that_waits_for_a_stop_finds_the_replay_stopped(
    job: Job, db: psycopg.Connection, config: Config, database_url: str
) -> None:
    """Two sessions stepped: the stop is not committed when the leader's batch comes."""
    die(db, 3)
    begun = job.client.start_replay(name="send", canary=False)
    with psycopg.connect(database_url) as operator:
        execute(operator, replays.change(begun.id, Action.STOP_REPLAY, by="ann"), None)
        batch = asyncio.create_task(work_replays(job.db, job.config, job.term))
        await soon(lambda: db.execute(WAITING).fetchall() == [(1,)])
        operator.commit()
    await batch
    assert states(db) == {"dead_letter": 3}


async def test_a_batch_that_is_rolled_back_leaves_nothing_half_done(
    job: Job, db: psycopg.Connection, config: Config, database_url: str
) -> None:
    die(db, 3)
    begun = job.client.start_replay(name="send", canary=False)
    chosen = OpenReplay(str(begun.id), DeadLetterFilter(name="send"))
    with psycopg.connect(database_url) as leading:
        execute(leading, replays.advance(job.term, chosen, 2, 10, 5), None)
        leading.rollback()
    assert job.client.get_replay(begun.id) == begun
    assert (await job.round(begun)).replayed == 3


@pytest.mark.parametrize("late", ["advance", "outcomes", "forget"])
async def test_an_ex_leader_changes_nothing(job: Job, db: psycopg.Connection, late: str) -> None:
    die(db, 2)
    begun = job.client.start_replay(name="send", per_minute=1, canary=False)
    await job.round(begun)
    end(db, "completed")
    db.execute("UPDATE replays SET next_at = now() - interval '1 h'")
    if late == "forget":
        db.execute("UPDATE replays SET settled = true, ended_at = now() - interval '90 days'")
    over = Term(job.term.holder, job.term.number - 1)
    statements: dict[str, Query[Any]] = {
        "advance": replays.advance(over, OpenReplay(str(begun.id), DeadLetterFilter(name="send")), 5, 5, 5),
        "outcomes": replays.outcomes(over, str(begun.id), 5),
        "forget": replays.forget(over, 86400, 5),
    }
    tables = ("tasks", "replays", "replayed_tasks")
    before = [db.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall() for table in tables]
    await job.db.run(statements[late])
    assert [db.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall() for table in tables] == before
    await job.db.run(replace(statements[late], parameters={**statements[late].parameters, **job.term.parameters()}))
    assert [db.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall() for table in tables] != before


async def test_replays_that_ended_long_ago_are_forgotten_in_batches(
    job: Job, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duty, "PAGE", 2)
    die(db, 5)
    begun = job.client.start_replay(name="send", canary=False)
    await job.round(begun)
    db.execute("DELETE FROM tasks")
    await job.round(begun)
    db.execute("UPDATE replays SET ended_at = now() - interval '29 days'")
    await job.round(begun)
    db.execute("UPDATE replays SET ended_at = now() - interval '31 days'")
    await work_replays(job.db, job.config, job.term)
    assert db.execute("SELECT count(*) FROM replayed_tasks").fetchall() == [(0,)]
    with pytest.raises(ReplayNotFound):
        job.client.get_replay(begun.id)


def test_the_same_dead_letters_are_replayed_by_one_job_at_a_time(client: Client, db: psycopg.Connection) -> None:
    die(db, 1)
    begun = client.start_replay(name="send")
    with pytest.raises(InvalidOption, match=f"are being replayed already: replay {begun.id}"):
        client.start_replay(name="send", per_minute=5)
    client.stop_replay(begun.id)
    again = client.start_replay(name="send")
    assert [r.id for r in client.replays()] == [again.id, begun.id]


def test_what_makes_no_sense_is_refused(client: Client, db: psycopg.Connection) -> None:
    with pytest.raises(InvalidOption, match="there is nothing to replay"):
        client.start_replay(name="nobody")
    with pytest.raises(InvalidOption, match="would replay every dead letter"):
        client.start_replay()
    for rate in (0, -1, float("nan"), float("inf"), True, "5"):
        with pytest.raises(InvalidOption, match="per_minute must be"):
            client.start_replay(name="send", per_minute=rate)  # type: ignore[arg-type]
    with pytest.raises(ReplayNotFound):
        client.stop_replay(AN_ID)
    assert client.replays() == []


async def test_a_replay_of_a_cause_is_found_by_its_fingerprint(client: Client, db: psycopg.Connection) -> None:
    die(db, 1)
    cause = client.dead_letter_groups()[0].fingerprint
    begun = client.start_replay(fingerprint=cause[:10])
    assert [r.id for r in client.replays(fingerprint=cause)] == [begun.id]
    assert client.replays(fingerprint="f" * 32) == []
