"""One server for a whole module of tests, and those who call it: each role with its token, two submitters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

import httpx
import psycopg
from psycopg.types.json import Jsonb

from tasklib import Client, Config
from tests.server.conftest import PATIENCE, Running, bearer, running

CALLERS = {
    "ann": ["submitter"],
    "bob": ["submitter"],
    "watcher": ["viewer", "submitter"],
    "viewer": ["viewer"],
    "operator": ["operator"],
    "admin": ["admin"],
}
_CLEARED = ["tasks", "limits", "limit_states", "limited_names", "places", "pauses", "worker_registrations"]
_CLEARED += ["stats_deltas", "stats", "schedules", "schedule_skips"]


class Api:
    """The running server, its database, and an HTTP client for each caller: `api.ann.get(...)`."""

    ann: httpx.Client
    bob: httpx.Client
    watcher: httpx.Client
    viewer: httpx.Client
    operator: httpx.Client
    admin: httpx.Client

    def __init__(self, running: Running, config: Config, client: Client, db: psycopg.Connection) -> None:
        self.running, self.config, self.client, self.db = running, config, client, db
        self.token_ids: dict[str, str] = {}

    def add(self, caller: str, roles: list[str], stack: ExitStack) -> None:
        new = self.client.create_token(caller, roles=roles)
        self.token_ids[caller] = str(new.info.id)
        http = httpx.Client(base_url=str(self.running), headers=bearer(new.text), timeout=PATIENCE)
        setattr(self, caller, stack.enter_context(http))

    def submit(self, by: httpx.Client | None = None, **body: Any) -> str:
        """The id of a new task."""
        answer = (by or self.operator).post("/api/v1/tasks", json={"task_type": "api_any", **body})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["task_id"])

    def begin(self, task_id: str | UUID, worker: str = "w1") -> None:
        """As a worker that claims it would."""
        self.db.execute(
            "UPDATE tasks SET state = 'running', worker_id = %s, locked_until = now() + interval '1 hour', "
            "started_at = now(), lease_token = lease_token + 1 WHERE id = %s",
            [worker, task_id],
        )

    def end(
        self, task_id: str | UUID, state: str = "completed", *, value: Any = None, error: str | None = None
    ) -> None:
        """As a worker that settles it would."""
        self.db.execute(
            "UPDATE tasks SET state = %s, completed_at = now(), worker_id = NULL, locked_until = NULL, error = %s, "
            "result = %s WHERE id = %s",
            [state, error, Jsonb({"value": value}) if state == "completed" else None, task_id],
        )

    def clear(self) -> None:
        """No tasks, schedules, pauses or workers are left for the next test."""
        for table in _CLEARED:  # they hold a few rows: TRUNCATE would write a dozen files for each
            self.db.execute(f"DELETE FROM {table}".encode())


@contextmanager
def api_on(url: str, **settings: Any) -> Iterator[Api]:
    """A server on this database, with all callers."""
    config = Config(url)
    with ExitStack() as stack:
        client = stack.enter_context(Client(config))
        db = stack.enter_context(psycopg.connect(url, autocommit=True))
        # The first token comes first: without any, the fixture's server is open to this machine.
        client.create_token("first", roles=["viewer"])
        made = Api(stack.enter_context(running(config, **settings)), config, client, db)
        for caller, roles in CALLERS.items():
            made.add(caller, roles, stack)
        yield made


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that an answer is, of this status and code."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["code"] == code, problem
    assert problem["status"] == status
    return problem


def walked(api: Api, **filters: Any) -> list[str]:
    """The ids of all tasks that fit, by pages of three."""
    found: list[str] = []
    answer = api.viewer.get("/api/v1/tasks", params={"limit": 3, **filters}).json()
    while True:
        assert len(answer["tasks"]) <= 3
        found += [t["task_id"] for t in answer["tasks"]]
        if answer["next"] is None:
            return found
        assert len(answer["tasks"]) == 3, "only the last page is short"
        answer = api.viewer.get("/api/v1/tasks", params={"limit": 3, "cursor": answer["next"], **filters}).json()
