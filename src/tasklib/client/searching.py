"""Searching tasks, and cancelling or replaying the results. One implementation for sync and async callers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from tasklib.client import validation
from tasklib.client.effects import Call
from tasklib.client.identity import OnBehalf
from tasklib.client.search_language import parse
from tasklib.db.query import Query
from tasklib.errors import InvalidOption
from tasklib.states import CLAIMABLE, TaskState
from tasklib.store import control, dead_letters, search
from tasklib.store.control import CancelCounts
from tasklib.store.filters import TaskFilter
from tasklib.store.search import CappedCount, FoundTask, HeldValues, Matches, Part, Search

LOOK = 10_000
"""How many tasks a search reads before it stops; the page then says so."""
LOOK_FOR_PENDING = 2_000
LOOK_IN_FLOWS = 100_000
"""Tasks of a flow are wanted whole, such as the one that failed among many."""
MOST_LOOK = 1_000_000
COUNT_UP_TO = 500
BATCH = 500
MOST_AT_ONCE = 5_000
"""How many tasks one call changes, so that none takes minutes; the next goes on where it ended."""

_TRACEBACKS_COST = 5
"""Looking into tracebacks takes so many times as long."""
_UNFINISHED = frozenset({*CLAIMABLE, TaskState.RUNNING})


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of what a search found, the newest first."""

    tasks: list[FoundTask]
    older: UUID | None = None
    """Pass it as `older_than` for the next page."""
    newer: UUID | None = None
    """Pass it as `newer_than` for the page before."""
    looked_at: int | None = None
    """None: every task that fits was found. Else the search ended after looking at so many, perhaps before others."""
    index: str | None = None
    """The statement that creates an index with which this search would find all tasks; None if it needs none."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes made to the tasks of a search, or to chosen ones."""

    count: int
    asked: int = 0
    """Of these, so many run, and their workers were requested to stop them."""
    next: UUID | None = None
    """There are more: pass it as `older_than` to go on."""


class SearchingCalls(OnBehalf):
    """Searches, by the language of `search_language.py`."""

    def search_tasks(
        self,
        text: str = "",
        *,
        limit: int = 50,
        look: int = LOOK,
        older_than: UUID | str | None = None,
        newer_than: UUID | str | None = None,
    ) -> Call[SearchPage]:
        """Search tasks by qualifiers, newest first: `search_tasks('state:failed name:send_email created:<2h')`.

        At most `look` tasks are read; if more might match, `looked_at` is set, and `older` continues from there.
        """
        validation.check_limit(limit, validation.MAX_PAGE)
        validation.check_limit(look, MOST_LOOK)
        below = None if older_than is None else validation.as_id(older_than)
        above = None if newer_than is None else validation.as_id(newer_than)
        sought = yield from self._sought(text)
        held = None if sought.exact or sought.is_in_flows else search.held_values(sought)
        if held is not None and above is None:
            page = yield from _indexed_page(sought, held, limit, below, self.config.schema)
            if page is not None:
                return page
        page = yield from _page(sought, limit, _affordable(sought, look), below, above)
        return replace(page, index=held.statement) if held is not None and page.looked_at is not None else page

    def count_states(self) -> Call[dict[str, CappedCount]]:
        """How many tasks are in each state but completed, counted up to 500."""
        counts: dict[str, CappedCount] = yield search.count_states(COUNT_UP_TO)
        return counts

    def cancel_found(self, text: str, *, older_than: UUID | str | None = None) -> Call[Changed]:
        """Cancel what a search finds, the newest first, up to 5,000 tasks; `next` goes on with older ones."""
        below = None if older_than is None else validation.as_id(older_than)
        sought = _among((yield from self._sought(text)), _UNFINISHED, "cancelled")
        return (yield from self._each_batch(sought, text, below, cancel=True))

    def replay_found(self, text: str, *, older_than: UUID | str | None = None) -> Call[Changed]:
        """Replay the finished tasks that a search finds, as `cancel_found` cancels unfinished ones."""
        below = None if older_than is None else validation.as_id(older_than)
        finished = frozenset(TaskState) - _UNFINISHED
        sought = _among((yield from self._sought(text)), finished, "replayed")
        return (yield from self._each_batch(sought, text, below, cancel=False))

    def cancel_chosen(self, ids: Iterable[UUID | str]) -> Call[Changed]:
        """Cancel the unfinished ones of these tasks."""
        return (yield from self._cancel(_chosen(ids), None))

    def replay_chosen(self, ids: Iterable[UUID | str]) -> Call[Changed]:
        """Replay the finished ones of these tasks."""
        replayed: list[UUID] = yield search.replay(_chosen(ids), "", by=self.identity.actor, owner=self.identity.owner)
        return Changed(len(replayed))

    def _sought(self, text: str) -> Call[Search]:
        # The database's clock, where it matters.
        has_times = any(f"{field}:" in text.lower() for field in ("created", "failed", "due"))
        now: datetime = (yield dead_letters.now()) if has_times else datetime.now(UTC)
        identity = self.identity
        return replace(parse(text, self.config, now), owner=identity.owner, secrets=identity.secrets)

    def _each_batch(self, sought: Search, text: str, below: UUID | None, *, cancel: bool) -> Call[Changed]:
        count = asked = 0
        while count < MOST_AT_ONCE:
            page: SearchPage = yield from _page(sought, BATCH, _affordable(sought, LOOK), below, None)
            ids = [task.id for task in page.tasks]
            if ids and cancel:
                done: Changed = yield from self._cancel(ids, text or "everything")
            elif ids:
                replayed: list[UUID] = yield search.replay(
                    ids, text or "everything", by=self.identity.actor, owner=self.identity.owner
                )
                done = Changed(len(replayed))
            else:
                done = Changed(0)
            count, asked, below = count + done.count, asked + done.asked, page.older
            if below is None:
                return Changed(count, asked)
            if page.looked_at is not None:
                break
        return Changed(count, asked, below)

    def _cancel(self, ids: Sequence[UUID], sought: str | None) -> Call[Changed]:
        chosen = TaskFilter(state=sorted(_UNFINISHED), ids=ids, owner=self.identity.owner)
        done: CancelCounts = yield control.cancel_batch(chosen, len(ids), by=self.identity.actor, sought=sought)
        # Rows that another transaction had locked: one by one, so that each statement waits for one row only.
        rest: list[str] = yield control.cancel_rest(chosen)
        cancelled, asked = done.cancelled, done.asked
        for task_id in rest:
            state: str | None = yield control.cancel(UUID(task_id), by=self.identity.actor, owner=self.identity.owner)
            cancelled += state == TaskState.CANCELLED
            asked += state == TaskState.RUNNING
        return Changed(cancelled + asked, asked)


def _indexed_page(
    sought: Search, held: HeldValues, limit: int, below: UUID | None, schema: str | None
) -> Call[SearchPage | None]:
    """By an optional index; None if there is none, or so many tasks have the value that the newest are found faster."""
    if not (yield search.has_index(held, schema)):
        return None
    tasks, more = yield search.indexed(sought, Part(limit + 1, LOOK, older_than=below), held)
    if more:
        return None
    newer = None if below is None else tasks[0].id if tasks else below
    return SearchPage(tasks[:limit], tasks[limit - 1].id if len(tasks) > limit else None, newer)


def _page(sought: Search, limit: int, look: int, below: UUID | None, above: UUID | None) -> Call[SearchPage]:
    if above is not None:
        page = yield from _page_before(sought, limit, look, above)
        if page is not None:
            return page
        below = None
    if _are_pending(sought) and sought.is_by_state_alone and look == LOOK:
        # They are among the newest, or there are few, or the caller has to say how many to read.
        look = LOOK_FOR_PENDING
    look = max(look, LOOK_IN_FLOWS) if sought.is_in_flows else look
    # One more than requested shows whether there are more.
    found: Matches = yield _query(sought, Part(limit + 1, look, older_than=below))
    tasks, ended_at, looked_at = found.tasks, found.ended_at, look if found.ended_at else None
    if found.ended_at is not None and _are_pending(sought) and not sought.is_in_flows:
        older, more = yield search.waiting(sought, Part(limit + 1, look, older_than=found.ended_at))
        tasks = [*tasks, *older][: limit + 1]
        if not more:
            ended_at = looked_at = None
        elif older:
            ended_at = tasks[-1].id
    newer = None if below is None else tasks[0].id if tasks else below
    if len(tasks) > limit:
        return SearchPage(tasks[:limit], tasks[limit - 1].id, newer, None)
    return SearchPage(tasks, ended_at, newer, looked_at)


def _page_before(sought: Search, limit: int, look: int, above: UUID) -> Call[SearchPage | None]:
    """The page before a task; None: there is no full one, so it is the first."""
    look = max(look, LOOK_IN_FLOWS) if sought.is_in_flows else look
    found: Matches = yield _query(sought, Part(limit + 1, look, newer_than=above))
    if len(found.tasks) <= limit and found.ended_at is None:
        return None
    tasks = found.tasks[-limit:]
    newer = tasks[0].id if len(found.tasks) > limit else found.ended_at
    return SearchPage(tasks, tasks[-1].id if tasks else above, newer, look if found.ended_at else None)


def _query(sought: Search, part: Part) -> Query[Matches]:
    if sought.exact:
        return search.with_ids(sought, part)
    if sought.is_in_flows:
        return search.in_flows(sought, part)
    # Tasks of one owner have an index by id; those of one state don't.
    if sought.states is not None and search.SET_ASIDE.issuperset(sought.states) and sought.owner is None:
        # Where all tasks match, no more are read than are shown.
        return search.set_aside(sought, part._replace(look=part.limit) if sought.is_by_state_alone else part)
    return search.newest(sought, part)


def _are_pending(sought: Search) -> bool:
    return sought.states == (TaskState.PENDING,) and sought.owner is None


def _affordable(sought: Search, look: int) -> int:
    reads_errors = sought.errors or sought.not_errors or sought.causes or sought.not_causes
    return max(1, look // _TRACEBACKS_COST) if reads_errors else look


def _among(sought: Search, states: frozenset[TaskState], verb: str) -> Search:
    """The same of what can be changed."""
    wanted = [s.value for s in TaskState if s in states and (sought.states is None or s in sought.states)]
    if not wanted:
        raise InvalidOption(f"none of the states that this search asks for can be {verb}.")
    return replace(sought, states=tuple(wanted))


def _chosen(ids: Iterable[UUID | str]) -> list[UUID]:
    chosen = sorted({validation.as_id(i) for i in ids})
    validation.check_limit(len(chosen), MOST_AT_ONCE)
    return chosen
