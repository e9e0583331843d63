"""Duty: finished tasks past their retention are deleted, if it is configured; and old records of skipped slots."""

from __future__ import annotations

from collections.abc import Sequence

from tasklib.config import Config, Retention
from tasklib.db.reconnecting import ReconnectingConnection
from tasklib.events import Event, TasksDeleted
from tasklib.maintenance.schedule_skips import forget_skips
from tasklib.store import flows, maintenance
from tasklib.store.fleet import Term

BATCH = 1000


async def delete_expired(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    """Apply each rule. A rule for a name goes before the rule for all names of that state."""
    events: list[Event] = []
    for rule in config.retention:
        named = () if rule.name else tuple(r.name for r in config.retention if r.name and r.state == rule.state)
        deleted = await _apply(rule, named, db, term)
        if deleted:
            events.append(TasksDeleted(rule.state, deleted))
    events += await _forget_flows(db, config, term)
    await forget_skips(db, term)
    return events


async def _forget_flows(db: ReconnectingConnection, config: Config, term: Term) -> Sequence[Event]:
    """Flows are kept as long as the longest rule says that applies to tasks of any name, and deleted as a whole."""
    ages = {rule.state: rule.seconds for rule in config.retention if rule.name is None}
    if "completed" not in ages:
        return []
    if config.dead_letter_days is not None:
        ages.setdefault("dead_letter", config.dead_letter_days * 86400.0)
    deleted = 0
    while True:
        tasks, gone = await db.run(flows.forget(term, max(ages.values()), BATCH))
        deleted += tasks
        if not tasks and not gone:
            return [TasksDeleted("flow", deleted)] if deleted else []


async def _apply(rule: Retention, except_names: Sequence[str], db: ReconnectingConnection, term: Term) -> int:
    """Page through the expired rows by key, so that rows that are kept never hide the others."""
    deleted, after = 0, None
    while True:
        page = await db.run(maintenance.retain(term, rule, except_names, after, BATCH))
        deleted += page.deleted
        after = page.last
        if page.read < BATCH:
            return deleted
