"""The page of what a record of the audit is about."""

from __future__ import annotations

from collections.abc import Callable

from tasklib.server.dashboard import limits, schedules
from tasklib.server.dashboard.shell import place_of
from tasklib.store.audit import AuditRecord

_BY_KIND: dict[str, Callable[[str], str]] = {
    "queue": lambda value: place_of("/queues", value),
    "name": lambda value: place_of("/names", value),
    "limit": limits.address,
}
_BY_ACTION: dict[str, Callable[[str], str]] = {
    "task": lambda id_: place_of("/tasks", id_),
    "flow": lambda id_: place_of("/flows", id_),
    "replay": lambda id_: place_of("/replays", id_),
    "worker": lambda id_: place_of("/workers", id_),
    "schedule": schedules.address,
}


def page_of(record: AuditRecord) -> str | None:
    """The page, or None: many tasks, what is gone, and what has no page of its own."""
    if record.target is None or record.action.endswith((".delete", ".remove")):
        return None
    if address := _BY_ACTION.get(record.action.partition(".")[0]):
        return address(record.target)
    kind, _, value = record.target.partition(":")
    address = _BY_KIND.get(kind)
    return address(value) if address and value else None
