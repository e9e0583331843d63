"""Leasing tasks: the claim, and when the next one is due."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from tasklib.db.fast_path import array, in_text, plain_array
from tasklib.db.query import Query, Rows, nothing
from tasklib.tracing import trace_id_for


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
            "names": _in_text(tuple(self.names)) if self.names is not None else None,
            "capabilities": list(self.capabilities),
        }


@lru_cache(maxsize=64)  # there may be thousands, and every claim sends them
def _in_text(names: tuple[str, ...]) -> str:
    return array(names)


LIMITED = "\x01"
"""The lane of a task behind limits begins with it, and so does each part of it."""


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
    lane_name: str = ""
    """Where it waited: empty for the lane of all names."""

    @property
    def attempt(self) -> int:
        """Its number: attempts that failed and attempts that were lost came before it."""
        return self.retry_count + self.crash_count + 1

    @property
    def carried(self) -> dict[str, Any] | None:
        """The trace that the submission was part of, and what a run of a schedule or a flow knows of it."""
        if not self.trace_context:
            return None
        try:
            carried = json.loads(self.trace_context)
        except (ValueError, RecursionError):  # a row written by hand: a number or a nesting that Python can't read
            return None
        return carried if isinstance(carried, dict) else None

    @property
    def trace_id(self) -> str:
        """The trace it belongs to."""
        if not self.trace_context:
            return self.id.replace("-", "")  # of most tasks; trace_id_for says the same
        return trace_id_for(self.id, self.carried)

    @property
    def reports(self) -> bool:
        """Whether its end is counted by gates."""
        return self.trace_context is not None and "tasklib_reports_to" in self.trace_context

    def reporting_to(self, gate: str) -> Claimed:
        """The same task, whose end one more gate counts."""
        part = self.in_flow
        carried = json.loads(self.trace_context) if self.trace_context else {}
        carried["tasklib_reports_to"] = [*(part.reports_to if part else ()), gate]
        return self._replace(trace_context=json.dumps(carried))

    @property
    def holds_places(self) -> bool:
        """Whether it may hold places in limits."""
        return self.lane_name.startswith(LIMITED)

    def with_places(self) -> Claimed:
        """The same task, which holds places in limits from now on."""
        return self if self.holds_places else self._replace(lane_name=LIMITED)

    @property
    def in_flow(self) -> FlowPart | None:
        """What a task of a flow knows of it."""
        if self.trace_context is None or "tasklib_" not in self.trace_context:
            return None
        return FlowPart.of(self.trace_context)

    @property
    def lane(self) -> Lane:
        return Lane(self.queue, self.lane_name, self.required_capabilities, self.priority)

    @property
    def place(self) -> Place:
        return Place(self.due, self.id)


_TEXT, _INTEGER = 25, 20
CLAIMED_TYPES = tuple(_INTEGER if "int" in str(kind) else _TEXT for kind in Claimed.__annotations__.values())
"""What the columns of a claim are read as, by the oids of types: the fields of `Claimed`."""


class FlowPart(NamedTuple):
    """The place of a task in its flow."""

    flow: str | None
    node: str | None
    reports_to: Sequence[str]
    """The gates that count its end."""
    results: Mapping[str, Any]
    """Which arguments are results of other tasks: see `store/flows.py`."""

    @classmethod
    @lru_cache(maxsize=1024)  # the same text for all tasks of a group, and for a task's claim and its end
    def of(cls, carried: str) -> FlowPart | None:
        """Of what the claim says; None for a task of no flow."""
        try:
            found = json.loads(carried)
        except (ValueError, RecursionError):  # a row written by hand
            return None
        if not isinstance(found, dict) or not {"tasklib_flow", "tasklib_reports_to"} & found.keys():
            return None
        return cls(
            found.get("tasklib_flow"),
            found.get("tasklib_node"),
            found.get("tasklib_reports_to") or (),
            found.get("tasklib_results") or {},
        )


class Lane(NamedTuple):
    """What tasks have in common that are claimed in the order in which they are due."""

    queue: str
    name: str
    """Empty for tasks of all names, but those that were set apart: they are in a lane of their name."""
    required_capabilities: str
    priority: int


class Place(NamedTuple):
    """A place in a lane."""

    due: str
    id: str


def need_results(claimed: Sequence[Claimed]) -> bool:
    """Whether arguments of some of these are results of other tasks, which must be read first."""
    # Most claims bring no task that carries anything, which is known without a step of Python for each.
    return any(map(_CARRIED, claimed)) and any("tasklib_results" in (c.trace_context or "") for c in claimed)


def claim(
    served: Served,
    limit: int,
    worker_id: str,
    behind: Mapping[Lane, Place] = MappingProxyType({}),
    /,
    *,
    lease_seconds: float,
    medium_after: float,
    high_after: float,
) -> Query[list[Claimed]]:
    """Lease up to `limit` due tasks, best first; of these lanes only what is behind these places."""
    lanes, places = behind.keys(), behind.values()
    parameters = {
        **served.parameters(),
        "known_queues": array([lane.queue for lane in lanes]),
        "known_lanes": array([lane.name for lane in lanes]),
        "known_capabilities": array([lane.required_capabilities for lane in lanes]),
        "known_priorities": plain_array([lane.priority for lane in lanes]),
        "after_due": array([place.due for place in places]),
        "after_id": plain_array([place.id for place in places]),
        **lease_terms(worker_id, lease_seconds, medium_after, high_after),
        "limit": limit,
    }
    return Query("claim", parameters, in_order, all_text=True, types=CLAIMED_TYPES)


@lru_cache(maxsize=1)  # an idle worker asks for the same again and again
def claim_next(
    lane: Lane,
    names: tuple[str, ...] | None,
    worker_id: str,
    *,
    lease_seconds: float,
    medium_after: float,
    high_after: float,
) -> Query[list[Claimed]]:
    """Lease the next due task of one lane that has one of these names (None: any)."""
    parameters = {
        "queue": lane.queue,
        "lane": lane.name,
        "required_capabilities": lane.required_capabilities,
        "priority": lane.priority,
        "names": _in_text(names) if names is not None else None,
        **lease_terms(worker_id, lease_seconds, medium_after, high_after),
    }
    texts = {name: in_text(value) for name, value in parameters.items()}
    return Query("claim_next", texts, in_order, all_text=True, types=CLAIMED_TYPES)


def may_take(worker_id: str) -> Query[bool]:
    """Whether a worker that came over HTTP may be given what was claimed for it: it lives, its token still opens."""
    return Query("worker_may_take", {"id": worker_id}, lambda rows: bool(rows[0][0]), repeatable=True, all_text=True)


def leases_of(worker_id: str) -> Query[list[Claimed]]:
    """All that one worker holds, as its claims gave it."""
    return Query("leases_of", {"worker": worker_id}, in_order, all_text=True, types=CLAIMED_TYPES)


class Outlook(NamedTuple):
    """What an idle worker has to expect."""

    next_due_seconds: float | None
    """When the next task for it is due; None if there is none."""
    oldest_writer: int
    """Every transaction before this one is over."""
    is_crowded: bool = False
    """Due tasks that it doesn't serve are in its way: `set_apart`."""
    is_limited: bool = False
    """Some tasks, queues or names are behind limits: `claim_limited`."""
    names_are_limited: bool = False
    """Some names are, and their tasks may not be in the lanes of their limits: `name_lanes`."""


CROWD = 200
"""So many tasks of other names at the head of a lane are worth setting apart. Each costs a claim about 1 µs."""
SET_APART_AT_ONCE = 5000


def outlook(served: Served) -> Query[Outlook]:
    """When the next task is due, and who may be about to commit one."""
    parameters = {**served.parameters(), "crowd": CROWD}
    return Query("outlook", parameters, lambda rows: Outlook._make(rows[0]), all_text=True)


def set_apart(served: Served) -> Query[int]:
    """Move due tasks that this worker doesn't serve out of the lanes it reads; how many there were.

    They go into lanes of their names, and wait there as before: a worker that serves them finds them by name.
    """
    parameters = {**served.parameters(), "most": SET_APART_AT_ONCE}
    return Query("set_apart", parameters, lambda rows: int(rows[0][0]), all_text=True)


def pass_on(served: Served, worker_id: str) -> Query[None]:
    """Wake other workers for the due tasks that this one was woken for and has no room for."""
    parameters = {**served.parameters(), "worker": worker_id, "most": CROWD}
    return Query("pass_on", parameters, nothing, all_text=True)


def next_writer() -> Query[int]:
    """A transaction id younger than every transaction that has begun to write by now.

    Not the end of a snapshot: that is the id behind the latest transaction that is over; younger ones may have begun.
    """
    return Query("next_writer", {}, lambda rows: int(rows[0][0]), all_text=True)


def next_due(served: Served) -> Query[float | None]:
    """Seconds until the next task for this worker is due; None if there is none."""
    query = outlook(served)
    return Query(query.name, query.parameters, lambda rows: rows[0][0], all_text=True)


def lease_terms(worker_id: str, lease: float, medium_after: float, high_after: float) -> dict[str, object]:
    return {
        "worker": worker_id,
        "lease": float(lease),
        "medium_after": float(medium_after),
        "high_after": float(high_after),
    }


_PLACE = attrgetter("due", "id")
_HEIGHT = attrgetter("effective_priority")
_CARRIED = attrgetter("trace_context")


def in_order(rows: Rows) -> list[Claimed]:
    # UPDATE ... RETURNING promises no order.
    claimed = [Claimed._make(row) for row in rows]
    claimed.sort(key=_PLACE)
    claimed.sort(key=_HEIGHT, reverse=True)
    return claimed
