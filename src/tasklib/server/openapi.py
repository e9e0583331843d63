"""The OpenAPI document: FastAPI's, with the roles, security and refusals of each route added."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from tasklib.server.access import roles_of
from tasklib.server.problems import MEDIA_TYPE
from tasklib.store.tokens import Role

_DESCRIPTION = """\
Submit, watch and operate tasks of TaskLib.

Send a token: `Authorization: Bearer tasklib_...`. Only a server started with `--no-auth` needs none. Errors are
problem details (RFC 9457) with a stable `code`; every answer has an `X-Request-ID`.
A submitter sees its own tasks; those of others answer 404.
"""
_TAGS = {
    "tasks": "Submit, read, wait for, cancel and replay tasks.",
    "queue": "Waiting tasks, and the latest results.",
    "dead letters": "Dead letters: list, group by cause, replay, purge.",
    "workers": "Who works, and draining.",
    "schedules": "Tasks that run by themselves.",
    "flows": "Tasks that wait for each other.",
    "pauses": "Paused queues and task names.",
    "searches": "Searches of tasks that are kept under a name.",
    "limits": "How many tasks run at a time, or begin within a time.",
    "bounds": "What may wait in a queue, or of a task name, before submissions are refused.",
    "breakers": "Task names that wait after too many failures.",
    "settings": "Settings that can be changed at run time.",
    "tokens": "API tokens.",
    "audit": "Who did what.",
    "health": "Liveness and readiness.",
    "worker protocol": "For workers without a database; see docs/reference/worker-protocol.md.",
}
API_VERSION = "1"
"""The version of the paths and keys, not of the server: additions don't change it."""
_SECURITY = "token"


class ProblemAnswer(BaseModel):
    """Problem details (RFC 9457). Some have further members, such as `field`, `errors` or `roles`."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:tasklib:problem:task_not_found",
                    "title": "No such task",
                    "status": 404,
                    "detail": "no task has the id 0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f; it may have been deleted.",
                    "code": "task_not_found",
                    "request_id": "5f2c9a1b7e0d4c33",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable: programs compare this.")
    request_id: str | None


_MEANINGS = {
    400: "The body is not JSON.",
    401: "There is no token, or it is unknown, revoked or expired.",
    403: "The token's roles don't allow this; `roles` lists sufficient ones.",
    404: "It doesn't exist, or belongs to another owner.",
    408: "The body arrived too slowly.",
    409: "The current state doesn't allow this.",
    413: "The body or the batch is too large.",
    415: "The body is not JSON by its Content-Type.",
    421: "The Host header is not one that this server accepts.",
    422: "A value is invalid; `detail` names it.",
    429: "Too many requests with this token.",
    503: "The database doesn't respond; try again.",
}
_ALWAYS = (421, 503)
_GUARDED = (401, 403, 429)
_WITH_BODY = (400, 408, 413, 415)


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses=`: answers beyond those of every route."""
    return {status: _refusal(status) for status in statuses}


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document; made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title="TaskLib",
            version=API_VERSION,
            description=_DESCRIPTION,
            routes=app.routes,
            tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        )
        operations = {(path, method): op for path, item in made["paths"].items() for method, op in item.items()}
        for route in app.routes:
            if isinstance(route, APIRoute) and route.include_in_schema:
                for method in route.methods or ():
                    _complete(operations[route.path_format, method.lower()], roles_of(route) or frozenset())
        _add_components(made)
        app.openapi_schema = made
    return app.openapi_schema


def _complete(operation: dict[str, Any], roles: frozenset[Role]) -> None:
    """Add the roles and refusals of an operation."""
    statuses: list[int] = list(_ALWAYS)
    if roles:
        names = [role.value for role in Role if role in roles]
        operation["security"] = [{_SECURITY: []}]
        operation["x-roles"] = names
        needs = f"Needs the role {' or '.join(names)}."
        operation["description"] = f"{operation.get('description', '')}\n\n{needs}".strip()
        statuses += _GUARDED
    if "requestBody" in operation:
        statuses += _WITH_BODY
    if operation["responses"].pop("422", None) or "requestBody" in operation or operation.get("parameters"):
        statuses.append(422)
    for status in statuses:
        operation["responses"].setdefault(str(status), _refusal(status))
    operation["responses"] = dict(sorted(operation["responses"].items()))


def _add_components(made: dict[str, Any]) -> None:
    components = made.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = ProblemAnswer.model_json_schema()
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = {
        _SECURITY: {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "tasklib_<prefix>_<secret>",
            "description": "From `tasklib token create` or `POST /api/v1/tokens`.",
        }
    }


def _refusal(status: int) -> dict[str, Any]:
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": _MEANINGS[status], "content": content}
