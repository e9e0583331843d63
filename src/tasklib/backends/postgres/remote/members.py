"""The workers over HTTP: the token of each, and the tasks it takes."""

from __future__ import annotations

import re
import secrets
import time
from uuid import UUID

from tasklib.backends.backend import Registration
from tasklib.backends.postgres.lanes import Lanes
from tasklib.backends.postgres.registration import registered
from tasklib.backends.postgres.sleep import Sleep, Wakeup, not_registered
from tasklib.config import Config
from tasklib.db.query import Runs
from tasklib.store import fleet
from tasklib.store.claim import Served
from tasklib.store.fleet import Registered

_FRESH_SECONDS = 10.0
"""How long a read of the table is valid."""
_SURE_SECONDS = 1.0
"""Before tasks are handed out, a read of the table, or a heartbeat, is valid only for this long."""
_MOST_REMEMBERED = 10_000
_DEAD_TOO = 10
"""How many times as many workers of a token may be in the table, if those that died are counted."""
_NO_TOKEN = UUID(int=0)
"""Stands in `workers.token_id` for one that came without a token: null is for workers with a database of their own."""


class Member:
    """A worker that came over HTTP, as far as this server knows it."""

    def __init__(self, db: Runs, id_: str, token_id: UUID, row: Registered, lanes: Lanes) -> None:
        self.id = id_
        self.token_id = token_id
        self.newest_poll = 0
        """Grows with each poll, and when it leaves: only the newest poll is still read by the worker."""
        self.polling: Wakeup | None = None
        """Wakes the poll that waits."""
        self.lanes = lanes
        self.sleep = Sleep(db, lanes, id_ if row.asleep else None)
        self.sure_until = 0.0
        self.told: frozenset[object] = frozenset()
        """The content of the last heartbeat's answer, to recognise changes."""
        self.update(row)

    def update(self, row: Registered) -> None:
        self.status = row.status
        self.is_draining = row.status == "draining"
        self.served = Served(row.names, row.queues, row.capabilities)
        self.fresh_until = time.monotonic() + _FRESH_SECONDS
        if row.status != "dead":
            self.is_known_to_live()

    def is_known_to_live(self) -> None:
        """The table has just said so: for a moment it need not be asked before tasks are handed out."""
        self.sure_until = time.monotonic() + _SURE_SECONDS


class Members:
    """Finds and remembers them. Another token's workers are as unknown as none."""

    def __init__(self, config: Config, db: Runs) -> None:
        self._config = config
        self._db = db
        self._known: dict[str, Member] = {}

    async def register(self, token_id: UUID | None, name: str, me: Registration) -> Member:
        """A new member, under a fresh id that begins with this name."""
        id_ = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)[:80]}-{secrets.token_hex(6)}"
        served = me.served
        await self._db.run(registered(id_, me, self._config, token_id or _NO_TOKEN))
        row = Registered(
            "active",
            list(served.queues) if served.queues is not None else None,
            list(served.names) if served.names is not None else None,
            list(served.capabilities),
            me.capacity,
            None,
            False,
        )
        return self._remember(self._member(id_, token_id or _NO_TOKEN, row))

    async def has_room(self, token_id: UUID | None, most: int) -> bool:
        """Whether a token may register one more worker: counted are live ones, and the dead that are remembered."""
        live, known = await self._db.run(fleet.workers_of(token_id or _NO_TOKEN))
        return live < most and known < _DEAD_TOO * most

    async def find(self, token_id: UUID | None, id_: str, *, dead_too: bool = False) -> Member:
        """The worker with this id; WorkerNotFound unless it came with this token, and lives."""
        member = self._known.get(id_)
        if member is None or member.fresh_until < time.monotonic():
            member = await self._look(id_, member)
        if member is None or member.token_id != (token_id or _NO_TOKEN):
            raise not_registered(id_)
        if member.status == "dead" and not dead_too:
            raise not_registered(id_)
        return member

    def known(self, id_: str) -> Member | None:
        """The worker with this id, if this server knows it."""
        return self._known.get(id_)

    async def lives(self, member: Member) -> bool:
        """False if it was declared dead since the last check."""
        found = await self._look(member.id, member)
        if found is None or found.status == "dead":
            self.forget(member)
            return False
        return True

    def forget(self, member: Member) -> None:
        """It has left, or was declared dead."""
        member.newest_poll += 1
        self._known.pop(member.id, None)

    async def _look(self, id_: str, known: Member | None) -> Member | None:
        row = await self._db.run(fleet.worker(id_))
        if row is None or row.token_id is None:
            if known is not None:
                self.forget(known)
            return None
        if known is None:
            # Another request may have found it meanwhile.
            return self._known.get(id_) or self._remember(self._member(id_, UUID(row.token_id), row))
        known.update(row)
        return known

    def _member(self, id_: str, token_id: UUID, row: Registered) -> Member:
        lanes = Lanes(
            self._db,
            self._config.lock_timeout_seconds,
            self._config.promote_to_medium_after_seconds,
            self._config.promote_to_high_after_seconds,
        )
        return Member(self._db, id_, token_id, row, lanes)

    def _remember(self, member: Member) -> Member:
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()  # the table still knows them
        self._known[member.id] = member
        return member
