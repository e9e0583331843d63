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
from tasklib.store import limits
from tasklib.store.lookup import Outcome
from tasklib.store.submit import SubmitTerms
from tasklib.tasks import blobs, registry
from tasklib.tasks.function import keys_of
from tasklib.tasks.payload_stores import store_of

if TYPE_CHECKING:
    from tasklib.client.submissions import NewTasks


def offload(config: Config, tasks: NewTasks) -> Call[None]:
    """Put the long arguments of these tasks into the store, before their rows are written."""
    long = [place for place, text in enumerate(tasks.texts) if blobs.is_long(config, text)]
    if not long:
        return
    kinds = {place: tasks[place].terms for place in long}
    keyed: set[str] = yield limits.keyed_names({terms.name for terms in kinds.values()})
    long = [place for place, terms in kinds.items() if not _stays(terms, keyed)]
    if long:
        yield RunCoroutine(lambda _: asyncio.to_thread(_put, config, tasks, long))


def _stays(terms: SubmitTerms, keyed: set[str]) -> bool:
    """Whether the arguments have to be in the table.

    The claim makes keys of limits and serial keys of them. And those that replace a waiting task's are that task's by
    then: what the store has would be under the id of a task that never was, and deleted.
    """
    function = registry.functions.get(terms.name)
    has_keys = function is not None and any(name is not None for _, name in keys_of(function))
    return terms.replaces or has_keys or terms.name in keyed


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
