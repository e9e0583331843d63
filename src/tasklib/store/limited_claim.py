"""Leasing tasks behind limits, and moving them into the lanes of their limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tasklib.db.fast_path import array
from tasklib.db.query import Query, Rows
from tasklib.store.claim import CLAIMED_TYPES, Claimed, Served, in_order, lease_terms


class Turn(NamedTuple):
    """Where the next claim behind limits begins: the lane, and how many tasks it has had in this turn."""

    queue: str = ""
    lane: str = ""
    taken: int = 0


class Admitted(NamedTuple):
    """What a claim behind limits brought."""

    tasks: list[Claimed]
    turn: Turn
    next_seconds: float | None
    """It is worth another look in so many seconds; None: when a notification comes."""
    misplaced: list[tuple[str, str]]
    """Queues and lanes with due tasks that may belong behind more limits: `name_lanes`."""
    has_left_some: bool = False
    """Tasks were chosen, and not leased because they had just been inserted: ask again at once."""


_INTEGER, _FLOAT = 20, 701  # oids


def claim_limited(
    served: Served,
    limit: int,
    worker_id: str,
    turn: Turn,
    /,
    *,
    lease_seconds: float,
    medium_after: float,
    high_after: float,
) -> Query[Admitted]:
    """Lease up to `limit` due tasks whose limits have room, lane by lane in turn."""
    parameters = {
        **served.parameters(),
        "from_queue": turn.queue,
        "from_lane": turn.lane,
        "from_taken": turn.taken,
        **lease_terms(worker_id, lease_seconds, medium_after, high_after),
        "limit": limit,
    }
    return Query("claim_limited", parameters, _admitted, all_text=True, types=(*CLAIMED_TYPES, _INTEGER, _FLOAT))


NAMED_AT_ONCE = 1000
"""So many tasks at the head of each lane are looked at for limits of their names."""


class Named(NamedTuple):
    """How many tasks were moved, and whether others are held up: worth another try in a moment."""

    moved: int
    are_held_up: bool


def name_lanes(lanes: Sequence[tuple[str, str]] = ()) -> Query[Named]:
    """Move due tasks whose names have limits into the lanes of these."""
    parameters = {
        "lane_queues": array([queue for queue, _ in lanes]),
        "lane_names": array([lane for _, lane in lanes]),
        "most": NAMED_AT_ONCE,
        "message": "",
    }
    return Query("name_lanes", parameters, lambda rows: Named._make(rows[0]), all_text=True)


def _admitted(rows: Rows) -> Admitted:
    *tasks, taken, next_seconds = range(len(Claimed._fields) + 2)
    claimed, misplaced, turn, soon, has_left_some = [], [], Turn(), None, False
    queue, lane = Claimed._fields.index("queue"), Claimed._fields.index("lane_name")
    for row in rows:
        if row[0] is not None:
            claimed.append(row[: len(tasks)])
        elif row[taken] is None:
            misplaced.append((row[queue], row[lane]))
        else:
            turn, soon = Turn(row[queue], row[lane], row[taken]), row[next_seconds]
            has_left_some = soon is not None and soon < 0
    return Admitted(in_order(claimed), turn, 0.0 if has_left_some else soon, misplaced, has_left_some)
