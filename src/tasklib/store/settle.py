"""Ending attempts: every write carries the lease token, and says which rows it still found to be ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tasklib.db.arrays import array, plain_array
from tasklib.db.query import Query, Rows, nothing


class Leased(Protocol):
    """Whatever says which attempt at which task it is: a claimed row does."""

    @property
    def id(self) -> str: ...
    @property
    def token(self) -> int: ...


class Lease(NamedTuple):
    """One attempt's hold on a task."""

    id: str
    token: int


class Completion(NamedTuple):
    """An attempt that returned. `result` is JSON text."""

    lease: Leased
    result: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed; the row decides whether a retry is left."""

    lease: Leased
    error: str
    outcome: str
    delay_seconds: float
    retriable: bool = True
    crashed: bool = False
    more_time: bool = False


def complete(completions: Sequence[Completion]) -> Query[set[str]]:
    """Record results; reads the ids that were still ours."""
    leases = [lease for lease, _ in completions]

    def ours(rows: Rows) -> set[str]:
        ((ids,),) = rows
        return {lease.id for lease in leases} if ids is None else set(ids)

    return Query("complete", {**arrays(leases), "results": array([r for _, r in completions])}, ours, all_text=True)


def fail(failures: Sequence[Failure], crash_limit: int) -> Query[dict[str, str]]:
    """Record failed attempts; reads the new state of those that were still ours."""
    parameters = {
        **arrays([f.lease for f in failures]),
        "errors": array([f.error for f in failures]),
        "outcomes": array([f.outcome for f in failures]),
        "delays": plain_array([f.delay_seconds for f in failures]),
        "retriable": plain_array([f.retriable for f in failures]),
        "crashed": plain_array([f.crashed for f in failures]),
        "grows": plain_array([f.more_time for f in failures]),
        "crash_limit": crash_limit,
    }
    return Query("fail", parameters, lambda rows: {id_: state for id_, state in rows}, all_text=True)


def release(leases: Sequence[Leased]) -> Query[dict[str, str]]:
    """Give tasks back without using a retry; reads the new state of those that were still ours."""
    return Query(
        "release", {**arrays(leases), "message": ""}, lambda rows: {row[0]: row[1] for row in rows}, prepare=True
    )


def stop(stopped: Sequence[tuple[Leased, str]]) -> Query[set[str]]:
    """Record attempts that stopped because they were cancelled, with what they said; reads the ids that were ours."""
    return Query("stop", {**arrays([lease for lease, _ in stopped]), "errors": array([e for _, e in stopped])}, _ids)


def extend(leases: Sequence[Leased], lease_seconds: float) -> Query[set[str]]:
    """Extend leases; reads the ids that were still ours and had not run out."""
    return Query("extend", {**arrays(leases), "lease": float(lease_seconds)}, _ids)


def progress(reports: Sequence[tuple[Leased, str]]) -> Query[None]:
    """Store the newest progress (JSON text) of running attempts."""
    return Query(
        "progress", {**arrays([lease for lease, _ in reports]), "reports": array([r for _, r in reports])}, nothing
    )


def settled(leases: Sequence[Leased]) -> Query[set[str]]:
    """Which of these attempts the table already counts as over."""
    return Query("settled", arrays(leases), _ids)


def arrays(leases: Sequence[Leased]) -> dict[str, str]:
    """The parameters `ids` and `tokens` of a statement about these leases."""
    return {
        "ids": plain_array([lease.id for lease in leases]),
        "tokens": plain_array([str(lease.token) for lease in leases]),
    }


def _ids(rows: Rows) -> set[str]:
    return {row[0] for row in rows}
