"""The server's part in the maintenance: it may lead the fleet, so that workers over HTTP need no other worker."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from typing import Any

import structlog

from tasklib.backends.postgres.notifier import Notifier
from tasklib.config import Config
from tasklib.db.query import Runs
from tasklib.events import (
    DatabaseBack,
    DatabaseLost,
    DutyFailed,
    Event,
    Events,
    LeadershipLost,
    LeadershipTaken,
    LeasesRescued,
    OverdueFailed,
    SlotsSkipped,
    TasksDeleted,
    WorkersDied,
)
from tasklib.maintenance.service import Maintenance
from tasklib.stats import StatsCollector
from tasklib.store import schedules


class Leading:
    """Stands for election while the server runs, and performs the duties while it leads."""

    def __init__(self, config: Config, control: Runs, notifier: Notifier) -> None:
        self.id = f"server-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        """What `leadership` knows this start of this server by."""
        self._log: Any = structlog.get_logger("tasklib.server").bind(server=self.id)
        events = Events()
        events.subscribe(self._write, routine=False)
        self._maintenance = Maintenance(config, control, events, StatsCollector(), lambda: self.id)
        self._notifier = notifier
        notifier.told[schedules.CHANGED] = self._maintenance.scheduler.look
        self._jobs = [asyncio.create_task(job) for job in self._maintenance.jobs()]

    async def close(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        self._notifier.told.pop(schedules.CHANGED, None)
        await self._maintenance.resign()
        self._maintenance.close()

    def _write(self, event: Event) -> None:
        match event:
            case LeadershipTaken(term):
                self._log.info("leadership taken", term=term)
            case LeadershipLost(term):
                self._log.warning("leadership lost", term=term)
            case WorkersDied(ids):
                self._log.warning("workers died", workers=list(ids))
            case LeasesRescued(tasks):
                for task_id, name, state in tasks:
                    self._log.warning("task rescued", task_id=task_id, task=name, state=state)
            case OverdueFailed(tasks):
                for task_id, name, state in tasks:
                    self._log.warning("task overdue", task_id=task_id, task=name, state=state)
            case TasksDeleted(state, count):
                self._log.info("tasks deleted", state=state, count=count)
            case SlotsSkipped(schedule, reason, count, first, last):
                self._log.warning(
                    "slots skipped",
                    schedule=schedule,
                    reason=reason,
                    count=count,
                    first=first.isoformat(),
                    last=last.isoformat(),
                )
            case DutyFailed(duty, reason):
                self._log.error("duty failed", duty=duty, reason=reason)
            case DatabaseLost(purpose, reason):
                self._log.error("database lost", purpose=purpose, reason=reason)
            case DatabaseBack(purpose):
                self._log.warning("database back", purpose=purpose)
            case _:
                pass
