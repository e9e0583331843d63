"""Writing how attempts ended, begin and get on: for one worker, or for all that a server stands in for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import psycopg

from tasklib.backends.postgres.gates import GateFolds
from tasklib.config import Config
from tasklib.db.failures import is_bad_data
from tasklib.db.query import Query, Runs
from tasklib.store import durable, settle
from tasklib.store.claim import Claimed
from tasklib.store.durable import Suspension
from tasklib.store.settle import Completion, Failure, Kept, Lease, Leased, Settled

T = TypeVar("T")
Steps = Generator[Query[Any], Any, T]
"""Queries, each of which is answered with its rows as read; one implementation for sync and async callers."""


class PostgresSettlements:
    """Every write is guarded by the lease's token and the worker, and says which rows it still found to be theirs."""

    def __init__(self, config: Config, db: Runs) -> None:
        self._config = config
        self._db = db
        self.folds = GateFolds(db)

    async def complete(
        self, worker_id: str, completions: Sequence[Completion], /, *, again: bool, contended: bool = False
    ) -> Settled:
        try:
            ours = await self._completed(worker_id, completions, contended=contended)
        except psycopg.Error as e:
            if len(completions) == 1:
                return _refused(completions[0].lease, "the return value", e)
            return await _one_by_one(
                e, completions, lambda one: self.complete(worker_id, one, again=again, contended=contended)
            )
        if len(ours) == len(completions):
            return Settled(dict.fromkeys(ours, "completed"))
        return await self._judged(worker_id, [c.lease for c in completions], dict.fromkeys(ours, "completed"), again)

    async def _completed(self, worker_id: str, completions: Sequence[Completion], *, contended: bool) -> set[str]:
        """The ids of those that were still ours; the gates that count them are folded."""
        if contended or not isinstance(completions[0].lease, Lease):
            query = settle.complete(completions, worker_id, contended=contended)
            ours = await self._db.run(query)
            if query.name != settle.COMPLETE_PLAIN:
                self.committed([c.lease for c in completions])
            return ours
        completed = await self._db.run(settle.complete_leases(completions, worker_id))
        if completed.gates:
            self.folds.arrived(completed.gates)
        if len(completed.ours) < len(completions):  # if an answer was lost, the others may have arrived before
            self.folds.arrived(None)
        return completed.ours

    async def fail(self, worker_id: str, failures: Sequence[Failure], /, *, again: bool) -> Settled:
        try:
            states = await self._db.run(settle.fail(failures, worker_id, self._config.crash_limit))
        except psycopg.Error as e:
            if len(failures) > 1:
                return await _one_by_one(e, failures, lambda one: self.fail(worker_id, one, again=again))
            failure = failures[0]
            if (escaped := _escaped(failure.error)) == failure.error:
                return _refused(failure.lease, "the error", e)
            return await self.fail(worker_id, [replace(failure, error=escaped)], again=again)
        self.committed([f.lease for f in failures if states.get(f.lease.id) != "failed"])
        return await self._judged(worker_id, [f.lease for f in failures], states, again)

    async def release(self, worker_id: str, leases: Sequence[Leased], /, *, again: bool) -> Settled:
        states = await self._db.run(settle.release(leases, worker_id))
        self.committed([lease for lease in leases if states.get(lease.id) == "cancelled"])
        return await self._judged(worker_id, leases, states, again, releasing=True)

    async def stop(self, worker_id: str, stopped: Sequence[tuple[Leased, str]], /, *, again: bool) -> Settled:
        try:
            ours = await self._db.run(settle.stop(stopped, worker_id))
        except psycopg.Error as e:
            if len(stopped) > 1:
                return await _one_by_one(e, stopped, lambda one: self.stop(worker_id, one, again=again))
            lease, error = stopped[0]
            if (escaped := _escaped(error)) == error:
                return _refused(lease, "the error", e)
            return await self.stop(worker_id, [(lease, escaped)], again=again)
        leases = [lease for lease, _ in stopped]
        self.committed(leases)
        return await self._judged(worker_id, leases, dict.fromkeys(ours, "cancelled"), again)

    async def suspend(self, worker_id: str, suspensions: Sequence[Suspension], /, *, again: bool) -> Settled:
        try:
            states = await self._db.run(durable.suspend(suspensions, worker_id))
        except psycopg.Error as e:
            if len(suspensions) == 1:
                return _refused(suspensions[0].lease, "the suspension", e)
            return await _one_by_one(e, suspensions, lambda one: self.suspend(worker_id, one, again=again))
        self.committed([s.lease for s in suspensions if states.get(s.lease.id) == "cancelled"])
        return await self._judged(worker_id, [s.lease for s in suspensions], states, again)

    def committed(self, leases: Iterable[Leased]) -> None:
        """The ends of these tasks are stored: count them in the gates they report to."""
        # What the claim says of gates is the same text for all tasks of a group: one of each text will do.
        for lease in {c.trace_context if isinstance(c, Claimed) else "": c for c in leases}.values():
            if lease.reports:
                part = lease.in_flow if isinstance(lease, Claimed) else None
                self.folds.arrived(None if part is None else part.reports_to)

    async def begin(self, worker_id: str, begins: Sequence[tuple[Leased, bool]]) -> set[str]:
        return await self._db.run(settle.begin(begins, worker_id))

    async def progress(self, worker_id: str, reports: Sequence[tuple[Leased, str]]) -> Kept:
        leases = [lease for lease, _ in reports]
        return await run_steps(self._db, kept(settle.progress(reports, worker_id), leases, worker_id))

    async def _judged(
        self,
        worker_id: str,
        leases: Sequence[Leased],
        states: dict[str, str],
        again: bool,
        *,
        releasing: bool = False,
    ) -> Settled:
        """What a write left out is not ours any more, or locked; or, after a lost answer, settled already."""
        missing = [lease for lease in leases if lease.id not in states]
        if not missing:
            return Settled(states)
        locked = await self._db.run(settle.still_held(missing, worker_id, releasing=releasing))
        over = await self._db.run(settle.settled(missing)) if again else set()
        return Settled(states, locked, over=over)


def kept(write: Query[set[str]], leases: Sequence[Leased], worker_id: str, *, unexpired: bool = False) -> Steps[Kept]:
    """Run a write that reads the ids of those that were still ours, and see what became of the others.

    `unexpired`: only leases that had not run out can be ours.
    """
    ours: set[str] = yield write
    missing = [lease for lease in leases if lease.id not in ours]
    locked: set[str] = set()
    if missing:
        locked = yield settle.still_held(missing, worker_id, unexpired=unexpired)
    return Kept(ours, locked)


def extension(leases: Sequence[Leased], worker_id: str, lease_seconds: float) -> Steps[Kept]:
    """Extend leases, and see which are still ours."""
    return kept(settle.extend(leases, worker_id, lease_seconds), leases, worker_id, unexpired=True)


async def run_steps(db: Runs, steps: Steps[T]) -> T:
    """Run these queries one after the other."""
    try:
        query = next(steps)
        while True:
            query = steps.send(await db.run(query))
    except StopIteration as end:
        result: T = end.value
        return result


async def _one_by_one(
    error: psycopg.Error, items: Sequence[T], write: Callable[[Sequence[T]], Awaitable[Settled]]
) -> Settled:
    """One outcome that the database won't take must not keep the others from being stored."""
    if not is_bad_data(error):
        raise error
    return Settled.together([await write([item]) for item in items])


def _refused(lease: Leased, what: str, error: psycopg.Error) -> Settled:
    if not is_bad_data(error):
        raise error
    return Settled(refused={lease.id: f"PostgreSQL refused {what}: {error.diag.message_primary}"})


def _escaped(text: str) -> str:
    """The same in the characters that every database can store."""
    return text.encode("ascii", "backslashreplace").decode()
