"""Finding the task that a user means."""

from __future__ import annotations

import re
from uuid import UUID

from tasklib.cli.report import CommandError
from tasklib.client.clients import Client

_NEWEST = 100_000
_NOT_COMPLETED = " state:failed,cancelled,dead_letter,running"
_END_OF_AN_ID = re.compile(r"…?([0-9a-f]{4,12})")


def full_id(client: Client, text: str) -> UUID:
    """The id itself, or the newest tasks' only id with this end: a worker in a terminal shows just the ends."""
    try:
        return UUID(text)
    except ValueError:
        pass
    match = _END_OF_AN_ID.fullmatch(text.strip().lower())
    if match is None:
        raise CommandError(f"{text!r} is not a task's id. An id is a UUID; the end of one (8 characters) will do.")
    # There may be many completed tasks; an unfinished one must be found behind them.
    found = _ending(client, match[1], "") or _ending(client, match[1], _NOT_COMPLETED)
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"{len(found)} tasks have an id that ends in {match[1]}: {', '.join(map(str, found))}.")
    raise CommandError(
        f"none of the newest {_NEWEST:,} tasks has an id that ends in {match[1]}. "
        "Give the whole id; tasklib list | cat prints whole ids."
    )


def _ending(client: Client, end: str, states: str) -> list[UUID]:
    return [task.id for task in client.search_tasks(f"id:{end}{states}", limit=5, look=_NEWEST).tasks]
