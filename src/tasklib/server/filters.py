"""The filters of a request: from its query parameters, as dependencies of a route; from a body, `request_models.py`."""

from __future__ import annotations

import json
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query
from pydantic import AwareDatetime

from tasklib.errors import InvalidOption
from tasklib.server.request_models import MAX_IDS, Name, Text
from tasklib.states import TaskState
from tasklib.store.filters import DeadLetterFilter, TaskFilter

Ids = Annotated[list[UUID] | None, Query(max_length=MAX_IDS, description="Repeatable.")]
NameFilter = Annotated[Name | None, Query()]


def task_filter(
    state: Annotated[list[TaskState] | None, Query(description="Repeatable.")] = None,
    name: NameFilter = None,
    queue: NameFilter = None,
    tag: Annotated[
        list[str] | None, Query(description="`key=value`, repeatable; a value that is valid JSON is read as JSON.")
    ] = None,
    worker: Annotated[Name | None, Query(description="Tasks that this worker runs now.")] = None,
    created_after: Annotated[AwareDatetime | None, Query(description="At or after.")] = None,
    created_before: Annotated[AwareDatetime | None, Query()] = None,
    task_id: Ids = None,
) -> TaskFilter:
    tags = _tags_of(tag or ())
    return TaskFilter(state or None, name, queue, tags, created_after, created_before, worker, task_id)


Fingerprint = Annotated[
    str | None, Query(pattern="^[0-9a-f]{6,32}$", description="The fingerprint of a cause, or the start of it.")
]


def dead_letter_filter(
    task_id: Ids = None,
    fingerprint: Fingerprint = None,
    name: NameFilter = None,
    queue: NameFilter = None,
    error: Annotated[Text | None, Query(description="A part of the traceback, ignoring case.")] = None,
    since: Annotated[AwareDatetime | None, Query(description="Dead letters since this time.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Dead letters before this time.")] = None,
) -> DeadLetterFilter:
    return DeadLetterFilter(task_id, fingerprint, name, queue, error, since, until)


Tasks = Annotated[TaskFilter, Depends(task_filter)]
DeadLetters = Annotated[DeadLetterFilter, Depends(dead_letter_filter)]


def _tags_of(pairs: list[str] | tuple[()]) -> dict[str, Any] | None:
    """Tags from `key=value`; a value that is JSON means that, any other is a string."""
    tags: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise InvalidOption(f"tag is written key=value, not {pair!r}.")
        try:
            tags[key] = json.loads(value)
        except (ValueError, RecursionError):
            tags[key] = value
    return tags or None
