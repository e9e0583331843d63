"""The conditions of the statements of flows, one by one: what is next to the right row stays as it is."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.store import control, flows, settle
from tasklib.store.settle import Completion, Failure, Lease
from tasklib.tasks.ids import spawned_id
from tests.flows.rows import ALL, SETTLED, Rows

AT_LEAST = {"kind": "at_least", "count": 1}


@pytest.fixture
def rows(db: psycopg.Connection) -> Rows:
    return Rows(db)


class Pair:
    """A flow of a task and some that wait for it."""

    def __init__(self, rows: Rows, policy: dict[str, Any] = ALL, *, waiters: int = 1, **gate: Any) -> None:
        self.rows = rows
        self.flow, self.end = rows.flow(1 + waiters)
        self.gate = rows.gate(self.flow, 1, policy, **gate)
        self.first = rows.task(self.flow, "first", reports_to=[self.gate, self.end])
        self.second, *_ = self.waiters = [
            rows.task(self.flow, "second", waits_for=self.gate, reports_to=[self.end]) for _ in range(waiters)
        ]

    def complete(self) -> None:
        lease = Lease(str(self.first), self.rows.hold(self.first))
        self.rows.run(settle.complete([Completion(lease, "{}")], "w"))

    def fail(self) -> None:
        failure = Failure(Lease(str(self.first), self.rows.hold(self.first)), "no", "error", 0.0, retriable=False)
        self.rows.run(settle.fail([failure], "w", 3))

    def replay(self, task: UUID) -> None:
        self.rows.run(control.replay(task, by="operator"))

    def states(self) -> list[str]:
        return [self.rows.state(each) for each in (self.first, *self.waiters)]

    def counted(self, gate: UUID) -> tuple[int, int]:
        ((completed, failed),) = self.rows.db.execute(
            "SELECT completed, failed FROM gates WHERE id = %s", [gate]
        ).fetchall()
        return completed, failed


# ---- fold ----


def test_a_fold_of_named_gates_counts_no_others_and_names_what_it_counted(rows: Rows) -> None:
    one, other = Pair(rows), Pair(rows)
    one.complete()
    other.complete()
    rows.run(flows.fold([str(one.gate)]))
    assert rows.run(flows.with_arrivals([str(one.gate), str(other.gate)])) == [str(other.gate)]
    assert str(other.gate) in rows.run(flows.fold(None)), "it is looked at again after the commit"


@pytest.mark.parametrize("policy", [ALL, SETTLED, AT_LEAST], ids=lambda policy: policy["kind"])
def test_a_gate_that_has_opened_stays_open_when_what_it_counted_is_replayed(rows: Rows, policy: dict[str, Any]) -> None:
    pair = Pair(rows, policy)
    pair.complete()
    rows.fold()
    pair.replay(pair.first)
    rows.fold()
    opened = "SELECT opened_at IS NOT NULL, completed FROM gates WHERE id = %s"
    assert rows.db.execute(opened, [pair.gate]).fetchall() == [(True, 0)]


@pytest.mark.parametrize("policy", [ALL, SETTLED, AT_LEAST], ids=lambda policy: policy["kind"])
def test_a_gate_of_any_policy_waits_until_it_is_sealed(rows: Rows, policy: dict[str, Any]) -> None:
    pair = Pair(rows, policy, sealed=False)
    pair.complete()
    rows.fold()
    assert pair.states() == ["completed", "waiting"]


def test_a_gate_that_is_not_sealed_does_not_fail_because_too_few_are_left(rows: Rows) -> None:
    pair = Pair(rows, AT_LEAST, sealed=False)
    pair.fail()
    rows.fold()
    assert pair.states() == ["dead_letter", "waiting"]


def test_a_second_failure_leaves_what_the_first_one_cancelled(rows: Rows) -> None:
    pair = Pair(rows)
    other = rows.task(pair.flow, "other", reports_to=[pair.gate])
    pair.fail()
    rows.fold()
    rows.run(control.cancel(other, by="operator"))
    rows.fold()
    assert pair.states() == ["dead_letter", "cancelled"]
    assert pair.counted(pair.end) == (0, 2)


def test_what_was_cancelled_by_hand_at_a_gate_neither_waits_again_nor_is_let_through(rows: Rows) -> None:
    pair = Pair(rows, waiters=2)
    rows.run(control.cancel(pair.second, by="operator"))
    pair.fail()
    rows.fold()
    pair.replay(pair.first)
    rows.fold()
    assert pair.states() == ["pending", "cancelled", "waiting"]
    pair.complete()
    rows.fold()
    assert pair.states() == ["completed", "cancelled", "pending"]
    waits = "SELECT waits_for FROM tasks WHERE id = %s"
    assert rows.db.execute(waits, [pair.second]).fetchall() == [(pair.gate,)]


def test_a_waiting_task_that_was_replayed_by_itself_takes_its_report_back_once(rows: Rows) -> None:
    pair = Pair(rows, waiters=2)
    pair.fail()
    rows.fold()
    assert pair.counted(pair.end) == (0, 3)
    pair.replay(pair.second)
    pair.replay(pair.first)
    rows.fold()
    rows.fold()  # the sweep: the gate of a flow that goes on is not counted before that
    assert pair.states() == ["pending", "waiting", "waiting"]
    assert pair.counted(pair.end) == (0, 0)


def test_a_failed_gate_stays_so_until_all_that_it_cancelled_wait_again(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(rows, waiters=3)
    pair.fail()
    rows.fold()
    monkeypatch.setattr(flows, "PAGE", 1)
    pair.replay(pair.first)
    pair.complete()
    rows.run(flows.fold([str(pair.gate)]))  # and here the process dies
    failed = "SELECT failed_at IS NOT NULL, culprit IS NOT NULL, released FROM gates WHERE id = %s"
    assert rows.db.execute(failed, [pair.gate]).fetchall() == [(True, True, False)]
    rows.fold()
    assert pair.states() == ["completed", "pending", "pending", "pending"]
    assert rows.db.execute(failed, [pair.gate]).fetchall() == [(False, False, True)]


def test_a_flow_whose_parent_is_gone_is_finished_all_the_same(rows: Rows) -> None:
    pair = Pair(rows)
    rows.db.execute("UPDATE flows SET parent = %s", [uuid4()])
    pair.fail()
    rows.fold()
    assert rows.finished(pair.flow)


def test_a_parent_is_woken_by_the_end_of_its_flow_and_by_nothing_else(rows: Rows) -> None:
    pair = Pair(rows)
    parent = rows.task(None, "parent")
    rows.db.execute("UPDATE flows SET parent = %s", [parent])
    told = "SELECT COALESCE(signals_sent, 0) FROM tasks WHERE id = %s"
    pair.fail()
    rows.fold()
    assert rows.db.execute(told, [parent]).fetchall() == [(1,)]
    rows.db.execute("INSERT INTO arrivals (gate) VALUES (%s)", [pair.end])
    rows.fold()
    pair.replay(pair.first)
    rows.fold()
    assert not rows.finished(pair.flow)
    assert rows.db.execute(told, [parent]).fetchall() == [(1,)]


# ---- cancel and replay ----


def test_a_finished_flow_is_not_cancelled_and_another_owner_s_neither(rows: Rows) -> None:
    pair = Pair(rows)
    rows.db.execute("UPDATE flows SET submitted_by = 'ann'")
    assert not rows.run(flows.cancel(pair.flow, by="bob", owner="bob"))
    assert rows.run(flows.cancel(pair.flow, by="ann", owner="ann"))
    rows.db.execute("UPDATE flows SET cancel_requested_at = NULL, finished_at = now()")
    assert not rows.run(flows.cancel(pair.flow, by="ann", owner="ann"))


def test_cancelling_a_flow_names_and_takes_unfinished_tasks_of_this_flow_only(rows: Rows) -> None:
    pair, other, done = Pair(rows), Pair(rows), Pair(rows)
    done.complete()
    running = str(pair.first), rows.hold(pair.first)
    rows.db.execute("UPDATE flows SET cancel_requested_at = now() WHERE id = ANY (%s)", [[pair.flow, done.flow]])
    rows.db.execute("UPDATE flows SET finished_at = now() WHERE id = %s", [done.flow])
    assert rows.run(flows.cancel_rest(pair.flow)) == [running[0], str(pair.second)]
    assert rows.run(flows.cancel_rest(done.flow)) == [str(done.second)]
    assert rows.run(flows.to_cancel(10)) == [str(pair.flow)]
    assert rows.run(flows.cancel_tasks(done.flow, 10)).states == []
    assert rows.run(flows.cancel_tasks(other.flow, 10)).states == []
    assert sorted(rows.run(flows.cancel_tasks(pair.flow, 10)).states) == ["cancelled", "running"]
    assert rows.run(flows.cancel_rest(pair.flow)) == []
    assert rows.run(flows.to_cancel(10)) == []
    assert (other.states(), done.states()) == (["pending", "waiting"], ["completed", "waiting"])


def test_a_flow_without_failures_and_one_of_another_owner_are_not_replayed(rows: Rows) -> None:
    whole, broken = Pair(rows), Pair(rows)
    rows.db.execute("UPDATE flows SET submitted_by = 'ann'")
    broken.fail()
    rows.fold()
    assert not rows.run(flows.replay(whole.flow, by="ann", owner="ann"))
    assert not rows.run(flows.replay(broken.flow, by="bob", owner="bob"))
    assert rows.run(flows.replay(broken.flow, by="ann", owner="ann"))


def test_replaying_a_flow_takes_its_own_failures_and_leaves_what_a_gate_cancelled(rows: Rows) -> None:
    pair, other = Pair(rows), Pair(rows)
    for each in (pair, other):
        each.fail()
    rows.fold()
    assert rows.run(flows.replay_tasks(pair.flow, 10)).states == ["dead_letter"]
    assert pair.states() == ["pending", "cancelled"]
    assert other.states() == ["dead_letter", "cancelled"]


def test_a_replay_forgets_the_steps_of_the_completed_task_alone(rows: Rows, config: Config) -> None:
    done, other, dead = Pair(rows), Pair(rows), Pair(rows)
    done.complete()
    other.complete()
    dead.fail()
    for each in (done, other, dead):
        rows.db.execute(
            "INSERT INTO steps (task, kind, name, result, token) VALUES (%(task)s, 'step', 's', '{}', 1), "
            "(%(task)s, 'deadline', '', '{}', 1)",
            {"task": each.first},
        )
    with Client(config) as client:
        client.replay_task(done.first)
        client.replay_task(dead.first)
    left = rows.db.execute("SELECT task, kind FROM steps ORDER BY kind, task").fetchall()
    assert left == [(other.first, "deadline"), *sorted([(dead.first, "step"), (other.first, "step")])]


# ---- tasks that belong to an attempt ----


def test_only_the_attempt_that_holds_a_task_lets_it_report_to_another_gate(rows: Rows) -> None:
    pair = Pair(rows)
    gate = rows.gate(pair.flow, 1, kind="parent")
    lease = Lease(str(pair.first), rows.hold(pair.first))
    assert not rows.run(flows.adopt(Lease(lease.id, lease.token - 1), "w", gate))
    assert not rows.run(flows.adopt(lease, "another", gate))
    assert rows.run(flows.adopt(lease, "w", gate))
    reports = "SELECT reports_to FROM tasks WHERE id = %s"
    assert rows.db.execute(reports, [pair.first]).fetchall() == [([pair.gate, pair.end, gate],)]


def _child(parent: UUID) -> str:
    return (
        f'[{{"id": "{spawned_id(parent, 1)}", "name": "child", "queue": "default", "kwargs": {{}}, "max_retries": 3, '
        '"priority": 0, "tags": {}, "required_capabilities": []}]'
    )


def test_only_the_attempt_that_holds_a_task_spawns_others_and_only_its_own_flow_counts_them(rows: Rows) -> None:
    pair, other = Pair(rows), Pair(rows)
    nodes = "UPDATE gates SET nodes = '{first,first:spawned}' WHERE kind = 'join'"
    rows.db.execute(nodes)
    rows.db.execute("UPDATE flows SET cancel_requested_at = now() WHERE id = %s", [other.flow])
    lease = Lease(str(pair.first), rows.hold(pair.first))
    assert rows.run(flows.spawn(Lease(lease.id, lease.token - 1), "w", _child(pair.first))) is None
    assert rows.run(flows.spawn(lease, "another", _child(pair.first))) is None
    assert rows.run(flows.spawn(lease, "w", _child(pair.first))) == (1, False)
    reports = rows.db.execute("SELECT reports_to FROM tasks WHERE name = 'child'").fetchall()
    assert reports == [(sorted([pair.gate, pair.end]),)]
