"""Filters as callers give them: a value, keyword arguments, or both; checked before anything is asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from tasklib.client.validation import as_id
from tasklib.config import Config
from tasklib.errors import InvalidOption
from tasklib.states import TaskState
from tasklib.store.filters import DeadLetterFilter, TaskFilter
from tasklib.tasks.options import MAX_NAME_BYTES, Options, is_name, is_storable, require_aware
from tasklib.tasks.payload import json_option

_FINGERPRINT = re.compile(r"[0-9a-f]{6,32}")


class TaskConditions(TypedDict, total=False):
    """The conditions of a TaskFilter as keyword arguments."""

    state: str | Iterable[str] | None
    name: str | None
    queue: str | None
    tags: Mapping[str, Any] | None
    created_after: datetime | None
    created_before: datetime | None
    worker: str | None
    ids: Iterable[UUID | str] | None


class DeadLetterConditions(TypedDict, total=False):
    """The conditions of a DeadLetterFilter as keyword arguments."""

    ids: Iterable[UUID | str] | None
    fingerprint: str | None
    name: str | None
    queue: str | None
    error: str | None
    since: datetime | None
    until: datetime | None


def checked_tasks(chosen: TaskFilter, conditions: TaskConditions, config: Config) -> TaskFilter:
    """The filter with these conditions too, once each of them is known to make sense."""
    chosen = replace(chosen, **conditions)
    _check_names(chosen.name, chosen.queue)
    Options(tags=chosen.tags)  # checks them
    tags = json.loads(json_option("tags", chosen.tags, config)) if chosen.tags else None
    if chosen.worker is not None and not (isinstance(chosen.worker, str) and is_storable(chosen.worker)):
        raise InvalidOption(f"worker must be a worker's id, as workers() gives it, not {chosen.worker!r}.")
    _check_moments(created_after=chosen.created_after, created_before=chosen.created_before)
    return replace(chosen, state=_states(chosen.state), tags=tags, ids=_ids(chosen.ids))


def checked_dead_letters(chosen: DeadLetterFilter, conditions: DeadLetterConditions) -> DeadLetterFilter:
    """The filter with these conditions too, once each of them is known to make sense."""
    chosen = replace(chosen, **conditions)
    _check_names(chosen.name, chosen.queue)
    fingerprint, error = chosen.fingerprint, chosen.error
    if fingerprint is not None and not (isinstance(fingerprint, str) and _FINGERPRINT.fullmatch(fingerprint)):
        raise InvalidOption(
            f"a fingerprint is 6 to 32 of 0-9 and a-f, as in dead_letter_groups(), not {fingerprint!r}."
        )
    if error is not None and (not isinstance(error, str) or not error or not is_storable(error)):
        raise InvalidOption(f"error must be a part of the error's text, not {error!r}.")
    _check_moments(since=chosen.since, until=chosen.until)
    return replace(chosen, ids=_ids(chosen.ids))


def _check_names(name: str | None, queue: str | None) -> None:
    if name is not None and not is_name(name):
        raise InvalidOption(f"name must be a string of 1 to {MAX_NAME_BYTES} bytes, not {name!r}.")
    Options(queue=queue)  # checks it


def _check_moments(**moments: datetime | None) -> None:
    for option, moment in moments.items():
        if moment is not None:
            require_aware(option, moment)


def _states(state: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if state is None:
        return None
    try:
        return tuple(TaskState(s).value for s in ([state] if isinstance(state, str) else state))
    except ValueError as e:
        raise InvalidOption(f"{e}: a state is one of {', '.join(TaskState)}.") from None


def _ids(ids: UUID | str | Iterable[UUID | str] | None) -> tuple[UUID, ...] | None:
    if ids is None:
        return None
    return tuple(as_id(one) for one in ([ids] if isinstance(ids, str | UUID) else ids))
