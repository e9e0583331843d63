"""Schedules over HTTP. What a program declares in code is synced by a deploy step with the database, not here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from tasklib.client.call_arguments import target_of
from tasklib.client.effects import Call
from tasklib.client.schedules import BACKFILL_LIMIT, Backfill, Preview, declare, is_expression
from tasklib.http import responses
from tasklib.http.operations import HttpOperatorCalls
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import checked
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import options_of

if TYPE_CHECKING:
    from tasklib.schedules import Schedule
    from tasklib.store.schedules import ScheduleInfo
    from tasklib.tasks.task_id import KnownId

_OPTIONS = ("queue", "priority", "max_retries", "timeout_seconds", "tags", "required_capabilities")


class HttpScheduleCalls(HttpOperatorCalls):
    """What an operator, or a program, does with schedules."""

    def create_schedule(
        self,
        task: Any,
        schedule: Schedule | str,
        /,
        *,
        name: str | None = None,
        registered_elsewhere: bool = False,
    ) -> Call[ScheduleInfo]:
        declared = declare(self.defaults, task, schedule, name, registered_elsewhere=registered_elsewhere)
        wanted, function = declared.schedule, target_of(task, registered_elsewhere)
        if isinstance(function, TaskFunction):
            # The server doesn't know the function: what it says becomes part of the schedule.
            given = options_of(wanted.options).over(function.defaults).given()
            wanted = replace(wanted, **{option: given[option] for option in _OPTIONS if option in given})
        body = body_of(name=declared.name, task_type=declared.task, schedule=wanted.to_json())
        return responses.schedule_of((yield from self._ask(Request("POST", f"{API}/schedules", (), body))))

    def schedules(
        self,
        *,
        after: str | None = None,
        task: str | None = None,
        source: str | None = None,
        paused: bool | None = None,
        retired: bool | None = None,
        limit: int = 100,
    ) -> Call[list[ScheduleInfo]]:
        checked(super().schedules(limit=limit))
        found: list[ScheduleInfo] = []
        while True:
            query = query_of(task_type=task, source=source, paused=paused, retired=retired, after=after)
            page = yield from self._ask(get("/schedules", [*query, ("limit", str(limit - len(found)))]))
            found += map(responses.schedule_of, page["schedules"])
            after = page["next"]
            if after is None or len(found) >= limit:
                return found

    def get_schedule(self, name: str) -> Call[ScheduleInfo]:
        checked(super().get_schedule(name))
        return responses.schedule_of((yield from self._ask(get(_path(name)))))

    def change_schedule(
        self, name: str, schedule: Schedule | str | None = None, /, **changes: Any
    ) -> Call[ScheduleInfo]:
        checked(super().change_schedule(name, schedule, **changes))
        if schedule is None:
            body: dict[str, Any] = {"schedule": {field: _plain(value) for field, value in changes.items()}}
        else:
            body = {"schedule": _stored(schedule), "replace": True}
        request = Request("PATCH", API + _path(name), (), json.dumps(body), repeatable=True)
        return responses.schedule_of((yield from self._ask(request)))

    def pause_schedule(self, name: str, note: str | None = None) -> Call[ScheduleInfo]:
        checked(super().pause_schedule(name, note))
        request = Request("POST", f"{API}{_path(name)}/pause", (), body_of(note=note), repeatable=True)
        return responses.schedule_of((yield from self._ask(request)))

    def resume_schedule(self, name: str) -> Call[ScheduleInfo]:
        checked(super().resume_schedule(name))
        request = Request("POST", f"{API}{_path(name)}/resume", repeatable=True)
        return responses.schedule_of((yield from self._ask(request)))

    def run_schedule(self, name: str) -> Call[KnownId[Any]]:
        checked(super().run_schedule(name))
        found = yield from self._ask(Request("POST", f"{API}{_path(name)}/run"))
        return self.id_type(found["task_id"])

    def delete_schedule(self, name: str) -> Call[None]:
        checked(super().delete_schedule(name))
        yield from self._ask(Request("DELETE", API + _path(name)))

    def backfill_schedule(
        self,
        name: str,
        *,
        start: datetime,
        end: datetime,
        limit: int = BACKFILL_LIMIT,
        priority: int | None = None,
        dry_run: bool = False,
    ) -> Call[Backfill]:
        checked(super().backfill_schedule(name, start=start, end=end, limit=limit, priority=priority, dry_run=dry_run))
        body = body_of(start=start, end=end, limit=limit, priority=priority, dry_run=dry_run)
        found = yield from self._ask(Request("POST", f"{API}{_path(name)}/backfill", (), body, repeatable=True))
        slots = [datetime.fromisoformat(slot) for slot in found["slots"]]
        return Backfill(found["count"], slots, [UUID(id_) for id_ in found["task_ids"]])

    def preview_schedule(self, schedule: Schedule | str, *, count: int = 20) -> Call[Preview]:
        checked(super().preview_schedule(schedule, count=count))
        if isinstance(schedule, str) and not is_expression(schedule):
            found = yield from self._ask(get(f"{_path(schedule)}/preview", query_of(count=count)))
        else:
            body = body_of(schedule=_stored(schedule), count=count)
            found = yield from self._ask(Request("POST", f"{API}/schedules/preview", (), body, repeatable=True))
        return responses.preview_of(found)

    def explain_schedule(self, name: str, at: datetime | None = None) -> Call[list[str]]:
        checked(super().explain_schedule(name, at))
        found = yield from self._ask(get(f"{_path(name)}/explain", query_of(at=at)))
        return list(found["sentences"])


def _path(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"


def _stored(schedule: Schedule | str) -> dict[str, Any]:
    from tasklib.schedules import Schedule

    return Schedule.of(schedule).to_json()


def _plain(value: Any) -> Any:
    """A field of a schedule as JSON."""
    match value:
        case timedelta():
            return value.total_seconds()
        case date():
            return value.isoformat()
        case None | bool() | str() | int() | float():
            return value
        case Mapping():
            return dict(value)
        case _:
            return [_plain(each) for each in value]
