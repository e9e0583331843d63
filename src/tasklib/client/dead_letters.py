"""Dead letters: list and group them, replay or purge many at once. One implementation for sync and async callers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Unpack
from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call, Pause
from tasklib.client.filters import DeadLetterConditions, checked_dead_letters
from tasklib.client.identity import OnBehalf
from tasklib.db.query import Query
from tasklib.errors import InvalidOption, TaskNotFound
from tasklib.states import is_dead_letter
from tasklib.store import dead_letters as store
from tasklib.store import lookup
from tasklib.store.dead_letters import DeadLetterBatch, DeadLetterGroup, DeadLetterPlace
from tasklib.store.filters import EVERY_DEAD_LETTER, DeadLetterFilter
from tasklib.store.search import FoundTask

if TYPE_CHECKING:
    from tasklib.models import Task

BATCH = 500
LOOK = 2_000
"""How many dead letters are read to group them by cause; a fingerprint takes about 20 µs."""
RAMP_SECONDS = 0.2
"""A slow replay takes this much time's worth of tasks at a time."""

_Take = Callable[[DeadLetterFilter, DeadLetterPlace | None, int], Query[DeadLetterBatch]]


@dataclass(frozen=True, slots=True)
class LatestGroups:
    """Dead letters by cause."""

    groups: list[DeadLetterGroup]
    looked_at: int | None
    """None: all dead letters are counted. Else so many, the latest, and there may be more."""


@dataclass(frozen=True, slots=True)
class AlikePage:
    """Dead letters with the same cause."""

    tasks: list[FoundTask]
    after: DeadLetterPlace | None
    """Pass it as `after` for the next page."""
    looked_at: int | None
    """As in a SearchPage."""


class DeadLetterCalls(OnBehalf):
    """The calls for the dead letter queue."""

    def dead_letters(
        self,
        dead_letter_filter: DeadLetterFilter = EVERY_DEAD_LETTER,
        /,
        *,
        after: UUID | str | Task | DeadLetterPlace | None = None,
        limit: int = 100,
        **conditions: Unpack[DeadLetterConditions],
    ) -> Call[list[Task]]:
        """One page of dead letters, the latest first. For the next page pass the last task as `after`.

        Conditions are keyword arguments, a DeadLetterFilter, or both: `ids`, `fingerprint`, `name`, `queue`, `error` (a
        piece of the traceback, in any case), `since` and `until` (when the task was given up).
        """
        chosen = checked_dead_letters(dead_letter_filter, conditions)
        validation.check_limit(limit, validation.MAX_PAGE)
        place = None if after is None else (yield from self._place(after))
        return (yield from self._dead_letters(chosen, place, limit))

    def dead_letter_groups(
        self,
        dead_letter_filter: DeadLetterFilter = EVERY_DEAD_LETTER,
        /,
        *,
        limit: int = 20,
        **conditions: Unpack[DeadLetterConditions],
    ) -> Call[list[DeadLetterGroup]]:
        """Dead letters by cause, the most frequent first: one name and, but for ids and numbers, one error."""
        chosen = checked_dead_letters(dead_letter_filter, conditions)
        validation.check_limit(limit, validation.MAX_PAGE)
        return (yield from self._dead_letter_groups(chosen, limit))

    def latest_dead_letter_groups(self, *, limit: int = 50, look: int = LOOK) -> Call[LatestGroups]:
        """The causes among the latest `look` dead letters, however many there are."""
        validation.check_limit(limit, validation.MAX_PAGE)
        validation.check_limit(look, None)
        groups, looked_at = yield store.latest_groups(self._own(EVERY_DEAD_LETTER), limit, look)
        return LatestGroups(groups, looked_at if looked_at >= look else None)

    def dead_letters_alike(
        self, fingerprint: str, *, after: DeadLetterPlace | None = None, limit: int = 50, look: int = LOOK
    ) -> Call[AlikePage]:
        """One page of the dead letters with this cause, the latest first; at most `look` are read."""
        chosen = self._own(checked_dead_letters(EVERY_DEAD_LETTER, {"fingerprint": fingerprint}))
        tasks, ended = yield store.alike(chosen, after, limit + 1, look)
        if len(tasks) > limit:
            last = tasks[limit - 1]
            return AlikePage(tasks[:limit], DeadLetterPlace(last.completed_at, str(last.id)), None)
        return AlikePage(tasks, ended, look if ended else None)

    def replay_dead_letters(
        self,
        dead_letter_filter: DeadLetterFilter = EVERY_DEAD_LETTER,
        /,
        *,
        everything: bool = False,
        limit: int | None = None,
        per_second: float | None = None,
        dry_run: bool = False,
        **conditions: Unpack[DeadLetterConditions],
    ) -> Call[list[UUID]]:
        """Start dead letters afresh, the oldest first, and return their ids: all retries anew, the token not reset.

        `per_second` lets them in slowly. What fails again meanwhile is not taken a second time. `dry_run=True` changes
        nothing and returns what would be replayed. Without any condition, `everything=True` has to say so.
        """
        chosen = checked_dead_letters(dead_letter_filter, conditions)
        _refuse_everything(chosen, everything, "replay")
        if per_second is not None and (isinstance(per_second, bool) or not 0 < per_second < float("inf")):
            raise InvalidOption(f"per_second must be more than 0, not {per_second!r}.")
        if limit is not None:
            validation.check_limit(limit, None)
        return (yield from self._replay(chosen, limit, per_second, dry_run))

    def purge_dead_letters(
        self,
        dead_letter_filter: DeadLetterFilter = EVERY_DEAD_LETTER,
        /,
        *,
        everything: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
        **conditions: Unpack[DeadLetterConditions],
    ) -> Call[list[UUID]]:
        """Delete dead letters for good, the oldest first, and return their ids; chosen as for a replay.

        Those of flows stay: a flow is deleted as a whole.
        """
        chosen = checked_dead_letters(dead_letter_filter, conditions)
        _refuse_everything(chosen, everything, "purge")
        if limit is not None:
            validation.check_limit(limit, None)
        return (yield from self._purge(chosen, limit, dry_run))

    def _dead_letters(self, chosen: DeadLetterFilter, after: DeadLetterPlace | None, limit: int) -> Call[list[Task]]:
        page: list[Task] = yield store.page(self._own(chosen), after, limit)
        return page

    def _dead_letter_groups(self, chosen: DeadLetterFilter, limit: int) -> Call[list[DeadLetterGroup]]:
        groups: list[DeadLetterGroup] = yield store.groups(self._own(chosen), limit)
        return groups

    def _replay(
        self, chosen: DeadLetterFilter, limit: int | None, per_second: float | None, dry_run: bool
    ) -> Call[list[UUID]]:
        take = partial(store.replay, by=self.identity.actor)
        look = partial(store.look, of_flows=True)
        return (yield from _take(take, look, self._own(chosen), limit, per_second, dry_run))

    def _purge(self, chosen: DeadLetterFilter, limit: int | None, dry_run: bool) -> Call[list[UUID]]:
        take = partial(store.purge, by=self.identity.actor)
        look = partial(store.look, of_flows=False)
        return (yield from _take(take, look, self._own(chosen), limit, None, dry_run))

    def _own(self, chosen: DeadLetterFilter) -> DeadLetterFilter:
        return replace(chosen, owner=self.identity.owner, secrets=self.identity.secrets)

    def _place(self, after: UUID | str | Task | DeadLetterPlace) -> Call[DeadLetterPlace]:
        if isinstance(after, DeadLetterPlace):
            return after
        task: Task | None
        if not isinstance(after, UUID | str):
            task = after
        else:
            task_id = validation.as_id(after)
            task = yield lookup.get(task_id, owner=self.identity.owner)
            if task is None:
                raise TaskNotFound.with_id(task_id)
        if task is None or not is_dead_letter(task) or task.completed_at is None:
            raise InvalidOption(
                f"after= is a dead letter of the page before, and this task is {task.state if task else 'deleted'}. "
                "Pass the task as you got it, not its id, if it may have been replayed."
            )
        return DeadLetterPlace(task.completed_at, str(task.id))


def _take(
    take: _Take,
    look: Callable[[DeadLetterFilter, int | None], Query[DeadLetterBatch]],
    chosen: DeadLetterFilter,
    limit: int | None,
    per_second: float | None,
    dry_run: bool,
) -> Call[list[UUID]]:
    if dry_run:
        seen: DeadLetterBatch = yield look(chosen, limit)
        return seen.ids
    # Tasks that become dead letters from now on are left alone; otherwise replaying tasks that fail again never ends.
    moment: datetime = yield store.now()
    chosen = chosen.not_after(moment)
    size = BATCH if per_second is None else max(1, min(BATCH, int(per_second * RAMP_SECONDS)))
    taken: list[UUID] = []
    place: DeadLetterPlace | None = None
    while limit is None or len(taken) < limit:
        wanted = size if limit is None else min(size, limit - len(taken))
        batch: DeadLetterBatch = yield take(chosen, place, wanted)
        taken += batch.ids
        if len(batch.ids) < wanted:
            break
        place = batch.last
        if per_second is not None:
            yield Pause(len(batch.ids) / per_second)
    return taken


def _refuse_everything(chosen: DeadLetterFilter, everything: bool, verb: str) -> None:
    if chosen.is_everything and not everything:
        raise InvalidOption(
            f"{verb}_dead_letters() without a condition would {verb} every dead letter. "
            "Give ids=, fingerprint=, name=, queue=, error=, since= or until=; or everything=True."
        )
