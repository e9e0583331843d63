"""Finding the task or the flow that a user means."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

from tasklib.cli.report import CommandError
from tasklib.client.clients import Client

_NEWEST = 100_000
_NEWEST_FLOWS = 10_000
_FLOWS_PER_PAGE = 1000
_NOT_COMPLETED = " state:failed,cancelled,dead_letter,running"
_END_OF_AN_ID = re.compile(r"…?([0-9a-f]{4,12})")


def full_id(client: Client, text: str) -> UUID:
    """The id itself, or the newest tasks' only id with this end: a worker in a terminal shows just the ends."""
    # There may be many completed tasks; an unfinished one must be found behind them.
    return _full_id(
        text,
        "task",
        lambda end: _ending(client, end, "") or _ending(client, end, _NOT_COMPLETED),
        f"none of the newest {_NEWEST:,} tasks has an id that ends in",
        "tasklib list | cat prints whole ids.",
    )


def full_flow_id(client: Client, text: str) -> UUID:
    """The same for a flow."""
    return _full_id(
        text,
        "flow",
        lambda end: _flows_ending(client, end),
        f"none of the newest {_NEWEST_FLOWS:,} flows has an id that ends in",
        "tasklib flow list prints whole ids.",
    )


def _full_id(text: str, kind: str, ending: Callable[[str], list[UUID]], none: str, where: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        pass
    match = _END_OF_AN_ID.fullmatch(text.strip().lower())
    if match is None:
        raise CommandError(f"{text!r} is not a {kind}'s id. An id is a UUID; the end of one (8 characters) will do.")
    found = ending(match[1])
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"{len(found)} {kind}s have an id that ends in {match[1]}: {', '.join(map(str, found))}.")
    raise CommandError(f"{none} {match[1]}. Give the whole id; {where}")


def _flows_ending(client: Client, end: str) -> list[UUID]:
    found: list[UUID] = []
    after = None
    for _ in range(_NEWEST_FLOWS // _FLOWS_PER_PAGE):
        page = client.flows(after=after, limit=_FLOWS_PER_PAGE)
        found += [info.id for info in page if info.id.hex.endswith(end)]
        if len(page) < _FLOWS_PER_PAGE:
            break
        after = page[-1].id
    return found


def _ending(client: Client, end: str, states: str) -> list[UUID]:
    return [task.id for task in client.search_tasks(f"id:{end}{states}", limit=5, look=_NEWEST).tasks]
