"""Everything the worker protocol does: one for the whole server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from tasklib.config import Config
from tasklib.server.notifier import Notifier
from tasklib.server.remote.links import Links
from tasklib.server.remote.polls import Found, Gone, Poll, Polls
from tasklib.server.remote.registered import Member, Members, not_found
from tasklib.server.remote.request_models import (
    BeginBody,
    HeartbeatBody,
    LeaseBody,
    ProgressBody,
    ResultBody,
    WorkerStatus,
)
from tasklib.server.remote.results import Results, Verdict
from tasklib.store import claim, control, fleet, settle
from tasklib.store.settle import Lease
from tasklib.tasks.payload import UnstorableValue, dump

_CLAIM_LINKS, _SETTLE_LINKS = 2, 2
_LOOK_EVERY_SECONDS = 10.0
_SAME_AGAIN_SECONDS = 1.0
"""A waiting heartbeat is answered after this long if all there is to say was said in the last answer."""


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
        self._claiming = Links(config, "claim", _CLAIM_LINKS)
        self._settling = Links(config, "settle", _SETTLE_LINKS)
        self.control = Links(config, "control", 1)
        """One connection for what is short: heartbeats, registrations, the server's own part in the election."""
        self.members = Members(self.control, config.heartbeat_timeout_seconds)
        self._polls = Polls(config, notifier, self.members, self._claiming, self._settling, self.control)
        self._results = Results(config, self._settling)

    async def poll(self, member: Member, poll: Poll, gone: Gone) -> Found:
        return await self._polls.answer(member, poll, gone)

    async def store(self, member: Member, results: Sequence[ResultBody]) -> list[Verdict]:
        return await self._results.store(member.id, results)

    async def begin(self, member: Member, begins: Sequence[BeginBody]) -> tuple[list[Lease], list[Lease]]:
        """Put on record that these attempts begin; those that may, and those that are not the worker's own any more."""
        wanted = {lease: body.at_most_once for lease, body in zip(leases_of(begins), begins, strict=True)}
        ours = await self._settling.run(settle.begin(sorted(wanted.items()), member.id))
        return [lease for lease in wanted if lease.id in ours], [lease for lease in wanted if lease.id not in ours]

    async def progress(
        self, member: Member, reports: Sequence[ProgressBody]
    ) -> tuple[list[Lease], list[tuple[Lease, str]]]:
        """Store them; those that are not the worker's own any more, and those that can't be stored, with the reason."""
        texts: dict[Lease, str] = {}
        refused: list[tuple[Lease, str]] = []
        for lease, report in zip(leases_of(reports), reports, strict=True):
            try:
                texts[lease] = dump(report.progress)
            except UnstorableValue as e:
                refused.append((lease, str(e)))
        ours = await self._settling.run(settle.progress(sorted(texts.items()), member.id))
        missing = [lease for lease in texts if lease.id not in ours]
        locked = await self._settling.run(settle.still_held(missing, member.id)) if missing else set()
        return [lease for lease in missing if lease.id not in locked], refused

    async def heartbeat(self, member: Member, body: HeartbeatBody, gone: Gone) -> Heard:
        """What the worker should know: at once, or when there is something of it in time."""
        began = time.monotonic()
        drains = body.status is WorkerStatus.DRAINING
        drain = await self._beat(member, load=body.current_load, draining=drains, names=body.task_types)
        if member.is_draining is not drains:
            member.is_draining = drains
            self._notifier.ring()  # its poll has nothing to wait for, or may take tasks again
        lost, locked = await self._extend(member, body.running)
        known = {str(id_) for id_ in body.cancelling}
        while True:
            mark = self._notifier.mark(orders=True)
            cancel = [c for c in await self.control.run(control.cancel_requests_of(member.id)) if c.id not in known]
            news = frozenset({*lost, *cancel, *(("drain",) if drain and not drains else ())})
            wait = min(body.wait_seconds, _SAME_AGAIN_SECONDS) if news else body.wait_seconds
            left = began + wait - time.monotonic()
            if left <= 0 or news - member.told or self._notifier.is_stopped or await gone():
                member.told = news
                return Heard(drain, cancel, lost, locked)
            # Now and then without being told: a notification may get lost.
            await self._notifier.wait(min(left, _LOOK_EVERY_SECONDS), since=mark, orders=True)
            if await gone():  # a worker that was killed must not be kept alive by the request it left behind
                return Heard(drain, cancel, lost, locked)
            drain = await self._beat(member)

    async def leave(self, member: Member) -> None:
        """The worker goes, and holds nothing: what it was given and never got goes back."""
        self.members.forget(member)
        self._notifier.ring()
        held = await self._claiming.run(claim.leases_of(member.id))
        await self._polls.release(member, held)
        await self.control.run(fleet.deregister(member.id))

    async def close(self) -> None:
        await self._polls.close()
        for links in (self._claiming, self._settling, self.control):
            links.close()

    async def _beat(
        self,
        member: Member,
        *,
        load: int | None = None,
        draining: bool | None = None,
        names: Sequence[str] | None = None,
    ) -> bool:
        """Keep it alive; None leaves what an earlier heartbeat said. Whether it was asked to drain."""
        drain = await self.control.run(fleet.heartbeat(member.id, load=load, draining=draining, names=names))
        if drain is None:
            self.members.forget(member)
            raise not_found(member.id)
        member.is_known_to_live()
        if names is not None:
            member.fresh_until = 0.0  # it serves others from now on
        return drain

    async def _extend(self, member: Member, running: Sequence[LeaseBody]) -> tuple[list[Lease], list[Lease]]:
        """Those that are lost, and those that were not extended because another transaction holds their rows."""
        held = sorted(set(leases_of(running)))
        if not held:
            return [], []
        kept = await self._settling.run(settle.extend(held, member.id, self._config.lock_timeout_seconds))
        missing = [lease for lease in held if lease.id not in kept]
        if not missing:
            return [], []
        locked = await self._settling.run(settle.still_held(missing, member.id, unexpired=True))
        return [m for m in missing if m.id not in locked], [m for m in missing if m.id in locked]


def leases_of(bodies: Sequence[LeaseBody]) -> list[Lease]:
    return [Lease(str(body.task_id), body.lease_token) for body in bodies]
