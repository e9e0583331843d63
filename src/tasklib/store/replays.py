"""Replays as jobs: dead letters that the leader replays at a rate, one of them first as a canary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows
from tasklib.store.audit import Action, audited
from tasklib.store.filters import DeadLetterFilter, texts
from tasklib.store.fleet import Term

LOOK_TO_COUNT = 20_000
"""How many dead letters are read to say how many a replay will take."""
_MOMENTS = ("since", "until")
_CHANGES = {
    Action.PAUSE_REPLAY: ("paused", ("running",)),
    Action.RESUME_REPLAY: ("running", ("paused", "running")),
    Action.STOP_REPLAY: ("stopped", ("running", "paused")),
}


@dataclass(frozen=True, slots=True)
class Replay:
    """A job that replays dead letters."""

    id: UUID
    status: str
    """running, paused, done (all are replayed) or stopped."""
    conditions: dict[str, Any]
    """Which dead letters: the conditions of a DeadLetterFilter."""
    created_at: datetime
    created_by: str
    per_minute: float | None
    """The rate; None: no limit."""
    canary: str | None
    """None: there is none. wanted, waiting (it has not ended), passed or failed."""
    canary_task: UUID | None
    reason: str | None
    """Why the leader has paused it."""
    expected: int
    """How many dead letters there were when it began."""
    expected_is_capped: bool
    """True: the number is a lower bound; counting stopped there."""
    replayed: int
    completed: int
    """Of those replayed, how many have completed."""
    failed: int
    """How many have become dead letters again."""
    dropped: int
    """How many were cancelled or deleted."""
    ended_at: datetime | None

    @property
    def waiting(self) -> int:
        """How many of those replayed have not ended: they wait, run, or wait for a retry."""
        return self.replayed - self.completed - self.failed - self.dropped

    @property
    def is_open(self) -> bool:
        """True while it may replay more."""
        return self.status in ("running", "paused")


class OpenReplay(NamedTuple):
    """A replay that the leader has to look after."""

    id: str
    chosen: DeadLetterFilter


class Advance(NamedTuple):
    """What one batch of a replay did."""

    taken: int
    status: str
    more: bool
    """There may be more dead letters to take."""


def start(
    chosen: DeadLetterFilter, per_minute: float | None, *, canary: bool, by: str, look: int = LOOK_TO_COUNT
) -> Query[Replay | None]:
    """Begin a replay; None if there is nothing to replay, or one of the same conditions is under way."""
    conditions = stored(chosen)
    parameters = {
        **chosen.parameters(),
        "conditions": json.dumps(conditions, sort_keys=True),
        "per_minute": per_minute,
        "canary": "wanted" if canary else None,
        "look": look,
    }
    details = {**conditions, "per_minute": per_minute, "canary": canary}
    return audited("replay_start", parameters, _one, by=by, action=Action.START_REPLAY, details=details, prepare=False)


def replays(limit: int, *, id_: UUID | None = None, fingerprint: str | None = None) -> Query[list[Replay]]:
    """The newest first; one of them, or those of one cause."""
    parameters = {"limit": limit, "id": None if id_ is None else str(id_), "fingerprint": fingerprint}
    return Query("replay_list", parameters, _replays, prepare=False, repeatable=True)


def change(id_: UUID, action: Action, *, by: str, per_minute: float | None = None) -> Query[Replay | None]:
    """Pause, resume or stop one; None if it has ended, or nothing changed."""
    status, before = _CHANGES[action]
    parameters = {"id": str(id_), "status": status, "from": list(before), "per_minute": per_minute}
    details = {"per_minute": per_minute}
    return audited("replay_change", parameters, _one, by=by, action=action, target=str(id_), details=details)


def open_(limit: int) -> Query[list[OpenReplay]]:
    """Those that are under way, or have tasks that have not ended."""
    return Query("replay_open", {"limit": limit}, _open, repeatable=True)


def advance(term: Term, replay: OpenReplay, limit: int, look: int, catch_up: float) -> Query[Advance | None]:
    """Replay the next dead letters; None if none is due. After an outage, `catch_up` seconds at most are made up."""
    parameters = {
        **term.parameters(),
        **replay.chosen.parameters(),
        "replay": replay.id,
        "limit": limit,
        "look": look,
        "catch_up": float(catch_up),
    }
    return Query("replay_advance", parameters, lambda rows: Advance(*rows[0]) if rows else None, prepare=False)


def outcomes(term: Term, replay_id: str, limit: int) -> Query[bool]:
    """Count what became of its tasks; True if there are more to look at."""
    parameters = {**term.parameters(), "replay": replay_id, "limit": limit}
    return Query("replay_outcomes", parameters, lambda rows: bool(rows and rows[0][0]))


def forget(term: Term, age: float, limit: int) -> Query[int]:
    """Delete what is left of a replay that ended so many seconds ago; reads how many rows went."""
    parameters = {**term.parameters(), "age": float(age), "limit": limit}
    return Query("forget_replays", parameters, lambda rows: int(rows[0][0]))


def stored(chosen: DeadLetterFilter) -> dict[str, Any]:
    """The conditions as JSON has them."""
    said = {name: value.isoformat() if name in _MOMENTS else value for name, value in chosen.given().items()}
    return said if chosen.ids is None else {**said, "ids": texts(chosen.ids)}


def filter_of(conditions: Mapping[str, Any]) -> DeadLetterFilter:
    """The filter that a replay was begun with."""
    read: dict[str, Any] = {
        name: datetime.fromisoformat(v) if name in _MOMENTS else v for name, v in conditions.items()
    }
    return DeadLetterFilter(**read)


def _one(rows: Rows) -> Replay | None:
    return Replay(*rows[0]) if rows else None


def _replays(rows: Rows) -> list[Replay]:
    return [Replay(*row) for row in rows]


def _open(rows: Rows) -> list[OpenReplay]:
    return [OpenReplay(id_, filter_of(conditions)) for id_, conditions in rows]
