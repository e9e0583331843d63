"""What a database error means to us."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import psycopg
from psycopg import errors as pg

from tasklib.errors import DatabaseUnavailable, SchemaError


class Conflict(pg.SerializationFailure):
    """Raised where rows are read: another transaction was quicker, and its rows are too young for this snapshot."""


_TRANSIENT = (pg.DeadlockDetected, pg.SerializationFailure, pg.LockNotAvailable)
_LOST_INTERMEDIATE_RESULT = "CIINF"
_SHARD = re.compile(r'_\d{5,}" does not exist')


def is_transient(error: BaseException) -> bool:
    """True if the same statement is worth another try: two transactions met, or Citus was moving the schema.

    None of it took effect.
    """
    if isinstance(error, _TRANSIENT):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if error.diag.sqlstate == _LOST_INTERMEDIATE_RESULT:
        return True
    return isinstance(error, pg.UndefinedTable) and _SHARD.search(error.diag.message_primary or "") is not None


MOST_CONFLICTS = 10
"""Tries of a statement that keeps meeting other transactions."""


def conflict_pause(tries: int) -> float:
    """Seconds to wait before trying again after a conflict: growing, short, and never in step with the others."""
    return float(min(0.005 * 2.0**tries, 0.5) * random.uniform(0.5, 1.0))


# SQLSTATE classes that speak of the server's condition, not of our statement: connection, resources (disk, memory,
# connections), operator intervention (shutdown, cancel), system errors.
_OUTAGES = ("08", "53", "57", "58")


def is_connection_loss(error: BaseException) -> bool:
    """True if the server, or the way to it, is at fault, so that the same statement may succeed later."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, TimeoutError | OSError)
    if isinstance(error, pg.ReadOnlySqlTransaction):  # a demoted primary: find the new one
        return True
    if error.sqlstate is None:  # libpq reports a broken socket without an SQLSTATE
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_OUTAGES)


def is_bad_data(error: BaseException) -> bool:
    """True if the values, not the statement or the server, are at fault: one row of a batch may be to blame."""
    return isinstance(error, psycopg.DataError | pg.CheckViolation | pg.StatementTooComplex | pg.ProgramLimitExceeded)


# undefined table, schema, column, function
_NO_SCHEMA = frozenset({"42P01", "3F000", "42703", "42883"})


def explained(error: Exception) -> Exception:
    """Turn what a missing or different schema provokes, through any driver, into the error that says what to do."""
    for cause in _causes(error):
        if (getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)) in _NO_SCHEMA:
            reason = cause.diag.message_primary if isinstance(cause, psycopg.Error) else str(cause)
            return SchemaError(
                f"TaskLib's tables are missing or of another version here ({reason}). "
                "Run: tasklib migrate (and check the schema setting)."
            )
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    # SQLAlchemy and Django wrap the driver's error.
    while error is not None:
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def lost(error: Exception) -> Exception:
    """What a call on a connection of ours ends with, after this error and no further try."""
    if not is_connection_loss(error):
        return explained(error)
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return DatabaseUnavailable(
        f"the database can't be reached, or doesn't answer: {reason}. The statement may or may not have taken effect."
    )
