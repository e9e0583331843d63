"""Storing outcomes: one statement for many, sent the moment the previous one returns."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar, assert_never

from tasklib.backends.backend import Settlements
from tasklib.config import Config
from tasklib.db.failures import conflict_pause
from tasklib.db.reconnecting import backoff
from tasklib.errors import DatabaseUnavailable, ResultNotStorable
from tasklib.events import Events, ResultRefused, TaskEnded
from tasklib.executors.outcomes import (
    Cancelled,
    Committed,
    Done,
    DoneAndStored,
    Failed,
    FailureKind,
    Lost,
    Outcome,
    Released,
    Suspended,
)
from tasklib.executors.tracebacks import class_name
from tasklib.stats import StatsCollector
from tasklib.store.durable import Suspension
from tasklib.store.settle import Completion, Failure, Settled
from tasklib.tasks.options import MAX_DELAY_SECONDS
from tasklib.tasks.retry import RetryPolicy
from tasklib.tasks.sealing import shown_error
from tasklib.tasks.unstorable import storable_text
from tasklib.worker.attempt import Attempt
from tasklib.worker.masking import without_sealed, without_secrets
from tasklib.worker.progress import ProgressReports
from tasklib.worker.sealing import continuing
from tasklib.worker.slots import Slots
from tasklib.worker.spans import end_span

Item = TypeVar("Item", contravariant=True)
_MOST_PER_FLUSH = 2000
_TRIES_FOR_PROGRESS = 3
_HAVE_ERRORS = (Failed, Cancelled)  # a union would be made anew for each outcome


class _Write(Protocol[Item]):
    async def __call__(self, worker_id: str, items: Sequence[Item], /, *, again: bool) -> Settled: ...


class Settler:
    """Collects outcomes and writes them. A lone one is written at once; a thousand share one commit."""

    def __init__(
        self,
        config: Config,
        backend: Settlements,
        slots: Slots,
        events: Events,
        collector: StatsCollector,
    ) -> None:
        self._config = config
        self._backend = backend
        self._slots = slots
        self._events = events
        self._collector = collector
        self._default_policy = RetryPolicy.of(config)
        self._waiting: list[tuple[Attempt, Outcome]] = []
        self._writing: list[tuple[Attempt, Outcome]] = []
        self._locked: dict[Attempt, int] = {}
        """How often each was tried whose row another transaction has locked. They keep their slots."""
        self.progress = ProgressReports(backend)
        self._work = asyncio.Event()
        self.stale_results = 0

    def put(self, attempt: Attempt, outcome: Outcome) -> None:
        """Hand over how an attempt ended."""
        attempt.settled = True
        if isinstance(outcome, _HAVE_ERRORS):
            outcome = without_secrets(attempt, outcome)
        if not self._waiting:
            self._work.set()
        self._waiting.append((attempt, outcome))
        if attempt.span is not None:
            end_span(attempt.span, outcome if attempt.seal is None else without_sealed(outcome))

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._slots.flushing and not self._locked

    @property
    def unwritten(self) -> list[Attempt]:
        """Attempts that have ended and are not settled yet."""
        return list({attempt: None for attempt, _ in (*self._waiting, *self._writing)} | dict.fromkeys(self._locked))

    async def run(self) -> None:
        """Flush for ever."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                batch = self._writing = self._waiting[:_MOST_PER_FLUSH]
                del self._waiting[:_MOST_PER_FLUSH]
                self._slots.flushing = True
                await self._flush(batch)
                if self.progress.newest_reports:
                    self.progress.forget(attempt for attempt, _ in batch if attempt not in self._locked)
                settled = len(batch) - self._try_locked_later(batch)
                self._collector.settled(settled)
                self._writing, self._slots.flushing = [], False
                self._slots.give_back(settled)

    async def write_progress(self) -> None:
        """Write the newest progress of each attempt, now and then, for ever."""
        await self.progress.write_for_ever(lambda: self.unwritten)

    def _try_locked_later(self, batch: Sequence[tuple[Attempt, Outcome]]) -> int:
        """Of a batch that was flushed, put what was locked back after a pause; returns how many."""
        if not self._locked:
            return 0
        locked = [(attempt, outcome) for attempt, outcome in batch if attempt in self._locked]
        for attempt, outcome in locked:
            pause = conflict_pause(self._locked[attempt])
            asyncio.get_running_loop().call_later(pause, self._put_back, attempt, outcome)
        return len(locked)

    def _put_back(self, attempt: Attempt, outcome: Outcome) -> None:
        self._waiting.append((attempt, outcome))
        self._work.set()

    def _is_locked(self, attempt: Attempt, locked: AbstractSet[str]) -> bool:
        """Note whether an attempt's row was found to be locked."""
        if attempt.claimed.id in locked:
            self._locked[attempt] = self._locked.get(attempt, 0) + 1
            return True
        self._locked.pop(attempt, None)
        return False

    async def _flush(self, batch: Sequence[tuple[Attempt, Outcome]]) -> None:
        """Store these. They may be of two workers: this one before and after it was declared dead."""
        if self.progress.newest_reports:
            batch = await self._with_last_progress(batch)
        workers = {attempt.worker_id for attempt, _ in batch}
        for worker_id in workers:
            ours = batch if len(workers) == 1 else [item for item in batch if item[0].worker_id == worker_id]
            await self._flush_of(worker_id, ours)

    async def _with_last_progress(self, batch: Sequence[tuple[Attempt, Outcome]]) -> Sequence[tuple[Attempt, Outcome]]:
        """Store what these reported last; those whose outcomes can be stored now."""
        # A transaction that is committed has stored its own; where the lease is lost, nothing may be written.
        reporting = (a for a, outcome in batch if not isinstance(outcome, Committed | Lost))
        locked = await self.progress.write_last(reporting)
        # By a heartbeat, most likely: the next try finds it free. A row that stays locked loses its progress only.
        locked = {attempt for attempt in locked if self._locked.get(attempt, 0) < _TRIES_FOR_PROGRESS}
        self._locked.update((attempt, self._locked.get(attempt, 0) + 1) for attempt in locked)
        return [item for item in batch if item[0] not in locked]

    async def _flush_of(self, worker_id: str, batch: Sequence[tuple[Attempt, Outcome]]) -> None:
        completions: list[tuple[Attempt, Completion]] = []
        failures: list[tuple[Attempt, Failure]] = []
        releases: list[Attempt] = []
        stopped: list[tuple[Attempt, str]] = []
        suspensions: list[tuple[Attempt, Suspension]] = []
        for attempt, outcome in batch:
            match outcome:
                case Done(result):
                    if attempt.seal is not None and not isinstance(outcome, DoneAndStored):
                        result = attempt.seal.result(result)
                    completions.append((attempt, Completion(attempt.claimed, result)))
                case Failed():
                    failures.append((attempt, self._failure(attempt, outcome)))
                case Released():
                    releases.append(attempt)
                case Cancelled(error):
                    stopped.append((attempt, self._sealed(attempt, error)))
                case Suspended(until, signals, seen, kwargs, version):
                    suspended = Suspension(attempt.claimed, until, signals, seen, continuing(attempt, kwargs), version)
                    suspensions.append((attempt, suspended))
                case Committed():
                    self._collector.completed([attempt], time.monotonic())
                    self._backend.committed([attempt.claimed])
                    self._ended(attempt, "completed")
                case Lost():
                    self._stale(attempt)
                case _:
                    assert_never(outcome)
        if self._locked:  # apart, so that the others don't wait for their rows
            contended = [item for item in completions if item[0] in self._locked]
            completions = [item for item in completions if item[0] not in self._locked]
            await self._complete(worker_id, contended, contended=True)
        await self._complete(worker_id, completions)
        await self._fail(worker_id, failures)
        await self._release(worker_id, releases)
        await self._stop(worker_id, stopped)
        await self._suspend(worker_id, suspensions)

    async def _complete(
        self,
        worker_id: str,
        items: list[tuple[Attempt, Completion]],
        *,
        contended: bool = False,
    ) -> None:
        if not items:
            return
        # One lock order for all who write many rows.
        items.sort(key=lambda item: item[0].claimed.id)
        attempts = [attempt for attempt, _ in items]
        write = partial(self._backend.complete, contended=contended)
        settled = await self._until_answered(write, worker_id, [c for _, c in items])
        all_well = len(settled.states) == len(attempts)
        ours = settled.states if not settled.over else {*settled.states, *settled.over}
        finished = attempts if all_well else [a for a in attempts if a.claimed.id in ours]
        self._collector.completed(finished, time.monotonic())
        if all_well and not self._events.routine and not self._locked:
            return  # and nothing wants to hear of it
        for attempt in attempts:
            if self._is_locked(attempt, settled.locked) or attempt.claimed.id in settled.refused:
                continue
            if attempt.claimed.id in ours:
                self._ended(attempt, "completed")
            else:
                self._stale(attempt)
        if settled.refused:
            await self._fail(
                worker_id, [(a, self._not_stored(a, settled)) for a in attempts if a.claimed.id in settled.refused]
            )

    async def _fail(self, worker_id: str, items: list[tuple[Attempt, Failure]]) -> None:
        if not items:
            return
        items.sort(key=lambda item: item[0].claimed.id)
        settled = await self._until_answered(self._backend.fail, worker_id, [f for _, f in items])
        for attempt, failure in items:
            if self._is_locked(attempt, settled.locked):
                continue
            state = settled.state(attempt.claimed.id)
            if state is None:
                self._stale(attempt)
                continue
            is_put_off = state == "failed" and failure.outcome == FailureKind.THROTTLED
            self._count(attempt, "released" if is_put_off else state, failure.outcome)
            self._ended(attempt, state, failure.error, failure.delay_seconds if state == "failed" else None)

    async def _release(self, worker_id: str, attempts: list[Attempt]) -> None:
        if not attempts:
            return
        attempts.sort(key=lambda a: a.claimed.id)
        settled = await self._until_answered(self._backend.release, worker_id, [a.claimed for a in attempts])
        for attempt in attempts:
            if self._is_locked(attempt, settled.locked):
                continue
            if state := settled.state(attempt.claimed.id):
                self._collector.ended(attempt.claimed, "cancelled" if state == "cancelled" else "released")
                self._ended(attempt, state)
            else:
                self._stale(attempt)

    async def _suspend(self, worker_id: str, items: list[tuple[Attempt, Suspension]]) -> None:
        if not items:
            return
        items.sort(key=lambda item: item[0].claimed.id)
        settled = await self._until_answered(self._backend.suspend, worker_id, [s for _, s in items])
        for attempt, _ in items:
            if self._is_locked(attempt, settled.locked) or attempt.claimed.id in settled.refused:
                continue
            if state := settled.state(attempt.claimed.id):
                is_over = state == "cancelled"
                self._count(attempt, "cancelled" if is_over else "released", "" if is_over else "suspended")
                self._events.emit_routine(self._event(attempt, state))
            else:
                self._stale(attempt)
        if settled.refused:
            refused = [a for a, _ in items if a.claimed.id in settled.refused]
            await self._fail(worker_id, [(a, self._not_stored(a, settled)) for a in refused])

    async def _stop(self, worker_id: str, items: list[tuple[Attempt, str]]) -> None:
        if not items:
            return
        items.sort(key=lambda item: item[0].claimed.id)
        stopped = [(a.claimed, error) for a, error in items]
        settled = await self._until_answered(self._backend.stop, worker_id, stopped)
        for attempt, error in items:
            if self._is_locked(attempt, settled.locked):
                continue
            if settled.state(attempt.claimed.id):
                self._count(attempt, "cancelled")
                self._ended(attempt, "cancelled", error)
            else:
                self._stale(attempt)

    async def _until_answered(self, write: _Write[Item], worker_id: str, items: Sequence[Item]) -> Settled:
        """Write until it is answered. After an answer that was lost, what took effect counts as ours."""
        failures = 0
        while True:
            try:
                return await write(worker_id, items, again=failures > 0)
            except DatabaseUnavailable:
                await asyncio.sleep(backoff(failures))
                failures += 1

    def _not_stored(self, attempt: Attempt, settled: Settled) -> Failure:
        """What an attempt becomes whose return value can't be stored."""
        return self._failure(attempt, Failed(f"{ResultNotStorable.__name__}: {settled.refused[attempt.claimed.id]}"))

    def _failure(self, attempt: Attempt, outcome: Failed) -> Failure:
        asked, crashed = outcome.delay_seconds, outcome.kind is FailureKind.CRASH
        before = attempt.claimed.crash_count if crashed else attempt.claimed.retry_count
        return Failure(
            attempt.claimed,
            self._sealed(attempt, storable_text(outcome.error, self._config.max_error_bytes), outcome.raised),
            outcome.kind.value,
            self._delay(attempt, before) if asked is None else min(asked, 10 * 365 * 86400.0),
            retriable=outcome.retriable,
            crashed=crashed,
            more_time=outcome.kind in (FailureKind.TIMEOUT, FailureKind.CRASH),
            limit=outcome.limit,
        )

    @staticmethod
    def _sealed(attempt: Attempt, error: str, raised: str | None = None) -> str:
        return error if attempt.seal is None else attempt.seal.error(error, raised)

    def _delay(self, attempt: Attempt, before: int) -> float:
        """Until the next attempt, after so many. A policy may be a subclass, whose code is the program's own."""
        policy = attempt.function.retry_policy or self._default_policy
        try:
            seconds = float(policy.delay(before))
            if 0 <= seconds <= MAX_DELAY_SECONDS:
                return seconds
            problem = f"gave {seconds} seconds"
        except Exception as e:
            problem = f"raised {class_name(e)}"
        with suppress(Exception):  # the program's own logging
            logging.getLogger("tasklib").error(
                "the retry policy of %s %s; the default one is used", attempt.claimed.name, problem
            )
        return self._default_policy.delay(before)

    def _ended(self, attempt: Attempt, state: str, error: str | None = None, retry_in: float | None = None) -> None:
        event = self._event(attempt, state, error, retry_in)
        if state == "completed":
            self._events.emit_routine(event)
        else:
            self._events.emit(event)

    @staticmethod
    def _event(attempt: Attempt, state: str, error: str | None = None, retry_in: float | None = None) -> TaskEnded:
        seconds = time.monotonic() - attempt.started_at
        c = attempt.claimed
        error = error if attempt.seal is None else shown_error(error)
        return TaskEnded(c.id, c.name, c.attempt, state, seconds, error, retry_in, c.max_retries, attempt.trace_id)

    def _count(self, attempt: Attempt, outcome: str, reason: str = "") -> None:
        # What never got a slot didn't run.
        ran = (attempt.started_at, time.monotonic()) if attempt.begun else None
        self._collector.ended(attempt.claimed, outcome, reason, ran)

    def _stale(self, attempt: Attempt) -> None:
        self.stale_results += 1
        self._collector.ended(attempt.claimed, "stale")
        c = attempt.claimed
        self._events.emit(ResultRefused(c.id, c.name, c.token, attempt.trace_id))
