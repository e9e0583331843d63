"""Measures each cost on this machine: TaskLib's own statements, one kind after the other, on an embedded PostgreSQL."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeVar

from benchmarks.peers.server import Server
from benchmarks.schema import BenchSchema, schema_on
from benchmarks.simulation.costs import Costs, Linear, fitted
from benchmarks.simulation.sessions import NAME, SERVED, TimedSession, claiming, completing, sessions
from benchmarks.simulation.workers import idle_seconds, per_task, shard_bytes
from tasklib import Shard
from tasklib.bench.cpu import seconds_of_trees
from tasklib.config import Retention
from tasklib.db.query import Query
from tasklib.embedded import EmbeddedPostgres
from tasklib.maintenance.snapshot import MOST_COUNTED
from tasklib.sharding.placement import owner_of
from tasklib.stats import BOUNDS, Key, Stat
from tasklib.store import claim, fleet, maintenance, stats
from tasklib.store.fleet import Term
from tasklib.store.submit import NewTask, SubmitTerms, submit_one
from tasklib.tasks.ids import new_id

T = TypeVar("T")
ME = "measurer"
DURABLE = {"fsync": "on", "full_page_writes": "on"}
SETTINGS = DURABLE | {"max_connections": "700", "max_wal_size": "4GB", "shared_buffers": "256MB"}
ROUNDS = 31
ASLEEP = 40
"""So many sessions take turns where each is to have slept."""
PENDING = {"name": f"'{NAME}'"}
HELD = PENDING | {"state": "'running'", "started_at": "now()", "lease_token": "1"}
HELD |= {"locked_until": "now() + interval '1 hour'"}
FINISHED = PENDING | {"state": "'completed'", "completed_at": "now() - interval '9 days'", "result": "'{}'"}


@contextmanager
def embedded_schema(name: str) -> Iterator[BenchSchema]:
    """TaskLib's tables in a database of their own, on a durable server of their own."""
    with EmbeddedPostgres(settings=SETTINGS) as postgres:
        server = Server(postgres.url(), postgres.postmaster_pid)
        with schema_on(server, name) as schema:
            yield schema


def measured() -> Costs:
    """Every cost, once."""
    with embedded_schema("simulation") as schema:
        found = _statements(schema) | _fleet(schema) | _duties(schema) | _workers(schema)
    return Costs(**found, place_key=_placing())  # type: ignore[arg-type]


def _said(name: str, value: T) -> T:
    print(f"{name:20} {value}", flush=True)
    return value


def _cost(session: TimedSession, make: Callable[[], Query[T]], rounds: int = ROUNDS) -> float:
    """The median of the server's CPU time, after some rounds in which it is prepared and planned."""
    return median([session.timed(make())[1].server for _ in range(rounds + 6)][6:])


# Claims, results, submissions.


def _statements(schema: BenchSchema) -> dict[str, object]:
    with sessions(schema.config, 2) as (one, other):
        claims, completions, wal = [], [], 0.0
        for count in (1, 10, 100, 500):
            schema.clear()
            schema.insert((ROUNDS + 6) * count + 1000, PENDING)
            schema.calm()
            taken, done = [], []
            before = _written(schema)
            for _ in range(ROUNDS + 6):
                claimed, took = one.timed(claiming(ME, count))
                taken.append(took.server)
                done.append(other.timed(completing(claimed, ME))[1].server)
            wal = (_written(schema) - before) / (ROUNDS + 6) / count
            claims.append((count, median(taken[6:])))
            completions.append((count, median(done[6:])))
        found = {"claim": _said("claim", fitted(claims)), "complete": _said("complete", fitted(completions))}
        skip = _said("skip", _skip(schema, one, other, found["claim"].of(10)))
        schema.clear()
        schema.db.execute("ALTER TABLE tasks ENABLE TRIGGER USER")
        submit = _said("submit_one", _cost(one, submission, 201))
        before = _written(schema)
        many = _said("submit_many", _copied(schema))
        wal += (_written(schema) - before) / 20_000
        flush = _said("flush_seconds", _flushed(one))
    return {
        **found,
        "skip": skip,
        "submit_one": submit,
        "submit_many": many,
        "flush_seconds": flush,
        "wal_bytes": _said("wal_bytes", wal),
        "connection_bytes": _said("connection_bytes", _connection_bytes(schema)),
    }


def _written(schema: BenchSchema) -> float:
    return float(schema.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))


def _skip(schema: BenchSchema, one: TimedSession, other: TimedSession, alone: float) -> float:
    schema.clear()
    schema.insert(20_000, PENDING)
    schema.calm()
    points = []
    for locked in (0, 1000, 5000):
        with other.connection.transaction(force_rollback=True):
            if locked:
                other.run(claiming("other", locked))
            took = []
            for _ in range(9):
                with one.connection.transaction(force_rollback=True):
                    took.append(one.timed(claiming(ME, 10))[1].server)
        points.append((locked, median(took)))
    return max(0.0, (points[-1][1] - points[0][1]) / points[-1][0])


def submission() -> Query[object]:
    terms = SubmitTerms(
        name=NAME,
        queue="default",
        max_retries=3,
        timeout_seconds=60,
        priority=50,
        tags="{}",
        required_capabilities=(),
        trace_context=None,
    )
    return submit_one(NewTask(new_id(), '{"n": 1}', terms))


def _copied(schema: BenchSchema) -> float:
    from tasklib import Client

    assert schema.postmaster is not None
    with Client(schema.config) as client:
        client.submit_many(NAME, [{"n": 1}] * 1000)
        before = seconds_of_trees([schema.postmaster])
        for _ in range(4):
            client.submit_many(NAME, [{"n": 1}] * 5000)
        return (seconds_of_trees([schema.postmaster]) - before) / 20_000


def _flushed(session: TimedSession) -> float:
    """The time of a commit that writes, without the CPU time of its statement."""
    took = [session.timed(submission())[1] for _ in range(301)]
    return max(0.0, median(t.wall - t.server for t in took))


def _connection_bytes(schema: BenchSchema) -> float:
    with sessions(schema.config, 5) as opened:
        for session in opened:
            for _ in range(7):
                session.run(completing(session.run(claiming(ME, 10)), ME))
        return median(_private_bytes(session.pid) for session in opened)


def _private_bytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024.0 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


# What each worker of the fleet costs, whether it has work or not.


def _fleet(schema: BenchSchema) -> dict[str, object]:
    schema.clear()
    schema.db.execute("ALTER TABLE tasks ENABLE TRIGGER USER")
    with sessions(schema.config, ASLEEP) as opened:
        one = opened[0]
        _enlist(schema, 200)
        term = one.run(fleet.lead("another", 600.0))
        assert term is not None
        found = {name: _cost(one, make) for name, make in UPKEEP.items()}
        found["cold"] = mean(_cost_after_sleep(opened, make) - found[name] for name, make in UPKEEP.items())
        schema.db.execute("DELETE FROM leadership")
        sleepers = _sleepers(schema, one)
    for name, value in found.items():
        _said(name, value)
    return {**found, "sleepers": _said("sleepers", sleepers), "listeners": _said("listeners", _listeners(schema))}


UPKEEP: Mapping[str, Callable[[], Query[Any]]] = {
    "heartbeat": lambda: fleet.heartbeat("w1", load=1, draining=False),
    "election": lambda: fleet.campaign(ME, 30.0),
    "poll": lambda: claim.outlook(SERVED),
    "doze": lambda: fleet.sleeps("w1", random.random() < 0.5),
    "report": lambda: stats.add(counted(), worker="w1", number=time.monotonic_ns()),
}


def _cost_after_sleep(opened: Sequence[TimedSession], make: Callable[[], Query[T]]) -> float:
    """The same of sessions that each slept for a while: caches have forgotten them."""
    for session in opened:
        for _ in range(6):
            session.run(make())
    took = []
    for _ in range(3):
        for session in opened:
            time.sleep(0.01)
            took.append(session.timed(make())[1].server)
    return median(took)


def _enlist(schema: BenchSchema, workers: int, asleep: bool = False) -> None:
    schema.db.execute("DELETE FROM worker_registrations")
    schema.db.execute(
        "INSERT INTO worker_registrations (id, queues, names, capabilities, capacity, version, host, pid, "
        "heartbeat_timeout_seconds, asleep, wake_channel) "
        f"SELECT 'w' || n, NULL, ARRAY['{NAME}'], '{{}}', 10, '1', 'host', n, 90, %s, 'tasklib_wake_' || n "
        "FROM generate_series(1, %s) AS n",
        (asleep, workers),
    )
    schema.db.execute("VACUUM ANALYZE worker_registrations")


def counted() -> Sequence[Stat]:
    """What a busy worker has to report of tasks of one name."""
    buckets = [1] * (len(BOUNDS) + 1)
    fleet_counts = [Stat(Key("", "", "", kind), 7) for kind in ("claim", "claimed", "settle", "settled")]
    return [Stat(Key(NAME, "default", "normal", "completed"), 70, 1.0, 1.0, buckets, buckets), *fleet_counts]


def _sleepers(schema: BenchSchema, one: TimedSession) -> Linear:
    points = [(0.0, _cost(one, submission, 101))]
    for workers in (100, 300, 1000):
        _enlist(schema, workers, asleep=True)
        points.append((workers, _cost(one, submission, 101)))
    _enlist(schema, 1)
    together = fitted(points)
    return Linear(max(0.0, together.fixed - points[0][1]), together.each)


def _listeners(schema: BenchSchema) -> Linear:
    """CPU time of all processes of the server for one NOTIFY, beside so many sessions that listen to other channels."""
    assert schema.postmaster is not None
    points = []
    for listeners in (1, 50, 200):
        with sessions(schema.config, listeners + 1, "listener") as opened:
            sender = opened[-1]
            for number, session in enumerate(opened[:-1]):
                session.connection.execute(f"LISTEN simulation_{number}".encode())
            time.sleep(1)
            before = _seconds_of(opened)
            for _ in range(100):
                sender.connection.execute("NOTIFY simulation_0")
                time.sleep(0.02)
            points.append((listeners, (_seconds_of(opened) - before) / 100))
    return fitted(points)


def _seconds_of(opened: Sequence[TimedSession]) -> float:
    return sum(session.server_seconds() for session in opened)


# The leader.


def _duties(schema: BenchSchema) -> dict[str, object]:
    with sessions(schema.config, role="worker maintenance") as [one]:
        term = one.run(fleet.lead(ME, 3600.0))
        assert term is not None
        found = {
            "bury": _over(
                (10, 1000), lambda n: _enlist(schema, n), one, lambda: fleet.bury_workers(term, forget_after=9e5)
            ),
            "snapshot": _over(
                (0, 20_000, MOST_COUNTED),
                lambda n: _fill(schema, n, PENDING),
                one,
                lambda: maintenance.take_snapshot(term, MOST_COUNTED),
            ),
            "fold": _folded(schema, one, term),
            "rescue": _rescued(schema, one, term),
            "retain": _retained(schema, one, term),
        }
    for name, value in found.items():
        _said(name, value)
    return found


def _over(
    numbers: Sequence[int], prepare: Callable[[int], None], one: TimedSession, make: Callable[[], Query[object]]
) -> Linear:
    points = []
    for number in numbers:
        prepare(number)
        points.append((number, _cost(one, make, 9)))
    return fitted(points)


def _fill(schema: BenchSchema, count: int, columns: dict[str, str]) -> None:
    schema.clear()
    schema.insert(count, columns)
    schema.calm()


def _folded(schema: BenchSchema, one: TimedSession, term: Term) -> Linear:
    points = []
    for reports in (20, 200, 2000):  # five rows each, of up to 1,000 workers
        took = []
        for _ in range(5):
            for number in range(reports):
                one.run(stats.add(counted(), worker=f"x{number % 1000}", number=number))
            folded, cost = one.timed(stats.fold(term, 10_000))
            took.append(cost.server)
        points.append((folded, median(took)))
    return fitted(points)


def _rescued(schema: BenchSchema, one: TimedSession, term: Term) -> Linear:
    points = []
    for held in (1000, 10_000, 50_000):
        _fill(
            schema,
            held,
            HELD | {"worker_id": f"'w' || mod(n, {held // 100})", "locked_until": "now() - interval '1 s'"},
        )
        took = []
        for _ in range(7):
            with one.connection.transaction(force_rollback=True):
                took.append(one.timed(maintenance.rescue(term, 3, 500))[1].server)
        points.append((held, median(took)))
    return fitted(points)


def _retained(schema: BenchSchema, one: TimedSession, term: Term) -> float:
    _fill(schema, 12_000, FINISHED)
    rule = Retention("completed", days=1)
    took = []
    for _ in range(11):
        page, cost = one.timed(maintenance.retain(term, rule, (), None, 1000))
        assert page.deleted == 1000
        took.append(cost.server)
    return median(took) / 1000


# Workers and producers.


def _workers(schema: BenchSchema) -> dict[str, object]:
    schema.clear()
    schema.db.execute("ALTER TABLE tasks ENABLE TRIGGER USER")
    schema.db.execute("DELETE FROM leadership")
    schema.db.execute("DELETE FROM worker_registrations")
    return {
        "worker_task": _said("worker_task", per_task(schema.config)),
        "worker_idle": _said("worker_idle", idle_seconds(schema.config)),
        "worker_shard_bytes": _said("worker_shard_bytes", shard_bytes(schema.server)),
    }


def _placing() -> Linear:
    points = []
    for count in (1, 100, 1000):
        shards = [Shard(number, f"postgresql://h{number}/app") for number in range(count)]
        now, times = datetime.now(UTC), 2000 // count + 5
        begun = time.process_time()
        for number in range(times):
            owner_of(f"key {number}", shards, now)
        points.append((count, (time.process_time() - begun) / times))
    return _said("place_key", fitted(points))
