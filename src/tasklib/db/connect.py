"""Opening connections: one way for every part of TaskLib, with errors that say what to check."""

from __future__ import annotations

import math
import os

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tasklib.config import Config
from tasklib.db.timeouts import TimedAsyncConnection, TimedConnection
from tasklib.errors import ConfigError, DatabaseUnavailable

TASK = "task"
"""The role of a transactional task's connection: but for limits its settings are the user's; its timeout limits it."""

TASKS = "worker tasks"
"""The role of connections that claim and settle tasks, for a worker or for those behind a server."""

# A peer that vanished is noticed within about half a minute, not after the two hours of the kernel's default.
_KEEPALIVE = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

# What our statements rely on, whatever the role or the database has as its default. The time a statement may take is
# limited here (db/timeouts.py), and JIT costs more than our statements take. Not set: default_transaction_read_only,
# which fences a database on purpose.
_LIMITS = (
    "-c lock_timeout=0 -c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
    r" -c default_transaction_isolation=read\ committed"
)
# Times come as text, and sort as text while they have the same offset.
_FORMATS = " -c jit=off -c datestyle=ISO -c intervalstyle=postgres -c timezone=UTC"
# Cached plans outlive the moment they were made in: one planned on an empty table must not scan a full one, so what
# may be used is said here, index scans and nested loops.
_WORKER_OPTIONS = " -c enable_seqscan=off"
# Planning a claim takes longer than the claim itself; with these the one plan for all parameters is the right one.
_CLAIM_OPTIONS = (
    " -c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
)
# These write many rows at once, and must not wait long for one that another transaction has locked.
_LOCK_OPTIONS = " -c lock_timeout=200ms"
_SHORT_OF_TIME = (TASKS, "heartbeat")

_poolers: set[str] = set()
"""Addresses that refuse start-up options: connections there do without."""


def conninfo(config: Config, url: str | None = None, *, role: str = "client") -> str:
    """The libpq connection string for one of our connections; what the user's URL sets wins, but for the encoding."""
    if config.shards:  # whatever comes here would see one shard, and take it for all
        raise ConfigError(
            "this part of TaskLib uses one shard at a time: give it the configuration of one, config.for_shard(number)."
        )
    given = conninfo_to_dict(url or config.database_url)
    defaults: dict[str, str | int] = {
        **_KEEPALIVE,
        # Never a demoted primary that still answers: of several hosts the one that takes writes, or an error.
        "target_session_attrs": "read-write",
        "connect_timeout": max(2, math.ceil(config.connect_timeout_seconds)),
        "application_name": f"tasklib {role}",
    }
    if config.prepared_statements and not _does_without(role, address(url or config.database_url)):
        theirs = given.get("options") or os.environ.get("PGOPTIONS", "")
        given["options"] = f"{theirs} {_options(role)}".strip()
    return make_conninfo("", **{**defaults, **given, "client_encoding": "utf-8"})


def _options(role: str) -> str:
    if role == TASK:
        return _LIMITS
    options = _LIMITS + _FORMATS
    if role.startswith("worker"):
        options += _WORKER_OPTIONS
    if role == TASKS:
        options += _CLAIM_OPTIONS
    if role in _SHORT_OF_TIME:
        options += _LOCK_OPTIONS
    return options


def _does_without(role: str, place: str) -> bool:
    # A worker's plans depend on its settings: it would rather hear that it needs prepared_statements=False.
    return place in _poolers and not role.startswith("worker")


def _refuses_options(error: psycopg.Error, role: str, url: str) -> bool:
    """True if a pooler knows no start-up options, as PgBouncer says it; from now on they are left out there."""
    if "startup parameter" not in str(error) or _does_without(role, address(url)) or role.startswith("worker"):
        return False
    _poolers.add(address(url))
    return True


def connect(
    config: Config, *, role: str = "client", autocommit: bool = True, statement_timeout: float | None = None
) -> psycopg.Connection:
    """Open a synchronous connection. A statement that is unanswered for too long counts as a lost connection."""
    try:
        connection = TimedConnection.connect(conninfo(config, role=role), autocommit=autocommit)
    except psycopg.Error as e:
        if _refuses_options(e, role, config.database_url):
            return connect(config, role=role, autocommit=autocommit, statement_timeout=statement_timeout)
        raise unavailable(config.database_url, e) from e
    connection.statement_timeout = config.statement_timeout_seconds if statement_timeout is None else statement_timeout
    connection.prepare_threshold = 5 if config.prepared_statements else None
    if role == TASK:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    elif _misreads_times(connection):
        connection.execute(_READ_TIMES)
        if not autocommit:
            connection.commit()
    return connection


async def connect_async(config: Config, *, role: str = "client", url: str | None = None) -> psycopg.AsyncConnection:
    """Open an asynchronous connection in autocommit mode."""
    place = url or config.database_url
    try:
        connection = await TimedAsyncConnection.connect(conninfo(config, url, role=role), autocommit=True)
    except psycopg.Error as e:
        if _refuses_options(e, role, place):
            return await connect_async(config, role=role, url=url)
        raise unavailable(place, e) from e
    connection.statement_timeout = config.statement_timeout_seconds
    connection.prepare_threshold = 5 if config.prepared_statements else None
    if role == TASK:
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    elif _misreads_times(connection):
        await connection.execute(_READ_TIMES)
    return connection


# For poolers: PgBouncer keeps this setting for each of its clients.
_READ_TIMES = "SET datestyle = 'ISO'"


def _misreads_times(connection: psycopg.Connection | psycopg.AsyncConnection) -> bool:
    """The driver reads times in ISO format only; start-up options may have been left out."""
    return not (connection.info.parameter_status("DateStyle") or "ISO").startswith("ISO")


def unavailable(url: str, error: BaseException) -> DatabaseUnavailable:
    """The message for an unreachable database: its address and the reason, never the password."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return DatabaseUnavailable(
        f"can't connect to PostgreSQL at {address(url)}: {reason.rstrip('.')}{'' if reason.endswith('?') else '.'} "
        "Check that the server runs and that the URL, user and password are right."
    )


def address(url: str) -> str:
    """`user@host:port/database` of a connection string, without its password."""
    parts = conninfo_to_dict(url)
    if "@" in f"{parts.get('host', '')}{parts.get('dbname', '')}":
        return "(a URL with a raw @ in its password; write it as %40)"
    user = f"{parts['user']}@" if parts.get("user") else ""
    host = parts.get("host") or parts.get("hostaddr") or "the local socket"
    port = f":{parts['port']}" if parts.get("port") else ""
    database = f"/{parts['dbname']}" if parts.get("dbname") else ""
    return f"{user}{host}{port}{database}"
