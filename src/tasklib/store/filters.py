"""Which tasks, and which dead letters, as values: made once from what a caller gives, and passed on as they are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Tasks that meet every condition; None is no condition.

    failed_mails = TaskFilter(state="failed", name="send_email")
    """

    state: str | Iterable[str] | None = None
    """One state, or several of which a task has to have one."""
    name: str | None = None
    queue: str | None = None
    tags: Mapping[str, Any] | None = None
    """A task has to have all of these."""
    created_after: datetime | None = None
    """At or after this moment."""
    created_before: datetime | None = None
    worker: str | None = None
    """The id of the worker that runs the task now."""
    ids: UUID | str | Iterable[UUID | str] | None = None
    owner: str | None = None
    """The submitter of the tasks. The calls set it, for a caller who may see only its own."""

    @property
    def is_everything(self) -> bool:
        """True if every task of the owner meets it."""
        return not self.given()

    def given(self) -> dict[str, Any]:
        """The conditions that a caller gave, by name."""
        return _given(replace(self, tags=self.tags or None))

    def not_after(self, moment: datetime) -> TaskFilter:
        """The same without tasks that were created later."""
        return replace(self, created_before=min(self.created_before or moment, moment))

    def parameters(self) -> dict[str, Any]:
        """For a statement that includes the fragment of this filter."""
        return {
            "states": texts(self.state),
            "name": self.name,
            "queue": self.queue,
            "tags": json.dumps(self.tags) if self.tags else None,
            "created_after": self.created_after,
            "created_before": self.created_before,
            "worker": self.worker,
            "ids": texts(self.ids),
            "owner": self.owner,
        }


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Dead letters that meet every condition; None is no condition.

    without_card = DeadLetterFilter(name="charge", error="no card")
    """

    ids: UUID | str | Iterable[UUID | str] | None = None
    fingerprint: str | None = None
    """The fingerprint of a group, or the start of it."""
    name: str | None = None
    queue: str | None = None
    error: str | None = None
    """A piece of the traceback, in upper or lower case."""
    since: datetime | None = None
    """Given up at or after this moment."""
    until: datetime | None = None
    """Given up before this moment."""
    owner: str | None = None
    """As in a TaskFilter."""
    secrets: str | None = None
    """What is masked in errors for the caller, who can't search it. The calls set it."""

    @property
    def is_everything(self) -> bool:
        """True if every dead letter of the owner meets it."""
        return not self.given()

    def given(self) -> dict[str, Any]:
        """The conditions that a caller gave, by name."""
        return _given(self)

    def not_after(self, moment: datetime) -> DeadLetterFilter:
        """The same without dead letters that were given up later."""
        return replace(self, until=min(self.until or moment, moment))

    def parameters(self) -> dict[str, Any]:
        """For a statement that includes the fragment of this filter."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "ids": texts(self.ids)}


SET_BY_CALLS = ("owner", "secrets")
EVERY_TASK = TaskFilter()
EVERY_DEAD_LETTER = DeadLetterFilter()


def texts(value: UUID | str | Iterable[UUID | str] | None) -> list[str] | None:
    """The one value, or each of several, as text."""
    if value is None:
        return None
    return [str(one) for one in ([value] if isinstance(value, str | UUID) else value)]


def _given(chosen: TaskFilter | DeadLetterFilter) -> dict[str, Any]:
    values = {field.name: getattr(chosen, field.name) for field in fields(chosen) if field.name not in SET_BY_CALLS}
    return {name: value for name, value in values.items() if value is not None}
