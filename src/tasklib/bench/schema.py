"""Where it is measured: a schema that is made for it and dropped at the end, and eyes on its table."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg.conninfo import make_conninfo

from tasklib.bench.cpu import postmaster_of
from tasklib.client.clients import Client
from tasklib.config import Config
from tasklib.db.connect import connect
from tasklib.errors import SchemaError, TaskLibError
from tasklib.migrations import migrate

T = TypeVar("T")
SCHEMA = "tasklib_bench"
MARK = "made by tasklib bench, which drops it when it ends"
POLL_SECONDS = 0.01
TAIL = 5_000
"""Of the last so many tasks one looks whether they are done: no worker holds more, and it is cheap."""


class BenchFailed(TaskLibError):
    """A workload can't be measured."""


@dataclass
class BenchSchema:
    """The schema, and what the workloads do to it."""

    config: Config
    client: Client
    db: psycopg.Connection
    logs: Path
    postmaster: int | None
    """The main process of the server, if it is on this machine."""
    clean_up: ExitStack
    _lasting: dict[str, Any] = field(default_factory=dict)

    def lasting(self, what: str, make: Callable[[], T]) -> T:
        """Made when first needed, and kept until the end."""
        if what not in self._lasting:
            self._lasting[what] = make()
        made: T = self._lasting[what]
        return made

    def fresh(self) -> None:
        """An empty table, as if nothing had been measured before."""
        self.db.execute(f"TRUNCATE {SCHEMA}.tasks, {SCHEMA}.pauses".encode())
        self.notify(True)

    def submit(self, task: Any, count: int) -> list[UUID]:
        """`submit_many`; the ids come in the order in which the tasks will be claimed."""
        return sorted(self.client.submit_many(task, [{"number": i} for i in range(count)]))

    def calm(self, *, vacuum: bool = False) -> None:
        """Have done now what PostgreSQL would otherwise do in the middle of a measurement."""
        self.db.execute(f"{'VACUUM ANALYZE' if vacuum else 'ANALYZE'} {SCHEMA}.tasks".encode())
        with suppress(psycopg.errors.InsufficientPrivilege):
            self.db.execute("CHECKPOINT")

    def notify(self, wanted: bool) -> None:
        """Whether inserting a task sends a notification, which a trigger does."""
        self.db.execute(f"ALTER TABLE {SCHEMA}.tasks {'ENABLE' if wanted else 'DISABLE'} TRIGGER USER".encode())

    def row(self, query: str, *parameters: Any) -> Sequence[Any]:
        """The first row; `{tasks}` and `{workers}` stand for our tables."""
        text = query.replace("{tasks}", f"{SCHEMA}.tasks").replace("{workers}", f"{SCHEMA}.workers")
        row = self.db.execute(text.encode(), parameters or None).fetchone()
        assert row is not None
        return row

    def await_running(self, count: int, look: Callable[[], None]) -> None:
        """Wait until so many tasks run."""
        deadline = time.monotonic() + 60
        while self.row("SELECT count(*) FROM {tasks} WHERE state = 'running'")[0] < count:
            self._pause(deadline, look)

    def await_all(self, ids: Sequence[UUID], look: Callable[[], None]) -> float:
        """Wait until all these tasks are completed and return when, by the database's clock.

        `look` is called meanwhile, and raises if there is nothing left to wait for. Until the end only single rows are
        looked up by their ids: counting the remaining ones would slow down the measured system.
        """
        deadline = time.monotonic() + 60 + len(ids) / 100
        tail = ids[-TAIL:]
        while self.row("SELECT state FROM {tasks} WHERE id = %s", tail[-1])[0] != "completed":
            self._pause(deadline, look)
        finished = self._await_none_left(tail[0], deadline, look)
        if self._left(ids[0])[0]:
            finished = self._await_none_left(ids[0], deadline, look)
        return finished

    def _await_none_left(self, first: UUID, deadline: float, look: Callable[[], None]) -> float:
        while True:
            left, now = self._left(first)
            if not left:
                return now
            self._pause(deadline, look)

    def _left(self, first: UUID) -> tuple[int, float]:
        """How many due tasks from this one on are not completed, and the time."""
        left, now = self.row(
            "SELECT count(*) FILTER (WHERE state <> 'completed' AND scheduled_at <= now()), "
            "extract(epoch FROM clock_timestamp())::float8 FROM {tasks} WHERE id >= %s",
            first,
        )
        return left, now

    def _pause(self, deadline: float, look: Callable[[], None]) -> None:
        look()
        if time.monotonic() > deadline:
            states = self.db.execute(f"SELECT state, count(*) FROM {SCHEMA}.tasks GROUP BY 1 ORDER BY 1".encode())
            counted = ", ".join(f"{count:,} {state}" for state, count in states)
            raise BenchFailed(f"the tasks have not finished in time: {counted}.")
        time.sleep(POLL_SECONDS)


@contextmanager
def open_schema(config: Config) -> Iterator[BenchSchema]:
    """Make the schema, and whatever happens end all processes and drop it."""
    with ExitStack() as clean_up:
        config = _our_own(config)
        _make_schema(config)
        clean_up.callback(_drop_schema, config)
        migrate(config)
        logs = Path(clean_up.enter_context(tempfile.TemporaryDirectory(prefix="tasklib-bench-")))
        client = clean_up.enter_context(Client(config))
        db = clean_up.enter_context(connect(config, role="bench", statement_timeout=math.inf))
        yield BenchSchema(config, client, db, logs, postmaster_of(db), clean_up)


def _our_own(config: Config) -> Config:
    """The user's settings with our schema, nothing deleted behind our back, and a name that tells who is connected."""
    url = make_conninfo(config.database_url, application_name=f"tasklib bench {os.getpid()}")
    return config.with_changes(database_url=url, schema=SCHEMA, retention=())


def _make_schema(config: Config) -> None:
    """Make it anew. One that a killed run left is dropped; a schema of another program is not touched."""
    with connect(config, role="bench", statement_timeout=math.inf) as db:
        found = db.execute(
            "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (SCHEMA,)
        ).fetchone()
        if found is not None:
            _require_left_over(db, found[0])
            db.execute(f"DROP SCHEMA {SCHEMA} CASCADE".encode())
        try:
            with db.transaction():
                db.execute(f"CREATE SCHEMA {SCHEMA}".encode())
                db.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{MARK}'".encode())
        except psycopg.errors.DuplicateSchema:
            raise _busy() from None


def _require_left_over(db: psycopg.Connection, comment: str | None) -> None:
    if comment != MARK:
        raise SchemaError(
            f"this database has a schema {SCHEMA} that tasklib bench did not make. It was not touched. "
            f"Rename it, or give another database; if it is not needed: DROP SCHEMA {SCHEMA} CASCADE;"
        )
    others = db.execute(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
        "AND application_name LIKE 'tasklib bench %' LIMIT 1"
    ).fetchone()
    if others is not None:
        raise _busy()


def _busy() -> SchemaError:
    return SchemaError(
        f"another tasklib bench is running in the schema {SCHEMA} of this database; wait until it has ended."
    )


def _drop_schema(config: Config) -> None:
    with connect(config, role="bench", statement_timeout=math.inf) as db:
        db.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
