"""A worker is notified only while it sleeps, and misses no task on its way to sleep: sessions stepped by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.backends.postgres.lanes import Lanes
from tasklib.backends.postgres.notifier import Notifier
from tasklib.backends.postgres.sleep import Sleep, Wakeup
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.errors import WorkerNotFound
from tasklib.events import Events, TaskStarted
from tasklib.store import fleet
from tasklib.store.claim import Served
from tests.backends.resting import note_rests
from tests.eventually import soon
from tests.worker.watching import working

Connect = Callable[[], psycopg.Connection]
INSERT = "INSERT INTO tasks (name) VALUES ('work')"


@pytest.fixture
def connect(database_url: str) -> Iterator[Connect]:
    opened: list[psycopg.Connection] = []

    def connect() -> psycopg.Connection:
        opened.append(psycopg.connect(database_url, autocommit=True))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def listener(connect: Connect) -> psycopg.Connection:
    connection = connect()
    connection.execute("LISTEN tasklib_public")
    return connection


def _heard(listener: psycopg.Connection, db: psycopg.Connection) -> int:
    """How often we were notified since the last call: all that comes before a mark of our own."""
    db.execute("NOTIFY tasklib_public, 'mark'")
    for count, notification in enumerate(listener.notifies(timeout=120)):
        if notification.payload == "mark":
            return count
    raise AssertionError("the mark never came")


def _a_worker(db: psycopg.Connection, *, asleep: bool = False, status: str = "active") -> None:
    db.execute("INSERT INTO workers (id, names, asleep, reported_status) VALUES ('w', NULL, %s, %s)", (asleep, status))


def test_producers_notify_only_while_a_worker_sleeps(listener: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute(INSERT)
    _a_worker(db)
    db.execute(INSERT)
    assert _heard(listener, db) == 0
    db.execute("UPDATE workers SET asleep = true")
    db.execute(INSERT)
    with db.cursor().copy("COPY tasks (name) FROM STDIN") as copy:
        copy.write_row(("work",))
    assert _heard(listener, db) == 2
    db.execute("UPDATE workers SET asleep = false")
    db.execute(INSERT)
    assert _heard(listener, db) == 0


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_producer_that_can_not_see_who_sleeps_always_notifies(
    listener: psycopg.Connection, connect: Connect, db: psycopg.Connection, isolation: str
) -> None:
    _a_worker(db)
    producer = connect()
    producer.execute(f"BEGIN ISOLATION LEVEL {isolation}".encode())
    producer.execute("SELECT count(*) FROM tasks")
    db.execute("UPDATE workers SET asleep = true")
    producer.execute(INSERT)
    producer.execute("COMMIT")
    assert _heard(listener, db) == 1


def test_producer_needs_no_right_to_see_the_workers(listener: psycopg.Connection, db: psycopg.Connection) -> None:
    _a_worker(db, asleep=True)
    db.execute("DROP ROLE IF EXISTS tasklib_test_producer")
    db.execute("CREATE ROLE tasklib_test_producer")
    try:
        db.execute("GRANT INSERT ON tasks TO tasklib_test_producer")
        db.execute("SET ROLE tasklib_test_producer")
        # And whatever its search_path is.
        db.execute("SET search_path = pg_catalog")
        db.execute("INSERT INTO public.tasks (name) VALUES ('work')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("SELECT FROM public.workers")
    finally:
        db.execute("RESET ROLE")
        db.execute("RESET search_path")
        db.execute("DROP OWNED BY tasklib_test_producer")
        db.execute("DROP ROLE tasklib_test_producer")
    assert _heard(listener, db) == 1


class Sleeper:
    """A worker's way to sleep, one step at a time."""

    def __init__(self, config: Config) -> None:
        self.link = ReconnectingConnection(config, "tasks")
        self.notifier = Notifier(config, self.link)
        self.notifier.listening.set()
        self.wakeup = Wakeup(self.notifier, 1000.0, Events())
        self.sleep = Sleep(self.link, Lanes(self.link, 600.0, 600.0, 1200.0))

    async def rest(self) -> bool:
        """Rest once; whether it now relies on being notified."""
        await self.sleep.rest(self.wakeup, "w", Served(["work"]))
        return self.sleep.relies_on_notification


@pytest.fixture
def sleeper(config: Config, db: psycopg.Connection) -> Iterator[Sleeper]:
    _a_worker(db)
    sleeper = Sleeper(config)
    yield sleeper
    sleeper.link.drop()


def _is_asleep(db: psycopg.Connection) -> bool:
    return db.execute("SELECT asleep FROM workers").fetchone() == (True,)


@pytest.mark.parametrize("told", ["before", "after"], ids=["producer looked before", "producer looked after"])
async def test_worker_does_not_rely_on_notification_before_every_writer_knows(
    sleeper: Sleeper, connect: Connect, listener: psycopg.Connection, db: psycopg.Connection, told: str
) -> None:
    producer = connect()
    producer.execute("BEGIN")
    if told == "before":
        producer.execute(INSERT)  # sees no sleeping worker, and is not committed when the worker looks
    else:
        producer.execute("INSERT INTO pauses (kind, value) VALUES ('queue', 'x')")  # begins to write
    assert not await sleeper.rest()
    assert _is_asleep(db)
    assert not await sleeper.rest()
    if told == "after":
        listener.execute(f"LISTEN {sleeper.notifier.channel}".encode())
        producer.execute(INSERT)
    producer.execute("COMMIT")
    assert _heard(listener, db) == (0 if told == "before" else 1)
    # All who might not know are over: one more look, which finds the task, and then it may sleep.
    while not await sleeper.rest():
        pass


async def test_writer_that_began_while_the_announcement_was_committed_is_waited_for(
    sleeper: Sleeper, connect: Connect, listener: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Its transaction is younger than the announcement, and yet it looked before that could be seen."""
    db.execute("""CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
                  BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$""")
    db.execute("CREATE TRIGGER hold AFTER UPDATE ON worker_registrations FOR EACH ROW EXECUTE FUNCTION hold()")
    db.execute("SELECT pg_advisory_lock(7)")
    announcing = asyncio.create_task(sleeper.rest())
    waits = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    await soon(lambda: db.execute(waits).fetchone(), "the announcement is written and not committed")
    producer = connect()
    producer.execute("BEGIN")
    producer.execute(INSERT)
    db.execute("SELECT pg_advisory_unlock(7)")
    assert not await announcing
    assert _is_asleep(db)
    assert not await sleeper.rest()
    producer.execute("COMMIT")
    assert _heard(listener, db) == 0
    while not await sleeper.rest():
        pass


async def test_announcement_stays_while_there_is_little_to_do_and_is_withdrawn_after_a_while(
    sleeper: Sleeper, db: psycopg.Connection
) -> None:
    while not await sleeper.rest():
        pass
    sleeper.sleep._awake_since = time.monotonic() + 60  # just now, however slow this machine is
    await sleeper.sleep.stay_awake()
    assert _is_asleep(db)
    sleeper.sleep._awake_since -= 120
    await sleeper.sleep.stay_awake()
    assert not _is_asleep(db)


async def test_worker_that_gets_no_notifications_announces_nothing(sleeper: Sleeper, db: psycopg.Connection) -> None:
    sleeper.notifier.listening.clear()
    sleeper.wakeup._longest = 0.001
    assert not await sleeper.rest()
    assert not _is_asleep(db)


async def test_worker_that_was_declared_dead_is_not_announced(sleeper: Sleeper, db: psycopg.Connection) -> None:
    db.execute("UPDATE workers SET reported_status = 'dead'")
    with pytest.raises(WorkerNotFound):
        await sleeper.rest()
    assert not _is_asleep(db)


async def test_dead_worker_sleeps_no_more(config: Config, db: psycopg.Connection) -> None:
    _a_worker(db, asleep=True)
    db.execute("UPDATE workers SET last_heartbeat = now() - interval '1 hour'")
    link = ReconnectingConnection(config, "maintenance")
    term = await link.run(fleet.lead("leader", 60))
    assert term is not None
    assert await link.run(fleet.bury_workers(term, forget_after=1e6)) == ["w"]
    assert not _is_asleep(db)
    link.drop()


async def test_worker_without_room_is_not_asleep(config: Config, db: psycopg.Connection) -> None:
    """Nobody needs to notify a worker whose slots are all taken."""

    @task
    async def long() -> None:
        await asyncio.sleep(1000)

    changed = config.with_changes(shutdown_grace_seconds=0.0)
    async with working(changed, poll_interval_seconds=1000.0, concurrency=1) as watched:
        await soon(lambda: _is_asleep(db))
        await AsyncClient(config).submit_task(long)
        await watched.until(TaskStarted)
        await soon(lambda: not _is_asleep(db))


async def test_task_that_commits_unannounced_after_the_last_look_is_found(
    config: Config, connect: Connect, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer saw no worker asleep, and its commit comes when the worker has looked: no poll would find it."""

    @task(name="work")
    async def work() -> None: ...

    rests = note_rests(monkeypatch)
    producer = connect()
    producer.execute("BEGIN")
    producer.execute(INSERT)
    async with working(config, poll_interval_seconds=1000.0) as watched:
        await soon(lambda: _is_asleep(db))
        rests.clear()
        await soon(rests.is_set, "it has looked and found nothing")
        producer.execute("COMMIT")
        await watched.until(TaskStarted)


async def test_notification_that_comes_while_it_looks_is_not_slept_through(sleeper: Sleeper) -> None:
    while not await sleeper.rest():
        pass
    sleeper.wakeup.arm()
    sleeper.wakeup.hear("")
    await sleeper.rest()  # returns though nothing else would wake it
