"""Capabilities: who may take what, and that tasks without a capable worker cost the others nothing."""

from __future__ import annotations

import psycopg
import pytest

from tasklib.store.claim import Served
from tests.store.test_claim import Claiming, claiming, insert, pages_to_find, rows_read, scans_of_tasks

__all__ = ["claiming"]  # the fixture

ABSENT = 100_000
A_LOOK = 5
"""The pages of one look: an index of this size is at most four deep, and then there is the row."""


ROUNDING = 4
"""Before PostgreSQL 18, EXPLAIN rounds the rows of each loop: a look that finds nothing may count as one row."""


@pytest.mark.long
def test_hundred_thousand_tasks_for_an_absent_capability_at_the_head_cost_other_claims_nothing(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    others = [Served(["work"]), Served(["work"], queues=["default"], capabilities=["cpu"])]
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    insert(db, 200, name="'work'", required_capabilities="CASE n % 2 WHEN 0 THEN '{}' ELSE '{cpu}' END::text[]")
    # A deeper index costs a page per look; so the table is large without them too, with tasks that are not due.
    insert(db, ABSENT, name="'work'", scheduled_at="now() + interval '1 day'")
    db.execute("ANALYZE tasks")
    before = [claiming.explain(served, 50) for served in others]

    # Older and higher than everything else, in the same queue and of the same name.
    insert(
        db,
        ABSENT,
        name="'work'",
        required_capabilities="'{gpu}'",
        priority="100",
        scheduled_at="now() - interval '1 hour' - n * interval '1 ms'",
    )
    db.execute("ANALYZE tasks")
    for served, small in zip(others, before, strict=True):
        large = claiming.explain(served, 50)
        assert {scan["Node Type"] for scan in scans_of_tasks(large)} == {"Index Scan", "Tid Scan"}
        assert large["Actual Rows"] == small["Actual Rows"] == 50
        # The one look that finds out that the lane is not ours: a row, on a way down the index.
        assert round(rows_read(large)) <= round(rows_read(small)) + 1 + ROUNDING
        assert pages_to_find(large) <= pages_to_find(small) + A_LOOK


def test_thousands_of_different_absent_capabilities_cost_one_look_each_and_no_more(
    claiming: Claiming, db: psycopg.Connection
) -> None:
    db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
    insert(db, 100, name="'work'")
    insert(db, 20_000, name="'work'", required_capabilities="ARRAY['c' || n % 200]", priority="n % 100")
    db.execute("ANALYZE tasks")
    plan = claiming.explain(Served(["work"]), 100)
    assert rows_read(plan) <= 2 * 100 + 200 + 5


def test_worker_takes_what_it_has_all_capabilities_for(claiming: Claiming, db: psycopg.Connection) -> None:
    for required in ("{}", "{a}", "{b}", "{a,b}", "{b,a}", "{a,a}", "{c}", "{a,b,c}"):
        insert(db, 1, name="'work'", required_capabilities=f"'{required}'", tags=f"""'{{"of": "{required}"}}'""")

    def taken(*capabilities: str) -> set[str]:
        ids = [c.id for c in claiming.claim(Served(["work"], capabilities=capabilities), 100)]
        return {row[0] for row in db.execute("SELECT tags->>'of' FROM tasks WHERE id = ANY (%s::uuid[])", [ids])}

    assert taken() == {"{}"}
    assert taken("a") == {"{a}", "{a,a}"}
    assert taken("b", "a") == {"{b}", "{a,b}", "{b,a}"}
    assert taken("a", "b", "c", "d") == {"{c}", "{a,b,c}"}
