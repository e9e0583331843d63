"""What broke, since when, and for whom: failed attempts by cause. One implementation for sync and async callers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tasklib.client import validation
from tasklib.client.effects import Call
from tasklib.client.filters import checked_dead_letters
from tasklib.client.identity import OnBehalf
from tasklib.errors import InvalidOption
from tasklib.store import dead_letters, failures, fleet
from tasklib.store.failures import FailureCause, FailureField, FailureFilter, Sampled
from tasklib.store.filters import EVERY_DEAD_LETTER
from tasklib.store.fleet import Deploy

MOST_CAUSES = 200
_TASKS_LOOKED_AT = 1_500
"""Tasks whose tags and arguments are read, divided among the causes."""
MOST_VALUES = 300
"""Tasks of one cause whose values are read, and so the values of a field."""


@dataclass(frozen=True, slots=True)
class FailureReport:
    """Failed attempts of a range by cause, the most frequent first."""

    since: datetime
    until: datetime
    causes: list[FailureCause]
    fields: dict[str, list[FailureField]]
    """By fingerprint: what the tasks of the cause have in their tags and arguments."""
    attempts: int
    """How many failed attempts of the range were read."""
    back_to: datetime | None
    """The sample ends here; None: all that is stored was read."""
    deployed_at: datetime | None
    """When the first worker of the last deploy joined; None if no deploy is known."""

    def is_new(self, cause: FailureCause) -> bool | None:
        """Whether a cause was first seen after the last deploy; None if that can't be told."""
        if self.deployed_at is None:
            return None
        if cause.first_seen < self.deployed_at:
            return False
        return True if self.back_to is None or self.back_to < self.deployed_at else None


class FailureCalls(OnBehalf):
    """Failed attempts, those that are retried too."""

    def failures(
        self,
        *,
        since: datetime | timedelta = timedelta(hours=1),
        until: datetime | None = None,
        name: str | None = None,
        queue: str | None = None,
        fingerprint: str | None = None,
        limit: int = 50,
        values: int = 3,
    ) -> Call[FailureReport]:
        """What failed from `since` to `until`, by cause: attempts that are retried, and dead letters.

        `since` is a moment, or a time span that ends at `until`. Of each tag and argument the `values` most frequent
        values are given. A bounded number of rows is read: `back_to` says how far back that goes.
        """
        checked_dead_letters(EVERY_DEAD_LETTER, {"name": name, "queue": queue, "fingerprint": fingerprint})
        validation.check_limit(limit, MOST_CAUSES)
        validation.check_limit(values, MOST_VALUES)
        end = until if until is not None else (yield dead_letters.now())
        begin = end - since if isinstance(since, timedelta) else since
        checked_dead_letters(EVERY_DEAD_LETTER, {"since": begin, "until": end})
        if begin >= end:
            raise InvalidOption(f"since ({begin.isoformat()}) has to be before until ({end.isoformat()}).")
        chosen = FailureFilter(begin, end, name, queue, fingerprint, self.identity.owner)
        most_ids = min(MOST_VALUES, max(10, _TASKS_LOOKED_AT // limit))
        found: Sampled = yield failures.causes(chosen, limit, most_ids)
        fields: dict[str, list[FailureField]] = {}
        if found.causes:
            fields = yield failures.values(found.causes, values)
        deploys: list[Deploy] = yield fleet.deploys(1)
        deployed_at = deploys[0].seen_at if deploys else None
        return FailureReport(begin, end, found.causes, fields, found.attempts, found.back_to, deployed_at)
