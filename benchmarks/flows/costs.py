"""What a child costs beside a plain task, a million children on one gate, the way from the last child to its join, and
steps of durable functions."""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import psycopg

from benchmarks.flows import tasks
from benchmarks.flows.marks import moments
from benchmarks.flows.stage import Stage, held_back, until, value
from tasklib import Client, group

IDLE = """
    SELECT NOT EXISTS (SELECT FROM tasks WHERE state IN ('pending', 'failed') AND waits_for IS NULL)
       AND NOT EXISTS (SELECT FROM tasks WHERE state = 'running')
"""
RATE = """
    SELECT count(*) / extract(epoch FROM max(completed_at) - min(started_at))::float8
    FROM tasks WHERE name = 'flows.noop' AND state = 'completed'
"""
SIDES = ("plain", "children")


def child(stage: Stage, count: int, rounds: int) -> dict[str, Any]:
    """Tasks of a group, beside as many plain ones, in turns. Their join runs, but reads no results: see `gate`."""
    rates: dict[str, list[float]] = {side: [] for side in SIDES}
    cpu: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            rate, seconds = _drained(stage, side, count)
            rates[side].append(rate)
            cpu[side].append(seconds / count * 1e6)
            print(f"  {side:9} {rate:8,.0f} tasks/s  {cpu[side][-1]:5.1f} us of CPU each", flush=True)
    middle = {side: (statistics.median(rates[side]), statistics.median(cpu[side])) for side in SIDES}
    return {
        "tasks": count,
        "tasks_per_second": {side: [round(rate) for rate in rates[side]] for side in SIDES},
        "cpu_us": {side: [round(us, 1) for us in cpu[side]] for side in SIDES},
        "dearer_by_time": round(middle["plain"][0] / middle["children"][0] - 1, 3),
        "dearer_by_cpu": round(middle["children"][1] / middle["plain"][1] - 1, 3),
    }


def _drained(stage: Stage, side: str, count: int) -> tuple[float, float]:
    """Tasks a second, and CPU seconds of server and worker."""
    config = stage.fresh("child")
    with Client(config) as client, psycopg.connect(config.database_url, autocommit=True) as db:
        let_go = held_back(client)
        if side == "plain":
            client.submit_many(tasks.noop, [{"n": n} for n in range(count)])
        else:
            client.submit_flow(group(tasks.noop.s(n) for n in range(count)).then(tasks.after.s()))
        db.execute("VACUUM ANALYZE tasks")
        stage.server.checkpoint()
        with stage.workers(config) as workers:
            before = stage.cpu(workers)
            let_go()
            until(lambda: value(db, IDLE))
            return value(db, RATE), stage.cpu(workers) - before


def gate(stage: Stage, count: int) -> dict[str, Any]:
    """So many children on one gate: submitted, run, counted, and read by their join."""
    config = stage.fresh("gate")
    with Client(config) as client, psycopg.connect(config.database_url, autocommit=True) as db:
        before, began = _peak_mb(), time.monotonic()
        run = client.submit_flow(group(tasks.noop.s(n) for n in range(count)).then(tasks.count.s()))
        submitted = time.monotonic() - began
        grown = _peak_mb() - before
        db.execute("VACUUM ANALYZE tasks")
        with stage.workers(config) as [worker]:
            until(lambda: value(db, f"SELECT finished_at IS NOT NULL FROM flows WHERE id = '{run.id}'"))
            peak = _peak_of(worker)
        assert client.get_task(run.tasks["flows.count"][0]).result == count
        [(drained, to_join, reading)] = db.execute(
            "SELECT extract(epoch FROM max(completed_at) - min(started_at))::float8, "
            "1000 * extract(epoch FROM (SELECT started_at FROM tasks WHERE name = 'flows.count') "
            "- max(completed_at))::float8, "
            "(SELECT extract(epoch FROM completed_at - started_at)::float8 FROM tasks WHERE name = 'flows.count') "
            "FROM tasks WHERE name = 'flows.noop'"
        ).fetchall()
    return {
        "children": count,
        "submit_seconds": round(submitted, 1),
        "submitter_mb": round(grown),
        "drain_seconds": round(drained, 1),
        "children_per_second": round(count / drained),
        "last_child_to_join_ms": round(to_join, 1),
        "join_reads_seconds": round(reading, 1),
        "worker_peak_mb": round(peak),
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _peak_of(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def joins(stage: Stage, count: int) -> dict[str, Any]:
    """Groups of four, one after the other: from the end of the last member to the start of the join."""
    config = stage.fresh("joins")
    with Client(config) as client, stage.workers(config):
        for number in range(count):
            run = client.submit_flow(group(tasks.member.s(number) for _ in range(4)).then(tasks.join.s()))
            client.wait_for(run.tasks["flows.join"][0], timeout=60)
    found = sorted(
        1000 * (moments(f"{stage.marks}.join{n}")[0] - moments(f"{stage.marks}.member{n}")[-1])
        for n in range(count // 10, count)  # the first ones find nothing prepared
    )
    return {
        "joins": len(found),
        "p50_ms": round(statistics.median(found), 2),
        "p99_ms": round(found[int(len(found) * 0.99)], 2),
        "max_ms": round(found[-1], 2),
    }


def steps(stage: Stage, count: int, each: int) -> dict[str, Any]:
    """Durable functions that do nothing but steps."""
    config = stage.fresh("steps")
    with Client(config) as client, psycopg.connect(config.database_url, autocommit=True) as db:
        let_go = held_back(client)
        client.submit_many(tasks.steps, [{"number": each}] * count)
        with stage.workers(config) as workers:
            before = stage.cpu(workers)
            let_go()
            until(lambda: value(db, IDLE))
            cpu = stage.cpu(workers) - before
        [(recorded, seconds)] = db.execute(
            "SELECT (SELECT count(*) FROM steps), extract(epoch FROM max(completed_at) - min(started_at))::float8 "
            "FROM tasks"
        ).fetchall()
    assert recorded == count * each
    return {
        "tasks": count,
        "steps": recorded,
        "steps_per_second": round(recorded / seconds),
        "cpu_us_each": round(cpu / recorded * 1e6, 1),
    }
