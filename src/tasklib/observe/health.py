"""`/health/live` and `/health/ready` of a worker: for Kubernetes, systemd's watchers and load balancers.

A thread serves them, so that they answer while a task blocks the event loop. What they say comes from the worker's
events.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from tasklib.errors import ConfigError
from tasklib.events import (
    DatabaseAwaited,
    DatabaseBack,
    DatabaseLost,
    Event,
    Events,
    WorkerDraining,
    WorkerRenewed,
    WorkerStarted,
    WorkerStopped,
)
from tasklib.observe.outages import Outages

STALLED_SECONDS = 120.0
"""A worker whose event loop has not run for so long is not alive: a task blocks it."""


class Probe(NamedTuple):
    """An answer: whether all is well, and the word and the reason for it."""

    ok: bool
    status: str
    reason: str | None = None


class WorkerHealth:
    """How a worker is, by its events."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._outages: defaultdict[int | None, Outages] = defaultdict(Outages)
        self._worker_id: str | None = None
        self._not_ready: str | None = "it has not started yet"
        self._shards: tuple[int | None, ...] = (None,)
        self._lost: dict[int | None, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked_at: float | None = None

    def __call__(self, event: Event) -> None:
        """Hear an event. Runs on the worker's loop."""
        match event:
            case DatabaseAwaited(reason=reason) if self._worker_id is None:
                self._not_ready = f"it waits for the database: {reason}"
            case WorkerStarted(worker_id=id_, shards=shards):
                self._worker_id, self._not_ready, self._shards = id_, None, shards or (None,)
                self._loop = asyncio.get_running_loop()
            case WorkerRenewed(worker_id=id_):
                self._worker_id = id_
            case WorkerDraining():
                self._not_ready = "it is stopping, and takes no tasks any more"
            case WorkerStopped():
                self._not_ready, self._loop = "it has stopped", None
            case DatabaseLost(purpose=purpose, reason=reason, shard=shard):
                if self._outages[shard].begins_with(purpose):
                    self._lost[shard] = f"the database can't be reached: {reason}"
            case DatabaseBack(purpose=purpose, shard=shard):
                if self._outages[shard].ends_with(purpose):
                    self._lost.pop(shard, None)

    def live(self) -> Probe:
        """Whether the process is of use: False if its event loop has stood still for minutes."""
        stalled = self._stalled_seconds()
        if stalled > STALLED_SECONDS:
            return Probe(False, "stalled", f"the event loop has been blocked for {stalled:.0f} s: see tasklib top")
        return Probe(True, "live")

    def ready(self) -> Probe:
        """Whether it takes tasks."""
        if not (alive := self.live()).ok:
            return alive
        reason = self._not_ready or self._without_database
        return Probe(reason is None, "ready" if reason is None else "not ready", reason)

    @property
    def _without_database(self) -> str | None:
        """Why it can take no tasks at all: with several shards, the others do."""
        lost = dict(self._lost)
        return next(iter(lost.values()), None) if all(shard in lost for shard in self._shards) else None

    def answer(self, path: str) -> tuple[int, dict[str, str | None]] | None:
        """The status code and the body for a path; None if there is no such page."""
        match path.partition("?")[0].rstrip("/"):
            case "/health/live":
                verdict = self.live()
            case "/health/ready":
                verdict = self.ready()
            case _:
                return None
        body = {"status": verdict.status, "worker": self._worker_id, "reason": verdict.reason}
        return (200 if verdict.ok else 503), body

    def _stalled_seconds(self) -> float:
        """How long the loop has owed an answer. The question is asked now if none is open."""
        loop, asked_at = self._loop, self._asked_at
        if loop is None:
            return 0.0
        if asked_at is not None:
            return self._clock() - asked_at
        self._asked_at = self._clock()
        try:
            loop.call_soon_threadsafe(self._answered)
        except RuntimeError:  # it was closed meanwhile
            self._asked_at = None
        return 0.0

    def _answered(self) -> None:
        self._asked_at = None


@contextmanager
def served(events: Events, port: int, host: str) -> Iterator[int]:
    """Serve the health of the worker with these events during the block. Gives the port."""
    health = WorkerHealth()
    events.subscribe(health, routine=False)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = health.answer(self.path)
            code, body = found or (404, {"status": "no such page", "worker": None, "reason": None})
            text = json.dumps(body).encode() + b"\n"
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds: they are not logged."""

    try:
        made = ThreadingHTTPServer((host, port), Handler)
    except OSError as e:
        raise ConfigError(f"the port {port} of {host} for the worker's health can't be opened: {e}.") from e
    with made as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="tasklib-health", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            events.unsubscribe(health)
