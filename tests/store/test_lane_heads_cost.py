"""What it costs to find the heads of some lanes, beside many others in the same queue."""

from __future__ import annotations

import psycopg
import pytest

from tests.store.test_claim import insert

LANES, TASKS = 100, 50


def pages_for_heads(db: psycopg.Connection, since: str, until: str) -> tuple[int, int]:
    """The heads of the lanes in this range, and the pages that were read for them."""
    text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM tasklib_heads('default', %s, %s)"
    row = psycopg.ClientCursor(db).execute(text, (since, until)).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return plan["Actual Rows"], plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.mark.parametrize("number", [0, LANES // 2, LANES - 1])
def test_the_heads_of_one_lane_cost_the_same_wherever_it_stands_among_others(
    db: psycopg.Connection, number: int
) -> None:
    lane = f"E'\\x01' || to_char(n % {LANES}, 'FM00')"
    for priority in ("0", "50"):
        insert(db, LANES * TASKS, name="'work'", lane=lane, priority=priority)
    db.execute("VACUUM ANALYZE tasks")
    name = f"\x01{number:02d}"
    pages_for_heads(db, name, name + "\x01")  # reads the catalogue
    heads, pages = pages_for_heads(db, name, name + "\x01")
    assert heads == 2
    assert pages < 60  # of more than two hundred for the last lane, if the scan began at the first
