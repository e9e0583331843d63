"""Decides I14 and I15: gates open once and leave no task waiting; steps are recorded once, signals consumed once.

Both are read at the end of a run, when all is quiet: the rows as they are, and what triggers recorded on the way
(recording.sql).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

import psycopg

from tasklib.states import TERMINAL


class Gate(NamedTuple):
    """A gate at the end."""

    id: str
    flow: str
    kind: str
    policy: Mapping[str, Any]
    expected: int
    sealed: bool
    completed: int
    failed: int
    excused: int
    is_open: bool
    is_failed: bool


class GateMove(NamedTuple):
    """A decision: `opened`, `closed`, `failed` or `restored`, and what had been counted."""

    gate: str
    move: str
    sealed: bool
    completed: int
    failed: int
    excused: int


class FlowTask(NamedTuple):
    """A task of a flow at the end."""

    id: str
    flow: str | None
    """None: a plain task that reports to a gate, such as a run that a backfill waits for."""
    node: str | None
    state: str
    waits_for: str | None
    reports_to: Sequence[str]
    is_cancel_requested: bool


class StepMove(NamedTuple):
    """A record that was made, or forgotten."""

    task: str
    kind: str
    name: str
    is_new: bool
    token: int | None
    held: int | None
    """The token that the task was running under; None if it was not running."""
    is_signal: bool | None
    """It records a signal, not that none came."""
    is_replay: bool = False
    """It was forgotten by the transaction that replayed its completed task."""


class Sent(NamedTuple):
    """A signal that is stored."""

    task: str
    seq: int
    key: str | None
    waits_in_vain: bool
    """It is not consumed, and its task waits for it."""


@dataclass
class FlowHistory:
    """All that is known about the flows and durable tasks of a run."""

    gates: Sequence[Gate] = ()
    gate_moves: Sequence[GateMove] = ()
    tasks: Sequence[FlowTask] = ()
    releases: Sequence[tuple[str, str]] = ()
    """(task, gate), each time a gate let a task through."""
    arrivals: int = 0
    """Arrivals that are not counted."""
    finished: Mapping[str, bool] = field(default_factory=dict)
    """Whether each flow is marked as finished."""
    replays: Mapping[str, int] = field(default_factory=dict)
    """Audited replays of each flow and its tasks."""
    step_moves: Sequence[StepMove] = ()
    gathered: Mapping[str, int] = field(default_factory=dict)
    """Flows that each durable task waits for, or waited for."""
    signals: Sequence[Sent] = ()
    consumed: Sequence[tuple[str, int]] = ()
    """(task, number of the signal), each time one was consumed."""
    given_back: int = 0
    """Signals that were consumed and then were not."""
    acknowledged_signals: Sequence[tuple[str, str]] = ()
    """(task, key) of signals whose sender was told that they were stored."""
    transactional_steps: frozenset[str] = frozenset()
    """The names of steps that leave a row."""
    step_ledger: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Rows that transactional steps left, by task and step."""


@dataclass
class FlowFigures:
    """What is counted on the way."""

    flows: int = 0
    gates: int = 0
    opened: int = 0
    failed: int = 0
    restored: int = 0
    joins_released: int = 0
    steps: int = 0
    forgotten: int = 0
    """Records of completed tasks that were replayed."""
    signals: int = 0
    signals_consumed: int = 0


def check(history: FlowHistory, figures: FlowFigures) -> Iterator[tuple[str, str]]:
    """What is wrong: the invariant, and where."""
    yield from (("I14", detail) for detail in _gates(history, figures))
    yield from (("I15", detail) for detail in _records(history, figures))


# ---- gates ----


def _gates(history: FlowHistory, figures: FlowFigures) -> Iterator[str]:
    figures.flows, figures.gates = len(history.finished), len(history.gates)
    if history.arrivals:
        yield f"{history.arrivals} arrivals are not counted at the end"
    reported: dict[str, Counter[str]] = defaultdict(Counter)
    excused: Counter[str] = Counter()
    replays: Counter[str] = Counter()
    gates = {gate.id: gate for gate in history.gates}
    unfinished: Counter[str | None] = Counter()
    for task in history.tasks:
        unfinished[task.flow] += task.state not in TERMINAL
        for gate_id in task.reports_to:
            replays[gate_id] += history.replays.get(task.flow or task.id, 0)
            how = task.state if task.state in ("completed",) else "failed" if task.state in TERMINAL else "open"
            reported[gate_id][how] += 1
            gate = gates.get(gate_id)
            excused[gate_id] += how == "failed" and gate is not None and task.node in gate.policy.get("optional", ())
    yield from _moves(history, gates, figures)
    for gate in history.gates:
        yield from _counts(gate, reported[gate.id], excused[gate.id], replays=replays[gate.id])
    yield from _waiters(history, gates, figures)
    for flow, is_finished in history.finished.items():
        if is_finished != (not unfinished[flow]):
            yield f"flow {flow} is {'' if is_finished else 'not '}finished, and {unfinished[flow]} of its tasks are not"


def _moves(history: FlowHistory, gates: Mapping[str, Gate], figures: FlowFigures) -> Iterator[str]:
    opened: Counter[str] = Counter()
    for move in history.gate_moves:
        gate = gates.get(move.gate)
        if gate is None or gate.kind == "flow":
            continue
        figures.failed += move.move == "failed"
        figures.restored += move.move == "restored"
        if move.move == "closed":
            yield f"gate {move.gate} was open, and closed again"
        if move.move != "opened":
            continue
        figures.opened += 1
        opened[move.gate] += 1
        if not move.sealed:
            yield f"gate {move.gate} opened before it was sealed"
        if not satisfied(gate.policy, gate.expected, move.completed, move.failed, move.excused):
            yield f"gate {move.gate} opened with {move.completed} completed and {move.failed} failed of {gate.expected}"
    for gate_id, times in opened.items():
        if times > 1:
            yield f"gate {gate_id} opened {times} times"


def _counts(gate: Gate, reported: Counter[str], excused: int, *, replays: int) -> Iterator[str]:
    """The counts of a gate are those of its tasks, and it is decided as they say."""
    counted = (gate.completed, gate.failed, gate.excused)
    if counted != (reported["completed"], reported["failed"], excused):
        yield f"gate {gate.id} counts {counted}, and {dict(reported)} report to it, {excused} of them optional"
    if reported["open"]:
        return
    is_satisfied = satisfied(gate.policy, gate.expected, gate.completed, gate.failed, gate.excused)
    if is_satisfied and gate.sealed and not gate.is_open:
        yield f"gate {gate.id} never opened, though all its reporters ended as it wants"
    if not is_satisfied and gate.is_open and not replays:
        yield f"gate {gate.id} is open, though its reporters ended otherwise"
    if not is_satisfied and not gate.is_open and not gate.is_failed:
        yield f"gate {gate.id} can't open any more, and did not fail"


def _waiters(history: FlowHistory, gates: Mapping[str, Gate], figures: FlowFigures) -> Iterator[str]:
    released = Counter(task for task, _ in history.releases)
    figures.joins_released = len(released)
    for task_id, times in released.items():
        if times > 1:
            yield f"{task_id} was let through {times} times"
    for task in history.tasks:
        if task.waits_for is None:
            continue
        gate = gates.get(task.waits_for)
        if gate is None:
            yield f"{task.id} waits for a gate that is not there"
        elif task.state not in TERMINAL:
            yield f"{task.id} waits for ever at gate {gate.id}"
        elif gate.is_open and not task.is_cancel_requested:
            yield f"{task.id} was not let through by gate {gate.id}, which is open"
        elif task.state != "cancelled":
            yield f"{task.id} is {task.state}, and its gate {gate.id} never let it through"


def satisfied(policy: Mapping[str, Any], expected: int, completed: int, failed: int, excused: int) -> bool:
    """Whether a gate with these counts is to open. Written apart from the SQL that decides it."""
    match policy["kind"]:
        case "settled":
            return completed + failed >= expected
        case "at_least":
            needed = policy["count"] if "count" in policy else ceil(round(policy["share"] * expected, 9))
            return completed >= needed
        case _:
            return failed == excused and completed + excused >= expected


# ---- steps and signals ----


def _records(history: FlowHistory, figures: FlowFigures) -> Iterator[str]:
    on_record: set[tuple[str, str, str]] = set()
    recorded: Counter[tuple[str, str]] = Counter()
    submitted: Counter[str] = Counter()
    with_signal: Counter[str] = Counter()
    for move in history.step_moves:
        record = (move.task, move.kind, move.name)
        if not move.is_new:
            on_record.discard(record)
            figures.forgotten += 1
            if not move.is_replay:
                yield f"{move.kind} {move.name} of {move.task} was forgotten without a replay of the completed task"
            continue
        figures.steps += 1
        with_signal[move.task] += bool(move.is_signal)
        if record in on_record:
            yield f"{move.kind} {move.name} of {move.task} was recorded twice"
        on_record.add(record)
        recorded[move.task, move.name] += move.kind == "step"
        submitted[move.task] += move.kind == "children"
        if move.held is None or move.held != move.token:
            yield f"{move.kind} {move.name} of {move.task} was recorded by token {move.token}, held by {move.held}"
    yield from _signals(history, with_signal, figures)
    # A completed task that is replayed does everything again: one row for each time the step was recorded, and one flow
    # for each time it was recorded that tasks were submitted to be gathered.
    for task in submitted.keys() | history.gathered.keys():
        if (flows := history.gathered.get(task, 0)) != submitted[task]:
            yield f"{task} gathered {flows} flows, and recorded {submitted[task]}"
    transactional = {each for each in recorded if each[1] in history.transactional_steps}
    for task, name in transactional | history.step_ledger.keys():
        if (rows := history.step_ledger.get((task, name), 0)) != (times := recorded[task, name]):
            yield f"the transactional step {name} of {task} left {rows} rows, and was recorded {times} times"


def _signals(history: FlowHistory, with_signal: Counter[str], figures: FlowFigures) -> Iterator[str]:
    figures.signals = len(history.signals)
    stored = {(sent.task, sent.key) for sent in history.signals}
    for task, key in set(history.acknowledged_signals):
        if (task, key) not in stored:
            yield f"the signal {key} to {task} was acknowledged, and is not there"
    for sent in history.signals:
        if sent.waits_in_vain:
            yield f"{sent.task} waits for a signal that is there"
    consumed = Counter(history.consumed)
    figures.signals_consumed = len(consumed)
    for (task, seq), times in consumed.items():
        if times > 1:
            yield f"signal {seq} to {task} was consumed {times} times"
    if history.given_back:
        yield f"{history.given_back} signals were consumed, and then were not"
    per_task = Counter(task for task, _ in consumed)
    for task in per_task.keys() | +with_signal:
        if per_task[task] != with_signal[task]:
            yield f"{task} consumed {per_task[task]} signals, and recorded {with_signal[task]}"


# ---- reading ----


def flow_history(
    db: psycopg.Connection,
    acknowledged_signals: Sequence[tuple[str, str]] = (),
    transactional_steps: Iterable[str] = (),
) -> FlowHistory:
    """What the tables and the triggers of recording.sql say."""
    rows = lambda query: db.execute(query).fetchall()  # noqa: E731
    replays = rows("""
        SELECT flow::text, count(*) FROM (
            SELECT COALESCE(task.flow::text, target) AS flow
            FROM audit LEFT JOIN tasks AS task ON task.id = target::uuid
            WHERE action IN ('task.replay', 'flow.replay')) AS replayed GROUP BY 1""")
    # Whether the record was forgotten together with a replay of its completed task.
    steps = rows("""
        SELECT task::text, kind, name, is_new, token, held, is_signal,
               NOT is_new AND (xid, task) IN (
                   SELECT xid, task FROM transitions WHERE old_state = 'completed' AND new_state = 'pending')
        FROM step_moves ORDER BY seq""")
    ledger = rows("SELECT task::text, step, count(*) FROM step_ledger GROUP BY 1, 2")
    return FlowHistory(
        gates=[
            Gate._make(row)
            for row in rows(
                "SELECT id::text, flow::text, kind, policy, expected, sealed, completed, failed, excused, "
                "opened_at IS NOT NULL, failed_at IS NOT NULL FROM gates"
            )
        ],
        gate_moves=[
            GateMove._make(row)
            for row in rows("SELECT gate::text, move, sealed, completed, failed, excused FROM gate_moves ORDER BY seq")
        ],
        tasks=[
            FlowTask._make(row)
            for row in rows(
                "SELECT id::text, flow::text, node, state, waits_for::text, COALESCE(reports_to, '{}')::text[], "
                "cancel_requested_at IS NOT NULL FROM tasks WHERE flow IS NOT NULL OR reports_to IS NOT NULL"
            )
        ],
        releases=rows("SELECT task::text, gate::text FROM releases"),
        arrivals=rows("SELECT count(*) FROM arrivals")[0][0],
        finished=dict(rows("SELECT id::text, finished_at IS NOT NULL FROM flows")),
        replays=dict(replays),
        step_moves=[StepMove._make(row) for row in steps],
        gathered=dict(rows("SELECT parent::text, count(*) FROM flows WHERE parent IS NOT NULL GROUP BY 1")),
        signals=[
            Sent._make(row)
            for row in rows(
                "SELECT signal.task::text, signal.seq, signal.key, consumed_at IS NULL AND state = 'pending' "
                "AND signal.name = ANY (awaited_signals) FROM signals AS signal JOIN tasks ON id = signal.task"
            )
        ],
        consumed=rows("SELECT task::text, signal FROM signal_moves WHERE is_consumed"),
        given_back=rows("SELECT count(*) FROM signal_moves WHERE NOT is_consumed")[0][0],
        acknowledged_signals=acknowledged_signals,
        transactional_steps=frozenset(transactional_steps),
        step_ledger={(task, name): count for task, name, count in ledger},
    )
