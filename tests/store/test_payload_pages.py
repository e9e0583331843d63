"""Pages of stored payloads are read by an index: a rotation of a million tasks must not sort them for each page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib.db.query import Query
from tasklib.store import stored_payloads
from tests.store.test_backlog import plan_of
from tests.store.test_claim import insert


@pytest.mark.parametrize(
    "page", [stored_payloads.sealed_with("old", limit=10), stored_payloads.unfinished(limit=10)], ids=lambda p: p.name
)
def test_a_page_reads_no_more_rows_than_it_has(db: psycopg.Connection, page: Query[Any]) -> None:
    insert(db, 3000, name="'pay'", key_id="'old'")
    db.execute("ANALYZE tasks")
    nodes = list(_nodes(plan_of(db, page)))
    assert [node["Node Type"] for node in nodes if "Sort" in node["Node Type"]] == []
    assert [node["Actual Rows"] for node in nodes if node.get("Relation Name") == "tasks"] == [10]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _nodes(part)
