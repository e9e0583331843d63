"""The options of `apply_async` as TaskLib's: each one is followed, without a meaning here, or refused by name."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.celery.exceptions import NotOnTaskLib
from tasklib.celery.lineage import submitted_by_this_task
from tasklib.celery.values import plain
from tasklib.tasks.options import MAX_INT, Options, did_you_mean

if TYPE_CHECKING:
    from tasklib.celery.app import Celery

FOLLOWED = {
    "connection": "a connection of yours to PostgreSQL: the task belongs to its transaction",
    "countdown": "",
    "eta": "a time without a zone is in that of the setting `timezone`",
    "expires": "the task ends as REVOKED if it has not begun by then",
    "headers": "`self.request.headers`",
    "ignore_result": "the stored result is None",
    "link": "part of the same flow, so it can't be lost",
    "link_error": "part of the same flow, so it can't be lost",
    "priority": "from -10 to 100, and the highest first, as with RabbitMQ; with Redis it was the lowest",
    "queue": "",
    "serializer": "must be JSON",
    "task_id": "an id of `tasklib.celery.uuid()`; for other keys TaskLib has idempotency keys",
    "time_limit": "the timeout of the attempt, in whole seconds",
}
NO_EFFECT = {
    "add_to_parent": "a task of a canvas finds its parent in the flow, any other in its row",
    "argsrepr": "the dashboard shows the arguments",
    "compression": "PostgreSQL compresses large rows",
    "delivery_mode": "every task is stored",
    "immediate": "there is no broker",
    "kwargsrepr": "the dashboard shows the arguments",
    "mandatory": "there is no broker",
    "retry": "a submission without an answer is repeated, and never stored twice",
    "retry_policy": "a submission without an answer is repeated, and never stored twice",
}
REFUSED = {
    "chord": "write chord(header)(body)",
    "correlation_id": "put it into headers",
    "exchange": "name a queue",
    "group_id": "write group(...)",
    "group_index": "write group(...)",
    "link_on": "use link",
    "parent_id": "put it into headers",
    "producer": "there is no broker",
    "publisher": "there is no broker",
    "reply_to": "results are in the database",
    "root_id": "put it into headers",
    "route_name": "name a queue",
    "router": "set task_routes",
    "routing_key": "name a queue",
    "shadow": "give the task a name of its own",
    "soft_time_limit": "give time_limit",
    "stamped_headers": "put it into headers",
}


@dataclass
class Asked:
    """What one call of `apply_async` asks for."""

    options: Options
    header: dict[str, Any] = field(default_factory=dict)
    """For the worker; part of the stored arguments."""
    task_id: UUID | None = None
    connection: Any = None
    link: list[Any] = field(default_factory=list)
    link_error: list[Any] = field(default_factory=list)


def asked(app: Celery, name: str, task: Any, given: Mapping[str, Any]) -> Asked:
    """Read the options of a submission. The task's own count where they are silent, then routes, then settings."""
    _check_names(given)
    route = routed(app, name, given)
    said = {key: value for key, value in given.items() if value is not None}
    own: dict[str, Any] = {}
    for key in ("queue", "priority", "time_limit", "expires", "ignore_result", "serializer"):
        value = getattr(task, key, None)
        if value is not None and value is not False:
            own[key] = value
    said = {**route, **own, **said}
    if said.get("serializer", "json") not in ("json", "application/json"):
        raise NotOnTaskLib(f"serializer={said['serializer']!r}: TaskLib stores JSON only. Pass plain values.")
    conf = app.conf
    limit = said.get("time_limit", conf.task_time_limit)
    options = Options(
        delay_seconds=_seconds(said.get("countdown")),
        scheduled_at=None if "countdown" in said else _moment(app, said.get("eta")),
        max_retries=retries_allowed(task),
        timeout_seconds=None if limit is None else max(1, math.ceil(limit)),
        priority=said.get("priority", conf.task_default_priority),
        queue=_queue(said.get("queue") or conf.task_default_queue),
    )
    return Asked(
        options,
        _header(app, said),
        _id(said.get("task_id")),
        said.get("connection"),
        _listed(said.get("link")),
        _listed(said.get("link_error")),
    )


def retries_allowed(task: Any) -> int:
    """What the row says of retries: the most that the task may ask for."""
    if task is None:
        return MAX_INT  # of a function that only another program has: that one counts
    limits = [task.max_retries, *(task.retry_kwargs[k] for k in ("max_retries",) if k in task.retry_kwargs)]
    return MAX_INT if None in limits else max(limits)


def routed(app: Celery, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What `task_routes` says of a task: its queue and its priority."""
    for route in _listed(app.conf.task_routes):
        found = _route(route, name, options, app)
        if found is None:
            continue
        made = {"queue": found} if isinstance(found, str) else dict(found)
        if unknown := set(made) - {"queue", "priority"}:
            raise NotOnTaskLib(f"task_routes names {min(unknown)} for {name}: TaskLib's routes are queue and priority.")
        return made
    return {}


def _route(route: Any, name: str, options: Mapping[str, Any], app: Celery) -> Any:
    if isinstance(route, str):
        from importlib import import_module

        module, _, attribute = route.replace(":", ".").rpartition(".")
        route = getattr(import_module(module), attribute)
    if callable(route):
        return route(name, options.get("args"), options.get("kwargs"), options, task=app.tasks.get(name))
    pairs = route.items() if isinstance(route, Mapping) else route
    for pattern, target in pairs:
        matches = pattern.match(name) if isinstance(pattern, re.Pattern) else fnmatch.fnmatchcase(name, pattern)
        if matches:
            return target
    return None


def _check_names(given: Mapping[str, Any]) -> None:
    for key, value in given.items():
        if key in FOLLOWED or key in NO_EFFECT or value is None:
            continue
        if reason := REFUSED.get(key):
            raise NotOnTaskLib(f"apply_async({key}=...): {reason}.")
        known = {*FOLLOWED, *NO_EFFECT}
        raise TypeError(
            f"apply_async has no option {key!r}.{did_you_mean(key, known)} It knows {', '.join(sorted(known))}."
        )


def _header(app: Celery, said: Mapping[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = {}
    expires = said.get("expires")
    if isinstance(expires, datetime):
        moment = _moment(app, expires)
        assert moment is not None
        header["expires"] = moment.isoformat()
    elif expires is not None:
        header["expires"] = (datetime.now(UTC) + timedelta(seconds=_seconds(expires) or 0)).isoformat()
    if headers := said.get("headers"):
        header["headers"] = plain(headers)
    if said.get("ignore_result"):
        header["ignore_result"] = True
    return header | submitted_by_this_task()


def _seconds(value: Any) -> float | None:
    if value is None:
        return None
    return max(0.0, value.total_seconds() if isinstance(value, timedelta) else float(value))


def _moment(app: Celery, value: datetime | str | None) -> datetime | None:
    if value is None:
        return None
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment if moment.tzinfo else moment.replace(tzinfo=app.timezone)


def _queue(value: Any) -> str | None:
    name: str | None = getattr(value, "name", value)
    return name


def _id(value: Any) -> UUID | None:
    if value is None:
        return None
    try:
        found = UUID(str(value))
    except ValueError:
        found = None
    if found is None or found.version != 7:
        raise NotOnTaskLib(
            f"task_id={value!r}: an id here is what tasklib.celery.uuid() returns. To submit something once under a "
            "key of your own, use task.function.options(idempotency_key=...).submit_sync(...)."
        )
    return found


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
