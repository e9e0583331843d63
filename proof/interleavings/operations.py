"""What a session may do to the task, and the states it may find it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tasklib.db.query import Query
from tasklib.store import claim, control, maintenance, settle
from tasklib.store.claim import Served
from tasklib.store.fleet import Term
from tasklib.store.settle import Completion, Failure, Lease

NAME = "work"
TOKEN = 5
"""The token under which `holder` has the task, if it runs."""
HOLDER, OTHER, STRANGER, LEADER = "holder", "other", "stranger", Term("leader", 7)
CRASH_LIMIT = 3
_TERMS: dict[str, Any] = {"lease_seconds": 600.0, "medium_after": 600.0, "high_after": 1200.0}

STATES: dict[str, str] = {
    "pending": "state = 'pending', lease_token = 4",
    "failed": "state = 'failed', next_retry_at = now() - interval '1 s', lease_token = 4, retry_count = 1",
    "running": "state = 'running', worker_id = 'holder', locked_until = now() + interval '9 min', lease_token = 5",
    "expired": "state = 'running', worker_id = 'holder', locked_until = now() - interval '1 s', lease_token = 5",
    "begun": (
        "state = 'running', worker_id = 'holder', locked_until = now() + interval '9 min', lease_token = 5, "
        "begun_token = 5, at_most_once = true"
    ),
    "cancelling": (
        "state = 'running', worker_id = 'holder', locked_until = now() + interval '9 min', lease_token = 5, "
        "cancel_requested_at = now()"
    ),
    "completed": "state = 'completed', completed_at = now(), lease_token = 5",
    "dead_letter": "state = 'dead_letter', completed_at = now(), lease_token = 5, error = 'boom'",
}


@dataclass(frozen=True)
class Operation:
    """One statement of ours, about the task with this id."""

    name: str
    query: Callable[[UUID], Query[Any]]
    is_legitimate: bool = True
    """False: it must never change anything."""


def _lease(task: UUID, token: int = TOKEN) -> Lease:
    return Lease(str(task), token)


def _complete(task: UUID, token: int, worker: str) -> Query[Any]:
    return settle.complete([Completion(_lease(task, token), f'{{"token": {token}}}')], worker)


def _fail(task: UUID, token: int = TOKEN) -> Query[Any]:
    return settle.fail([Failure(_lease(task, token), "boom", "error", 0.0)], HOLDER, CRASH_LIMIT)


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("claim", lambda task: claim.claim(Served([NAME]), 1, OTHER, **_TERMS)),
        Operation("set apart", lambda task: claim.set_apart(Served(["another"]))),
        Operation("extend", lambda task: settle.extend([_lease(task)], HOLDER, 600.0)),
        Operation("complete", lambda task: _complete(task, TOKEN, HOLDER)),
        Operation("fail", _fail),
        Operation("release", lambda task: settle.release([_lease(task)], HOLDER)),
        Operation("begin", lambda task: settle.begin([(_lease(task), True)], HOLDER)),
        Operation("stop", lambda task: settle.stop([(_lease(task), "stopped")], HOLDER)),
        Operation("cancel", lambda task: control.cancel(task, by="somebody")),
        Operation("replay", lambda task: control.replay(task, by="somebody")),
        Operation("rescue", lambda task: maintenance.rescue(LEADER, CRASH_LIMIT, 10)),
        Operation("stale complete", lambda task: _complete(task, TOKEN - 1, HOLDER), is_legitimate=False),
        Operation(
            "stale begin", lambda task: settle.begin([(_lease(task, TOKEN - 1), True)], HOLDER), is_legitimate=False
        ),
        Operation("foreign complete", lambda task: _complete(task, TOKEN, STRANGER), is_legitimate=False),
        Operation(
            "late rescue", lambda task: maintenance.rescue(Term("leader", 6), CRASH_LIMIT, 10), is_legitimate=False
        ),
    )
}
EXPIRE = "UPDATE tasks SET locked_until = now() - interval '1 s' WHERE id = %s AND state = 'running'"
"""Time passes: not a statement of ours, and always the first to be thought of."""
