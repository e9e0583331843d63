"""What a server's memory does under a submitter that means harm: `python -m benchmarks.server_memory`.

First streams that are never read, of one large task; then many large lists at a time, half of which are never read.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.memory import ROOT, megabytes
from tasklib import Client, Config
from tasklib.embedded import EmbeddedPostgres
from tasklib.migrations import migrate

LIMIT = 300
"""Megabytes."""


@dataclass(frozen=True)
class Target:
    """A running server, and a submitter's token for it."""

    pid: int
    port: int
    token: str

    def request(self, path: str) -> bytes:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n"
        return head.encode() + b"Connection: close\r\n\r\n"

    def ask(self, path: str) -> socket.socket:
        """A connection on which this was asked, and from which nothing was read."""
        raw = socket.create_connection(("127.0.0.1", self.port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(self.request(path))
        return raw

    def submit(self, size: int) -> str:
        body = json.dumps({"task_type": "large", "parameters": {"text": os.urandom(size // 2).hex()}})
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1/tasks?queue_position=false",
            body.encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(json.load(answer)["task_id"])


@contextmanager
def target(config: Config) -> Iterator[Target]:
    with Client(config) as client:
        token = client.create_token("submitter", roles=["submitter"]).text
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tasklib", "server", "--port", str(port), "--quiet"]
    environment = {**os.environ, "TASKLIB_DATABASE_URL": config.database_url}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=5)
                break
            except OSError:
                assert process.poll() is None, "the server didn't come up"
                time.sleep(0.1)
        yield Target(process.pid, port, token)
    finally:
        process.terminate()
        process.wait(60)


def status(raw: socket.socket) -> str:
    """The status of an answer; nothing else of it is read."""
    raw.settimeout(60)
    try:
        return raw.recv(12).decode()[9:12] or "closed"
    except OSError:
        return "closed"


def streams(at: Target, count: int, size: int) -> None:
    path = f"/api/v1/tasks/{at.submit(size)}/events"
    with ExitStack() as stack:
        opened = [stack.enter_context(at.ask(path)) for _ in range(count)]
        time.sleep(10)
        report(at, f"{count} unread streams on a task of {size:,} bytes", [status(raw) for raw in opened])


def lists(at: Target, count: int, tasks: int, size: int) -> None:
    for _ in range(tasks):
        at.submit(size)
    report(at, f"{tasks} tasks of {size:,} bytes submitted", [])

    def whole(_: int) -> str:
        with at.ask("/api/v1/tasks?limit=100") as raw:
            found, size = status(raw), 0
            while data := raw.recv(1 << 20):
                size += len(data)
            return f"{found} ({size:,} bytes)"

    with ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        unread = [stack.enter_context(at.ask("/api/v1/tasks?limit=100")) for _ in range(count)]
        read = list(pool.map(whole, range(count)))
        report(at, f"{count} lists read and {count} unread at the same time", [*read, *map(status, unread)])


def report(at: Target, what: str, answers: list[str]) -> None:
    told = ", ".join(f"{answers.count(a)} x {a}" for a in sorted(set(answers)))
    now, peak = megabytes(at.pid, "VmRSS"), megabytes(at.pid, "VmHWM")
    print(f"{what}: {now:,.0f} MB, at most {peak:,.0f} MB{'  ' if told else ''}{told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--lists", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=80)
    given = parser.parse_args()
    with EmbeddedPostgres() as postgres:
        config = Config(postgres.create_database("server_memory"))
        migrate(config)
        with target(config) as at:
            report(at, "at rest", [])
            streams(at, given.streams, 900_000)
            lists(at, given.lists, given.tasks, 1_000_000)
            peak = megabytes(at.pid, "VmHWM")
    print(f"{'within' if peak < LIMIT else 'BEYOND'} the limit of {LIMIT} MB")
    sys.exit(peak >= LIMIT)


if __name__ == "__main__":
    main()
