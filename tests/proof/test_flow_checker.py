"""The checker of flows and durable tasks is fed with every kind of violation, and content with a history in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from proof.history.checker import Checker, End, Verdict, lines
from proof.history.flows import FlowFigures, FlowHistory, FlowTask, Gate, GateMove, Sent, StepMove, check, satisfied
from tests.proof.test_checker import CLIENT, Life, completed

ALL = {"kind": "all"}
END = Gate("end", "f", "flow", {"kind": "settled"}, 3, True, 3, 0, 0, True, False)
GATE = Gate("g", "f", "join", ALL, 2, True, 2, 0, 0, True, False)
OPENED = GateMove("g", "opened", True, 2, 0, 0)
MEMBERS = [FlowTask(name, "f", name, "completed", None, ["g", "end"], False) for name in ("a", "b")]
JOIN = FlowTask("j", "f", "join", "completed", None, ["end"], False)
STEP = StepMove("d", "step", "charge", True, 1, 1, False)
FORGOTTEN = StepMove("d", "step", "charge", False, None, None, None, is_replay=True)
CHILDREN = StepMove("d", "children", "gather", True, 1, 1, False)
GOT = StepMove("d", "signal", "go", True, 1, 1, True)


def in_order(**changes: Any) -> FlowHistory:
    """A flow of two tasks with a join, and a durable task that recorded a step and consumed a signal."""
    history = FlowHistory(
        gates=[GATE, END],
        gate_moves=[OPENED],
        tasks=[*MEMBERS, JOIN],
        releases=[("j", "g")],
        finished={"f": True},
        step_moves=[STEP, GOT],
        signals=[Sent("d", 1, "k", False)],
        consumed=[("d", 1)],
        acknowledged_signals=[("d", "k")],
        transactional_steps=frozenset({"charge"}),
        step_ledger={("d", "charge"): 1},
    )
    return replace(history, **changes)


def failed(**changes: Any) -> FlowHistory:
    """The same flow after one of its tasks failed."""
    history = in_order(
        gates=[
            GATE._replace(completed=1, failed=1, is_open=False, is_failed=True),
            END._replace(completed=1, failed=2),
        ],
        gate_moves=[GateMove("g", "failed", True, 1, 1, 0)],
        tasks=[MEMBERS[0], MEMBERS[1]._replace(state="dead_letter"), JOIN._replace(state="cancelled", waits_for="g")],
        releases=[],
    )
    return replace(history, **changes)


def found(history: FlowHistory) -> list[str]:
    return [f"{invariant}: {detail}" for invariant, detail in check(history, FlowFigures())]


def test_a_flow_in_order_and_one_that_ended_by_its_policy_have_no_violation() -> None:
    assert found(in_order()) == []
    assert found(failed()) == []


def test_what_is_seen_is_counted() -> None:
    figures = FlowFigures()
    assert list(check(in_order(), figures)) == []
    assert (figures.flows, figures.gates, figures.opened, figures.joins_released) == (1, 2, 1, 1)
    assert (figures.steps, figures.signals, figures.signals_consumed) == (2, 1, 1)


VIOLATIONS: dict[str, tuple[str, FlowHistory]] = {
    "a gate that never opened": (
        "I14: gate g never opened",
        in_order(gates=[GATE._replace(is_open=False), END], gate_moves=[], releases=[]),
    ),
    "a gate that can't open and did not fail": (
        "I14: gate g can't open any more",
        failed(gates=[GATE._replace(completed=1, failed=1, is_open=False), END._replace(completed=1, failed=2)]),
    ),
    "a gate that opened twice": ("I14: gate g opened 2 times", in_order(gate_moves=[OPENED, OPENED])),
    "a gate that closed": ("I14: gate g was open", in_order(gate_moves=[OPENED, OPENED._replace(move="closed")])),
    "a gate that opened unsealed": ("I14: gate g opened before", in_order(gate_moves=[OPENED._replace(sealed=False)])),
    "a gate that opened too early": ("I14: gate g opened with 1", in_order(gate_moves=[OPENED._replace(completed=1)])),
    "a gate that opened in spite of its policy": (
        "I14: gate g is open, though",
        failed(gates=[GATE._replace(completed=1, failed=1), END._replace(completed=1, failed=2)]),
    ),
    "an end that was not counted": ("I14: gate g counts (1, 0, 0)", in_order(gates=[GATE._replace(completed=1), END])),
    "an end that was counted twice": (
        "I14: gate g counts (3, 0, 0)",
        in_order(gates=[GATE._replace(completed=3), END]),
    ),
    "an optional end that was not excused": (
        "I14: gate g counts (1, 1, 0)",
        failed(gates=[failed().gates[0]._replace(policy={**ALL, "optional": ["b"]}), failed().gates[1]]),
    ),
    "arrivals that are left": ("I14: 3 arrivals", in_order(arrivals=3)),
    "a task that was let through twice": ("I14: j was let through 2", in_order(releases=[("j", "g"), ("j", "g")])),
    "a task that waits for ever": (
        "I14: j waits for ever",
        failed(tasks=[*failed().tasks[:2], JOIN._replace(state="pending", waits_for="g")], finished={"f": False}),
    ),
    "a task that waits for nothing": (
        "I14: j waits for a gate that is not there",
        failed(tasks=[*failed().tasks[:2], JOIN._replace(state="cancelled", waits_for="gone")]),
    ),
    "a task that an open gate forgot": (
        "I14: j was not let through",
        in_order(tasks=[*MEMBERS, JOIN._replace(state="cancelled", waits_for="g")], releases=[]),
    ),
    "a task that ran before its gate opened": (
        "I14: j is completed, and its gate",
        failed(tasks=[*failed().tasks[:2], JOIN._replace(waits_for="g")]),
    ),
    "a flow that is not finished": ("I14: flow f is not finished", in_order(finished={"f": False})),
    "a flow that is finished too early": (
        "I14: flow f is finished, and 1",
        in_order(tasks=[*MEMBERS, JOIN._replace(state="running")]),
    ),
    "a step that was recorded twice": (
        "I15: step charge of d was recorded twice",
        in_order(step_moves=[STEP, STEP, GOT]),
    ),
    "a step of a lost attempt": (
        "I15: step charge of d was recorded by token 1, held by 2",
        in_order(step_moves=[STEP._replace(held=2), GOT]),
    ),
    "a step of a task that does not run": (
        "I15: step charge of d was recorded by token 1, held by None",
        in_order(step_moves=[STEP._replace(held=None), GOT]),
    ),
    "a signal that is lost": ("I15: the signal k to d was acknowledged", in_order(signals=[])),
    "a signal that was consumed twice": ("I15: signal 1 to d was consumed 2", in_order(consumed=[("d", 1), ("d", 1)])),
    "a signal that was consumed and not recorded": (
        "I15: d consumed 1 signals, and recorded 0",
        in_order(step_moves=[STEP]),
    ),
    "a signal that was recorded and not consumed": ("I15: d consumed 0 signals, and recorded 1", in_order(consumed=[])),
    "a signal that was given back": ("I15: 1 signals were consumed, and then were not", in_order(given_back=1)),
    "a task that waits for a signal that is there": (
        "I15: d waits for a signal",
        in_order(signals=[Sent("d", 1, "k", True)]),
    ),
    "a transactional step that wrote twice": (
        "I15: the transactional step charge",
        in_order(step_ledger={("d", "charge"): 2}),
    ),
    "a transactional step without its row": (
        "I15: the transactional step charge of d left 0 rows, and was recorded 1",
        in_order(step_ledger={}),
    ),
    "a transactional step that was recorded again without its row": (
        "I15: the transactional step charge of d left 1 rows, and was recorded 2",
        in_order(step_moves=[STEP, FORGOTTEN, STEP, GOT]),
    ),
    "a transactional step that was forgotten and done again without a replay": (
        "I15: step charge of d was forgotten without a replay",
        in_order(step_moves=[STEP, FORGOTTEN._replace(is_replay=False), STEP, GOT], step_ledger={("d", "charge"): 2}),
    ),
    "tasks that were gathered twice and recorded once": (
        "I15: d gathered 2 flows, and recorded 1",
        in_order(step_moves=[STEP, GOT, CHILDREN], gathered={"d": 2}),
    ),
    "tasks that are to be gathered and are not there": (
        "I15: d gathered 0 flows, and recorded 1",
        in_order(step_moves=[STEP, GOT, CHILDREN]),
    ),
    "a transactional step that is not on record": ("I15: the transactional step charge", in_order(step_moves=[GOT])),
}


@pytest.mark.parametrize(("said", "history"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_flagged(said: str, history: FlowHistory) -> None:
    assert any(line.startswith(said) for line in found(history)), found(history)


def test_a_record_that_a_replay_of_a_completed_task_forgot_may_be_made_again() -> None:
    moves = [STEP, FORGOTTEN, STEP, GOT]
    assert found(in_order(step_moves=moves, step_ledger={("d", "charge"): 2})) == []
    gone = FORGOTTEN._replace(kind="children", name="gather")
    twice = [STEP, GOT, CHILDREN, gone, CHILDREN]
    assert found(in_order(step_moves=twice, gathered={"d": 2})) == []


def test_a_plain_task_that_reports_to_a_gate_is_counted() -> None:
    plain = FlowTask("run", None, None, "cancelled", None, ["before"], True)
    before = Gate("before", "f", "join", {"kind": "settled"}, 1, True, 0, 1, 0, True, False)
    assert found(in_order(gates=[GATE, END, before], tasks=[*MEMBERS, JOIN, plain])) == []
    assert any("I14: gate before counts (0, 1, 0)" in line for line in found(in_order(gates=[GATE, END, before])))


def test_a_gate_of_gathered_tasks_stays_open_when_the_task_that_gathered_them_is_replayed_and_fails() -> None:
    parent = FlowTask("d", "f", "d", "dead_letter", None, ["parent"], False)
    gate = Gate("parent", "children", "parent", ALL, 1, True, 0, 1, 0, True, False)
    history = in_order(gates=[GATE, END, gate], tasks=[*MEMBERS, JOIN, parent])
    assert found(replace(history, replays={"f": 1})) == []
    assert any("I14: gate parent is open, though" in line for line in found(history))


def test_a_gate_stays_open_when_what_it_counted_is_replayed_and_fails() -> None:
    history = failed(gates=[GATE._replace(completed=1, failed=1), END._replace(completed=1, failed=2)])
    done = [*history.tasks[:2], JOIN]
    ended = [history.gates[0], END._replace(completed=2, failed=1)]
    assert found(replace(history, gates=ended, tasks=done, replays={"f": 1}, gate_moves=[OPENED])) == []


@pytest.mark.parametrize(
    ("policy", "counts", "opens"),
    [
        (ALL, (3, 0, 0), True),
        (ALL, (2, 1, 1), True),
        (ALL, (2, 1, 0), False),
        ({"kind": "settled"}, (1, 2, 0), True),
        ({"kind": "settled"}, (1, 1, 0), False),
        ({"kind": "at_least", "count": 2}, (2, 0, 0), True),
        ({"kind": "at_least", "count": 2}, (1, 2, 0), False),
        ({"kind": "at_least", "share": 0.34}, (1, 0, 0), False),
        ({"kind": "at_least", "share": 0.33}, (1, 0, 0), True),
    ],
)
def test_a_policy_says_when_three_are_enough(policy: dict[str, Any], counts: tuple[int, int, int], opens: bool) -> None:
    assert satisfied(policy, 3, *counts) is opens


# ---- what flows change about the other invariants ----


def verdict_of(*lives: Life, end: End) -> Verdict:
    return Checker(crash_limit=3).check([move for life in lives for move in life.moves], [], [], end)


def restored(**at_gate: bool) -> Life:
    return Life("j").to("cancelled").to("pending", by=CLIENT, **at_gate).to("running").to("completed", wrote_token=1)


def test_what_a_gate_cancelled_may_wait_again_after_a_replay_in_its_flow() -> None:
    lives = [completed("a"), completed("b"), restored(at_gate=True)]
    replayed = End(flows=in_order(replays={"f": 1}))
    verdict = verdict_of(*lives, end=replayed)
    assert verdict.holds, list(lines(verdict))
    assert "I6" in verdict_of(*lives, end=End(flows=in_order())).counts


def test_a_task_that_was_cancelled_by_request_at_a_gate_may_leave_twice_by_one_replay_of_its_flow() -> None:
    """The replay lets it wait at a gate that has not heard of it, is turned away, and waits again."""
    life = Life("j").to("cancelled").to("pending", by=CLIENT, at_gate=True, requested=True)
    life = life.to("cancelled").to("pending", by=CLIENT, at_gate=True)
    once = [completed("a"), completed("b"), life.to("running").to("completed", wrote_token=1)]
    assert verdict_of(*once, end=End(flows=in_order(replays={"f": 1}))).holds
    more = Life("j").to("cancelled").to("pending", by=CLIENT, at_gate=True)
    more = more.to("cancelled").to("pending", by=CLIENT, at_gate=True).to("running").to("completed", wrote_token=1)
    twice = [completed("a"), completed("b"), more]
    assert "I6" in verdict_of(*twice, end=End(flows=in_order(replays={"f": 1}))).counts


def test_a_flow_s_replay_is_one_of_each_of_its_tasks_and_no_more() -> None:
    twice = completed("a").to("pending", by=CLIENT).to("running").to("completed", wrote_token=2)
    lives = [twice, completed("b"), completed("j")]
    assert verdict_of(*lives, end=End(flows=in_order(replays={"f": 1}))).holds
    assert "I6" in verdict_of(*lives, end=End(flows=in_order())).counts
    assert "I6" in verdict_of(*lives, end=End(flows=in_order(), replays=Counter({"b": 1}))).counts


def test_a_suspension_forgets_crashes_and_nothing_else_does() -> None:
    life = Life().to("running").to("failed", by="tasklib worker maintenance", crash_count=1).to("running")
    suspended = life.to("pending", suspended=True, crash_count=0).to("running").to("completed", wrote_token=3)
    assert verdict_of(suspended, end=End()).holds
    forgot = Life().to("running").to("failed", by="tasklib worker maintenance", crash_count=1).to("running")
    assert "I5" in verdict_of(forgot.to("pending", crash_count=0).to("running").to("completed"), end=End()).counts
