"""Decides I1 to I18 of a history. It reads plain values and knows nothing of how they came about.

A history is the transitions that the table recorded, what the actors logged, and a few sets of the end of the run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from proof.history import flows, limits, slots
from proof.history.flows import FlowFigures, FlowHistory
from proof.history.limits import LimitFigures, LimitHistory
from proof.history.recording import Reign, Transition
from proof.history.slots import SlotFigures, SlotHistory
from tasklib.states import MOVES, TERMINAL, TaskState

MOST_SHOWN = 20
_SETTLED_SECONDS = 0.5
"""What began so long before its worker was given up had begun, whatever the order of the two clocks."""


@dataclass(frozen=True)
class Violation:
    """An invariant that didn't hold, and where."""

    invariant: str
    detail: str


@dataclass
class End:
    """What was found once all was quiet."""

    ledger: Counter[str] = field(default_factory=Counter)
    """How many rows the transactional tasks left, by task. No operator replays these."""
    transactional: frozenset[str] = frozenset()
    """The transactional tasks."""
    outbox: frozenset[str] = frozenset()
    """Tasks whose submission shared a transaction with a row of their producer."""
    at_most_once: frozenset[str] = frozenset()
    """The tasks that run at most once."""
    replays: Counter[str] = field(default_factory=Counter)
    """Audited replays, by task."""
    marks_doubled: tuple[str, ...] = ()
    """Submissions, by their mark, that are there more than once."""
    slots: SlotHistory = field(default_factory=SlotHistory)
    """What became of schedules."""
    flows: FlowHistory = field(default_factory=FlowHistory)
    """What became of flows and durable tasks."""
    limits: LimitHistory = field(default_factory=LimitHistory)
    """What became of tasks behind limits."""


@dataclass
class Figures:
    """What is counted on the way."""

    tasks: int = 0
    acknowledged: int = 0
    unknown: int = 0
    completed: int = 0
    cancelled: int = 0
    dead_letter: int = 0
    attempts: int = 0
    rescued: int = 0
    given_back: int = 0
    """Tasks that a lost worker had claimed and not begun: they went back as they were."""
    executed_again: int = 0
    """Attempts that began and were then ended by the leader: their work was done again, or may have been."""
    replays: int = 0
    stale_offered: int = 0
    stale_accepted: int = 0
    old_terms_offered: int = 0
    old_terms_accepted: int = 0
    lost: int = 0
    doubled: int = 0
    slots: SlotFigures = field(default_factory=SlotFigures)
    flows: FlowFigures = field(default_factory=FlowFigures)
    limits: LimitFigures = field(default_factory=LimitFigures)


@dataclass
class Verdict:
    """What the checker found."""

    violations: list[Violation]
    figures: Figures
    counts: Counter[str]
    """Violations by invariant: the list is cut, this isn't."""

    @property
    def holds(self) -> bool:
        return not self.counts


class Checker:
    """Collects violations. `check()` is all that is needed from outside."""

    def __init__(self, *, crash_limit: int) -> None:
        self._crash_limit = crash_limit
        self._violations: list[Violation] = []
        self._counts: Counter[str] = Counter()
        self._figures = Figures()
        self._states: dict[str, str | None] = {}
        self._started: dict[tuple[str, int], float] = {}
        """When each attempt began, by its own account."""
        self._begins: Counter[str] = Counter()
        self._flow_of: dict[str, str] = {}

    def check(
        self, transitions: Iterable[Transition], reigns: Iterable[Reign], log: Iterable[Mapping[str, Any]], end: End
    ) -> Verdict:
        acknowledged = self._actors(log)
        self._flow_of = {task.id: task.flow for task in end.flows.tasks if task.flow is not None}
        for task, moves in groupby(transitions, key=lambda t: t.task):
            self._task(task, list(moves), end)
        self._acknowledged(acknowledged, end)
        self._transactional(end)
        self._reigns(reigns)
        for detail in slots.check(end.slots, self._figures.slots):
            self._violated("I13", detail)
        for invariant, detail in flows.check(end.flows, self._figures.flows):
            self._violated(invariant, detail)
        for invariant, detail in limits.check(end.limits, self._figures.limits):
            self._violated(invariant, detail)
        return Verdict(self._violations, self._figures, self._counts)

    # ---- what the actors said ----

    def _actors(self, log: Iterable[Mapping[str, Any]]) -> set[str]:
        """Who was told what; returns the tasks whose submission was acknowledged."""
        acknowledged: set[str] = set()
        invoked: set[tuple[str, int, int]] = set()
        figures = self._figures
        for line in log:
            match line:
                case {"op": "submit", "what": "invoke"}:
                    invoked.add((line["actor"], line["pid"], line["call"]))
                case {"op": "submit", "what": answer}:
                    invoked.discard((line["actor"], line["pid"], line["call"]))
                    acknowledged.update(line.get("tasks", ()))
                    figures.unknown += answer == "unknown"
                case {"op": "stale", "what": "ok", "accepted": accepted}:
                    figures.stale_offered += line["offered"]
                    figures.stale_accepted += accepted
                    if accepted:
                        self._violated("I3", f"{accepted} stale writes accepted: {line.get('kind')} of {line['tasks']}")
                case {"op": "old term", "what": "ok", "accepted": accepted}:
                    figures.old_terms_offered += 1
                    figures.old_terms_accepted += accepted
                    if accepted:
                        self._violated("I8", f"a leader of term {line['term']} changed {accepted} rows after its end")
                case {"op": "run"}:
                    self._begins[line["task"]] += 1
                    self._started.setdefault((line["task"], line["token"]), line.get("at", 0.0))
                case {"op": "refused"}:
                    figures.stale_offered += 1
                case {"op": "violation"}:
                    self._violated(line["invariant"], line["detail"])
                case _:
                    pass
        figures.unknown += len(invoked)
        figures.acknowledged = len(acknowledged)
        return acknowledged

    # ---- the life of one task ----

    def _task(self, task: str, moves: list[Transition], end: End) -> None:
        figures = self._figures
        figures.tasks += 1
        endings = replays = restored = 0
        before: Transition | None = None
        for move in moves:
            self._move(task, before, move)
            if move.is_claim:
                figures.attempts += 1
            if move.old_state == "running" and "maintenance" in move.by:
                figures.rescued += 1
                figures.given_back += before is not None and _went_back(before, move)
                figures.executed_again += (task, move.old_token) in self._started and move.new_state == "failed"
            if move.old_state in TERMINAL and move.new_state == "pending":
                # What a gate had cancelled waits again when what failed is replayed. A task that was cancelled by
                # request may do both in one replay of its flow: it waits at a gate that has not heard of the replay.
                is_restored = move.old_state == "cancelled" and bool(move.at_gate) and not move.requested
                restored += is_restored
                replays += not is_restored
                endings = 0
            if move.new_state in TERMINAL:
                endings += 1
                if endings > 1:
                    figures.doubled += 1
                    self._violated("I2", f"{task} ended {endings} times")
                if move.new_state == "dead_letter" and not self._begins[task] and task not in end.at_most_once:
                    self._violated("I12", f"{task} is a dead letter, and its function never began")
            before = move
        figures.replays += replays
        in_flow = end.flows.replays.get(self._flow_of.get(task, ""), 0)
        if replays > end.replays[task] + in_flow or restored > in_flow:
            audited = f"{end.replays[task]} replays audited, {in_flow} in its flow"
            self._violated("I6", f"{task} left a terminal state {replays + restored} times; {audited}")
        if task in end.at_most_once and self._begins[task] > 1 + replays:
            self._violated("I12", f"{task} runs at most once, and began {self._begins[task]} times")
        state = moves[-1].new_state
        self._states[task] = state
        if state in TERMINAL:
            setattr(figures, state, getattr(figures, state) + 1)

    def _move(self, task: str, before: Transition | None, move: Transition) -> None:
        if before is None:
            if move.old_state is not None:
                self._violated("I6", f"{task} appeared out of nothing, as {move.old_state}")
        elif before.new_state != move.old_state or before.new_token != move.old_token:
            self._violated("I6", f"{task} was {before.new_state} and then {move.old_state} without a move")
        if move.old_state is not None and move.new_state is not None:
            self._legal(task, move)
            self._token(task, move)
            self._limits(task, before, move)
        if move.new_state is None and move.old_state not in TERMINAL:
            self._violated("I1", f"{task} was deleted while {move.old_state}")
        if move.wrote_token is not None and move.wrote_token != move.old_token:
            self._figures.stale_accepted += 1
            self._violated("I3", f"{task}: the result of token {move.wrote_token} was taken under {move.old_token}")

    def _legal(self, task: str, move: Transition) -> None:
        assert move.old_state is not None
        if move.new_state == move.old_state == "running":
            self._violated("I6", f"{task} went from one worker to another without ending")
        elif move.new_state != move.old_state and move.new_state not in MOVES[TaskState(move.old_state)]:
            self._violated("I6", f"{task} went from {move.old_state} to {move.new_state}")

    def _token(self, task: str, move: Transition) -> None:
        assert move.old_token is not None
        assert move.new_token is not None
        if move.is_claim and move.new_token <= move.old_token:
            self._violated("I4", f"{task} was claimed, and its token went from {move.old_token} to {move.new_token}")
        if not move.is_claim and move.new_token != move.old_token:
            self._violated("I4", f"{task} got token {move.new_token} for {move.old_token} without a claim")

    def _limits(self, task: str, before: Transition | None, move: Transition) -> None:
        retries, most, crashes = move.retry_count or 0, move.max_retries or 0, move.crash_count or 0
        if retries > most:
            self._violated("I5", f"{task} is at retry {retries} of {most}")
        if crashes > self._crash_limit:
            self._violated("I5", f"{task} crashed {crashes} times; the limit is {self._crash_limit}")
        if before is None or move.old_state in TERMINAL:
            return
        grown = crashes - (before.crash_count or 0)
        if not 0 <= retries - (before.retry_count or 0) <= 1 or not (
            0 <= grown <= 1 or (move.suspended and not crashes)
        ):
            self._violated("I5", f"{task}: retries or crashes jumped to {retries} and {crashes}")
        if move.old_state != "running" or "maintenance" not in move.by:
            return
        if retries > (before.retry_count or 0) and crashes > (before.crash_count or 0):
            self._violated("I5", f"{task} lost its worker, which counted as a crash and used a retry")
        began = self._started.get((task, move.old_token or 0))
        if _went_back(before, move) and began is not None and began < move.at.timestamp() - _SETTLED_SECONDS:
            self._violated("I5", f"{task} had begun when its worker was lost, and no crash was counted")

    # ---- the end ----

    def _acknowledged(self, acknowledged: set[str], end: End) -> None:
        for task in acknowledged:
            if task not in self._states:
                self._figures.lost += 1
                self._violated("I1", f"{task} was acknowledged, and is not there")
            elif self._states[task] not in TERMINAL and self._states[task] is not None:
                self._figures.lost += 1
                self._violated("I1", f"{task} was acknowledged, and is {self._states[task]} at the end")
        for task in end.outbox:
            if task not in self._states:
                self._violated("I1", f"{task} was submitted in a transaction that committed, and is not there")
        for mark in end.marks_doubled:
            self._violated("I1", f"submission {mark} is there more than once")
        for task, state in self._states.items():
            if state is not None and state not in TERMINAL:
                self._violated("I1", f"{task} is {state} at the end")

    def _transactional(self, end: End) -> None:
        for task, rows in end.ledger.items():
            if self._states.get(task) != "completed":
                self._violated("I11", f"{task} left a row, and is {self._states.get(task)}")
            elif rows != 1:
                self._violated("I11", f"{task} completed once and left {rows} rows")
        for task in end.transactional:
            if self._states.get(task) == "completed" and not end.ledger[task]:
                self._violated("I11", f"{task} completed and left no row")

    def _reigns(self, reigns: Iterable[Reign]) -> None:
        holders: dict[int, set[str]] = defaultdict(set)
        latest = 0
        for reign in reigns:
            holders[reign.term].add(reign.holder)
            if reign.term <= latest and reign.old_term is not None:
                self._violated("I8", f"term {reign.term} of {reign.holder} came after term {latest}")
            latest = max(latest, reign.term)
        for term, names in holders.items():
            if len(names) > 1:
                self._violated("I8", f"term {term} had {len(names)} leaders: {', '.join(sorted(names))}")

    def _violated(self, invariant: str, detail: str) -> None:
        self._counts[invariant] += 1
        if self._counts[invariant] <= MOST_SHOWN:
            self._violations.append(Violation(invariant, detail))


def _went_back(before: Transition, move: Transition) -> bool:
    """The leader took the task for one that had not begun."""
    same = (move.retry_count, move.crash_count) == (before.retry_count, before.crash_count)
    return same and move.new_state in ("pending", "failed")


def lines(verdict: Verdict) -> Iterator[str]:
    """The verdict for people."""
    for violation in verdict.violations:
        yield f"{violation.invariant}: {violation.detail}"
    for invariant, number in sorted(verdict.counts.items()):
        if number > MOST_SHOWN:
            yield f"{invariant}: {number - MOST_SHOWN} more"
