"""Opening connections: one way for every part of TaskLib, with errors that say what to check."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tasklib.config import Config
from tasklib.errors import DatabaseUnavailable

T = TypeVar("T")

# A peer that vanished is noticed within about half a minute, not after the two hours of the kernel's default.
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

# Cached plans outlive the moment they were made in: one planned on an empty table must not scan a full one, so what
# may be used is said here, index scans and nested loops. JIT costs more than our statements take. Only set on direct
# connections, where the session is ours.
_WORKER_OPTIONS = "-c enable_seqscan=off -c jit=off"
# Planning a claim takes longer than the claim itself; with these the one plan for all parameters is the right one.
_CLAIM_OPTIONS = (
    " -c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
    # Times come as text, and sort as text while they have the same offset.
    " -c timezone=UTC"
)


def conninfo(config: Config, url: str | None = None, *, role: str = "client") -> str:
    """The libpq connection string for one of our connections; what the user's URL sets wins, but for the encoding."""
    given = conninfo_to_dict(url or config.database_url)
    defaults: dict[str, str | int] = {
        **_KEEPALIVE,
        # Never a demoted primary that still answers: of several hosts the one that takes writes, or an error.
        "target_session_attrs": "read-write",
        "connect_timeout": max(2, math.ceil(config.connect_timeout_seconds)),
        "application_name": f"tasklib {role}",
    }
    if role.startswith("worker") and config.prepared_statements:
        options = _WORKER_OPTIONS + (_CLAIM_OPTIONS if role == "worker claim" else "")
        given["options"] = f"{given.get('options', '')} {options}".strip()
    return make_conninfo("", **{**defaults, **given, "client_encoding": "utf-8"})


class _PatientConnection(psycopg.Connection):
    """A connection on which nobody waits for ever: a link may stay open and never answer."""

    patience: float

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(_within(self.patience, gen), *args, **kwargs)


@contextmanager
def allowed(connection: psycopg.Connection, seconds: float) -> Iterator[None]:
    """While the block runs, each statement may take this long: those of a task are its own affair."""
    assert isinstance(connection, _PatientConnection)
    before, connection.patience = connection.patience, seconds
    try:
        yield
    finally:
        connection.patience = before


def _within(seconds: float, conversation: Generator[T, Any, Any]) -> Generator[T, Any, Any]:
    """psycopg's conversation with the server, ended with an error if it takes longer than this."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(conversation)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > deadline:
                raise psycopg.OperationalError(f"no answer within {seconds:g} s")
            wanted = conversation.send(ready)
    except StopIteration as end:
        return end.value


def connect(
    config: Config, *, role: str = "client", autocommit: bool = True, patience: float | None = None
) -> psycopg.Connection:
    """Open a synchronous connection. A statement that is unanswered for too long counts as a lost connection."""
    try:
        connection = _PatientConnection.connect(conninfo(config, role=role), autocommit=autocommit)
    except psycopg.Error as e:
        raise unavailable(config.database_url, e) from e
    connection.patience = config.statement_timeout_seconds if patience is None else patience
    connection.prepare_threshold = 5 if config.prepared_statements else None
    return connection


async def connect_async(config: Config, *, role: str = "client", url: str | None = None) -> psycopg.AsyncConnection:
    """Open an asynchronous connection in autocommit mode."""
    try:
        connection = await psycopg.AsyncConnection.connect(conninfo(config, url, role=role), autocommit=True)
    except psycopg.Error as e:
        raise unavailable(url or config.database_url, e) from e
    connection.prepare_threshold = 5 if config.prepared_statements else None
    return connection


def unavailable(url: str, error: BaseException) -> DatabaseUnavailable:
    """What to tell somebody whose database doesn't answer: where we looked and why it failed, never the password."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return DatabaseUnavailable(
        f"can't connect to PostgreSQL at {address(url)}: {reason.rstrip('.')}{'' if reason.endswith('?') else '.'} "
        "Check that the server runs and that the URL, user and password are right."
    )


def address(url: str) -> str:
    """`user@host:port/database` of a connection string, without its password."""
    parts = conninfo_to_dict(url)
    user = f"{parts['user']}@" if parts.get("user") else ""
    host = parts.get("host") or parts.get("hostaddr") or "the local socket"
    port = f":{parts['port']}" if parts.get("port") else ""
    database = f"/{parts['dbname']}" if parts.get("dbname") else ""
    return f"{user}{host}{port}{database}"
