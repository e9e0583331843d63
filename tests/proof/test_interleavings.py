"""Two sessions on one task in every order; three in some. `make interleavings` plays all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from proof.interleavings import durable, joins, limits, schedules, spawning
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


def test_spawning_against_ends_folds_and_cancels_in_every_order_breaks_no_invariant(table: Table) -> None:
    groups = [*spawning.PAIRS, *spawning.TRIPLES]
    assert [wrong for group in groups for wrong in table.spawning.play_all(group)] == []


def test_a_join_against_ends_folds_cancels_and_replays_in_every_order_breaks_no_invariant(table: Table) -> None:
    groups = [*joins.PAIRS, joins.TRIPLES[0]]
    assert [wrong for group in groups for wrong in table.joins.play_all(group)] == []


def test_a_failed_join_against_replays_folds_and_cancels_in_every_order_breaks_no_invariant(table: Table) -> None:
    groups = [pair for pair in joins.PAIRS if any("replay" in operation for operation in pair)]
    assert [wrong for group in groups for wrong in table.failed_joins.play_all(group)] == []


def test_tasks_that_are_added_without_being_counted_are_caught(table: Table) -> None:
    wrong = list(table.spawning.play_all(("add uncounted", "complete")))
    assert any("expects other tasks than there are" in each for each in wrong)


def test_a_task_that_comes_after_the_cancel_of_its_flow_is_left_to_the_sweep(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting() -> bool:
        played = table.spawning.play_all(("add uncounted", "cancel the flow"))
        return any("spawned into a cancelled flow and waits" in each for each in played)

    assert not waiting()
    monkeypatch.setattr(table.spawning, "sweep", table.spawning.fold)
    assert waiting()


def test_claims_behind_limits_against_ends_and_changes_in_every_order_break_no_invariant(table: Table) -> None:
    groups = [*limits.PAIRS, *limits.TRIPLES[:1]]
    assert [wrong for group in groups for wrong in table.limits.play_all(group)] == []


def test_a_claim_that_does_not_lock_the_limit_is_caught(table: Table) -> None:
    """Two claims that count at the same time both find the place free."""
    body = table.db.execute("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'tasklib_admit'").fetchone()
    assert body is not None
    table.db.execute(body[0].replace("FOR NO KEY UPDATE SKIP LOCKED", "").encode())
    try:
        wrong = [*table.limits.play_all(("claim", "claim as another", "complete"))]
    finally:
        table.db.execute(body[0].encode())
    assert any("run behind a limit of 1" in each for each in wrong)
