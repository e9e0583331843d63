"""A TaskLib server for the workloads whose workers have no database, started as users start it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tasklib.bench.schema import POLL_SECONDS, BenchFailed, BenchSchema
from tasklib.bench.workers import START_SECONDS, environment, stop


def can_serve() -> bool:
    """True if what the server and its workers need is installed."""
    return all(find_spec(module) is not None for module in ("fastapi", "uvicorn", "httpx"))


@contextmanager
def serving(schema: BenchSchema) -> Iterator[str]:
    """The URL of a server for this machine, until the block ends."""
    if not can_serve():
        raise BenchFailed("workers over HTTP need more: pip install 'tasklib-pg[server,http]'")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["server", "--port", str(port), "--quiet", "--no-auth", "--no-dashboard"]
    log = schema.logs / "server"
    with log.open("ab") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "tasklib.bench.child", *command],
            env=environment(schema.config),
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchFailed(f"the server didn't come up:\n{log.read_text(errors='replace')[-2000:].strip()}")
            time.sleep(POLL_SECONDS)
        yield url
    finally:
        stop([process])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/live", timeout=START_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
