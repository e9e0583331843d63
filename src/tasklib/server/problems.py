"""Errors as RFC 9457 problem details: `application/problem+json` with a stable `code`.

raise Problem(404, "task_not_found", "No such task", f"no task has the id {task_id}.")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
_RETRY_AFTER = {"Retry-After": "2"}


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
    if problem.status >= 500:
        structlog.get_logger("tasklib.server").error(
            "request failed", request_id=request.scope.get(REQUEST_ID), code=problem.code, reason=str(error)[:500]
        )
    return problem.response(request.scope.get(REQUEST_ID))


def problem_of(error: Exception) -> Problem:
    """What an error means to whoever made the request."""
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
        case psycopg.errors.UniqueViolation():
            return Problem(422, "invalid_option", "An id is taken", "A task's id belongs to another task.")
        case psycopg.Error() if is_bad_data(error):
            return Problem(422, "not_storable", "PostgreSQL can't hold a value", "A value can't be stored.")
    return Problem(500, "internal_error", "Something went wrong here", "It was logged with this request's id.")


def _ours(error: errors.TaskLibError) -> Problem:
    match error:
        case errors.TaskNotFound() if error.task_id is not None:
            return Problem(404, "task_not_found", "No such task", str(error))
        case errors.TaskNotFound():
            return Problem(422, "unknown_task_type", "No such task function", str(error), name=error.name)
        case errors.WorkerNotFound():
            return Problem(404, "worker_not_found", "No such worker", str(error))
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
        case errors.TaskExecutionError():
            return Problem(
                422, "invalid_arguments", "The arguments don't fit", str(error), task=error.task, field=error.field
            )
        case errors.InvalidOption():
            return Problem(422, "invalid_option", "An option can't be used", str(error))
        case errors.SchemaError():
            return Problem(503, "schema_not_current", "The database needs a migration", str(error))
        case errors.DatabaseUnavailable():
            return _unavailable()
    return Problem(500, "internal_error", "Something went wrong here", "It was logged with this request's id.")


def _unavailable() -> Problem:
    # Not why: where the database is and what it says is not for everybody.
    detail = "The database doesn't answer. Try again; a submission with an idempotency key is never doubled."
    return Problem(503, "database_unavailable", "The database can't be reached", detail, headers=_RETRY_AFTER)


def _invalid(error: RequestValidationError) -> Problem:
    """What is wrong with which part of the request; never the value, which may be a secret."""
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
