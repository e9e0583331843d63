"""Everything that a server does for its workers: one of each for the whole server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tasklib.backends.postgres.notifier import Notifier
from tasklib.backends.postgres.places import PostgresPlaces
from tasklib.backends.postgres.registration import leave
from tasklib.backends.postgres.remote.members import Member, Members
from tasklib.backends.postgres.remote.polls import Gone, Polls
from tasklib.backends.postgres.remote.results import RemoteResults
from tasklib.backends.postgres.settlements import PostgresSettlements, extension, run_steps
from tasklib.backends.postgres.sleep import not_registered
from tasklib.config import Config
from tasklib.db.reconnecting import ReconnectingPool
from tasklib.store import control, fleet
from tasklib.store.settle import Lease

_MOST_CONNECTIONS = 5
_LOOK_EVERY_SECONDS = 10.0
_SAME_AGAIN_SECONDS = 1.0
"""A waiting heartbeat is answered after this long if all there is to say was said in the last answer."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker says with its heartbeat."""

    load: int | None = None
    drains: bool = False
    names: Sequence[str] | None = None
    running: Sequence[Lease] = ()
    """The leases to extend."""
    cancelling: frozenset[str] = field(default_factory=frozenset)
    """Tasks that it knows to be cancelled."""
    wait_seconds: float = 0.0


class Heard(NamedTuple):
    """The answer to a heartbeat."""

    drain: bool
    cancel: list[Lease]
    lost: list[Lease]
    locked: list[Lease]


class RemoteWorkers:
    """Claims, settles and beats for workers that have no database of their own."""

    def __init__(self, config: Config, notifier: Notifier) -> None:
        self._config = config
        self._notifier = notifier
        self.db = ReconnectingPool(config, "tasks", _MOST_CONNECTIONS)
        self.members = Members(config, self.db)
        self._settlements = PostgresSettlements(config, self.db)
        self.polls = Polls(config, self.db, notifier, self.members, self._settlements.folds.idle)
        self.results = RemoteResults(config, self.db, self._settlements)
        self.places = PostgresPlaces(self.db)

    async def begin(self, member: Member, wanted: Mapping[Lease, bool]) -> tuple[list[Lease], list[Lease]]:
        """Record that these attempts begin; returns those that may, and those that the worker doesn't hold any more."""
        ours = await self._settlements.begin(member.id, sorted(wanted.items()))
        return [lease for lease in wanted if lease.id in ours], [lease for lease in wanted if lease.id not in ours]

    async def progress(self, member: Member, texts: Mapping[Lease, str]) -> list[Lease]:
        """Store these; those that are not the worker's own any more."""
        ours, locked = await self._settlements.progress(member.id, sorted(texts.items()))
        return [lease for lease in texts if lease.id not in ours and lease.id not in locked]

    async def heartbeat(self, member: Member, beat: Beat, gone: Gone) -> Heard:
        """What the worker should know: at once, or when there is something of it in time."""
        began = time.monotonic()
        drain = await self._beat(member, load=beat.load, draining=beat.drains, names=beat.names)
        if member.is_draining is not beat.drains:
            member.is_draining = beat.drains
            self._notifier.ring()  # its poll has nothing to wait for, or may take tasks again
        lost, locked = await self._extend(member, beat.running)
        while True:
            mark = self._notifier.mark(orders=True)
            asked = await self.db.run(control.cancel_requests_of(member.id))
            cancel = [lease for lease in asked if lease.id not in beat.cancelling]
            changes = frozenset({*lost, *cancel, *(("drain",) if drain and not beat.drains else ())})
            wait = min(beat.wait_seconds, _SAME_AGAIN_SECONDS) if changes else beat.wait_seconds
            left = began + wait - time.monotonic()
            if left <= 0 or changes - member.told or self._notifier.is_stopped or await gone():
                member.told = changes
                return Heard(drain, cancel, lost, locked)
            # Also by polling: a notification may get lost.
            await self._notifier.wait(min(left, _LOOK_EVERY_SECONDS), since=mark, orders=True)
            if await gone():  # a worker that was killed must not be kept alive by the request it left behind
                return Heard(drain, cancel, lost, locked)
            drain = await self._beat(member)

    async def leave(self, member: Member) -> None:
        """The worker leaves, and holds nothing: tasks that it never received are released."""
        self.members.forget(member)
        self._notifier.ring()
        await leave(self.db, member.id)

    async def close(self) -> None:
        await self.polls.close()
        await self.results.close()
        self.db.drop()

    async def _beat(
        self,
        member: Member,
        *,
        load: int | None = None,
        draining: bool | None = None,
        names: Sequence[str] | None = None,
    ) -> bool:
        """Keep it alive; None leaves what an earlier heartbeat said. Whether it was asked to drain."""
        drain = await self.db.run(fleet.heartbeat(member.id, load=load, draining=draining, names=names))
        if drain is None:
            self.members.forget(member)
            raise not_registered(member.id)
        member.is_known_to_live()
        if names is not None:
            member.fresh_until = 0.0  # it serves others from now on
        return drain

    async def _extend(self, member: Member, running: Sequence[Lease]) -> tuple[list[Lease], list[Lease]]:
        """Those that are lost, and those that were not extended because another transaction holds their rows."""
        held = sorted(set(running))
        if not held:
            return [], []
        ours, locked = await run_steps(self.db, extension(held, member.id, self._config.lock_timeout_seconds))
        lost = [lease for lease in held if lease.id not in ours and lease.id not in locked]
        return lost, [lease for lease in held if lease.id in locked]
