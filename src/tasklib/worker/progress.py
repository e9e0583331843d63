"""What running tasks report of their progress: the newest is written now and then, the last before the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Protocol

from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable
from tasklib.store.settle import Kept, Leased
from tasklib.worker.attempt import Attempt

_SECONDS = 0.5


class _Backend(Protocol):
    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> Kept: ...


class ProgressReports:
    """The newest report of each running attempt, and whether it is stored. A task that never reports costs nothing."""

    def __init__(self, backend: _Backend) -> None:
        self._backend = backend
        # Threads of tasks write to the first one only, and entries stay until the attempt is over: so no lock is
        # needed, and no report is lost between being written and being replaced.
        self.newest_reports: dict[Attempt, str] = {}
        self._stored: dict[Attempt, str] = {}
        self._turn = asyncio.Lock()  # an older report must not arrive after a newer one

    def report(self, attempt: Attempt, text: str) -> None:
        """Take an attempt's newest progress, as JSON text. May be called from any thread."""
        if not attempt.settled:
            self.newest_reports[attempt] = text

    def newest(self, attempt: Attempt) -> str | None:
        """The newest report, unless it is stored already. May be called from any thread."""
        text = self.newest_reports.get(attempt)
        return None if text is self._stored.get(attempt) else text

    async def write_for_ever(self, unwritten: Callable[[], Iterable[Attempt]]) -> None:
        """Write the newest reports now and then. `unwritten` are attempts that are over and wait to be stored."""
        while True:
            await asyncio.sleep(_SECONDS)
            with suppress(DatabaseUnavailable):  # newer progress will come
                await self._write([attempt for attempt in list(self.newest_reports) if not attempt.settled])
            over = {attempt for attempt in list(self.newest_reports) if attempt.settled}
            if over:  # a thread that was settled without it may have reported since
                self.forget(over.difference(unwritten()))

    async def write_last(self, attempts: Iterable[Attempt]) -> set[Attempt]:
        """Write what these reported last: their outcomes are written next, and then nothing can be added.

        Returns those whose rows another transaction has locked.
        """
        reporting = [attempt for attempt in attempts if attempt in self.newest_reports]
        failures = 0
        while reporting:
            try:
                await self._write(reporting)
                break
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1
        return {attempt for attempt in reporting if self.newest(attempt) is not None}

    async def _write(self, attempts: Sequence[Attempt]) -> None:
        async with self._turn:
            reports = [(a, text) for a in attempts if (text := self.newest(a)) is not None]
            # One lock order for all who write many rows.
            reports.sort(key=lambda report: report[0].claimed.id)
            for worker_id in {attempt.worker_id for attempt, _ in reports}:
                await self._write_of(worker_id, [report for report in reports if report[0].worker_id == worker_id])

    async def _write_of(self, worker_id: str, reports: Sequence[tuple[Attempt, str]]) -> None:
        locked: AbstractSet[str] = frozenset()
        try:
            stored = await self._backend.progress(worker_id, [(attempt.claimed, text) for attempt, text in reports])
            locked = stored.locked
        except DatabaseUnavailable:
            raise
        except Exception as e:
            # One that can't be stored must not cost the others theirs, nor any task its outcome.
            if len(reports) > 1:
                for report in reports:
                    await self._write_of(worker_id, [report])
                return
            with suppress(Exception):
                logging.getLogger("tasklib").warning(
                    "progress of %s (%s) can't be stored: %s", reports[0][0].claimed.name, reports[0][0].claimed.id, e
                )
        # Another transaction holds the rows of some: they are written with the next.
        self._stored.update(report for report in reports if report[0].claimed.id not in locked)

    def forget(self, attempts: Iterable[Attempt]) -> None:
        """These are stored, with all they said."""
        for attempt in attempts:
            self.newest_reports.pop(attempt, None)
            self._stored.pop(attempt, None)
