"""A duty is a function and an interval; this loop calls it while this process leads. It exists once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event, Events
from tasklib.maintenance.failures import Failures
from tasklib.maintenance.leader import Leadership
from tasklib.store.fleet import Term

Perform: TypeAlias = Callable[[ReconnectingConnection, Config, Term], Awaitable[Sequence[Event]]]


@dataclass(frozen=True, slots=True)
class Duty:
    """Something the leader does again and again. It must be safe to repeat, and to be interrupted anywhere."""

    name: str
    interval_seconds: float
    perform: Perform
    """Does it, in statements that carry the term, and says what happened."""


async def perform(
    duties: Sequence[Duty],
    db: ReconnectingConnection,
    config: Config,
    leadership: Leadership,
    events: Events,
    failures: Failures,
) -> None:
    """Perform each duty at its interval while leading, for ever. One that fails is reported and tried again.

    Duties with the same interval are performed in their order: a worker that is declared dead loses its tasks in the
    same round.
    """

    async def repeat(interval: float, alike: Sequence[Duty]) -> None:
        while True:
            await asyncio.sleep(interval * random.uniform(0.8, 1.0))
            for duty in alike:
                term = await leadership.term()
                with failures.survived(duty.name):
                    for event in await duty.perform(db, config, term):
                        events.emit(event)

    async with asyncio.TaskGroup() as group:
        for interval, alike in groupby(duties, lambda duty: duty.interval_seconds):
            group.create_task(repeat(interval, list(alike)))
