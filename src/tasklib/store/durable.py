"""Durable tasks: what they have on record, how they suspend, and the signals sent to them.

Steps are recorded under the lease, as outcomes are (`store/settle.py`): an attempt that lost its task records nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tasklib.db.fast_path import array
from tasklib.db.query import Query, Rows
from tasklib.steps import StepId, StepKind
from tasklib.store.audit import Action, audited
from tasklib.store.settle import Leased


class NewStep(NamedTuple):
    """A step to record: a result as JSON text, or a moment so many seconds from now."""

    lease: Leased
    id: StepId
    result: str | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step as it is on record."""

    id: StepId
    result: str
    """JSON text: `{"value": ...}`, or `{"timed_out": true}`."""
    recorded_at: datetime


class Written(NamedTuple):
    """What is on record after an attempt to record something."""

    result: str | None
    """None: a statement whose answer was lost is just recording it, so ask again."""
    is_new: bool


class Recorded(NamedTuple):
    """All that a task has on record."""

    steps: list[RecordedStep]
    now: datetime
    """By the database's clock."""


class Consumed(NamedTuple):
    """What came of waiting for a signal."""

    result: str | None
    """As in `RecordedStep`; None: there is no signal."""
    seen: int | None
    """How many signals had been sent to the task by then."""
    is_decided: bool = True
    """False: a statement whose answer was lost is just recording it, so ask again."""


class Suspension(NamedTuple):
    """A durable task that gives its slot back."""

    lease: Leased
    until: datetime | None
    """When it goes on at the latest; None: not without a signal."""
    signals: Sequence[str] = ()
    """The names of signals that wake it earlier."""
    seen: int | None = None
    """How many signals it had seen when it found none of these."""
    kwargs: str | None = None
    """JSON text: it begins anew with these arguments, and with nothing on record."""
    payload_version: int | None = None
    """Of these arguments."""


def steps_of(task_id: UUID | str) -> Query[Recorded]:
    """All that a task has on record, the oldest first."""

    def read(rows: Rows) -> Recorded:
        steps = [RecordedStep(StepId(StepKind(row[1]), row[2]), row[3], row[4]) for row in rows if row[1] is not None]
        return Recorded(steps, rows[0][0])

    return Query("steps_of", {"id": str(task_id)}, read, prepare=True, repeatable=True)


def record_steps(steps: Sequence[NewStep], worker_id: str) -> Query[dict[int, Written]]:
    """Record steps; reads for each that is still ours, by its place, what is on record now."""
    parameters = {
        **_leases([step.lease for step in steps]),
        "worker": worker_id,
        "kinds": [step.id.kind.value for step in steps],
        "names": [step.id.name for step in steps],
        "results": [step.result for step in steps],
        "seconds": [step.seconds for step in steps],
    }
    return Query(
        "record_steps", parameters, lambda rows: {row[0] - 1: Written(row[1], row[2]) for row in rows}, prepare=True
    )


def consume_signal(
    lease: Leased, worker_id: str, signal: str, *, step: str, expired: bool, approval: str | None = None
) -> Query[Consumed | None]:
    """Consume the next signal of this name and record it under the name `step`; reads None if the task isn't ours.

    `expired`: without a signal, record that none came in time. `approval`: what is asked no more then.
    """
    parameters = {
        "id": lease.id,
        "token": lease.token,
        "worker": worker_id,
        "signal": signal,
        "step": step,
        "expired": expired,
        "approval": approval,
    }

    def read(rows: Rows) -> Consumed | None:
        if not rows:
            return None
        result, seen, had_something = rows[0]
        return Consumed(result, seen, result is not None or not had_something)

    return Query("consume_signal", parameters, read, prepare=True)


def suspend(suspensions: Sequence[Suspension], worker_id: str) -> Query[dict[str, str]]:
    """Give durable tasks back until something happens; reads the new state of those that were still ours."""
    parameters = {
        **_leases([s.lease for s in suspensions]),
        "worker": worker_id,
        "untils": [s.until for s in suspensions],
        "signals": [array(s.signals) for s in suspensions],
        "seen": [s.seen for s in suspensions],
        "kwargs": [s.kwargs for s in suspensions],
        "versions": [s.payload_version for s in suspensions],
    }
    return Query("suspend", parameters, lambda rows: {row[0]: row[1] for row in rows}, prepare=True)


def send_signal(
    task_id: UUID,
    signal: str,
    payload: str,
    *,
    key: str | None,
    sender: str,
    sealed_with: str | None = None,
) -> Query[str | None]:
    """Send a signal; reads `sent`, `known` (its key was used before), `finished`, or None: there is no such task.

    `sealed`: the task is, with another key than `sealed_with`, so nothing was sent.
    """
    parameters = _signal(task_id, signal, payload, key, sender, sealed_with)
    return Query("send_signal", parameters, _outcome, repeatable=key is not None)


def send_signal_audited(
    task_id: UUID,
    signal: str,
    payload: str,
    *,
    key: str | None,
    sender: str,
    owner: str | None,
    sealed_with: str | None = None,
) -> Query[str | None]:
    """The same, if the task is the owner's; recorded in the audit."""
    return audited(
        "send_signal_audited",
        {**_signal(task_id, signal, payload, key, sender, sealed_with), "owner": owner},
        _outcome,
        by=sender,
        action=Action.SIGNAL_TASK,
        target=str(task_id),
        details={"signal": signal, "key": key},
        repeatable=key is not None,
    )


class SealedWith(NamedTuple):
    """How what is sent to a task has to be sealed."""

    name: str
    key_id: str | None


def sealed_with(task_id: UUID, *, owner: str | None = None) -> Query[SealedWith | None]:
    """The name of a task and its key, if it is sealed."""
    parameters = {"id": str(task_id), "owner": owner}
    return Query("sealed_with", parameters, lambda rows: SealedWith(*rows[0]) if rows else None, repeatable=True)


def _signal(
    task_id: UUID, signal: str, payload: str, key: str | None, sender: str, sealed_with: str | None
) -> dict[str, object]:
    return {
        "id": str(task_id),
        "signal": signal,
        "payload": payload,
        "key": key,
        "sender": sender,
        "sealed_with": sealed_with,
    }


def _outcome(rows: Rows) -> str | None:
    return rows[0][0] if rows else None


def _leases(leases: Sequence[Leased]) -> dict[str, object]:
    return {"ids": [lease.id for lease in leases], "tokens": [lease.token for lease in leases]}
