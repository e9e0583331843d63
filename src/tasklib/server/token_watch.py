"""Requests that wait, and the tokens they came with: once a token is revoked or has expired, they end within a second.

with services.token_watch.waiting(principal) as waiting:
    news = await waiting.unless_over(wait_for_news())       # a Problem, 401, if the token has ended
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from tasklib.client.async_clients import AsyncClient
from tasklib.client.effects import once
from tasklib.errors import TaskLibError
from tasklib.server.problems import Problem
from tasklib.store import tokens

if TYPE_CHECKING:  # which knows the services, which know this
    from tasklib.server.access import Principal

LOOK_SECONDS = 0.5
"""How often the database is asked, by one statement for all who wait."""
T = TypeVar("T")


class WaitingRequest:
    """A request that waits; over when its token has ended."""

    def __init__(self, prefix: str | None) -> None:
        self.prefix = prefix
        """Of its token; None if it came without one."""
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return self._end.done()

    def end(self) -> None:
        if not self._end.done():
            self._end.set_result(None)

    async def unless_over(self, awaited: Coroutine[Any, Any, T]) -> T:
        """Await this; once the token has ended, stop it and raise a Problem instead."""
        task = asyncio.ensure_future(awaited)
        either: set[asyncio.Future[Any]] = {task, self._end}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise token_ended()
            return task.result()
        finally:
            task.cancel()


class TokenWatch:
    """Watches all waiting requests. `is_open`: whether no token is needed; `on_end` wakes long-polling requests."""

    def __init__(self, client: AsyncClient, is_open: Callable[[], Awaitable[bool]], on_end: Callable[[], None]) -> None:
        self._client = client
        self._is_open = is_open
        self._on_end = on_end
        self._waiting: set[WaitingRequest] = set()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look_for_ever())

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking

    @contextmanager
    def waiting(self, principal: Principal) -> Iterator[WaitingRequest]:
        """A request of this principal, while it waits."""
        waiting = WaitingRequest(principal.prefix)
        self._waiting.add(waiting)
        try:
            yield waiting
        finally:
            self._waiting.discard(waiting)

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            # While the database is away there is nothing to give out either.
            with suppress(TaskLibError, psycopg.Error, OSError):
                await self._look()

    async def _look(self) -> None:
        if not self._waiting:
            return
        asked = set(self._waiting)
        prefixes = {w.prefix for w in asked if w.prefix is not None}
        good: set[str | None] = set()
        if prefixes:
            usable: set[str] = await self._client.perform(once(tokens.usable(prefixes)))
            good |= usable
        if any(w.prefix is None for w in asked) and await self._is_open():
            good.add(None)
        if ended := [w for w in asked if w.prefix not in good]:
            for waiting in ended:
                waiting.end()
            self._on_end()


def token_ended() -> Problem:
    """The answer to a request with an invalid token."""
    return Problem(
        401,
        "token_invalid",
        "The token doesn't open anything",
        "It is unknown, revoked or expired. Create one with: tasklib token create",
        headers={"WWW-Authenticate": 'Bearer realm="tasklib", error="invalid_token"'},
    )
