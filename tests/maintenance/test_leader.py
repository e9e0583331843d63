"""Leadership: one effective leader at a time, whatever is paused, late or dead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import TypeVar

import psycopg
import pytest

from tasklib import Config
from tasklib.config import Retention
from tasklib.db.database import Database, execute
from tasklib.db.query import Query
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import DatabaseUnavailable
from tasklib.events import Events, LeadershipTaken
from tasklib.maintenance.calendar import duties_of
from tasklib.maintenance.failures import Failures
from tasklib.maintenance.leader import Leadership
from tasklib.stats import StatsCollector
from tasklib.store import breakers, fleet, maintenance, replays, stats
from tasklib.store.filters import DeadLetterFilter
from tasklib.store.fleet import Term
from tasklib.store.replays import OpenReplay
from tests.eventually import soon
from tests.worker.watching import working

T = TypeVar("T")

EVERYTHING_EXPIRED = """
INSERT INTO workers (id, last_heartbeat) VALUES ('silent', now() - interval '1 day');
INSERT INTO workers (id, reported_status, last_heartbeat) VALUES ('long dead', 'dead', now() - interval '9 days');
INSERT INTO tasks (name, state, worker_id, locked_until, started_at)
    VALUES ('orphan', 'running', 'gone', now() - interval '1 hour', now());
INSERT INTO tasks (name, state, worker_id, locked_until, started_at, timeout_seconds)
    VALUES ('wedged', 'running', 'alive', now() + interval '1 hour', now() - interval '1 hour', 5);
INSERT INTO tasks (name, idempotency_key, idempotency_expires_at) VALUES ('keyed', 'k', now() - interval '1 s');
INSERT INTO tasks (name, state, completed_at) VALUES ('letter', 'dead_letter', now() - interval '90 days');
INSERT INTO tasks (id, name, state, completed_at)
    VALUES ('00000000-0000-7000-8000-000000000001', 'old', 'completed', now() - interval '90 days');
INSERT INTO stats_deltas (outcome, count) VALUES ('completed', 1);
INSERT INTO breakers (name, state, until, failures, at_least, within, pause, probes)
    VALUES ('open', 'open', now() - interval '1 s', 0.5, 1, 60, 60, 1);
INSERT INTO replays (id, conditions, expected, expected_is_capped, created_by)
    VALUES ('00000000-0000-7000-8000-00000000000a', '{"name": "letter"}', 1, false, 'ann');
"""
REPLAY = "00000000-0000-7000-8000-00000000000a"


def duties(term: Term) -> dict[str, Query[object]]:
    return {
        "dead workers": fleet.bury_workers(term, forget_after=86400),  # type: ignore[dict-item]
        "orphans": maintenance.rescue(term, 3, 100),  # type: ignore[dict-item]
        "overdue": maintenance.fail_overdue(term, 30, 5, 100),  # type: ignore[dict-item]
        "idempotency": maintenance.expire_keys(term, 100),  # type: ignore[dict-item]
        "dead letters": maintenance.expire_dead_letters(term, 30 * 86400, 100),  # type: ignore[dict-item]
        "retention": maintenance.retain(term, Retention("completed", days=30), [], None, 100),  # type: ignore[dict-item]
        "snapshot": maintenance.take_snapshot(term, 1000),  # type: ignore[dict-item]
        "stats": stats.fold(term, 1000),  # type: ignore[dict-item]
        "breakers": breakers.judge(term),  # type: ignore[dict-item]
        "replays": replays.advance(term, OpenReplay(REPLAY, DeadLetterFilter(name="letter")), 10, 10, 5),  # type: ignore[dict-item]
    }


DUTIES = list(duties(Term("", 0)))
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


def state_of_everything(db: psycopg.Connection) -> list[object]:
    tables = (
        "tasks",
        "workers",
        "snapshots",
        "stats_deltas",
        "stats",
        "depths",
        "breakers",
        "replays",
        "replayed_tasks",
    )
    return [db.execute(f"SELECT * FROM {table} ORDER BY 1".encode()).fetchall() for table in tables]


def test_first_takes_the_lead_others_wait_and_the_term_grows_with_each_change(
    database: Database, db: psycopg.Connection
) -> None:
    one = database.run(fleet.lead("one", 30))
    assert one == Term("one", 1)
    assert database.run(fleet.lead("two", 30)) is None
    assert database.run(fleet.lead("one", 30)) == Term("one", 1), "keeping it is no change of hands"
    db.execute("UPDATE leadership SET expires_at = now() - interval '1 s'")
    assert database.run(fleet.lead("two", 30)) == Term("two", 2)
    database.run(fleet.resign("one"))
    assert database.run(fleet.lead("one", 30)) is None, "an old leader can't resign for a new one"
    database.run(fleet.resign("two"))
    assert database.run(fleet.lead("one", 30)) == Term("one", 3)


def test_of_many_who_run_at_once_one_leads(config: Config) -> None:
    terms: list[Term] = []
    together = threading.Barrier(16)

    def run(n: int) -> None:
        database = Database(config)
        together.wait()
        if term := database.run(fleet.lead(f"worker {n}", 30)):
            terms.append(term)
        database.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [t.number for t in terms] == [1]


def test_a_candidate_writes_and_locks_nothing_while_another_leads(database: Database, config: Config) -> None:
    assert database.run(fleet.lead("one", 30)) == Term("one", 1)
    with psycopg.connect(config.database_url) as duty, psycopg.connect(config.database_url) as candidate:
        duty.execute("SELECT FROM leadership FOR SHARE")  # as every duty locks it until its commit
        candidate.execute("SET lock_timeout = '10s'")
        assert execute(candidate, fleet.campaign("two", 30), None).term is None
        assert candidate.execute("SELECT pg_current_xact_id_if_assigned()").fetchone() == (None,)
    assert database.run(fleet.lead("one", 30)) == Term("one", 1)


def test_every_duty_of_the_calendar_is_tested_here(config: Config) -> None:
    # Any process may fold gates, so that duty has no term: tests/flows.
    assert {duty.name for duty in duties_of(config)} == {*DUTIES, "gates"}


@pytest.mark.parametrize("duty", DUTIES)
def test_duty_of_the_leader_changes_something(database: Database, db: psycopg.Connection, duty: str) -> None:
    db.execute(EVERYTHING_EXPIRED.encode())
    term = database.run(fleet.lead("one", 30))
    assert term is not None
    before = state_of_everything(db)
    database.run(duties(term)[duty])
    assert state_of_everything(db) != before


@pytest.mark.parametrize("duty", DUTIES)
def test_duty_of_an_ex_leader_changes_nothing(database: Database, db: psycopg.Connection, duty: str) -> None:
    db.execute(EVERYTHING_EXPIRED.encode())
    old = database.run(fleet.lead("one", 30))
    assert old is not None
    before = state_of_everything(db)
    db.execute("UPDATE leadership SET expires_at = now() - interval '1 s'")
    database.run(duties(old)[duty])
    assert state_of_everything(db) == before, "its lease is over, though nobody has taken the lead yet"
    assert database.run(fleet.lead("two", 30)) is not None
    database.run(duties(old)[duty])
    assert state_of_everything(db) == before
    database.run(fleet.resign("two"))
    assert database.run(fleet.lead("one", 30)) == Term("one", 3)
    database.run(duties(old)[duty])
    assert state_of_everything(db) == before, "it leads again, but in another term than this statement's"


@pytest.mark.parametrize("duty", DUTIES)
async def test_duty_performed_by_an_ex_leader_comes_to_an_end_and_says_nothing(
    config: Config, database: Database, db: psycopg.Connection, duty: str
) -> None:
    db.execute(EVERYTHING_EXPIRED.encode())
    old = database.run(fleet.lead("one", 30))
    assert old is not None
    before = state_of_everything(db)
    db.execute("UPDATE leadership SET holder = 'two', term = 2")
    config = config.with_changes(retention=(Retention("completed", days=30),))
    [performed] = [d for d in duties_of(config) if d.name == duty]
    assert await performed.perform(ReconnectingConnection(config, "maintenance"), config, old) == []
    assert state_of_everything(db) == before


@pytest.mark.parametrize("duty", DUTIES)
def test_duty_that_waits_for_a_change_of_hands_changes_nothing(
    config: Config, database: Database, db: psycopg.Connection, duty: str
) -> None:
    """Two sessions stepped: the lead is being taken, not yet committed, when the old leader's statement comes."""
    db.execute(EVERYTHING_EXPIRED.encode())
    old = database.run(fleet.lead("one", 30))
    assert old is not None
    before = state_of_everything(db)
    late = threading.Thread(target=lambda: database.run(duties(old)[duty]))
    with psycopg.connect(config.database_url) as rival:
        rival.execute("UPDATE leadership SET holder = 'two', term = term + 1")
        late.start()
        while db.execute(WAITING).fetchone() == (0,):
            assert late.is_alive(), "it has to wait until it is clear who leads"
        rival.commit()
        late.join()
    assert state_of_everything(db) == before


@pytest.mark.parametrize("duty", DUTIES)
def test_lead_does_not_change_hands_in_the_middle_of_a_duty(
    config: Config, database: Database, db: psycopg.Connection, duty: str
) -> None:
    """Two sessions stepped: the old leader's statement has run but is not committed; the new one has to wait for it."""
    db.execute(EVERYTHING_EXPIRED.encode())
    old = database.run(fleet.lead("one", 1))
    assert old is not None
    taken: list[Term | None] = []

    def take_over() -> None:
        other = Database(config)
        while not taken or taken[-1] is None:
            taken.append(other.run(fleet.lead("two", 30)))
        other.close()

    with psycopg.connect(config.database_url) as slow:
        execute(slow, duties(old)[duty], None)
        rival = threading.Thread(target=take_over)
        rival.start()
        while db.execute(WAITING).fetchone() == (0,):
            assert not any(taken), "nobody leads while the old leader's statement is open"
        slow.commit()
        rival.join()
    assert taken[-1] == Term("two", 2)


async def test_leadership_is_handed_over_when_the_leader_stops(config: Config) -> None:
    async with working(config) as first:
        await first.until(LeadershipTaken)
        quick = config.with_changes(leader_lease_seconds=1)
        async with working(quick) as second:
            first.worker.stop()
            assert first.finished is not None
            await first.finished
            assert (await second.until(LeadershipTaken)).term == 2


async def test_lead_taken_by_an_election_that_was_under_way_at_the_stop_is_given_up(
    config: Config, db: psycopg.Connection
) -> None:
    leader_db, taken, answered = ReconnectingConnection(config, "control"), asyncio.Event(), asyncio.Event()

    class LateAnswer:
        async def run(self, query: Query[T], /) -> T:
            found = await leader_db.run(query)
            if query.name == "lead":
                taken.set()
                await answered.wait()
            return found

    events = Events()
    leadership = Leadership(config, LateAnswer(), events)
    running = asyncio.create_task(leadership.run_for_it(lambda: "one", Failures(events, StatsCollector())))
    await taken.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    answered.set()
    await leadership.resign()
    leader_db.drop()
    assert db.execute("SELECT expires_at <= now() FROM leadership").fetchone() == (True,)


async def test_lead_taken_by_a_statement_whose_answer_was_lost_is_given_up(
    config: Config, db: psycopg.Connection
) -> None:
    leader_db = ReconnectingConnection(config, "control")

    class LostAnswer:
        async def run(self, query: Query[T], /) -> T:
            found = await leader_db.run(query)
            if query.name == "lead":
                raise DatabaseUnavailable("lost right after the commit")
            return found

    events = Events()
    leadership = Leadership(config, LostAnswer(), events)
    running = asyncio.create_task(leadership.run_for_it(lambda: "one", Failures(events, StatsCollector())))
    await soon(lambda: db.execute("SELECT count(*) FROM leadership").fetchone() == (1,))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await leadership.resign()
    leader_db.drop()
    assert db.execute("SELECT expires_at <= now() FROM leadership").fetchone() == (True,)


async def test_a_dead_leaders_lead_is_taken_when_it_ends_and_not_at_the_next_turn(
    config: Config, database: Database
) -> None:
    """After a third of the lease it would be: here, 70 seconds at the least."""
    assert database.run(fleet.lead("dead", 1.0)) == Term("dead", 1)
    leader_db, events = ReconnectingConnection(config, "control"), Events()
    leadership = Leadership(config.with_changes(leader_lease_seconds=300), leader_db, events)
    running = asyncio.create_task(leadership.run_for_it(lambda: "one", Failures(events, StatsCollector())))
    try:
        assert await asyncio.wait_for(leadership.term(), 60) == Term("one", 2)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        leader_db.drop()
