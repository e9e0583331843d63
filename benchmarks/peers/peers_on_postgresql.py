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

OBAN = System(
    name="oban",
    environment="oban",
    distribution="oban",
    adapter="oban_adapter.py",
    options={"concurrency": 200, "pool": 10, "batch": 1000},
    sizes={"W1": 5000, "W2": 16_000, "drain": 16_000, "W6": 8000, "W10": 8000},
    slots=200,
    unfinished=("oban_jobs WHERE state IN ('available', 'executing')",),
    finished="oban_jobs WHERE state = 'completed'",
    prefill=(
        "INSERT INTO oban_jobs (state, queue, worker, completed_at)"
        " SELECT 'completed', 'default', 'none', now() FROM generate_series(1, {finished})",
        # Its highest priority is 0, which is the default too.
        "INSERT INTO oban_jobs (state, queue, worker, priority, scheduled_at)"
        " SELECT 'scheduled', 'default', 'none', 0, now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)

SAQ = System(
    name="saq",
    environment="saq",
    distribution="saq",
    adapter="saq_adapter.py",
    options={"concurrency": 100, "pool": 20, "submit_pool": 10, "batch": 200},
    sizes={"W1": 3000, "W2": 6000, "drain": 4000, "W10": 4000},
    slots=100,
    unfinished=("saq_jobs WHERE status IN ('queued', 'active') AND scheduled <= extract(epoch FROM now())",),
    finished="saq_jobs WHERE status = 'complete'",
    prefill=(
        "INSERT INTO saq_jobs (key, job, queue, status, scheduled, expire_at) SELECT 'finished' || i, '\\x7b7d',"
        " 'default', 'complete', 0, extract(epoch FROM now())::bigint + 100000 FROM generate_series(1, {finished}) i",
        # Its highest priority is the smallest number, and the worker asks for 0 and above.
        "INSERT INTO saq_jobs (key, job, queue, status, priority, scheduled) SELECT 'future' || i, '\\x7b7d',"
        " 'default', 'queued', 0, extract(epoch FROM now())::bigint + 86400 FROM generate_series(1, {future}) i",
    ),
)

CHANCY = System(
    name="chancy",
    environment="chancy",
    distribution="chancy",
    adapter="chancy_adapter.py",
    options={"concurrency": 1000, "threads": 10, "flush_seconds": 0.05, "batch": 1000},
    sizes={"W1": 3000, "W2": 10_000, "drain": 10_000, "W6": 3000, "W10": 4000},
    slots=1000,
    unfinished=(
        "chancy_jobs WHERE state IN ('pending', 'running') AND (scheduled_at IS NULL OR scheduled_at < now())",
    ),
    finished="chancy_jobs WHERE state = 'succeeded'",
    prefill=(
        "INSERT INTO chancy_jobs (id, queue, func, state, completed_at)"
        " SELECT gen_random_uuid(), 'default', 'none', 'succeeded', now() FROM generate_series(1, {finished})",
        "INSERT INTO chancy_jobs (id, queue, func, state, priority, scheduled_at) SELECT gen_random_uuid(),"
        " 'default', 'none', 'pending', 100, now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)

DBOS = System(
    name="dbos",
    environment="dbos",
    distribution="dbos",
    adapter="dbos_adapter.py",
    workloads=ALL - {"W7"},
    options={"concurrency": 100, "pool": 20, "poll_seconds": 0.01, "threads": 8},
    sizes={"W1": 1500, "W2": 1500, "drain": 1500, "W6": 1000, "W10": 1500},
    slots=100,
    unfinished=("dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",),
    finished="dbos.workflow_status WHERE status = 'SUCCESS' AND name IN ('noop', 'sync_noop')",
)

ABSURD = System(
    name="absurd",
    environment="absurd",
    distribution="absurd-sdk",
    adapter="absurd_adapter.py",
    workloads=ALL - {"W6", "W7"},  # no threads for an async worker
    options={"concurrency": 50, "batch": 50, "poll_seconds": 0.01, "clients": 8},
    sizes={"W1": 2000, "W2": 4000, "drain": 2000, "W10": 4000},
    slots=50,
    unfinished=("absurd.t_default WHERE state IN ('pending', 'running')",),
    finished="absurd.t_default WHERE state = 'completed'",
)

AWA = System(
    name="awa",
    environment="awa",
    distribution="awa-pg",
    adapter="awa_adapter.py",
    workloads=ALL - {"W7"},
    options={"concurrency": 200, "pool": 20, "batch": 1000},
    sizes={"W1": 3000, "W2": 40_000, "drain": 40_000, "W6": 20_000, "W10": 4000},
    slots=200,
    unfinished=("awa.jobs WHERE state IN ('available', 'running')",),  # what is finished is soon summed up and dropped
)

PG_BOSS = System(
    name="pg-boss",
    environment="node",
    distribution="pg-boss",
    adapter="pg_boss_adapter.js",
    language="node",
    workloads=ALL - {"W6"},
    options={"batch": 5000, "workers": 4, "insertBatch": 1000, "pool": 10},
    sizes={"W1": 3000, "W2": 50_000, "drain": 200_000, "W10": 4000},
    slots=1,
    unfinished=("pgboss.job WHERE state < 'completed' AND name IN ('noop', 'ping', 'nap') AND start_after <= now()",),
    finished="pgboss.job WHERE state = 'completed' AND name = 'noop'",
    prefill=(
        "INSERT INTO pgboss.job (name, state, completed_on)"
        " SELECT 'noop', 'completed', now() FROM generate_series(1, {finished})",
        "INSERT INTO pgboss.job (name, priority, start_after)"
        " SELECT 'noop', 100, now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)

ON_POSTGRESQL = (PROCRASTINATE, PGQUEUER, OBAN, SAQ, CHANCY, DBOS, ABSURD, AWA, GRAPHILE_WORKER, PG_BOSS)
