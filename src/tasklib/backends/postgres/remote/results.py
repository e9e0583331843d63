"""Results: stored in batches, each judged separately. A result for an attempt that is not held changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tasklib.backends.postgres.settlements import PostgresSettlements
from tasklib.config import Config
from tasklib.db.query import Runs
from tasklib.errors import DatabaseUnavailable, ResultNotStorable
from tasklib.executors.functions import result_text
from tasklib.store import settle, stats
from tasklib.store.settle import Completion, Failure, Lease, Settled
from tasklib.tasks.retry import RetryPolicy
from tasklib.tasks.unstorable import storable_text

STALE = "stale_attempt"
SETTLED = "already_settled"
NOT_STORABLE = "result_not_storable"
LOCKED = "row_locked"
_DETAILS = {
    STALE: "This worker doesn't hold this attempt any more, or never did. Nothing was changed.",
    SETTLED: "This attempt has ended already: by an earlier result, or with its lease. Nothing was changed.",
    LOCKED: "Another transaction holds the task's row just now. Nothing was changed: report this result again.",
}
_CANCELLED = "the task was cancelled while it ran"


class ResultStatus(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    CANCELLED = "cancelled"


class FailureReason(StrEnum):
    """Why an attempt failed; the `outcome` in the task's history."""

    ERROR = "error"
    TIMEOUT = "timeout"
    RETRY = "retry"
    REJECTED = "rejected"
    CRASH = "crash"
    THROTTLED = "throttled"


class Reported(NamedTuple):
    """A worker's report of the end of one attempt."""

    lease: Lease
    status: ResultStatus
    result: Any = None
    error: str | None = None
    reason: FailureReason = FailureReason.ERROR
    retriable: bool = True
    retry_in_seconds: float | None = None
    limit: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one result: the task's new state, or why it was refused."""

    state: str | None
    code: str | None = None
    detail: str | None = None


class RemoteResults:
    """Stores them for one server."""

    def __init__(self, config: Config, db: Runs, settlements: PostgresSettlements) -> None:
        self._config = config
        self._settlements = settlements
        self._db = db
        self._policy = RetryPolicy.of(config)
        self._uncounted: dict[str, list[tuple[str, str, str]]] = {}
        """Of each worker, the results that are stored and not counted yet."""
        self._counting: asyncio.Task[None] | None = None

    async def store(self, worker_id: str, results: Sequence[Reported]) -> list[Verdict]:
        """A verdict for each, in the same order, as if each had come alone, one after the other."""
        verdicts: dict[int, Verdict] = {}
        waiting = dict(enumerate(results))
        while waiting:
            first: dict[str, int] = {}
            for place, result in waiting.items():
                first.setdefault(result.lease.id, place)
            found = await self._store(worker_id, {id_: waiting.pop(place) for id_, place in first.items()})
            verdicts |= {place: found[id_] for id_, place in first.items()}
            # What repeats an attempt that is over need not be asked for.
            over = {results[place].lease for place in first.values() if verdicts[place].code != NOT_STORABLE}
            for place in [place for place, result in waiting.items() if result.lease in over]:
                before = verdicts[first[waiting.pop(place).lease.id]]
                verdicts[place] = _refusal(SETTLED) if before.code is None else before
        return [verdicts[place] for place in range(len(results))]

    async def _store(self, worker_id: str, first: Mapping[str, Reported]) -> dict[str, Verdict]:
        """A verdict for each of these results of different tasks."""
        by_status: dict[ResultStatus, list[Reported]] = {}
        for id_ in sorted(first):  # one lock order for all who write many rows
            by_status.setdefault(first[id_].status, []).append(first[id_])
        verdicts: dict[str, Verdict] = {}
        for status, items in by_status.items():
            match status:
                case ResultStatus.COMPLETED:
                    settled = await self._complete(worker_id, items)
                case ResultStatus.FAILED:
                    settled = await self._settlements.fail(worker_id, await self._failures(items), again=True)
                case ResultStatus.RELEASED:
                    settled = await self._settlements.release(worker_id, [result.lease for result in items], again=True)
                case ResultStatus.CANCELLED:
                    stopped = [(result.lease, self._error(result) or _CANCELLED) for result in items]
                    settled = await self._settlements.stop(worker_id, stopped, again=True)
            verdicts |= {item.lease.id: _verdict(item.lease.id, settled) for item in items}
        self._count(worker_id, first, verdicts)
        return verdicts

    async def close(self) -> None:
        """Count what is left."""
        if self._counting is not None:
            await self._counting

    def _count(self, worker_id: str, results: Mapping[str, Reported], verdicts: Mapping[str, Verdict]) -> None:
        """For metrics: results of workers over HTTP are counted here, while their workers already go on."""
        ended = [(id_, *_counted(result, verdicts[id_])) for id_, result in sorted(results.items())]
        if counted := [e for e in ended if e[1]]:
            self._uncounted.setdefault(worker_id, []).extend(counted)
            if self._counting is None or self._counting.done():
                self._counting = asyncio.create_task(self._write_counts())

    async def _write_counts(self) -> None:
        while self._uncounted:
            worker_id, ended = self._uncounted.popitem()  # what comes meanwhile goes into the next statement
            with suppress(DatabaseUnavailable):  # the results are stored; that they are not counted is the lesser evil
                await self._db.run(stats.reported(worker_id, ended))

    async def _complete(self, worker_id: str, items: Sequence[Reported]) -> Settled:
        refused: dict[str, str] = {}
        completions: list[Completion] = []
        for result in items:
            try:
                completions.append(Completion(result.lease, result_text(result.result, self._config)))
            except ResultNotStorable as e:
                refused[result.lease.id] = str(e)
        if not completions:
            return Settled(refused=refused)
        stored = await self._settlements.complete(worker_id, completions, again=True)
        return stored._replace(refused={**refused, **stored.refused})

    async def _failures(self, items: Sequence[Reported]) -> list[Failure]:
        unsaid = [result.lease.id for result in items if result.retry_in_seconds is None]
        counts = await self._db.run(settle.retry_counts(unsaid)) if unsaid else {}
        return [self._failure(result, counts.get(result.lease.id, 0)) for result in items]

    def _failure(self, result: Reported, retry_count: int) -> Failure:
        said, reason = result.retry_in_seconds, result.reason
        return Failure(
            result.lease,
            self._error(result) or f"the worker gave no error, only the reason: {reason}",
            reason.value,
            self._policy.delay(retry_count) if said is None else said,
            retriable=result.retriable and reason is not FailureReason.REJECTED,
            crashed=reason is FailureReason.CRASH,
            more_time=reason in (FailureReason.TIMEOUT, FailureReason.CRASH),
            limit=result.limit,
        )

    def _error(self, result: Reported) -> str | None:
        return storable_text(result.error, self._config.max_error_bytes) if result.error else None


def _counted(result: Reported, verdict: Verdict) -> tuple[str, str]:
    """The outcome and the reason under which a result counts; an empty one for what counts elsewhere, or not at all."""
    if verdict.code is not None:
        return ("stale" if verdict.code == STALE else "", "")
    if result.status is ResultStatus.RELEASED and verdict.state != "cancelled":
        return "released", ""
    if verdict.state == "failed" and result.reason is FailureReason.THROTTLED:
        return "released", result.reason.value
    failed = verdict.state in ("failed", "dead_letter")
    return verdict.state or "", result.reason.value if failed else ""


def _verdict(id_: str, settled: Settled) -> Verdict:
    if state := settled.states.get(id_):
        return Verdict(state)
    if reason := settled.refused.get(id_):
        return Verdict(None, NOT_STORABLE, reason)
    return _refusal(SETTLED if id_ in settled.over else LOCKED if id_ in settled.locked else STALE)


def _refusal(code: str) -> Verdict:
    return Verdict(None, code, _DETAILS[code])
