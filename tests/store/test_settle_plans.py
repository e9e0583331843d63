"""Rows whose ids are known are found by their ids, whatever the statistics say: also where they say "empty"."""

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
from tasklib.store import claim, control, settle
from tasklib.store.claim import Served
from tasklib.store.settle import Completion, Failure, Lease
from tests.store.test_claim import TERMS, insert, scans_of_tasks

LEASES = [Lease(str(uuid4()), 1) for _ in range(100)]


class Plain(Lease):
    """Of a task that no gate counts, and that has no limits."""

    @property
    def reports(self) -> bool:
        return False

    @property
    def holds_places(self) -> bool:
        return False


QUERIES: list[Query[Any]] = [
    settle.complete([Completion(lease, "{}") for lease in LEASES], "w"),
    settle.complete([Completion(lease, "{}") for lease in LEASES], "w", contended=True),
    settle.complete([Completion(Plain(*lease), "{}") for lease in LEASES], "w"),
    settle.fail([Failure(lease, "e", "error", 1.0) for lease in LEASES], "w", crash_limit=3),
    settle.release(LEASES, "w"),
    settle.stop([(lease, "e") for lease in LEASES], "w"),
    settle.extend(LEASES, "w", 600),
    settle.progress([(lease, "1") for lease in LEASES], "w"),
    settle.settled(LEASES),
    control.cancel_requests(LEASES),
]


CLAIMS: list[Query[Any]] = [claim.claim(Served(["work"]), 10, "w", **TERMS), claim.set_apart(Served(["work"]))]
MODES = ["force_generic_plan", "force_custom_plan"]


def plan(config: Config, query: Query[Any], mode: str) -> dict[str, Any]:
    """The plan a worker gets."""
    text, names = numbered(query.name, None)
    values = [in_text(query.parameters[name]) for name in names]
    with psycopg.connect(conninfo(config, role=TASKS), autocommit=True) as connection:
        connection.execute(f"SET plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE explained AS {text}".encode())
        explain = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE explained ({})")
        given = sql.SQL(", ").join([sql.Literal(None if v is None else v.decode()) for v in values])
        row = connection.execute(explain.format(given)).fetchone()
    assert row is not None
    whole: dict[str, Any] = row[0][0]["Plan"]
    return whole


@pytest.mark.direct(reason="a worker's plans are made with the settings of its session")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_tasks_of_known_ids_are_found_by_the_primary_key(
    config: Config, db: psycopg.Connection, query: Query[Any], mode: str
) -> None:
    """With no running row when it was analysed, the index of running rows looks like the shortest way."""
    insert(db, 5_000, name="'work'")
    db.execute("ANALYZE tasks")
    assert {scan["Index Name"] for scan in scans_of_tasks(plan(config, query, mode))} == {"tasks_pkey"}


@pytest.mark.direct(reason="a worker's plans are made with the settings of its session")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("query", [*QUERIES, *CLAIMS], ids=lambda query: query.name)
def test_a_burst_into_a_table_that_was_analysed_empty_is_not_read_from_end_to_end(
    config: Config, db: psycopg.Connection, query: Query[Any], mode: str
) -> None:
    """Retention takes all rows, their pages stay, and the statistics count one row for any number of pages."""
    insert(db, 500, name="'work'")
    db.execute("DELETE FROM tasks")
    db.execute("ANALYZE tasks")
    insert(db, 500, name="'work'")
    scans = scans_of_tasks(plan(config, query, mode))
    assert scans
    assert [scan for scan in scans if "Index Cond" not in scan and "TID Cond" not in scan] == []
