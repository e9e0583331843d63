"""Limits: rows that say how many tasks run at a time, or begin within a time; and what a task waits for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tasklib.db.query import Query, nothing
from tasklib.store.audit import Action, audited
from tasklib.store.settle import Leased

_MOST_LANES = 2_000
MOST_OF_A_LANE = 200
"""Counting what waits stops there, in each lane."""
COLUMNS = ("max_running", "rate", "per", "burst", "serial", "weight", "may_burst")


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """A limit as it is now. None: no bound of that kind."""

    name: str
    """`queue:mail`, `name:send_email`, `share:acme`, `serial:ledger`, or a name of its own."""
    max_running: int | None
    rate: float | None
    per: float | None
    burst: int | None
    serial: str | None
    weight: int | None
    may_burst: bool | None
    source: str
    """`code` as declared, or `api` once an operator has changed it."""
    declared: dict[str, Any] | None
    """What the code says, if it declares this limit."""
    changed_at: datetime
    running: int
    """How many tasks hold a place in it, over all its keys. Only counted where `max_running` or `serial` is set."""
    blocked_until: datetime | None
    """Until when nothing begins, because a task was throttled."""


@dataclass(frozen=True, slots=True)
class LimitOnTask:
    """A limit that a waiting task is behind."""

    name: str
    key: str
    max_running: int | None
    rate: float | None
    per: float | None
    burst: int | None
    serial: str | None
    running: int
    holder: str | None
    """The id of a task that holds a place."""
    blocked_until: datetime | None
    token_in: float | None
    """In how many seconds a rate has enough tokens for this task, if it is the next."""
    free_in: float | None
    """In how many seconds the first task that holds a place is expected to end, by how long its name took in the last
    hour. None: not known."""


def set_limit(name: str, values: Mapping[str, Any], *, by: str) -> Query[bool]:
    """Set all bounds of a limit, in place of those it has; reads whether they were others."""
    parameters = {"name": name, **{column: values.get(column) for column in COLUMNS}}
    return audited(
        "limit_set", parameters, bool, by=by, action=Action.SET_LIMIT, target=f"limit:{name}", details=values
    )


def remove_limit(name: str, *, by: str) -> Query[bool]:
    """Reads whether there was such a limit."""
    return audited("limit_remove", {"name": name}, bool, by=by, action=Action.REMOVE_LIMIT, target=f"limit:{name}")


def reset_limit(name: str, *, by: str) -> Query[bool]:
    """Reads whether it was not as declared."""
    return audited("limit_reset", {"name": name}, bool, by=by, action=Action.RESET_LIMIT, target=f"limit:{name}")


def limits() -> Query[list[LimitInfo]]:
    return Query("limit_list", {}, lambda rows: [LimitInfo(*row) for row in rows], repeatable=True)


@dataclass(frozen=True, slots=True)
class LimitKey:
    """One key of a limit that is in use. A limit without keys has one, which is empty."""

    key: str
    running: int
    tokens: float | None
    """How many tasks a rate lets begin now."""
    blocked_until: datetime | None


@dataclass(frozen=True, slots=True)
class Holder:
    """A task that holds a place in a limit."""

    id: str
    name: str
    queue: str
    key: str
    state: str
    started_at: datetime | None
    worker_id: str | None


@dataclass(frozen=True, slots=True)
class ShareInfo:
    """A share with tasks that wait or run."""

    share: str
    running: int
    waiting: int
    is_capped: bool
    """True: more wait; counting stopped."""
    oldest_age: float | None
    """How long its oldest due task has waited, in seconds."""
    weight: int | None
    max_running: int | None
    may_burst: bool


def keys(name: str, most: int) -> Query[list[LimitKey]]:
    """The keys of a limit that are in use, the busiest first."""
    parameters = {"name": name, "most": most}
    return Query("limit_keys", parameters, lambda rows: [LimitKey(*row) for row in rows], repeatable=True)


def holders(name: str, most: int) -> Query[list[Holder]]:
    """Tasks that hold places in a limit."""
    parameters = {"name": name, "most": most}
    return Query("limit_holders", parameters, lambda rows: [Holder(*row) for row in rows], repeatable=True)


class FullLimit(NamedTuple):
    """A limit all of whose places are taken."""

    name: str
    key: str
    running: int
    seconds: float
    """Since when no place was given."""
    holder: str
    """The id of the task that has held one longest."""


class MissingLimit(NamedTuple):
    """A limit that functions are declared with, and that bounds nothing."""

    name: str
    functions: list[str]
    is_removed: bool
    """An operator has removed what the code says."""


def full(seconds: float, most: int) -> Query[list[FullLimit]]:
    """Limits that have been full for so long, without a place given to another task."""
    parameters = {"seconds": seconds, "most": most}
    return Query("limit_full", parameters, lambda rows: [FullLimit(*row) for row in rows], repeatable=True)


def keyed_names(names: Iterable[str]) -> Query[set[str]]:
    """Of these task names, those behind limits, serial keys or shares that are values of an argument."""
    parameters = {"names": sorted(names)}
    return Query("keyed_names", parameters, lambda rows: {row[0] for row in rows}, repeatable=True)


def missing() -> Query[list[MissingLimit]]:
    """Limits that functions are declared with, and that bound nothing."""
    return Query("limit_missing", {}, lambda rows: [MissingLimit(*row) for row in rows], repeatable=True)


def waiting() -> Query[dict[str, int]]:
    """How many due tasks are behind each limit, by its name; a lower bound where many are."""
    parameters = {"most_lanes": _MOST_LANES, "most_of_one": MOST_OF_A_LANE}
    return Query("limit_waiting", parameters, lambda rows: {row[0]: row[1] for row in rows}, repeatable=True)


def shares(most: int) -> Query[list[ShareInfo]]:
    """Shares with tasks that wait or run, the deepest first."""
    parameters = {"most_lanes": _MOST_LANES, "most_of_one": MOST_OF_A_LANE, "most": most}
    return Query("shares", parameters, lambda rows: [ShareInfo(*row) for row in rows], repeatable=True)


def limits_of(task_id: UUID, *, owner: str | None = None) -> Query[list[LimitOnTask]]:
    """The limits that a waiting task is behind."""
    parameters = {"id": str(task_id), "owner": owner}
    return Query("limits_of", parameters, lambda rows: [LimitOnTask(*row) for row in rows], repeatable=True)


PlaceOutcome = Literal["taken", "full", "later", "never", "unknown"]


class PlaceAnswer(NamedTuple):
    """What became of asking for a place."""

    outcome: PlaceOutcome
    """`taken`; `full`; `later`, after `seconds`; `never`: the task itself holds all places; `unknown`: no such one."""
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """A place, or a start, of a limit that a running task asks for."""

    limit: str
    key: str
    cost: int
    block: int
    """Tells apart the blocks of one attempt, so that asking again after a lost answer takes nothing twice."""
    nested: int
    """How many blocks of the same limit and key are around this one."""


def take_place(lease: Leased, worker_id: str, asked: PlaceRequest) -> Query[PlaceAnswer | None]:
    """Take it for the attempt that holds this lease; None if the task is another attempt's by now."""
    parameters = {"id": lease.id, "token": lease.token, "worker": worker_id, **asdict(asked)}
    return Query("place_take", parameters, lambda rows: PlaceAnswer(*rows[0]) if rows else None, repeatable=True)


def leave_place(lease: Leased, worker_id: str, block: int) -> Query[None]:
    """Give back what a block of the attempt that holds this lease has taken."""
    parameters = {"id": lease.id, "token": lease.token, "worker": worker_id, "block": block}
    return Query("place_leave", parameters, nothing, repeatable=True)


def sync(
    rules: Mapping[str, Mapping[str, Any]], uses: Mapping[str, Iterable[Mapping[str, Any]]], names: Iterable[str]
) -> Query[int]:
    """Store what the code declares for these task functions; how much of it was new."""
    parameters = {
        "rules": json.dumps([{"name": name, "declared": rule} for name, rule in rules.items()]),
        "uses": json.dumps([{"name": name, "uses": list(used)} for name, used in uses.items()]),
        "names": list(names),
    }
    return Query("limits_sync", parameters, lambda rows: int(rows[0][0]), repeatable=True)
