"""Duty: what a process left behind when it died between two commits: arrivals, waiting tasks, flows half cancelled."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event
from tasklib.store import flows
from tasklib.store.fleet import Term

PAGE = 1000
"""Tasks of a flow that one statement goes through to cancel them."""
MOST_FLOWS = 1000
"""Flows in one round of the duty whose cancel goes on."""
MOST_ROUNDS = 1000
"""Folds in one round of the duty; the rest waits for the next one."""


async def sweep_gates(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    """Fold, and go on cancelling, until nothing is left. Any process may do either, so this needs no term."""
    await _fold(db)  # first: flows may be cancelled because the tasks that wait for them have ended
    for flow in await db.run(flows.to_cancel(MOST_FLOWS)):
        place: flows.MemberPlace | None = flows.FIRST_MEMBER
        while place is not None:
            place = (await db.run(flows.cancel_tasks(flow, PAGE, place))).next
    await _fold(db)
    return []


async def _fold(db: ReconnectingConnection) -> None:
    again: Sequence[str] | None = None
    for _ in range(MOST_ROUNDS):
        found = await db.run(flows.fold(again))
        if not found and again is None:
            break
        again = found or None  # what the last fold names; and in the end whatever there is
