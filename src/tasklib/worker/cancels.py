"""Cancel requests for what runs here: told by a notification, and looked for now and then in case one was missed."""

from __future__ import annotations

import asyncio

from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.maintenance.failures import Failures
from tasklib.store import control
from tasklib.worker.attempt import Attempt, Interruption
from tasklib.worker.runner import Runner

_LOOK_EVERY_SECONDS = 10.0


async def watch_for_cancel_requests(
    db: ReconnectingConnection, runner: Runner, requested: asyncio.Event, failures: Failures
) -> None:
    """Interrupt running attempts whose task was cancelled, for ever."""
    while True:
        try:
            async with asyncio.timeout(_LOOK_EVERY_SECONDS):
                await requested.wait()
        except TimeoutError:
            pass
        requested.clear()
        with failures.survived("cancel requests"):  # each is stored; the next look finds it
            await _interrupt_cancelled(db, runner)


async def _interrupt_cancelled(db: ReconnectingConnection, runner: Runner) -> None:
    held: dict[str, Attempt] = {a.claimed.id: a for a in runner.running if not a.settled}
    if not held:
        return
    for id_ in await db.run(control.cancel_requests([a.claimed for a in held.values()])):
        runner.interrupt(held[id_], Interruption.CANCELLED)
