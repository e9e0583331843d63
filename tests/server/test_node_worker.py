"""The worker for Node that is in the examples, as its readers run it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psycopg
import pytest

from tasklib import Client, Config
from tests.eventually import eventually
from tests.server.conftest import Running
from tests.server.processes import ROOT, ServerProcess

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")


class NodeWorker:
    """`node worker.mjs URL`, and what it prints."""

    def __init__(self, url: str, token: str | None, log: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TASKLIB_")}
        if token:
            environment["TASKLIB_TOKEN"] = token
        self._log: IO[bytes] = log.open("wb")
        assert NODE is not None
        self.process = subprocess.Popen(
            [NODE, str(ROOT / "examples/node_worker/worker.mjs"), url],
            stdout=self._log,
            stderr=self._log,
            env=environment,
        )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(120)
        self._log.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Callable[..., NodeWorker]]:
    """`node(url, token=None)` starts one; it ends with the test."""
    workers: list[NodeWorker] = []

    def start(url: str, token: str | None = None) -> NodeWorker:
        workers.append(NodeWorker(url, token, tmp_path / f"node-{len(workers)}.log"))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_it_runs_fails_times_out_cancels_and_drains(
    server: Callable[..., Running],
    config: Config,
    db: psycopg.Connection,
    token: Callable[..., str],
    node: Callable[..., NodeWorker],
) -> None:
    text = token("worker")
    worker = node(str(server(config)), text)
    with Client(config) as client:
        submit = lambda name, **options: client.submit_task(name, registered_elsewhere=True, **options)  # noqa: E731
        sums = [submit("node.add", a=n, b=1) for n in range(20)]
        failing = submit("node.fail", message="no luck", max_retries=0)
        slow = submit("node.wait", timeout_seconds=1, max_retries=0)
        assert [client.wait_for(id_, timeout=60) for id_ in sums] == [n + 1 for n in range(20)]
        eventually(lambda: _state(db, failing) == "dead_letter" and _state(db, slow) == "dead_letter")
        errors = dict(db.execute("SELECT id, error FROM tasks WHERE state = 'dead_letter'").fetchall())
        assert "Error: no luck" in errors[failing]
        assert "ran out of time" in errors[slow]
        endless = submit("node.wait")
        eventually(lambda: _state(db, endless) == "running")
        client.cancel_task(endless)
        eventually(lambda: _state(db, endless) == "cancelled")
        last = submit("node.wait")
        eventually(lambda: _state(db, last) == "running")
        worker.process.send_signal(signal.SIGTERM)
        eventually(lambda: db.execute("SELECT status FROM workers").fetchone() == ("draining",))
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(60) == 0
        assert _state(db, last) == "pending", "given back, without using a retry"
    assert db.execute("SELECT count(*) FROM workers").fetchone() == (0,)


@pytest.mark.long
def test_it_outlives_its_server(
    config: Config, db: psycopg.Connection, node: Callable[..., NodeWorker], tmp_path: Path
) -> None:
    server = ServerProcess(config, tmp_path / "server.log")
    server.start()
    try:
        node(server.url)
        with Client(config) as client:
            one = client.submit_task("node.add", a=1, b=1, registered_elsewhere=True)
            assert client.wait_for(one, timeout=60) == 2
            eventually(lambda: db.execute("SELECT asleep FROM workers").fetchone() == (True,))
            server.kill()
            two = client.submit_task("node.add", a=2, b=2, registered_elsewhere=True)
            server.start()
            assert client.wait_for(two, timeout=60) == 4
        assert db.execute("SELECT max(lease_token) FROM tasks").fetchone() == (1,)
    finally:
        server.kill()


def _state(db: psycopg.Connection, id_: object) -> str:
    row = db.execute("SELECT state FROM tasks WHERE id = %s", [id_]).fetchone()
    assert row is not None
    return str(row[0])
