"""Circuit breakers of task names: rows that say when, and how it is with each now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from tasklib.db.query import Query
from tasklib.store.audit import Action, audited
from tasklib.store.fleet import Term

BreakerState = Literal["closed", "open", "probing"]
_MOST_LANES = 10_000
_MOST_OF_A_LANE = 1_000


@dataclass(frozen=True, slots=True)
class BreakerInfo:
    """The breaker of a task name as it is now."""

    name: str
    state: BreakerState
    """`closed`: tasks run. `open`: they wait. `probing`: some run, the others wait."""
    since: datetime
    until: datetime | None
    """Open: when it begins to probe; None: when an operator closes it."""
    opened: int
    """How often it has opened."""
    failures: float | None
    """None, as the next four: an operator removed what the code declares."""
    at_least: int | None
    within: float | None
    pause: float | None
    probes: int | None
    source: str
    """`code` as declared, or `api` once an operator has changed it."""
    declared: dict[str, Any] | None
    """What the code says, if it declares this breaker."""
    changed_at: datetime
    seen_attempts: int | None
    """For how many attempts it opened last, and how many of these had failed. None: by hand, or never."""
    seen_failures: int | None
    passed: int
    """Probing: how many probes were successful."""
    under_way: int
    """Probing: how many tasks were chosen as probes and have not ended."""


class Move(NamedTuple):
    """A breaker that the leader has moved on, or that is probing."""

    name: str
    previous: BreakerState
    state: BreakerState
    attempts: int | None
    failures: int | None
    until: datetime | None


def breakers() -> Query[list[BreakerInfo]]:
    return Query("breaker_list", {}, lambda rows: [BreakerInfo(*row) for row in rows], repeatable=True)


def set_breaker(name: str, values: Mapping[str, Any], *, by: str) -> Query[bool]:
    """Set a breaker, in place of what it was; reads whether it was another."""
    return audited(
        "breaker_set", {"name": name, **values}, bool, by=by, action=Action.SET_BREAKER, target=_target(name),
        details=values,
    )  # fmt: skip


def remove_breaker(name: str, *, by: str) -> Query[bool]:
    """Reads whether there was one."""
    return audited("breaker_remove", {"name": name}, bool, by=by, action=Action.REMOVE_BREAKER, target=_target(name))


def reset_breaker(name: str, *, by: str) -> Query[bool]:
    """Reads whether it was not as declared."""
    return audited("breaker_reset", {"name": name}, bool, by=by, action=Action.RESET_BREAKER, target=_target(name))


def open_breaker(name: str, seconds: float | None, *, by: str) -> Query[bool]:
    """Reads whether there is such a breaker, and it was not open for as long."""
    return audited(
        "breaker_open", {"name": name, "seconds": seconds}, bool, by=by, action=Action.OPEN_BREAKER,
        target=_target(name), details={"seconds": seconds},
    )  # fmt: skip


def close_breaker(name: str, *, by: str) -> Query[bool]:
    """Reads whether it was not closed."""
    return audited("breaker_close", {"name": name}, bool, by=by, action=Action.CLOSE_BREAKER, target=_target(name))


def sync(declared: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> Query[int]:
    """Store what the code declares for these task functions; how much of it was new."""
    rows = [{"name": name, "declared": breaker} for name, breaker in declared.items()]
    parameters = {"breakers": json.dumps(rows), "names": list(names)}
    return Query("breakers_sync", parameters, lambda rows: int(rows[0][0]), repeatable=True)


def judge(term: Term) -> Query[list[Move]]:
    """Move breakers on; reads those that moved, and those that are probing."""
    return Query("breakers_judge", term.parameters(), lambda rows: [Move(*row) for row in rows])


def probe(term: Term) -> Query[int]:
    """Choose probes for those that are probing; reads how many."""
    parameters = {**term.parameters(), "most_lanes": _MOST_LANES, "most": _MOST_OF_A_LANE, "message": ""}
    return Query("breakers_probe", parameters, lambda rows: int(rows[0][0]))


def _target(name: str) -> str:
    return f"breaker:{name}"
