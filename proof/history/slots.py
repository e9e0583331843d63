"""Decides I13: every slot of every schedule has one task, or is on record as skipped, with the reason.

A schedule moves from its next slot to a later one. What lies between was decided by that move, under the rule that held
before it, and has to be found: as a task, in a record of skipped slots, or as the slot that still waits.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import psycopg

from tasklib.schedules import OF_TASKS, Schedule, slots_between

LATE_AT_MOST = timedelta(seconds=60)
"""A schedule that runs has decided all slots older than this, once there is a leader again."""
_CHANGES_TAKE = timedelta(seconds=10)
"""A change counts from when it read the schedule: slots of the old rule since then belong to neither rule."""
_TICK = timedelta(microseconds=1)


class ScheduleMove(NamedTuple):
    """A write to one schedule. A new one has no `rule`."""

    seq: int
    xid: int
    at: datetime
    by: str
    schedule: str
    rule: dict[str, Any] | None
    new_rule: dict[str, Any] | None
    """None if it stays the same."""
    old_next: datetime | None
    new_next: datetime | None
    waiting: datetime | None
    was_stopped: bool | None
    """Paused or retired."""
    is_stopped: bool | None
    """None if it was deleted: what was due goes with it."""


class SlotTask(NamedTuple):
    """A task that has a slot, as it was inserted."""

    schedule: str
    slot: datetime
    xid: int
    by_leader: bool
    """False if it was asked for: a backfill runs what was skipped."""


class SlotSkip(NamedTuple):
    """A record of skipped slots."""

    schedule: str
    first: datetime
    last: datetime
    reason: str
    count: int


@dataclass
class SlotHistory:
    """All that is known about the schedules of a run."""

    moves: Sequence[ScheduleMove] = ()
    """In the order in which they happened."""
    tasks: Sequence[SlotTask] = ()
    skips: Sequence[SlotSkip] = ()
    read_at: datetime | None = None
    """When this was read; there was a leader then."""


@dataclass
class SlotFigures:
    """What is counted on the way."""

    slots: int = 0
    fired: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """By reason."""
    waiting: int = 0
    doubled: int = 0
    missing: int = 0


def check(history: SlotHistory, figures: SlotFigures) -> Iterator[str]:
    """What is wrong."""
    moves: dict[str, list[ScheduleMove]] = defaultdict(list)
    tasks: dict[str, list[SlotTask]] = defaultdict(list)
    skips: dict[str, list[SlotSkip]] = defaultdict(list)
    for move in history.moves:
        moves[move.schedule].append(move)
    for task in history.tasks:
        tasks[task.schedule].append(task)
    for skip in history.skips:
        skips[skip.schedule].append(skip)
    for name in sorted({*moves, *tasks, *skips}):
        yield from _Schedule(name, moves[name], tasks[name], skips[name], figures).check(history.read_at)


class _Schedule:
    """One schedule, and what became of its slots."""

    def __init__(
        self,
        name: str,
        moves: list[ScheduleMove],
        tasks: list[SlotTask],
        skips: list[SlotSkip],
        figures: SlotFigures,
    ) -> None:
        self._name, self._moves, self._figures = name, moves, figures
        self._tasks = tasks
        self._made = Counter(task.slot for task in tasks)
        self._fired = {task.slot: task for task in tasks if task.by_leader}
        self._skips = sorted(skips, key=lambda skip: skip.last)
        self._ends = [skip.last for skip in self._skips]
        self._found: Counter[SlotSkip] = Counter()
        self._decided: set[datetime] = set()

    def check(self, read_at: datetime | None) -> Iterator[str]:
        for before, move in pairwise(self._moves):
            if before.new_next != move.old_next:
                yield f"{self._name} was to go on at {before.new_next}, and went on at {move.old_next}"
        for move in self._moves:
            yield from self._move(move)
        yield from self._tasks_in_order()
        for skip in self._skips:
            if self._found[skip] != skip.count:
                yield f"{self._name} has {skip.count} slots on record as skipped, and {self._found[skip]} are: {skip}"
        last = self._moves[-1] if self._moves else None
        if last and read_at and last.new_next and not last.is_stopped and last.new_next < read_at - LATE_AT_MOST:
            yield f"{self._name} has decided nothing since {last.new_next}"

    def _move(self, move: ScheduleMove) -> Iterator[str]:
        for slot in self._between(move):
            self._figures.slots += 1
            self._decided.add(slot)
            yield from self._slot(slot, move)
        if move.new_next is not None and move.new_rule is not None:
            first = next(slots_between(_rule(move.new_rule), move.at, move.new_next - _TICK), None)
            if first is not None:
                yield f"{self._name} passes over {first} to {move.new_next} when it is made or changed"

    def _between(self, move: ScheduleMove) -> Iterator[datetime]:
        """The slots that this move decided."""
        if move.old_next is None or move.rule is None or move.old_next == move.new_next or move.is_stopped is None:
            return
        until = move.new_next
        if until is None or move.new_rule is not None:
            until = min(until or move.at + _TICK, move.at + _TICK)
        if move.old_next < until:
            yield move.old_next
            yield from slots_between(_rule(move.rule), move.old_next, until - _TICK)

    def _slot(self, slot: datetime, move: ScheduleMove) -> Iterator[str]:
        figures = self._figures
        if slot > move.at:
            yield f"{self._name} at {slot} was decided before its time, at {move.at}"
        task, skip = self._fired.get(slot), self._skip_of(slot)
        if skip is not None:
            self._found[skip] += 1
            figures.skipped[skip.reason] = figures.skipped.get(skip.reason, 0) + 1
            if task is not None:
                figures.doubled += 1
                yield f"{self._name} at {slot} was fired, and is on record as skipped: {skip.reason}"
        elif task is not None:
            figures.fired += 1
        elif self._moves[-1].waiting == slot:
            figures.waiting += 1
        elif not self._made[slot] and not (move.new_rule and slot > move.at - _CHANGES_TAKE):
            figures.missing += 1
            yield f"{self._name} at {slot} was neither fired nor skipped, and passed by {move.by} at {move.at}"

    def _skip_of(self, slot: datetime) -> SlotSkip | None:
        place = bisect_left(self._ends, slot)
        skip = self._skips[place] if place < len(self._skips) else None
        return skip if skip is not None and skip.first <= slot else None

    def _tasks_in_order(self) -> Iterator[str]:
        for slot, number in self._made.items():
            if number > 1:
                self._figures.doubled += number - 1
                yield f"{self._name} at {slot} has {number} tasks"
        by_xid = {move.xid: move for move in self._moves}
        for task in self._tasks:
            if not task.by_leader:
                continue
            move = by_xid.get(task.xid)
            if move is None:
                yield f"{self._name} at {task.slot} was fired, and the schedule did not move on"
            elif move.was_stopped:
                yield f"{self._name} at {task.slot} was fired while it was paused or retired"
            if task.slot not in self._decided:
                yield f"{self._name} was fired at {task.slot}, which is not one of its slots"


@lru_cache(maxsize=1000)
def _read(rule: str) -> Schedule:
    return Schedule.from_json(json.loads(rule))


def _rule(spec: dict[str, Any]) -> Schedule:
    return _read(json.dumps({key: value for key, value in spec.items() if key not in OF_TASKS}))


def slot_history(db: psycopg.Connection) -> SlotHistory:
    """What the triggers of recording.sql and TaskLib's own tables say."""
    columns = ", ".join(f"{name}::text::bigint" if name == "xid" else name for name in ScheduleMove._fields)
    moves = db.execute(f"SELECT {columns} FROM schedule_moves ORDER BY seq".encode()).fetchall()
    tasks = db.execute(
        "SELECT schedule, slot, xid::text::bigint, by LIKE '%worker schedules' OR by LIKE '%worker maintenance' "
        "FROM tasks JOIN transitions ON task = id AND old_state IS NULL WHERE slot IS NOT NULL"
    ).fetchall()
    skips = db.execute("SELECT schedule, first_slot, last_slot, reason, count FROM schedule_skips").fetchall()
    row = db.execute("SELECT now()").fetchone()
    return SlotHistory(
        [ScheduleMove._make(row) for row in moves],
        [SlotTask._make(row) for row in tasks],
        [SlotSkip._make(row) for row in skips],
        row[0] if row else None,
    )
