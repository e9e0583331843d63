"""Dead letters over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.client import validation as checks
from tasklib.client.cursors import cursor
from tasklib.client.dead_letters import RAMP_SECONDS
from tasklib.client.effects import Call, Pause
from tasklib.errors import TaskNotFound
from tasklib.http import responses
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import Asking, checked
from tasklib.store.dead_letters import DeadLetterGroup, Place

if TYPE_CHECKING:
    from tasklib.models import Task

MOST_AT_ONCE = 10_000
MOST_IDS = 500
"""Ids in one request; a purge has them in its address."""


class HttpDeadLetterCalls(Asking):
    """The calls for the dead letter queue."""

    def dead_letters(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        error: str | None = None,
        fingerprint: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: UUID | str | Task | Place | None = None,
        limit: int = 100,
    ) -> Call[list[Task]]:
        given: dict[str, Any] = {
            "name": name,
            "queue": queue,
            "error": error,
            "fingerprint": fingerprint,
            "since": since,
            "until": until,
        }
        checked(super().dead_letters(**given, after=after, limit=limit))
        place = None if after is None else (yield from self._place(after))
        start = None if place is None else cursor("dead_letters", place.completed_at.isoformat(), place.id)
        return (yield from self._tasks("/dead-letters", query_of(**given), start, limit))

    def dead_letter_groups(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 20,
    ) -> Call[list[DeadLetterGroup]]:
        given: dict[str, Any] = {"name": name, "queue": queue, "error": error, "since": since, "until": until}
        checked(super().dead_letter_groups(**given, limit=limit))
        found = yield from self._ask(get("/dead-letters/groups", query_of(**given, limit=limit)))
        return [responses.group_of(group) for group in found["groups"]]

    def replay_dead_letters(
        self,
        *,
        ids: Iterable[UUID | str] | None = None,
        fingerprint: str | None = None,
        name: str | None = None,
        queue: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        everything: bool = False,
        limit: int | None = None,
        per_second: float | None = None,
        dry_run: bool = False,
    ) -> Call[list[UUID]]:
        given: dict[str, Any] = {
            "fingerprint": fingerprint,
            "name": name,
            "queue": queue,
            "error": error,
            "since": since,
            "until": until,
            "everything": everything,
            "dry_run": dry_run,
        }
        wanted = _ids(ids)
        checked(super().replay_dead_letters(**given, ids=wanted, limit=limit, per_second=per_second))

        def request(some: list[UUID] | None, most: int) -> Request:
            body = body_of(**given, ids=None if some is None else [str(i) for i in some], limit=most)
            return Request("POST", f"{API}/dead-letters/replay", (), body)

        step = None if per_second is None or dry_run else max(1, round(per_second * RAMP_SECONDS))
        pause = 0.0 if step is None or per_second is None else step / per_second
        return (yield from self._taken(request, wanted, limit, step, pause, once=dry_run))

    def purge_dead_letters(
        self,
        *,
        ids: Iterable[UUID | str] | None = None,
        fingerprint: str | None = None,
        name: str | None = None,
        queue: str | None = None,
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        everything: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Call[list[UUID]]:
        given: dict[str, Any] = {
            "fingerprint": fingerprint,
            "name": name,
            "queue": queue,
            "error": error,
            "since": since,
            "until": until,
            "everything": everything,
            "dry_run": dry_run,
        }
        wanted = _ids(ids)
        checked(super().purge_dead_letters(**given, ids=wanted, limit=limit))

        def request(some: list[UUID] | None, most: int) -> Request:
            return Request("DELETE", f"{API}/dead-letters", query_of(**given, task_id=some, limit=most))

        return (yield from self._taken(request, wanted, limit, None, 0.0, once=dry_run))

    def _taken(
        self, request: Any, ids: list[UUID] | None, limit: int | None, step: int | None, pause: float, *, once: bool
    ) -> Call[list[UUID]]:
        """Take some at a time, the oldest first. What comes a second time has failed again: that is the end."""
        taken: dict[UUID, None] = {}
        parts = [None] if ids is None else [ids[i : i + MOST_IDS] for i in range(0, len(ids), MOST_IDS)]
        for part in parts:
            more = True
            while more and (limit is None or len(taken) < limit):
                most = min(step or MOST_AT_ONCE, MOST_AT_ONCE, MOST_AT_ONCE if limit is None else limit - len(taken))
                found = yield from self._ask(request(part, most))
                now = [UUID(id_) for id_ in found["task_ids"]]
                more = found["more"] and not once and not any(id_ in taken for id_ in now)
                taken |= dict.fromkeys(now)
                if pause and more:
                    yield Pause(pause)
        return list(taken)

    def _place(self, after: UUID | str | Task | Place) -> Call[Place]:
        if not isinstance(after, UUID | str):
            return (yield from super()._place(after))
        task_id = checks.as_id(after)
        task = yield from self.get_task(task_id)
        if task is None:
            raise TaskNotFound.with_id(task_id)
        return (yield from super()._place(task))


def _ids(ids: Iterable[UUID | str] | None) -> list[UUID] | None:
    if ids is None:
        return None
    return [checks.as_id(id_) for id_ in ([ids] if isinstance(ids, str | UUID) else ids)]
