"""Cancel requests for running tasks: found after a notification, and by polling in case one was missed."""

from __future__ import annotations

import asyncio

from tasklib.backends.backend import RunningAttempts
from tasklib.db.query import Runs
from tasklib.maintenance.failures import Failures
from tasklib.store import control

_LOOK_EVERY_SECONDS = 10.0


async def watch_for_cancel_requests(
    db: Runs, running: RunningAttempts, requested: asyncio.Event, failures: Failures
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
            if leases := running.leases():
                cancelled = await db.run(control.cancel_requests(leases))
                running.cancel([lease for lease in leases if lease.id in cancelled])
