"""A worker made of nothing but requests, for the tests of the protocol."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg

from tests.server.conftest import bearer

NAME = "protocol.work"


class Remote:
    """A worker made of nothing but requests."""

    def __init__(self, http: httpx.Client, token: str | None = None, **registration: Any) -> None:
        self.http = http
        self.headers = bearer(token) if token else {}
        answer = self.post("register", {"task_types": [NAME], **registration})
        assert answer.status_code == 201, answer.text
        self.terms = answer.json()
        self.id: str = self.terms["worker_id"]

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.http.post(f"/internal/workers/{path}", json=body, headers=self.headers)

    def say(self, what: str, body: dict[str, Any], worker: str | None = None) -> httpx.Response:
        return self.post(f"{worker or self.id}/{what}", body)

    def poll(self, capacity: int = 1, **body: Any) -> list[dict[str, Any]]:
        answer = self.say("poll", {"available_capacity": capacity, **body})
        assert answer.status_code == 200, answer.text
        tasks: list[dict[str, Any]] = answer.json()["tasks"]
        return tasks

    def leave(self) -> httpx.Response:
        return self.http.delete(f"/internal/workers/{self.id}", headers=self.headers)


def lease(task: dict[str, Any]) -> dict[str, Any]:
    return {"task_id": task["task_id"], "lease_token": task["lease_token"]}


def completed(task: dict[str, Any], result: Any = None) -> dict[str, Any]:
    return {**lease(task), "status": "completed", "result": result}


def submit(db: psycopg.Connection, count: int = 1, **columns: Any) -> list[str]:
    names = ["name", *columns]
    values = ", ".join(["%s"] * len(names))
    statement = f"INSERT INTO tasks ({', '.join(names)}) SELECT {values} FROM generate_series(1, %s) RETURNING id::text"
    return [row[0] for row in db.execute(statement.encode(), [NAME, *columns.values(), count]).fetchall()]


def states(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT state FROM tasks ORDER BY id").fetchall()]
