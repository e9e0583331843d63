"""A duty is a function and an interval; this loop calls it while this worker leads. It exists once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tasklib.config import Config
from tasklib.db.link import Link
from tasklib.errors import DatabaseUnavailable
from tasklib.events import Event, Events
from tasklib.maintenance.leader import Leadership
from tasklib.store.fleet import Term

Perform: TypeAlias = Callable[[Link, Config, Term], Awaitable[Sequence[Event]]]


@dataclass(frozen=True, slots=True)
class Duty:
    """Something the leader does again and again. It must be safe to repeat, and to be interrupted anywhere."""

    name: str
    interval_seconds: float
    perform: Perform
    """Does it, in statements that carry the term, and says what happened."""


async def perform(duties: Sequence[Duty], link: Link, config: Config, leadership: Leadership, events: Events) -> None:
    """Perform each duty at its interval while leading, for ever."""
    async with asyncio.TaskGroup() as group:
        for duty in duties:
            group.create_task(_repeat(duty, link, config, leadership, events))


async def _repeat(duty: Duty, link: Link, config: Config, leadership: Leadership, events: Events) -> None:
    while True:
        await asyncio.sleep(duty.interval_seconds * random.uniform(0.8, 1.0))
        term = await leadership.term()
        try:
            happened = await duty.perform(link, config, term)
        except DatabaseUnavailable:
            continue  # the next round will find what this one could not
        for event in happened:
            events.emit(event)
