"""Rows whose ids are known are found by their ids, whatever the statistics say."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tasklib import Config
from tasklib.db.connect import TASKS, conninfo
from tasklib.db.fast_path import in_text
from tasklib.db.query import Query
from tasklib.sql import numbered
from tasklib.store import control, settle
from tasklib.store.settle import Completion, Failure, Lease
from tests.store.test_claim import insert, scans_of_tasks

LEASES = [Lease(str(uuid4()), 1) for _ in range(100)]
QUERIES: list[Query[Any]] = [
    settle.complete([Completion(lease, "{}") for lease in LEASES], "w"),
    settle.fail([Failure(lease, "e", "error", 1.0) for lease in LEASES], "w", crash_limit=3),
    settle.release(LEASES, "w"),
    settle.stop([(lease, "e") for lease in LEASES], "w"),
    settle.extend(LEASES, "w", 600),
    settle.progress([(lease, "1") for lease in LEASES], "w"),
    settle.settled(LEASES),
    control.cancel_requests(LEASES),
]


@pytest.mark.direct(reason="a worker's plans are made with the settings of its session")
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_tasks_of_known_ids_are_found_by_the_primary_key(
    config: Config, db: psycopg.Connection, query: Query[Any], mode: str
) -> None:
    """With no running row when it was analysed, the index of running rows looks like the shortest way."""
    insert(db, 5_000, name="'work'")
    db.execute("ANALYZE tasks")
    text, names = numbered(query.name, None)
    values = [in_text(query.parameters[name]) for name in names]
    with psycopg.connect(conninfo(config, role=TASKS), autocommit=True) as connection:
        connection.execute(f"SET plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE explained AS {text}".encode())
        explain = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE explained ({})")
        given = sql.SQL(", ").join([sql.Literal(None if v is None else v.decode()) for v in values])
        row = connection.execute(explain.format(given)).fetchone()
    assert row is not None
    assert {scan["Index Name"] for scan in scans_of_tasks(row[0][0]["Plan"])} == {"tasks_pkey"}
