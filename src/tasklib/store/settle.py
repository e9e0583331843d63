"""Ending attempts: every write carries the lease token, and says which rows it still found to be ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tasklib.db.query import Query, Rows, nothing


class Lease(NamedTuple):
    """One attempt's hold on a task."""

    id: str
    token: int


@dataclass(frozen=True, slots=True)
class Completion:
    """An attempt that returned. `result` is JSON text."""

    lease: Lease
    result: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed; the row decides whether a retry is left."""

    lease: Lease
    error: str
    outcome: str
    delay_seconds: float
    retriable: bool = True
    crashed: bool = False
    more_time: bool = False


def complete(completions: Sequence[Completion]) -> Query[set[str]]:
    """Record results; reads the ids that were still ours."""
    leases = [c.lease for c in completions]
    return Query("complete", {**_arrays(leases), "results": [c.result for c in completions]}, _ids, prepare=True)


def fail(failures: Sequence[Failure], crash_limit: int) -> Query[dict[str, str]]:
    """Record failed attempts; reads the new state of those that were still ours."""
    parameters = {
        **_arrays([f.lease for f in failures]),
        "errors": [f.error for f in failures],
        "outcomes": [f.outcome for f in failures],
        "delays": [f.delay_seconds for f in failures],
        "retriable": [f.retriable for f in failures],
        "crashed": [f.crashed for f in failures],
        "grows": [f.more_time for f in failures],
        "crash_limit": crash_limit,
    }
    return Query("fail", parameters, lambda rows: {id_: state for id_, state in rows})


def release(leases: Sequence[Lease]) -> Query[dict[str, str]]:
    """Give tasks back without using a retry; reads the new state of those that were still ours."""
    return Query("release", {**_arrays(leases), "message": ""}, lambda rows: {row[0]: row[1] for row in rows})


def stop(stopped: Sequence[tuple[Lease, str]]) -> Query[set[str]]:
    """Record attempts that stopped because they were cancelled, with what they said; reads the ids that were ours."""
    return Query("stop", {**_arrays([lease for lease, _ in stopped]), "errors": [e for _, e in stopped]}, _ids)


def extend(leases: Sequence[Lease], lease_seconds: float) -> Query[set[str]]:
    """Extend leases; reads the ids that were still ours and had not run out."""
    return Query("extend", {**_arrays(leases), "lease": float(lease_seconds)}, _ids)


def progress(reports: Sequence[tuple[Lease, str]]) -> Query[None]:
    """Store the newest progress (JSON text) of running attempts."""
    return Query("progress", {**_arrays([lease for lease, _ in reports]), "reports": [r for _, r in reports]}, nothing)


def settled(leases: Sequence[Lease]) -> Query[set[str]]:
    """Which of these attempts the table already counts as over."""
    return Query("settled", _arrays(leases), _ids)


def _arrays(leases: Sequence[Lease]) -> dict[str, list[object]]:
    return {"ids": [lease.id for lease in leases], "tokens": [lease.token for lease in leases]}


def _ids(rows: Rows) -> set[str]:
    return {row[0] for row in rows}
