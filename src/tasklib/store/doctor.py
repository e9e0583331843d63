"""Queries of the doctor: the server's statistics and settings, and waiting tasks. Each read is bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasklib.db.fast_path import array
from tasklib.db.query import Query, nothing
from tasklib.store import claim
from tasklib.store.claim import Served

_LOOK = 20_000
"""Of all lanes together so many tasks are looked at to find names."""


class BlockingSession(NamedTuple):
    """A session that keeps dead rows from being vacuumed."""

    pid: int
    user: str | None
    application: str | None
    address: str
    state: str | None
    seconds: float | None
    is_hidden: bool
    """This user may not see it: nothing is known but that it exists."""


class ReplicationSlot(NamedTuple):
    """A replication slot."""

    name: str
    kind: str
    is_active: bool
    age: int | None
    """Of the oldest rows it keeps, in transactions; None if it keeps none."""
    kept_bytes: float | None
    """How much of the log it keeps."""


class Prepared(NamedTuple):
    """A transaction that was prepared for a two-phase commit, and not ended."""

    gid: str
    owner: str
    seconds: float


class TableFigures(NamedTuple):
    """One of our tables."""

    name: str
    live: int
    dead: int
    seconds_since_vacuum: float | None
    size: int
    options: list[str]

    def option(self, name: str) -> str | None:
        """A storage parameter of the table; None if it has none of its own."""
        values = {key: value for key, _, value in (option.partition("=") for option in self.options)}
        return values.get(name)


class IndexFigures(NamedTuple):
    """An index on one of our tables."""

    schema: str
    table: str
    name: str
    is_valid: bool
    size: int
    entries: float
    """As of the last vacuum; negative if there was none."""


class WaitingLane(NamedTuple):
    """Tasks of one name in a lane, by the first of them."""

    queue: str
    lane: str
    """Empty for a lane of all names."""
    name: str
    required_capabilities: list[str]
    priority: int
    waited_seconds: float
    """Negative: not due yet."""


class Usage(NamedTuple):
    """What the server has used up."""

    connections: int
    transaction_age: int


def settings(*names: str) -> Query[dict[str, str]]:
    """Settings of the server as this session has them, by name."""
    return _read("doctor_settings", {"names": list(names)}, dict)


def sessions() -> Query[list[BlockingSession]]:
    return _read("doctor_sessions", {}, lambda rows: [BlockingSession._make(row) for row in rows])


def slots() -> Query[list[ReplicationSlot]]:
    return _read("doctor_slots", {}, lambda rows: [ReplicationSlot._make(row) for row in rows])


def prepared() -> Query[list[Prepared]]:
    return _read("doctor_prepared", {}, lambda rows: [Prepared._make(row) for row in rows])


def tables(names: Sequence[str]) -> Query[list[TableFigures]]:
    return _read("doctor_tables", {"tables": list(names)}, lambda rows: [TableFigures._make(row) for row in rows])


def indexes(tables: Sequence[str]) -> Query[list[IndexFigures]]:
    return _read("doctor_indexes", {"tables": list(tables)}, lambda rows: [IndexFigures._make(row) for row in rows])


def lanes(most: int, look: int = _LOOK) -> Query[list[WaitingLane]]:
    """Up to so many lanes that hold tasks, by the names of the tasks that wait there first, among `look` in all."""
    return _read("doctor_lanes", {"most": most, "look": look}, lambda rows: [WaitingLane._make(row) for row in rows])


def backlog(lanes: Sequence[WaitingLane], most: int) -> Query[int]:
    """How many tasks of these lanes and names are due, counted up to `most`."""
    parameters = {
        "queues": [lane.queue for lane in lanes],
        "lanes": [lane.lane for lane in lanes],
        "names": [lane.name for lane in lanes],
        "capabilities": [array(lane.required_capabilities) for lane in lanes],
        "priorities": [lane.priority for lane in lanes],
        "most": most,
        "look": _LOOK,
    }
    return _read("doctor_backlog", parameters, lambda rows: rows[0][0])


def ended_leases(grace: float, most: int) -> Query[tuple[int, float | None]]:
    """How many attempts' leases ended at least `grace` seconds ago, up to `most`, and when the first did."""
    return _read("doctor_leases", {"grace": float(grace), "most": most}, lambda rows: (rows[0][0], rows[0][1]))


def oldest_finished(most: int) -> Query[float | None]:
    """How many seconds ago the oldest finished task ended, of the `most` oldest tasks; None if none of them has."""
    return _read("doctor_finished", {"most": most}, lambda rows: rows[0][0])


def as_a_claim() -> Query[None]:
    """Plan like a worker's connection, until the end of this transaction."""
    return _read("doctor_plan_settings", {}, nothing)


def claim_plan(served: Served) -> Query[dict[str, Any]]:
    """The plan of the claim; nothing is claimed."""
    asked = claim.claim(served, 10, "doctor", lease_seconds=1.0, medium_after=600.0, high_after=1200.0)
    return Query("doctor_claim_plan", asked.parameters, lambda rows: rows[0][0][0]["Plan"], prepare=False)


def usage() -> Query[Usage]:
    return _read("doctor_usage", {}, lambda rows: Usage._make(rows[0]))


def clock() -> Query[float]:
    """The database's clock, in seconds since 1970."""
    return _read("doctor_clock", {}, lambda rows: rows[0][0])


def _read(name: str, parameters: Mapping[str, Any], read: Any) -> Query[Any]:
    return Query(name, parameters, read, repeatable=True)


class ScheduleSeen(NamedTuple):
    """An active schedule, unread."""

    name: str
    task: str
    spec: dict[str, Any]
    late_seconds: float
    """How long its next slot is due; below zero if it is not yet."""


def tzdata() -> Query[list[tuple[str, list[str]]]]:
    """The versions of tzdata in the fleet, each with the hosts that have it."""
    return Query("doctor_tzdata", {}, lambda rows: [(row[0], row[1]) for row in rows], repeatable=True)


def schedules(limit: int) -> Query[list[ScheduleSeen]]:
    """Active schedules, those first that are due first."""
    return Query("doctor_schedules", {"limit": limit}, lambda rows: [ScheduleSeen(*row) for row in rows])
