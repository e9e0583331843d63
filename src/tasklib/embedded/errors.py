"""The one error of the embedded server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tasklib.errors import TaskLibError


class EmbeddedPostgresError(TaskLibError, RuntimeError):
    """The embedded server cannot be provided; the message says what to do."""


@contextmanager
def clear_errors() -> Iterator[None]:
    """Let what the system or the server refuses come out as our error. Also a decorator: `@clear_errors()`."""
    try:
        yield
    except (OSError, psycopg.Error) as error:
        raise EmbeddedPostgresError(f"The embedded PostgreSQL failed: {error}") from error
