"""`/health/live` and `/health/ready` of a worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from proof.ports import free_port
from tasklib import AsyncClient, Config, Worker, task
from tasklib.errors import ConfigError
from tasklib.events import (
    DatabaseAwaited,
    DatabaseBack,
    DatabaseLost,
    Events,
    WorkerDraining,
    WorkerRenewed,
    WorkerStarted,
    WorkerStopped,
)
from tasklib.observe.health import STALLED_SECONDS, WorkerHealth, served
from tests.eventually import soon

STARTED = WorkerStarted("w1", ("a",), None, 10)


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


async def test_a_worker_is_ready_from_its_start_until_it_drains(config: Config, db: psycopg.Connection) -> None:
    held = asyncio.Event()
    begun = asyncio.Event()

    @task
    async def hold() -> None:
        begun.set()
        await held.wait()

    worker = Worker(config)
    with served(worker.events, 0, "127.0.0.1") as port:
        assert (await asyncio.to_thread(get, port, "/health/ready"))[0] == 503
        assert (await asyncio.to_thread(get, port, "/health/live"))[0] == 200
        async with worker:
            await AsyncClient(config).submit_task(hold)
            await asyncio.wait_for(begun.wait(), 60)
            code, body = await asyncio.to_thread(get, port, "/health/ready")
            assert (code, body["status"], body["worker"]) == (200, "ready", worker.id)
            worker.stop()
            code, body = 200, {}
            while code == 200:
                code, body = await asyncio.to_thread(get, port, "/health/ready")
            assert "stopping" in body["reason"]
            assert (await asyncio.to_thread(get, port, "/health/live"))[0] == 200, "it must be let finish"
            held.set()


@pytest.mark.parametrize("path", ["/", "/metrics", "/health", "/health/live/x"])
def test_other_pages_are_not_there(path: str) -> None:
    with served(Events(), 0, "127.0.0.1") as port:
        assert get(port, path)[0] == 404


async def test_ready_says_why_not() -> None:
    health = WorkerHealth()

    def reason() -> str | None:
        return health.ready().reason

    assert "not started" in str(reason())
    health(DatabaseAwaited("connection refused", 60.0))
    assert "waits for the database: connection refused" in str(reason())
    health(STARTED)
    assert reason() is None
    health(DatabaseLost("tasks", "server closed the connection"))
    health(DatabaseLost("listen", "server closed the connection"))
    assert "can't be reached: server closed" in str(reason())
    health(DatabaseBack("tasks"))
    assert reason() is None
    health(WorkerRenewed("w1", "w2"))
    assert health.answer("/health/ready") == (200, {"status": "ready", "worker": "w2", "reason": None})
    health(WorkerDraining("w2", 3, False))
    assert "stopping" in str(reason())
    health(WorkerStopped("w2"))
    assert "stopped" in str(reason())
    assert health.live().ok


async def test_a_worker_whose_loop_is_blocked_for_minutes_is_not_alive() -> None:
    now = [0.0]
    health = WorkerHealth(clock=lambda: now[0])
    health(STARTED)
    assert health.live().ok, "the question is asked now"
    now[0] += STALLED_SECONDS + 1
    assert (health.live().status, health.ready().ok) == ("stalled", False)
    await soon(lambda: health.live().ok)  # the loop runs again, and answers


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(ConfigError, match="health can't be opened"),
            served(Events(), taken.getsockname()[1], "127.0.0.1"),
        ):
            pass


def test_the_command_serves_it_and_takes_the_database_from_a_file(config: Config, tmp_path: Path) -> None:
    port = free_port()
    secret = tmp_path / "url"
    secret.write_text(f"{config.database_url}\n")
    (tmp_path / "health_tasks.py").write_text("from tasklib import task\n\n\n@task\ndef t() -> None: ...\n")
    environment = {k: v for k, v in os.environ.items() if "DATABASE_URL" not in k}
    if config.schema:
        environment["TASKLIB_SCHEMA"] = config.schema
    command = ["worker", "health_tasks", "--health-port", str(port), "--database-url-file", str(secret)]
    worker = subprocess.Popen(
        [sys.executable, "-m", "tasklib", *command], cwd=tmp_path, env=environment, stderr=subprocess.PIPE
    )
    drained = threading.Thread(target=worker.communicate)
    drained.start()
    try:
        wait_until(lambda: get(port, "/health/ready")[0] == 200)
    finally:
        worker.send_signal(signal.SIGTERM)
        drained.join()
    assert worker.returncode == 0


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        try:
            if condition():
                return
        except OSError:
            pass
        threading.Event().wait(0.1)
    raise AssertionError("it did not happen")


async def test_worker_over_shards_is_ready_while_it_reaches_one_of_them() -> None:
    health = WorkerHealth()
    health(WorkerStarted("w1", ("work",), None, 10, shards=(0, 1)))
    health(DatabaseLost("tasks", "connection refused", shard=1))
    health(DatabaseAwaited("connection refused", 60.0, shard=1))
    assert health.ready().ok
    health(DatabaseLost("listen", "no route", shard=0))
    assert not health.ready().ok
    health(DatabaseBack("tasks", shard=1))
    assert health.ready().ok
