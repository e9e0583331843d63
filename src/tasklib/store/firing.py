"""Firing schedules: what the leader reads of those that are due, and what it offers to do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.schedules import OF_TASKS, Skipped
from tasklib.stats import BOUNDS
from tasklib.store.control import CANCEL
from tasklib.store.fleet import Term


class DueSchedule(NamedTuple):
    """A schedule that has something to decide now or soon, as the leader reads it."""

    now: datetime
    """By the database's clock, when it was read."""
    name: str
    revision: int
    rule: str
    """As JSON: its spec, without what tasks are submitted with. Many schedules have the same."""
    next_slot: datetime | None
    waiting_slot: datetime | None
    is_running: bool | None
    """Whether a run is not finished; None if the schedule doesn't care."""
    keeps_failing: bool | None
    """Whether its last runs are as many dead letters as `pause_after` says."""

    @property
    def is_ahead(self) -> bool:
        """Whether it was read before its time: no slot of it is due."""
        return self.waiting_slot is None and self.next_slot is not None and self.next_slot > self.now


class Look(NamedTuple):
    """What the leader has to decide about, and until when it may sleep if that is nothing."""

    now: datetime
    next_slot: datetime | None
    """The first one to come."""
    due: list[DueSchedule]


class Run(NamedTuple):
    """A task to be made."""

    slot: datetime
    run_at: datetime


@dataclass(frozen=True, slots=True)
class Offer:
    """What is to be done with one schedule. It is refused if the schedule is no longer as it was read."""

    read: DueSchedule
    next_slot: datetime | None
    runs: Sequence[Run] = ()
    skips: Sequence[Skipped] = ()
    waiting_slot: datetime | None = None
    cancel_running: bool = False
    pause_note: str | None = None
    last_slot: datetime | None = field(default=None)
    """The newest slot that this decides."""

    def seconds_until_due(self, now: datetime) -> float:
        """Until the decision holds; not above zero if it does."""
        return 0.0 if self.last_slot is None else (self.last_slot - now).total_seconds()


class FiredTask(NamedTuple):
    """A task that was made."""

    schedule: str
    id: str
    slot: datetime


class Fired(NamedTuple):
    """The schedules whose offers were taken, and the tasks that were made of them."""

    schedules: frozenset[str]
    tasks: list[FiredTask]


def look(*, limit: int, unreadable: Sequence[str] = (), ahead_seconds: float = 0.0) -> Query[Look]:
    """The schedules that are due, or will be in a moment, but for those that this leader can't read."""
    parameters = {
        "limit": limit,
        "unreadable": list(unreadable),
        "of_tasks": list(OF_TASKS),
        "ahead": float(ahead_seconds),
    }
    return Query("schedule_look", parameters, _look, repeatable=True)


def fire(term: Term, offers: Sequence[Offer], ids: Iterable[UUID]) -> Query[Fired]:
    """Carry out the offers that still fit. There is an id for each of their runs."""
    new_ids = iter(ids)
    parameters = {
        **term.parameters(),
        "offers": json.dumps([_as_json(offer, new_ids) for offer in offers]),
        "bounds": list(BOUNDS),
        "message": CANCEL,
    }
    return Query("schedule_fire", parameters, _fired)


def forget_skips(term: Term, age_seconds: float, limit: int) -> Query[int]:
    """Delete records of skipped slots that are older; reads how many."""
    parameters = {**term.parameters(), "age": float(age_seconds), "limit": limit}
    return Query("forget_skips", parameters, len)


def skips_as_json(skips: Sequence[Skipped], follows: datetime | None = None) -> list[dict[str, Any]]:
    """For schedule_skips_recorded.sql. The one that begins at the slot `follows` may make an earlier row longer."""
    return [
        {
            "reason": skip.reason,
            "count": skip.count,
            "first_slot": skip.first.isoformat(),
            "last_slot": skip.last.isoformat(),
            "follows": skip.first == follows,
        }
        for skip in skips
    ]


def _as_json(offer: Offer, ids: Iterator[UUID]) -> dict[str, Any]:
    """What is left out is null. With a thousand schedules at a time it matters how little this is."""
    read = offer.read
    given: dict[str, Any] = {
        "name": read.name,
        "revision": read.revision,
        "slot": _text(read.next_slot),
        "next_slot": _text(offer.next_slot),
        "last_slot": _text(offer.last_slot),
    }
    if offer.runs:
        given["runs"] = [_run_as_json(run, next(ids)) for run in offer.runs]
    if offer.skips:
        given["skips"] = skips_as_json(offer.skips, follows=read.next_slot)
    if read.waiting_slot is not None or offer.waiting_slot is not None:
        given |= {"waiting": _text(read.waiting_slot), "waiting_next": _text(offer.waiting_slot)}
    if offer.cancel_running:
        given["cancel_running"] = True
    if offer.pause_note is not None:
        given["pause_note"] = offer.pause_note
    return given


def _run_as_json(run: Run, id_: UUID) -> dict[str, Any]:
    given = {"id": id_.hex, "slot": _text(run.slot)}
    return given if run.run_at == run.slot else {**given, "run_at": _text(run.run_at)}


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _look(rows: Rows) -> Look:
    (now, _, _, _, next_slot, *_), *due = rows
    return Look(now, next_slot, [DueSchedule(now, *row[1:]) for row in due])


def _fired(rows: Rows) -> Fired:
    return Fired(frozenset(row[0] for row in rows), [FiredTask(*row) for row in rows if row[1] is not None])
