"""Where the demo plays: a database, a schema of its own, worker processes, and eyes on the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import class_row
from rich.markup import escape

from tasklib import Client, Config
from tasklib.cli.demo_screen import DemoScreen, Row
from tasklib.cli.demo_tasks import CREATE_PARCELS, SCHEMA
from tasklib.cli.interruption import no_more_interruptions
from tasklib.db.connect import connect
from tasklib.embedded import EmbeddedPostgres
from tasklib.errors import SchemaError
from tasklib.migrations import migrate

LEASE_SECONDS = 3
POLL_SECONDS = 0.1
START_SECONDS = 120
WORKER = ("worker", "tasklib.cli.demo_tasks")
# Shorter intervals than the defaults, so that the demo doesn't take minutes.
WORKER_SETTINGS = {
    "LOCK_TIMEOUT_SECONDS": str(LEASE_SECONDS),
    "SWEEP_INTERVAL_SECONDS": "0.5",
    "PROCESS_KILL_GRACE_SECONDS": "0.5",
    "SHUTDOWN_GRACE_SECONDS": "1",
}

ROWS = f"""
    SELECT id::text, name, kwargs, state, priority, worker_id, result, error, progress, lease_token AS token,
           retry_count + crash_count + CASE WHEN state = 'failed' THEN 0 ELSE 1 END AS attempt,
           max_retries + crash_count + 1 AS max_attempts,
           coalesce(history, '[]') AS history,
           extract(epoch FROM coalesce(next_retry_at, scheduled_at) - clock_timestamp())::float8 AS due_in,
           extract(epoch FROM locked_until - clock_timestamp())::float8 AS lease_left,
           started_at, extract(epoch FROM started_at - greatest(created_at, scheduled_at))::float8 AS late
    FROM {SCHEMA}.tasks
    WHERE created_at >= %s
    ORDER BY id
"""


class DemoFailed(Exception):
    """The demo can't go on."""


class Stage:
    """What the acts act on."""

    def __init__(self, screen: DemoScreen, client: Client, db: psycopg.Connection, logs: Path) -> None:
        self.screen = screen
        self.client = client
        self.db = db
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.submitted = 0
        self.disappointments: list[str] = []
        self._logs = logs
        self._act_began: Any = None
        self._disappointed_before = 0

    def act(self, title: str, *sentences: str, code: str = "") -> None:
        """Open an act: from now on the table shows its tasks only."""
        self.screen.act(title, *sentences, code=code)
        self._act_began = self.value("SELECT clock_timestamp()")
        self._disappointed_before = len(self.disappointments)

    def submit(self, *task_and_arguments: Any) -> None:
        """`submit_many`, and count."""
        self.submitted += len(self.client.submit_many(*task_and_arguments))

    def rows(self) -> list[Row]:
        with self.db.cursor(row_factory=class_row(Row)) as cursor:
            return cursor.execute(ROWS, [self._act_began]).fetchall()

    def watch(self, until: Callable[[Sequence[Row]], bool], what: str, at_most: float = 120) -> list[Row]:
        """Show the tasks of this act until they are as expected; too late is noted as a disappointment."""
        deadline = time.monotonic() + at_most
        while True:
            self._require_all_alive()
            rows = self.rows()
            self.screen.show(rows)
            if until(rows):
                return rows
            if time.monotonic() > deadline:
                self.expect(False, f"{what}, within {at_most:g} s")
                return rows
            time.sleep(POLL_SECONDS)

    def watch_all(self) -> list[Row]:
        """Show the tasks of this act until all are over."""
        rows = self.watch(lambda rows: all(r.is_over for r in rows), "all tasks of this act are over")
        self.screen.settle()
        return rows

    def watch_for(self, seconds: float) -> list[Row]:
        """Show the tasks of this act for a while."""
        enough = time.monotonic() + seconds
        return self.watch(lambda _: time.monotonic() > enough, "time passes")

    def watch_count(self, name: str, total: int, at_most: float = 120) -> None:
        """Show how many of the tasks with this name are completed, until all are."""
        deadline = time.monotonic() + at_most
        done = 0
        while done < total and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            done = self.count("name = %s AND state = 'completed'", name)
            self.screen.show_count(done, total)
        self.expect(done == total, f"all {total:,} tasks are completed within {at_most:g} s, not {done:,}")
        self.screen.settle()

    def conclude(self, markup: str) -> None:
        """End an act with what there was to see, if it was to be seen."""
        if len(self.disappointments) == self._disappointed_before:
            self.screen.say(f"[green]=>[/] {markup}")
            self.screen.beat(1.2)

    def expect(self, is_so: bool, what: str) -> None:
        """The demo is also a check: remember each failed expectation."""
        if not is_so:
            self.disappointments.append(what)
            self.screen.say(f"[bold red]NOT AS IT SHOULD BE:[/] expected that {escape(what)}")

    def count(self, condition: str, *parameters: Any) -> int:
        """How many tasks are so."""
        counted: int = self.value(f"SELECT count(*) FROM {SCHEMA}.tasks WHERE {condition}", *parameters)
        return counted

    def value(self, query: str, *parameters: Any) -> Any:
        """The first column of the first row."""
        row = self.db.execute(query.encode(), parameters or None).fetchone()
        return row[0] if row else None

    def start_worker(self, name: str, *, slots: int, queue: str = "default") -> None:
        """Start a worker process; `await_workers` waits until it works."""
        config = self.client.config
        url = make_conninfo(config.database_url, application_name=_application(name))
        settings = WORKER_SETTINGS | {"DATABASE_URL": url, "SCHEMA": SCHEMA, "WORKER_ID": name}
        settings |= {way.upper(): str(getattr(config, way)) for way in _WAY if getattr(config, way) is not None}
        env = {key: value for key, value in os.environ.items() if not key.startswith("TASKLIB_")}
        env |= {f"TASKLIB_{key}": value for key, value in settings.items()}
        with (self._logs / name).open("ab") as log:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", "tasklib", *WORKER, "--concurrency", str(slots), "--queue", queue, "--quiet"],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def await_workers(self, *names: str) -> None:
        """Wait until these workers are ready for tasks."""
        ready = f"SELECT count(*) FROM {SCHEMA}.workers WHERE id LIKE %s || '-%%'"
        deadline = time.monotonic() + START_SECONDS
        for name in names:
            while not self.value(ready, name):
                self._require_all_alive()
                if time.monotonic() > deadline:
                    raise DemoFailed(f"the worker {name} is not up after {START_SECONDS} s. {self._words_of(name)}")
                time.sleep(0.02)

    def kill_worker(self, name: str) -> None:
        """SIGKILL: the worker can't finish, release or report anything."""
        process = self.workers.pop(name)
        process.kill()
        process.wait()
        self.screen.dead_workers.add(name)

    def stop_workers(self) -> None:
        """SIGTERM, and SIGKILL for workers that are still running a little later."""
        leaving = list(self.workers.values())
        for process in leaving:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 3
        for process in leaving:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _require_all_alive(self) -> None:
        for name, process in self.workers.items():
            if process.poll() is not None:
                code = process.returncode
                raise DemoFailed(f"the worker {name} ended unexpectedly, with code {code}. {self._words_of(name)}")

    def _words_of(self, name: str) -> str:
        return f"Its last output:\n{(self._logs / name).read_text(errors='replace')[-2000:]}"


_WAY = ("prepared_statements", "listen", "listen_database_url")


@contextmanager
def open_stage(database_url: str | None, screen: DemoScreen) -> Iterator[Stage]:
    """Set the stage, and clear it whatever happens: workers, connections, schema, server."""
    with ExitStack() as clean_up:
        try:
            logs = Path(clean_up.enter_context(tempfile.TemporaryDirectory(prefix="tasklib-demo-")))
            if database_url:
                config = Config(database_url, schema=SCHEMA, **_way_to(database_url))
            else:
                config = Config(clean_up.enter_context(EmbeddedPostgres()).url(), schema=SCHEMA)
            _create_schema(config)
            clean_up.callback(_drop_schema, config)
            migrate(config)
            client = clean_up.enter_context(Client(config))
            db = clean_up.enter_context(connect(config, role="demo"))
            db.execute(CREATE_PARCELS.encode())
            stage = Stage(screen, client, db, logs)
            clean_up.callback(stage.stop_workers)
            clean_up.callback(screen.settle)
            yield stage
        finally:
            no_more_interruptions()


def _way_to(database_url: str) -> dict[str, Any]:
    """How the environment says that this database is reached (through a pooler, perhaps), and nothing else of it."""
    given = Config.from_env(database_url=database_url)
    return {name: getattr(given, name) for name in _WAY}


def _application(worker: str) -> str:
    """What a worker calls itself in pg_stat_activity; with our process id, as others may run the demo too."""
    return f"tasklib demo {os.getpid()} {worker}"


def _create_schema(config: Config) -> None:
    """Create the schema, rather than use one that is there: at the end it is dropped with all that is in it."""
    try:
        with connect(config, role="demo") as db:
            db.execute(f"CREATE SCHEMA {SCHEMA}".encode())
    except psycopg.errors.DuplicateSchema:
        raise SchemaError(
            f"this database already has a schema {SCHEMA}: another demo is running, or one was cut off. It was not "
            f"touched. If it is not needed: DROP SCHEMA {SCHEMA} CASCADE;"
        ) from None


def _drop_schema(config: Config) -> None:
    with connect(config, role="demo") as db:
        db.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
