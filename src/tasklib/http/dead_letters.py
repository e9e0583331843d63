"""Dead letters over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from tasklib.client import validation as checks
from tasklib.client.cursors import cursor
from tasklib.client.dead_letters import RAMP_SECONDS
from tasklib.client.effects import Call, Pause
from tasklib.client.failures import FailureReport
from tasklib.errors import TaskNotFound
from tasklib.http import responses
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import Asking, checked
from tasklib.store.dead_letters import DeadLetterGroup, DeadLetterPlace
from tasklib.store.filters import DeadLetterFilter, texts

if TYPE_CHECKING:
    from tasklib.models import Task

MOST_AT_ONCE = 10_000
MOST_IDS = 500
"""Ids in one request; a purge has them in its address."""


class HttpDeadLetterCalls(Asking):
    """The calls for failures and the dead letter queue."""

    def failures(
        self,
        *,
        since: datetime | timedelta = timedelta(hours=1),
        until: datetime | None = None,
        name: str | None = None,
        queue: str | None = None,
        fingerprint: str | None = None,
        limit: int = 50,
        values: int = 3,
    ) -> Call[FailureReport]:
        checked(
            super().failures(
                since=since, until=until, name=name, queue=queue, fingerprint=fingerprint, limit=limit, values=values
            )
        )
        begin = {"seconds": since.total_seconds()} if isinstance(since, timedelta) else {"since": since}
        query = query_of(
            **begin, until=until, name=name, queue=queue, fingerprint=fingerprint, limit=limit, values=values
        )
        return responses.failures_of((yield from self._ask(get("/failures", query))))

    def _dead_letters(self, chosen: DeadLetterFilter, after: DeadLetterPlace | None, limit: int) -> Call[list[Task]]:
        start = None if after is None else cursor("dead_letters", after.completed_at.isoformat(), after.id)
        return (yield from self._tasks("/dead-letters", _query(chosen), start, limit))

    def _dead_letter_groups(self, chosen: DeadLetterFilter, limit: int) -> Call[list[DeadLetterGroup]]:
        found = yield from self._ask(get("/dead-letters/groups", [*_query(chosen), *query_of(limit=limit)]))
        return [responses.group_of(group) for group in found["groups"]]

    def _replay(
        self, chosen: DeadLetterFilter, limit: int | None, per_second: float | None, dry_run: bool
    ) -> Call[list[UUID]]:
        def request(some: DeadLetterFilter, most: int) -> Request:
            conditions = {**some.given(), "ids": texts(some.ids)}
            body = body_of(**conditions, everything=chosen.is_everything, limit=most, dry_run=dry_run)
            return Request("POST", f"{API}/dead-letters/replay", (), body)

        step = None if per_second is None or dry_run else max(1, round(per_second * RAMP_SECONDS))
        pause = 0.0 if step is None or per_second is None else step / per_second
        return (yield from self._taken(request, chosen, limit, step, pause, once=dry_run))

    def _purge(self, chosen: DeadLetterFilter, limit: int | None, dry_run: bool) -> Call[list[UUID]]:
        def request(some: DeadLetterFilter, most: int) -> Request:
            more = query_of(everything=chosen.is_everything, limit=most, dry_run=dry_run)
            return Request("DELETE", f"{API}/dead-letters", [*_query(some), *more])

        return (yield from self._taken(request, chosen, limit, None, 0.0, once=dry_run))

    def _taken(
        self,
        request: Callable[[DeadLetterFilter, int], Request],
        chosen: DeadLetterFilter,
        limit: int | None,
        step: int | None,
        pause: float,
        *,
        once: bool,
    ) -> Call[list[UUID]]:
        """Take some at a time, the oldest first. What comes a second time has failed again: that is the end."""
        taken: dict[UUID, None] = {}
        for part in _parts(chosen):
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

    def _place(self, after: UUID | str | Task | DeadLetterPlace) -> Call[DeadLetterPlace]:
        if not isinstance(after, UUID | str):
            return (yield from super()._place(after))
        task_id = checks.as_id(after)
        task = yield from self.get_task(task_id)
        if task is None:
            raise TaskNotFound.with_id(task_id)
        return (yield from super()._place(task))


def _parts(chosen: DeadLetterFilter) -> list[DeadLetterFilter]:
    """The same with as many ids as one request may have."""
    if (ids := texts(chosen.ids)) is None:
        return [chosen]
    return [replace(chosen, ids=ids[i : i + MOST_IDS]) for i in range(0, len(ids), MOST_IDS)]


def _query(chosen: DeadLetterFilter) -> list[tuple[str, str]]:
    return query_of(**{**chosen.given(), "ids": None}, task_id=texts(chosen.ids))
