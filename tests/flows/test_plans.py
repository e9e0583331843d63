"""The statements of flows read what they need by an index, however much lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasklib import Config
from tasklib.db.query import Query
from tasklib.store import flows
from tasklib.store.fleet import Term
from tasklib.store.settle import Lease
from tests.store.test_settle_plans import MODES, plan

GATES = [str(uuid4()) for _ in range(3)]
LEASE = Lease(str(uuid4()), 1)
QUERIES: list[tuple[Query[Any], set[str]]] = [
    (flows.fold(GATES), {"tasks_waiting", "tasks_pkey"}),
    (flows.fold(None), {"tasks_waiting", "tasks_pkey"}),
    (flows.with_arrivals(GATES), set()),
    (flows.spawn(LEASE, "w", "[]"), {"tasks_pkey"}),
    (flows.adopt(LEASE, "w", uuid4()), {"tasks_pkey"}),
    (flows.children_look(LEASE.id, str(uuid4())), {"tasks_pkey"}),
    (flows.node_results(str(uuid4()), ["a"], False, None, 100), {"tasks_flow", "tasks_pkey"}),
    (flows.to_cancel(100), {"tasks_flow", "tasks_pkey"}),
    (flows.cancel_tasks(uuid4(), 100), {"tasks_flow", "tasks_pkey"}),
    (flows.cancel_rest(uuid4()), {"tasks_flow", "tasks_pkey"}),
    (flows.replay_tasks(uuid4(), 100), {"tasks_flow", "tasks_pkey"}),
    (flows.nodes_of(uuid4()), {"tasks_flow", "tasks_pkey"}),
    (flows.task_ids(uuid4()), {"tasks_flow", "tasks_pkey"}),
    (flows.forget(Term("leader", 1), 1, 100), {"tasks_flow", "tasks_pkey"}),
]


def scans(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every node of a plan that reads a table."""
    if "Relation Name" in part and part["Node Type"] != "ModifyTable":
        yield part
    for below in part.get("Plans", ()):
        yield from scans(below)


@pytest.mark.direct(reason="a worker's plans are made with the settings of its session")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("query", "indexes"), QUERIES, ids=lambda given: getattr(given, "name", ""))
def test_a_statement_of_flows_reads_no_table_from_end_to_end(
    config: Config, db: psycopg.Connection, query: Query[Any], indexes: set[str], mode: str
) -> None:
    db.execute("INSERT INTO flows (name) SELECT 'f' FROM generate_series(1, 500)")
    db.execute("INSERT INTO gates (flow, expected) SELECT id, 9 FROM flows")
    db.execute("INSERT INTO arrivals (gate, completed) SELECT id, 1 FROM gates, generate_series(1, 4)")
    db.execute(
        "INSERT INTO tasks (name, flow, node, waits_for) SELECT 'work', flow, 'a', id FROM gates, generate_series(1, 4)"
    )
    db.execute("INSERT INTO tasks (name) SELECT 'plain' FROM generate_series(1, 3000)")
    db.execute("ANALYZE")
    found = list(scans(plan(config, query, mode)))
    read = {"flows", "gates", "arrivals", "steps"}
    assert [each for each in found if each["Relation Name"] in read and each["Node Type"] == "Seq Scan"] == []
    of_tasks = [each for each in found if each["Relation Name"] == "tasks"]
    assert {each.get("Index Name") for each in of_tasks} <= indexes
    assert bool(of_tasks) == bool(indexes)
    assert [each for each in of_tasks if "Index Cond" not in each] == [], "an index from end to end is no better"
