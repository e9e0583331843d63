"""Reports the statistics of this process to the database: every few seconds, and once more at the end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from tasklib.db.query import Runs
from tasklib.errors import DatabaseUnavailable
from tasklib.maintenance.failures import Failures
from tasklib.stats import Stat, StatsCollector
from tasklib.store import stats

_REPORT_SECONDS = 5.0


class StatsReporter:
    """Reports a process's statistics. Counts in flight are kept until the database has answered."""

    def __init__(self, collector: StatsCollector, db: Runs, worker_id: Callable[[], str]) -> None:
        self._collector = collector
        self._db = db
        self._worker_id = worker_id
        self._number = 0
        self._on_its_way: Sequence[Stat] = ()

    async def report_forever(self, failures: Failures) -> None:
        while True:
            await asyncio.sleep(_REPORT_SECONDS * random.uniform(0.7, 1.0))
            with failures.survived("stats"):
                await self.tell()

    async def tell(self) -> None:
        """Report new counts. If the answer is lost, the same report is repeated next time, under the same number."""
        if not self._on_its_way:
            self._on_its_way = self._collector.take()
            self._number += 1
            if not self._on_its_way and self._collector.clock_offset is not None:
                return
        before = time.monotonic()
        try:
            clock = await self._db.run(stats.add(self._on_its_way, worker=self._worker_id(), number=self._number))
        except DatabaseUnavailable:
            return
        self._on_its_way = ()
        self._collector.clock_offset = clock - (before + time.monotonic()) / 2
