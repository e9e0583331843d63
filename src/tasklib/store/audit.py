"""The audit: who changed what. Only ever added to, by the very statements that change something."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from tasklib.db.query import Query, Rows, nothing

T = TypeVar("T")


class Action(StrEnum):
    """The recorded actions. A statement for one of these includes audited.sql or audited_batch.sql."""

    CANCEL_TASK = "task.cancel"
    REPLAY_TASK = "task.replay"
    RUN_TASK_NOW = "task.run_now"
    EDIT_TASK = "task.edit"
    SIGNAL_TASK = "task.signal"
    ANSWER_APPROVAL = "task.answer"
    CANCEL_TASKS = "tasks.cancel"
    REPLAY_TASKS = "tasks.replay"
    ERASE_TASKS = "tasks.erase"
    REPLAY_DEAD_LETTERS = "dead_letters.replay"
    PURGE_DEAD_LETTERS = "dead_letters.purge"
    START_REPLAY = "replay.start"
    PAUSE_REPLAY = "replay.pause"
    RESUME_REPLAY = "replay.resume"
    STOP_REPLAY = "replay.stop"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN_WORKER = "worker.drain"
    BOUND_QUEUE = "queue.bound"
    UNBOUND_QUEUE = "queue.unbound"
    SET_LIMIT = "limit.set"
    REMOVE_LIMIT = "limit.remove"
    RESET_LIMIT = "limit.reset"
    SET_BREAKER = "breaker.set"
    REMOVE_BREAKER = "breaker.remove"
    RESET_BREAKER = "breaker.reset"
    OPEN_BREAKER = "breaker.open"
    CLOSE_BREAKER = "breaker.close"
    CHANGE_SETTINGS = "settings.change"
    SAVE_SEARCH = "search.save"
    DELETE_SEARCH = "search.delete"
    CREATE_SCHEDULE = "schedule.create"
    CHANGE_SCHEDULE = "schedule.change"
    PAUSE_SCHEDULE = "schedule.pause"
    RESUME_SCHEDULE = "schedule.resume"
    RUN_SCHEDULE = "schedule.run"
    BACKFILL_SCHEDULE = "schedule.backfill"
    DELETE_SCHEDULE = "schedule.delete"
    RETIRE_SCHEDULES = "schedules.retire"
    CANCEL_FLOW = "flow.cancel"
    REPLAY_FLOW = "flow.replay"
    CREATE_TOKEN = "token.create"
    REVOKE_TOKEN = "token.revoke"
    ROTATE_KEY = "key.rotate"
    REVEAL_TASK = "task.reveal"
    LOG_IN = "login"
    REFUSE_LOGIN = "login.refused"


CHANGES_NOTHING = frozenset({Action.REVEAL_TASK, Action.LOG_IN, Action.REFUSE_LOGIN})
"""What the server records though it changes nothing, by audit_record.sql."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A row of `audit`: who did what to what, and when."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str | None
    """The id of a task, worker or token, a schedule's name, `queue:mail`, `name:send_email`; None for many tasks."""
    details: dict[str, Any]
    """The parameters of the request; for many tasks also the `count`."""


def audited(
    statement: str,
    parameters: Mapping[str, Any],
    read: Callable[[Rows], T],
    *,
    by: str,
    action: Action,
    target: str | None = None,
    details: Mapping[str, Any] | None = None,
    prepare: bool | None = None,
    repeatable: bool = False,
) -> Query[T]:
    """A query that also records its changes in the audit, `by` this actor."""
    said = {name: value for name, value in (details or {}).items() if value is not None}
    record = {"actor": by, "action": action.value, "target": target, "details": json.dumps(said, default=_text)}
    return Query(statement, {**parameters, **record}, read, prepare=prepare, repeatable=repeatable)


def record(
    *, by: str, action: Action, target: str | None = None, details: Mapping[str, Any] | None = None
) -> Query[None]:
    """Record what changes nothing else."""
    return audited("audit_record", {}, nothing, by=by, action=action, target=target, details=details)


def page(
    *,
    limit: int,
    before: int | None = None,
    before_at: datetime | None = None,
    action: str | None = None,
    actor: str | None = None,
    target: str | None = None,
) -> Query[list[AuditRecord]]:
    """The latest first. `before_at`: those before this moment, and of those at it the ones before the number."""
    parameters = {
        "limit": limit,
        "before": before,
        "before_at": before_at,
        "action": action,
        "actor": actor,
        "target": target,
    }
    return Query("audit_list", parameters, _records, prepare=False, repeatable=True)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _records(rows: Rows) -> list[AuditRecord]:
    return [AuditRecord(*row) for row in rows]
