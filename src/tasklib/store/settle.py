"""Ending attempts: every write carries the lease token and the worker, and says which rows it still found to be ours.

The token alone would do as long as no claim is ever lost. A failover to a standby that lagged behind loses some: then
two attempts may have the same token, and the worker id distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple, Protocol

from tasklib.db.fast_path import array, plain_array
from tasklib.db.query import Query, Rows

COMPLETE_PLAIN = "complete"
"""The statement that completes tasks none of which reports to a gate."""
_CARRIED, _LANE_NAME = attrgetter("trace_context"), attrgetter("lane_name")


class Leased(Protocol):
    """Whatever says which attempt at which task it is: a claimed row does."""

    @property
    def id(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def trace_context(self) -> str | None: ...
    @property
    def lane_name(self) -> str: ...
    @property
    def reports(self) -> bool:
        """Whether the end of the task may be counted by a gate."""
        ...

    @property
    def holds_places(self) -> bool:
        """Whether it may hold places in limits."""
        ...


class Lease(NamedTuple):
    """One attempt's hold on a task."""

    id: str
    token: int

    @property
    def trace_context(self) -> str | None:
        """Not known here; neither are the others."""
        return None

    @property
    def lane_name(self) -> str:
        return "?"

    @property
    def reports(self) -> bool:
        return True

    @property
    def holds_places(self) -> bool:
        return True


class Completion(NamedTuple):
    """An attempt that returned. `result` is JSON text."""

    lease: Leased
    result: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed; the row decides whether a retry is left. One that crashed uses none."""

    lease: Leased
    error: str
    outcome: str
    delay_seconds: float
    retriable: bool = True
    crashed: bool = False
    more_time: bool = False
    limit: str | None = None
    """Of one that was throttled: the limit to hold; E'\\x02' and a key may follow. None: the limits of its lane."""


_NONE: Mapping[str, str] = MappingProxyType({})


class Settled(NamedTuple):
    """The results of a batch of outcomes, by task id. Ids in none of these were not ours any more."""

    states: Mapping[str, str] = _NONE
    """The new states of tasks that were ours."""
    locked: AbstractSet[str] = frozenset()
    """Ours, but another transaction has locked their rows: try them again."""
    refused: Mapping[str, str] = _NONE
    """Ours, but this outcome can't be stored; why."""
    over: AbstractSet[str] = frozenset()
    """Settled before; only looked for where `again` is true."""

    def state(self, id_: str) -> str | None:
        """The new state of a task that is settled, now or by an earlier try whose answer was lost; None of others."""
        return self.states.get(id_) or ("failed" if id_ in self.over else None)

    @classmethod
    def together(cls, parts: Iterable[Settled]) -> Settled:
        """What became of several batches."""
        states: dict[str, str] = {}
        refused: dict[str, str] = {}
        locked: set[str] = set()
        over: set[str] = set()
        for part in parts:
            states.update(part.states)
            refused.update(part.refused)
            locked |= part.locked
            over |= part.over
        return cls(states, locked, refused, over)


class Kept(NamedTuple):
    """Which attempts are still ours, by task id. Ids in neither are lost."""

    ours: AbstractSet[str]
    locked: AbstractSet[str] = frozenset()
    """Ours, but nothing was written, because another transaction has locked their rows: try them again."""


def complete(completions: Sequence[Completion], worker_id: str, *, contended: bool = False) -> Query[set[str]]:
    """Record results; reads the ids that were still ours.

    `contended`: another transaction is known to hold one of these rows, which is left out.
    """
    leases = [lease for lease, _ in completions]

    def ours(rows: Rows) -> set[str]:
        ids = rows[0][0]
        return {lease.id for lease in leases} if ids is None else set(ids)

    parameters = {**arrays(leases), "worker": worker_id, "results": array([r for _, r in completions])}
    unlocked = Query("complete_unlocked", parameters, ours, all_text=True)
    # Most are tasks of no flow, schedule or trace that waited in the lane of all names: known without a step of Python
    # for each.
    may_report = any(map(_CARRIED, leases)) or any(map(_LANE_NAME, leases))
    reports = may_report and any(lease.reports or lease.holds_places for lease in leases)
    name = "complete_reporting" if reports else COMPLETE_PLAIN
    return unlocked if contended else Query(name, parameters, ours, all_text=True, if_locked=unlocked)


class CompletedLeases(NamedTuple):
    """Of completions of tasks that are not known here."""

    ours: set[str]
    gates: Sequence[str]
    """Those that count some of them."""


def complete_leases(completions: Sequence[Completion], worker_id: str) -> Query[CompletedLeases]:
    """The same for a caller that knows no more of the tasks than their leases."""
    query = complete(completions, worker_id)

    def read(rows: Rows) -> CompletedLeases:
        return CompletedLeases(query.read(rows), rows[0][2] or ())

    unlocked = Query("complete_unlocked", query.parameters, read, all_text=True)
    return Query("complete_reporting", query.parameters, read, all_text=True, if_locked=unlocked)


class CompletedWithin(NamedTuple):
    """A completion as part of the task's own transaction."""

    is_ours: bool
    isolation: str


def complete_within(completion: Completion, worker_id: str) -> Query[CompletedWithin]:
    """Record a result in the transaction of the task itself; waits for a row that is locked."""
    query = complete([completion], worker_id)
    return Query(query.name, query.parameters, lambda rows: CompletedWithin(rows[0][0] is None, rows[0][1]))


def fail(failures: Sequence[Failure], worker_id: str, crash_limit: int) -> Query[dict[str, str]]:
    """Record failed attempts; reads the new state of those that were still ours."""
    parameters = {
        **arrays([f.lease for f in failures]),
        "worker": worker_id,
        "errors": array([f.error for f in failures]),
        "outcomes": array([f.outcome for f in failures]),
        "delays": plain_array([f.delay_seconds for f in failures]),
        "retriable": plain_array([f.retriable for f in failures]),
        "crashed": plain_array([f.crashed for f in failures]),
        "grows": plain_array([f.more_time for f in failures]),
        "limits": array([f.limit or "" for f in failures]),
        "crash_limit": crash_limit,
    }
    return Query("fail", parameters, lambda rows: {id_: state for id_, state in rows}, all_text=True)


def begin(begins: Sequence[tuple[Leased, bool]], worker_id: str) -> Query[set[str]]:
    """Record that attempts begin, and which of them run at most once; reads the ids that were still ours."""
    parameters = {
        **arrays([lease for lease, _ in begins]),
        "worker": worker_id,
        "at_most_once": plain_array([once for _, once in begins]),
    }
    return Query("begin", parameters, _ids, prepare=True)


def release(leases: Sequence[Leased], worker_id: str) -> Query[dict[str, str]]:
    """Give tasks back without using a retry; reads the new state of those that were still ours."""
    parameters = {**arrays(leases), "worker": worker_id}
    return Query("release", parameters, lambda rows: {row[0]: row[1] for row in rows}, prepare=True)


def stop(stopped: Sequence[tuple[Leased, str]], worker_id: str) -> Query[set[str]]:
    """Record attempts that stopped because they were cancelled, with their errors; reads the ids that were ours."""
    errors = array([error for _, error in stopped])
    return Query("stop", {**arrays([lease for lease, _ in stopped]), "worker": worker_id, "errors": errors}, _ids)


def extend(leases: Sequence[Leased], worker_id: str, lease_seconds: float) -> Query[set[str]]:
    """Extend leases; reads the ids that were still ours and had not run out."""
    return Query("extend", {**arrays(leases), "worker": worker_id, "lease": float(lease_seconds)}, _ids)


def progress(reports: Sequence[tuple[Leased, str]], worker_id: str) -> Query[set[str]]:
    """Store the newest progress (JSON text) of running attempts; reads the ids that were still ours."""
    texts = array([text for _, text in reports])
    return Query("progress", {**arrays([lease for lease, _ in reports]), "worker": worker_id, "reports": texts}, _ids)


def still_held(
    leases: Sequence[Leased], worker_id: str, *, unexpired: bool = False, releasing: bool = False
) -> Query[set[str]]:
    """Of attempts that a write left out: those that are still ours. Another transaction has locked their rows.

    `unexpired`: only leases that can be extended. `releasing`: only tasks that can be released.
    """
    asked = {"worker": worker_id, "unexpired": unexpired, "releasing": releasing}
    return Query("still_held", {**arrays(leases), **asked}, _ids)


def settled(leases: Sequence[Leased]) -> Query[set[str]]:
    """Which of these attempts the table already counts as over."""
    return Query("settled", arrays(leases), _ids)


def retry_counts(ids: Sequence[str]) -> Query[dict[str, int]]:
    """How often these tasks have been retried."""
    return Query("retry_counts", {"ids": plain_array(ids)}, lambda rows: {id_: count for id_, count in rows})


def arrays(leases: Sequence[Leased]) -> dict[str, str]:
    """The parameters `ids` and `tokens` of a statement about these leases."""
    return {
        "ids": plain_array([lease.id for lease in leases]),
        "tokens": plain_array([lease.token for lease in leases]),
    }


def _ids(rows: Rows) -> set[str]:
    return {row[0] for row in rows}
