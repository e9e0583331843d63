"""Waiting for a database that is about to be there: a program often starts together with it, or while it restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tasklib.config import Config
from tasklib.db.connect import connect_async
from tasklib.db.fast_path import discard
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable

T = TypeVar("T")

# What the server says of a login that will fail next time, too. libpq gives no code for it, only the text. The last
# two are of a TaskLib server, to a worker over HTTP.
_FINAL = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "is not permitted to log in",
    "it answers 401",
    "it answers 403",
)


async def wait_for_database(config: Config, on_wait: Callable[[str], None]) -> None:
    """Return once the database takes connections and writes; DatabaseUnavailable if it doesn't within the limit.

    What only a person can mend (a wrong password, no such database) raises at once.
    """

    async def connect() -> None:
        discard(await connect_async(config))

    await wait_for(connect, config.startup_timeout_seconds, on_wait)


async def wait_for(attempt: Callable[[], Awaitable[T]], limit_seconds: float, on_wait: Callable[[str], None]) -> T:
    """Retry for this long. `on_wait` is called with the reason, and again when the reason changes."""
    deadline = time.monotonic() + limit_seconds
    failures, told = 0, ""
    while True:
        try:
            return await attempt()
        except DatabaseUnavailable as e:
            reason = str(e)
            left = deadline - time.monotonic()
            if is_final(reason) or limit_seconds <= 0:
                raise
            if left <= 0:
                raise DatabaseUnavailable(
                    f"{reason} Gave up after waiting for {limit_seconds:g} s (startup_timeout_seconds)."
                ) from e
            if reason != told:
                told = reason
                on_wait(reason)
            await asyncio.sleep(min(backoff(failures), left))
            failures += 1


def is_final(reason: str) -> bool:
    """True for a refusal that waiting doesn't change."""
    return any(words in reason for words in _FINAL)
