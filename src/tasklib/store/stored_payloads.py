"""The payloads of tasks as they are stored, page by page."""

from __future__ import annotations

from typing import NamedTuple

from tasklib.db.query import Query

FIRST = "00000000-0000-0000-0000-000000000000"
"""Before every id."""


class StoredArguments(NamedTuple):
    """The arguments of one task."""

    id: str
    name: str
    payload_version: int | None
    kwargs: str
    later: list[str]
    """Arguments that are results of other tasks."""


def unfinished(after: str = FIRST, limit: int = 1000) -> Query[list[StoredArguments]]:
    """Tasks that are still to run, behind this id."""
    parameters = {"after": after, "limit": limit}
    return Query(
        "unfinished_payloads", parameters, lambda rows: [StoredArguments(*row) for row in rows], repeatable=True
    )
