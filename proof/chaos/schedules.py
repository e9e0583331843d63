"""Schedules of one second: every policy, and an operator who pauses, resumes, changes and backfills them."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

from tasklib import Client
from tasklib.db.database import Database
from tasklib.errors import TaskLibError
from tasklib.maintenance.schedules import decide
from tasklib.schedules import Schedule
from tasklib.store import firing
from tasklib.store.fleet import Term

KINDS = (
    "leader killed",
    "leader frozen",
    "worker killed",
    "worker frozen past its lease",
    "worker restarted",
    "worker with a clock ahead",
    "worker with a clock behind",
    "database stopped fast",
    "database stopped immediately",
    "database killed",
    "database frozen",
    "connections terminated",
    "links stalled",
    "links reset",
)
"""The faults that schedules have to survive."""

_SECOND = timedelta(seconds=1)
_RULES = (Schedule(every=_SECOND), Schedule("* * * * * *", timezone="Asia/Tokyo"))
_POLICIES: tuple[dict[str, Any], ...] = (
    {"catch_up": "all", "catch_up_limit": 10_000},
    {"catch_up": "latest"},
    {"catch_up": "all", "catch_up_limit": 3},
    {"catch_up": "none", "catch_up_window": timedelta(seconds=10)},
    {"catch_up": "all", "overlap": "skip"},
    {"catch_up": "all", "overlap": "wait_one"},
    {"catch_up": "latest", "overlap": "cancel_running"},
    {"catch_up": "all", "jitter": 1.0},
)


def make(client: Client, count: int) -> None:
    """So many schedules; half of them are cron expressions with seconds, in a zone."""
    for number in range(count):
        policy = _POLICIES[number % len(_POLICIES)]
        rule = (
            Schedule(every=_SECOND) if number // len(_POLICIES) % 2 else Schedule("* * * * * *", timezone="Asia/Tokyo")
        )
        client.create_schedule("chaos.tick", replace(rule, **policy), name=f"tick-{number}", registered_elsewhere=True)


def stop(client: Client) -> None:
    """Pause them all, so that a run can become quiet."""
    for known in client.schedules(limit=1000):
        client.pause_schedule(known.name, "the run ends")


class Restless:
    """What an operator does with schedules."""

    def __init__(self, client: Client, database: Database, chance: random.Random) -> None:
        self._client, self._database, self._random = client, database, chance

    def once(self) -> None:
        """Something, to one of them."""
        known = self._random.choice(self._client.schedules(limit=1000))
        if known.paused_at is not None:
            self._client.resume_schedule(known.name)
            return
        match self._random.randrange(4):
            case 0:
                self._client.pause_schedule(known.name)
            case 1:
                self._client.change_schedule(known.name, jitter=self._random.choice([0, 1, 2]))
            case 2:
                with suppress(TaskLibError):  # it changed in between
                    self._client.change_schedule(known.name, every=self._random.choice([1, 2]) * _SECOND)
            case _:
                # Of slots that were skipped, or that passed before the schedule was made. One by one, by default, where
                # runs must not overlap: a flow, which waits for runs that the next slot may cancel.
                ago = self._random.choice([5, 30, 3600]) * self._random.randrange(1, 6)
                end = known.read_at - timedelta(seconds=ago)
                self._client.backfill_schedule(known.name, start=end - 5 * _SECOND, end=end)

    def offer_old_term(self, term: Term) -> int:
        """Fire what is due in the name of a leader whose term is over; how many schedules that moved."""
        found = self._database.run(firing.look(limit=10))
        offers = [offer for row in found.due if (offer := decide(row)) is not None]
        ids = [uuid4() for offer in offers for _ in offer.runs]
        return len(self._database.run(firing.fire(term, offers, ids)).schedules)
