"""What the leader keeps in order. Every statement carries the term, and changes nothing once it is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tasklib.config import Retention
from tasklib.db.query import Query, Rows, nothing
from tasklib.store.fleet import Term

_FIRST_ID = "00000000-0000-0000-0000-000000000000"


class Page(NamedTuple):
    """One page of a sweep: where it ended, how many rows it read and how many it deleted."""

    last: str | None
    read: int
    deleted: int


def rescue(term: Term, crash_limit: int, limit: int) -> Query[list[tuple[str, str, str]]]:
    """End attempts that lost their worker; reads (id, name, new state)."""
    parameters = {**term.parameters(), "crash_limit": crash_limit, "limit": limit, "message": ""}
    return Query("rescue", parameters, _id_name_state)


def fail_overdue(term: Term, grace: float, delay: float, limit: int) -> Query[list[tuple[str, str, str]]]:
    """Fail attempts long past their timeout; reads (id, name, new state)."""
    parameters = {**term.parameters(), "grace": float(grace), "delay": float(delay), "limit": limit, "message": ""}
    return Query("fail_overdue", parameters, _id_name_state)


def expire_keys(term: Term, limit: int) -> Query[list[str]]:
    return Query("expire_keys", {**term.parameters(), "limit": limit}, _ids)


def without_tasks(term: Term, ids: Sequence[str]) -> Query[list[str]]:
    """Which of these ids no task has."""
    return Query("without_tasks", {**term.parameters(), "ids": list(ids)}, _ids)


def expire_dead_letters(term: Term, age: float, limit: int) -> Query[list[str]]:
    return Query("expire_dead_letters", {**term.parameters(), "age": float(age), "limit": limit}, _ids)


def retain(term: Term, rule: Retention, except_names: Sequence[str], after: str | None, limit: int) -> Query[Page]:
    """Delete one page's worth of finished tasks that a retention rule no longer keeps."""
    parameters: dict[str, Any] = {
        **term.parameters(),
        "state": rule.state,
        "name": rule.name,
        "except_names": list(except_names),
        "age": float(rule.seconds),
        "after": after or _FIRST_ID,
        "limit": limit,
    }
    return Query("retain", parameters, lambda rows: Page(*rows[0]))


def take_snapshot(term: Term, most: int) -> Query[None]:
    """Count what waits, runs and works, and store the figures."""
    parameters = {**term.parameters(), "most": most, "most_in_all": most, "most_lanes": 10_000, "least": 2_500}
    return Query("take_snapshot", parameters, nothing)


def remember_names(term: Term, most: int, most_names: int) -> Query[None]:
    """Store how deep the tasks of each name are, as far as a look at `most` tasks shows them."""
    parameters = {
        **term.parameters(), "most": most, "most_in_all": most, "most_lanes": 1000, "most_names": most_names,
    }  # fmt: skip
    return Query("remember_names", parameters, nothing)


def _id_name_state(rows: Rows) -> list[tuple[str, str, str]]:
    return [(row[0], row[1], row[2]) for row in rows]


def _ids(rows: Rows) -> list[str]:
    return [row[0] for row in rows]
