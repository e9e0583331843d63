"""Erasing what finished tasks hold, such as all that is stored about one person."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

from tasklib.client.effects import Call, RunCoroutine
from tasklib.client.filters import TaskConditions, checked_tasks
from tasklib.client.identity import OnBehalf
from tasklib.config import Config
from tasklib.errors import InvalidOption
from tasklib.states import TERMINAL
from tasklib.store import stored_payloads
from tasklib.store.filters import EVERY_TASK, TaskFilter
from tasklib.store.stored_payloads import ErasedCounts
from tasklib.tasks.payload_stores import store_of

PAGE = 500


class ErasingCalls(OnBehalf):
    """The call that erases payloads."""

    def erase_tasks(
        self,
        task_filter: TaskFilter = EVERY_TASK,
        /,
        *,
        dry_run: bool = False,
        **conditions: Unpack[TaskConditions],
    ) -> Call[ErasedCounts]:
        """Erase what the finished tasks hold that match the filters of `list_tasks`, and return how many.

        Arguments, results, errors, progress, steps, signals, keys and payloads in a payload store are gone; the rows
        stay, with their names, tags and times. `left` tasks are not finished, and stay as they are: cancel them, and
        erase again. A condition is required. `dry_run=True` only counts.
        """
        chosen = checked_tasks(task_filter, conditions, self.config)
        if chosen.is_everything:
            raise InvalidOption("erase_tasks() needs a condition, such as tags={'customer': 42}.")
        if unfinished := set(chosen.state or ()) - TERMINAL:
            raise InvalidOption(f"a task that is {min(unfinished)} is not finished, and can't be erased.")
        return (yield from self._erase(chosen, dry_run))

    def _erase(self, chosen: TaskFilter, dry_run: bool) -> Call[ErasedCounts]:
        chosen = replace(chosen, owner=self.identity.owner)
        look: ErasedCounts = yield stored_payloads.erase_look(chosen)
        if dry_run:
            return look
        erased, after = 0, stored_payloads.FIRST
        page: list[str]
        while page := (yield stored_payloads.erasable(chosen, after, PAGE)):
            # Before the rows: if this is interrupted, the next erasure finds them again.
            if self.config.payload_store is not None:
                yield RunCoroutine(partial(_delete_blobs, page))
            done: list[str] = yield stored_payloads.erase(page, chosen, by=self.identity.actor)
            erased += len(done)
            after = page[-1]
        return replace(look, erased=erased)


async def _delete_blobs(task_ids: Sequence[str], config: Config) -> None:
    await asyncio.to_thread(_delete_each, task_ids, config)


def _delete_each(task_ids: Sequence[str], config: Config) -> None:
    store = store_of(config)
    assert store is not None
    for task_id in task_ids:
        while own := [key for key in store.keys(f"{task_id}/", PAGE) if key.startswith(f"{task_id}/")]:
            for key in own:
                store.delete(key)
