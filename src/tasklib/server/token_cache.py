"""Tokens: which ones open, looked up in the database and remembered for half a second, and which are in use.

with services.token_watch.waiting(principal) as waiting:    # a request that waits ends soon after its token has ended
    changed = await waiting.unless_over(wait_for_change())  # a Problem, 401, if the token has ended
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from uuid import UUID

import psycopg

from tasklib.db.query import Runs
from tasklib.errors import TaskLibError
from tasklib.server.problems import Problem
from tasklib.store import tokens
from tasklib.store.tokens import StoredToken

if TYPE_CHECKING:  # which knows the services, which know this
    from tasklib.server.access import Principal

FRESH_SECONDS = 0.5
"""How long an answer of the database holds: a revoked token opens for this long at most."""
_MOST_REMEMBERED = 10_000
_NOTE_SECONDS, _NOTED_SECONDS = 5.0, 60.0
LOOK_SECONDS = 0.5
"""How often the database is asked about the tokens of requests that wait, by one statement for all of them."""
T = TypeVar("T")


class _Repeated(ABC):
    """Something that is done again and again while the server runs; an error of the database only delays it."""

    _EVERY_SECONDS: ClassVar[float]
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._repeat_for_ever())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _repeat_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._EVERY_SECONDS)
            with suppress(TaskLibError, psycopg.Error, OSError):
                await self._repeat()

    @abstractmethod
    async def _repeat(self) -> None: ...


@dataclass(slots=True)
class _Known:
    """A look-up of a token, and how long its answer holds."""

    until: float
    looking: asyncio.Future[StoredToken | None]

    @property
    def has_failed(self) -> bool:
        return self.looking.done() and (self.looking.cancelled() or self.looking.exception() is not None)

    @property
    def opens(self) -> str | None:
        """The prefix of the token that was found."""
        stored = self.looking.result() if self.looking.done() and not self.has_failed else None
        return stored.prefix if stored is not None else None


class TokenCache(_Repeated):
    """`await token_cache.find(text)` for a token that opens; `await token_cache.is_open()` where none is needed."""

    _EVERY_SECONDS = _NOTE_SECONDS

    def __init__(self, db: Runs, *, is_open: bool) -> None:
        self._db = db
        self._is_open = is_open
        self._open_until = time.monotonic() + FRESH_SECONDS
        self._known: dict[bytes, _Known] = {}
        """What was looked up, by a digest of the token: what follows from the same text need not be found out again."""
        self._used: dict[UUID, float] = {}
        self._to_note: set[UUID] = set()

    async def close(self) -> None:
        await super().close()
        with suppress(TaskLibError, psycopg.Error, OSError):
            await self._repeat()

    async def find(self, text: str) -> StoredToken | None:
        """The token with this text if it may be used; using it is noted."""
        stored = await self._stored(text)
        if stored is not None:
            self._note_use(stored.id)
        return stored

    async def is_open(self) -> bool:
        """True with `no_auth`, if no token was ever created. The first token ends it for
        good: the server must not become public because a token expires or is revoked."""
        if self._is_open and time.monotonic() > self._open_until:
            self._is_open = not await self._db.run(tokens.any_ever())
            self._open_until = time.monotonic() + FRESH_SECONDS
        return self._is_open

    def forget(self) -> None:
        """Read the database again for the next request; after a token was created or revoked here."""
        self._known.clear()
        self._open_until = 0.0

    def confirm(self, prefixes: Iterable[str], asked_at: float) -> None:
        """These tokens could be used at this moment: what is known of them holds for a while longer."""
        usable = frozenset(prefixes)
        for known in self._known.values():
            if known.opens in usable:
                known.until = max(known.until, asked_at + FRESH_SECONDS)

    async def _stored(self, text: str) -> StoredToken | None:
        digest, now = hashlib.sha256(text.encode("utf-8", "replace")).digest(), time.monotonic()
        known = self._known.get(digest)
        if known is None or known.until < now or known.has_failed:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            # One look-up for all who ask at the same time; none of them ends it for the others.
            known = self._known[digest] = _Known(now + FRESH_SECONDS, asyncio.ensure_future(self._look(text)))
        return await asyncio.shield(known.looking)

    async def _look(self, text: str) -> StoredToken | None:
        prefix = tokens.prefix_of(text)
        stored = None if prefix is None else await self._db.run(tokens.find(prefix))
        return stored if stored is not None and stored.opens_with(text) else None

    def _note_use(self, id_: UUID) -> None:
        now = time.monotonic()
        if self._used.get(id_, -_NOTED_SECONDS) + _NOTED_SECONDS <= now:
            self._used[id_] = now
            self._to_note.add(id_)

    async def _repeat(self) -> None:
        """Write down which tokens were used."""
        ids, self._to_note = self._to_note, set()
        if ids:
            await self._db.run(tokens.used(ids))


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


class TokenWatch(_Repeated):
    """Watches all waiting requests; `on_end` wakes long-polling requests.

    A worker always has one, so its other requests need no look at its token.
    """

    _EVERY_SECONDS = LOOK_SECONDS

    def __init__(self, db: Runs, cache: TokenCache, on_end: Callable[[], None]) -> None:
        self._db = db
        self._cache = cache
        self._on_end = on_end
        self._waiting: set[WaitingRequest] = set()

    @contextmanager
    def waiting(self, principal: Principal) -> Iterator[WaitingRequest]:
        """A request of this principal, while it waits."""
        waiting = WaitingRequest(principal.prefix)
        self._waiting.add(waiting)
        try:
            yield waiting
        finally:
            self._waiting.discard(waiting)

    async def _repeat(self) -> None:
        if not self._waiting:
            return
        asked = set(self._waiting)
        prefixes = {w.prefix for w in asked if w.prefix is not None}
        good: set[str | None] = set()
        if prefixes:
            asked_at = time.monotonic()
            usable: set[str] = await self._db.run(tokens.usable(prefixes))
            self._cache.confirm(usable, asked_at)
            good |= usable
        if any(w.prefix is None for w in asked) and await self._cache.is_open():
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
