"""Results: stored in batches, each judged by itself. What isn't the worker's own any more changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from tasklib.config import Config
from tasklib.db.failures import is_bad_data
from tasklib.errors import DatabaseUnavailable, ResultNotStorable
from tasklib.executors.functions import result_text
from tasklib.server.remote.links import Links
from tasklib.server.remote.request_models import FailureReason, ResultBody, ResultStatus
from tasklib.store import settle, stats
from tasklib.store.settle import Completion, Failure, Lease
from tasklib.tasks.payload import storable_text
from tasklib.tasks.retry import RetryPolicy

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one result: the task's new state, or why it was refused."""

    state: str | None
    code: str | None = None
    detail: str | None = None


class Results:
    """Stores them for one server."""

    def __init__(self, config: Config, settling: Links) -> None:
        self._config = config
        self._settling = settling
        self._policy = RetryPolicy.of(config)

    async def store(self, worker_id: str, results: Sequence[ResultBody]) -> list[Verdict]:
        """A verdict for each, in the same order, as if each had come alone, one after the other."""
        verdicts: dict[int, Verdict] = {}
        waiting = dict(enumerate(results))
        while waiting:
            first: dict[str, int] = {}
            for place, result in waiting.items():
                first.setdefault(str(result.task_id), place)
            found = await self._store(worker_id, {id_: waiting.pop(place) for id_, place in first.items()})
            verdicts |= {place: found[id_] for id_, place in first.items()}
            # What repeats an attempt that is over need not be asked for.
            over = {_lease(results[place]) for place in first.values() if verdicts[place].code != NOT_STORABLE}
            for place in [place for place, result in waiting.items() if _lease(result) in over]:
                before = verdicts[first[str(waiting.pop(place).task_id)]]
                verdicts[place] = _refusal(SETTLED) if before.code is None else before
        return [verdicts[place] for place in range(len(results))]

    async def _store(self, worker_id: str, first: Mapping[str, ResultBody]) -> dict[str, Verdict]:
        """A verdict for each of these results of different tasks."""
        by_status: dict[ResultStatus, list[ResultBody]] = {}
        for id_ in sorted(first):  # one lock order for all who write many rows
            by_status.setdefault(first[id_].status, []).append(first[id_])
        verdicts: dict[str, Verdict] = {}
        for status, items in by_status.items():
            match status:
                case ResultStatus.COMPLETED:
                    verdicts |= await self._complete(worker_id, items)
                case ResultStatus.FAILED:
                    verdicts |= await self._fail(worker_id, items)
                case ResultStatus.RELEASED:
                    verdicts |= _accepted(await self._settling.run(settle.release(_leases(items), worker_id)))
                case ResultStatus.CANCELLED:
                    stopped = [(_lease(result), self._error(result) or _CANCELLED) for result in items]
                    ours = await self._settling.run(settle.stop(stopped, worker_id))
                    verdicts |= _accepted(dict.fromkeys(ours, "cancelled"))
        verdicts |= await self._refusals(worker_id, [result for id_, result in first.items() if id_ not in verdicts])
        await self._count(first, verdicts)
        return verdicts

    async def _count(self, results: Mapping[str, ResultBody], verdicts: Mapping[str, Verdict]) -> None:
        """For metrics: what these workers did, which nobody else counts."""
        ended = [(id_, *_counted(result, verdicts[id_])) for id_, result in sorted(results.items())]
        with suppress(DatabaseUnavailable):  # the results are stored; that they are not counted is the lesser evil
            await self._settling.run(stats.reported([e for e in ended if e[1]]))

    async def _complete(self, worker_id: str, items: Sequence[ResultBody]) -> dict[str, Verdict]:
        verdicts: dict[str, Verdict] = {}
        completions: list[Completion] = []
        for result in items:
            try:
                completions.append(Completion(_lease(result), result_text(result.result, self._config)))
            except ResultNotStorable as e:
                verdicts[str(result.task_id)] = Verdict(None, NOT_STORABLE, str(e))
        return verdicts | await self._write(worker_id, completions)

    async def _write(self, worker_id: str, completions: Sequence[Completion]) -> dict[str, Verdict]:
        if not completions:
            return {}
        try:
            ours = await self._settling.run(settle.complete(completions, worker_id))
        except psycopg.Error as e:
            if not is_bad_data(e):
                raise
            if len(completions) == 1:
                reason = f"PostgreSQL refused the return value: {e.diag.message_primary}"
                return {completions[0].lease.id: Verdict(None, NOT_STORABLE, reason)}
            # One result the database won't take must not strand the others: store them one by one.
            found: dict[str, Verdict] = {}
            for completion in completions:
                found |= await self._write(worker_id, [completion])
            return found
        return _accepted(dict.fromkeys(ours, "completed"))

    async def _fail(self, worker_id: str, items: Sequence[ResultBody]) -> dict[str, Verdict]:
        unsaid = [str(result.task_id) for result in items if result.retry_in_seconds is None]
        counts = await self._settling.run(settle.retry_counts(unsaid)) if unsaid else {}
        failures = [self._failure(result, counts.get(str(result.task_id), 0)) for result in items]
        return _accepted(await self._settling.run(settle.fail(failures, worker_id, self._config.crash_limit)))

    def _failure(self, result: ResultBody, retry_count: int) -> Failure:
        said, reason = result.retry_in_seconds, result.reason
        return Failure(
            _lease(result),
            self._error(result) or f"the worker gave no error, only the reason: {reason}",
            reason.value,
            self._policy.delay(retry_count) if said is None else said,
            retriable=result.retriable and reason is not FailureReason.REJECTED,
            crashed=reason is FailureReason.CRASH,
            more_time=reason in (FailureReason.TIMEOUT, FailureReason.CRASH),
        )

    async def _refusals(self, worker_id: str, refused: Sequence[ResultBody]) -> dict[str, Verdict]:
        if not refused:
            return {}
        over = await self._settling.run(settle.settled(_leases(refused)))
        given_back = [result for result in refused if result.status is ResultStatus.RELEASED]
        ended = [result for result in refused if result.status is not ResultStatus.RELEASED]
        locked = await self._settling.run(settle.still_held(_leases(ended), worker_id))
        kept = await self._settling.run(settle.still_held(_leases(given_back), worker_id, releasing=True))
        return {
            id_: _refusal(SETTLED if id_ in over else LOCKED if id_ in locked | kept else STALE)
            for id_ in (str(r.task_id) for r in refused)
        }

    def _error(self, result: ResultBody) -> str | None:
        return storable_text(result.error, self._config.max_error_bytes) if result.error else None


def _counted(result: ResultBody, verdict: Verdict) -> tuple[str, str]:
    """The outcome and the reason under which a result counts; an empty one for what counts elsewhere, or not at all."""
    if verdict.code is not None:
        return ("stale" if verdict.code == STALE else "", "")
    if result.status is ResultStatus.RELEASED and verdict.state != "cancelled":
        return "released", ""
    failed = verdict.state in ("failed", "dead_letter")
    return verdict.state or "", result.reason.value if failed else ""


def _lease(result: ResultBody) -> Lease:
    return Lease(str(result.task_id), result.lease_token)


def _leases(results: Sequence[ResultBody]) -> list[Lease]:
    return [_lease(result) for result in results]


def _accepted(states: dict[str, str]) -> dict[str, Verdict]:
    return {id_: Verdict(state) for id_, state in states.items()}


def _refusal(code: str) -> Verdict:
    return Verdict(None, code, _DETAILS[code])
