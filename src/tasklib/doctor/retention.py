"""Finished tasks that are kept for ever, because no rule deletes them."""

from __future__ import annotations

from tasklib.client.effects import Call
from tasklib.config import Config
from tasklib.doctor.findings import Finding, ok, warning
from tasklib.formatting import duration
from tasklib.store import doctor, levels
from tasklib.store.doctor import TableFigures
from tasklib.store.levels import StateCount

MANY = 100_000
"""Fewer finished tasks than these take tens of megabytes: no reason to speak of them."""
OLD_SECONDS = 7 * 86400.0
_LOOKED_AT = 1000


def look(config: Config) -> Call[list[Finding]]:
    if any(rule.state == "completed" and rule.name is None for rule in config.retention):
        return [ok("retention", "Completed tasks are deleted when their retention is over.")]
    states: list[StateCount] = yield levels.state_counts()
    finished = sum(s.count or 0 for s in states if s.state in ("completed", "cancelled"))
    oldest: float | None = yield doctor.oldest_finished(_LOOKED_AT)
    if finished < MANY or oldest is None or oldest < OLD_SECONDS:
        return [ok("retention", f"About {finished:,} finished tasks are kept; no retention is set.", finished=finished)]
    tables: list[TableFigures] = yield doctor.tables(["tasks"])
    size = sum(table.size for table in tables)
    return [
        warning(
            "no_retention",
            f"About {finished:,} finished tasks are kept, the oldest for {duration(oldest)}; the table takes "
            f"{size / 2**20:,.0f} MiB without its indexes. No retention is set here.",
            "Finished tasks stay for ever unless a rule deletes them, so the table grows with every task.",
            "Set a rule for all workers and servers: TASKLIB_RETENTION=completed=30,cancelled=30 (days; a very long "
            "time if they shall stay). The leader then deletes them in small batches.",
            finished=finished,
            oldest_seconds=oldest,
            bytes=size,
        )
    ]
