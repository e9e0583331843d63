"""Leasing tasks: the claim, and when the next one is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from tasklib.db.fast_path import array, in_text, plain_array
from tasklib.db.query import Query, Rows


@dataclass(frozen=True, slots=True)
class Served:
    """What a worker takes: queues and names (None: all), and its capabilities."""

    names: Sequence[str] | None
    queues: Sequence[str] | None = None
    capabilities: Sequence[str] = ()
    at_most_once: bool = False
    """Some of these tasks run at most once: nothing unknown is claimed ahead of the free slots."""

    def parameters(self) -> dict[str, object]:
        return {
            "queues": list(self.queues) if self.queues is not None else None,
            "names": list(self.names) if self.names is not None else None,
            "capabilities": list(self.capabilities),
        }


class Claimed(NamedTuple):
    """A leased task, as the worker needs it. Ids and JSON stay text until they are needed in another form."""

    id: str
    name: str
    kwargs: str
    token: int
    retry_count: int
    max_retries: int
    timeout_seconds: int | None
    crash_count: int
    priority: int
    queue: str
    required_capabilities: str
    trace_context: str | None
    due: str
    effective_priority: int

    @property
    def attempt(self) -> int:
        """Its number: attempts that failed and attempts that were lost came before it."""
        return self.retry_count + self.crash_count + 1

    @property
    def lane(self) -> Lane:
        return Lane(self.queue, self.name, self.required_capabilities, self.priority)

    @property
    def place(self) -> Place:
        return Place(self.due, self.id)


class Lane(NamedTuple):
    """What tasks have in common that are claimed in the order in which they are due."""

    queue: str
    name: str
    required_capabilities: str
    priority: int


class Place(NamedTuple):
    """A place in a lane."""

    due: str
    id: str


def claim(
    served: Served, limit: int, worker_id: str, *, lease_seconds: float, medium_after: float, high_after: float
) -> Query[list[Claimed]]:
    """Lease up to `limit` due tasks, best first."""
    parameters = {**served.parameters(), **_terms(worker_id, lease_seconds, medium_after, high_after), "limit": limit}
    return Query("claim", parameters, _in_order, all_text=True)


def claim_on(
    places: Mapping[Lane, Place],
    limit: int,
    worker_id: str,
    *,
    lease_seconds: float,
    medium_after: float,
    high_after: float,
) -> Query[list[Claimed]]:
    """The same of these lanes only, behind these places."""
    lanes, behind = places.keys(), places.values()
    parameters = {
        "queues": array([lane.queue for lane in lanes]),
        "names": array([lane.name for lane in lanes]),
        "capabilities": array([lane.required_capabilities for lane in lanes]),
        "priorities": plain_array([lane.priority for lane in lanes]),
        "after_due": array([place.due for place in behind]),
        "after_id": plain_array([place.id for place in behind]),
        **_terms(worker_id, lease_seconds, medium_after, high_after),
        "limit": limit,
    }
    return Query("claim_on", parameters, _in_order, all_text=True)


@lru_cache(maxsize=1)  # an idle worker asks for the same again and again
def claim_next(
    lane: Lane, worker_id: str, *, lease_seconds: float, medium_after: float, high_after: float
) -> Query[list[Claimed]]:
    """Lease the next due task of one lane."""
    parameters = {**lane._asdict(), **_terms(worker_id, lease_seconds, medium_after, high_after)}
    return Query("claim_next", {name: in_text(value) for name, value in parameters.items()}, _in_order, all_text=True)


def leases_of(worker_id: str) -> Query[list[Claimed]]:
    """All that one worker holds, as its claims gave it."""
    return Query("leases_of", {"worker": worker_id}, _in_order, all_text=True)


class Outlook(NamedTuple):
    """What an idle worker has to expect."""

    next_due_seconds: float | None
    """When the next task for it is due; None if there is none."""
    oldest_writer: int
    """Every transaction before this one is over."""


def outlook(served: Served) -> Query[Outlook]:
    """When the next task is due, and who may be about to commit one."""
    return Query("outlook", served.parameters(), lambda rows: Outlook._make(rows[0]), all_text=True)


def next_writer() -> Query[int]:
    """A transaction id younger than every transaction that has begun to write by now.

    Not the end of a snapshot: that is the id behind the latest transaction that is over; younger ones may have begun.
    """
    return Query("next_writer", {}, lambda rows: int(rows[0][0]), all_text=True)


def next_due(served: Served) -> Query[float | None]:
    """Seconds until the next task for this worker is due; None if there is none."""
    return Query("outlook", served.parameters(), lambda rows: rows[0][0], all_text=True)


def _terms(worker_id: str, lease: float, medium_after: float, high_after: float) -> dict[str, object]:
    return {
        "worker": worker_id,
        "lease": float(lease),
        "medium_after": float(medium_after),
        "high_after": float(high_after),
    }


_PLACE = attrgetter("due", "id")
_HEIGHT = attrgetter("effective_priority")


def _in_order(rows: Rows) -> list[Claimed]:
    # UPDATE ... RETURNING promises no order.
    claimed = [Claimed._make(row) for row in rows]
    claimed.sort(key=_PLACE)
    claimed.sort(key=_HEIGHT, reverse=True)
    return claimed
