"""Who is registered: which token a worker came with, and what it takes."""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING
from uuid import UUID

from tasklib.server.caps import token_limit
from tasklib.server.problems import Problem
from tasklib.server.remote.links import Links
from tasklib.server.remote.request_models import RegisterBody
from tasklib.store import fleet
from tasklib.store.claim import Served
from tasklib.store.fleet import Registered

if TYPE_CHECKING:  # which knows the services, which know the members
    from tasklib.server.access import Principal

_FRESH_SECONDS = 10.0
"""How long a look at the table holds."""
_SURE_SECONDS = 1.0
"""Before tasks are handed out, a look at the table, or a heartbeat, holds only for this long."""
_MOST_REMEMBERED = 10_000
_DEAD_TOO = 10
"""How many times as many workers of a token may be in the table, if those that died are counted."""
_NOBODY = UUID(int=0)
"""Stands in `workers.token_id` for whoever came without a token: null is for workers with a database of their own."""


class Member:
    """A worker that came over HTTP, as far as this server knows it."""

    def __init__(self, id_: str, token_id: UUID, row: Registered) -> None:
        self.id = id_
        self.token_id = token_id
        self.newest_poll = 0
        """Grows with each poll, and when it leaves: a poll that isn't the newest has nobody who would read it."""
        self.is_announced = row.asleep
        """Producers may have been told that it sleeps."""
        self.relies_on_notification = False
        self.unaware_before: int | None = None
        """Writers before this one may not know that it sleeps; None until they were told, and once they are over."""
        self.awake_since = time.monotonic()
        self.sure_until = 0.0
        self.told: frozenset[object] = frozenset()
        """What the last heartbeat was told: to hear the same again is no news."""
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

    def __init__(self, control: Links, heartbeat_timeout: float) -> None:
        self._control = control
        self._heartbeat_timeout = heartbeat_timeout
        self._known: dict[str, Member] = {}

    async def register(self, principal: Principal, body: RegisterBody) -> tuple[Member, tuple[str, ...] | None]:
        """A new member, and the queues it gets tasks from."""
        queues = _allowed_queues(principal, body.queues)
        id_ = _fresh_id(body)
        capabilities = sorted(set(body.capabilities))
        await self._control.run(
            fleet.register(
                id_,
                queues=queues,
                names=body.task_types,
                capabilities=capabilities,
                capacity=body.capacity,
                version=body.version,
                host=body.host,
                pid=body.pid,
                heartbeat_timeout=self._heartbeat_timeout,
                token_id=principal.token_id or _NOBODY,
            )
        )
        row = Registered(
            "active",
            list(queues) if queues is not None else None,
            body.task_types,
            capabilities,
            body.capacity,
            None,
            False,
        )
        return self._remember(Member(id_, principal.token_id or _NOBODY, row)), queues

    async def check_room(self, principal: Principal, most: int) -> None:
        """429 if a token has registered too many workers: live ones, or with the dead that are still remembered."""
        live, known = await self._control.run(fleet.workers_of(principal.token_id or _NOBODY))
        if live >= most or known >= _DEAD_TOO * most:
            raise token_limit("registered workers", "max_workers_per_token", most)

    async def find(self, principal: Principal, id_: str, *, dead_too: bool = False) -> Member:
        """The worker with this id, if it came with this token and lives; 404 otherwise."""
        member = self._known.get(id_)
        if member is None or member.fresh_until < time.monotonic():
            member = await self._look(id_, member)
        if member is None or member.token_id != (principal.token_id or _NOBODY):
            raise not_found(id_)
        if member.status == "dead" and not dead_too:
            raise not_found(id_)
        return member

    async def lives(self, member: Member) -> bool:
        """False if it was declared dead since it was last looked at."""
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
        row = await self._control.run(fleet.worker(id_))
        if row is None or row.token_id is None:
            if known is not None:
                self.forget(known)
            return None
        if known is None:
            # Another request may have found it meanwhile.
            return self._known.get(id_) or self._remember(Member(id_, UUID(row.token_id), row))
        known.update(row)
        return known

    def _remember(self, member: Member) -> Member:
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()  # the table still knows them
        self._known[member.id] = member
        return member


def not_found(id_: str) -> Problem:
    """What a worker has to hear that is unknown, dead, or somebody else's: it has to register anew."""
    return Problem(
        404,
        "worker_not_found",
        "No such worker",
        f"No live worker of this token has the id {id_[:200]}. If it was yours, its tasks are gone: register anew.",
    )


def _allowed_queues(principal: Principal, asked: list[str] | None) -> tuple[str, ...] | None:
    allowed = principal.queues
    if allowed is None:
        return tuple(asked) if asked is not None else None
    if others := [queue for queue in asked or () if queue not in allowed]:
        raise Problem(
            403,
            "queue_not_allowed",
            "The token doesn't open these queues",
            f"This token is for workers of {', '.join(allowed)} only, not of {', '.join(others)[:500]}.",
            queues=list(allowed),
        )
    return tuple(asked) if asked is not None else allowed


def _fresh_id(body: RegisterBody) -> str:
    """An id nobody has had before, that fits into a path as it is."""
    readable = body.name or f"{body.host or 'worker'}-{body.pid}"
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', readable)[:80]}-{secrets.token_hex(6)}"
