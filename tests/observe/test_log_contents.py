"""What the log of a whole program has in it, and what it never has."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tasklib import AsyncClient, Config, task
from tasklib.events import DatabaseBack, DatabaseLost, client_events
from tasklib.observe.logs import LogLines, log_to
from tests.client.conftest import Either, either  # noqa: F401  # a fixture
from tests.worker.watching import working

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What the clients of this program do, logged as JSON."""
    stream = io.StringIO()
    lines = LogLines(log_to(stream, as_json=True, level=logging.DEBUG))
    client_events.subscribe(lines)
    yield stream
    client_events.unsubscribe(lines)
    assert not client_events.routine


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [{key: line[key] for key in line if key not in ("time", "by")} for line in lines]


async def test_what_a_client_does_is_logged_where_the_program_wants_it(either: Either, log: io.StringIO) -> None:  # noqa: F811
    @task(name="logged.mail", queue="mail")
    def mail(to: str) -> None: ...

    first = str(await either.submit_task(mail, to="ada@example.com", idempotency_key="k"))
    await either.submit_task(mail, to="ada@example.com", idempotency_key="k")
    batch = [{"to": "b"}, {"to": "c"}]
    second, third = map(str, await either.submit_many(mail, batch, trace_context={"traceparent": PARENT}))
    await either.cancel_task(first)
    await either.replay_task(first)
    about = {"level": "info", "event": "task submitted", "task": "logged.mail", "queue": "mail"}
    traced, own = {"trace_id": PARENT[3:35]}, {"trace_id": first.replace("-", "")}
    assert lines_of(log) == [
        about | {"task_id": first} | own,
        about | {"task_id": first, "event": "task submitted before"} | own,
        about | {"task_id": second} | traced,
        about | {"task_id": third} | traced,
        {"level": "info", "event": "task cancel requested", "task_id": first, "state": "cancelled"},
        {"level": "info", "event": "task replayed", "task_id": first, "state": "pending"},
    ]
    assert "ada@example.com" not in log.getvalue()


async def test_no_argument_result_password_or_token_is_ever_in_the_log(
    database_url: str, db: psycopg.Connection, log: io.StringIO
) -> None:
    password = conninfo_to_dict(database_url).get("password") or "hunter2"
    config = Config(make_conninfo(database_url, password=str(password)))

    @task(name="logged.secret")
    async def secret(argument: str) -> str:
        return "secret-result"

    client = AsyncClient(config)
    token = await client.create_token("robot", roles="submitter")
    async with working(config) as watched:
        watched.worker.events.subscribe(LogLines(log_to(log, as_json=True, level=logging.DEBUG)))
        task_id = await client.submit_task(secret, argument="secret-argument", trace_context={"traceparent": PARENT})
        await watched.ended(task_id, "completed")
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        lost = await watched.until(DatabaseLost)
        await watched.until(DatabaseBack, lambda e: e.purpose == lost.purpose)
    client.close()
    text = log.getvalue()
    [ended] = [line for line in lines_of(log) if line["event"] == "task completed"]
    assert (ended["task_id"], ended["attempt"], ended["trace_id"]) == (str(task_id), 1, PARENT[3:35])
    assert "database lost" in text
    assert [s for s in ("secret-", str(password), token.text, token.text.rpartition("_")[2]) if s in text] == []
