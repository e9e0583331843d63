"""The checker is fed with every kind of violation, and flags each; and it is content with a history in order."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from proof.history.actors import ActorLog, read
from proof.history.checker import Checker, End, Verdict, lines
from proof.history.recording import Reign, Transition
from proof.history.slots import ScheduleMove, SlotHistory, SlotSkip, SlotTask
from tasklib.schedules import Schedule

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTLE, LEADER, CLIENT = "tasklib worker tasks", "tasklib worker maintenance", "tasklib client"


class Life:
    """A task's transitions, written one after the other."""

    def __init__(self, task: str = "a") -> None:
        self.task = task
        self.moves: list[Transition] = []
        self.to("pending", by=CLIENT)

    def to(self, state: str | None, *, token: int | None = None, by: str = SETTLE, **changes: Any) -> Life:
        before = self.moves[-1] if self.moves else None
        old_token = before.new_token if before else None
        claimed = state == "running"
        new_token = token if token is not None else (old_token or 0) + claimed
        move = Transition(
            seq=len(self.moves),
            at=NOW,
            by=by,
            task=self.task,
            old_state=before.new_state if before else None,
            new_state=state,
            old_token=old_token,
            new_token=None if state is None else new_token,
            worker="w" if claimed else None,
            retry_count=before.retry_count if before else 0,
            max_retries=3,
            crash_count=before.crash_count if before else 0,
            wrote_token=None,
        )
        self.moves.append(move._replace(**changes))
        return self


def acknowledged(*tasks: str) -> list[dict[str, Any]]:
    return [
        {"actor": "s", "pid": 1, "op": "submit", "what": "invoke", "call": 0},
        {"actor": "s", "pid": 1, "op": "submit", "what": "ok", "call": 0, "tasks": list(tasks)},
    ]


def began(task: str, token: int, *, seconds_ago: float = 60.0) -> dict[str, Any]:
    return {"op": "run", "task": task, "token": token, "at": NOW.timestamp() - seconds_ago}


def verdict_of(
    *lives: Life, log: list[dict[str, Any]] | None = None, reigns: list[Reign] | None = None, end: End | None = None
) -> Verdict:
    moves = [move for life in lives for move in life.moves]
    return Checker(crash_limit=3).check(moves, reigns or [], log or [], end or End())


def completed(task: str = "a") -> Life:
    return Life(task).to("running").to("completed", wrote_token=1)


def test_a_history_in_order_has_no_violation() -> None:
    retried = (
        Life("b")
        .to("running")
        .to("failed", by=LEADER, crash_count=1)
        .to("running")
        .to("pending", by=LEADER)
        .to("running")
        .to("dead_letter")
        .to("pending", by=CLIENT, retry_count=0, crash_count=0)
        .to("running")
        .to("completed", wrote_token=4)
    )
    verdict = verdict_of(
        completed(),
        retried,
        Life("c").to("cancelled", by=CLIENT),
        log=[*acknowledged("a", "b", "c"), began("b", 1)],
        reigns=[Reign("w1", None, 1), Reign("w2", 1, 2)],
        end=End(
            replays=Counter({"b": 1}), ledger=Counter({"a": 1}), transactional=frozenset("a"), outbox=frozenset("c")
        ),
    )
    assert verdict.holds, list(lines(verdict))
    figures = verdict.figures
    assert (figures.tasks, figures.completed, figures.cancelled, figures.acknowledged) == (3, 2, 1, 3)
    assert (figures.attempts, figures.rescued, figures.replays, figures.lost) == (5, 2, 1, 0)
    assert figures.given_back == 1


START = NOW - timedelta(seconds=100)
EVERY_SECOND = Schedule(every=timedelta(seconds=1)).to_json()


class Slots:
    """A schedule of one second, written move by move: what each one fires, skips or lets wait."""

    def __init__(self) -> None:
        self.history = SlotHistory([], [], [], NOW)
        self._moves: list[ScheduleMove] = []
        self._tasks: list[SlotTask] = []
        self._skips: list[SlotSkip] = []
        self.history.moves, self.history.tasks, self.history.skips = self._moves, self._tasks, self._skips
        self.move(0, rule=None, new_rule=EVERY_SECOND, old_next=None)

    def move(self, to: int | None, *, late: float = 0.5, **changes: Any) -> Slots:
        before = self._moves[-1] if self._moves else None
        old_next = before.new_next if before else None
        new_next = None if to is None else START + timedelta(seconds=to)
        at = START + timedelta(seconds=(to or 0) - 1 + late)
        stopped = bool(before and before.is_stopped)
        number = len(self._moves)
        move = ScheduleMove(
            number, number, at, LEADER, "s", EVERY_SECOND, None, old_next, new_next, None, stopped, stopped
        )
        self._moves.append(move._replace(**changes))
        return self

    def fire(self, *seconds: int, by_leader: bool = True) -> Slots:
        for second in seconds:
            slot = START + timedelta(seconds=second)
            self._tasks.append(SlotTask("s", slot, self._moves[-1].seq, by_leader))
        return self

    def skip(self, first: int, last: int, count: int, reason: str = "overlap") -> Slots:
        moments = (START + timedelta(seconds=second) for second in (first, last))
        self._skips.append(SlotSkip("s", *moments, reason, count))
        return self

    def end(self) -> End:
        self.history.read_at = self._moves[-1].at
        return End(slots=self.history)


def _slots_in_order() -> Slots:
    """Fired, skipped while paused, resumed, changed to every two seconds, and one that waits."""
    every_other = Schedule(every=timedelta(seconds=2)).to_json()
    known = Slots().move(1).fire(0).move(4).fire(1).skip(2, 3, 2, "superseded")
    known = known.move(4, is_stopped=True).move(20, is_stopped=False).skip(4, 19, 16, "paused")
    known = known.move(21).fire(20).move(22, new_rule=every_other).skip(21, 21, 1, "changed")
    known = known.move(24, rule=every_other).fire(22).move(24, by=CLIENT, rule=every_other).fire(3, by_leader=False)
    return known.move(26, rule=every_other, waiting=START + timedelta(seconds=24))


SLOT_VIOLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    name: ("I13", {"lives": [completed()], "end": slots.end()})
    for name, slots in {
        "a slot with two tasks": Slots().move(1).fire(0, 0),
        "a slot without a task": Slots().move(3).fire(0, 2),
        "a slot that is fired and on record as skipped": Slots().move(2).fire(0, 1).skip(1, 1, 1),
        "a slot that is fired while the schedule is paused": Slots().move(0, is_stopped=True).move(1).fire(0),
        "a slot that is fired without moving the schedule": Slots().move(1).fire(0).move(1, xid=77).fire(5),
        "a task at a time that is no slot": Slots().move(1).fire(0, 7),
        "a schedule that went on from another slot": Slots().move(1).fire(0).move(3, old_next=START).fire(2),
        "a record of more slots than there are": Slots().move(3).fire(2).skip(0, 1, 5),
        "a resumed schedule that passes over slots to come": Slots()
        .move(0, is_stopped=True)
        .move(9, late=-5.0, is_stopped=False)
        .skip(0, 8, 9, "paused"),
    }.items()
}
SLOT_VIOLATIONS["a schedule that is left alone"] = (
    "I13",
    {"lives": [completed()], "end": End(slots=SlotHistory(Slots().history.moves, read_at=NOW + timedelta(hours=1)))},
)


def test_slots_that_are_fired_skipped_or_waiting_are_in_order_and_counted() -> None:
    verdict = verdict_of(completed(), end=_slots_in_order().end())
    assert verdict.holds, list(lines(verdict))
    figures = verdict.figures.slots
    assert (figures.slots, figures.fired, figures.waiting, figures.missing, figures.doubled) == (24, 4, 1, 0, 0)
    assert figures.skipped == {"superseded": 2, "paused": 16, "changed": 1}


VIOLATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "an acknowledged task is not there": ("I1", {"log": acknowledged("a", "gone"), "lives": [completed()]}),
    "an acknowledged task never ends": ("I1", {"log": acknowledged("a"), "lives": [Life().to("running")]}),
    "a task is deleted while it waits": ("I1", {"lives": [Life().to(None)]}),
    "a committed transaction's task is not there": (
        "I1",
        {"lives": [completed()], "end": End(outbox=frozenset({"gone"}))},
    ),
    "a submission is there twice": ("I1", {"lives": [completed()], "end": End(marks_doubled=("m",))}),
    "a task ends twice": ("I2", {"lives": [completed().to("running", token=2).to("completed")]}),
    "an ending is overwritten by another": ("I2", {"lives": [completed().to("dead_letter")]}),
    "a stale write is accepted": (
        "I3",
        {"lives": [completed()], "log": [{"op": "stale", "what": "ok", "offered": 2, "accepted": 1, "tasks": ["a"]}]},
    ),
    "the result of another attempt is stored": (
        "I3",
        {"lives": [Life().to("running", token=2).to("completed", wrote_token=1)]},
    ),
    "a claim leaves the token as it was": ("I4", {"lives": [Life().to("running", token=0).to("completed")]}),
    "a token goes back": (
        "I4",
        {"lives": [Life().to("running", token=5).to("failed", retry_count=1).to("running", token=3).to("completed")]},
    ),
    "a token grows without a claim": ("I4", {"lives": [Life().to("running").to("completed", token=2)]}),
    "more retries than allowed": (
        "I5",
        {"lives": [Life().to("running").to("failed", retry_count=4).to("running").to("completed")]},
    ),
    "more crashes than allowed": (
        "I5",
        {"lives": [Life().to("running").to("failed", retry_count=1, crash_count=4).to("running").to("completed")]},
    ),
    "a lost worker uses a retry beside the crash": (
        "I5",
        {
            "lives": [
                Life().to("running").to("failed", by=LEADER, retry_count=1, crash_count=1).to("running").to("completed")
            ]
        },
    ),
    "an attempt that had begun is taken for one that had not": (
        "I5",
        {
            "lives": [Life().to("running").to("pending", by=LEADER).to("running").to("completed")],
            "log": [began("a", 1)],
        },
    ),
    "an illegal move": ("I6", {"lives": [Life().to("completed")]}),
    "a lease passed on without an end": (
        "I6",
        {"lives": [Life().to("running").to("running", token=1).to("completed")]},
    ),
    "a way out of a terminal state that nobody audited": (
        "I6",
        {"lives": [completed().to("pending").to("running").to("completed")]},
    ),
    "a state that nobody moved to": (
        "I6",
        {"lives": [Life().to("running").to("completed", old_state="failed")]},
    ),
    "an idle worker beside due tasks": (
        "I7",
        {"lives": [completed()], "log": [{"op": "violation", "invariant": "I7", "detail": "w took nothing"}]},
    ),
    "an old leader's write is accepted": (
        "I8",
        {"lives": [completed()], "log": [{"op": "old term", "what": "ok", "term": 1, "accepted": 2}]},
    ),
    "two leaders in one term": ("I8", {"lives": [completed()], "reigns": [Reign("a", None, 1), Reign("b", 1, 1)]}),
    "a term that goes back": (
        "I8",
        {"lives": [completed()], "reigns": [Reign("a", None, 1), Reign("b", 1, 3), Reign("c", 3, 2)]},
    ),
    "an attempt long past its lease": (
        "I9",
        {"lives": [completed()], "log": [{"op": "violation", "invariant": "I9", "detail": "a is late"}]},
    ),
    "more attempts than slots": (
        "I10",
        {"lives": [completed()], "log": [{"op": "violation", "invariant": "I10", "detail": "9 in 8"}]},
    ),
    "a transactional task's row without its completion": (
        "I11",
        {"lives": [Life().to("running").to("dead_letter")], "end": End(ledger=Counter("a"))},
    ),
    "a completed transactional task without its row": (
        "I11",
        {"lives": [completed()], "end": End(transactional=frozenset("a"))},
    ),
    "a dead letter whose function never began": ("I12", {"lives": [Life().to("running").to("dead_letter")]}),
    "a task at most once that began twice": (
        "I12",
        {
            "lives": [Life().to("running").to("pending").to("running").to("completed")],
            "log": [began("a", 1), began("a", 2)],
            "end": End(at_most_once=frozenset("a")),
        },
    ),
    **SLOT_VIOLATIONS,
    "a transactional task's row twice": ("I11", {"lives": [completed()], "end": End(ledger=Counter({"a": 2}))}),
}


@pytest.mark.parametrize(("invariant", "given"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_flagged(invariant: str, given: dict[str, Any]) -> None:
    given = dict(given)
    verdict = verdict_of(*given.pop("lives"), **given)
    assert invariant in verdict.counts
    assert any(line.startswith(f"{invariant}:") for line in lines(verdict))


def test_every_invariant_has_a_violation_that_is_tried() -> None:
    assert {invariant for invariant, _ in VIOLATIONS.values()} == {
        f"I{n}" for n in range(1, 14)
    }  # and I14, I15 in test_flow_checker.py


def test_a_task_at_most_once_may_be_given_up_before_it_began_and_run_again_after_a_replay() -> None:
    given_up = Life("a").to("running").to("dead_letter", by=LEADER)
    replayed = Life("b").to("running").to("dead_letter").to("pending", by=CLIENT).to("running").to("completed")
    end = End(at_most_once=frozenset("ab"), replays=Counter({"b": 1}))
    verdict = verdict_of(given_up, replayed, log=[began("b", 1), began("b", 2)], end=end)
    assert verdict.holds, list(lines(verdict))


def test_a_worker_that_woke_up_after_it_was_given_up_may_begin_what_it_held() -> None:
    life = Life().to("running").to("pending", by=LEADER).to("running").to("completed", wrote_token=2)
    assert verdict_of(life, log=[began("a", 1, seconds_ago=-5.0)]).holds


def test_a_submission_without_an_answer_is_unknown_and_may_be_there_or_not() -> None:
    log = [{"actor": "s", "pid": 1, "op": "submit", "what": "invoke", "call": 0}]
    verdict = verdict_of(completed(), log=log)
    assert verdict.holds
    assert verdict.figures.unknown == 1


def test_what_an_actor_logged_is_read_again_but_for_a_line_cut_short(tmp_path: Any) -> None:
    log = ActorLog(tmp_path, "submitter")
    call = log.invoke("submit", door="one")
    log.answer("submit", call, "ok", tasks=["a"])
    with (tmp_path / "submitter.jsonl").open("ab") as file:
        file.write(b'{"actor": "submitter", "op"')
    assert [line["what"] for line in read(tmp_path)] == ["invoke", "ok"]
