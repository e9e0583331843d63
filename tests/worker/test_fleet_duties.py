"""Three workers, one leader, broken in the middle of every duty: it is done once, by whoever leads, and only that."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
import pytest
from psycopg import sql

from tasklib import Client, Config
from tasklib.embedded import EmbeddedPostgres
from tasklib.maintenance.calendar import duties_of
from tasklib.migrations import migrate
from tasklib.tasks import registry
from tasklib.testing import databases
from tests.worker import fleet_tasks
from tests.worker.chores import (
    BATCH,
    CHORES,
    FIRST_GATE,
    PIECES,
    SECOND_GATE,
    SILENT_WORKERS,
    Chore,
    Gate,
    bystanders,
    clear_away_chores,
    put_witnesses,
)
from tests.worker.fleet import Fleet, fleet_of

QUICK = {
    "heartbeat_interval_seconds": 0.5,
    "heartbeat_timeout_seconds": 1.5,
    "sweep_interval_seconds": 0.2,
    "upkeep_interval_seconds": 0.2,
    "leader_lease_seconds": 1.0,
    "base_retry_delay_seconds": 0.0,
    "retention": [["completed", 30]],
}
WORKERS = 3


@dataclass(frozen=True)
class Caught:
    """A leader in the middle of a duty: its statement waits at a gate."""

    name: str
    session: int
    term: int


@dataclass
class Drill:
    """A fleet on which every fault is practised in every duty, one after the other."""

    fleet: Fleet
    client: Client
    server: EmbeddedPostgres | None
    untouched: list[object]

    @property
    def db(self) -> psycopg.Connection:
        return self.fleet.db

    def start_missing_workers(self) -> None:
        for _ in range(WORKERS - len(self.fleet.alive)):
            self.fleet.start(QUICK, batch=BATCH, concurrency=4)

    def have_three_workers(self) -> None:
        self.start_missing_workers()
        living = "SELECT count(*) FROM workers WHERE status = 'active' AND pid = ANY (%s)"
        self.fleet.wait_for_value(WORKERS, living, self.fleet.alive)

    def catch_at(self, gate: Gate) -> Caught:
        """Wait until a leader's statement stands before the gate."""
        waiting = """SELECT application_name, pid, term FROM pg_stat_activity, leadership
            WHERE %s = ANY (pg_blocking_pids(pid))"""
        self.fleet.wait(lambda: self.db.execute(waiting, (gate.pid,)).fetchone(), "a leader at the gate")
        [found] = self.db.execute(waiting, (gate.pid,)).fetchall()
        return Caught(*found)

    def work_goes_on(self) -> None:
        """Tasks need no leader."""
        ids = self.client.submit_many(fleet_tasks.nothing, [{"number": n} for n in range(5)])
        assert [self.client.wait_for(task_id, timeout=120) for task_id in ids] == list(range(5))

    def wait_for_a_new_term(self, old: Caught) -> None:
        self.fleet.wait(lambda: self.fleet.value("SELECT term FROM leadership") > old.term, "somebody else leads")

    def wait_until_done(self, chore: Chore) -> None:
        """Until every piece has been worked on; for a snapshot, until there is one of the present term."""
        of_this_term = "SELECT count(*) > 0 FROM effects JOIN leadership USING (term) WHERE duty = %s"
        every_piece = f"SELECT count(DISTINCT piece) = {PIECES} FROM effects WHERE duty = %s"
        self.fleet.wait_for_value(True, of_this_term if chore.duty == "snapshot" else every_piece, chore.duty)


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


# ---- the faults: each strikes at a leader that is held at a gate, and opens it ----


def kill(drill: Drill, leader: Caught, chore: Chore, held: Gate) -> None:
    """What the leader was about to do is rolled back with its session."""
    process = drill.fleet.named(leader.name)
    process.kill()
    process.wait()
    drill.start_missing_workers()
    drill.work_goes_on()
    drill.fleet.wait_for_value(0, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", leader.session)
    held.open()
    drill.wait_for_a_new_term(leader)


def freeze(drill: Drill, leader: Caught, chore: Chore, held: Gate) -> None:
    """What the leader has sent is done, as no other worker can lead meanwhile. What it sends when it thaws is not."""
    process = drill.fleet.named(leader.name)
    with Gate(drill.fleet.url, chore, SECOND_GATE) as next_gate:
        with stopped(process):
            drill.work_goes_on()
            drill.fleet.wait_for_value(True, "SELECT expires_at < now() FROM leadership")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                drill.db.execute("SELECT FROM leadership FOR UPDATE NOWAIT")
            held.open()
            drill.wait_for_a_new_term(leader)
            if chore.in_batches:
                # The successor is in the middle of the third batch: there is enough beside it for the thawed one.
                assert drill.catch_at(next_gate).name != leader.name
            before = drill.fleet.value("SELECT now()")
        if chore.goes_on_at_once:
            sent = "SELECT query_start > %s AND state = 'idle' FROM pg_stat_activity WHERE pid = %s"
            drill.fleet.wait_for_value(True, sent, before, leader.session)
    lost = f"LeadershipLost(term={leader.term},"
    drill.fleet.wait(lambda: lost in drill.fleet.said(process), f"{leader.name} says {lost}")


def restart(drill: Drill, leader: Caught, chore: Chore, held: Gate) -> None:
    """All sessions end, the gate's too, and what was not committed is gone."""
    assert drill.server is not None
    drill.server.restart("immediate")
    drill.fleet.db = psycopg.connect(drill.fleet.url, autocommit=True)
    drill.work_goes_on()


Fault: TypeAlias = Callable[[Drill, Caught, Chore, Gate], None]

# ---- the drill ----


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    """One fleet for all: starting it is what takes the time. On a server of its own, unless one was given."""
    with ExitStack() as stack:
        if os.environ.get(databases.SERVER_VARIABLE):
            server, url = None, stack.enter_context(databases.database(stack.enter_context(databases.server())))
        else:
            server = stack.enter_context(EmbeddedPostgres())
            url = server.create_database("drill")
        migrate(Config(url))
        with psycopg.connect(url, autocommit=True) as setup:
            name = sql.Identifier(setup.info.dbname)
            # A session that waits for a lock doesn't notice by itself that its client is gone.
            setup.execute(sql.SQL("ALTER DATABASE {} SET client_connection_check_interval = '50ms'").format(name))
            put_witnesses(setup)
        db = psycopg.connect(url, autocommit=True)
        fleet = stack.enter_context(fleet_of(url, db, tmp_path_factory.mktemp("fleet")))
        yield Drill(fleet, stack.enter_context(Client(url)), server, bystanders(db))
        fleet.db.close()


def test_there_is_work_for_every_duty_of_the_calendar() -> None:
    # Any process may fold gates, not the leader alone: tests/flows/test_gates.py.
    assert {"gates", *(chore.duty for chore in CHORES)} == {duty.name for duty in duties_of(Config("postgresql://"))}


@pytest.mark.long
@pytest.mark.parametrize("chore", CHORES, ids=lambda chore: chore.duty)
@pytest.mark.parametrize("fault", [kill, freeze, restart], ids=lambda fault: fault.__name__)
def test_duty_whose_leader_is_struck_in_the_middle_is_done_once_by_the_next_leader(
    drill: Drill, fault: Fault, chore: Chore
) -> None:
    if fault is restart and drill.server is None:
        pytest.skip("only a server of our own may be restarted")
    registry.register(fleet_tasks.nothing)
    drill.have_three_workers()
    with Gate(drill.fleet.url, chore, FIRST_GATE) as held:
        clear_away_chores(drill.db)
        drill.db.execute(chore.work.encode())
        leader = drill.catch_at(held)
        done = drill.fleet.value("SELECT count(*) FROM effects WHERE duty = %s", chore.duty)
        assert done == (BATCH if chore.in_batches else 0), "in the middle"
        fault(drill, leader, chore, held)
    drill.wait_until_done(chore)
    assert_each_piece_was_done_once(drill.db, chore)
    assert_one_led_at_a_time(drill.db)
    assert bystanders(drill.db) == drill.untouched


def assert_each_piece_was_done_once(db: psycopg.Connection, chore: Chore) -> None:
    if chore.duty != "snapshot":
        done = db.execute(
            "SELECT piece, count(*) FROM effects WHERE duty = %s GROUP BY piece", (chore.duty,)
        ).fetchall()
        assert {piece: times for piece, times in done if times != 1} == {}
    tasks = "SELECT state, retry_count, idempotency_key FROM tasks WHERE queue = 'chores' AND name = %s"
    left = db.execute(f"SELECT *, count(*) FROM ({tasks}) AS task GROUP BY 1, 2, 3".encode(), (chore.duty,)).fetchall()
    assert left == {
        "orphans": [("failed", 0, None, PIECES)],
        "overdue": [("failed", 0, None, PIECES)],
        "idempotency": [("pending", 0, None, PIECES)],
        "replays": [("pending", 0, None, PIECES)],
    }.get(chore.duty, [])
    if chore.duty == "dead workers":
        buried = db.execute("SELECT status, count(*) FROM workers WHERE host = 'chores' GROUP BY 1").fetchall()
        assert buried == [("dead", SILENT_WORKERS)], "and those that were dead for long are forgotten"


def assert_one_led_at_a_time(db: psycopg.Connection) -> None:
    """Whoever changed something held the lead at that moment; terms only ever grow, and each has one holder."""
    strangers = db.execute("SELECT * FROM effects WHERE NOT starts_with(holder, by || '-')").fetchall()
    assert strangers == []
    holders = db.execute("SELECT DISTINCT term, holder FROM effects ORDER BY term").fetchall()
    assert len({term for term, _ in holders}) == len(holders)
    terms = [term for (term,) in db.execute("SELECT term FROM effects ORDER BY number")]
    assert terms == sorted(terms)
