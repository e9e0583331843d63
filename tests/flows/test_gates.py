"""Gates: what arrives is counted once, and a join fires once or its flow ends by its policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.store import flows, settle
from tasklib.store.settle import Completion, Failure, Lease
from tests.flows.rows import ALL, SETTLED, Rows

DONE = '{"value":1}'


@pytest.fixture
def rows(db: psycopg.Connection) -> Rows:
    return Rows(db)


def complete(rows: Rows, task: UUID) -> None:
    rows.run(settle.complete([Completion(Lease(str(task), rows.hold(task)), DONE)], "w"))


def counts(rows: Rows, gate: UUID) -> tuple[int, int]:
    """How many have completed and failed, as far as they are counted."""
    ((completed, failed),) = rows.db.execute("SELECT completed, failed FROM gates WHERE id = %s", [gate]).fetchall()
    return completed, failed


class Group:
    """Some tasks that report to a gate, and one that waits for it."""

    def __init__(self, rows: Rows, members: int, policy: dict[str, Any] = ALL, *, joins: int = 1, **gate: Any) -> None:
        self.rows = rows
        self.flow, self.end = rows.flow(members + joins)
        self.gate = rows.gate(self.flow, members, policy, **gate)
        self.members = [rows.task(self.flow, f"m{n}", reports_to=[self.gate, self.end]) for n in range(members)]
        self.joins = [rows.task(self.flow, "join", waits_for=self.gate, reports_to=[self.end]) for _ in range(joins)]

    @property
    def join(self) -> str:
        (state,) = {self.rows.state(j) for j in self.joins}
        return state

    def complete(self, *members: int) -> set[str]:
        leases = [Lease(str(self.members[n]), self.rows.hold(self.members[n])) for n in members]
        ours: set[str] = self.rows.run(settle.complete([Completion(lease, DONE) for lease in leases], "w"))
        return ours

    def fail(self, member: int, **how: Any) -> dict[str, str]:
        lease = Lease(str(self.members[member]), self.rows.hold(self.members[member]))
        states: dict[str, str] = self.rows.run(settle.fail([Failure(lease, "boom", "error", 0.0, **how)], "w", 3))
        return states


def test_a_join_opens_when_the_last_of_its_members_has_completed(rows: Rows) -> None:
    group = Group(rows, 3)
    group.complete(0, 1)
    rows.fold()
    assert group.join == "waiting"
    group.complete(2)
    assert group.join == "waiting", "not before the fold"
    rows.fold()
    assert group.join == "pending"
    assert rows.arrivals() == 0
    assert not rows.finished(group.flow)


def test_an_opened_join_waits_in_its_lane_from_the_opening_on(rows: Rows) -> None:
    group = Group(rows, 1)
    rows.db.execute("UPDATE tasks SET scheduled_at = now() - interval '1 day'")
    group.complete(0)
    rows.fold(group.gate)
    due = "SELECT scheduled_at > now() - interval '1 hour' FROM tasks WHERE id = %s"
    assert rows.db.execute(due, [group.joins[0]]).fetchall() == [(True,)]


def test_opening_notifies_workers_that_may_be_asleep(rows: Rows) -> None:
    group = Group(rows, 1)
    group.complete(0)
    ((schema,),) = rows.db.execute("SELECT current_schema()").fetchall()
    rows.db.execute("INSERT INTO workers (id, names, asleep) VALUES ('sleeper', NULL, true)")
    rows.db.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(f"tasklib_{schema}")))
    rows.fold()
    assert [n.payload for n in rows.db.notifies(timeout=30, stop_after=1)] == [""]


def test_a_result_that_comes_twice_or_too_late_is_counted_once(rows: Rows) -> None:
    group = Group(rows, 2)
    token = rows.hold(group.members[0])
    completion = [Completion(Lease(str(group.members[0]), token), DONE)]
    assert rows.run(settle.complete(completion, "w"))
    assert not rows.run(settle.complete(completion, "w"))
    assert not rows.run(settle.complete([Completion(Lease(str(group.members[1]), 7), DONE)], "w"))
    rows.fold()
    assert rows.db.execute("SELECT completed, failed FROM gates WHERE id = %s", [group.gate]).fetchall() == [(1, 0)]
    assert group.join == "waiting"


def test_a_failed_attempt_does_not_arrive_and_a_dead_letter_does(rows: Rows) -> None:
    group = Group(rows, 2)
    assert set(group.fail(0).values()) == {"failed"}
    assert rows.arrivals() == 0
    assert set(group.fail(1, retriable=False).values()) == {"dead_letter"}
    rows.fold()
    assert group.join == "cancelled"


def _cancelled_by_a_client(rows: Rows, group: Group, config: Config) -> None:
    with Client(config) as client:
        client.cancel_task(group.members[0])


def _cancelled_with_many(rows: Rows, group: Group, config: Config) -> None:
    with Client(config) as client:
        client.cancel_tasks(name="m0")


def _stopped(rows: Rows, group: Group, config: Config) -> None:
    lease = Lease(str(group.members[0]), rows.hold(group.members[0]))
    rows.run(settle.stop([(lease, "stopped")], "w"))


def _released_after_a_cancel(rows: Rows, group: Group, config: Config) -> None:
    lease = Lease(str(group.members[0]), rows.hold(group.members[0]))
    rows.db.execute("UPDATE tasks SET cancel_requested_at = now() WHERE id = %s", [group.members[0]])
    assert rows.run(settle.release([lease], "w")) == {str(group.members[0]): "cancelled"}


def _given_up_by_the_leader(rows: Rows, group: Group, config: Config) -> None:
    from tasklib.store import fleet, maintenance

    rows.hold(group.members[0], "gone")
    rows.db.execute(
        "UPDATE tasks SET locked_until = now() - interval '1 h', begun_token = lease_token, crash_count = 2 "
        "WHERE id = %s",
        [group.members[0]],
    )
    term = rows.run(fleet.lead("leader", 60))
    assert term is not None
    assert [state for _, _, state in rows.run(maintenance.rescue(term, 3, 100))] == ["dead_letter"]


def _timed_out_by_the_leader(rows: Rows, group: Group, config: Config) -> None:
    from tasklib.store import fleet, maintenance

    rows.hold(group.members[0])
    rows.db.execute(
        "UPDATE tasks SET timeout_seconds = 1, started_at = now() - interval '1 h', begun_token = lease_token, "
        "max_retries = 0 WHERE id = %s",
        [group.members[0]],
    )
    term = rows.run(fleet.lead("leader", 60))
    assert term is not None
    assert [state for _, _, state in rows.run(maintenance.fail_overdue(term, 30, 5, 100))] == ["dead_letter"]


ENDS: list[Callable[[Rows, Group, Config], None]] = [
    _cancelled_by_a_client,
    _cancelled_with_many,
    _stopped,
    _released_after_a_cancel,
    _given_up_by_the_leader,
    _timed_out_by_the_leader,
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__.strip("_"))
def test_however_a_member_ends_its_join_hears_of_it(
    rows: Rows, config: Config, end: Callable[[Rows, Group, Config], None]
) -> None:
    group = Group(rows, 2)
    end(rows, group, config)
    rows.fold()
    ((state, error),) = rows.db.execute("SELECT state, error FROM tasks WHERE node = 'join'").fetchall()
    assert state == "cancelled"
    assert error.startswith(f"UpstreamFailed: cancelled because m0 (task {group.members[0]})")


def test_a_failure_cascades_and_names_the_first_culprit_in_every_task(rows: Rows) -> None:
    group = Group(rows, 1)
    second, third = rows.gate(group.flow, 1), rows.gate(group.flow, 1)
    rows.db.execute("UPDATE tasks SET reports_to = reports_to || %s WHERE node = 'join'", [second])
    rows.db.execute("UPDATE gates SET expected = 4 WHERE id = %s", [group.end])
    rows.task(group.flow, "after", waits_for=second, reports_to=[third, group.end])
    rows.task(group.flow, "last", waits_for=third, reports_to=[group.end])
    group.fail(0, retriable=False)
    rows.fold()
    found = rows.db.execute("SELECT node, state, error FROM tasks WHERE node <> 'm0' ORDER BY id").fetchall()
    assert [(node, state) for node, state, _ in found] == [(n, "cancelled") for n in ("join", "after", "last")]
    assert all(str(group.members[0]) in error for _, _, error in found)
    assert rows.finished(group.flow)


def test_settled_opens_when_all_have_ended_however_they_did(rows: Rows) -> None:
    group = Group(rows, 2, SETTLED)
    group.fail(0, retriable=False)
    rows.fold()
    assert group.join == "waiting"
    group.complete(1)
    rows.fold()
    assert group.join == "pending"


@pytest.mark.parametrize("policy", [{"kind": "at_least", "count": 2}, {"kind": "at_least", "share": 0.5}])
def test_at_least_opens_early_and_fails_when_too_few_are_left(rows: Rows, policy: dict[str, Any]) -> None:
    early, late = Group(rows, 4, policy), Group(rows, 4, policy)
    early.complete(0, 3)
    for n in (0, 1):
        late.fail(n, retriable=False)
    rows.fold()
    assert (early.join, late.join) == ("pending", "waiting")
    late.fail(2, retriable=False)
    rows.fold()
    assert late.join == "cancelled"


def test_an_optional_member_may_fail(rows: Rows) -> None:
    group = Group(rows, 2, {"kind": "all", "optional": ["m0"]})
    group.fail(0, retriable=False)
    rows.fold()
    assert group.join == "waiting"
    group.complete(1)
    rows.fold()
    assert group.join == "pending"


def test_a_gate_that_is_not_sealed_does_not_open(rows: Rows) -> None:
    group = Group(rows, 1, sealed=False)
    group.complete(0)
    rows.fold()
    assert group.join == "waiting"
    rows.db.execute("UPDATE gates SET sealed = true WHERE id = %s", [group.gate])
    rows.db.execute("INSERT INTO arrivals (gate) VALUES (%s)", [group.gate])
    rows.fold()
    assert group.join == "pending"


def test_many_waiting_tasks_are_opened_in_pages_and_a_sweep_finishes_what_was_begun(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flows, "PAGE", 2)
    group = Group(rows, 1, joins=5)
    group.complete(0)
    rows.run(flows.fold(None))  # and here the process dies
    opened = "SELECT count(*) FROM tasks WHERE node = 'join' AND waits_for IS NULL"
    assert rows.db.execute(opened).fetchall() == [(2,)]
    rows.fold()
    assert rows.db.execute(opened).fetchall() == [(5,)]
    assert rows.db.execute("SELECT released FROM gates WHERE id = %s", [group.gate]).fetchall() == [(True,)]


def test_a_flow_is_finished_when_all_its_tasks_have_ended(rows: Rows) -> None:
    group = Group(rows, 2)
    group.fail(0, retriable=False)
    rows.fold()
    assert not rows.finished(group.flow), "a member still has to run"
    group.complete(1)
    rows.fold()
    assert rows.finished(group.flow)


def test_a_flow_counts_its_tasks_together_with_the_last_one(rows: Rows) -> None:
    flow, end = rows.flow(3)
    tasks = [rows.task(flow, "member", reports_to=[end]) for _ in range(3)]
    for task in tasks[:2]:
        complete(rows, task)
        assert rows.run(flows.fold([str(end)])) == []
        assert rows.run(flows.with_arrivals([str(end)])) == []
    assert counts(rows, end) == (0, 0)
    complete(rows, tasks[2])
    assert rows.run(flows.with_arrivals([str(end)])) == [str(end)]
    rows.fold(end)
    assert counts(rows, end) == (3, 0)
    assert rows.finished(flow)
    assert rows.arrivals() == 0


def test_a_large_flow_counts_its_tasks_before_they_are_very_many(rows: Rows) -> None:
    _, end = rows.flow(1000)
    rows.db.execute("INSERT INTO arrivals (gate, completed) SELECT %s, 1 FROM generate_series(1, 99)", [end])
    rows.fold(end)
    assert counts(rows, end) == (0, 0)
    rows.db.execute("INSERT INTO arrivals (gate, completed) VALUES (%s, 1)", [end])
    rows.fold(end)
    assert counts(rows, end) == (100, 0)


def test_a_flow_that_grows_is_not_finished_before_what_was_spawned_has_ended(rows: Rows) -> None:
    flow, end = rows.flow(1)
    rows.db.execute("INSERT INTO arrivals (gate, expected) VALUES (%s, 1)", [end])
    rows.db.execute("INSERT INTO arrivals (gate, completed) VALUES (%s, 1)", [end])
    rows.fold(end)
    assert not rows.finished(flow)
    rows.db.execute("INSERT INTO arrivals (gate, completed) VALUES (%s, 1)", [end])
    rows.fold(end)
    assert rows.finished(flow)


def test_a_finished_flow_hears_of_a_replay_at_once(rows: Rows) -> None:
    flow, end = rows.flow(2)
    rows.db.execute("INSERT INTO arrivals (gate, completed) VALUES (%s, 2)", [end])
    rows.fold(end)
    assert rows.finished(flow)
    rows.db.execute("INSERT INTO arrivals (gate, completed) VALUES (%s, -1)", [end])
    rows.fold(end)
    assert not rows.finished(flow)


def test_a_replayed_dead_letter_lets_its_join_wait_again_and_open(rows: Rows, config: Config) -> None:
    group = Group(rows, 2)
    second = rows.gate(group.flow, 1)
    rows.db.execute("UPDATE tasks SET reports_to = reports_to || %s WHERE node = 'join'", [second])
    rows.db.execute("UPDATE gates SET expected = 4 WHERE id = %s", [group.end])
    after = rows.task(group.flow, "after", waits_for=second, reports_to=[group.end])
    group.fail(0, retriable=False)
    group.complete(1)
    rows.fold()
    assert (group.join, rows.state(after), rows.finished(group.flow)) == ("cancelled", "cancelled", True)
    with Client(config) as client:
        client.replay_dead_letters(ids=[group.members[0]])
    rows.fold()
    assert (group.join, rows.state(after), rows.finished(group.flow)) == ("waiting", "waiting", False)
    group.complete(0)
    rows.fold()
    assert (group.join, rows.state(after)) == ("pending", "waiting")
    counts = "SELECT completed, failed, failed_at FROM gates WHERE id = %s"
    assert rows.db.execute(counts, [group.gate]).fetchall() == [(2, 0, None)]


def test_a_join_that_was_cancelled_by_hand_and_replayed_does_not_wait_for_ever(rows: Rows, config: Config) -> None:
    group = Group(rows, 1)
    with Client(config) as client:
        client.cancel_task(group.joins[0])
        group.complete(0)
        rows.fold()
        assert group.join == "cancelled"
        client.replay_task(group.joins[0])
    rows.fold()
    assert group.join == "pending"


def test_arrivals_of_a_flow_that_is_gone_are_forgotten(rows: Rows) -> None:
    rows.db.execute("INSERT INTO arrivals (gate, completed) VALUES (%s, 1)", [uuid4()])
    rows.fold()
    assert rows.arrivals() == 0


def test_a_fold_leaves_a_locked_gate_to_its_holder(rows: Rows, config: Config) -> None:
    group = Group(rows, 1)
    group.complete(0)
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT FROM gates WHERE id = %s FOR UPDATE", [group.gate])
        assert rows.run(flows.fold([str(group.gate)])) == []
        assert group.join == "waiting"
    rows.fold(group.gate)
    assert group.join == "pending"
