"""W3, W4, W6 to W9 and W11: how fast workers get through tasks that are waiting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import psycopg

from tasklib.bench.cpu import seconds_of, seconds_of_trees
from tasklib.bench.plan import FULL_FINISHED, FULL_FUTURE, THREADS
from tasklib.bench.rounds import Round, Sample
from tasklib.bench.schema import SCHEMA, BenchFailed, BenchSchema
from tasklib.bench.serving import serving
from tasklib.bench.tasks import noop, noop_in_thread
from tasklib.bench.workers import start_workers
from tasklib.db.connect import connect

_SHORTEST = 0.001
_WHEN = """
    SELECT count(*) FILTER (WHERE result IS NOT NULL),
           extract(epoch FROM min(started_at))::float8,
           extract(epoch FROM percentile_disc(0.25) WITHIN GROUP (ORDER BY completed_at))::float8,
           extract(epoch FROM percentile_disc(0.75) WITHIN GROUP (ORDER BY completed_at))::float8
    FROM {tasks}
    WHERE id >= %s
"""

_FINISHED = f"""
    INSERT INTO {SCHEMA}.tasks (name, kwargs, state, result, started_at, completed_at, lease_token)
    SELECT %s, jsonb_build_object('number', i), 'completed', jsonb_build_object('value', i), now(), now(), 1
    FROM generate_series(1, %s) AS i
"""
_FUTURE = f"""
    INSERT INTO {SCHEMA}.tasks (name, kwargs, priority, scheduled_at)
    SELECT %s, jsonb_build_object('number', i), 100, now() + interval '1 day'
    FROM generate_series(1, %s) AS i
"""


@dataclass(frozen=True)
class DrainTimes:
    """What getting through so many tasks took, in seconds."""

    tasks: int
    seconds: float
    first_quarter: float
    last_quarter: float
    worker_cpu: float
    server_cpu: float | None

    @property
    def rate(self) -> float:
        return self.tasks / self.seconds


def one_worker(round_: Round) -> Sample:
    """W3."""
    return Sample(_plain(round_).rate)


def two_workers(round_: Round) -> Sample:
    """W4, against W3."""
    plain, with_two = round_.in_turn(lambda: _plain(round_), lambda: _drain(round_, "W4", workers=2))
    return Sample(with_two.rate, plain.rate)


def in_threads(round_: Round) -> Sample:
    """W6."""
    return Sample(_drain(round_, "W6", task=noop_in_thread, concurrency=min(THREADS, round_.plan.concurrency)).rate)


def beside_many(round_: Round) -> Sample:
    """W7, against W3: finished rows, and rows for tomorrow at the highest priority, lie in the same table."""
    plain, beside = round_.in_turn(lambda: _plain(round_), lambda: _drain(round_, "W7", beside=True))
    return Sample(beside.rate, plain.rate)


def under_snapshot(round_: Round) -> Sample:
    """W8, against W3: another transaction holds a snapshot, so VACUUM can't remove dead rows."""
    plain, held = round_.in_turn(lambda: _plain(round_), lambda: _drain(round_, "W8", snapshot=True))
    first, last = held.tasks / 4 / held.first_quarter, held.tasks / 4 / held.last_quarter
    return Sample(held.rate, plain.rate, {"first_quarter": first, "last_quarter": last, "last_to_first": last / first})


def over_http(round_: Round) -> Sample:
    """W11, against W3: the worker has no database, and gets its tasks from a server."""
    plain, remote = round_.in_turn(lambda: _plain(round_), lambda: _drain(round_, "W11", through_server=True))
    return Sample(remote.rate, plain.rate)


def cpu_time(round_: Round) -> Sample:
    """W9: CPU seconds per 10,000 tasks of W3."""
    drained = _plain(round_)
    worker = 10_000 * drained.worker_cpu / drained.tasks
    server = None if drained.server_cpu is None else 10_000 * drained.server_cpu / drained.tasks
    return Sample(None if server is None else server + worker, details={"server": server, "worker": worker})


def _plain(round_: Round) -> DrainTimes:
    """What the others are compared with: async tasks that do nothing, one worker, nothing else in the table."""
    return round_.once("W3", lambda: _drain(round_, "W3"))


def _drain(
    round_: Round,
    workload: str,
    *,
    task: Any = noop,
    workers: int = 1,
    concurrency: int | None = None,
    beside: bool = False,
    snapshot: bool = False,
    through_server: bool = False,
) -> DrainTimes:
    """Let the workers come up in front of a paused queue, open it, and wait until every result is stored."""
    schema = round_.schema
    schema.fresh()
    if beside:
        _lay_beside(schema, round_.plan.scaled(FULL_FINISHED), round_.plan.scaled(FULL_FUTURE))
    ids = schema.submit(task, round_.plan.size(workload))
    schema.calm(vacuum=beside)
    schema.client.pause(queue="default")
    with (
        _snapshot(schema) if snapshot else nullcontext(),
        serving(schema) if through_server else nullcontext() as url,
        start_workers(
            schema, workers, concurrency=concurrency or round_.plan.concurrency, server=url
        ) as workers_running,
    ):
        worker_before, server_before = seconds_of(workers_running.pids), _server_cpu(schema)
        schema.client.resume(queue="default")
        finished = schema.await_all(ids, workers_running.look)
        worker_cpu, server_after = seconds_of(workers_running.pids) - worker_before, _server_cpu(schema)
    stored, began, first_quarter, third_quarter = schema.row(_WHEN, ids[0])
    if stored != len(ids):
        raise BenchFailed(f"{len(ids):,} tasks were completed, but {stored:,} results are stored.")
    return DrainTimes(
        tasks=len(ids),
        seconds=finished - began,
        first_quarter=max(first_quarter - began, _SHORTEST),
        last_quarter=max(finished - third_quarter, _SHORTEST),
        worker_cpu=worker_cpu,
        server_cpu=server_after - server_before if server_before is not None and server_after is not None else None,
    )


def _lay_beside(schema: BenchSchema, finished: int, future: int) -> None:
    """Rows of the same task that no worker may touch: completed ones, and ones for tomorrow at the highest priority."""
    schema.db.execute(_FINISHED.encode(), (noop.name, finished))
    schema.db.execute(_FUTURE.encode(), (noop.name, future))


@contextmanager
def _snapshot(schema: BenchSchema) -> Iterator[None]:
    """Another transaction that stays open, such as a report or a backup."""
    with connect(schema.config, role="bench", autocommit=False, statement_timeout=math.inf) as connection:
        take_snapshot(connection)
        yield


def take_snapshot(connection: psycopg.Connection) -> None:
    """Keep every row version alive from now until the connection's transaction ends."""
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT count(*) FROM pg_class")  # the first statement takes the snapshot


def _server_cpu(schema: BenchSchema) -> float | None:
    return None if schema.postmaster is None else seconds_of_trees([schema.postmaster])
