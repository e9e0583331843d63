"""Schedules over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from tasklib.client.backfills import BACKFILL_LIMIT, Backfill, BackfillOverlap
from tasklib.client.call_arguments import target_of
from tasklib.client.effects import Call
from tasklib.client.schedule_sync import Sync, declare, declared_in_code, deploy_stamp, registered_modules
from tasklib.client.schedules import Preview, is_expression
from tasklib.http import responses
from tasklib.http.replays import HttpReplayCalls
from tasklib.http.requests import API, Request, body_of, get, query_of
from tasklib.http.transport import checked
from tasklib.tasks import registry
from tasklib.tasks.function import TaskFunction
from tasklib.tasks.options import options_of

if TYPE_CHECKING:
    from tasklib.schedules import Schedule
    from tasklib.store.schedules import Declared, ScheduleInfo
    from tasklib.tasks.task_id import KnownId

_OPTIONS = ("queue", "priority", "max_retries", "timeout_seconds", "tags", "required_capabilities", "payload_version")


class HttpScheduleCalls(HttpReplayCalls):
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
        body = json.dumps(_declared(declared, target_of(task, registered_elsewhere)))
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
        overlap: BackfillOverlap | None = None,
        limit: int = BACKFILL_LIMIT,
        priority: int | None = None,
        dry_run: bool = False,
    ) -> Call[Backfill]:
        given: Any = {"start": start, "end": end, "overlap": overlap, "limit": limit, "priority": priority}
        checked(super().backfill_schedule(name, **given, dry_run=dry_run))
        body = body_of(**given, dry_run=dry_run)
        found = yield from self._ask(Request("POST", f"{API}{_path(name)}/backfill", (), body, repeatable=True))
        slots = [datetime.fromisoformat(slot) for slot in found["slots"]]
        ids, flow = [UUID(id_) for id_ in found["task_ids"]], found["flow"]
        return Backfill(found["count"], slots, ids, found["overlap"], found["has_task"], flow and UUID(flow))

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

    def sync_schedules(self, *, retire_others: bool = False) -> Call[Sync]:
        declared = declared_in_code(self.defaults)
        body = {
            "deployed_at": deploy_stamp(self.config.deployed_at).isoformat(),
            "modules": None if retire_others else registered_modules(),
            "schedules": [
                {**_declared(each, registry.functions[each.task]), "module": each.module} for each in declared
            ],
        }
        request = Request("POST", f"{API}/schedules/sync", (), json.dumps(body), repeatable=True)
        return Sync(**(yield from self._ask(request)))


def _declared(declared: Declared, target: TaskFunction[Any, Any] | str) -> dict[str, Any]:
    """A schedule to make. The server doesn't know the function: what it says becomes part of the schedule."""
    wanted = declared.schedule
    if isinstance(target, TaskFunction):
        given = options_of(wanted.options).over(target.defaults).given()
        wanted = replace(wanted, **{option: given[option] for option in _OPTIONS if option in given})
    return {"name": declared.name, "task_type": declared.task, "schedule": wanted.to_json()}


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
