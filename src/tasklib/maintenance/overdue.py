"""Duty: attempts well past their timeout whose worker doesn't act. The worker lives, but it is wedged."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event, OverdueFailed
from tasklib.maintenance.batches import in_batches
from tasklib.store import maintenance
from tasklib.store.fleet import Term


async def fail_overdue(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    grace, delay = config.overdue_grace_seconds, config.base_retry_delay_seconds
    failed = await in_batches(lambda limit: db.run(maintenance.fail_overdue(term, grace, delay, limit)))
    return [OverdueFailed(tuple(failed))] if failed else []
