"""Two sessions on one task in every order; three in some. `make interleavings` plays all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from proof.interleavings import durable, schedules
from proof.interleavings.run import PAIRS, Stat, Table
from proof.interleavings.stepping import orders

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table(server_url: str, template_database: str) -> Iterator[Table]:
    from tasklib.testing import databases

    with databases.database(server_url, template_database) as url, closing(Table(url)) as made:
        yield made


def test_the_orders_of_two_and_three_sessions_are_all_there() -> None:
    assert len(set(orders(2))) == 6
    assert len(set(orders(3))) == 90


@pytest.mark.parametrize("state", ["pending", "running", "expired", "completed"])
def test_two_sessions_in_every_order_break_no_invariant(table: Table, state: str) -> None:
    stat = Stat()
    table.play_all(PAIRS, [state], stat)
    assert stat.wrong == []
    assert stat.orders == 6 * len(PAIRS)


@pytest.mark.parametrize(
    "operations",
    [
        ("complete", "rescue", "cancel"),
        ("expire", "rescue", "complete"),
        ("expire", "extend", "rescue"),
        ("claim", "cancel", "rescue"),
        ("rescue", "claim", "complete"),
        ("complete", "replay", "claim"),
    ],
    ids=" | ".join,
)
def test_three_sessions_in_every_order_break_no_invariant(table: Table, operations: tuple[str, ...]) -> None:
    stat = Stat()
    table.play_all([operations], ["running", "expired"], stat)
    assert stat.wrong == []
    assert stat.orders == 180


@pytest.mark.parametrize("operations", [*schedules.PAIRS, *schedules.TRIPLES], ids=" | ".join)
def test_leaders_operators_and_deploys_of_one_schedule_in_every_order_break_no_invariant(
    table: Table, operations: tuple[str, ...]
) -> None:
    assert list(table.schedules.play_all(operations)) == []


def test_signals_suspensions_and_steps_of_a_durable_task_in_every_order_break_no_invariant(table: Table) -> None:
    groups = [*durable.PAIRS, *durable.TRIPLES]
    assert [wrong for group in groups for wrong in table.durable.play_all(group)] == []


def test_a_suspension_that_has_not_seen_what_it_says_is_caught(table: Table) -> None:
    wrong = list(table.durable.play_all(("suspend with a wrong number", "send")))
    assert any("a signal waits, and so does the task" in each for each in wrong)
