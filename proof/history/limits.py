"""Decides what limits promise: I10 (never more running than allowed), I16 (no window over a rate, no start while a
throttled attempt holds the limit), I17 (serial keys) and I18 (breakers).

Which limits a task has is told by its name and arguments, not by its lane: the lane is what is examined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from tasklib.states import TERMINAL

SEEN_WITHIN = timedelta(seconds=5)
"""A claim that was under way when a breaker moved doesn't see it; so long after, none is under way any more."""


class Bound(NamedTuple):
    """A limit and one of its keys."""

    limit: str
    key: str = ""


@dataclass(frozen=True)
class LimitedTask:
    """What a task is behind."""

    id: str
    bounds: Sequence[Bound] = ()
    serial: str | None = None
    """Tasks with the same value run one by one, in the order (due, id); one that failed holds the others."""
    due: datetime | None = None
    """As it was submitted."""
    name: str = ""


class LimitedMove(NamedTuple):
    """A move of such a task."""

    seq: int
    task: str
    old_state: str | None
    new_state: str | None
    began: datetime
    """When its transaction began: claims count with that."""
    xid: int
    after: int
    """Transactions before this one were over when it was recorded."""


class LimitChange(NamedTuple):
    """A write to the row of a limit; `max_running` None: no bound of this kind."""

    seq: int
    limit: str
    max_running: int | None
    rate: float | None
    per: float | None
    burst: int | None


class LimitBlock(NamedTuple):
    """A limit was held until then, because an attempt was throttled."""

    seq: int
    bound: Bound
    until: datetime


class BreakerMove(NamedTuple):
    """A write to the row of a breaker."""

    seq: int
    at: datetime
    name: str
    state: str
    probes: Sequence[str] = ()
    """The ids of the tasks that may begin while it probes."""


@dataclass
class LimitHistory:
    """All that is known of the limits of a run; moves and changes share their numbers."""

    tasks: Sequence[LimitedTask] = ()
    moves: Sequence[LimitedMove] = ()
    changes: Sequence[LimitChange] = ()
    blocks: Sequence[LimitBlock] = ()
    breakers: Sequence[BreakerMove] = ()
    places_left: int = 0
    """Places that are still taken when nothing runs and waits any more."""


@dataclass
class LimitFigures:
    """What is counted on the way."""

    bounded_starts: int = 0
    starts_at_a_full_limit: int = 0
    """Those that took the last place."""
    rated_starts: int = 0
    serial_starts: int = 0
    serial_pairs: int = 0
    """Pairs of tasks with the same serial key whose order is certain and was kept."""
    changes: int = 0
    blocks: int = 0
    """Times that a limit was held."""
    starts_after_a_block: int = 0
    openings: int = 0
    """Times that a breaker opened."""
    probes: int = 0
    """Starts while a breaker was probing."""


def check(history: LimitHistory, figures: LimitFigures) -> Iterator[tuple[str, str]]:
    """Every violation: the invariant, and where."""
    tasks = {task.id: task for task in history.tasks}
    yield from _concurrency(history, tasks, figures)
    yield from _rates(history, tasks, figures)
    yield from _serial(history, tasks, figures)
    yield from _blocks(history, tasks, figures)
    yield from _breakers(history, tasks, figures)
    if history.places_left:
        yield "I10", f"{history.places_left} places are taken by nothing at the end"


def _is_claim(move: LimitedMove) -> bool:
    return move.new_state == "running" and move.old_state != "running"


def _concurrency(
    history: LimitHistory, tasks: dict[str, LimitedTask], figures: LimitFigures
) -> Iterator[tuple[str, str]]:
    """A claim counts after it has locked the limit, so what had ended then has the lower number."""
    allowed: dict[str, int | None] = {}
    running: defaultdict[Bound, set[str]] = defaultdict(set)
    for event in sorted([*history.moves, *history.changes], key=lambda event: event.seq):
        if isinstance(event, LimitChange):
            figures.changes += 1
            allowed[event.limit] = event.max_running
            continue
        for bound in tasks[event.task].bounds:
            most = allowed.get(bound.limit)
            if _is_claim(event):
                held = len(running[bound])
                figures.bounded_starts += most is not None
                figures.starts_at_a_full_limit += most is not None and held == most - 1
                if most is not None and held >= most:
                    yield "I10", f"{event.task} began as number {held + 1} of {bound}, which allows {most}"
                running[bound].add(event.task)
            elif event.new_state != "running":
                running[bound].discard(event.task)


def _rates(history: LimitHistory, tasks: dict[str, LimitedTask], figures: LimitFigures) -> Iterator[tuple[str, str]]:
    """A bucket that leaks at the rate and never holds more than the burst: the same as counting in every window."""
    rules = {change.limit: change for change in history.changes if change.rate is not None}
    starts: defaultdict[Bound, list[tuple[datetime, str]]] = defaultdict(list)
    for move in history.moves:
        if _is_claim(move):
            for bound in tasks[move.task].bounds:
                if bound.limit in rules:
                    starts[bound].append((move.began, move.task))
    for bound, began in starts.items():
        rule = rules[bound.limit]
        assert rule.rate is not None
        assert rule.per is not None
        assert rule.burst is not None
        level, before = 0.0, None
        for at, task in sorted(began):
            passed = 0.0 if before is None else (at - before).total_seconds()
            level = max(0.0, level - passed * rule.rate / rule.per) + 1
            before = at
            figures.rated_starts += 1
            if level > rule.burst + 0.001:
                yield "I16", f"{task} began at {at} as number {level:.3f} of a burst of {rule.burst} of {bound}"


def _blocks(history: LimitHistory, tasks: dict[str, LimitedTask], figures: LimitFigures) -> Iterator[tuple[str, str]]:
    """A claim counts with the time when it began, after it has locked the limit."""
    held: dict[Bound, datetime] = {}
    for event in sorted([*history.moves, *history.blocks], key=lambda event: event.seq):
        if isinstance(event, LimitBlock):
            figures.blocks += 1
            held[event.bound] = event.until
        elif _is_claim(event):
            for bound in tasks[event.task].bounds:
                if bound in held:
                    figures.starts_after_a_block += 1
                    if event.began < held[bound]:
                        yield "I16", f"{event.task} began at {event.began}; {bound} was held until {held[bound]}"


def _breakers(history: LimitHistory, tasks: dict[str, LimitedTask], figures: LimitFigures) -> Iterator[tuple[str, str]]:
    """While a breaker is open nothing of its name begins, and while it probes only its probes do."""
    states: dict[str, BreakerMove] = {}
    since: dict[str, datetime] = {}
    for event in sorted([*history.moves, *history.breakers], key=lambda event: event.seq):
        if isinstance(event, BreakerMove):
            before = states.get(event.name)
            if before is None or before.state != event.state:
                since[event.name] = event.at
            figures.openings += event.state == "open" and (before is None or before.state != "open")
            states[event.name] = event
        elif _is_claim(event) and (known := states.get(tasks[event.task].name)) is not None:
            is_probe = known.state == "probing" and event.task in known.probes
            figures.probes += is_probe
            if known.state != "closed" and not is_probe and event.began > since[known.name] + SEEN_WITHIN:
                yield "I18", f"{event.task} began at {event.began}; the breaker of {known.name} was {known.state}"


@dataclass
class _Waiting:
    """A task of a serial key that has not ended."""

    task: LimitedTask
    xid: int
    after: int
    has_begun: bool = False
    is_running: bool = False


def _serial(history: LimitHistory, tasks: dict[str, LimitedTask], figures: LimitFigures) -> Iterator[tuple[str, str]]:
    unfinished: defaultdict[str, dict[str, _Waiting]] = defaultdict(dict)
    for move in sorted(history.moves):
        task = tasks[move.task]
        if task.serial is None:
            continue
        others = unfinished[task.serial]
        if move.old_state is None:
            others[task.id] = _Waiting(task, move.xid, move.after)
        elif move.new_state is None or move.new_state in TERMINAL:
            others.pop(task.id, None)
        elif (mine := others.get(task.id)) is not None:
            if _is_claim(move):
                figures.serial_starts += 1
                yield from _next_is(mine, others.values(), figures)
                mine.has_begun = mine.is_running = True
            elif move.new_state != "running":
                mine.is_running = False


def _next_is(mine: _Waiting, others: Iterable[_Waiting], figures: LimitFigures) -> Iterator[tuple[str, str]]:
    """Whether this one may begin: nothing of its key runs, and nothing that failed or comes first waits."""
    for other in others:
        if other is mine:
            continue
        if other.is_running:
            yield "I17", f"{mine.task.id} began while {other.task.id} of the same key {mine.task.serial!r} ran"
        elif other.has_begun and not mine.has_begun:
            yield "I17", f"{mine.task.id} overtook {other.task.id} of {mine.task.serial!r}, which was to be retried"
        elif not mine.has_begun and not other.has_begun and _precedes(other, mine):
            yield "I17", f"{mine.task.id} began before {other.task.id} of {mine.task.serial!r}, which comes first"
        else:
            figures.serial_pairs += 1


def _precedes(one: _Waiting, other: _Waiting) -> bool:
    """Whether it comes first, and was committed before the other one could be seen."""
    assert one.task.due is not None
    assert other.task.due is not None
    is_visible = one.xid < other.after or one.xid == other.xid
    return is_visible and (one.task.due, one.task.id) < (other.task.due, other.task.id)


BoundsOf = Callable[[str, str, dict[str, Any]], tuple[Sequence[Bound], str | None]]
"""The bounds and the serial key of a task, of its name, queue and arguments."""
_TASKS = "SELECT id::text, name, queue, kwargs FROM tasks WHERE name LIKE %s"
_MOVES = """
    SELECT seq, task::text, old_state, new_state, began, xid::text::bigint, after::text::bigint
    FROM transitions JOIN tasks ON tasks.id = transitions.task
    WHERE name LIKE %s ORDER BY seq
"""
_CHANGES = "SELECT seq, limit_name, max_running, rate, per, burst FROM limit_moves ORDER BY seq"
_BLOCKS = "SELECT seq, limit_name, key, until FROM limit_blocks ORDER BY seq"
_BREAKERS = "SELECT seq, at, name, state, probes::text[] FROM breaker_moves ORDER BY seq"
_PLACES = """
    SELECT count(*) FROM places JOIN tasks ON tasks.id = places.task
    WHERE tasks.state IN ('completed', 'cancelled', 'dead_letter')
"""


def limit_history(db: psycopg.Connection, names: str, bounds_of: BoundsOf) -> LimitHistory:
    """What was recorded of the tasks with such names (a pattern of LIKE)."""
    due = dict(db.execute("SELECT task::text, due FROM transitions WHERE old_state IS NULL").fetchall())
    tasks = []
    for id_, name, queue, kwargs in db.execute(_TASKS, (names,)).fetchall():
        bounds, serial = bounds_of(name, queue, kwargs)
        tasks.append(LimitedTask(id_, bounds, serial, due.get(id_), name))
    moves = [LimitedMove._make(row) for row in db.execute(_MOVES, (names,)).fetchall()]
    changes = [LimitChange._make(row) for row in db.execute(_CHANGES).fetchall()]
    blocks = [LimitBlock(seq, Bound(limit, key), until) for seq, limit, key, until in db.execute(_BLOCKS).fetchall()]
    breakers = [BreakerMove._make(row) for row in db.execute(_BREAKERS).fetchall()]
    places = db.execute(_PLACES).fetchone()
    return LimitHistory(tasks, moves, changes, blocks, breakers, places[0] if places else 0)
