"""Two sessions on one schedule in every order: leaders, an operator, an old and a new deploy.

All of them decide from what they read before the first step, as processes do that come at the same time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg

from proof.history.slots import SlotFigures, check, slot_history
from proof.interleavings.operations import LEADER
from proof.interleavings.stepping import Session, orders, play
from tasklib.db.database import execute
from tasklib.db.query import Query
from tasklib.maintenance.schedules import decide
from tasklib.schedules import Schedule, lost, next_slot
from tasklib.store import firing, schedules
from tasklib.store.firing import DueSchedule, Offer
from tasklib.store.fleet import Term
from tasklib.store.schedules import Declared, ScheduleInfo

HOUR = timedelta(hours=1)
NAME = "nightly"
DEPLOYED = datetime(2026, 11, 1, tzinfo=UTC)
CONTENTS = {DEPLOYED: "0 * * * *", DEPLOYED + HOUR: "1 * * * *", DEPLOYED + 2 * HOUR: "2 * * * *"}
"""What each deploy says, by its stamp. The first one is stored."""
_TEMPLATE: dict[str, Any] = {
    "queue": "default",
    "kwargs": {},
    "max_retries": 3,
    "priority": 0,
    "tags": {},
    "required_capabilities": [],
}


@dataclass(frozen=True)
class Read:
    """What all sessions have seen."""

    due: DueSchedule
    info: ScheduleInfo

    @property
    def offer(self) -> Offer:
        offer = decide(self.due)
        assert offer is not None
        return offer


Operation = Callable[[Read], Query[Any]]


def _fire(read: Read, term: Term = LEADER) -> Query[Any]:
    return firing.fire(term, [read.offer], [uuid4() for _ in read.offer.runs])


def _change(read: Read, deployed_at: datetime | None) -> Query[Any]:
    """As a deploy with this stamp, or an operator, changes it."""
    info = read.info
    cron = CONTENTS[deployed_at] if deployed_at else "30 * * * *"
    wanted = Declared(NAME, "report", Schedule(cron), _TEMPLATE, "jobs" if deployed_at else None, deployed_at)
    gone = lost(info.schedule, "changed", info.next_slot, info.read_at)
    following = next_slot(wanted.schedule, info.read_at, info.last_slot)
    return schedules.change(info, wanted, following, [gone] if gone else [], by="somebody")


OPERATIONS: dict[str, Operation] = {
    "fire": _fire,
    "fire as a former leader": lambda read: _fire(read, replace(LEADER, number=LEADER.number - 1)),
    "edit": lambda read: _change(read, None),
    "pause": lambda read: schedules.pause(NAME, None, by="somebody"),
    "old deploy": lambda read: _change(read, DEPLOYED + HOUR),
    "new deploy": lambda read: _change(read, DEPLOYED + 2 * HOUR),
    "new deploy without a change": lambda read: schedules.deployed({NAME: read.info.revision}, DEPLOYED + 2 * HOUR),
    "retire": lambda read: schedules.retire([], None, DEPLOYED + 2 * HOUR, by="somebody"),
    "delete": lambda read: schedules.delete(NAME, by="somebody"),
}
PAIRS = [*itertools.combinations_with_replacement(OPERATIONS, 2)]
TRIPLES = [("fire", *pair) for pair in itertools.combinations(["fire", "edit", "pause", "old deploy", "new deploy"], 2)]


class ScheduleTable:
    """One database on which orders are played, each on a schedule that is due."""

    def __init__(self, db: psycopg.Connection, sessions: list[Session]) -> None:
        self._db, self._sessions = db, sessions

    def play_all(self, operations: tuple[str, ...]) -> Iterator[str]:
        """Every order of these; what is wrong with any of them."""
        for order in orders(len(operations)):
            for wrong in self._play(operations, order):
                yield f"{' | '.join(operations)} in {order}: {wrong}"

    def _play(self, operations: tuple[str, ...], order: tuple[int, ...]) -> Iterator[str]:
        read = self._begin()
        sessions = self._sessions[: len(operations)]
        play(sessions, [OPERATIONS[operation](read) for operation in operations], order, uuid4())
        for operation, session in zip(operations, sessions, strict=True):
            if session.error is not None:
                yield f"{operation} failed: {session.error}"
            if operation == "fire as a former leader" and session.answer.schedules:
                yield "a former leader's offer was taken"
        # Not every order has a leader: what is due may be left.
        yield from check(replace(slot_history(self._db), read_at=None), SlotFigures())
        fired = sum(len(s.answer.tasks) for o, s in zip(operations, sessions, strict=True) if o == "fire" and s.answer)
        if self._value("SELECT count(*) FROM tasks") != fired or fired > 1:
            yield f"{fired} tasks were reported for one slot, and {self._value('SELECT count(*) FROM tasks')} made"
        yield from self._deploys(operations)

    def _deploys(self, operations: tuple[str, ...]) -> Iterator[str]:
        """A stamp only grows, and goes with what that deploy says, unless an operator has edited it."""
        row = self._db.execute("SELECT deployed_at, spec -> 'cron' ->> 0 FROM schedules").fetchone()
        if row is None:
            return
        stamp, cron = row
        expected = {CONTENTS[stamp], *(["30 * * * *"] if "edit" in operations else [])}
        if "new deploy without a change" in operations:
            expected.add(CONTENTS[DEPLOYED])  # which is what the new one says, too
        if cron not in expected:
            yield f"the deploy of {stamp} says {CONTENTS[stamp]}, and {cron} is stored"
        if cron == CONTENTS[DEPLOYED + HOUR] and stamp > DEPLOYED + HOUR:
            yield "an old deploy's schedule has a new one's stamp"

    def _begin(self) -> Read:
        for table in ("schedules", "tasks", "schedule_skips", "schedule_moves", "transitions"):
            self._db.execute(f"DELETE FROM {table}".encode())
        rule = json.dumps(Schedule(CONTENTS[DEPLOYED]).to_json())
        self._db.execute(
            "INSERT INTO schedules (name, task, spec, template, source, module, deployed_at, next_slot) "
            "VALUES (%s, 'report', %s, %s, 'code', 'jobs', %s, date_trunc('hour', now()))",
            (NAME, rule, json.dumps(_TEMPLATE), DEPLOYED),
        )
        [due] = execute(self._db, firing.look(limit=1), None).due
        info = execute(self._db, schedules.get(NAME), None)
        assert info is not None
        return Read(due, info)

    def _value(self, query: str) -> Any:
        row = self._db.execute(query.encode()).fetchone()
        return row and row[0]
