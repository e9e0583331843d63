"""Failed attempts by cause: what broke, since when, and for whom. Each query reads a bounded number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tasklib.db.query import Query, Rows

LOOK = 2_000
"""How many dead letters, and how many tasks that wait for a retry, are read; the latest of each."""
LOOK_AT_OTHERS = 500
"""How many running tasks, and how many of the newest, are read for attempts that failed before."""
MOST_ATTEMPTS = 4_000
"""How many failed attempts are grouped, the latest: a fingerprint takes about 20 µs."""
STEPS = 30
"""Columns of a cause's sparkline."""


@dataclass(frozen=True, slots=True)
class FailureFilter:
    """Which failed attempts: those that ended from `since` to `until`, of one name, queue or cause if given."""

    since: datetime
    until: datetime
    name: str | None = None
    queue: str | None = None
    fingerprint: str | None = None
    """Of one cause, or the start of it."""
    owner: str | None = None
    """As in a TaskFilter."""


@dataclass(frozen=True, slots=True)
class FailureCause:
    """Failed attempts of one name with, but for ids and numbers, one error."""

    fingerprint: str
    name: str
    attempts: int
    tasks: int
    """How many tasks these attempts belong to."""
    dead_letters: int
    """How many tasks it has made dead letters, in the range or before; as many as the sample has."""
    retrying: int
    """How many tasks wait for a retry after it."""
    first_seen: datetime
    """In the range or before, as far back as the sample goes."""
    last_seen: datetime
    error: str
    """The last line of the latest error."""
    counts: tuple[int, ...]
    """Attempts in each step of the range."""
    ids: tuple[UUID, ...]
    """Its latest tasks in the range."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value of a tag or an argument, and how many tasks have it."""

    text: str
    tasks: int


@dataclass(frozen=True, slots=True)
class FailureField:
    """What the tasks of a cause have in a tag or an argument, the most frequent first."""

    kind: str
    """tag or argument."""
    key: str
    values: tuple[FieldValue, ...]
    different: int
    """How many values there are."""
    tasks: int
    """How many tasks have one."""


class Sampled(NamedTuple):
    """The causes, and what they were found in."""

    causes: list[FailureCause]
    attempts: int
    """How many failed attempts of the range were read."""
    back_to: datetime | None
    """The sample ends here; None: all that is stored was read."""


def causes(chosen: FailureFilter, limit: int, most_ids: int) -> Query[Sampled]:
    """By cause, the most frequent first, each with the ids of its latest tasks."""
    parameters = {
        "since": chosen.since,
        "until": chosen.until,
        "name": chosen.name,
        "queue": chosen.queue,
        "fingerprint": chosen.fingerprint,
        "owner": chosen.owner,
        "limit": limit,
        "look": LOOK,
        "look_at_others": LOOK_AT_OTHERS,
        "most_attempts": MOST_ATTEMPTS,
        "most_ids": most_ids,
        "steps": STEPS,
    }
    return Query("failure_causes", parameters, _sampled, prepare=False, repeatable=True)


def values(causes: Sequence[FailureCause], most: int) -> Query[dict[str, list[FailureField]]]:
    """What the tasks of each cause have in their tags and arguments: the `most` frequent values of each."""
    pairs = [(cause.fingerprint, str(id_)) for cause in causes for id_ in cause.ids]
    parameters = {
        "fingerprints": [fingerprint for fingerprint, _ in pairs],
        "ids": [id_ for _, id_ in pairs],
        "most_values": most,
    }
    return Query("failure_values", parameters, _fields, prepare=False, repeatable=True)


def _sampled(rows: Rows) -> Sampled:
    # Where there is no cause, there is one row all the same.
    found = [
        FailureCause(*[*known, error or "", _counts(by_step), tuple(dict.fromkeys(ids))])
        for *known, error, by_step, ids, _, _ in rows
        if known[0] is not None
    ]
    return Sampled(found, rows[0][11], rows[0][12])


def _counts(by_step: dict[str, int]) -> tuple[int, ...]:
    return tuple(by_step.get(str(step), 0) for step in range(STEPS))


def _fields(rows: Rows) -> dict[str, list[FailureField]]:
    found: dict[str, dict[tuple[str, str], FailureField]] = {}
    for fingerprint, kind, key, value, tasks, different, all_tasks in rows:
        of_cause = found.setdefault(fingerprint, {})
        known = of_cause.get((kind, key)) or FailureField(kind, key, (), different, all_tasks)
        of_cause[kind, key] = FailureField(kind, key, (*known.values, FieldValue(value, tasks)), different, all_tasks)
    return {fingerprint: list(of_cause.values()) for fingerprint, of_cause in found.items()}
