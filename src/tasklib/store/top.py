"""What runs now, for those who watch."""

from __future__ import annotations

from typing import NamedTuple

from tasklib.db.query import Query

MOST_RUNNING = 2000
"""Running tasks are counted up to here."""


class Running(NamedTuple):
    """An attempt that goes on."""

    id: str
    name: str
    queue: str
    worker_id: str
    seconds: float
    attempt: int
    of: int
    """How many run in all, counted up to `MOST_RUNNING`."""


def running(limit: int) -> Query[list[Running]]:
    """The longest first."""
    parameters = {"limit": limit, "most": MOST_RUNNING}
    return Query("top_running", parameters, lambda rows: [Running._make(row) for row in rows], repeatable=True)


def load() -> Query[dict[str, int]]:
    """How many tasks each worker holds, by its id."""
    return Query("top_load", {"most": MOST_RUNNING}, dict, repeatable=True)
