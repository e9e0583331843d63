"""Firing schedules: what the leader reads of those that are due, and what it offers to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.schedules import Skipped
from tasklib.stats import BOUNDS
from tasklib.store.control import CANCEL
from tasklib.store.fleet import Term


class DueSchedule(NamedTuple):
    """A schedule that has something to decide now or soon, as the leader reads it."""

    now: datetime
    """By the database's clock, when it was read."""
    name: str
    revision: int
    task: str
    spec: dict[str, Any]
    next_slot: datetime | None
    waiting_slot: datetime | None
    last_slot: datetime | None
    is_running: bool | None
    """Whether a run is not finished; None if the schedule doesn't care."""
    keeps_failing: bool | None
    """Whether its last runs are as many dead letters as `pause_after` says."""


class Run(NamedTuple):
    """A task to be made."""

    id: UUID
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


class FiredTask(NamedTuple):
    """A task that was made."""

    schedule: str
    id: str
    slot: datetime


class Fired(NamedTuple):
    """The schedules whose offers were taken, and the tasks that were made of them."""

    schedules: tuple[str, ...]
    tasks: list[FiredTask]


def look(*, horizon: float, limit: int, unreadable: Sequence[str] = ()) -> Query[list[DueSchedule]]:
    """The schedules that are due within `horizon` seconds, but for those that this leader can't read."""
    parameters = {"horizon": float(horizon), "limit": limit, "unreadable": list(unreadable)}
    return Query("schedule_look", parameters, lambda rows: [DueSchedule(*row) for row in rows], repeatable=True)


def fire(term: Term, offers: Sequence[Offer]) -> Query[Fired]:
    """Carry out the offers that still fit."""
    parameters = {
        **term.parameters(),
        "offers": json.dumps([_as_json(offer) for offer in offers]),
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


def _as_json(offer: Offer) -> dict[str, Any]:
    read = offer.read
    return {
        "name": read.name,
        "revision": read.revision,
        "slot": _text(read.next_slot),
        "waiting": _text(read.waiting_slot),
        "next_slot": _text(offer.next_slot),
        "last_slot": _text(offer.last_slot),
        "waiting_next": _text(offer.waiting_slot),
        "runs": [{"id": run.id.hex, "slot": _text(run.slot), "run_at": _text(run.run_at)} for run in offer.runs],
        "skips": skips_as_json(offer.skips, follows=read.next_slot),
        "cancel_running": offer.cancel_running,
        "pause_note": offer.pause_note,
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _fired(rows: Rows) -> Fired:
    names = tuple(dict.fromkeys(row[0] for row in rows))
    return Fired(names, [FiredTask(*row) for row in rows if row[1] is not None])
