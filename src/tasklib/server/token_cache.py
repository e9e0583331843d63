"""Which tokens open: looked up in the database, remembered for half a second, their use noted."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from uuid import UUID

import psycopg

from tasklib.client.async_clients import AsyncClient
from tasklib.client.effects import once
from tasklib.errors import TaskLibError
from tasklib.store import tokens
from tasklib.store.tokens import StoredToken

FRESH_SECONDS = 0.5
"""How long an answer of the database holds: a revoked token opens for this long at most."""
_MOST_REMEMBERED = 10_000
_NOTE_SECONDS, _NOTED_SECONDS = 5.0, 60.0


class TokenCache:
    """`await token_cache.find(text)` for a token that opens; `await token_cache.is_open()` where none is needed."""

    def __init__(self, client: AsyncClient, *, is_open: bool) -> None:
        self._client = client
        self._is_open = is_open
        self._open_until = time.monotonic() + FRESH_SECONDS
        self._known: dict[str, tuple[float, asyncio.Future[StoredToken | None]]] = {}
        self._used: dict[UUID, float] = {}
        self._to_note: set[UUID] = set()
        self._noting: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._noting = asyncio.create_task(self._note_for_ever())

    async def close(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
            with suppress(asyncio.CancelledError):
                await self._noting
        await self._note()

    async def find(self, text: str) -> StoredToken | None:
        """The token with this text if it may be used; using it is noted."""
        prefix = tokens.prefix_of(text)
        if prefix is None:
            return None
        stored = await self._stored(prefix)
        if stored is None or not stored.opens_with(text):
            return None
        self._note_use(stored.id)
        return stored

    async def is_open(self) -> bool:
        """True with `no_auth`, if no token was ever created. The first token ends it for
        good: the server must not become public because a token expires or is revoked."""
        if self._is_open and time.monotonic() > self._open_until:
            self._is_open = not await self._client.perform(once(tokens.any_ever()))
            self._open_until = time.monotonic() + FRESH_SECONDS
        return self._is_open

    def forget(self) -> None:
        """Read the database again for the next request; after a token was created or revoked here."""
        self._known.clear()
        self._open_until = 0.0

    async def _stored(self, prefix: str) -> StoredToken | None:
        known = self._known.get(prefix)
        now = time.monotonic()
        if known is None or known[0] < now or _has_failed(known[1]):
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            # One look-up for all who ask at the same time; none of them ends it for the others.
            looking = asyncio.ensure_future(self._client.perform(once(tokens.find(prefix))))
            known = self._known[prefix] = (now + FRESH_SECONDS, looking)
        return await asyncio.shield(known[1])

    def _note_use(self, id_: UUID) -> None:
        now = time.monotonic()
        if self._used.get(id_, -_NOTED_SECONDS) + _NOTED_SECONDS <= now:
            self._used[id_] = now
            self._to_note.add(id_)

    async def _note_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_SECONDS)
            await self._note()

    async def _note(self) -> None:
        """Write down which tokens were used; what the database doesn't take now is not worth an error."""
        ids, self._to_note = self._to_note, set()
        if ids:
            with suppress(TaskLibError, psycopg.Error, OSError):
                await self._client.perform(once(tokens.used(ids)))


def _has_failed(looking: asyncio.Future[StoredToken | None]) -> bool:
    return looking.done() and (looking.cancelled() or looking.exception() is not None)
