"""Moving long arguments of new tasks into the payload store, and fetching results from it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tasklib.client.effects import Call, RunCoroutine
from tasklib.config import Config
from tasklib.store.lookup import Outcome
from tasklib.store.submit import SubmitTerms
from tasklib.tasks import blobs
from tasklib.tasks.payload_stores import store_of

if TYPE_CHECKING:
    from tasklib.client.submissions import NewTasks


def offload(config: Config, tasks: NewTasks) -> Call[None]:
    """Put the long arguments of these tasks into the store, before their rows are written."""
    long = [place for place, text in enumerate(tasks.texts) if blobs.is_long(config, text)]
    if long:
        yield RunCoroutine(lambda _: asyncio.to_thread(_put, config, tasks, long))


def _put(config: Config, tasks: NewTasks, places: list[int]) -> None:
    store = store_of(config)
    assert store is not None
    for place in places:
        id_, text, terms = tasks[place]
        try:
            pointer = blobs.stored(store, UUID(int=id_.int), "kwargs", text)
        except Exception as e:  # the store's own; the table takes it as well
            not_stored(terms.name, e)
            continue
        tasks.replace(place, pointer, _requiring(terms, blobs.required_by(pointer)))


def not_stored(name: str, error: Exception) -> None:
    """Say that a payload stays in the table."""
    logging.getLogger("tasklib").warning(
        "a payload of %s stays in the table: the payload store failed (%s)", name, type(error).__name__
    )


def _requiring(terms: SubmitTerms, required: list[str]) -> SubmitTerms:
    return replace(terms, required_capabilities=tuple(sorted({*terms.required_capabilities, *required})))


def with_result(config: Config, outcome: Outcome) -> Call[Outcome]:
    """How a task ended, with a result that is in the store fetched from there."""
    if not blobs.is_pointer(outcome.result):
        return outcome
    value: Any = yield RunCoroutine(lambda _: asyncio.to_thread(partial(blobs.fetched, config, outcome.result)))
    return replace(outcome, result=value)
