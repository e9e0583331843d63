"""Errors as RFC 9457 problem details: `application/problem+json` with a stable `code`.

raise Problem(404, "task_not_found", "No such task", f"no task has the id {task_id}.")
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import psycopg
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tasklib import errors
from tasklib.db.failures import is_bad_data, is_connection_loss

MEDIA_TYPE = "application/problem+json"
REQUEST_ID = "tasklib.request_id"
"""Where the scope of a request has its id."""
CODE = "tasklib.problem"
"""Where the scope of a request has the code of the problem it was answered with."""
_KEY_MISSING = (
    "The task is sealed, and the server hasn't got its key. Send this from a program that has the key and the database."
)
_RETRY_AFTER = {"Retry-After": "2"}


@dataclass(frozen=True, slots=True)
class Known:
    """What a code means, for the reference."""

    status: int
    meaning: str


KNOWN: dict[str, Known] = {
    "bad_request": Known(400, "The request can't be parsed."),
    "invalid_json": Known(400, "The body is not JSON."),
    "token_missing": Known(401, "The request has no token. `roles` lists sufficient roles."),
    "token_invalid": Known(401, "The token is unknown, expired or revoked."),
    "role_missing": Known(403, "The token is valid, but lacks the role. `roles` lists sufficient ones."),
    "local_only": Known(
        403, "The server requires no token (`--no-auth`), and the request came from another machine or through a proxy."
    ),
    "origin_not_allowed": Known(403, "A web page of another site made the request."),
    "form_outdated": Known(403, "A form of the dashboard was sent without its CSRF token, or after its session ended."),
    "queue_not_allowed": Known(403, "The token is for other queues."),
    "route_closed": Known(403, "This route has no access rule."),
    "not_found": Known(404, "The path doesn't exist."),
    "task_not_found": Known(404, "No task has this id, or it belongs to another owner."),
    "worker_not_found": Known(404, "No live worker has this id."),
    "schedule_not_found": Known(404, "No schedule has this name."),
    "flow_not_found": Known(404, "No flow has this id."),
    "replay_not_found": Known(404, "No replay has this id."),
    "approval_not_open": Known(
        409, "The task doesn't wait for this approval: it was answered before, or its time is over."
    ),
    "token_not_found": Known(404, "No token has this id or prefix."),
    "method_not_allowed": Known(405, "The path has other methods: see `Allow`."),
    "body_too_slow": Known(408, "The body took longer than `body_timeout_seconds`."),
    "headers_too_slow": Known(408, "The headers took longer than `header_timeout_seconds`."),
    "task_not_finished": Known(409, "Only a finished task can be replayed."),
    "task_not_waiting": Known(409, "Only a task with a start time or a retry in the future can be run now."),
    "task_not_editable": Known(409, "The task doesn't wait any more, or this part of it can't be changed."),
    "several_shards": Known(409, "The server has several shards, and a worker over HTTP serves one."),
    "stale_attempt": Known(409, "The attempt has ended, or another worker has the task now. Nothing was changed."),
    "already_settled": Known(
        409, "The attempt has ended already, possibly by an earlier copy of this report. Nothing was changed."
    ),
    "idempotency_key_taken": Known(409, "The key belongs to a task of another owner."),
    "duplicate_task": Known(409, "A task with this merge key exists. `task_id` and `state` say which."),
    "body_too_large": Known(413, "The body is larger than `max_body_bytes`."),
    "batch_too_large": Known(413, "More at once than `max_batch`."),
    "not_json": Known(415, "The body must be `application/json`."),
    "host_not_allowed": Known(421, "The Host header is not one that this server accepts."),
    "invalid_request": Known(422, "Some parts of the request are invalid. `errors` names each."),
    "invalid_option": Known(422, "An option has a value that can't be used."),
    "key_missing": Known(422, "The task is sealed, and the server hasn't got the key for what is sent to it."),
    "payload_damaged": Known(422, "Something sealed doesn't open, or has another key than its task."),
    "invalid_arguments": Known(422, "The arguments don't fit the task function. `field` names the first."),
    "unknown_task_type": Known(422, "No task function has this name."),
    "not_storable": Known(422, "PostgreSQL can't store a value."),
    "result_not_storable": Known(422, "The result can't be stored as JSON: report the attempt as failed."),
    "progress_not_storable": Known(422, "The progress can't be stored as JSON."),
    "too_deep": Known(422, "The JSON is nested deeper than `max_depth`."),
    "rate_limited": Known(429, "More requests than `rate_limit_per_second`. Retry after `Retry-After` seconds."),
    "token_limit_reached": Known(429, "The token has reached the limit that `limit` names, of `most` at a time."),
    "queue_full": Known(429, "Too much waits in the queue. Retry after `Retry-After` seconds."),
    "headers_too_large": Known(431, "More headers than `max_headers`, or larger than `max_header_bytes` together."),
    "too_many_logins": Known(429, "More logins to the dashboard than are allowed a minute; see `Retry-After`."),
    "internal_error": Known(500, "A bug in the server. Its log has the details, under the `request_id`."),
    "database_unavailable": Known(503, "PostgreSQL doesn't respond. Try again after `Retry-After` seconds."),
    "schema_not_current": Known(503, "The database needs `tasklib migrate`, or the server a newer TaskLib."),
    "server_limit_reached": Known(503, "All tokens together have reached the limit that `limit` names."),
    "too_many_connections": Known(503, "The server holds `max_connections` connections already."),
    "too_many_sessions": Known(503, "There are too many sessions of the dashboard on this server."),
    "stopping": Known(503, "The server is shutting down."),
}
"""Every code there is. They are stable: a code never changes its meaning."""


class Problem(Exception):
    """What a request is answered with instead. `extra` are further members, `headers` further headers."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.headers = dict(headers or {})
        self.extra = extra

    def response(self, request_id: str | None) -> Response:
        """The answer to the request with this id."""
        body = {
            "type": f"urn:tasklib:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id,
            **self.extra,
        }
        headers = dict(self.headers)
        if self.status == 401:
            headers.setdefault("WWW-Authenticate", 'Bearer realm="tasklib"')
        text = json.dumps(body, ensure_ascii=True, separators=(",", ":"))
        return Response(text, self.status, headers, media_type=MEDIA_TYPE)


def handle_in(app: FastAPI) -> None:
    """Answer every error as a problem."""
    for kind in (Problem, errors.TaskLibError, psycopg.Error, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    request.scope[CODE] = problem.code
    if problem.status >= 500:
        structlog.get_logger("tasklib.server").error(
            "request failed", request_id=request.scope.get(REQUEST_ID), code=problem.code, reason=str(error)[:500]
        )
    return answer(request, problem)


def answer(request: Request, problem: Problem) -> Response:
    """A problem as JSON; or as a page, if the dashboard is enabled and a browser asks for HTML."""
    show: Callable[[Request, Problem], Response | None] | None = getattr(request.app.state, "show_problem", None)
    shown = show(request, problem) if show else None
    return shown or problem.response(request.scope.get(REQUEST_ID))


def problem_of(error: Exception) -> Problem:
    """The problem that an exception means to the client."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _plain(error)
        case errors.TaskLibError():
            return _ours(error)
        case psycopg.Error() if is_connection_loss(error):
            return _unavailable()
        case psycopg.Error() if is_bad_data(error):
            return Problem(422, "not_storable", "PostgreSQL can't store a value", "A value can't be stored.")
    return Problem(500, "internal_error", "Internal server error", "It was logged with this request's id.")


def _ours(error: errors.TaskLibError) -> Problem:
    match error:
        case errors.TaskNotFound() if error.task_id is not None:
            return Problem(404, "task_not_found", "No such task", str(error))
        case errors.TaskNotFound():
            return Problem(422, "unknown_task_type", "No such task function", str(error), name=error.name)
        case errors.WorkerNotFound():
            return Problem(404, "worker_not_found", "No such worker", str(error))
        case errors.ScheduleNotFound():
            return Problem(404, "schedule_not_found", "No such schedule", str(error), name=error.name)
        case errors.FlowNotFound():
            return Problem(404, "flow_not_found", "No such flow", str(error))
        case errors.ReplayNotFound():
            return Problem(404, "replay_not_found", "No such replay", str(error))
        case errors.ApprovalNotOpen():
            return Problem(409, "approval_not_open", "Nothing to answer", str(error), name=error.name)
        case errors.TokenNotFound():
            return Problem(404, "token_not_found", "No such token", str(error))
        case errors.IdempotencyKeyTaken():
            return Problem(
                409,
                "idempotency_key_taken",
                "The idempotency key is taken",
                str(error),
                name=error.name,
                key=error.key,
            )
        case errors.TaskNotEditable():
            return Problem(409, "task_not_editable", "The task can't be edited", str(error))
        case errors.DuplicateTask():
            return Problem(
                409,
                "duplicate_task",
                "A task with this merge key exists",
                str(error),
                name=error.name,
                task_id=str(error.task_id),
                state=error.state,
            )
        case errors.QueueFull():
            after = {"Retry-After": str(math.ceil(error.retry_after))}
            return Problem(
                429,
                "queue_full",
                "The queue is full",
                str(error),
                headers=after,
                queue=error.queue,
                name=error.name,
                reason=error.reason,
                retry_after=error.retry_after,
            )
        case errors.TaskExecutionError():
            return Problem(
                422, "invalid_arguments", "The arguments don't fit", str(error), task=error.task, field=error.field
            )
        case errors.KeyMissing():
            return Problem(422, "key_missing", "The server has no key", _KEY_MISSING, key_id=error.key_id)
        case errors.PayloadDamaged():
            return Problem(422, "payload_damaged", "A sealed payload can't be read", str(error))
        case errors.InvalidOption():
            return Problem(422, "invalid_option", "An option can't be used", str(error))
        case errors.SchemaError():
            return Problem(503, "schema_not_current", "The database needs a migration", str(error))
        case errors.DatabaseUnavailable():
            return _unavailable()
    return Problem(500, "internal_error", "Internal server error", "It was logged with this request's id.")


def _unavailable() -> Problem:
    # Without the reason: the address and the messages of the database are not public.
    detail = "The database doesn't respond. Try again; with an idempotency key a submission is never stored twice."
    return Problem(503, "database_unavailable", "The database can't be reached", detail, headers=_RETRY_AFTER)


def _invalid(error: RequestValidationError) -> Problem:
    """Which parts of the request are invalid, and why; never the value, which may be a secret."""
    found = error.errors()
    if any(e["type"] == "json_invalid" for e in found):
        return Problem(400, "invalid_json", "The body is not JSON", "The body can't be read as JSON.")
    wrong = [
        {
            "in": str(e["loc"][0]) if e["loc"] else "body",
            "field": ".".join(map(str, e["loc"][1:])),
            "message": str(e["msg"]),
        }
        for e in found[:20]
    ]
    first = wrong[0]
    detail = f"{first['field'] or first['in']}: {first['message']}."
    return Problem(422, "invalid_request", "The request is not valid", detail, errors=wrong)


_CODES = {404: "not_found", 405: "method_not_allowed", 400: "bad_request"}


def _plain(error: HTTPException) -> Problem:
    phrase = HTTPStatus(error.status_code).phrase
    code = _CODES.get(error.status_code, phrase.lower().replace(" ", "_").replace("-", "_"))
    detail = str(error.detail) if error.detail else phrase
    return Problem(error.status_code, code, phrase, detail, headers=error.headers)
