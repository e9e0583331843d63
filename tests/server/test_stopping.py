"""How a server ends, and how it lives through a database that doesn't answer."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import psycopg
import pytest
from structlog.testing import capture_logs

from tasklib import Config
from tests.cli.processes import Started
from tests.server.conftest import PATIENCE, Running
from tests.server.extra_routes import router
from tests.server.outages import way_to

Start = Callable[..., Running]


def test_long_polls_end_when_the_server_does(server: Start, config: Config) -> None:
    url = server(config, router)
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(url.http.get("/api/test/wait")))
    waiting.start()
    notifier = url.app.state.services.notifier
    while not notifier._waiting and waiting.is_alive():
        waiting.join(0.01)
    url.stop()
    waiting.join(PATIENCE)
    assert [a.json() for a in answers] == [{"stopped": True}]


def test_a_client_that_watches_a_task_hears_at_once_that_the_server_ends(server: Start, config: Config) -> None:
    url = server(config)
    task_id = url.http.post("/api/v1/tasks", json={"task_type": "stopping_any"}).json()["task_id"]
    with url.http.stream("GET", f"/api/v1/tasks/{task_id}/events") as events:
        lines = events.iter_lines()
        assert next(lines) == "event: task"
        url.stop()
        assert "data" not in "".join(list(lines)[3:])
    assert url.server.force_exit is False


def test_it_hears_what_the_database_announces(server: Start, config: Config, db: psycopg.Connection) -> None:
    notifier = server(config).app.state.services.notifier
    mark = notifier.mark()
    for _ in range(3000):
        db.execute("SELECT pg_notify('tasklib_public', '')")
        if notifier.is_listening and notifier.mark() > mark + 1:
            return
        threading.Event().wait(0.02)
    pytest.fail("it didn't hear")


def test_sigterm_ends_the_command_without_an_error(config: Config, tmp_path: Path) -> None:
    (tmp_path / "tasks_of_the_server.py").write_text("from tasklib import task\n\n@task\ndef served() -> None: ...\n")
    command = Started(
        ("server", "--no-auth", "--port", "0", "--module", "tasks_of_the_server"),
        cwd=tmp_path,
        TASKLIB_DATABASE_URL=config.database_url,
    )
    try:
        said = command.until("Serving http://127.0.0.1:", "tasklib token create")
        port = re.search(r"127\.0\.0\.1:(\d+)", said)
        assert port
        with httpx.Client(timeout=PATIENCE) as client:
            assert client.get(f"http://127.0.0.1:{port[1]}/health/ready").status_code == 200
            command.signal(signal.SIGTERM)
            assert command.process.wait(PATIENCE) == 0
    finally:
        command.process.kill()


def test_the_command_says_in_a_line_why_it_does_not_start(config: Config, tmp_path: Path) -> None:
    command = Started(("server", "--port", "0"), cwd=tmp_path, TASKLIB_DATABASE_URL=config.database_url)
    assert command.process.wait(PATIENCE) == 1
    said = command.until("error: ")
    assert "tasklib token create NAME --role admin" in said
    assert "--no-auth" in said
    assert "Traceback" not in said


def test_a_database_that_falls_silent_costs_a_503_and_no_more(server: Start, config: Config) -> None:
    with way_to(config) as way:
        url = server(way.config.with_changes(connect_timeout_seconds=2), router, database_timeout_seconds=3.0)
        assert url.http.get("/health/ready").status_code == 200
        way.fall_silent()
        answer = url.http.get("/health/ready")
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert int(answer.headers["Retry-After"]) > 0
        assert way.config.database_url not in answer.text
        assert url.http.get("/health/live").status_code == 200
        way.speak()
        assert url.http.get("/health/ready").status_code == 200


def test_connections_that_the_database_closed_are_not_handed_out(
    server: Start, config: Config, db: psycopg.Connection
) -> None:
    url = server(config, router)
    for _ in range(3):
        assert url.http.get("/health/ready").status_code == 200
        db.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'tasklib %'"
        )
    assert url.http.get("/health/ready").status_code == 200


def test_an_answer_that_breaks_off_looks_broken_off(server: Start, config: Config) -> None:
    with capture_logs() as lines:
        url = server(config, router)
        with pytest.raises(httpx.RemoteProtocolError):
            url.http.get("/api/test/cut")
        assert url.http.get("/health/live").status_code == 200
        url.stop()
    [failed] = [line for line in lines if line["event"] == "request failed"]
    assert (failed["code"], failed["reason"], failed["exc_info"]) == ("database_unavailable", "gone", False)
