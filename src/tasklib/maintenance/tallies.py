"""Duty: what was told lately is added to the minutes and the total; old minutes become part of longer spans."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.link import Link
from tasklib.events import Event
from tasklib.store import tallies
from tasklib.store.fleet import Term

MOST_AT_ONCE = 10_000


async def fold_tallies(link: Link, config: Config, term: Term) -> Sequence[Event]:
    while await link.run(tallies.fold(term, MOST_AT_ONCE)) == MOST_AT_ONCE:
        pass
    for span, age, into in tallies.KEPT:
        await link.run(tallies.coarsen(term, span, age, into))
    return []
