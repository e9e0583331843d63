"""The fixtures of Celery's integration tests, with one `tasklib worker` for the session."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from suite_app import app as suite_app
from t.integration.tasks import ClassBasedAutoRetryTask, get_redis_connection

from tasklib.client.default import default_client

__all__ = ["TEST_BACKEND", "check_for_logs", "flaky", "get_active_redis_channels", "get_redis_connection"]
TEST_BACKEND = "redis://"


def flaky(function: Any) -> Any:
    return function


def get_active_redis_channels() -> list[Any]:
    return []


def check_for_logs(caplog: Any, message: str, max_wait: float = 1.0, interval: float = 0.1) -> bool:
    return any(re.search(message, record.message) for record in caplog.records)


class Manager:
    app = suite_app

    def join(self, result: Any, propagate: bool = False, timeout: float = 10, **_: Any) -> Any:
        return result.get(timeout=timeout, propagate=propagate)

    def inspect(self) -> Any:
        """Of the commands only `ping`, by which some tests make sure that there is a worker."""
        workers = [worker.id for worker in default_client().workers()]
        return SimpleNamespace(ping=lambda: {f"celery@{worker}": {"ok": "pong"} for worker in workers})

    def wait_until_idle(self) -> None:
        client = default_client()
        end = time.monotonic() + 10
        while client.list_tasks(state=["running", "pending"], limit=1) and time.monotonic() < end:
            time.sleep(0.05)


@pytest.fixture(scope="session", autouse=True)
def celery_session_worker() -> Iterator[Any]:
    import psycopg

    with psycopg.connect(os.environ["TASKLIB_DATABASE_URL"], autocommit=True) as connection:
        connection.execute(redis.TABLE)
    command = [sys.executable, "-m", "tasklib", "worker", "suite_app", "--concurrency", "4"]
    with open("worker.log", "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as worker:
        while not default_client().workers():
            assert worker.poll() is None, "the worker didn't start: see worker.log"
            time.sleep(0.05)
        yield SimpleNamespace()
        worker.terminate()


@pytest.fixture(scope="session")
def celery_session_app() -> Any:
    return suite_app


@pytest.fixture
def celery_app() -> Any:
    return suite_app


@pytest.fixture
def app() -> Any:
    return suite_app


@pytest.fixture
def manager() -> Iterator[Manager]:
    manager = Manager()
    yield manager
    manager.wait_until_idle()


@pytest.fixture(scope="session")
def celery_class_tasks() -> list[Any]:
    return [ClassBasedAutoRetryTask]
