"""Since when a queue, or the tasks of a name, are behind.

Behind means: the oldest due task has waited longer than a bound, `BEHIND_SECONDS` or the queue's own `max_wait`. Since
when is read from the leader's counts, one for each minute; where these don't reach back to a moment at which it kept
up, the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

from tasklib.db.query import Query, Rows

BEHIND_SECONDS = 60.0
HISTORY_SECONDS = 86_400.0
_GAP = timedelta(minutes=15)
"""A longer time between two counts hides what happened in it: old counts are kept every ten minutes."""

Look = tuple[datetime, float]
"""When the leader counted, and how long the oldest due task had waited; 0 if none waited."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A queue or a name whose oldest due task has waited for too long."""

    value: str
    oldest: float
    """How long it has waited, in seconds."""
    allowed: float
    """How long it may."""
    since: datetime
    or_earlier: bool
    """True if the counts don't say: it may be longer behind than that."""


def looks(kind: str, values: Sequence[str]) -> Query[dict[str, list[Look]]]:
    """The counts of the last day for these queues or names (`kind`), the oldest first."""
    parameters = {"kind": kind, "values": list(values), "seconds": HISTORY_SECONDS}
    return Query("behind_looks", parameters, _by_value, repeatable=True)


def late(oldest: Mapping[str, float], allowed: Mapping[str, float]) -> dict[str, float]:
    """Those of the ages of oldest due tasks that exceed what is allowed, the oldest first."""
    over = {value: age for value, age in oldest.items() if age > allowed.get(value, BEHIND_SECONDS)}
    return dict(sorted(over.items(), key=lambda item: (-item[1], item[0])))


def since(value: str, seen: Sequence[Look], oldest: float, allowed: float, now: datetime) -> Behind:
    """Since when something is behind whose oldest due task has waited for `oldest` seconds now."""
    first: Look = (now, oldest)
    kept_up: datetime | None = None
    for moment, age in reversed(seen):
        if age <= allowed:
            kept_up = moment
            break
        first = (moment, age)
    # The oldest task of the first count that found it behind had exceeded the bound before that count.
    began = first[0] - timedelta(seconds=max(0.0, first[1] - allowed))
    unsure = kept_up is None or first[0] - kept_up > _GAP
    return Behind(value, oldest, allowed, began if kept_up is None else max(began, kept_up), unsure)


def _by_value(rows: Rows) -> dict[str, list[Look]]:
    return {value: [(row[1], row[2]) for row in some] for value, some in groupby(rows, key=itemgetter(0))}
