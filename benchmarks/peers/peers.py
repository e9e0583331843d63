"""The peers on PostgreSQL: their best documented settings, and where they keep what is left and what is done."""

from __future__ import annotations

from benchmarks.peers.systems import WORKLOADS, System

ALL = frozenset(WORKLOADS)

PROCRASTINATE = System(
    name="procrastinate",
    environment="procrastinate",
    distribution="procrastinate",
    adapter="procrastinate_adapter.py",
    options={"concurrency": 30, "pool": 30, "batch": 1000},
    sizes={"W1": 3000, "W2": 20_000, "drain": 4000, "W10": 4000},
    slots=30,
    unfinished=(
        "procrastinate_jobs WHERE status IN ('todo', 'doing') AND (scheduled_at IS NULL OR scheduled_at < now())",
    ),
    finished="procrastinate_jobs WHERE status = 'succeeded'",
    prefill=(
        "INSERT INTO procrastinate_jobs (queue_name, task_name, status, args, attempts)"
        " SELECT 'default', 'noop', 'succeeded', '{{}}', 1 FROM generate_series(1, {finished})",
        "INSERT INTO procrastinate_jobs (queue_name, task_name, status, args, priority, scheduled_at)"
        " SELECT 'default', 'noop', 'todo', '{{}}', 100, now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)

PGQUEUER = System(
    name="pgqueuer",
    environment="pgqueuer",
    distribution="pgqueuer",
    adapter="pgqueuer_adapter.py",
    options={"batch": 500, "pool": 20, "enqueue_batch": 1000},
    sizes={"W1": 5000, "W2": 50_000, "drain": 80_000, "W6": 40_000, "W8": 200_000, "W10": 8000},
    slots=500,
    unfinished=("pgqueuer WHERE execute_after < now()",),
    finished="pgqueuer_log WHERE status = 'successful'",
    prefill=(
        "INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint)"
        " SELECT i, 'successful', 0, 'noop' FROM generate_series(1, {finished}) AS i",
        "INSERT INTO pgqueuer (priority, status, entrypoint, execute_after)"
        " SELECT 100, 'queued', 'noop', now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)

GRAPHILE_WORKER = System(
    name="graphile-worker",
    environment="node",
    distribution="graphile-worker",
    adapter="graphile_worker_adapter.js",
    language="node",
    workloads=ALL - {"W6"},  # Node has no synchronous tasks in threads
    options={"concurrency": 24, "pool": 25, "localQueue": 500, "batch": 1000},
    sizes={"W1": 5000, "W2": 50_000, "drain": 200_000, "W10": 8000},
    slots=24,
    unfinished=("graphile_worker._private_jobs WHERE run_at <= now()",),
    prefill=(
        # Finished jobs are deleted, so there is no history to make.
        "INSERT INTO graphile_worker._private_tasks (identifier) VALUES ('noop') ON CONFLICT DO NOTHING",
        "INSERT INTO graphile_worker._private_jobs (task_id, priority, run_at)"
        " SELECT (SELECT id FROM graphile_worker._private_tasks WHERE identifier = 'noop'), -100,"
        " now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)

ON_POSTGRESQL = (PROCRASTINATE, PGQUEUER, GRAPHILE_WORKER)
