"""Every route, every role, every owner: who gets what.

The table is written by hand; that no route is missing in it, and that every route keeps to the roles it declares, is
checked from the application itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from tasklib import Config
from tasklib.server.access import Role, roles_of
from tasklib.server.app import create_app
from tasklib.testing import databases
from tests.server.api import Api, api_on
from tests.server.conftest import PATIENCE

CALLERS = {
    "nobody": [],
    "worker": ["worker"],  # the worker that is meant is this token's
    "other": ["worker"],  # not this one's
    "viewer": ["viewer"],
    "bob": ["submitter"],  # somebody else's task is not his
    "ann": ["submitter"],  # it is hers
    "watcher": ["viewer", "submitter"],  # sees everybody's, changes its own
    "operator": ["operator"],
    "admin": ["admin"],
}

# Ann's task is meant wherever a route is about one.
#                                                  nobody worker other viewer bob ann watcher operator admin
TABLE = {
    "GET    /health/live": "                            200    200   200    200 200 200     200      200   200",
    "GET    /health/ready": "                           200    200   200    200 200 200     200      200   200",
    "GET    /openapi.json": "                           200    200   200    200 200 200     200      200   200",
    "POST   /api/v1/tasks": "                           401    403   403    403 201 201     201      201   201",
    "POST   /api/v1/tasks/batch": "                     401    403   403    403 201 201     201      201   201",
    "GET    /api/v1/tasks": "                           401    403   403    200 200 200     200      200   200",
    "POST   /api/v1/tasks/cancel": "                    401    403   403    403 200 200     200      200   200",
    "POST   /api/v1/tasks/erase": "                     401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/tasks/{task_id}": "                 401    403   403    200 404 200     200      200   200",
    "DELETE /api/v1/tasks/{task_id}": "                 401    403   403    403 404 200     404      200   200",
    "PATCH  /api/v1/tasks/{task_id}": "                 401    403   403    403 404 200     404      200   200",
    "POST   /api/v1/tasks/{task_id}/replay": "          401    403   403    403 404 200     404      200   200",
    "POST   /api/v1/tasks/{task_id}/run": "             401    403   403    403 404 200     404      200   200",
    "POST   /api/v1/tasks/{task_id}/signals": "         401    403   403    403 404 200     404      200   200",
    "POST   /api/v1/tasks/{task_id}/answer": "          401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/approvals": "                       401    403   403    200 200 200     200      200   200",
    "GET    /api/v1/tasks/{task_id}/steps": "           401    403   403    200 404 200     200      200   200",
    "GET    /api/v1/tasks/{task_id}/explain": "         401    403   403    200 404 200     200      200   200",
    "GET    /api/v1/tasks/{task_id}/result": "          401    403   403    200 404 200     200      200   200",
    "GET    /api/v1/tasks/{task_id}/events": "          401    403   403    200 404 200     200      200   200",
    "GET    /api/v1/queue/stats": "                     401    403   403    200 403 403     200      200   200",
    "GET    /api/v1/dead-letters": "                    401    403   403    200 200 200     200      200   200",
    "GET    /api/v1/dead-letters/groups": "             401    403   403    200 200 200     200      200   200",
    "GET    /api/v1/failures": "                        401    403   403    200 200 200     200      200   200",
    "POST   /api/v1/dead-letters/replay": "             401    403   403    403 200 200     200      200   200",
    "DELETE /api/v1/dead-letters": "                    401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/replays": "                        401    403   403    200 403 403     200      200   200",
    "POST   /api/v1/replays": "                        401    403   403    403 403 403     403      422   422",
    "GET    /api/v1/replays/{replay_id}": "            401    403   403    404 403 403     404      404   404",
    "POST   /api/v1/replays/{replay_id}/pause": "      401    403   403    403 403 403     403      404   404",
    "POST   /api/v1/replays/{replay_id}/resume": "     401    403   403    403 403 403     403      404   404",
    "POST   /api/v1/replays/{replay_id}/stop": "       401    403   403    403 403 403     403      404   404",
    "GET    /api/v1/workers": "                         401    403   403    200 403 403     200      200   200",
    "POST   /api/v1/workers/{worker_id}/drain": "       401    403   403    403 403 403     403      202   202",
    "GET    /api/v1/schedules": "                          401    403   403    200 403 403     200      200   200",
    "POST   /api/v1/schedules": "                          401    403   403    403 403 403     403      201   201",
    "GET    /api/v1/schedules/{name}": "                   401    403   403    200 403 403     200      200   200",
    "GET    /api/v1/schedules/{name}/preview": "           401    403   403    200 403 403     200      200   200",
    "GET    /api/v1/schedules/{name}/explain": "           401    403   403    200 403 403     200      200   200",
    "POST   /api/v1/schedules/preview": "                  401    403   403    200 403 403     200      200   200",
    "POST   /api/v1/schedules/sync": "                     401    403   403    403 403 403     403      200   200",
    "PATCH  /api/v1/schedules/{name}": "                   401    403   403    403 403 403     403      200   200",
    "DELETE /api/v1/schedules/{name}": "                   401    403   403    403 403 403     403      204   204",
    "POST   /api/v1/schedules/{name}/pause": "             401    403   403    403 403 403     403      200   200",
    "POST   /api/v1/schedules/{name}/resume": "            401    403   403    403 403 403     403      200   200",
    "POST   /api/v1/schedules/{name}/run": "               401    403   403    403 403 403     403      201   201",
    "POST   /api/v1/schedules/{name}/backfill": "          401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/flows": "                           401    403   403    200 200 200     200      200   200",
    "POST   /api/v1/flows": "                           401    403   403    403 201 201     201      201   201",
    "GET    /api/v1/flows/{flow_id}": "                 401    403   403    200 404 200     200      200   200",
    "GET    /api/v1/flows/{flow_id}/graph": "           401    403   403    200 404 200     200      200   200",
    "POST   /api/v1/flows/{flow_id}/cancel": "          401    403   403    403 404 200     404      200   200",
    "POST   /api/v1/flows/{flow_id}/replay": "          401    403   403    403 404 200     404      200   200",
    "GET    /api/v1/pauses": "                          401    403   403    200 403 403     200      200   200",
    "POST   /api/v1/pauses": "                          401    403   403    403 403 403     403      201   201",
    "DELETE /api/v1/pauses": "                          401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/limits": "                          401    403   403    200 403 403     200      200   200",
    "PUT    /api/v1/limits": "                          401    403   403    403 403 403     403      200   200",
    "DELETE /api/v1/limits": "                          401    403   403    403 403 403     403      200   200",
    "POST   /api/v1/limits/reset": "                    401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/bounds": "                          401    403   403    200 403 403     200      200   200",
    "PUT    /api/v1/bounds": "                          401    403   403    403 403 403     403      200   200",
    "DELETE /api/v1/bounds": "                          401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/breakers": "                        401    403   403    200 403 403     200      200   200",
    "PUT    /api/v1/breakers": "                        401    403   403    403 403 403     403      200   200",
    "DELETE /api/v1/breakers": "                        401    403   403    403 403 403     403      200   200",
    "POST   /api/v1/breakers/reset": "                  401    403   403    403 403 403     403      200   200",
    "POST   /api/v1/breakers/open": "                   401    403   403    403 403 403     403      200   200",
    "POST   /api/v1/breakers/close": "                  401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/searches": "                        401    403   403    200 403 403     200      200   200",
    "PUT    /api/v1/searches": "                        401    403   403    403 403 403     403      200   200",
    "DELETE /api/v1/searches": "                        401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/settings": "                        401    403   403    200 403 403     200      200   200",
    "PATCH  /api/v1/settings": "                        401    403   403    403 403 403     403      200   200",
    "GET    /api/v1/tokens": "                          401    403   403    403 403 403     403      403   200",
    "POST   /api/v1/tokens": "                          401    403   403    403 403 403     403      403   201",
    "DELETE /api/v1/tokens/{id_or_prefix}": "           401    403   403    403 403 403     403      403   200",
    "GET    /api/v1/audit": "                           401    403   403    403 403 403     403      403   200",
    "GET    /internal/workers/terms": "                 401    200   200    403 403 403     403      403   403",
    "POST   /internal/workers/register": "              401    201   201    403 403 403     403      403   403",
    "POST   /internal/workers/{worker_id}/poll": "      401    200   404    403 403 403     403      403   403",
    "POST   /internal/workers/{worker_id}/heartbeat": " 401    200   404    403 403 403     403      403   403",
    "POST   /internal/workers/{worker_id}/result": "    401    409   404    403 403 403     403      403   403",
    "POST   /internal/workers/{worker_id}/begin": "     401    409   404    403 403 403     403      403   403",
    "POST   /internal/workers/{worker_id}/progress": "  401    409   404    403 403 403     403      403   403",
    "POST   /internal/workers/{worker_id}/place": "     401    409   404    403 403 403     403      403   403",
    "POST   /internal/workers/{worker_id}/place/leave": "401   200   404    403 403 403     403      403   403",
    "DELETE /internal/workers/{worker_id}": "           401    204   404    403 403 403     403      403   403",
    "GET    /metrics": "                                401    403   403    200 403 403     200      200   200",
    "GET    /": "                                       401    403   403    200 403 403     200      200   200",
    "GET    /tasks": "                                  401    403   403    200 200 200     200      200   200",
    "GET    /tasks/suggest": "                          401    403   403    200 200 200     200      200   200",
    "GET    /tasks/export": "                           401    403   403    200 200 200     200      200   200",
    "GET    /tasks/new": "                              401    403   403    403 200 200     200      200   200",
    "GET    /jump": "                                   401    403   403    200 200 200     200      200   200",
    "GET    /tasks/{task_id}": "                        401    403   403    200 404 200     200      200   200",
    "GET    /tasks/{task_id}/edit": "                   401    403   403    403 403 403     403      200   200",
    "GET    /tasks/{task_id}/signal": "                 401    403   403    403 403 403     403      200   200",
    "GET    /approvals": "                              401    403   403    200 200 200     200      200   200",
    "GET    /approvals/{task_id}": "                    401    403   403    200 404 200     200      200   200",
    "GET    /queues": "                                 401    403   403    200 403 403     200      200   200",
    "GET    /queues/{queue}": "                         401    403   403    200 403 403     200      200   200",
    "GET    /names/{name}": "                           401    403   403    200 403 403     200      200   200",
    "GET    /charts": "                                 401    403   403    200 403 403     200      200   200",
    "GET    /charts/data.csv": "                        401    403   403    200 403 403     200      200   200",
    "GET    /charts/data.json": "                       401    403   403    200 403 403     200      200   200",
    "GET    /limits": "                                 401    403   403    200 403 403     200      200   200",
    "GET    /limits/shares": "                          401    403   403    200 403 403     200      200   200",
    "GET    /limits/show": "                            401    403   403    200 403 403     200      200   200",
    "GET    /workers": "                                401    403   403    200 403 403     200      200   200",
    "GET    /workers/{id}": "                           401    403   403    200 403 403     200      200   200",
    "GET    /flows": "                                  401    403   403    200 200 200     200      200   200",
    "GET    /flows/{flow_id}": "                        401    403   403    200 404 200     200      200   200",
    "GET    /flows/{flow_id}/confirm": "                401    403   403    403 403 403     403      200   200",
    "GET    /schedules": "                              401    403   403    200 403 403     200      200   200",
    "GET    /schedules/calendar": "                     401    403   403    200 403 403     200      200   200",
    "GET    /schedules/show": "                         401    403   403    200 403 403     200      200   200",
    "GET    /schedules/new": "                          401    403   403    403 403 403     403      200   200",
    "GET    /schedules/change": "                       401    403   403    403 403 403     403      200   200",
    "GET    /schedules/backfill": "                     401    403   403    403 403 403     403      200   200",
    "GET    /failures": "                               401    403   403    200 200 200     200      200   200",
    "GET    /replays": "                                401    403   403    200 403 403     200      200   200",
    "GET    /replays/{replay_id}": "                    401    403   403    404 403 403     404      404   404",
    "GET    /dead-letters": "                           401    403   403    200 200 200     200      200   200",
    "GET    /settings": "                               401    403   403    403 403 403     403      403   200",
    "GET    /tokens": "                                 401    403   403    403 403 403     403      403   200",
    "GET    /audit": "                                  401    403   403    403 403 403     403      403   200",
}

# Whose answer has Ann's task in it.
SEEN = {
    "GET    /api/v1/tasks": {"viewer", "ann", "watcher", "operator", "admin"},
    "GET    /api/v1/dead-letters": {"viewer", "ann", "watcher", "operator", "admin"},
    "GET    /api/v1/failures": {"viewer", "ann", "watcher", "operator", "admin"},
    "GET    /api/v1/dead-letters/groups": {"viewer", "ann", "watcher", "operator", "admin"},
    "POST   /api/v1/dead-letters/replay": {"ann", "operator", "admin"},
    "DELETE /api/v1/dead-letters": {"operator", "admin"},
    "GET    /api/v1/audit": set(),
    "GET    /api/v1/approvals": {"viewer", "ann", "watcher", "operator", "admin"},
    "GET    /approvals": {"viewer", "ann", "watcher", "operator", "admin"},
    "GET    /tasks": {"viewer", "ann", "watcher", "operator", "admin"},
}
# Who changes Ann's task where the answer is 200 for others too: they changed nothing.
CHANGED = {"POST   /api/v1/tasks/cancel": {"ann", "operator", "admin"}}

_ATTEMPT = {"task_id": "0196f2a0-7a3c-7d41-9a5e-3f2b8c1d4e5f", "lease_token": 1}  # of a task that never was
_NEW = {"task_type": "matrix_any"}
_FLOW = {"nodes": [{"name": "a", "task": _NEW}]}
BODIES: dict[str, Any] = {
    "POST   /api/v1/tasks": _NEW,
    "POST   /api/v1/tasks/batch": {"tasks": [_NEW]},
    "POST   /api/v1/tasks/cancel": {"name": "matrix_anns"},
    "POST   /api/v1/tasks/erase": {"name": "matrix_nothing"},
    "PATCH  /api/v1/tasks/{task_id}": {"priority": 5},
    "POST   /api/v1/tasks/{task_id}/signals": {"name": "go"},
    "POST   /api/v1/tasks/{task_id}/answer": {"approved": True},
    "POST   /api/v1/dead-letters/replay": {"name": "matrix_anns"},
    "POST   /api/v1/schedules": {"name": "new", "task_type": "matrix_any", "schedule": {"cron": ["@daily"]}},
    "PATCH  /api/v1/schedules/{name}": {"schedule": {"jitter": 5}},
    "POST   /api/v1/schedules/preview": {"schedule": {"cron": ["@daily"]}},
    "POST   /api/v1/schedules/sync": {"deployed_at": "2026-01-01T00:00:00Z", "modules": None, "schedules": []},
    "POST   /api/v1/schedules/{name}/pause": {"note": "why"},
    "POST   /api/v1/schedules/{name}/backfill": dict.fromkeys(("start", "end"), "2026-01-01T00:00:00Z"),
    "POST   /api/v1/flows": _FLOW,
    "POST   /api/v1/pauses": {"queue": "matrix"},
    "PUT    /api/v1/searches": {"name": "matrix_none", "search": "state:failed"},
    "POST   /api/v1/replays": {"name": "matrix_none"},
    "PUT    /api/v1/limits": {"name": "queue:matrix_none", "max_running": 5},
    "PUT    /api/v1/bounds": {"queue": "matrix_none", "max_pending": 5},
    "PUT    /api/v1/breakers": {"name": "matrix_none"},
    "PATCH  /api/v1/settings": {"promote_to_medium_after_seconds": 300},
    "POST   /api/v1/tokens": {"name": "one more", "roles": ["viewer"]},
    "POST   /internal/workers/register": {"task_types": ["matrix_none"]},
    "POST   /internal/workers/{worker_id}/poll": {"available_capacity": 1},
    "POST   /internal/workers/{worker_id}/heartbeat": {},
    "POST   /internal/workers/{worker_id}/result": {**_ATTEMPT, "status": "completed"},
    "POST   /internal/workers/{worker_id}/begin": _ATTEMPT,
    "POST   /internal/workers/{worker_id}/progress": {**_ATTEMPT, "progress": 1},
    "POST   /internal/workers/{worker_id}/place": {**_ATTEMPT, "limit": "matrix_limit", "block": 1},
    "POST   /internal/workers/{worker_id}/place/leave": {**_ATTEMPT, "block": 1},
}
QUERIES = {
    "DELETE /api/v1/dead-letters": "name=matrix_anns",
    "DELETE /api/v1/pauses": "queue=matrix",
    "DELETE /api/v1/searches": "name=matrix_none",
    "DELETE /api/v1/limits": "name=queue:matrix_none",
    "POST   /api/v1/limits/reset": "name=queue:matrix_none",
    "DELETE /api/v1/bounds": "queue=matrix_none",
    "DELETE /api/v1/breakers": "name=matrix_none",
    "POST   /api/v1/breakers/reset": "name=matrix_none",
    "POST   /api/v1/breakers/open": "name=matrix_none",
    "POST   /api/v1/breakers/close": "name=matrix_none",
    "GET    /flows/{flow_id}/confirm": "action=cancel",
    "GET    /approvals/{task_id}": "name=go",
    "GET    /schedules/show": "name=matrix",
    "GET    /limits/show": "name=matrix_limit",
    "GET    /schedules/change": "name=matrix",
    "GET    /schedules/backfill": "name=matrix",
}
DEAD = {"GET    /api/v1/dead-letters", "GET    /api/v1/dead-letters/groups", "POST   /api/v1/dead-letters/replay"}
DEAD |= {"DELETE /api/v1/dead-letters", "GET    /api/v1/failures"}
ENDED = {f"{way}/api/v1/tasks/{{task_id}}/{last}" for way, last in [("POST   ", "replay"), ("GET    ", "result")]}
ENDED |= {"GET    /api/v1/tasks/{task_id}/events", "GET    /tasks/{task_id}/edit"}


@dataclass
class Stage:
    """The server, and everybody with their tokens."""

    api: Api
    callers: dict[str, httpx.Client]

    def prepare(self, row: str) -> dict[str, str]:
        """Ann's task in the state that the route is about, and what else there has to be. What paths name."""
        self.api.clear()
        task_id = self.api.submit(self.callers["ann"], task_type="matrix_anns")
        if row.endswith("/run"):
            self.api.db.execute("UPDATE tasks SET scheduled_at = now() + interval '1 h' WHERE id = %s", [task_id])
        if row in DEAD:
            self.api.end(task_id, "dead_letter", error="ValueError: no")
        elif row in ENDED:
            self.api.end(task_id)
        self.api.db.execute(
            "INSERT INTO workers (id, host, pid, version, capacity) VALUES ('matrix', 'here', 1, '0', 1)"
        )
        if "approv" in row or "answer" in row:
            self.api.db.execute(
                "INSERT INTO steps (task, kind, name, result, token) VALUES (%s, 'approval', 'go', %s, 1)",
                [task_id, '{"value": {"title": "Go?", "role": "approver"}}'],
            )
        self.api.db.execute("DELETE FROM schedules")
        self.api.client.create_schedule("matrix_any", "@daily", name="matrix", registered_elsewhere=True)
        self.api.client.set_limit("matrix_limit", max_running=1)
        flow_id = self.callers["ann"].post("/api/v1/flows", json=_FLOW).json()["flow_id"] if "flow" in row else ""
        worker_id = self.register() if "/internal/" in row else "matrix"
        ids = {
            "task_id": task_id,
            "worker_id": worker_id,
            "flow_id": flow_id,
            "replay_id": "019345ab-1234-7abc-8def-0123456789ab",
        }
        return {"name": "matrix", "queue": "matrix", "id": "matrix", "id_or_prefix": self.spare_token(row), **ids}

    def register(self) -> str:
        answer = self.callers["worker"].post("/internal/workers/register", json={"task_types": ["matrix_none"]})
        return str(answer.json()["worker_id"])

    def spare_token(self, row: str) -> str:
        if "{id_or_prefix}" not in row:
            return ""
        return self.api.client.create_token("spare", roles=["viewer"]).info.prefix

    def state(self, task_id: str) -> str | None:
        found = self.api.db.execute("SELECT state FROM tasks WHERE id = %s", [task_id]).fetchone()
        return found[0] if found else None


@pytest.fixture(scope="module")
def stage(server_url: str, template_database: str) -> Iterator[Stage]:
    with ExitStack() as stack:
        url = stack.enter_context(databases.database(server_url, template_database))
        api = stack.enter_context(api_on(url))
        for name in ("worker", "other"):
            api.add(name, ["worker"], stack)
        nobody = stack.enter_context(httpx.Client(base_url=str(api.running), timeout=PATIENCE))
        yield Stage(api, {name: nobody if name == "nobody" else getattr(api, name) for name in CALLERS})


def routes() -> list[APIRoute]:
    app = create_app(Config("postgresql://nobody@nowhere/nothing"))
    return [route for route in app.routes if isinstance(route, APIRoute)]


def row_of(route: APIRoute) -> str:
    [method] = route.methods
    return f"{method:6} {route.path_format}"


_API = ("/api/", "/internal/", "/health/", "/openapi.json", "/metrics")
_PARTS = ("/assets/{hash_}/{name}", "/login", "/live", "/dead-letters/{fingerprint}", "/failures/{fingerprint}")
"""Of the dashboard: what is no screen of its own. Its actions have tests of their own; see also below."""
ROWS = [
    row_of(route)
    for route in routes()
    if route.path.startswith(_API) or (route.methods == {"GET"} and route.path_format not in _PARTS)
]


def test_the_table_has_every_route_of_the_api_and_every_screen() -> None:
    assert set(ROWS) == set(TABLE)


@pytest.mark.parametrize("row", ROWS)
def test_everybody_gets_what_the_table_says(row: str, stage: Stage) -> None:
    method, path = row.split()
    expected = dict(zip(CALLERS, map(int, TABLE[row].split()), strict=True))
    answered: dict[str, int] = {}
    for name, caller in stage.callers.items():
        names = stage.prepare(row)
        before = stage.state(names["task_id"])
        url = path.format(**names) + (f"?{QUERIES[row]}" if row in QUERIES else "")
        answer = caller.request(method, url, json=BODIES.get(row))
        answered[name] = answer.status_code
        check_refusal(answer, names["task_id"])
        if row in SEEN and answer.is_success:
            assert (names["task_id"] in answer.text) == (name in SEEN[row]), (name, answer.text)
        if not answer.is_success or name not in CHANGED.get(row, CALLERS):
            assert stage.state(names["task_id"]) == before, name
    assert answered == expected


def check_refusal(answer: httpx.Response, task_id: str) -> None:
    """A refusal says which roles would do, and a 404 nothing that isn't said of a task that never was."""
    if answer.is_success:
        return
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    if answer.status_code in (401, 403):
        assert problem["roles"]
    if answer.status_code == 404 and problem["code"] not in (
        "worker_not_found",
        "schedule_not_found",
        "flow_not_found",
        "replay_not_found",
    ):
        assert problem["code"] == "task_not_found"
        assert problem["detail"] == f"no task has the id {task_id}; it may have been deleted."


def test_a_worker_is_no_operator_and_an_admin_no_worker() -> None:
    for route in routes():
        roles = roles_of(route) or frozenset()
        assert Role.WORKER not in roles or roles == {Role.WORKER} or roles == set(Role), row_of(route)
