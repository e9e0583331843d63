"""The bridge: what still waits in Celery's broker becomes tasks of TaskLib, each once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from proof.ports import free_port
from tasklib import Config
from tasklib.celery.app import Celery
from tasklib.celery.bridge import Bridge
from tasklib.client.default import default_client
from tasklib.testing import drain_sync
from tests.docs.pages import ROOT

pytestmark = pytest.mark.long
celery: Any = pytest.importorskip("celery", reason="needs Celery: pip install -e '.[peers]'")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    program = shutil.which("redis-server") or pytest.skip("redis-server is not installed")
    port = free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    redis = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert redis.stdout is not None
    for line in redis.stdout:
        if "Ready to accept connections" in line:
            break
    yield f"redis://127.0.0.1:{port}/0"
    redis.terminate()
    redis.wait()


@pytest.fixture
def old(broker: str) -> Any:
    """The program as it was, with Celery."""
    return celery.Celery("old", broker=broker, set_as_current=False)


def moved(app: Celery, broker: str, *queues: str) -> Bridge:
    bridge = Bridge(app, broker, queues or ("celery",))
    bridge.run(Event(), burst=True)
    return bridge


def test_waiting_messages_become_tasks_that_run(app: Celery, proj: Any, old: Any, broker: str) -> None:
    name = proj.add.name
    for number in range(20):
        old.send_task(name, (number,), {"y": 1})
    assert moved(app, broker).moved == {name: 20}
    assert drain_sync().counts == {"completed": 20}
    results = [task.result for task in default_client().list_tasks(limit=50)]
    assert sorted(results) == list(range(1, 21))
    assert moved(app, broker).moved == {}


def test_a_message_that_is_delivered_again_makes_no_second_task(app: Celery, proj: Any, old: Any, broker: str) -> None:
    for _ in range(2):
        old.send_task(proj.add.name, (1, 2), task_id="4ab5e2b1-52c3-4f43-9f6c-9a1f5dbb7b1e")
    assert moved(app, broker).moved == {proj.add.name: 2}
    assert len(default_client().list_tasks()) == 1


def test_times_and_queues_are_kept(app: Celery, proj: Any, old: Any, broker: str) -> None:
    eta = datetime.now(UTC) + timedelta(hours=3)
    old.send_task(proj.add.name, (1, 2), eta=eta, queue="mail")
    assert moved(app, broker, "mail").left == {}
    [task] = default_client().list_tasks()
    assert (task.queue, task.scheduled_at) == ("mail", eta)


def test_what_tasklib_cant_take_over_stays_for_celery(app: Celery, proj: Any, old: Any, broker: str) -> None:
    old.send_task("unknown.task", (1,))
    first = old.signature(proj.add.name, (1, 2))
    celery.chain(first, old.signature(proj.add.name, (3,)), app=old).apply_async()
    old.send_task(proj.add.name, (1, 2, 3, 4, 5))
    bridge = moved(app, broker)
    assert bridge.moved == {}
    assert bridge.left.total() == 3
    assert default_client().list_tasks() == []
    with old.connection_for_read() as connection:
        assert connection.default_channel.client.llen("celery") == 3


def test_the_command_says_what_it_did(old: Any, broker: str, config: Config, tmp_path: Path) -> None:
    program = (
        "from tasklib.celery import shared_task\n\n\n@shared_task(name='greet')\ndef greet(name):\n    return name\n"
    )
    (tmp_path / "proj.py").write_text(program)
    old.send_task("greet", ("ada",))
    environment = {**os.environ, "TASKLIB_DATABASE_URL": config.database_url, "PYTHONPATH": str(ROOT / "src")}
    if config.schema:
        environment["TASKLIB_SCHEMA"] = config.schema
    command = [sys.executable, "-m", "tasklib.celery.bridge", broker, "--import", "proj", "--burst"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stdout) == (0, "1 moved, 0 left to Celery\n"), ran.stderr
