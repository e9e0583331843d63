"""TaskLib and the yardsticks it is held against. Every knob of TaskLib's side is here."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.peers.systems import Role, System
from tasklib.bench.plan import CONCURRENCY

NOTIFYING_TRIGGERS = ["tasks_wake"]
"""The triggers that notify on INSERT; without them no worker is notified."""

TASKLIB = System(
    name="tasklib",
    environment="tasklib",
    distribution="tasklib-pg",
    adapter="tasklib_adapter.py",
    role=Role.OURS,
    options={"concurrency": CONCURRENCY, "batch": 5000, "client": "sync"},
    sizes={"W1": 5000, "W2": 100_000, "drain": 200_000, "W6": 60_000, "W10": 16_000},
    slots=CONCURRENCY,
    unfinished=(
        "tasks WHERE state = 'running'",
        # The lane is named in full, or the look at the end would read all the future rows of W7.
        "tasks WHERE state IN ('pending', 'failed') AND queue = 'default' AND name IN ('noop', 'sync_noop', 'ping')"
        " AND required_capabilities = '{}' AND priority = 0 AND COALESCE(next_retry_at, scheduled_at) <= now()",
    ),
    finished="tasks WHERE state = 'completed'",
    prefill=(
        "INSERT INTO tasks (name, state, result, started_at, completed_at, scheduled_at)"
        " SELECT 'noop', 'completed', '{{\"value\": null}}', now(), now(), now() - interval '1 hour'"
        " FROM generate_series(1, {finished})",
        "INSERT INTO tasks (name, priority, scheduled_at)"
        " SELECT 'noop', 100, now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)

LIMIT = System(
    name="limit",
    environment="limit",
    distribution="asyncpg",
    adapter="limit_adapter.py",
    role=Role.YARDSTICK,
    options={"batch": 500, "concurrency": 2000, "threads": 8, "copy_batch": 5000},
    sizes={"W1": 5000, "W2": 100_000, "drain": 200_000, "W6": 60_000, "W10": 16_000},
    slots=2000,
    unfinished=(
        "tasks WHERE state = 'running'",
        "tasks WHERE state = 'pending' AND priority = 0 AND scheduled_at <= now()",
    ),
    finished="tasks WHERE state = 'completed'",
    prefill=(
        "INSERT INTO tasks (id, name, state, completed_at)"
        " SELECT (lpad(to_hex((1700000000000 + i)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3)"
        " || '8' || substr(md5((-i)::text), 1, 15))::uuid, 'noop', 'completed', now()"
        " FROM generate_series(1, {finished}) AS i",
        "INSERT INTO tasks (name, priority, scheduled_at)"
        " SELECT 'noop', 100, now() + interval '1 day' FROM generate_series(1, {future})",
    ),
)


def _without_notification(name: str, workloads: set[str], **options: object) -> System:
    """TaskLib's table without notifications: the same columns, indexes and constraints."""
    return replace(
        TASKLIB,
        name=name,
        role=Role.YARDSTICK,
        workloads=frozenset(workloads),
        options={**TASKLIB.options, **options, "without_triggers": NOTIFYING_TRIGGERS},
    )


def _bare(name: str, workload: str, how: str, distribution: str = "psycopg") -> System:
    return replace(
        _without_notification(name, {workload}, how=how),
        adapter="tasks_table_adapter.py",
        distribution=distribution,
    )


OURS = (
    TASKLIB,
    replace(
        TASKLIB,
        name="tasklib-async",
        workloads=frozenset({"W1", "W5", "W10"}),
        options={**TASKLIB.options, "client": "async"},
    ),
    _without_notification("tasklib-silent", {"W10"}),
    _bare("bare-insert", "W1", "psycopg"),
    _bare("bare-insert-async", "W1", "psycopg-async"),
    _bare("bare-insert-asyncpg", "W1", "asyncpg", "asyncpg"),
    _bare("raw-copy", "W2", "copy"),
    _bare("raw-copy-text", "W2", "copy-text"),
    LIMIT,
)
